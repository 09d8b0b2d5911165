//! Checkpoints of running state: which block each of them stands behind, and which is given up for a new one.
//!
//! A model with running state can go on from a prefix only where a copy of its state was kept. A checkpoint belongs to an indexed
//! block, at whose end it was taken, and goes with it. There are fewer of them than blocks, so a new one takes the place of the one
//! that was not used for longest. Whoever goes on from one copies it at once, so none is ever held.

use std::collections::BTreeMap;

use crate::prefix::BlockId;

/// Number of a running state.
pub(crate) type StateId = u32;

#[derive(Debug, Clone)]
pub(crate) struct Checkpoints {
    free: Vec<StateId>,
    by_block: BTreeMap<BlockId, Checkpoint>,
    /// Blocks by when their checkpoint was last used.
    by_use: BTreeMap<u64, BlockId>,
    /// Counts uses.
    now: u64,
}

#[derive(Debug, Clone, Copy)]
struct Checkpoint {
    state: StateId,
    used: u64,
    /// Its sequence is about to leave it behind for one further on.
    passing: bool,
}

impl Checkpoints {
    /// So many, numbered from `first` on.
    pub(crate) fn new(first: u32, count: u32) -> Self {
        Self {
            free: (first..first + count).rev().collect(),
            by_block: BTreeMap::new(),
            by_use: BTreeMap::new(),
            now: 0,
        }
    }

    /// One to be filled: a free one, or that which was not used for longest. Only those that belong to a block are given up, and
    /// there are more than can be on their way to one.
    pub(crate) fn take(&mut self) -> StateId {
        if let Some(state) = self.free.pop() {
            return state;
        }
        let (_, block) = self
            .by_use
            .pop_first()
            .expect("there are more than steps fill at once");
        let checkpoint = self.by_block.remove(&block);
        checkpoint.expect("every use is of a block").state
    }

    /// Takes one back that was not filled.
    pub(crate) fn give_back(&mut self, state: StateId) {
        self.free.push(state);
    }

    /// A block has it now. Where it has an equal one already, this one is free again.
    pub(crate) fn attach(&mut self, block: BlockId, state: StateId, passing: bool) {
        if let Some(known) = self.by_block.get_mut(&block) {
            known.passing &= passing;
            self.free.push(state);
        } else {
            self.now += 1;
            let checkpoint = Checkpoint {
                state,
                used: self.now,
                passing,
            };
            self.by_block.insert(block, checkpoint);
            self.by_use.insert(self.now, block);
        }
    }

    /// The state at a block's end, about to be used.
    pub(crate) fn find(&mut self, block: BlockId) -> Option<StateId> {
        self.touch(block);
        Some(self.by_block.get(&block)?.state)
    }

    pub(crate) fn has(&self, block: BlockId) -> bool {
        self.by_block.contains_key(&block)
    }

    /// The state at a block's end, if it is there to stay.
    pub(crate) fn lasting(&self, block: BlockId) -> Option<StateId> {
        let checkpoint = self.by_block.get(&block)?;
        (!checkpoint.passing).then_some(checkpoint.state)
    }

    /// The block's content is gone, and with it the state.
    pub(crate) fn drop_of(&mut self, block: BlockId) {
        if let Some(checkpoint) = self.by_block.remove(&block) {
            self.by_use.remove(&checkpoint.used);
            self.free.push(checkpoint.state);
        }
    }

    /// There is one further on: frees a checkpoint that was waiting for that.
    pub(crate) fn pass(&mut self, block: BlockId) {
        if self.by_block.get(&block).is_some_and(|kept| kept.passing) {
            self.drop_of(block);
        }
    }

    /// There will be none further on: a checkpoint that was waiting for one stays. Whether there is such a one.
    pub(crate) fn settle(&mut self, block: BlockId) -> bool {
        let kept = self.by_block.get_mut(&block);
        kept.is_some_and(|kept| std::mem::take(&mut kept.passing))
    }

    fn touch(&mut self, block: BlockId) {
        if let Some(checkpoint) = self.by_block.get_mut(&block) {
            self.by_use.remove(&checkpoint.used);
            self.now += 1;
            checkpoint.used = self.now;
            self.by_use.insert(self.now, block);
        }
    }
}

#[cfg(test)]
impl Checkpoints {
    /// Every state is in one place at most, and in none only while it is on its way.
    pub(crate) fn check(&self, count: u32, on_the_way: usize) {
        let mut states: Vec<StateId> = self.free.clone();
        states.extend(self.by_block.values().map(|kept| kept.state));
        states.sort_unstable();
        states.dedup();
        assert_eq!(states.len() + on_the_way, count as usize);
        let by_use = self.by_use.iter().map(|(&used, &block)| (block, used));
        let mut by_use: Vec<_> = by_use.collect();
        by_use.sort_unstable();
        let by_block = self
            .by_block
            .iter()
            .map(|(&block, kept)| (block, kept.used));
        assert!(by_block.eq(by_use));
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockId> {
        self.by_block.keys().copied()
    }
}

#[cfg(test)]
mod tests;
