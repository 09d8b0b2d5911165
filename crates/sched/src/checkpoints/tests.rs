//! Which checkpoint gives way, and when one goes with its block.

use super::*;

fn full() -> Checkpoints {
    let mut checkpoints = Checkpoints::new(10, 4);
    for block in 0..4 {
        let state = checkpoints.take();
        assert_eq!(state, 10 + block);
        checkpoints.attach(block, state, false);
    }
    checkpoints
}

#[test]
fn the_one_that_was_not_used_for_longest_gives_way() {
    let mut checkpoints = full();
    assert_eq!(checkpoints.find(0), Some(10));
    assert_eq!(checkpoints.take(), 11);
    assert!(!checkpoints.has(1) && checkpoints.has(0));
    checkpoints.check(4, 1);
    checkpoints.give_back(11);
    assert_eq!(checkpoints.take(), 11, "nothing else is lost for it");
    checkpoints.check(4, 1);
}

#[test]
fn one_goes_with_its_block_and_an_equal_one_is_not_kept_twice() {
    let mut checkpoints = full();
    checkpoints.drop_of(2);
    checkpoints.drop_of(7);
    checkpoints.check(4, 0);
    let state = checkpoints.take();
    assert_eq!(state, 12);
    checkpoints.attach(3, state, true);
    assert_eq!(checkpoints.lasting(3), Some(13));
    checkpoints.check(4, 0);
}

#[test]
fn one_that_waits_for_the_next_goes_with_it_or_stays_at_the_end() {
    let mut checkpoints = Checkpoints::new(0, 4);
    for block in 0..2 {
        let state = checkpoints.take();
        checkpoints.attach(block, state, true);
        assert_eq!(checkpoints.lasting(block), None);
    }
    checkpoints.pass(0);
    assert!(!checkpoints.has(0));
    assert!(checkpoints.settle(1) && !checkpoints.settle(1) && !checkpoints.settle(0));
    assert_eq!(checkpoints.lasting(1), Some(1));
    checkpoints.pass(1);
    assert!(checkpoints.has(1), "it was to stay");
    checkpoints.check(4, 0);
}
