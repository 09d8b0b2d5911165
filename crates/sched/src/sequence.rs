//! One sequence: its tokens, its blocks and what it is waiting for.

use crate::blocks::{Blocks, parent};
use crate::prefix::{BlockId, chain_key, root_key};
use crate::stateful::Running;
use crate::stats::Miss;
use crate::step::{Admission, SeqId};
use crate::tenants::Flow;

/// Where a resident sequence stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// Prompt not fully computed.
    Prefill,
    /// Its newest token waits to be computed.
    Ready,
    /// Decoding, but its next row cannot be formed yet. `sampling`: the newest token is not known.
    Busy { sampling: bool },
}

#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    pub(crate) id: SeqId,
    /// Arrival number: the tie-break everywhere, never changed.
    pub(crate) arrival: u64,
    pub(crate) flow: Flow,
    pub(crate) prompt: u32,
    pub(crate) max_new: u32,
    pub(crate) phase: Phase,
    /// Its client does not read: leaves every plan, keeps its blocks.
    pub(crate) parked: bool,
    /// A row of it is in the step in flight.
    pub(crate) in_step: bool,
    /// Its blocks are being loaded.
    pub(crate) loading: bool,
    /// Cancelled while `in_step` or `loading`: ends when that does.
    pub(crate) draining: bool,
    /// Prompt and generated tokens.
    pub(crate) tokens: Vec<u32>,
    /// Tokens whose KV is in `blocks`.
    pub(crate) computed: u32,
    /// Prompt tokens that were found in the prefix index or loaded.
    pub(crate) cached: u32,
    /// Leading prompt tokens that the store has, in whole blocks.
    pub(crate) stored: u32,
    /// Blocks for `computed` tokens and those of the step in flight.
    pub(crate) blocks: Vec<BlockId>,
    /// Chained keys of the full blocks of `tokens`; empty when it does not use the prefix index.
    pub(crate) keys: Vec<u64>,
    pub(crate) cache: bool,
    pub(crate) salt: u64,
    /// It is there to bring blocks into memory for others: see [`Admission::warm`].
    pub(crate) warm: bool,
    /// What was the matter with the first block that it did not find when it got its slot.
    pub(crate) miss: Miss,
    pub(crate) running: Running,
}

impl Sequence {
    pub(crate) fn new(request: &Admission<'_>, arrival: u64, block_tokens: u32) -> Self {
        // Room for everything it can ever need, so that no step allocates memory for it.
        let most = request.prompt.len() + request.max_new as usize;
        let blocks = most.div_ceil(block_tokens as usize);
        let mut sequence = Self {
            id: request.id,
            arrival,
            flow: (request.tenant, request.priority),
            // The caller has checked that the prompt fits the blocks.
            prompt: request.prompt.len() as u32,
            max_new: request.max_new,
            phase: Phase::Prefill,
            parked: false,
            in_step: false,
            loading: false,
            draining: false,
            tokens: Vec::with_capacity(most),
            computed: 0,
            cached: 0,
            stored: 0,
            blocks: Vec::with_capacity(blocks),
            keys: Vec::with_capacity(blocks),
            cache: request.cache,
            salt: request.salt,
            warm: request.warm,
            miss: Miss::default(),
            running: Running::default(),
        };
        sequence.tokens.extend_from_slice(request.prompt);
        sequence.extend_keys(block_tokens);
        let adoptable = sequence.adoptable(block_tokens) as u32;
        sequence.stored = (request.stored / block_tokens).min(adoptable) * block_tokens;
        sequence
    }

    /// Blocks that it could load now: it stands at a block's start and the store has more.
    pub(crate) fn loadable(&self, block_tokens: u32) -> u32 {
        if !self.computed.is_multiple_of(block_tokens) {
            return 0;
        }
        self.stored.saturating_sub(self.computed) / block_tokens
    }

    /// Ends a load of `asked` blocks of which `done` came. What is missing it computes.
    pub(crate) fn loaded(&mut self, asked: u32, done: u32, pool: &mut Blocks, block_tokens: u32) {
        self.loading = false;
        let start = (self.computed / block_tokens) as usize;
        for _ in done..asked {
            let block = self.blocks.pop().expect("a load has its blocks");
            pool.release(block);
        }
        if done < asked {
            self.stored = 0;
        }
        self.advance(done * block_tokens, pool, block_tokens);
        self.cached += done * block_tokens;
        for &block in &self.blocks[start..] {
            pool.mark_saved(block);
        }
    }

    pub(crate) fn generated(&self) -> u32 {
        self.tokens.len() as u32 - self.prompt
    }

    /// Prompt tokens still to compute.
    pub(crate) fn remaining(&self) -> u32 {
        self.prompt.saturating_sub(self.computed)
    }

    /// It has prompt tokens to compute and may be in a plan.
    pub(crate) fn is_prompt(&self) -> bool {
        self.phase == Phase::Prefill && !self.parked
    }

    /// A decode row of it can be in the next step.
    pub(crate) fn runs_next(&self) -> bool {
        self.phase == Phase::Ready && !self.parked
    }

    /// Blocks that prompt and answer can need at most.
    pub(crate) fn needed_blocks(&self, block_tokens: u32) -> u32 {
        let tokens = u64::from(self.prompt) + u64::from(self.max_new);
        // At most the number of blocks, as checked on arrival.
        tokens.div_ceil(u64::from(block_tokens)) as u32
    }

    /// Prompt tokens that could be taken from the prefix index now.
    pub(crate) fn cached_prefix(&self, pool: &Blocks, block_tokens: u32) -> u32 {
        self.reach(pool, block_tokens) as u32 * block_tokens
    }

    /// At a block boundary, takes over the blocks that hold its next tokens; when there are no more, what is kept of a block
    /// that goes on as it does.
    pub(crate) fn adopt(&mut self, pool: &mut Blocks, block_tokens: u32) {
        if !self.computed.is_multiple_of(block_tokens) {
            return;
        }
        if pool.checkpoints.is_some() {
            self.adopt_to_checkpoint(pool, block_tokens);
            return;
        }
        self.adopt_whole(self.adoptable(block_tokens), pool, block_tokens);
        if self.cache && self.loadable(block_tokens) == 0 {
            self.adopt_tail(pool, block_tokens);
        }
    }

    fn adopt_tail(&mut self, pool: &mut Blocks, block_tokens: u32) {
        let (start, k) = (self.computed as usize, self.blocks.len());
        let room = self.prompt - self.computed;
        if room == 1 {
            return;
        }
        for count in (1..=room.min(block_tokens - 1)).rev() {
            let tokens = &self.tokens[start..start + count as usize];
            let (before, key) = (parent(&self.blocks, k), self.tail_key(k, tokens));
            if let Some(block) = pool.take_tail(before, key, tokens) {
                self.blocks.push(block);
                // The prompt's last token is always computed.
                self.computed += count.min(room - 1);
                self.cached += count.min(room - 1);
                return;
            }
        }
    }

    /// Key of block `k` when it holds no more than these tokens.
    fn tail_key(&self, k: usize, tokens: &[u32]) -> u64 {
        let before = k.checked_sub(1).map(|before| self.keys[before]);
        chain_key(before.unwrap_or_else(|| root_key(self.salt)), tokens)
    }

    /// Takes over indexed blocks before the `end`-th, as far as there are any.
    pub(crate) fn adopt_whole(&mut self, end: usize, pool: &mut Blocks, block_tokens: u32) {
        for k in (self.computed / block_tokens) as usize..end {
            let (before, key) = (parent(&self.blocks, k), self.keys[k]);
            let Some(block) = pool.adopt(before, key, self.block(k, block_tokens)) else {
                return;
            };
            self.blocks.push(block);
            self.computed += block_tokens;
            self.cached += block_tokens;
        }
    }

    /// Key of the block after whose end others could go on from what it computes next, or it from what they do.
    pub(crate) fn next_key(&self, block_tokens: u32, stretch: Option<u32>) -> Option<u64> {
        let next = stretch.map_or(0, |stretch| stretch - 1);
        let k = ((self.computed + next) / block_tokens) as usize;
        (k < self.adoptable(block_tokens)).then(|| self.keys[k])
    }

    /// Allocates blocks for the next `tokens` tokens.
    pub(crate) fn grow(&mut self, tokens: u32, pool: &mut Blocks, block_tokens: u32) {
        let blocks = (self.computed + tokens).div_ceil(block_tokens) as usize;
        while self.blocks.len() < blocks {
            self.blocks.push(pool.allocate());
        }
    }

    /// Records `tokens` more computed tokens and offers the blocks they filled to others.
    pub(crate) fn advance(&mut self, tokens: u32, pool: &mut Blocks, block_tokens: u32) {
        let before = self.computed / block_tokens;
        self.computed += tokens;
        if !self.cache {
            return;
        }
        self.extend_keys(block_tokens);
        for k in before as usize..(self.computed / block_tokens) as usize {
            let before = parent(&self.blocks, k);
            self.blocks[k] = pool.publish(
                self.blocks[k],
                before,
                self.keys[k],
                self.block(k, block_tokens),
            );
            pool.set_salt(self.blocks[k], self.salt);
        }
    }

    /// Gives all blocks back, the last one first. One that is not full is kept for whoever goes on from there.
    pub(crate) fn release(&mut self, pool: &mut Blocks, block_tokens: u32) {
        let (k, count) = (self.computed / block_tokens, self.computed % block_tokens);
        self.settle(pool);
        if self.cache && count > 0 && pool.checkpoints.is_none() {
            let (k, end) = (k as usize, self.computed as usize);
            let tokens = &self.tokens[end - count as usize..end];
            let (before, key) = (parent(&self.blocks, k), self.tail_key(k, tokens));
            pool.keep_tail(self.blocks[k], before, key, tokens);
        }
        while let Some(block) = self.blocks.pop() {
            pool.release(block);
        }
    }

    /// Number of leading prompt blocks that may be taken from the index: the prompt's last token is always computed,
    /// since its logits are needed.
    pub(crate) fn adoptable(&self, block_tokens: u32) -> usize {
        if self.cache {
            ((self.prompt - 1) / block_tokens) as usize
        } else {
            0
        }
    }

    pub(crate) fn block(&self, k: usize, block_tokens: u32) -> &[u32] {
        let start = k * block_tokens as usize;
        &self.tokens[start..start + block_tokens as usize]
    }

    fn extend_keys(&mut self, block_tokens: u32) {
        if !self.cache {
            return;
        }
        for k in self.keys.len()..self.tokens.len() / block_tokens as usize {
            let before = self.keys.last().copied();
            let before = before.unwrap_or_else(|| root_key(self.salt));
            let key = chain_key(before, self.block(k, block_tokens));
            self.keys.push(key);
        }
    }
}
