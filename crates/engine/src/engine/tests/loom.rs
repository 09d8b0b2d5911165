//! Every interleaving of the engine thread with its clients: mailbox, ring, places and wake-ups, under the real engine.
//!
//! Run by `RUSTFLAGS="--cfg loom" cargo test -p andante-engine --release loom`, with a target folder of its own. `loom` finds
//! a lost wake-up as a deadlock: its timed waits never time out. Threads are preempted at most so often in one execution;
//! what the standard library synchronises (the status) is not explored.

use std::sync::OnceLock;
use std::task::{Context, Poll, Wake, Waker};

use ::loom::sync::Notify;
use ::loom::thread;
use futures_core::Stream as _;

use super::*;

/// Preemptions of an execution, unless `LOOM_MAX_PREEMPTIONS` says otherwise. Four take minutes more.
const PREEMPTIONS: usize = 3;

/// Explores `execution` in every order.
fn explore(execution: impl Fn() + Clone + Send + Sync + 'static) {
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS);
    builder.max_branches = 100_000;
    builder.check(move || spawn_large(execution.clone()).join().expect("no panic"));
}

/// A thread whose stack has room for an engine; loom's usual one has 32 KiB.
fn spawn_large<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    const STACK_WORDS: usize = 1 << 16;
    let builder = thread::Builder::new().stack_size(STACK_WORDS);
    builder.spawn(work).expect("a thread of loom's")
}

/// An engine at work.
fn serve(engine: Engine) -> thread::JoinHandle<()> {
    spawn_large(move || engine.run().expect("the model works"))
}

fn tiny() -> EngineConfig {
    EngineConfig {
        sessions: 2,
        context: 64,
        max_queue: 2,
        ring_events: 2,
        ..small()
    }
}

fn engine_of(model: FakeModel, config: &EngineConfig) -> (Engine, EngineHandle) {
    static TEXT: OnceLock<TextStack> = OnceLock::new();
    let text = TEXT.get_or_init(text_stack).clone();
    let clock = Arc::new(VirtualClock::default());
    Engine::new(model.boxed(), text, config, clock).expect("valid")
}

fn submit(handle: &EngineHandle, prompt: &str, tokens: u32) -> Result<EventStream, SubmitError> {
    let request = handle
        .prepare_text(PromptInput::Text(prompt.into()), greedy(tokens))
        .expect("valid");
    handle.submit(request)
}

/// Everything that a stream says.
fn read(mut stream: EventStream) -> Answer {
    let events: Vec<Event> = std::iter::from_fn(|| stream.recv_blocking()).collect();
    assert!(stream.is_done());
    Answer::from_events(&events)
}

#[test]
fn a_submission_reaches_a_waiting_engine_and_a_parked_sequence_its_reader() {
    explore(|| {
        let (engine, handle) = engine_of(FakeModel::new(VOCAB), &tiny());
        let serving = serve(engine);
        let stream = submit(&handle, "A", 4).expect("room");
        drop(handle);
        assert_eq!(read(stream).text, letters("A", 4));
        serving.join().expect("no panic");
    });
}

#[test]
fn a_polling_reader_is_woken_for_every_event() {
    struct Bell(Notify);
    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.notify();
        }
    }
    explore(|| {
        let (engine, handle) = engine_of(FakeModel::new(VOCAB), &tiny());
        let serving = serve(engine);
        let mut stream = submit(&handle, "A", 3).expect("room");
        drop(handle);
        let bell = Arc::new(Bell(Notify::new()));
        let waker = Waker::from(Arc::clone(&bell));
        let mut context = Context::from_waker(&waker);
        let mut events = Vec::new();
        loop {
            match std::pin::Pin::new(&mut stream).poll_next(&mut context) {
                Poll::Ready(Some(event)) => events.push(event),
                Poll::Ready(None) => break,
                Poll::Pending => bell.0.wait(),
            }
        }
        assert_eq!(Answer::from_events(&events).text, letters("A", 3));
        drop(stream);
        serving.join().expect("no panic");
    });
}

#[test]
fn a_client_that_leaves_is_forgotten_and_its_place_is_free_at_once() {
    explore(|| {
        let config = EngineConfig {
            sessions: 1,
            max_queue: 0,
            ..tiny()
        };
        let (engine, handle) = engine_of(FakeModel::new(VOCAB), &config);
        let serving = serve(engine);
        // A ring that is never read holds more than this answer: whatever comes first, it ends.
        drop(submit(&handle, "A", 40).expect("the only place"));
        // A cancel that came before its submission, or a place that came before the cancel, would fail here or in the
        // scheduler, which has room for one.
        let retry = submit(&handle, "B", 2).expect("the place of the one that left");
        assert_eq!(read(retry).text, letters("B", 2));
        let watch = handle.clone();
        drop(handle);
        let status = watch.status();
        assert_eq!(status.finished, 1);
        drop(watch);
        serving.join().expect("no panic");
    });
}

#[test]
fn whoever_takes_the_place_of_one_that_left_comes_after_its_cancel() {
    explore(|| {
        let config = EngineConfig {
            sessions: 1,
            max_queue: 0,
            ..tiny()
        };
        let (engine, handle) = engine_of(FakeModel::new(VOCAB), &config);
        let serving = serve(engine);
        let other = handle.clone();
        let taker = spawn_large(move || {
            // The scheduler has room for one: had the place been given away before the cancel was sent, it would find two.
            if let Ok(stream) = submit(&other, "B", 1) {
                assert_eq!(read(stream).text, letters("B", 1));
            }
        });
        drop(submit(&handle, "A", 40));
        drop(handle);
        taker.join().expect("no panic");
        serving.join().expect("no panic");
    });
}

#[test]
fn every_stream_ends_once_wherever_the_engine_dies() {
    for steps in 0..4 {
        explore(move || {
            let (mut engine, handle) = engine_of(FakeModel::new(VOCAB), &tiny());
            let dying = spawn_large(move || {
                for _ in 0..steps {
                    engine.step().expect("the model works");
                }
            });
            for prompt in ["A", "B"] {
                // Refused, or taken in: then it ends in one event and nothing after it.
                match submit(&handle, prompt, 2) {
                    Err(SubmitError::Dead) => {}
                    Err(other) => panic!("{other}"),
                    Ok(stream) => {
                        let answer = read(stream);
                        let finished = matches!(answer.end, Event::Finished { .. });
                        assert!(finished || answer.end == Event::Failed(Failure::EngineStopped));
                    }
                }
            }
            dying.join().expect("no panic");
        });
    }
}

#[test]
fn a_shutdown_ends_every_stream_and_the_engine() {
    explore(|| {
        let (engine, handle) = engine_of(FakeModel::new(VOCAB), &tiny());
        let serving = serve(engine);
        let ending = handle.clone();
        let closer = spawn_large(move || ending.shutdown(Shutdown::Now));
        if let Ok(stream) = submit(&handle, "A", 3) {
            let answer = read(stream);
            let finished = matches!(answer.end, Event::Finished { .. });
            let ended = [Failure::ShuttingDown, Failure::EngineStopped];
            assert!(
                finished || ended.map(Event::Failed).contains(&answer.end),
                "{answer:?}"
            );
        }
        closer.join().expect("no panic");
        serving.join().expect("no panic");
    });
}

/// The form of antirez/ds4 issue 601: with a decoder registered, a second prefill turn does not start before the decoder
/// has had its turn, whenever the prompt arrives.
#[test]
fn a_prompt_takes_no_second_turn_before_a_registered_decoder() {
    explore(|| {
        let config = EngineConfig {
            mode: Mode::HandOff,
            prefill_chunk: 4,
            decode_share_permille: Some(0),
            ring_events: 16,
            ..tiny()
        };
        // For each pass, whether it decodes.
        let turns = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&turns);
        let model = FakeModel::new(VOCAB).on_forward(move |batch| {
            let decodes = batch.tokens.iter().any(|token| (97..123).contains(token));
            log.lock().expect("no panic").push(decodes);
        });
        let (engine, handle) = engine_of(model, &config);
        let serving = serve(engine);
        let mut answer = submit(&handle, "A", 5).expect("room");
        // From here on the decoder is registered.
        assert!(matches!(
            answer.recv_blocking(),
            Some(Event::Started { .. })
        ));
        let registered = turns.lock().expect("no panic").len();
        let prompt = submit(&handle, "PPPPPPPPPPPP", 1).expect("room");
        drop(handle);
        let text: Vec<Event> = std::iter::from_fn(|| answer.recv_blocking()).collect();
        assert!(matches!(text.last(), Some(Event::Finished { .. })));
        drop(answer);
        assert_eq!(read(prompt).text, letters("PPPPPPPPPPPP", 1));
        serving.join().expect("no panic");
        let turns = turns.lock().expect("no panic");
        let mut left = 4 - turns[1..registered]
            .iter()
            .filter(|&&decodes| decodes)
            .count();
        for pair in turns[registered - 1..].windows(2).skip(1) {
            left -= usize::from(pair[0]).min(left);
            assert!(
                left == 0 || pair[0] || pair[1],
                "a turn was stolen: {turns:?}"
            );
        }
    });
}
