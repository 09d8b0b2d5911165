//! The life of sequences through the public face.

use andante_sched::{
    AddError, Admission, CompleteError, Config, Mode, Outcome, Plan, Scheduler, Step,
};

fn admission(id: u64, prompt: &[u32], max_new: u32) -> Admission<'_> {
    Admission::new(id, prompt, max_new)
}

/// Every row succeeds and every sampled token is its sequence's id.
fn outcomes(step: &Step) -> Vec<Outcome> {
    let token = |id: u64| Outcome::Token(u32::try_from(id).unwrap());
    let decode = step.decode.iter().map(|&id| token(id));
    let prefill = step.prefill.iter().map(|range| {
        if range.last {
            token(range.id)
        } else {
            Outcome::Prefilled
        }
    });
    decode.chain(prefill).collect()
}

fn planned(scheduler: &mut Scheduler) -> Option<Step> {
    match scheduler.plan(0) {
        Plan::Step(step) => Some(step.clone()),
        Plan::Wait { .. } | Plan::Idle => None,
    }
}

fn scheduler() -> Scheduler {
    Scheduler::new(Config {
        fixed_cost: true,
        ..Config::new(2, 32, 4)
    })
}

/// One step in which everything succeeds.
fn run(scheduler: &mut Scheduler) -> Step {
    let step = planned(scheduler).expect("work");
    scheduler
        .complete(step.step_no, 1000, &outcomes(&step))
        .unwrap();
    step
}

#[test]
fn two_sequences_run_to_their_end_and_leave_only_cache() {
    let mut scheduler = scheduler();
    let prompt: Vec<u32> = (0..30).collect();
    scheduler.add(admission(1, &prompt, 5)).unwrap();
    scheduler.add(admission(2, &prompt[..9], 3)).unwrap();
    let mut ended = Vec::new();
    while let Some(step) = planned(&mut scheduler) {
        ended.extend_from_slice(
            scheduler
                .complete(step.step_no, 1000, &outcomes(&step))
                .unwrap(),
        );
    }
    ended.sort_unstable();
    assert_eq!(ended, [1, 2]);
    let stats = scheduler.stats();
    assert_eq!(
        (stats.resident, stats.blocks.used, stats.blocks.reserved),
        (0, 0, 0)
    );
    // 30 + 4 computed tokens fill 8 blocks and begin one; the other sequence's 9 + 2 share two of them and begin another.
    assert_eq!(stats.blocks.cached, 8 + 2);
    assert_eq!(stats.prefill_tokens + stats.cached_tokens, 39);
    assert_eq!(stats.decode_tokens, 4 + 2);
}

#[test]
fn a_step_tells_what_a_batch_needs() {
    let mut scheduler = scheduler();
    scheduler
        .add(admission(1, &[10, 11, 12, 13, 14], 4))
        .unwrap();
    assert_eq!(scheduler.block_table(1), Some(&[][..]), "queued");
    let step = planned(&mut scheduler).unwrap();
    assert_eq!(
        (
            step.prefill[0].start,
            step.prefill[0].tokens,
            step.prefill[0].last
        ),
        (0, 5, true)
    );
    assert_eq!(scheduler.block_table(1).unwrap().len(), 2);
    assert_eq!(scheduler.in_flight(), Some(&step));
    scheduler
        .complete(step.step_no, 1000, &[Outcome::Token(77)])
        .unwrap();
    assert_eq!(scheduler.tokens(1), Some(&[10, 11, 12, 13, 14, 77][..]));
    for _ in 0..3 {
        assert_eq!(run(&mut scheduler).decode, [1]);
    }
    assert_eq!(
        (scheduler.tokens(1), scheduler.in_flight()),
        (None, None),
        "max_new tokens are all"
    );
}

#[test]
fn impossible_requests_are_refused_and_say_why() {
    let mut scheduler = Scheduler::new(Config {
        max_queue: 2,
        ..Config::new(1, 32, 4)
    });
    let prompt = [0; 100];
    assert_eq!(
        scheduler.add(admission(1, &prompt, 29)),
        Err(AddError::TooLong {
            needed: 33,
            blocks: 32
        })
    );
    assert_eq!(
        scheduler
            .add(admission(1, &prompt, u32::MAX))
            .unwrap_err()
            .to_string(),
        "needs 1073741849 KV blocks, there are 32"
    );
    assert_eq!(
        scheduler.add(admission(1, &[], 1)),
        Err(AddError::EmptyPrompt)
    );
    assert_eq!(
        scheduler.add(admission(1, &prompt, 0)),
        Err(AddError::NoTokens)
    );
    scheduler.add(admission(1, &prompt, 28)).unwrap();
    assert_eq!(
        scheduler.add(admission(1, &prompt, 1)),
        Err(AddError::DuplicateId { id: 1 })
    );
    scheduler.add(admission(2, &prompt, 1)).unwrap();
    assert_eq!(
        scheduler.add(admission(3, &prompt, 1)),
        Err(AddError::QueueFull { queued: 2 })
    );
    assert!(scheduler.cancel(2), "a place in the queue is free again");
    scheduler.add(admission(3, &prompt, 1)).unwrap();
}

#[test]
fn completions_that_do_not_fit_the_step_change_nothing() {
    let mut scheduler = scheduler();
    scheduler.add(admission(1, &[1, 2, 3], 3)).unwrap();
    assert_eq!(
        scheduler.complete(1, 1, &[]),
        Err(CompleteError::NotInFlight { step_no: 1 })
    );
    let no = planned(&mut scheduler).unwrap().step_no;
    for wrong in [no - 1, no + 1] {
        assert_eq!(
            scheduler.complete(wrong, 1, &[Outcome::Token(5)]),
            Err(CompleteError::NotInFlight { step_no: wrong })
        );
    }
    assert_eq!(
        scheduler.complete(no, 1, &[]),
        Err(CompleteError::OutcomeCount {
            given: 0,
            planned: 1
        })
    );
    assert_eq!(
        scheduler.complete(no, 1, &[Outcome::Prefilled]),
        Err(CompleteError::WrongOutcome { index: 0 })
    );
    assert_eq!(scheduler.tokens(1).unwrap().len(), 3);
    assert_eq!(scheduler.complete(no, 1, &[Outcome::Token(5)]), Ok(&[][..]));
    assert_eq!(
        scheduler.complete(no, 1, &[Outcome::Token(5)]),
        Err(CompleteError::NotInFlight { step_no: no })
    );
    assert_eq!(scheduler.tokens(1).unwrap().len(), 4);
}

#[test]
fn a_cancel_in_flight_ends_with_the_step_whatever_its_outcome() {
    for outcome in [
        Outcome::Token(1),
        Outcome::Sampling,
        Outcome::Finish,
        Outcome::Failed,
        Outcome::Prefilled,
    ] {
        let mut scheduler = scheduler();
        scheduler.add(admission(1, &[1, 2, 3], 3)).unwrap();
        scheduler.add(admission(2, &[4, 5], 3)).unwrap();
        let step = planned(&mut scheduler).unwrap();
        assert!(scheduler.cancel(1));
        assert!(
            !scheduler.cancel(1) && !scheduler.park(1) && !scheduler.ready(1),
            "it is ending already"
        );
        assert!(
            scheduler.stats().blocks.used > 1,
            "the step still writes to its block"
        );
        let outcome = |id| if id == 1 { outcome } else { Outcome::Token(9) };
        let outcomes: Vec<Outcome> = step.prefill.iter().map(|range| outcome(range.id)).collect();
        assert_eq!(scheduler.complete(step.step_no, 1, &outcomes), Ok(&[1][..]));
        assert_eq!(
            (scheduler.tokens(1), scheduler.stats().blocks.used),
            (None, 1)
        );
        assert_eq!(run(&mut scheduler).decode, [2]);
    }
}

#[test]
fn a_parked_sequence_keeps_its_blocks_and_leaves_the_plans() {
    let mut scheduler = scheduler();
    scheduler.add(admission(1, &[1, 2, 3], 9)).unwrap();
    run(&mut scheduler);
    assert!(scheduler.park(1) && !scheduler.park(1));
    assert_eq!(planned(&mut scheduler), None);
    let stats = scheduler.stats();
    assert_eq!((stats.active, stats.parked, stats.blocks.used), (0, 1, 1));
    assert!(scheduler.unpark(1) && !scheduler.unpark(1));
    assert_eq!(run(&mut scheduler).decode, [1]);
}

#[test]
fn a_busy_decoder_is_active_but_not_in_the_plan() {
    let mut scheduler = scheduler();
    scheduler.add(admission(1, &[1, 2, 3], 9)).unwrap();
    run(&mut scheduler);
    assert!(!scheduler.ready(1) && scheduler.busy(1) && !scheduler.busy(1));
    assert_eq!(
        (planned(&mut scheduler), scheduler.stats().active),
        (None, 1)
    );
    scheduler.add(admission(2, &[1; 50], 9)).unwrap();
    assert!(planned(&mut scheduler).unwrap().contended);
}

#[test]
fn a_token_sampled_elsewhere_comes_later_and_only_once() {
    let mut scheduler = scheduler();
    scheduler.add(admission(1, &[1, 2, 3], 2)).unwrap();
    let step = planned(&mut scheduler).unwrap();
    assert!(!scheduler.sampled(1, Outcome::Token(5)), "not yet");
    scheduler
        .complete(step.step_no, 1, &[Outcome::Sampling])
        .unwrap();
    assert_eq!(planned(&mut scheduler), None);
    assert!(!scheduler.ready(1), "its token is missing");
    assert!(!scheduler.sampled(1, Outcome::Prefilled), "no token");
    assert!(scheduler.sampled(1, Outcome::Token(5)) && !scheduler.sampled(1, Outcome::Token(5)));
    let step = planned(&mut scheduler).unwrap();
    assert_eq!(step.decode, [1]);
    scheduler
        .complete(step.step_no, 1, &[Outcome::Sampling])
        .unwrap();
    assert!(scheduler.sampled(1, Outcome::Token(6)), "its last token");
    assert_eq!((scheduler.tokens(1), scheduler.stats().resident), (None, 0));
    assert!(!scheduler.sampled(1, Outcome::Token(6)));
}

#[test]
fn waits_end_at_a_time() {
    let mut scheduler = Scheduler::new(Config {
        wait_us: 50,
        ..Config::new(2, 32, 4)
    });
    scheduler.add(admission(1, &[1], 9)).unwrap();
    scheduler.add(admission(2, &[2], 9)).unwrap();
    run(&mut scheduler);
    assert!(scheduler.busy(2));
    assert_eq!(scheduler.plan(1000), Plan::Wait { until_us: 1050 });
    assert!(matches!(scheduler.plan(1050), Plan::Step(step) if step.decode == [1]));
}

#[test]
fn a_queue_takes_time_to_drain() {
    let mut scheduler = scheduler();
    assert_eq!(scheduler.drain_estimate_us(), 0);
    scheduler.add(admission(1, &[0; 50], 9)).unwrap();
    let one = scheduler.drain_estimate_us();
    scheduler.add(admission(2, &[0; 50], 9)).unwrap();
    assert!(one >= 50 * 300 && scheduler.drain_estimate_us() == 2 * one);
}

#[test]
fn the_configuration_says_what_it_is() {
    let config = Config::new(4, 512, 32).with_mode(Mode::HandOff);
    assert_eq!(
        config.to_string(),
        "hand-off, stall 100 ms, idle 500 ms, chunk 16..2048 tokens, oldest 25 %, decode share 50 %, wait 0 µs, 4 slots, \
         512 blocks of 32 tokens, queue 256"
    );
}

#[test]
fn a_parked_prompt_is_in_no_plan() {
    let mut scheduler = Scheduler::new(Config {
        fixed_cost: true,
        q_min: 1,
        q_max: 8,
        ..Config::new(2, 32, 4)
    });
    scheduler.add(admission(1, &[0; 30], 5)).unwrap();
    scheduler.add(admission(2, &[1; 30], 5)).unwrap();
    assert_eq!(run(&mut scheduler).prefill[0].id, 1);
    assert!(scheduler.park(1));
    assert_eq!(run(&mut scheduler).prefill[0].id, 2);
    assert!(scheduler.unpark(1));
    assert_eq!(run(&mut scheduler).prefill[0].id, 1);
}

#[test]
fn equal_prompts_that_fit_one_step_are_still_computed_once() {
    let mut scheduler = scheduler();
    let prompt: Vec<u32> = (0..21).collect();
    scheduler.add(admission(1, &prompt, 1)).unwrap();
    scheduler.add(admission(2, &prompt, 1)).unwrap();
    while planned(&mut scheduler).is_some_and(|step| {
        scheduler
            .complete(step.step_no, 1000, &outcomes(&step))
            .is_ok()
    }) {}
    let stats = scheduler.stats();
    assert_eq!((stats.prefill_tokens, stats.cached_tokens), (21 + 1, 20));
}
