//! A day of virtual time fills nothing without bound: neither what the engine remembers nor what it shows of itself.
//!
//! A program of its own, with one test: the memory is that of the whole process.

#[path = "../../model/tests/tiny/counting.rs"]
mod counting;
mod steady;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use andante_engine::{
    Clock, Engine, EngineConfig, EventStream, Priority, Progress, PromptInput, Sampling, Tenant,
};
use counting::{ALLOCATIONS, HELD_BYTES};
use steady::{Steady, text_stack};

/// What a pass takes, and how often somebody asks.
const STEP_US: u64 = 20_000;
const EVERY_US: u64 = 2_000_000;
const HOUR_US: u64 = 3_600_000_000;

#[derive(Default)]
struct Virtual(AtomicU64);

impl Clock for Virtual {
    fn now_us(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn a_day_fills_nothing_without_bound() {
    let clock = Arc::new(Virtual::default());
    let ticks = Arc::clone(&clock);
    let model = Steady::new(move || _ = ticks.0.fetch_add(STEP_US, Ordering::Relaxed));
    let config = EngineConfig {
        sessions: 4,
        context: 512,
        max_queue: 4,
        ..EngineConfig::default()
    };
    let (mut engine, handle) = Engine::new(
        Box::new(model),
        text_stack(),
        &config,
        Arc::clone(&clock) as Arc<dyn Clock>,
    )
    .expect("an engine");
    let mut streams: Vec<EventStream> = Vec::new();
    // The most that is held within each quarter of the day.
    let mut quarters = [0; 4];
    let mut asked = 0_u64;
    while clock.now_us() < 24 * HOUR_US {
        if clock.now_us() >= asked * EVERY_US {
            // A prompt and a tenant that were never there before; every seventh client goes away at once.
            let text = format!("{asked} is what I ask today, and never again");
            let sampling = Sampling {
                max_tokens: Some(8),
                ..Sampling::greedy()
            };
            let mut request = handle
                .prepare_text(PromptInput::Text(text), sampling)
                .expect("a request");
            let tenant = Tenant::named(&format!("tenant {asked}"));
            request.set_account(tenant, Priority::Normal);
            streams.extend(handle.submit(request).ok().filter(|_| asked % 7 > 0));
            asked += 1;
        }
        if let Progress::Waiting { .. } = engine.step().expect("the model works") {
            clock.0.fetch_max(asked * EVERY_US, Ordering::Relaxed);
        }
        streams.retain_mut(|stream| {
            while stream.try_recv().is_some() {}
            !stream.is_done()
        });
        let quarter = (clock.now_us() / (6 * HOUR_US)).min(3) as usize;
        quarters[quarter] = HELD_BYTES.load(Ordering::Relaxed).max(quarters[quarter]);
    }
    let status = handle.status();
    assert!(asked >= 24 * HOUR_US / EVERY_US);
    assert!(
        ALLOCATIONS.load(Ordering::Relaxed) > 1_000_000,
        "it has done something"
    );
    assert!(status.finished > 30_000 && status.cancelled > 5_000);
    assert!(status.recent.len() <= 64, "{}", status.recent.len());
    assert!(status.tenants.len() <= 1100, "{}", status.tenants.len());
    // All that grows to its bound has reached it in the first quarter.
    let [_, second, third, fourth] = quarters;
    assert!(
        third.max(fourth) <= second + second / 50,
        "{quarters:?} bytes"
    );
}
