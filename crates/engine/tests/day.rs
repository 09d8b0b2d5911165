//! A day of a busy server in virtual time: what it keeps of requests that are over has a bound.
//!
//! A program of its own, with one test: the count is of the whole process.

#[path = "../../model/tests/tiny/counting.rs"]
mod counting;
mod steady;

use std::collections::VecDeque;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use andante_engine::{
    Clock, Engine, EngineConfig, EngineHandle, EventStream, Priority, Profile, Progress,
    PromptInput, Sampling, Tenant, TranscriptConfig,
};
use counting::HELD_BYTES;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use steady::{Steady, text_stack};

const HOUR_US: u64 = 3_600_000_000;
/// What a step takes: a slow machine, so that a day has fewer of them.
const STEP_US: u64 = 4_000_000;
/// Requests that come with each: 1,800 in an hour.
const ARRIVALS: u32 = 2;
/// How long accounts, names and prefixes take to fill what they may.
const WARM_HOURS: usize = 9;
const TRACE_BYTES: u64 = 1 << 20;

struct Virtual(Arc<AtomicU64>);

impl Clock for Virtual {
    fn now_us(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Everybody who asks.
struct Clients {
    rng: Pcg64,
    streams: VecDeque<EventStream>,
    asked: u64,
}

impl Clients {
    fn below(&mut self, limit: u32) -> u32 {
        self.rng.next_u32() % limit
    }

    /// A request like no other before it, most of them of tenants who never come again.
    fn arrive(&mut self, handle: &EngineHandle) {
        self.asked += 1;
        let number = self.asked;
        let shared = "a".repeat(self.below(4) as usize * 40);
        let prompt = format!("{shared}{number}{}", "b".repeat(self.below(200) as usize));
        let sampling = Sampling {
            max_tokens: Some(1 + self.below(6)),
            ..Sampling::default()
        };
        let mut request = handle
            .prepare_text(PromptInput::Text(prompt), sampling)
            .expect("a request");
        let tenant = match self.below(4) {
            0 => format!("regular {}", self.below(20)),
            _ => format!("guest {number}"),
        };
        request.set_account(Tenant::named(&tenant), Priority::Normal);
        // A full queue refuses; that is counted, and kept nowhere.
        self.streams.extend(handle.submit(request));
    }

    /// All read, and one in a while leaves.
    fn read(&mut self) {
        for stream in &mut self.streams {
            while stream.try_recv().is_some() {}
        }
        self.streams.retain(|stream| !stream.is_done());
        if self.below(50) == 0 {
            self.streams.pop_front();
        }
    }
}

#[test]
fn a_day_fills_nothing_without_bound() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace");
    let config = EngineConfig {
        sessions: 16,
        context: 512,
        // No bound could be kept by such steps.
        profile: Profile::Batch,
        transcript: Some(TranscriptConfig {
            path: path.clone(),
            most_bytes: TRACE_BYTES,
        }),
        ..EngineConfig::default()
    };
    let time = Arc::new(AtomicU64::new(0));
    let ticks = Arc::clone(&time);
    let model = Steady::new(move || {
        ticks.fetch_add(STEP_US, Ordering::Relaxed);
    });
    let clock = Arc::new(Virtual(Arc::clone(&time)));
    let (mut engine, handle) =
        Engine::new(Box::new(model), text_stack(), &config, clock).expect("an engine");
    let mut clients = Clients {
        rng: Pcg64::seed_from_u64(1),
        streams: VecDeque::new(),
        asked: 0,
    };
    // The most that is held in each hour.
    let mut held = Vec::new();
    let mut moments = Vec::new();
    for hour in 1..=24 {
        let mut most = 0;
        while time.load(Ordering::Relaxed) < hour * HOUR_US {
            (0..ARRIVALS).for_each(|_| clients.arrive(&handle));
            match engine.step().expect("the model works") {
                Progress::Stepped => {}
                Progress::Waiting { .. } => {
                    time.fetch_add(STEP_US, Ordering::Relaxed);
                }
                Progress::Ended => panic!("nobody asked for it"),
            }
            clients.read();
            most = most.max(HELD_BYTES.load(Ordering::Relaxed));
        }
        held.push(most);
        // A watcher who comes each hour finds a ring that is no longer than at the first.
        moments.clear();
        handle.timeline().read(&mut moments);
        assert!(moments.len() < 128 << 10, "{} moments", moments.len());
    }
    let status = handle.status();
    assert!(
        status.finished > 40_000 && status.cancelled > 300,
        "{} finished, {} cancelled: not a busy day",
        status.finished,
        status.cancelled
    );
    assert!(status.recent.len() <= 64, "{} steps", status.recent.len());
    assert!(
        status.tenants.len() <= 4096,
        "{} tenants",
        status.tenants.len()
    );
    let (warm, later) = held.split_at(WARM_HOURS);
    let (before, after) = (warm.iter().max(), later.iter().max());
    let (before, after) = (before.expect("hours"), after.expect("hours"));
    assert!(
        after * 100 <= before * 105,
        "memory held grows from {before} to {after} bytes: {held:?}"
    );
    drop((engine, handle));
    let size = fs::metadata(&path).expect("a trace").len();
    assert!(size <= TRACE_BYTES, "a trace of {size} bytes");
}
