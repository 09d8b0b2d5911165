//! Engines that keep their KV in a folder: what one has computed, the next one does not compute again, and says the same.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::store::{DiskStore, Folder, ObjectInfo, Reject, Secret, StoreConfig, verify};

/// An engine on the KV of a folder.
pub(super) fn open(rig: Rig, folder: &Path) -> Rig {
    open_with(rig, folder, None)
}

/// The same, encrypted with a key.
pub(super) fn open_with(rig: Rig, folder: &Path, secret: Option<Secret>) -> Rig {
    let layout = rig.engine.model.kv_layout();
    let config = StoreConfig {
        identity: rig.engine.model.kv_identity(),
        block_tokens: layout.block_tokens,
        block_bytes: usize::try_from(layout.block_bytes).expect("small"),
        state_bytes: usize::try_from(layout.state_bytes).expect("small"),
        budget_bytes: 1 << 30,
        secret,
    };
    let objects = Arc::new(Folder::create(folder).expect("a folder"));
    let store = DiskStore::open(objects, config).expect("it opens");
    Rig {
        engine: rig.engine.with_store(Box::new(store)),
        ..rig
    }
}

/// Steps until nothing is left to compute, to load or to save.
pub(super) fn rest(rig: &mut Rig) {
    loop {
        match rig.step() {
            Progress::Stepped => {}
            Progress::Waiting { until_us: None } => break,
            // The store's threads take real time.
            Progress::Waiting { .. } => std::thread::sleep(Duration::from_micros(100)),
            Progress::Ended => panic!("nobody asked for it"),
        }
    }
    if let Some(store) = &mut rig.engine.store {
        store.flush(Duration::from_secs(60));
    }
}

pub(super) fn ask(rig: &mut Rig, prompt: &str, tokens: u32) -> Answer {
    let sampling = Sampling {
        ignore_eos: true,
        ..greedy(tokens)
    };
    let stream = rig.submit(prompt, sampling);
    rest(rig);
    Answer::of(stream)
}

/// Ends an engine as a server does.
pub(super) fn end(mut rig: Rig) {
    rig.handle.shutdown(Shutdown::Now);
    while !matches!(rig.step(), Progress::Ended) {}
}

pub(super) fn store_stats(rig: &Rig) -> crate::store::StoreStats {
    rig.engine.store.as_ref().expect("it has one").stats()
}

fn fake() -> Rig {
    Rig::new(FakeModel::new(VOCAB), &small())
}

#[test]
fn a_restarted_engine_goes_on_where_the_last_one_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut first = open(fake(), folder.path());
    let said = ask(&mut first, &long(100), 30);
    assert_eq!(said.cached, Some(0));
    end(first);
    let mut second = open(fake(), folder.path());
    let longer = format!("{}{} and then", long(100), said.text);
    let answer = ask(&mut second, &longer, 20);
    assert_eq!(answer.text, letters(&longer, 20));
    // 129 tokens of the first were computed: eight whole blocks.
    assert_eq!(answer.usage().cached_tokens, 128);
    assert_eq!(second.engine.scheduler.stats().loaded_tokens, 128);
    let told = second.handle.status().store.expect("it has one");
    assert_eq!((told.loaded_blocks, told.absent), (8, 0));
    // A fork takes what it shares.
    let fork = format!("{}#", &long(100)[..70]);
    assert_eq!(ask(&mut second, &fork, 5).cached, Some(64));
    second.assert_empty();
}

#[test]
fn what_was_said_last_is_in_memory_before_anybody_asks() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut first = open(fake(), folder.path());
    let others: Vec<String> = (0..9).map(|n| format!("{n}{}", long(150))).collect();
    for other in &others {
        ask(&mut first, other, 5);
    }
    let said = ask(&mut first, &long(100), 30);
    end(first);
    let mut second = open(fake(), folder.path());
    rest(&mut second);
    let stats = second.engine.scheduler.stats();
    // Memory for 768 tokens: the last, and of those before what fits it, unless reading takes longer than computing.
    let others_loaded = stats.loaded_tokens - 128;
    assert!(others_loaded <= 4 * 144 && others_loaded.is_multiple_of(16));
    // What is behind the last whole block is computed.
    assert!(stats.blocks.used == 0 && (2..16 * 5).contains(&stats.prefill_tokens));
    let answer = ask(&mut second, &format!("{}{}!", long(100), said.text), 3);
    assert_eq!(answer.usage().cached_tokens, 130, "all that was said");
    let after = second.engine.scheduler.stats();
    assert_eq!(
        after.loaded_tokens, stats.loaded_tokens,
        "it was there already"
    );
    second.assert_empty();
    end(second);
    // Who asks at once is answered, whatever is being loaded.
    let mut third = open(fake(), folder.path());
    third.step();
    let asked = third.submit(&others[1], greedy(3));
    rest(&mut third);
    assert_eq!(Answer::of(asked).text, letters(&others[1], 3));
    third.assert_empty();
}

#[test]
fn ds4_673_what_was_loaded_is_still_stored() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut first = open(fake(), folder.path());
    ask(&mut first, &long(100), 1);
    end(first);
    for _ in 0..3 {
        let mut next = open(fake(), folder.path());
        assert_eq!(ask(&mut next, &long(100), 1).cached, Some(96));
        assert_eq!(store_stats(&next).blocks, 6);
        end(next);
    }
}

#[test]
fn what_the_end_of_an_engine_finds_unsaved_is_saved() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut first = open(fake(), folder.path());
    let stream = first.submit(&long(100), greedy(1));
    while stream.ring_len() < 2 {
        first.step();
    }
    assert!(first.engine.scheduler.has_unsaved());
    end(first);
    let mut second = open(fake(), folder.path());
    assert_eq!(ask(&mut second, &long(100), 1).cached, Some(96));
}

#[test]
fn another_models_kv_is_not_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut first = open(fake(), folder.path());
    ask(&mut first, &long(100), 1);
    end(first);
    let other = Rig::new(FakeModel::new(VOCAB).block_tokens(8), &small());
    let mut second = open(other, folder.path());
    assert_eq!(ask(&mut second, &long(100), 1).cached, Some(0));
    assert!(store_stats(&second).blocks > 12, "both are there");
}

#[test]
fn a_conversation_of_many_turns_is_written_once_and_read_back_to_the_bit() {
    let (file, folder) = (
        real_model::tiny_llama(),
        tempfile::tempdir().expect("a folder"),
    );
    let config = EngineConfig {
        sessions: 1,
        context: 512,
        ..small()
    };
    let engine = || real_model::rig(&file, &config, 1);
    let mut rig = open(engine(), folder.path());
    let mut unrestarted = engine();
    let mut history = String::new();
    for turn in 0..50 {
        history += &format!("{turn}?");
        let answer = ask(&mut rig, &history, 2);
        assert_eq!(answer.text, ask(&mut unrestarted, &history, 2).text);
        // Side requests push the conversation out of a memory of one session.
        ask(&mut rig, &format!("side {turn} {}", long(200)), 1);
        history += &answer.text;
        if turn % 20 == 19 {
            end(rig);
            rig = open(engine(), folder.path());
            let cold = ask(&mut engine(), &history, 5);
            let restarted = ask(&mut rig, &history, 5);
            assert_eq!(restarted.text, cold.text);
            // The last answer's bytes may be other tokens as a prompt: it is computed, and what its block began with.
            let block = rig.engine.model.kv_layout().block_tokens as usize;
            let known = history.len() - answer.text.len();
            let cached = restarted.cached.expect("started") as usize;
            assert!(cached + block > known, "{cached} of {known} in turn {turn}");
        }
    }
    rest(&mut rig);
    let since_restart = store_stats(&rig);
    assert_eq!(since_restart.damaged + since_restart.unsaved, 0);
    end(rig);
    let mut unique = 0;
    let objects = Folder::open(folder.path()).expect("it is there");
    let see = |_: &_, found: Result<ObjectInfo, Reject>| {
        unique += found.expect("whole").stored_bytes;
    };
    verify(&objects, None, see).expect("readable");
    let files = std::fs::read_dir(folder.path()).expect("there");
    let bytes: u64 = files
        .map(|file| file.expect("there").metadata().expect("there").len())
        .sum();
    assert!(bytes * 10 <= unique * 11, "{bytes} in files for {unique}");
}

#[test]
fn bytes_written_grow_linearly_with_the_turns() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = EngineConfig {
        context: 1024,
        ..small()
    };
    let mut rig = open(Rig::new(FakeModel::new(VOCAB), &config), folder.path());
    let (mut history, mut written) = (String::new(), Vec::new());
    for turn in 0..50 {
        history += &format!("{turn}? ");
        history += &ask(&mut rig, &history, 5).text;
        // Nothing is left to write but a block that is not full.
        let stats = store_stats(&rig);
        assert_eq!(stats.blocks, stats.saved_blocks);
        written.push(stats.written_bytes);
    }
    let stats = store_stats(&rig);
    let each = stats.written_bytes / stats.saved_blocks;
    let tokens = history.len() as u64;
    assert!(stats.saved_blocks <= tokens / 16 && stats.saved_blocks + 2 >= tokens / 16);
    assert!(written[49] < 2 * written[24] + 3 * each, "{written:?}");
}

/// The bytes, and tokens for many pairs of letters: this model never samples one, and the tokenizer always takes it.
fn pairs() -> (TextStack, usize) {
    let bytes = text_stack().tokenizer;
    let letters = b'a'..=b'z';
    let pairs = letters
        .clone()
        .flat_map(|a| letters.clone().map(move |b| (a, b)));
    let merges: Vec<String> = pairs
        .filter(|(a, b)| (a + b) % 3 != 0)
        .map(|(a, b)| format!("{} {}", char::from(a), char::from(b)))
        .collect();
    let spelling = |id: u32| {
        let piece = bytes.piece(id);
        let printable = |byte: &u8| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
        let rank = (0..piece[0]).filter(|byte| !printable(byte)).count();
        let rank = u32::try_from(rank).expect("few");
        let code = if printable(&piece[0]) {
            piece[0].into()
        } else {
            0x100 + rank
        };
        char::from_u32(code).expect("Latin letters").to_string()
    };
    let mut tokens: Vec<String> = (0..256).map(spelling).collect();
    tokens.extend(["<|end|>".into(), "<|control|>".into()]);
    tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    let vocab = tokens.len();
    let mut kinds = vec![1_i32; vocab];
    kinds[END as usize..=CONTROL as usize].fill(3);
    let file = GgufWriter::new()
        .metadata("tokenizer.ggml.model", "gpt2")
        .metadata("tokenizer.ggml.pre", "default")
        .metadata("tokenizer.ggml.tokens", tokens)
        .metadata("tokenizer.ggml.token_type", kinds)
        .metadata("tokenizer.ggml.merges", merges)
        .metadata("tokenizer.ggml.eos_token_id", END)
        .metadata("tokenizer.ggml.add_bos_token", false)
        .finish();
    let file = GgufFile::from_bytes(file).expect("a file just written");
    let tokenizer = Tokenizer::from_metadata(file.metadata()).expect("a vocabulary");
    (TextStack::new(tokenizer, None), vocab)
}

pub(super) fn rig_of_pairs() -> Rig {
    let (text, vocab) = pairs();
    let config = EngineConfig {
        context: 4096,
        sessions: 1,
        ..small()
    };
    let clock = Arc::new(VirtualClock::default());
    let model = FakeModel::new(vocab).boxed();
    let (engine, handle) =
        Engine::new(model, text, &config, Arc::clone(&clock) as Arc<dyn Clock>).expect("valid");
    Rig {
        engine,
        handle,
        clock,
    }
}

/// The model answers by its tokens, so that another spelling of the same text shows in what it says next.
#[test]
fn a_restarted_engine_spells_as_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut unrestarted, mut rig) = (rig_of_pairs(), open(rig_of_pairs(), folder.path()));
    let mut history = String::new();
    for turn in 0..50 {
        history += &format!("[{turn}] what then? ");
        let expected = ask(&mut unrestarted, &history, 40);
        if turn % 7 == 6 {
            // Even one that is killed has written it.
            rest(&mut rig);
            drop(std::mem::replace(&mut rig, rig_of_pairs()));
            rig = open(rig, folder.path());
            rest(&mut rig);
        }
        let answer = ask(&mut rig, &history, 40);
        assert_eq!(answer.text, expected.text, "turn {turn}");
        let (cached, known) = (answer.usage().cached_tokens, expected.usage().cached_tokens);
        // A block that is not full is not stored but computed at the start, as is the last token of the answer; unless reading
        // all others has taken longer than computing would.
        let (restarted, whole) = (turn % 7 == 6, known / 16 * 16);
        assert!(
            cached == known || restarted && [known + 1, whole].contains(&cached),
            "{cached} of {known} in turn {turn}"
        );
        history += &answer.text;
    }
    let cold = ask(&mut rig_of_pairs(), &history, 40);
    assert_ne!(
        cold.text,
        ask(&mut unrestarted, &history, 40).text,
        "and that shows"
    );
}
