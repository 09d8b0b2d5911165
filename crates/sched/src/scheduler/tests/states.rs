//! Running state: where checkpoints are kept, what goes on from them, and that a load without its state was for nothing.

use super::super::Scheduler;
use crate::config::Config;
use crate::cost::{CostModel, IoCost, micros};
use crate::step::{Admission, IoKind, Outcome, Plan, StateCopy};

/// Blocks of four tokens, a checkpoint after every second; states 0 and 1 are the residents'.
fn scheduler(t_idle_us: u64) -> Scheduler {
    Scheduler::new(Config {
        t_idle_us,
        checkpoints: 6,
        checkpoint_blocks: 2,
        load_cost: IoCost {
            unit: micros(1),
            block: micros(3),
        },
        cost: CostModel {
            token: micros(1),
            row: micros(1),
            ..CostModel::default()
        },
        fixed_cost: true,
        ..Config::new(2, 100, 4)
    })
}

/// A step: its first range or row, what it goes on from, what it keeps.
type Seen = ((u32, u32), Vec<StateCopy>, Vec<StateCopy>);

/// Runs a sequence to its end; of each load, `came` blocks come.
fn run(scheduler: &mut Scheduler, admission: Admission<'_>, came: u32) -> (Vec<Seen>, u32) {
    let id = admission.id;
    scheduler.add(admission).unwrap();
    let (mut seen, mut found) = (Vec::new(), 0);
    while let Plan::Step(step) = scheduler.plan(0) {
        let step = step.clone();
        let mut outcomes = Vec::new();
        if let Some(part) = step.prefill.first() {
            seen.push((
                (part.start, part.tokens),
                step.states.restore,
                step.states.keep,
            ));
            outcomes.push(if part.last {
                Outcome::Token(7)
            } else {
                Outcome::Prefilled
            });
        } else if !step.decode.is_empty() {
            let at = scheduler.tokens(id).unwrap().len() as u32 - 1;
            seen.push(((at, 1), step.states.restore, step.states.keep));
            outcomes.push(Outcome::Token(7));
        }
        found = scheduler.cached_tokens(id).unwrap();
        if let Some(io) = step.io {
            let IoKind::Load {
                start_block,
                blocks,
                ..
            } = io.kind
            else {
                panic!("nothing is saved");
            };
            let last = start_block + blocks == 5;
            assert_eq!(step.states.load.is_some(), last, "the state comes at last");
            let left = came.saturating_sub(start_block);
            scheduler.io_done(io.unit_no, blocks.min(left), 1);
        }
        scheduler.check_blocks();
        scheduler.complete(step.step_no, 1, &outcomes).unwrap();
        scheduler.check_blocks();
    }
    (seen, found)
}

fn ranges(seen: &[Seen]) -> Vec<(u32, u32)> {
    seen.iter().map(|(range, ..)| *range).collect()
}

/// Where a step that keeps a checkpoint ends.
fn kept(seen: &[Seen]) -> Vec<u32> {
    let keeps = seen.iter().filter(|(.., keep)| !keep.is_empty());
    keeps.map(|((start, tokens), ..)| start + tokens).collect()
}

#[test]
fn prompts_and_answers_keep_checkpoints_at_block_ends() {
    let mut scheduler = scheduler(1000);
    let prompt: Vec<u32> = (0..21).collect();
    let (seen, _) = run(&mut scheduler, Admission::new(1, &prompt, 10), 0);
    assert_eq!(
        ranges(&seen)[..5],
        [(0, 8), (8, 8), (16, 4), (20, 1), (21, 1)]
    );
    assert_eq!(kept(&seen), [8, 16, 20, 24, 28]);
    // The one at 28 is the answer's last; that at 24 lasts, as every second block's.
    let states = |scheduler: &Scheduler| {
        let blocks = 0..100;
        blocks
            .filter(|&block| scheduler.block_state(block).is_some())
            .count()
    };
    assert_eq!(states(&scheduler), 5);
    // A fork after the first three blocks goes on after the second.
    let fork = [&prompt[..14], &[99; 8]].concat();
    let (seen, found) = run(&mut scheduler, Admission::new(2, &fork, 1), 0);
    assert_eq!(found, 8);
    assert_eq!(ranges(&seen), [(8, 8), (16, 4), (20, 2)]);
    assert_eq!(seen[0].1.len(), 1, "it goes on from there");
    assert!(seen[1..].iter().all(|(_, restore, _)| restore.is_empty()));
}

#[test]
fn half_a_load_is_of_no_use() {
    for came in 0..6 {
        let mut scheduler = scheduler(10);
        let prompt: Vec<u32> = (0..22).collect();
        let admission = Admission {
            stored: 20,
            ..Admission::new(1, &prompt, 1)
        };
        let (seen, found) = run(&mut scheduler, admission, came);
        let restored: Vec<_> = seen.iter().flat_map(|(_, restore, _)| restore).collect();
        if came == 5 {
            assert_eq!((found, restored.len()), (20, 1));
            assert_eq!(ranges(&seen), [(20, 2)]);
        } else {
            assert_eq!((found, restored.len()), (0, 0), "{came}");
            assert_eq!(seen[0].0.0, 0, "from the beginning");
        }
        let stats = scheduler.stats();
        assert_eq!(stats.cached_tokens + stats.prefill_tokens, 22);
        assert_eq!(stats.blocks.used, 0);
    }
}

#[test]
fn a_checkpoint_goes_with_its_block() {
    let mut scheduler = Scheduler::new(Config {
        checkpoints: 20,
        ..Config::new(1, 10, 4)
    });
    for id in 0..20 {
        let prompt: Vec<u32> = (0..30).map(|token| id * 100 + token).collect();
        run(&mut scheduler, Admission::new(id.into(), &prompt, 4), 0);
    }
}

#[test]
fn blocks_without_a_checkpoint_behind_them_are_missed_for_that() {
    let mut scheduler = scheduler(1000);
    let first: Vec<u32> = (0..20).collect();
    run(&mut scheduler, Admission::new(1, &first, 1), 0);
    assert_eq!(scheduler.stats().missed.new, 16);
    // Three blocks are there, and a checkpoint behind the second.
    let second: Vec<u32> = (0..12).chain(100..104).collect();
    let (_, found) = run(&mut scheduler, Admission::new(2, &second, 1), 0);
    assert_eq!(found, 8);
    let missed = scheduler.stats().missed;
    assert_eq!((missed.new, missed.state, missed.tail), (16, 4, 4 + 4));
}
