//! Whole runs of small traces, step by step.

use andante_sched::{Priority, micros};
use proptest::prelude::*;

use super::super::policy::Kind;
use super::super::recorded;
use super::*;
use crate::trace::Prompt;

/// A step takes 1, 2 or 3 ms and 10 µs for each prompt token.
const COST: CostModel = CostModel {
    decode: micros(1000),
    prefill: micros(2000),
    mixed: micros(3000),
    token: micros(10),
    attend: 0,
    context: 0,
    row: 0,
};

fn machine() -> Machine {
    Machine {
        cost: COST,
        noise_permille: 0,
        seed: 1,
    }
}

fn request(arrival_us: u64, prompt: u32, answer: u32) -> Request {
    Request {
        arrival_us,
        prompt: Prompt::Length(prompt),
        answer,
        tenant: 0,
        priority: Priority::Normal,
    }
}

/// The second comes while the first one's prompt is computed.
fn two() -> [Request; 2] {
    [request(0, 100, 3), request(2500, 150, 2)]
}

/// Elapsed time, decode rows and prompt tokens of each step, which follow each other.
fn steps(run: &Run) -> Vec<(u64, u32, u32)> {
    let mut end_us = run.steps[0].start_us;
    for step in &run.steps {
        assert_eq!(step.start_us, end_us);
        end_us += step.elapsed_us;
    }
    assert_eq!(run.end_us, end_us);
    run.steps
        .iter()
        .map(|step| (step.elapsed_us, step.rows, step.prefill))
        .collect()
}

/// TTFT, longest gap and tokens of each request.
fn served(run: &Run) -> Vec<(u64, u64, u32)> {
    let all = run.requests.iter();
    all.map(|request| (request.ttft_us.unwrap(), request.max_gap_us, request.tokens))
        .collect()
}

fn fixed(kind: Kind, requests: &[Request]) -> Run {
    let mut server = Plain::new(Fixed::new(kind, 100), 4);
    run(&mut server, requests, machine())
}

fn config(t_stall_us: u64) -> Config {
    Config {
        t_stall_us,
        q_min: 1,
        cost: COST,
        fixed_cost: true,
        max_queue: u32::MAX,
        ..Config::new(4, 1000, 16)
    }
}

#[test]
fn prefill_first_stalls_answers_for_every_prompt() {
    let run = fixed(Kind::PrefillFirst, &two());
    assert_eq!(
        steps(&run),
        [
            (3000, 0, 100),
            (3000, 0, 100),
            (2500, 0, 50),
            (1000, 2, 0),
            (1000, 1, 0)
        ]
    );
    assert_eq!(served(&run), [(3000, 6500, 3), (6000, 1000, 2)]);
    assert_eq!(run.longest_gap, (3000, 9500));
}

#[test]
fn decode_first_stalls_prompts_for_every_answer() {
    let run = fixed(Kind::DecodeFirst, &two());
    assert_eq!(
        steps(&run),
        [
            (3000, 0, 100),
            (1000, 1, 0),
            (1000, 1, 0),
            (3000, 0, 100),
            (2500, 0, 50),
            (1000, 1, 0)
        ]
    );
    assert_eq!(served(&run), [(3000, 1000, 3), (8000, 1000, 2)]);
}

#[test]
fn alternate_takes_turns() {
    let run = fixed(Kind::Alternate, &two());
    assert_eq!(
        steps(&run),
        [
            (3000, 0, 100),
            (1000, 1, 0),
            (3000, 0, 100),
            (1000, 1, 0),
            (2500, 0, 50),
            (1000, 1, 0)
        ]
    );
    assert_eq!(served(&run), [(3000, 4000, 3), (8000, 1000, 2)]);
}

#[test]
fn mixed_gives_decode_rows_and_the_rest_of_the_chunk() {
    let run = fixed(Kind::Mixed, &two());
    assert_eq!(
        steps(&run),
        [(3000, 0, 100), (3990, 1, 99), (3510, 1, 51), (1000, 1, 0)]
    );
    assert_eq!(served(&run), [(3000, 3990, 3), (8000, 1000, 2)]);
}

#[test]
fn ours_fills_the_bound() {
    let mut server = Ours::new(config(4000), false);
    let run = run(&mut server, &two(), machine());
    assert_eq!(
        steps(&run),
        [(3000, 0, 100), (4000, 1, 100), (3500, 1, 50), (1000, 1, 0)]
    );
    assert_eq!(served(&run), [(3000, 4000, 3), (8000, 1000, 2)]);
}

#[test]
fn slots_are_given_in_order_of_arrival() {
    let requests = [request(0, 10, 2), request(0, 10, 1)];
    let mut server = Plain::new(Fixed::new(Kind::Mixed, 100), 1);
    let run = run(&mut server, &requests, machine());
    assert_eq!(steps(&run), [(2100, 0, 10), (1000, 1, 0), (2100, 0, 10)]);
}

#[test]
fn time_jumps_to_the_next_arrival() {
    let requests = [request(0, 10, 1), request(9_000_000, 10, 1)];
    let run = fixed(Kind::Mixed, &requests);
    let starts: Vec<u64> = run.steps.iter().map(|step| step.start_us).collect();
    assert_eq!(starts, [0, 9_000_000]);
}

#[test]
fn what_prompts_share_is_computed_once_with_a_cache_only() {
    let block = |arrival_us| Request {
        prompt: Prompt::Blocks {
            tokens: 600,
            ids: vec![3, 4],
        },
        ..request(arrival_us, 0, 2)
    };
    let requests = [block(0), block(1_000_000)];
    let computed = |cache| {
        let mut server = Ours::new(config(100_000), cache);
        let run = run(&mut server, &requests, machine());
        run.steps.iter().map(|step| step.prefill).sum::<u32>()
    };
    assert_eq!(computed(false), 1200);
    // All but what is behind the last whole block of 16 tokens.
    assert_eq!(computed(true), 600 + 600 - 592);
}

#[test]
fn noise_is_bounded_and_repeatable() {
    let noisy = || {
        let mut machine = machine();
        machine.noise_permille = 200;
        let shape = Shape {
            rows: 1,
            ..Shape::default()
        };
        (0..1000)
            .map(|_| machine.elapsed_us(shape))
            .collect::<Vec<u64>>()
    };
    let times = noisy();
    assert_eq!(times, noisy());
    assert!(times.iter().all(|time| (800..=1200).contains(time)));
    assert!(times.iter().any(|&time| time < 850) && times.iter().any(|&time| time > 1150));
}

proptest! {
    /// With true costs no step with an answer in it is longer than the bound, which the smallest piece fits.
    #[test]
    fn ours_keeps_the_bound(
        requests in prop::collection::vec((0..40_000u64, 1..1500u32, 1..20u32), 1..30),
        t_stall_us in 3010..20_000u64,
    ) {
        let mut requests: Vec<Request> = requests
            .into_iter()
            .map(|(arrival_us, prompt, answer)| request(arrival_us, prompt, answer))
            .collect();
        requests.sort_by_key(|request| request.arrival_us);
        let mut server = Ours::new(config(t_stall_us), false);
        let run = run(&mut server, &requests, machine());
        for step in run.steps.iter().filter(|step| step.rows > 0) {
            prop_assert!(step.elapsed_us <= t_stall_us, "{step:?}");
        }
        prop_assert!(run.gaps_us.iter().all(|&gap| gap <= t_stall_us));
        for (served, request) in run.requests.iter().zip(&requests) {
            prop_assert_eq!(served.tokens, request.answer);
        }
    }

    /// Every policy serves everything, and computes every prompt token once.
    #[test]
    fn all_policies_do_all_the_work(
        requests in prop::collection::vec((0..40_000u64, 1..500u32, 1..20u32), 1..20),
        chunk in 5..600u32,
    ) {
        let mut requests: Vec<Request> = requests
            .into_iter()
            .map(|(arrival_us, prompt, answer)| request(arrival_us, prompt, answer))
            .collect();
        requests.sort_by_key(|request| request.arrival_us);
        let prompts: u32 = requests.iter().map(|request| request.prompt.len()).sum();
        for kind in [Kind::PrefillFirst, Kind::DecodeFirst, Kind::Alternate, Kind::Mixed] {
            let mut server = Plain::new(Fixed::new(kind, chunk), 4);
            let run = run(&mut server, &requests, machine());
            prop_assert_eq!(run.steps.iter().map(|step| step.prefill).sum::<u32>(), prompts);
            for (served, request) in run.requests.iter().zip(&requests) {
                prop_assert_eq!(served.tokens, request.answer);
            }
        }
    }

    /// A log tells the same run again, and its requests.
    #[test]
    fn a_recorded_run_reads_as_it_was(
        requests in prop::collection::vec((0..40_000u64, 1..500u32, 1..20u32), 1..20),
    ) {
        let mut requests: Vec<Request> = requests
            .into_iter()
            .map(|(arrival_us, prompt, answer)| request(arrival_us, prompt, answer))
            .collect();
        requests.sort_by_key(|request| request.arrival_us);
        requests[0].arrival_us = 0;
        let mut server = Ours::new(Config { fixed_cost: false, ..config(8000) }, false);
        server.record();
        let run = run(&mut server, &requests, Machine { noise_permille: 300, ..machine() });
        let recorded = recorded::read(&server.take_log()).unwrap();
        prop_assert_eq!(recorded.replayed.steps, run.steps.len() as u64);
        prop_assert_eq!(&recorded.run.steps, &run.steps);
        prop_assert_eq!(&recorded.run.gaps_us, &run.gaps_us);
        prop_assert_eq!(recorded.run.end_us, run.end_us);
        for (read, request) in recorded.requests.iter().zip(&requests) {
            prop_assert_eq!(read.answer, request.answer);
            prop_assert_eq!(read.prompt.tokens(), request.prompt.tokens());
            prop_assert!(read.arrival_us >= request.arrival_us);
        }
        prop_assert_eq!(recorded.requests.len(), requests.len());
    }
}
