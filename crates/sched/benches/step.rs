//! What a step costs in the scheduler itself: `cargo bench -p andante-sched`.
//!
//! 64 sessions with prompts of 8,000 tokens in blocks of 16, costs being fitted. A line for sessions that all decode, one
//! for sessions that all prefill, and one where each session that ends is followed by a new one, so that admission, block
//! allocation, prefix lookup and eviction go on all the time. Time is that of `plan` and `complete`; `add` has a column of
//! its own.

#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::time::{Duration, Instant};

use andante_sched::{Admission, Config, Outcome, Plan, Scheduler};

const SESSIONS: u32 = 64;
const PROMPT: u32 = 8000;
const BLOCK_TOKENS: u32 = 16;

struct Load {
    scheduler: Scheduler,
    now_us: u64,
    next_id: u64,
    answer: u32,
    outcomes: Vec<Outcome>,
    steps: Vec<Duration>,
    adds: Vec<Duration>,
    rows: u64,
    ranges: u64,
}

impl Load {
    fn new(answer: u32) -> Self {
        let blocks = SESSIONS * (PROMPT + answer).div_ceil(BLOCK_TOKENS);
        Self {
            scheduler: Scheduler::new(Config::new(SESSIONS, blocks, BLOCK_TOKENS)),
            now_us: 0,
            next_id: 0,
            answer,
            outcomes: Vec::new(),
            steps: Vec::new(),
            adds: Vec::new(),
            rows: 0,
            ranges: 0,
        }
    }

    /// A quarter of every prompt is common to all, another one to every fourth.
    fn add(&mut self) {
        let id = self.next_id;
        self.next_id += 1;
        let family = |position: u32| match position {
            0..2000 => 0,
            2000..4000 => id % 4,
            _ => id + 10,
        };
        let prompt: Vec<u32> = (0..PROMPT)
            .map(|p| (family(p) * 100_003) as u32 ^ p)
            .collect();
        let start = Instant::now();
        let request = Admission::new(id, &prompt, self.answer);
        self.scheduler.add(request).expect("room in the queue");
        self.adds.push(start.elapsed());
    }

    /// Plans, pretends, completes; gives the number of sequences that ended.
    fn step(&mut self) -> usize {
        let start = Instant::now();
        let Plan::Step(step) = self.scheduler.plan(self.now_us) else {
            panic!("there is always work")
        };
        let planning = start.elapsed();
        self.rows += step.decode.len() as u64;
        self.ranges += step.prefill.len() as u64;
        self.outcomes.clear();
        self.outcomes
            .extend(step.decode.iter().map(|_| Outcome::Token(7)));
        let outcome = |last| {
            if last {
                Outcome::Token(7)
            } else {
                Outcome::Prefilled
            }
        };
        self.outcomes
            .extend(step.prefill.iter().map(|range| outcome(range.last)));
        let tokens: u64 = step
            .prefill
            .iter()
            .map(|range| u64::from(range.tokens))
            .sum();
        let elapsed_us = 8_000 + 40 * step.decode.len() as u64 + 100 * tokens + self.now_us % 977;
        let step_no = step.step_no;
        self.now_us += elapsed_us;
        let start = Instant::now();
        let ended = self
            .scheduler
            .complete(step_no, elapsed_us, &self.outcomes)
            .expect("in flight")
            .len();
        self.steps.push(planning + start.elapsed());
        ended
    }

    fn reset(&mut self) {
        self.steps.clear();
        self.adds.clear();
        self.rows = 0;
        self.ranges = 0;
    }

    fn report(&mut self, name: &str) {
        let count = self.steps.len() as u64;
        let mean = |times: &[Duration]| {
            times.iter().sum::<Duration>().as_secs_f64() * 1e6 / times.len().max(1) as f64
        };
        let (step, add) = (mean(&self.steps), mean(&self.adds));
        self.steps.sort_unstable();
        let quantile =
            |percent: usize| self.steps[self.steps.len() * percent / 100].as_secs_f64() * 1e6;
        let (p50, p99) = (quantile(50), quantile(99));
        let (rows, ranges) = (self.rows / count, self.ranges as f64 / count as f64);
        println!(
            "{name:10} {count:7} steps, {rows:3} rows, {ranges:4.1} ranges: mean {step:6.2} µs, p50 {p50:6.2} µs, p99 {p99:6.2} µs, add {add:6.1} µs"
        );
        self.reset();
    }
}

fn main() {
    let mut load = Load::new(4000);
    for _ in 0..SESSIONS {
        load.add();
    }
    load.reset();
    while load.scheduler.stats().prefilling > 0 || load.scheduler.stats().queued > 0 {
        load.step();
    }
    load.report("prefill");
    for _ in 0..2000 {
        load.step();
    }
    load.report("decode");

    let mut load = Load::new(200);
    for _ in 0..2 * SESSIONS {
        load.add();
    }
    for round in 0..60_000 {
        if round == 20_000 {
            load.reset();
        }
        for _ in 0..load.step() {
            load.add();
        }
    }
    load.report("churn");
}
