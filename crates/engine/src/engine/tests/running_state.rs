//! A model with a sliding window outside its blocks: a prefix is of use only with a checkpoint of the window, and a wrong window
//! gives wrong tokens. Blocks have 16 tokens; the window of 100 takes as much as two of them and a bit, so there is a checkpoint
//! after every third.

use std::path::Path;

use super::on_disk::{ask, end, open, rest, store_stats};
use super::*;

const WINDOW: usize = 100;
const BLOCK: usize = 16;
const APART: usize = 3 * BLOCK;

fn config() -> EngineConfig {
    EngineConfig {
        context: 512,
        ..small()
    }
}

fn windowed() -> Rig {
    Rig::new(FakeModel::new(VOCAB).window(WINDOW), &config())
}

/// Asks, checks the answer, and gives how many tokens of the prompt were computed for it.
fn say(rig: &mut Rig, prompt: &str, tokens: u32) -> (String, usize) {
    let before = rig.engine.scheduler.stats().prefill_tokens;
    let answer = ask(rig, prompt, tokens);
    assert_eq!(
        answer.text,
        letters_in_window(prompt, tokens as usize, WINDOW)
    );
    let computed = rig.engine.scheduler.stats().prefill_tokens - before;
    let cached = u64::from(answer.usage().cached_tokens);
    assert_eq!(prompt.len() as u64 - computed, cached);
    (answer.text, usize::try_from(computed).expect("few"))
}

#[test]
fn a_conversation_goes_on_from_its_last_block() {
    let mut rig = windowed();
    let mut history = long(150);
    assert_eq!(say(&mut rig, &history, 1).1, 150);
    // Again, from the last block before the prompt's last token.
    assert_eq!(say(&mut rig, &history, 1).1, 150 - 144);
    for turn in 0..8 {
        let (answer, _) = say(&mut rig, &history, 7);
        // All but the answer's last token is computed.
        let known = (history.len() + answer.len() - 1) / BLOCK * BLOCK;
        history = format!("{history}{answer} and {turn}?");
        let next = format!("{history}!");
        assert_eq!(say(&mut rig, &next, 1).1, next.len() - known, "turn {turn}");
    }
    rig.assert_empty();
}

#[test]
fn a_fork_goes_on_from_the_last_checkpoint_that_it_shares() {
    let mut rig = windowed();
    say(&mut rig, &long(300), 5);
    for shared in [290, 200, 100, 49, 47] {
        let fork = format!("{}#{shared}{}", &long(300)[..shared], long(30));
        let known = shared / APART * APART;
        assert_eq!(say(&mut rig, &fork, 5).1, fork.len() - known, "{shared}");
    }
    // Two that go on in different ways at once, and the one before them.
    let prompts = ["a", "b"].map(|end| format!("{}{end}", long(310)));
    let streams = prompts
        .each_ref()
        .map(|prompt| rig.submit(prompt, greedy(20)));
    rig.settle();
    for (prompt, stream) in prompts.iter().zip(streams) {
        let answer = Answer::of(stream);
        assert_eq!(answer.text, letters_in_window(prompt, 20, WINDOW));
        assert!(answer.usage().cached_tokens >= 288);
    }
    rig.assert_empty();
}

#[test]
fn equal_prompts_at_once_are_computed_once() {
    let mut rig = windowed();
    let streams = [(); 3].map(|()| rig.submit(&long(200), greedy(5)));
    rig.settle();
    for stream in streams {
        let answer = Answer::of(stream);
        assert_eq!(answer.text, letters_in_window(&long(200), 5, WINDOW));
    }
    // All but what is behind the last block.
    let computed = rig.engine.scheduler.stats().prefill_tokens;
    assert_eq!(computed, 192 + 3 * 8);
    rig.assert_empty();
}

#[test]
fn who_is_cancelled_or_parked_leaves_what_it_has_kept() {
    let mut rig = windowed();
    let aborted = rig.submit(&long(400), greedy(20));
    while rig.engine.scheduler.stats().prefill_tokens < 200 {
        rig.step();
    }
    let done = rig.engine.scheduler.stats().prefill_tokens as usize;
    drop(aborted);
    rig.settle();
    assert_eq!(say(&mut rig, &long(400), 5).1, 400 - done / APART * APART);
    // One whose reader waits, while others take over checkpoints and blocks.
    let config = EngineConfig {
        ring_events: 2,
        ..config()
    };
    let mut rig = Rig::new(FakeModel::new(VOCAB).window(WINDOW), &config);
    let mut parked = rig.submit(&long(150), greedy(60));
    rig.settle();
    assert_eq!(rig.engine.scheduler.stats().parked, 1);
    let others: Vec<String> = (0..20).map(|n| format!("{n}{}", long(400))).collect();
    let mut events = Vec::new();
    for other in others {
        let stream = rig.submit(&other, greedy(1));
        rig.settle();
        drop(stream);
        events.extend(std::iter::from_fn(|| parked.try_recv()));
        rig.settle();
    }
    while !parked.is_done() {
        events.extend(std::iter::from_fn(|| parked.try_recv()));
        rig.settle();
    }
    events.extend(std::iter::from_fn(|| parked.try_recv()));
    let answer = Answer::from_events(&events);
    assert_eq!(answer.text, letters_in_window(&long(150), 60, WINDOW));
    rig.assert_empty();
}

#[test]
fn a_checkpoint_that_gave_way_costs_time_and_nothing_else() {
    let mut rig = windowed();
    let prompts: Vec<String> = (0..12).map(|n| format!("{n} {}", long(420))).collect();
    let mut known = 0;
    for prompt in prompts.iter().chain(&prompts).chain(&prompts[..4]) {
        let (_, computed) = say(&mut rig, prompt, 3);
        known += u32::from(computed < prompt.len());
    }
    assert!(known < 16, "there is no room for all of them");
    assert!(say(&mut rig, &prompts[3], 3).1 <= BLOCK);
    rig.assert_empty();
}

/// Removes or changes the objects of running states.
fn spoil(folder: &Path, how: impl Fn(&Path)) -> usize {
    let mut count = 0;
    for file in std::fs::read_dir(folder).expect("there") {
        let path = file.expect("there").path();
        let object = std::fs::read(&path).expect("readable");
        // The count of its tokens.
        if object.starts_with(b"ANDANTEK") && object[116..120] == [0; 4] {
            how(&path);
            count += 1;
        }
    }
    count
}

#[test]
fn a_restarted_engine_goes_on_with_the_state_that_was_saved() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut first = open(windowed(), folder.path());
    let (answer, _) = say(&mut first, &long(300), 30);
    end(first);
    let mut second = open(windowed(), folder.path());
    rest(&mut second);
    let before = second.engine.scheduler.stats().loaded_tokens;
    assert_eq!(
        before, 320,
        "what was said last is there before anybody asks"
    );
    let longer = format!("{}{answer} and then", long(300));
    assert_eq!(say(&mut second, &longer, 20).1, longer.len() - 320);
    end(second);
    // A fork, asked for at once.
    let mut third = open(windowed(), folder.path());
    let fork = format!("{}#{}", &long(300)[..250], long(20));
    assert_eq!(say(&mut third, &fork, 5).1, fork.len() - 240);
    // As many states as there are checkpoints that lasted, and no more.
    assert_eq!(store_stats(&third).damaged, 0);
    third.assert_empty();
}

#[test]
fn a_state_that_is_gone_or_damaged_is_a_miss() {
    let gone = |path: &Path| std::fs::remove_file(path).expect("removable");
    let damaged = |path: &Path| {
        let mut object = std::fs::read(path).expect("readable");
        object[140] ^= 1;
        std::fs::write(path, object).expect("writable");
    };
    let spoils: [&dyn Fn(&Path); 2] = [&gone, &damaged];
    for (how, counts) in spoils.into_iter().zip([false, true]) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = open(windowed(), folder.path());
        say(&mut first, &long(300), 30);
        end(first);
        assert!(spoil(folder.path(), how) >= 300 / APART);
        let mut second = open(windowed(), folder.path());
        let (_, computed) = say(&mut second, &long(300), 5);
        assert_eq!(computed, 300, "no state, no prefix");
        assert_eq!(store_stats(&second).damaged > 0, counts);
        end(second);
        if !counts {
            // They are kept anew.
            let mut third = open(windowed(), folder.path());
            assert_eq!(say(&mut third, &long(300), 5).1, 300 - 288);
            third.assert_empty();
        }
    }
}

#[test]
fn steps_of_a_model_without_state_move_none() {
    let mut rig = Rig::small();
    let stream = rig.submit(&long(200), greedy(20));
    while rig.engine.plan().is_none() {
        let step = rig.engine.scheduler.in_flight().expect("planned");
        assert_eq!(step.states, andante_sched::StateMoves::default());
        rig.engine.launch().expect("it works");
        assert!(rig.engine.batch.states.is_empty());
        rig.engine.collect().expect("it works");
        rig.engine.apply();
    }
    drop(stream);
}
