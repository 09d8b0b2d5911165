//! An engine on a fake model, driven step by step in virtual time: what requests get, and how everything ends.

mod answers;
mod clocks;
mod constrained;
mod embeddings;
mod hand_off;
#[cfg(loom)]
mod loom;
mod on_disk;
mod prefixes;
mod real_model;
mod recording;
mod running_state;
mod simulation;
mod storing;
mod tenants;
mod transcript;
mod watching;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use andante_gguf::{GgufFile, GgufWriter};
use andante_sched::{Mode, Profile};
use andante_text::{ChatRequest, ChatTemplate, Message, Role, Tokenizer};

use super::*;
use crate::error::{RequestError, SubmitError};
use crate::event::{Event, EventStream, FinishReason, Usage};
use crate::fake::{FakeModel, VirtualClock};
use crate::mailbox::Shutdown;
use crate::request::{PromptInput, Request};
use crate::sampling::Sampling;

/// The vocabulary of the tests: the 256 bytes, then these.
const END: u32 = 256;
const CONTROL: u32 = 257;
const VOCAB: usize = 258;

pub(crate) fn text_stack() -> TextStack {
    let printable = |byte: &u32| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut others = 0x100..;
    let mut tokens: Vec<String> = (0..256_u32)
        .map(|byte| {
            if printable(&byte) {
                byte
            } else {
                others.next().expect("endless")
            }
        })
        .map(|code| char::from_u32(code).expect("Latin letters").to_string())
        .collect();
    tokens.extend(["<|end|>".into(), "<|control|>".into()]);
    let mut kinds = vec![1_i32; VOCAB];
    kinds[END as usize] = 3;
    kinds[CONTROL as usize] = 3;
    let file = GgufWriter::new()
        .metadata("tokenizer.ggml.model", "gpt2")
        .metadata("tokenizer.ggml.pre", "default")
        .metadata("tokenizer.ggml.tokens", tokens)
        .metadata("tokenizer.ggml.token_type", kinds)
        .metadata("tokenizer.ggml.merges", Vec::<String>::new())
        .metadata("tokenizer.ggml.eos_token_id", END)
        .metadata("tokenizer.ggml.add_bos_token", false)
        .finish();
    let file = GgufFile::from_bytes(file).expect("a file just written");
    let tokenizer = Tokenizer::from_metadata(file.metadata()).expect("a vocabulary of bytes");
    TextStack::new(tokenizer, None)
}

/// An engine that the test drives step by step, in virtual time.
struct Rig {
    engine: Engine,
    handle: EngineHandle,
    clock: Arc<VirtualClock>,
}

fn small() -> EngineConfig {
    EngineConfig {
        sessions: 3,
        context: 256,
        prefill_chunk: 64,
        min_prefill_chunk: 4,
        max_queue: 2,
        ..EngineConfig::default()
    }
}

impl Rig {
    fn new(model: FakeModel, config: &EngineConfig) -> Self {
        Self::on_clock(model, config, Arc::new(VirtualClock::default()))
    }

    fn on_clock(model: FakeModel, config: &EngineConfig, clock: Arc<VirtualClock>) -> Self {
        let (engine, handle) = Engine::new(
            model.boxed(),
            text_stack(),
            config,
            Arc::clone(&clock) as Arc<dyn Clock>,
        )
        .expect("the configuration is valid");
        Self {
            engine,
            handle,
            clock,
        }
    }

    fn small() -> Self {
        Self::new(FakeModel::new(VOCAB), &small())
    }

    /// On a model whose passes take 1 ms and 0.1 ms a row.
    fn ticking(config: &EngineConfig) -> Self {
        let clock = Arc::new(VirtualClock::default());
        let ticks = Arc::clone(&clock);
        let model = FakeModel::new(VOCAB)
            .on_forward(move |batch| ticks.advance(1000 + 100 * batch.len() as u64));
        Self::on_clock(model, config, clock)
    }

    fn step(&mut self) -> Progress {
        self.engine.step().expect("the model works")
    }

    /// Steps until there is nothing to compute.
    fn settle(&mut self) {
        while matches!(self.step(), Progress::Stepped) {}
    }

    fn request(&self, prompt: &str, sampling: Sampling) -> Request {
        self.handle
            .prepare_text(PromptInput::Text(prompt.into()), sampling)
            .expect("a valid request")
    }

    fn submit(&self, prompt: &str, sampling: Sampling) -> EventStream {
        self.handle
            .submit(self.request(prompt, sampling))
            .expect("room in the queue")
    }

    fn answer(&mut self, prompt: &str, sampling: Sampling) -> Answer {
        let stream = self.submit(prompt, sampling);
        self.settle();
        Answer::of(stream)
    }

    fn assert_empty(&self) {
        let stats = self.engine.scheduler.stats();
        assert_eq!((stats.queued, stats.resident), (0, 0));
        assert_eq!((stats.blocks.used, stats.blocks.reserved), (0, 0));
        assert!(self.engine.generations.is_empty());
    }
}

fn last_step(engine: &Engine) -> Arc<StepRecord> {
    let status = engine.shared.status();
    Arc::clone(status.recent.back().expect("a step was made"))
}

/// Everything that one stream said.
#[derive(Debug, Clone, PartialEq)]
struct Answer {
    text: String,
    cached: Option<u32>,
    end: Event,
}

impl Answer {
    /// Reads what is there, which must be a whole answer in the order that every client may rely on.
    fn of(mut stream: EventStream) -> Self {
        let events: Vec<Event> = std::iter::from_fn(|| stream.try_recv()).collect();
        assert!(stream.is_done(), "no end in {events:?}");
        Self::from_events(&events)
    }

    fn from_events(events: &[Event]) -> Self {
        let (mut text, mut cached) = (String::new(), None);
        for (index, event) in events.iter().enumerate() {
            match event {
                Event::Started { cached_tokens, .. } => {
                    assert_eq!(index, 0, "it starts once, before any token");
                    cached = Some(*cached_tokens);
                }
                Event::Token(delta) => {
                    assert!(cached.is_some(), "a token before the start");
                    text.extend(delta.texts());
                }
                end => {
                    assert_eq!(index, events.len() - 1, "an event after the end");
                    return Self {
                        text,
                        cached,
                        end: end.clone(),
                    };
                }
            }
        }
        panic!("no end in {events:?}");
    }

    fn reason(&self) -> &FinishReason {
        match &self.end {
            Event::Finished { reason, .. } => reason,
            other => panic!("not finished but {other:?}"),
        }
    }

    fn usage(&self) -> Usage {
        match self.end {
            Event::Finished { usage, .. } => usage,
            ref other => panic!("not finished but {other:?}"),
        }
    }
}

fn greedy(max_tokens: u32) -> Sampling {
    Sampling {
        max_tokens: Some(max_tokens),
        ..Sampling::greedy()
    }
}

/// What the fake model says after `prompt`.
fn letters(prompt: &str, tokens: usize) -> String {
    letters_in_window(prompt, tokens, 0)
}

/// What one with this window says.
fn letters_in_window(prompt: &str, tokens: usize, window: usize) -> String {
    FakeModel::letters_in_window(&bytes(prompt), tokens, window)
        .into_iter()
        .map(|token| char::from(token as u8))
        .collect()
}

fn bytes(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

fn long(length: usize) -> String {
    "THE QUICK BROWN FOX "
        .chars()
        .cycle()
        .take(length)
        .collect()
}

#[test]
fn an_answer_is_the_models_and_counts_its_tokens() {
    let mut rig = Rig::small();
    let answer = rig.answer("HELLO", greedy(10));
    assert_eq!(answer.text, letters("HELLO", 10));
    assert_eq!(answer.cached, Some(0));
    assert_eq!(answer.reason(), &FinishReason::Length);
    assert_eq!(
        answer.usage(),
        Usage {
            prompt_tokens: 5,
            cached_tokens: 0,
            completion_tokens: 10,
            reasoning_tokens: 0,
        }
    );
    rig.assert_empty();
}

#[test]
fn time_is_told_in_its_parts() {
    let clock = Arc::new(VirtualClock::default());
    let ticks = Arc::clone(&clock);
    let model = FakeModel::new(VOCAB).on_forward(move |_| ticks.advance(1000));
    let config = EngineConfig {
        min_prefill_chunk: 16,
        ..small()
    };
    let (mut engine, handle) = Engine::new(
        model.boxed(),
        text_stack(),
        &config,
        Arc::clone(&clock) as Arc<dyn Clock>,
    )
    .expect("valid");
    let request = handle
        .prepare_text(PromptInput::Text("HELLO".into()), greedy(4))
        .expect("valid");
    let stream = handle.submit(request).expect("room");
    clock.advance(77);
    while matches!(engine.step().expect("the model works"), Progress::Stepped) {}
    let Event::Finished { timings, usage, .. } = Answer::of(stream).end else {
        panic!("not finished")
    };
    assert_eq!(
        (timings.queued_us, timings.prefill_us, timings.decode_us),
        (77, 1000, 3000)
    );
    assert_eq!(timings.decode_rate(usage.completion_tokens), 1000.0);
    let recent = handle.status().recent;
    assert_eq!(recent.len(), 4);
    assert_eq!(
        (
            recent[0].actual_us,
            recent[0].prefill_tokens(),
            recent[0].decode.len()
        ),
        (1000, 5, 0)
    );
    assert_eq!((recent[1].prefill_tokens(), recent[1].decode.len()), (0, 1));
}

#[test]
fn answers_depend_on_neither_neighbours_nor_chunks_nor_the_cache() {
    let prompts: Vec<String> = [3, 16, 17, 61, 100, 100]
        .iter()
        .map(|&length| long(length))
        .collect();
    let sampling = |index: usize| Sampling {
        temperature: [0.0, 0.8, 1.5][index % 3],
        seed: Some(index as u64),
        repetition_penalty: 1.1,
        ..greedy(12)
    };
    let alone: Vec<Answer> = (0..prompts.len())
        .map(|i| Rig::small().answer(&prompts[i], sampling(i)))
        .collect();
    assert!(alone.iter().all(|answer| answer.cached == Some(0)));
    for (block_tokens, chunk, mode) in [
        (16, 64, Mode::Mix),
        (4, 3, Mode::Mix),
        (16, 1, Mode::HandOff),
        (5, 7, Mode::HandOff),
        (64, 64, Mode::Mix),
    ] {
        let config = EngineConfig {
            prefill_chunk: chunk,
            max_queue: 10,
            mode,
            ..small()
        };
        let mut rig = Rig::new(FakeModel::new(VOCAB).block_tokens(block_tokens), &config);
        for round in 0..2 {
            let streams: Vec<_> = (0..prompts.len())
                .map(|i| rig.submit(&prompts[i], sampling(i)))
                .collect();
            rig.settle();
            for (index, (stream, alone)) in streams.into_iter().zip(&alone).enumerate() {
                let answer = Answer::of(stream);
                let case = format!(
                    "prompt {index}, blocks of {block_tokens}, chunks of {chunk}, round {round}"
                );
                assert_eq!(answer.text, alone.text, "{case}");
                assert_eq!(answer.reason(), alone.reason(), "{case}");
                let usage = Usage {
                    cached_tokens: 0,
                    ..answer.usage()
                };
                assert_eq!(usage, alone.usage(), "{case}");
            }
        }
        rig.assert_empty();
    }
}

#[test]
fn a_known_prefix_is_not_computed_again() {
    let computed = Arc::new(AtomicU64::new(0));
    let rows = Arc::clone(&computed);
    let model = FakeModel::new(VOCAB)
        .on_forward(move |batch| _ = rows.fetch_add(batch.len() as u64, Ordering::Relaxed));
    let mut rig = Rig::new(model, &small());
    let prompt = long(100);
    let first = rig.answer(&prompt, greedy(5));
    // 100 prompt tokens and 4 answer tokens; the fifth is chosen but never computed.
    assert_eq!(computed.swap(0, Ordering::Relaxed), 104);
    // Six whole blocks of 16 are known.
    let second = rig.answer(&prompt, greedy(5));
    assert_eq!(computed.swap(0, Ordering::Relaxed), 4 + 4);
    assert_eq!(second.cached, Some(96));
    assert_eq!(
        second.usage(),
        Usage {
            prompt_tokens: 100,
            cached_tokens: 96,
            completion_tokens: 5,
            reasoning_tokens: 0,
        }
    );
    assert_eq!(second.text, first.text);
    let status = rig.handle.status();
    assert_eq!(
        (
            status.prompt_tokens,
            status.cached_tokens,
            status.generated_tokens
        ),
        (200, 96, 10)
    );
    assert_eq!(
        (status.finished, status.failed, status.cancelled),
        (2, 0, 0)
    );
    // Another turn of the conversation: its prefix ends within the answer.
    let turn = format!("{prompt}{}AND MORE", first.text);
    let third = rig.answer(&turn, greedy(5));
    assert_eq!((third.cached, third.text), (Some(104), letters(&turn, 5)));
    computed.store(0, Ordering::Relaxed);
    let apart = rig.answer(
        &prompt,
        Sampling {
            cache_prompt: false,
            ..greedy(5)
        },
    );
    assert_eq!((apart.cached, apart.text), (Some(0), first.text));
    assert_eq!(computed.load(Ordering::Relaxed), 104);
}

#[test]
fn an_end_token_ends_the_answer_and_control_tokens_are_not_text() {
    let answer = [bytes("yes"), vec![CONTROL], bytes("!"), vec![END]].concat();
    let mut rig = Rig::new(FakeModel::new(VOCAB).script(&bytes("Q"), &answer), &small());
    let said = rig.answer("Q", greedy(100));
    assert_eq!(said.text, "yes!");
    assert_eq!(said.reason(), &FinishReason::Stop { sequence: None });
    assert_eq!(said.usage().completion_tokens, 6);
    let on = rig.answer(
        "Q",
        Sampling {
            ignore_eos: true,
            ..greedy(9)
        },
    );
    assert_eq!(on.reason(), &FinishReason::Length);
    assert!(on.text.starts_with("yes!"), "{}", on.text);
    assert_eq!(on.usage().completion_tokens, 9);
}

#[test]
fn a_stop_string_may_span_tokens_and_is_not_part_of_the_answer() {
    let mut rig = Rig::new(
        FakeModel::new(VOCAB).script(&bytes("Q"), &bytes("one STO two STOP three")),
        &small(),
    );
    let stop = vec!["never".to_string(), "STOP".into()];
    let said = rig.answer(
        "Q",
        Sampling {
            stop: stop.clone(),
            logprobs: Some(0),
            ..greedy(100)
        },
    );
    assert_eq!(said.text, "one STO two ");
    assert_eq!(
        said.reason(),
        &FinishReason::Stop {
            sequence: Some("STOP".into())
        }
    );
    assert_eq!(said.usage().completion_tokens, 16);
    let cut = rig.answer("Q", Sampling { stop, ..greedy(6) });
    assert_eq!(cut.text, "one ST", "what was held back comes with the end");
}

#[test]
fn logprobs_come_with_the_text_of_their_token() {
    let mut rig = Rig::new(
        FakeModel::new(VOCAB).script(&bytes("Q"), &bytes("aéSTb")),
        &small(),
    );
    let stop = vec!["STOP".to_string()];
    let mut stream = rig.submit(
        "Q",
        Sampling {
            logprobs: Some(2),
            stop,
            ..greedy(6)
        },
    );
    rig.settle();
    let mut deltas = Vec::new();
    while let Some(event) = stream.try_recv() {
        if let Event::Token(delta) = event {
            assert!(delta.logprobs.iter().all(|entry| entry.top.len() == 2));
            assert!(
                delta
                    .logprobs
                    .iter()
                    .all(|entry| entry.top[0] == entry.token),
                "greedy takes the likeliest"
            );
            assert!(delta.logprobs.iter().all(|entry| entry.token.logprob < 0.0));
            let bytes: Vec<u8> = delta
                .logprobs
                .iter()
                .flat_map(|entry| entry.token.bytes.clone())
                .collect();
            deltas.push((delta.texts().collect(), bytes));
        }
    }
    let expected = [("a", "a"), ("é", "é"), ("STb", "STb")];
    assert_eq!(
        deltas,
        expected.map(|(text, bytes)| (text.to_string(), bytes.as_bytes().to_vec()))
    );
}

#[test]
fn prompts_and_answers_fit_the_context() {
    let rig = Rig::small();
    let full = rig
        .handle
        .prepare_text(PromptInput::Text(long(256)), greedy(1));
    assert!(matches!(
        full,
        Err(RequestError::ContextLength {
            prompt_tokens: 256,
            context: 256
        })
    ));
    assert_eq!(rig.request(&long(255), Sampling::default()).max_new, 1);
    assert_eq!(rig.request(&long(200), greedy(1000)).max_new, 56);
    assert_eq!(rig.request(&long(200), greedy(7)).max_new, 7);
    let mut rig = Rig::new(FakeModel::new(VOCAB).context(40), &small());
    assert_eq!(
        rig.handle.context(),
        40,
        "no more than the model was trained for"
    );
    let answer = rig.answer(&long(30), Sampling::greedy());
    assert_eq!(
        (answer.usage().completion_tokens, answer.reason()),
        (10, &FinishReason::Length)
    );
}

#[test]
fn bad_requests_are_refused_by_name() {
    let rig = Rig::small();
    let refused = |prompt, sampling| {
        rig.handle
            .prepare_text(prompt, sampling)
            .expect_err("refused")
    };
    let token = refused(PromptInput::Tokens(vec![1, 258]), Sampling::default());
    assert!(matches!(
        token,
        RequestError::UnknownToken {
            token: 258,
            vocab: VOCAB
        }
    ));
    let empty = refused(PromptInput::Text(String::new()), Sampling::default());
    assert!(matches!(empty, RequestError::EmptyPrompt));
    type Fault = fn(&mut Sampling);
    let faults: [(Fault, &str); 8] = [
        (|s| s.temperature = -0.1, "temperature"),
        (|s| s.temperature = f32::NAN, "temperature"),
        (|s| s.top_p = 0.0, "top_p"),
        (|s| s.min_p = 1.5, "min_p"),
        (|s| s.logit_bias = vec![(258, 1.0)], "logit_bias"),
        (|s| s.logit_bias = vec![(1, f32::NAN)], "logit_bias"),
        (|s| s.max_tokens = Some(0), "max_tokens"),
        (|s| s.stop = vec![String::new()], "stop"),
    ];
    for (fault, field) in faults {
        let mut sampling = Sampling::default();
        fault(&mut sampling);
        match refused(PromptInput::Text("A".into()), sampling) {
            RequestError::InvalidParameter { name, .. } => assert_eq!(name, field),
            other => panic!("{other:?} instead of {field}"),
        }
    }
}

#[test]
fn a_conversation_is_rendered_by_the_models_template() {
    let mut text = text_stack();
    let chat = ChatRequest {
        messages: vec![Message::new(Role::User, "Hi <|end|>")],
        ..ChatRequest::default()
    };
    let rig = Rig::small();
    let none = rig.handle.prepare_chat(&chat, Sampling::default());
    assert!(matches!(none, Err(RequestError::NoTemplate)));
    let source = "{% for m in messages %}<|control|>{{ m.content }}<|end|>{% endfor %}";
    let template = ChatTemplate::new(source, &text.tokenizer).expect("it parses");
    text.template = Some(Arc::new(template));
    let clock = Arc::new(VirtualClock::default());
    let (_engine, handle) =
        Engine::new(FakeModel::new(VOCAB).boxed(), text, &small(), clock).expect("valid");
    let request = handle
        .prepare_chat(&chat, Sampling::default())
        .expect("it fits");
    let expected = [vec![CONTROL], bytes("Hi <|end|>"), vec![END]].concat();
    assert_eq!(request.prompt[..], expected, "what the user wrote is text");
}

#[test]
fn a_seed_repeats_an_answer_and_another_one_does_not() {
    let mut rig = Rig::small();
    let sampling = Sampling {
        temperature: 3.0,
        min_p: 0.0,
        ..greedy(30)
    };
    let mut ask = |request: Request| {
        let stream = rig.handle.submit(request).expect("room");
        rig.settle();
        Answer::of(stream).text
    };
    let handle = Rig::small().handle;
    let request = handle
        .prepare_text(PromptInput::Text("A".into()), sampling.clone())
        .expect("valid");
    let again = handle
        .prepare_text(PromptInput::Text("A".into()), sampling)
        .expect("valid");
    assert_ne!(request.seed(), again.seed(), "drawn anew");
    let first = ask(request.clone());
    assert_eq!(ask(request.clone()), first);
    assert_ne!(ask(again), first);
    assert_ne!(ask(request.clone().with_seed(request.seed() + 1)), first);
}

#[test]
fn a_full_queue_refuses_until_a_request_has_ended() {
    let mut rig = Rig::small();
    let streams: Vec<_> = (0..5).map(|_| rig.submit("A", greedy(3))).collect();
    let refused = rig.handle.submit(rig.request("A", greedy(3)));
    assert!(matches!(
        refused,
        Err(SubmitError::QueueFull { retry_after_s: 1.. })
    ));
    rig.settle();
    for stream in streams {
        assert_eq!(Answer::of(stream).text, letters("A", 3));
    }
    assert_eq!(rig.answer("A", greedy(3)).text, letters("A", 3));
}

#[test]
fn a_gone_client_is_forgotten_before_the_next_step() {
    let mut rig = Rig::small();
    let gone = rig.submit(&long(100), greedy(100));
    let stays = rig.submit("B", greedy(40));
    for _ in 0..10 {
        rig.step();
    }
    assert_eq!(rig.engine.scheduler.stats().resident, 2);
    drop(gone);
    rig.step();
    let stats = rig.engine.scheduler.stats();
    // The other one holds 11 or 12 of its tokens, in one block.
    assert_eq!((stats.resident, stats.blocks.used), (1, 1));
    rig.settle();
    assert_eq!(Answer::of(stays).text, letters("B", 40));
    assert_eq!(rig.handle.status().cancelled, 1);
    rig.assert_empty();
}

#[test]
fn a_slow_reader_is_parked_and_stalls_nobody() {
    let mut rig = Rig::new(
        FakeModel::new(VOCAB),
        &EngineConfig {
            ring_events: 8,
            ..small()
        },
    );
    let mut slow = rig.submit("SLOW", greedy(60));
    let mut fast = rig.submit("FAST", greedy(60));
    let mut read = Vec::new();
    let mut tokens = 0;
    while tokens < 60 {
        rig.step();
        let events: Vec<Event> = std::iter::from_fn(|| fast.try_recv()).collect();
        let came = events
            .iter()
            .filter(|e| matches!(e, Event::Token(_)))
            .count();
        read.extend(events);
        assert!(
            tokens == 0 || came == 1,
            "{came} tokens in a step after {tokens}"
        );
        tokens += came;
    }
    assert_eq!(Answer::from_events(&read).text, letters("FAST", 60));
    assert!(
        matches!(rig.step(), Progress::Waiting { .. }),
        "the slow reader is parked"
    );
    assert_eq!(rig.engine.scheduler.stats().parked, 1);
    let mut events = Vec::new();
    while let Some(event) = slow.try_recv() {
        let waiting = slow.ring_len();
        events.push(event);
        let before = rig.engine.scheduler.stats().steps;
        rig.step();
        let stepped = rig.engine.scheduler.stats().steps > before;
        assert!(waiting < 8, "never more than the ring holds");
        if events.len() < 4 {
            assert!(!stepped, "less than half of the ring is free");
        } else if events.len() == 4 {
            assert!(stepped, "half of the ring is free");
        }
    }
    assert_eq!(Answer::from_events(&events).text, letters("SLOW", 60));
    rig.assert_empty();
}

#[test]
fn a_reader_that_never_reads_loses_its_place() {
    let mut rig = Rig::new(
        FakeModel::new(VOCAB),
        &EngineConfig {
            ring_events: 8,
            reader_timeout_s: 30,
            ..small()
        },
    );
    let stuck = rig.submit("STUCK", greedy(60));
    rig.settle();
    rig.clock.advance(29_999_999);
    assert!(matches!(
        rig.step(),
        Progress::Waiting {
            until_us: Some(30_000_000)
        }
    ));
    assert_eq!(rig.engine.scheduler.stats().resident, 1);
    rig.clock.advance(1);
    rig.step();
    rig.assert_empty();
    assert_eq!(Answer::of(stuck).end, Event::Failed(Failure::ReaderTimeout));
}

#[test]
fn a_bad_row_fails_its_own_request_only() {
    let mut rig = Rig::new(FakeModel::new(VOCAB).poison(u32::from(b'Z')), &small());
    let good = rig.submit("GOOD", greedy(20));
    let bad = rig.submit("BAD Z", greedy(20));
    rig.settle();
    assert_eq!(Answer::of(good).text, letters("GOOD", 20));
    assert_eq!(Answer::of(bad).end, Event::Failed(Failure::NonFiniteLogits));
    assert_eq!(
        (rig.handle.status().finished, rig.handle.status().failed),
        (1, 1)
    );
    rig.assert_empty();
    assert_eq!(rig.answer("GOOD", greedy(20)).text, letters("GOOD", 20));
}

#[test]
fn a_failing_model_fails_every_request_and_the_engine() {
    let mut rig = Rig::new(FakeModel::new(VOCAB).fail_after(5), &small());
    let streams: Vec<_> = ["A", "B", "C", "D"]
        .map(|prompt| rig.submit(prompt, greedy(20)))
        .into();
    let error = loop {
        match rig.engine.step() {
            Ok(progress) => assert!(matches!(progress, Progress::Stepped)),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, EngineError::Model(_)));
    assert_eq!(rig.handle.health(), Health::Failed);
    for stream in streams {
        assert_eq!(Answer::of(stream).end, Event::Failed(Failure::Model));
    }
    let late = rig.handle.submit(rig.request("E", greedy(1)));
    assert_eq!(late.expect_err("the engine is dead"), SubmitError::Dead);
    rig.handle.shutdown(Shutdown::Now);
    drop(rig.engine);
    assert_eq!(
        rig.handle.health(),
        Health::Failed,
        "the failure stays visible"
    );
}

#[test]
fn draining_finishes_what_runs_and_refuses_the_rest() {
    let mut rig = Rig::new(
        FakeModel::new(VOCAB),
        &EngineConfig {
            sessions: 1,
            ..small()
        },
    );
    let running = rig.submit("RUNS", greedy(20));
    let queued = rig.submit("WAITS", greedy(20));
    rig.step();
    let raced = rig.request("LATE", greedy(20));
    rig.handle.shutdown(Shutdown::Drain {
        timeout: Duration::from_secs(10),
    });
    assert_eq!(rig.handle.health(), Health::Draining);
    assert_eq!(
        rig.handle.submit(raced).expect_err("draining"),
        SubmitError::ShuttingDown
    );
    rig.step();
    assert_eq!(Answer::of(queued).end, Event::Failed(Failure::ShuttingDown));
    rig.settle();
    assert_eq!(Answer::of(running).text, letters("RUNS", 20));
    assert!(matches!(rig.step(), Progress::Ended));
    drop(rig.engine);
    assert_eq!(rig.handle.health(), Health::Stopped);
}

#[test]
fn draining_ends_at_its_deadline_and_now_means_now() {
    for how in [
        Shutdown::Drain {
            timeout: Duration::from_secs(10),
        },
        Shutdown::Now,
    ] {
        let mut rig = Rig::new(
            FakeModel::new(VOCAB),
            &EngineConfig {
                ring_events: 4,
                ..small()
            },
        );
        let running = rig.submit("RUNS", greedy(200));
        let parked = rig.submit("PARKED", greedy(200));
        for _ in 0..6 {
            rig.step();
        }
        rig.handle.shutdown(how);
        if how != Shutdown::Now {
            while matches!(rig.step(), Progress::Stepped) {}
            assert!(matches!(
                rig.step(),
                Progress::Waiting {
                    until_us: Some(10_000_000)
                }
            ));
            rig.clock.advance(10_000_000);
        }
        assert!(matches!(rig.step(), Progress::Ended));
        for stream in [running, parked] {
            assert_eq!(Answer::of(stream).end, Event::Failed(Failure::ShuttingDown));
        }
        rig.assert_empty();
    }
}

#[test]
fn a_panic_on_the_engine_thread_ends_every_stream() {
    let model = FakeModel::new(VOCAB)
        .on_forward(|batch| assert!(!batch.tokens.contains(&u32::from(b'!')), "a bug"));
    let (handle, thread) = spawn(model.boxed(), text_stack(), &small()).expect("a thread");
    let ask = |prompt: &str| {
        let request = handle
            .prepare_text(PromptInput::Text(prompt.into()), greedy(200))
            .expect("valid");
        handle.submit(request)
    };
    let mut first = ask("FINE").expect("the engine works");
    while !matches!(first.recv_blocking(), Some(Event::Token(_))) {}
    let mut second = ask("BUG!").expect("the engine works");
    for stream in [&mut first, &mut second] {
        let last = std::iter::from_fn(|| stream.recv_blocking()).last();
        let finished = matches!(last, Some(Event::Finished { .. }));
        assert!(
            finished || last == Some(Event::Failed(Failure::EngineStopped)),
            "{last:?}"
        );
    }
    assert!(matches!(thread.join(), Err(EngineError::Panicked)));
    assert_eq!(handle.health(), Health::Failed);
    assert_eq!(
        ask("LATE").expect_err("the engine is dead"),
        SubmitError::Dead
    );
}

#[test]
fn the_thread_ends_with_its_last_client() {
    let (handle, thread) =
        spawn(FakeModel::new(VOCAB).boxed(), text_stack(), &small()).expect("a thread");
    let clients: Vec<_> = ["A", "B", "C"]
        .into_iter()
        .map(|prompt| {
            let handle = handle.clone();
            std::thread::spawn(move || {
                let request = handle
                    .prepare_text(PromptInput::Text(prompt.into()), greedy(50))
                    .expect("valid");
                let mut stream = handle.submit(request).expect("room");
                drop(handle);
                let events: Vec<Event> = std::iter::from_fn(|| stream.recv_blocking()).collect();
                assert_eq!(Answer::from_events(&events).text, letters(prompt, 50));
            })
        })
        .collect();
    drop(handle);
    for client in clients {
        client.join().expect("the client is content");
    }
    thread.join().expect("nobody is left");
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let refused = |config| match spawn(FakeModel::new(VOCAB).boxed(), text_stack(), &config) {
        Err(EngineError::Config { name, .. }) => name,
        _ => panic!("accepted"),
    };
    assert_eq!(
        refused(EngineConfig {
            sessions: 0,
            ..small()
        }),
        "sessions"
    );
    assert_eq!(
        refused(EngineConfig {
            prefill_chunk: 0,
            ..small()
        }),
        "prefill_chunk"
    );
    assert_eq!(
        refused(EngineConfig {
            sessions: u32::MAX,
            ..small()
        }),
        "sessions"
    );
}

#[test]
#[ignore = "prints figures: cargo test --release -p andante-engine -- --ignored --nocapture"]
#[expect(clippy::print_stdout, reason = "its purpose is to print figures")]
fn overhead_of_a_step_at_64_sessions() {
    let config = EngineConfig {
        sessions: 64,
        context: 512,
        ring_events: 1024,
        ..EngineConfig::default()
    };
    let inside = Arc::new(Mutex::new(Duration::ZERO));
    let (engine, handle) = Engine::new(
        Box::new(Timed(FakeModel::new(VOCAB), Arc::clone(&inside))),
        text_stack(),
        &config,
        Arc::new(SystemClock::new()),
    )
    .expect("valid");
    let mut engine = engine;
    for sampling in [Sampling::greedy(), Sampling::default()] {
        let streams: Vec<_> = (0..64)
            .map(|i| {
                let prompt = PromptInput::Text(format!("{i} {}", long(40)));
                handle
                    .submit(
                        handle
                            .prepare_text(prompt, sampling.clone())
                            .expect("valid"),
                    )
                    .expect("room")
            })
            .collect();
        for _ in 0..8 {
            engine.step().expect("the model works");
        }
        let mut time = || {
            *inside.lock().expect("no panic") = Duration::ZERO;
            let start = std::time::Instant::now();
            engine.step().expect("the model works");
            start.elapsed() - *inside.lock().expect("no panic")
        };
        let mut times: Vec<Duration> = std::iter::repeat_with(&mut time).take(400).collect();
        times.sort_unstable();
        assert_eq!(engine.scheduler.stats().active, 64);
        println!(
            "64 rows of {VOCAB} logits at temperature {}: least {:?}, median {:?} a step",
            sampling.temperature, times[0], times[200]
        );
        drop(streams);
        engine.step().expect("the model works");
    }
}

/// Measures the time spent in the model.
struct Timed(FakeModel, Arc<Mutex<Duration>>);

impl Model for Timed {
    fn info(&self) -> &andante_model::ModelInfo {
        self.0.info()
    }
    fn kv_layout(&self) -> andante_model::KvLayout {
        self.0.kv_layout()
    }
    fn reserve(&mut self, limits: Limits) -> Result<(), ModelError> {
        self.0.reserve(limits)
    }
    fn forward(&mut self, batch: &Batch) -> Result<(), ModelError> {
        let start = std::time::Instant::now();
        let result = self.0.forward(batch);
        *self.1.lock().expect("no panic") += start.elapsed();
        result
    }
    fn logits(&mut self) -> Result<andante_model::Logits<'_>, ModelError> {
        self.0.logits()
    }
    fn states(&mut self) -> Result<andante_model::States<'_>, ModelError> {
        self.0.states()
    }
    fn read_block(&self, block: u32, out: &mut [u8]) {
        self.0.read_block(block, out);
    }
    fn write_block(&mut self, block: u32, bytes: &[u8]) {
        self.0.write_block(block, bytes);
    }
    fn kv_identity(&self) -> [u8; 32] {
        self.0.kv_identity()
    }
}
