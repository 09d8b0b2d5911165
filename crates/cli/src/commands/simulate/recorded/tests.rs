//! What a log says about requests that are refused, cancelled, sampled elsewhere, or loaded from a store.

use andante_sched::{Config, CostModel, IoCost, IoKind, micros};

use super::*;

const COST: CostModel = CostModel {
    decode: micros(1000),
    prefill: micros(2000),
    mixed: micros(3000),
    token: micros(10),
    attend: 0,
    context: 0,
    row: 0,
};

fn scheduler() -> Scheduler {
    let mut scheduler = Scheduler::new(Config {
        cost: COST,
        fixed_cost: true,
        load_cost: IoCost {
            unit: micros(10),
            block: micros(1),
        },
        max_queue: 2,
        ..Config::new(2, 100, 4)
    });
    scheduler.record(true);
    scheduler
}

fn read_log(mut scheduler: Scheduler) -> Recorded {
    let mut log = Vec::new();
    scheduler.take_log(&mut log);
    read(&log).unwrap()
}

fn step(scheduler: &mut Scheduler, now_us: u64) -> Step {
    match scheduler.plan(now_us) {
        Plan::Step(step) => step.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn refused_and_cancelled_requests_are_no_part_of_the_trace() {
    let mut scheduler = scheduler();
    for id in 0..3 {
        let _ = scheduler.add(Admission::new(id, &[1, 2, 3], 5));
    }
    scheduler.cancel(1);
    let planned = step(&mut scheduler, 7_000_000);
    scheduler
        .complete(planned.step_no, 2030, &[Outcome::Token(9)])
        .unwrap();
    let planned = step(&mut scheduler, 7_002_130);
    scheduler.cancel(0);
    scheduler
        .complete(planned.step_no, 1000, &[Outcome::Token(9)])
        .unwrap();
    let recorded = read_log(scheduler);
    // Nobody had a place for the third; the second never began; the first had one token.
    assert_eq!(recorded.run.requests.len(), 2);
    assert_eq!(recorded.requests.len(), 1);
    assert_eq!(recorded.requests[0].answer, 1);
    assert_eq!(recorded.run.requests[0].ttft_us, Some(2030));
    assert_eq!(recorded.run.steps[1].start_us, 2130);
    assert_eq!(recorded.run.end_us, 3130);
}

#[test]
fn a_token_sampled_elsewhere_comes_when_it_is_known() {
    let mut scheduler = scheduler();
    scheduler.add(Admission::new(0, &[1, 2, 3], 2)).unwrap();
    let planned = step(&mut scheduler, 0);
    scheduler
        .complete(planned.step_no, 2030, &[Outcome::Sampling])
        .unwrap();
    assert!(matches!(scheduler.plan(2500), Plan::Idle));
    scheduler.sampled(0, Outcome::Token(4));
    let planned = step(&mut scheduler, 2500);
    scheduler
        .complete(planned.step_no, 1000, &[Outcome::Finish])
        .unwrap();
    let recorded = read_log(scheduler);
    assert_eq!(recorded.run.requests[0].ttft_us, Some(2500));
    // An end-of-generation token is nobody's to read.
    assert_eq!(recorded.requests[0].answer, 1);
    assert!(recorded.run.gaps_us.is_empty());
}

#[test]
fn loading_is_part_of_its_step() {
    let mut scheduler = scheduler();
    let prompt: Vec<u32> = (0..16).collect();
    let request = Admission {
        stored: 8,
        ..Admission::new(0, &prompt, 1)
    };
    scheduler.add(request).unwrap();
    let (mut now_us, mut io_us) = (0, 0);
    while scheduler.tokens(0).is_some() {
        let planned = step(&mut scheduler, now_us);
        if let Some(unit) = &planned.io {
            let IoKind::Load { blocks, .. } = unit.kind else {
                panic!("no load")
            };
            scheduler.io_done(unit.unit_no, blocks, 500);
            now_us += 500;
            io_us += 500;
        }
        let ranges = planned.prefill.iter();
        let outcomes: Vec<Outcome> = ranges
            .map(|range| {
                if range.last {
                    Outcome::Token(1)
                } else {
                    Outcome::Prefilled
                }
            })
            .collect();
        scheduler
            .complete(planned.step_no, 2080, &outcomes)
            .unwrap();
        now_us += 2080;
    }
    assert!(io_us > 0);
    let recorded = read_log(scheduler);
    assert_eq!(recorded.run.end_us, now_us);
    assert_eq!(recorded.run.requests[0].ttft_us, Some(now_us));
}
