//! Which runs a scheduler's prompts make.

use crate::config::Config;
use crate::scheduler::Scheduler;
use crate::step::{Admission, Outcome, Plan, SeqId};

use super::*;

const BLOCK: u32 = 4;

fn scheduler() -> Scheduler {
    Scheduler::new(Config::new(4, 64, BLOCK))
}

/// Computes everything that is waiting; answers go on.
fn work(scheduler: &mut Scheduler) {
    for _ in 0..8 {
        let Plan::Step(step) = scheduler.plan(0) else {
            return;
        };
        let (number, rows) = (step.step_no, step.decode.len());
        let ranges = step.prefill.iter().map(|part| match part.last {
            true => Outcome::Token(9),
            false => Outcome::Prefilled,
        });
        let outcomes: Vec<Outcome> = std::iter::repeat_n(Outcome::Token(9), rows)
            .chain(ranges)
            .collect();
        scheduler.complete(number, 1_000, &outcomes).unwrap();
        if scheduler.stats().prefilling == 0 {
            return;
        }
    }
}

fn add(scheduler: &mut Scheduler, id: SeqId, salt: u64, prompt: &[u32]) {
    let admission = Admission {
        salt,
        ..Admission::new(id, prompt, 20)
    };
    scheduler.add(admission).unwrap();
    work(scheduler);
}

fn run(parent: Option<u32>, blocks: u32, tokens: u32, holders: u32) -> PrefixRun {
    PrefixRun {
        parent,
        blocks,
        tokens,
        holders,
        salt: 0,
    }
}

fn prompt(tokens: impl IntoIterator<Item = u32>) -> Vec<u32> {
    tokens.into_iter().collect()
}

#[test]
fn prompts_that_share_a_beginning_part_where_they_differ() {
    let mut scheduler = scheduler();
    assert_eq!(scheduler.prefix_map(8), PrefixMap::default());
    // Two blocks in common, then three of the one and one of the other.
    add(&mut scheduler, 1, 0, &prompt(0..21));
    add(&mut scheduler, 2, 0, &prompt((0..8).chain(100..105)));
    let map = scheduler.prefix_map(8);
    assert_eq!(map.left_out, 0);
    assert_eq!(map.runs[0], run(None, 2, 8, 2));
    let mut rest = map.runs[1..].to_vec();
    rest.sort_by_key(|run| run.blocks);
    assert_eq!(rest, [run(Some(0), 1, 4, 1), run(Some(0), 3, 12, 1)]);
    let long = prompt(8..20);
    let ends: [Vec<u32>; 2] = match map.runs[1].blocks {
        1 => [prompt(100..104), long],
        _ => [long, prompt(100..104)],
    };
    assert_eq!(map.tokens, [prompt(0..8), ends.concat()].concat());
}

#[test]
fn what_nobody_holds_any_more_is_cache_with_its_last_tokens() {
    let mut scheduler = scheduler();
    add(&mut scheduler, 1, 0, &prompt(0..10));
    scheduler.cancel(1);
    let map = scheduler.prefix_map(8);
    // Two blocks that are full and one that holds the rest.
    assert_eq!(map.runs, [run(None, 3, 10, 0)]);
}

#[test]
fn salts_have_trees_of_their_own() {
    let mut scheduler = scheduler();
    add(&mut scheduler, 1, 7, &prompt(0..9));
    add(&mut scheduler, 2, 8, &prompt(0..9));
    let map = scheduler.prefix_map(8);
    let mut salts: Vec<u64> = map.runs.iter().map(|run| run.salt).collect();
    salts.sort_unstable();
    assert_eq!(salts, [7, 8]);
    assert!(
        map.runs
            .iter()
            .all(|run| run.parent.is_none() && run.blocks == 2)
    );
}

#[test]
fn what_is_too_much_is_counted() {
    let mut scheduler = scheduler();
    for id in 1..=4 {
        let first = u32::try_from(id).unwrap() * 100;
        add(&mut scheduler, id, 0, &prompt(first..first + 9));
    }
    let map = scheduler.prefix_map(3);
    assert_eq!((map.runs.len(), map.left_out), (3, 1));
}
