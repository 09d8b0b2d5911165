//! What a step of the engine asks the system for is what it hands to clients, and no more: an event of a token owns its text.
//!
//! A program of its own, with one test: the count is of the whole process.

#[path = "../../model/tests/tiny/counting.rs"]
mod counting;
mod steady;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use andante_engine::{Clock, Engine, EngineConfig, EventStream, Progress, PromptInput, Sampling};
use counting::ALLOCATIONS;
use steady::{Steady, text_stack};

/// Time stands still: accounts of tenants are copied out every tenth of a second, however many steps that is.
struct Still;

impl Clock for Still {
    fn now_us(&self) -> u64 {
        0
    }
}

#[test]
fn a_step_allocates_what_it_says_and_no_more() {
    const SEQUENCES: u32 = 16;
    let config = EngineConfig {
        sessions: SEQUENCES,
        context: 2048,
        ..EngineConfig::default()
    };
    let clock = Arc::new(Still);
    let (mut engine, handle) =
        Engine::new(Box::new(Steady::new(|| ())), text_stack(), &config, clock).expect("an engine");
    let mut streams: Vec<EventStream> = (0..SEQUENCES)
        .map(|_| {
            let request = handle
                .prepare_text(PromptInput::Text("go".into()), Sampling::default())
                .expect("a request");
            handle.submit(request).expect("room")
        })
        .collect();
    let mut step = || {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        assert!(matches!(engine.step(), Ok(Progress::Stepped)));
        let count = ALLOCATIONS.load(Ordering::Relaxed) - before;
        for stream in &mut streams {
            while stream.try_recv().is_some() {}
        }
        count
    };
    // What remembers the whole answer doubles its memory now and then, next after 256 tokens.
    for _ in 0..140 {
        step();
    }
    // The text of a token, and the list of parts that it is in.
    let told = 2 * SEQUENCES as usize;
    for _ in 0..100 {
        assert_eq!(step(), told);
    }
}
