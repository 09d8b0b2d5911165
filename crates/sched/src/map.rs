//! A picture of the prefix index: which prefixes memory holds, and where they part.
//!
//! Blocks that follow each other, have no other child and are held by as many sequences are one run, so that a conversation is a handful
//! of runs and not thousands of blocks. Made on demand, in time and memory linear in the number of blocks.

use std::collections::VecDeque;

use crate::blocks::Blocks;
use crate::prefix::{BlockId, NONE};

/// Blocks of the prefix index that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixRun {
    /// The run that it continues, by its place in the list; always an earlier one. `None` at the beginning of a prompt.
    pub parent: Option<u32>,
    /// Blocks, at least 1.
    pub blocks: u32,
    /// Tokens that they hold: fewer than they could where the last one is not full.
    pub tokens: u32,
    /// Sequences that hold each of them now; 0 is cache.
    pub holders: u32,
    /// The salt of the sequences that share it.
    pub salt: u64,
}

/// What the prefix index holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrefixMap {
    /// Runs, parents first: those near the beginning of prompts before those that are deep in them.
    pub runs: Vec<PrefixRun>,
    /// The tokens of the listed runs, one run after the other.
    pub tokens: Vec<u32>,
    /// Runs that are not listed, since there were too many.
    pub left_out: u32,
}

impl PrefixMap {
    /// At most `most` runs of the index.
    pub(crate) fn new(blocks: &Blocks, most: usize) -> Self {
        let children = Children::of(blocks);
        let mut map = Self::default();
        // First blocks of runs, with the place of the run before.
        let mut next: VecDeque<(BlockId, Option<u32>)> =
            children.roots().map(|root| (root, None)).collect();
        while let Some((first, parent)) = next.pop_front() {
            if map.runs.len() == most {
                map.left_out += 1;
                continue;
            }
            let (run, last) = map.take_run(first, parent, blocks, &children);
            // Fewer than there are blocks.
            let place = map.runs.len() as u32;
            map.runs.push(run);
            next.extend(children.of_block(last).map(|child| (child, Some(place))));
        }
        map
    }

    /// The run that begins with a block, whose tokens it adds, and its last block.
    fn take_run(
        &mut self,
        first: BlockId,
        parent: Option<u32>,
        blocks: &Blocks,
        children: &Children,
    ) -> (PrefixRun, BlockId) {
        let mut run = PrefixRun {
            parent,
            blocks: 0,
            tokens: 0,
            holders: blocks.holders(first),
            salt: blocks.salt(first),
        };
        let mut block = first;
        loop {
            let (_, tokens) = blocks.content(block).expect("runs are of indexed blocks");
            self.tokens.extend_from_slice(tokens);
            run.blocks += 1;
            // At most a block's.
            run.tokens += tokens.len() as u32;
            let mut after = children.of_block(block);
            match (after.next(), after.next()) {
                (Some(only), None) if blocks.holders(only) == run.holders => block = only,
                _ => return (run, block),
            }
        }
    }
}

/// The blocks that continue each block, as lists in two arrays; what continues none is in the list of a last place.
struct Children {
    first: Vec<BlockId>,
    next: Vec<BlockId>,
}

impl Children {
    fn of(blocks: &Blocks) -> Self {
        let total = blocks.total();
        let mut children = Self {
            first: vec![NONE; total as usize + 1],
            next: vec![NONE; total as usize],
        };
        for block in (0..total).rev() {
            let Some((parent, _)) = blocks.content(block) else {
                continue;
            };
            let list = &mut children.first[parent.unwrap_or(total) as usize];
            children.next[block as usize] = std::mem::replace(list, block);
        }
        children
    }

    fn roots(&self) -> impl Iterator<Item = BlockId> {
        self.list(self.next.len())
    }

    fn of_block(&self, block: BlockId) -> impl Iterator<Item = BlockId> {
        self.list(block as usize)
    }

    fn list(&self, place: usize) -> impl Iterator<Item = BlockId> {
        let some = |block: BlockId| (block != NONE).then_some(block);
        std::iter::successors(some(self.first[place]), move |&block| {
            some(self.next[block as usize])
        })
    }
}

#[cfg(test)]
mod tests;
