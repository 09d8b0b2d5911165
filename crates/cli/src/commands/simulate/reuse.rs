//! What prompts could take over from those before them: the bounds that a prefix cache is measured by.
//!
//! Prompts come one after the other here, each finished before the next. Where they overlap, a server can have less than this:
//! what is being computed cannot be taken over yet.

use std::collections::{BTreeMap, HashMap};

use super::BLOCK_TOKENS;
use crate::trace::Request;

/// Prompt tokens that need not be computed, all requests together.
pub(super) struct Reuse {
    /// Everything that was computed before is kept.
    pub(super) unlimited: u64,
    /// `blocks` blocks are kept, those used last.
    pub(super) least_recently_used: u64,
}

/// Both bounds for a trace. The last token of a prompt is always computed: its logits are wanted.
pub(super) fn bounds(requests: &[Request], blocks: u32) -> Reuse {
    let mut chains = Chains::default();
    let (mut all, mut recent) = (Kept::new(u64::MAX), Kept::new(u64::from(blocks)));
    let mut reuse = Reuse {
        unlimited: 0,
        least_recently_used: 0,
    };
    for request in requests {
        let tokens = request.prompt.tokens();
        let mut chain = chains.of(&tokens);
        let block = u64::from(BLOCK_TOKENS);
        let usable = (tokens.len() - 1) as u64 / block;
        // An answer is kept too, but for its last token, which is not computed; no trace says which prompts contain it.
        let all_tokens = tokens.len() as u64 + u64::from(request.answer);
        let whole = (all_tokens - 1) / block;
        chain.extend((chain.len() as u64..whole).map(|_| chains.unique()));
        let others = all_tokens.div_ceil(block) - whole;
        reuse.unlimited += all.take(&chain, others).min(usable);
        reuse.least_recently_used += recent.take(&chain, others).min(usable);
    }
    reuse.unlimited *= u64::from(BLOCK_TOKENS);
    reuse.least_recently_used *= u64::from(BLOCK_TOKENS);
    reuse
}

/// Numbers for blocks: the same for the same tokens after the same blocks.
#[derive(Default)]
struct Chains {
    known: HashMap<(u64, Vec<u32>), u64>,
    last: u64,
}

impl Chains {
    /// Those of a prompt's whole blocks.
    fn of(&mut self, tokens: &[u32]) -> Vec<u64> {
        let mut before = 0;
        let blocks = tokens.chunks_exact(BLOCK_TOKENS as usize);
        blocks
            .map(|block| {
                let new = self.last + 1;
                before = *self.known.entry((before, block.to_vec())).or_insert(new);
                self.last = self.last.max(before);
                before
            })
            .collect()
    }

    /// One that nothing else has.
    fn unique(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// Blocks by when they were used last.
struct Kept {
    most: u64,
    now: u64,
    by_block: HashMap<u64, u64>,
    by_time: BTreeMap<u64, u64>,
}

impl Kept {
    fn new(most: u64) -> Self {
        Self {
            most,
            now: 0,
            by_block: HashMap::new(),
            by_time: BTreeMap::new(),
        }
    }

    /// How many of the chain's first blocks are there; then all are, as far as there is room beside `others`, which the rest
    /// of the request needs while it lasts. The first are the last to go.
    fn take(&mut self, chain: &[u64], others: u64) -> u64 {
        let there = chain
            .iter()
            .take_while(|&block| self.by_block.contains_key(block));
        let there = there.count() as u64;
        for &block in chain.iter().rev() {
            self.now += 1;
            if let Some(before) = self.by_block.insert(block, self.now) {
                self.by_time.remove(&before);
            }
            self.by_time.insert(self.now, block);
        }
        while self.by_block.len() as u64 > self.most.saturating_sub(others)
            && let Some((_, block)) = self.by_time.pop_first()
        {
            self.by_block.remove(&block);
        }
        there
    }
}

#[cfg(test)]
mod tests;
