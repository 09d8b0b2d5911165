//! Blocks are given, shared, published and evicted; the counts always add up.

use super::*;
use crate::prefix::{chain_key, root_key};

/// Computes and publishes the blocks of `tokens`, one token each.
fn publish(blocks: &mut Blocks, tokens: &[u32]) -> Vec<BlockId> {
    let mut table = Vec::new();
    let mut key = root_key(0);
    for (k, token) in tokens.iter().enumerate() {
        key = chain_key(key, &[*token]);
        let block = blocks.allocate();
        table.push(block);
        table[k] = blocks.publish(block, parent(&table, k), key, &[*token]);
    }
    table
}

fn release(blocks: &mut Blocks, mut table: Vec<BlockId>) {
    while let Some(block) = table.pop() {
        blocks.release(block);
    }
}

#[test]
fn equal_blocks_become_one() {
    let mut blocks = Blocks::new(&Config::new(1, 8, 1));
    let first = publish(&mut blocks, &[1, 2, 3]);
    let second = publish(&mut blocks, &[1, 2, 4]);
    assert_eq!(first[..2], second[..2]);
    assert_ne!(first[2], second[2]);
    blocks.check(&[&first, &second]);
    assert_eq!((blocks.free(), blocks.cached()), (4, 0));
}

#[test]
fn the_least_recently_used_block_goes_first_and_children_before_parents() {
    let mut blocks = Blocks::new(&Config::new(1, 6, 1));
    let old = publish(&mut blocks, &[1, 2, 3]);
    release(&mut blocks, old.clone());
    let new = publish(&mut blocks, &[7, 8]);
    release(&mut blocks, new);
    // Uses 1 again.
    let hit = blocks
        .adopt(NONE, chain_key(root_key(0), &[1]), &[1])
        .unwrap();
    assert_eq!(hit, old[0]);
    blocks.release(hit);
    blocks.check(&[]);
    // A free one, then 3, 2, 8, 7 and last 1.
    let key = |tokens: &[u32]| {
        tokens
            .iter()
            .fold(root_key(0), |key, &token| chain_key(key, &[token]))
    };
    let expected =
        [vec![1, 2, 3], vec![1, 2], vec![7, 8], vec![7], vec![1]].map(|tokens| key(&tokens));
    assert_eq!(blocks.cached_keys(), expected);
    let mut held = vec![blocks.allocate()];
    for left in (0..5).rev() {
        held.push(blocks.allocate());
        assert_eq!(blocks.cached(), left);
        assert_eq!(blocks.cached_keys(), expected[5 - left as usize..]);
    }
    assert_eq!(blocks.free(), 0);
    assert!(
        blocks.find(NONE, key(&[1]), &[1]).is_none(),
        "evicted blocks are not found"
    );
    for block in held {
        blocks.release(block);
    }
    assert_eq!(blocks.free(), 6, "never published, so free at once");
}

#[test]
fn a_held_block_is_never_evicted() {
    let mut blocks = Blocks::new(&Config::new(1, 3, 1));
    let table = publish(&mut blocks, &[1, 2]);
    release(&mut blocks, table);
    let hit = blocks
        .adopt(NONE, chain_key(root_key(0), &[1]), &[1])
        .unwrap();
    let others = [blocks.allocate(), blocks.allocate()];
    assert!(!others.contains(&hit));
    blocks.check(&[&[hit], &others]);
}

#[test]
fn blocks_that_are_not_full_go_before_older_full_ones() {
    let mut blocks = Blocks::new(&Config::new(1, 4, 2));
    let key = |tokens: &[u32]| chain_key(root_key(0), tokens);
    let full = blocks.allocate();
    let full = blocks.publish(full, NONE, key(&[1, 2]), &[1, 2]);
    blocks.release(full);
    for token in [7, 8] {
        let tail = blocks.allocate();
        blocks.keep_tail(tail, NONE, key(&[token]), &[token]);
        blocks.release(tail);
    }
    blocks.check(&[]);
    let expected = [vec![7], vec![8], vec![1, 2]].map(|tokens| key(&tokens));
    assert_eq!(blocks.cached_keys(), expected);
    // A free one and the two that are not full are given away first.
    let held: Vec<BlockId> = (0..3).map(|_| blocks.allocate()).collect();
    assert_eq!(blocks.cached_keys(), [key(&[1, 2])]);
    blocks.check(&[&held]);
}
