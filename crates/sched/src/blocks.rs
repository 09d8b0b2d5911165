//! KV blocks: who holds them, which are free, which are only cache.
//!
//! A block is *free* (nobody's, no content), *used* (held by one or more sequences, indexed or not) or *cached* (held by
//! nobody, still in the prefix index). Cached blocks are evicted least recently used first, those that are not full before
//! all others. A sequence that holds a block holds all blocks before it, and releases the last one first, so a child always
//! becomes cached before its parent and is evicted before it.
//!
//! The last block of a sequence that ends is seldom full. It is cached too, for the one sequence that goes on from there:
//! that one writes into it, so it takes it out of the index.

use std::collections::VecDeque;

use crate::checkpoints::{Checkpoints, StateId};
use crate::config::Config;
use crate::prefix::{BlockId, NONE, PrefixIndex};

#[derive(Debug, Clone)]
pub(crate) struct Blocks {
    holders: Vec<u32>,
    free: Vec<BlockId>,
    /// Full blocks.
    cached: CachedList,
    /// Blocks that are not full, the last of their sequences: each of them costs a block for less than it holds, and one
    /// sequence alone can use it, so they are evicted before all others.
    tails: CachedList,
    index: PrefixIndex,
    /// Keys of full blocks that were evicted, each at the place that its low bits name, so that later ones overwrite earlier
    /// ones and memory is bounded; 0 where there is none.
    evicted: Vec<u64>,
    /// What the store lacks; `None` without a store.
    unsaved: Option<Unsaved>,
    /// Of running state; `None` for a model that has none.
    pub(crate) checkpoints: Option<Checkpoints>,
}

/// Indexed blocks that the store lacks.
#[derive(Debug, Clone)]
struct Unsaved {
    /// Oldest first, each at most once; some may be evicted or saved by now.
    queue: VecDeque<BlockId>,
    /// By block: is in `queue`.
    queued: Vec<bool>,
    /// By block: its content came from the store.
    saved: Vec<bool>,
}

impl Unsaved {
    fn push(&mut self, block: BlockId) {
        self.saved[block as usize] = false;
        if !std::mem::replace(&mut self.queued[block as usize], true) {
            self.queue.push_back(block);
        }
    }

    fn pop(&mut self) -> Option<BlockId> {
        let block = self.queue.pop_front()?;
        self.queued[block as usize] = false;
        Some(block)
    }
}

impl Blocks {
    pub(crate) fn new(config: &Config) -> Self {
        let (blocks, block_tokens) = (config.blocks, config.block_tokens);
        let (save, checkpoints) = (config.save_blocks > 0, config.checkpoints);
        Self {
            checkpoints: (checkpoints > 0).then(|| Checkpoints::new(config.slots, checkpoints)),
            unsaved: save.then(|| Unsaved {
                queue: VecDeque::with_capacity(blocks as usize),
                queued: vec![false; blocks as usize],
                saved: vec![false; blocks as usize],
            }),
            holders: vec![0; blocks as usize],
            free: (0..blocks).rev().collect(),
            cached: CachedList::new(blocks),
            tails: CachedList::new(blocks),
            index: PrefixIndex::new(blocks, block_tokens),
            evicted: vec![0; (2 * blocks as usize).next_power_of_two()],
        }
    }

    pub(crate) fn total(&self) -> u32 {
        self.cached.nobody()
    }

    pub(crate) fn free(&self) -> u32 {
        // At most `total` entries.
        self.free.len() as u32
    }

    pub(crate) fn cached(&self) -> u32 {
        self.cached.len + self.tails.len
    }

    /// A block for one holder: a free one, or the least recently used cached one, a tail if there is any. Admission reserves every sequence's
    /// blocks, so running out is a bug.
    pub(crate) fn allocate(&mut self) -> BlockId {
        let block = self
            .free
            .pop()
            .or_else(|| self.evict())
            .expect("blocks are reserved at admission");
        self.holders[block as usize] = 1;
        block
    }

    /// The block that holds `tokens` after `parent`, with one more holder.
    pub(crate) fn adopt(&mut self, parent: BlockId, key: u64, tokens: &[u32]) -> Option<BlockId> {
        let block = self.index.find(parent, key, tokens)?;
        self.hold(block);
        Some(block)
    }

    /// Whether [`adopt`](Self::adopt) would succeed; gives the block.
    pub(crate) fn find(&self, parent: BlockId, key: u64, tokens: &[u32]) -> Option<BlockId> {
        self.index.find(parent, key, tokens)
    }

    /// Whether the block of this key was in the index, as far as that is remembered, and had to make room.
    pub(crate) fn was_evicted(&self, key: u64) -> bool {
        self.evicted[self.place(key)] == key
    }

    fn place(&self, key: u64) -> usize {
        // The low bits of a 64-bit key always fit.
        (key & (self.evicted.len() as u64 - 1)) as usize
    }

    /// Parent and tokens of an indexed block.
    pub(crate) fn content(&self, block: BlockId) -> Option<(Option<BlockId>, &[u32])> {
        self.index.content(block)
    }

    /// Sequences that hold a block.
    pub(crate) fn holders(&self, block: BlockId) -> u32 {
        self.holders[block as usize]
    }

    /// Enters a computed block into the index. When an equal one is there already, the caller gets that one in exchange.
    pub(crate) fn publish(
        &mut self,
        block: BlockId,
        parent: BlockId,
        key: u64,
        tokens: &[u32],
    ) -> BlockId {
        if let Some(equal) = self.index.find(parent, key, tokens) {
            self.hold(equal);
            self.release(block);
            return equal;
        }
        self.index.insert(block, parent, key, tokens);
        if let Some(unsaved) = &mut self.unsaved {
            unsaved.push(block);
        }
        block
    }

    /// Notes the salt of the sequence that published a block.
    pub(crate) fn set_salt(&mut self, block: BlockId, salt: u64) {
        self.index.set_salt(block, salt);
    }

    /// The salt of an indexed block.
    pub(crate) fn salt(&self, block: BlockId) -> u64 {
        self.index.salt(block)
    }

    /// Enters a block that is not full, whose only holder is about to release it.
    pub(crate) fn keep_tail(&mut self, block: BlockId, parent: BlockId, key: u64, tokens: &[u32]) {
        if self.index.find(parent, key, tokens).is_none() {
            self.index.insert(block, parent, key, tokens);
        }
    }

    /// Takes over the block that was kept so, to write on behind `tokens`.
    pub(crate) fn take_tail(
        &mut self,
        parent: BlockId,
        key: u64,
        tokens: &[u32],
    ) -> Option<BlockId> {
        let block = self.index.find(parent, key, tokens)?;
        self.hold(block);
        self.index.remove(block);
        Some(block)
    }

    /// The checkpoint behind an indexed block that a store is to have with it.
    pub(crate) fn lasting_state(&self, block: BlockId) -> Option<StateId> {
        self.checkpoints.as_ref()?.lasting(block)
    }

    /// A sequence ends with what may be its last checkpoint: it stays, and the store is offered it.
    pub(crate) fn settle(&mut self, block: BlockId) {
        if self
            .checkpoints
            .as_mut()
            .is_some_and(|kept| kept.settle(block))
        {
            self.offer_state(block);
        }
    }

    /// The store is offered an indexed block again, for the checkpoint that it has now.
    pub(crate) fn offer_state(&mut self, block: BlockId) {
        if let Some(unsaved) = &mut self.unsaved {
            unsaved.push(block);
        }
    }

    /// The content of a published block came from the store.
    pub(crate) fn mark_saved(&mut self, block: BlockId) {
        if let Some(unsaved) = &mut self.unsaved {
            unsaved.saved[block as usize] = true;
        }
    }

    /// Whether there is a block that the store lacks and that was not offered to it.
    pub(crate) fn has_unsaved(&mut self) -> bool {
        let Some(unsaved) = &mut self.unsaved else {
            return false;
        };
        // Some were evicted, and may hold other things by now, or came from the store.
        while let Some(&block) = unsaved.queue.front() {
            if !unsaved.saved[block as usize] && self.index.is_full(block) {
                return true;
            }
            unsaved.pop();
        }
        false
    }

    /// Takes at most `most` blocks that the store lacks, to be offered to it once. They keep their content until the next
    /// plan.
    pub(crate) fn take_unsaved(&mut self, most: u32) -> Vec<BlockId> {
        let mut taken = Vec::new();
        while taken.len() < most as usize && self.has_unsaved() {
            taken.extend(self.unsaved.as_mut().and_then(Unsaved::pop));
        }
        taken
    }

    /// Gives up one hold. A sequence releases its last block first.
    pub(crate) fn release(&mut self, block: BlockId) {
        let holders = &mut self.holders[block as usize];
        *holders -= 1;
        if *holders == 0 {
            if self.index.contains(block) {
                self.list_of(block).push(block);
            } else {
                self.free.push(block);
            }
        }
    }

    fn hold(&mut self, block: BlockId) {
        if self.holders[block as usize] == 0 {
            self.list_of(block).remove(block);
        }
        self.holders[block as usize] += 1;
    }

    /// Where a block of the index is kept that nobody holds.
    fn list_of(&mut self, block: BlockId) -> &mut CachedList {
        if self.index.is_full(block) {
            &mut self.cached
        } else {
            &mut self.tails
        }
    }

    fn evict(&mut self) -> Option<BlockId> {
        let block = self.tails.oldest().or_else(|| self.cached.oldest())?;
        self.list_of(block).remove(block);
        if self.index.is_full(block) {
            let key = self.index.key(block);
            let place = self.place(key);
            self.evicted[place] = key;
        }
        self.index.remove(block);
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.drop_of(block);
        }
        Some(block)
    }
}

/// Doubly linked list over block numbers, oldest first; the last entry is the list's own.
#[derive(Debug, Clone)]
struct CachedList {
    links: Vec<Link>,
    len: u32,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    previous: BlockId,
    next: BlockId,
}

impl CachedList {
    fn new(blocks: u32) -> Self {
        let own = Link {
            previous: blocks,
            next: blocks,
        };
        Self {
            links: vec![own; blocks as usize + 1],
            len: 0,
        }
    }

    /// The list's own entry, equal to the number of blocks.
    fn nobody(&self) -> BlockId {
        (self.links.len() - 1) as BlockId
    }

    fn oldest(&self) -> Option<BlockId> {
        let first = self.links[self.nobody() as usize].next;
        (first != self.nobody()).then_some(first)
    }

    fn push(&mut self, block: BlockId) {
        let next = self.nobody();
        let previous = self.links[next as usize].previous;
        self.links[block as usize] = Link { previous, next };
        self.links[previous as usize].next = block;
        self.links[next as usize].previous = block;
        self.len += 1;
    }

    fn remove(&mut self, block: BlockId) {
        let Link { previous, next } = self.links[block as usize];
        self.links[previous as usize].next = next;
        self.links[next as usize].previous = previous;
        self.len -= 1;
    }
}

#[cfg(test)]
impl CachedList {
    /// Oldest first.
    fn iter(&self) -> impl Iterator<Item = BlockId> {
        let next = |&block: &BlockId| Some(self.links[block as usize].next);
        let nobody = self.nobody();
        std::iter::successors(next(&nobody), next).take_while(move |&block| block != nobody)
    }
}

/// The parent of block `k` in a sequence's table.
pub(crate) fn parent(table: &[BlockId], k: usize) -> BlockId {
    k.checked_sub(1).map_or(NONE, |before| table[before])
}

#[cfg(test)]
impl Blocks {
    /// Keys of the cached blocks, in the order in which they would be evicted.
    pub(crate) fn cached_keys(&self) -> Vec<u64> {
        self.cached_blocks()
            .map(|block| self.index.key(block))
            .collect()
    }

    /// Keys of the blocks that the store lacks, oldest first.
    pub(crate) fn unsaved_keys(&self) -> Vec<u64> {
        let Some(unsaved) = &self.unsaved else {
            return Vec::new();
        };
        let lacks =
            |&&block: &&BlockId| !unsaved.saved[block as usize] && self.index.is_full(block);
        unsaved
            .queue
            .iter()
            .filter(lacks)
            .map(|&block| self.index.key(block))
            .collect()
    }

    fn cached_blocks(&self) -> impl Iterator<Item = BlockId> {
        self.tails.iter().chain(self.cached.iter())
    }

    /// Every block is in exactly one place, and holders are counted right: `tables` are all block tables.
    pub(crate) fn check(&self, tables: &[&[BlockId]]) {
        let mut holders = vec![0; self.holders.len()];
        for &block in tables.iter().copied().flatten() {
            holders[block as usize] += 1;
        }
        assert_eq!(holders, self.holders);
        let mut places: Vec<BlockId> = self.free.clone();
        places.extend(self.cached_blocks());
        places.extend((0..self.total()).filter(|&block| holders[block as usize] > 0));
        places.sort_unstable();
        assert!(places.into_iter().eq(0..self.total()));
        assert!(self.free.iter().all(|&block| !self.index.contains(block)));
        assert_eq!(self.cached_blocks().count(), self.cached() as usize);
        let mut gone = std::collections::BTreeSet::new();
        for block in self.cached_blocks() {
            assert!(self.index.contains(block));
            // Its parent is held, or cached and evicted later.
            assert!(
                !gone.contains(&self.index.parent(block)),
                "a parent would be evicted before its child"
            );
            gone.insert(block);
        }
    }
}

#[cfg(test)]
mod tests;
