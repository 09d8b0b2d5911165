//! What a sequence of a model with running state does beside the others: where it keeps checkpoints, and what it goes on from.
//!
//! Its state is at the end of what it has computed, and nowhere else. So it takes over indexed blocks only up to one with a
//! checkpoint; a load is of use only when its last block has come, with the state behind it; and a block that is not full is left to
//! nobody, since there is no checkpoint within blocks.

use crate::blocks::{Blocks, parent};
use crate::checkpoints::StateId;
use crate::config::Config;
use crate::prefix::{BlockId, NONE};
use crate::sequence::Sequence;
use crate::stats::Miss;

/// What a sequence does with its running state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Running {
    /// What it goes on from.
    restore: Option<StateId>,
    /// The checkpoint that the step in flight fills, and whether a later one replaces it.
    keeping: Option<(StateId, bool)>,
    /// The block with its latest checkpoint, if the next one replaces that.
    latest: Option<BlockId>,
    /// Some blocks are loaded, but not the state behind the last: the tokens that its own state is of.
    half_loaded: Option<u32>,
}

impl Sequence {
    /// Blocks that it would have if it took over from the prefix index what it could, at a block's end. Of one that waits in the queue,
    /// those are the blocks of its prompt that need not be computed.
    pub(crate) fn reach(&self, pool: &Blocks, block_tokens: u32) -> usize {
        let start = self.blocks.len();
        let mut before = parent(&self.blocks, start);
        let mut reach = start;
        for k in start..self.adoptable(block_tokens) {
            match pool.find(before, self.keys[k], self.block(k, block_tokens)) {
                Some(block) => before = block,
                None => break,
            }
            let checkpoints = pool.checkpoints.as_ref();
            if checkpoints.is_none_or(|checkpoints| checkpoints.has(before)) {
                reach = k + 1;
            }
        }
        reach
    }

    /// What is the matter with the first block that it does not find.
    pub(crate) fn missing(&self, pool: &Blocks, block_tokens: u32) -> Miss {
        let mut before = NONE;
        let end = self.adoptable(block_tokens);
        for k in 0..end {
            match pool.find(before, self.keys[k], self.block(k, block_tokens)) {
                Some(block) => before = block,
                None if k > self.reach(pool, block_tokens) => return Miss::State,
                None if pool.was_evicted(self.keys[k]) => return Miss::Evicted,
                None => return Miss::New,
            }
        }
        if pool.checkpoints.is_some() {
            Miss::State
        } else {
            Miss::New
        }
    }

    /// Takes over indexed blocks up to the last one with a checkpoint, if that is further than it has come.
    pub(crate) fn adopt_to_checkpoint(&mut self, pool: &mut Blocks, block_tokens: u32) {
        let end = self.reach(pool, block_tokens);
        if end <= self.blocks.len() {
            return;
        }
        self.adopt_whole(end, pool, block_tokens);
        let block = self.blocks[end - 1];
        self.running.restore = pool.checkpoints.as_mut().and_then(|kept| kept.find(block));
        self.running.half_loaded = None;
    }

    /// The state that it goes on from, when that has changed.
    pub(crate) fn take_restore(&mut self) -> Option<StateId> {
        self.running.restore.take()
    }

    /// Tokens to where its prompt's next checkpoint is due, if there is one.
    pub(crate) fn stretch(&self, config: &Config) -> Option<u32> {
        if config.checkpoints == 0 || !self.cache {
            return None;
        }
        let every = config.checkpoint_blocks.saturating_mul(config.block_tokens);
        let last = self.adoptable(config.block_tokens) as u32 * config.block_tokens;
        let next = (self.computed / every + 1).saturating_mul(every).min(last);
        next.checked_sub(self.computed).filter(|&tokens| tokens > 0)
    }

    /// The checkpoint to fill when the next `tokens` are computed, if one is due there.
    pub(crate) fn keep_after(
        &mut self,
        tokens: u32,
        pool: &mut Blocks,
        config: &Config,
    ) -> Option<StateId> {
        let checkpoints = pool.checkpoints.as_mut().filter(|_| self.cache)?;
        let (end, block_tokens) = (self.computed + tokens, config.block_tokens);
        if !end.is_multiple_of(block_tokens) {
            return None;
        }
        let blocks = end / block_tokens;
        let lasts = blocks.is_multiple_of(config.checkpoint_blocks)
            || blocks as usize == self.adoptable(block_tokens);
        if !lasts && end < self.prompt {
            return None;
        }
        let state = checkpoints.take();
        self.running.keeping = Some((state, !lasts));
        Some(state)
    }

    /// What [`keep_after`](Self::keep_after) gave is filled, or never will be.
    pub(crate) fn kept(&mut self, filled: bool, pool: &mut Blocks, block_tokens: u32) {
        let Some((state, passing)) = self.running.keeping.take() else {
            return;
        };
        let checkpoints = pool.checkpoints.as_mut().expect("it gave the state");
        if !filled {
            checkpoints.give_back(state);
            return;
        }
        let block = self.blocks[(self.computed / block_tokens) as usize - 1];
        checkpoints.attach(block, state, passing);
        let latest = self.running.latest.take();
        if let Some(before) = latest.filter(|&before| before != block) {
            checkpoints.pass(before);
        }
        if passing {
            self.running.latest = Some(block);
        } else {
            pool.offer_state(block);
        }
    }

    /// Whether the step in flight fills a checkpoint.
    #[cfg(test)]
    pub(crate) fn is_keeping(&self) -> bool {
        self.running.keeping.is_some()
    }

    /// It has begun to load, and can do nothing else before it ends.
    pub(crate) fn is_half_loaded(&self) -> bool {
        self.running.half_loaded.is_some()
    }

    /// Begins to load so many blocks: gives the checkpoint that is to come with them, if they are the last.
    pub(crate) fn load_state(
        &mut self,
        blocks: u32,
        pool: &mut Blocks,
        block_tokens: u32,
    ) -> Option<StateId> {
        let checkpoints = pool.checkpoints.as_mut()?;
        self.running.half_loaded.get_or_insert(self.computed);
        (self.computed + blocks * block_tokens == self.stored).then(|| checkpoints.take())
    }

    /// After [`loaded`](Self::loaded): all has come, the state too if it was to come with it; or something is missing, and it falls
    /// back to where its own state is.
    pub(crate) fn loaded_state(
        &mut self,
        state: Option<StateId>,
        whole: bool,
        pool: &mut Blocks,
        block_tokens: u32,
    ) {
        let checkpoints = pool.checkpoints.as_mut().expect("the model has states");
        if !whole {
            if let Some(state) = state {
                checkpoints.give_back(state);
            }
            let start = self.running.half_loaded.take();
            let start = start.expect("a load has begun");
            while self.blocks.len() > (start / block_tokens) as usize {
                let block = self.blocks.pop().expect("it has more");
                pool.release(block);
            }
            self.cached -= self.computed - start;
            self.computed = start;
            return;
        }
        if let Some(state) = state {
            let block = self.blocks[(self.computed / block_tokens) as usize - 1];
            checkpoints.attach(block, state, false);
            self.running.restore = checkpoints.find(block);
            self.running.half_loaded = None;
        }
    }

    /// It ends: its latest checkpoint stays.
    pub(crate) fn settle(&mut self, pool: &mut Blocks) {
        if let Some(block) = self.running.latest.take() {
            pool.settle(block);
        }
    }
}
