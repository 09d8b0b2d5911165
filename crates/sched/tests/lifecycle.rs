//! The life of sequences through the public face.

use andante_sched::{Admission, Config, Outcome, Plan, Scheduler, Step};

fn admission(id: u64, prompt: &[u32], max_new: u32) -> Admission<'_> {
    Admission {
        id,
        prompt,
        max_new,
        cache: true,
    }
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

#[test]
fn two_sequences_run_to_their_end_and_leave_only_cache() {
    let mut scheduler = Scheduler::new(Config {
        fixed_cost: true,
        ..Config::new(2, 32, 4)
    });
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
    // 30 + 4 computed tokens fill 8 blocks; the other sequence's 9 + 2 share two of them.
    assert_eq!(stats.blocks.cached, 8);
}
