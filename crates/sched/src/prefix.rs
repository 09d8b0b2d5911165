//! The prefix index: which block holds the KV of which tokens after which prefix.
//!
//! Content-addressed over full blocks, and the last block of a sequence that has ended, full or not. A block's key chains its parent's key with its own tokens; a hit is believed only
//! after the parent block and the tokens compare equal, so equal keys of different contents cost time, never a wrong
//! reuse. Parents are identified by block number, which is sound because a parent outlives its children (see
//! [`Blocks`](crate::blocks::Blocks)).

/// Number of a KV block.
pub(crate) type BlockId = u32;

/// The parent of a sequence's first block, and "none" in links.
pub(crate) const NONE: BlockId = BlockId::MAX;

/// Key of an empty prefix. Equal tokens have equal keys only below equal roots, since every step is one-to-one in the key.
pub(crate) fn root_key(salt: u64) -> u64 {
    0x9e37_79b9_7f4a_7c15 ^ salt
}

/// Key of a block with these tokens after the prefix with key `parent`.
pub(crate) fn chain_key(parent: u64, tokens: &[u32]) -> u64 {
    let mut key = parent;
    for pair in tokens.chunks(2) {
        let low = u64::from(pair[0]);
        let high = pair.get(1).map_or(1 << 63, |&token| u64::from(token) << 32);
        key = (key ^ low ^ high).wrapping_mul(0xff51_afd7_ed55_8ccd);
        key ^= key >> 32;
    }
    key
}

#[derive(Debug, Clone)]
struct Node {
    key: u64,
    parent: BlockId,
    next: BlockId,
    /// What the sequences that it belongs to are salted with.
    salt: u64,
    /// Tokens it holds.
    count: u32,
    indexed: bool,
}

/// A hash table with chains, intrusive in per-block nodes: nothing is allocated after construction.
#[derive(Debug, Clone)]
pub(crate) struct PrefixIndex {
    block_tokens: usize,
    heads: Vec<BlockId>,
    nodes: Vec<Node>,
    /// `[blocks, block_tokens]`
    tokens: Vec<u32>,
}

impl PrefixIndex {
    pub(crate) fn new(blocks: u32, block_tokens: u32) -> Self {
        Self::with_buckets(
            blocks,
            block_tokens,
            (2 * blocks as usize).next_power_of_two(),
        )
    }

    /// Fewer buckets make more collisions.
    fn with_buckets(blocks: u32, block_tokens: u32, buckets: usize) -> Self {
        let node = Node {
            key: 0,
            parent: NONE,
            next: NONE,
            salt: 0,
            count: 0,
            indexed: false,
        };
        Self {
            block_tokens: block_tokens as usize,
            heads: vec![NONE; buckets],
            nodes: vec![node; blocks as usize],
            tokens: vec![0; blocks as usize * block_tokens as usize],
        }
    }

    /// The block that holds `tokens` after `parent`.
    pub(crate) fn find(&self, parent: BlockId, key: u64, tokens: &[u32]) -> Option<BlockId> {
        let mut block = self.heads[self.bucket(key)];
        while block != NONE {
            let node = &self.nodes[block as usize];
            if node.key == key && node.parent == parent && self.tokens(block) == tokens {
                return Some(block);
            }
            block = node.next;
        }
        None
    }

    /// Adds a block that [`find`](Self::find) does not find.
    pub(crate) fn insert(&mut self, block: BlockId, parent: BlockId, key: u64, tokens: &[u32]) {
        let bucket = self.bucket(key);
        let next = self.heads[bucket];
        debug_assert!(!self.contains(block));
        self.nodes[block as usize] = Node {
            key,
            parent,
            next,
            salt: 0,
            // At most a block's.
            count: tokens.len() as u32,
            indexed: true,
        };
        let start = block as usize * self.block_tokens;
        self.tokens[start..start + tokens.len()].copy_from_slice(tokens);
        self.heads[bucket] = block;
    }

    pub(crate) fn set_salt(&mut self, block: BlockId, salt: u64) {
        self.nodes[block as usize].salt = salt;
    }

    pub(crate) fn salt(&self, block: BlockId) -> u64 {
        self.nodes[block as usize].salt
    }

    pub(crate) fn remove(&mut self, block: BlockId) {
        let bucket = self.bucket(self.nodes[block as usize].key);
        let next = self.nodes[block as usize].next;
        self.nodes[block as usize].indexed = false;
        if self.heads[bucket] == block {
            self.heads[bucket] = next;
            return;
        }
        let mut before = self.heads[bucket] as usize;
        while self.nodes[before].next != block {
            before = self.nodes[before].next as usize;
        }
        self.nodes[before].next = next;
    }

    pub(crate) fn contains(&self, block: BlockId) -> bool {
        self.nodes[block as usize].indexed
    }

    /// Whether a block is indexed and holds as many tokens as it can.
    pub(crate) fn is_full(&self, block: BlockId) -> bool {
        let node = &self.nodes[block as usize];
        node.indexed && node.count as usize == self.block_tokens
    }

    /// The key that a block was inserted under.
    pub(crate) fn key(&self, block: BlockId) -> u64 {
        self.nodes[block as usize].key
    }

    /// Parent and tokens of an indexed block.
    pub(crate) fn content(&self, block: BlockId) -> Option<(Option<BlockId>, &[u32])> {
        let node = self.nodes.get(block as usize).filter(|node| node.indexed)?;
        Some((
            (node.parent != NONE).then_some(node.parent),
            self.tokens(block),
        ))
    }

    fn tokens(&self, block: BlockId) -> &[u32] {
        let start = block as usize * self.block_tokens;
        &self.tokens[start..start + self.nodes[block as usize].count as usize]
    }

    fn bucket(&self, key: u64) -> usize {
        // The low bits of a 64-bit key always fit.
        (key & (self.heads.len() as u64 - 1)) as usize
    }
}

#[cfg(test)]
impl PrefixIndex {
    pub(crate) fn parent(&self, block: BlockId) -> BlockId {
        self.nodes[block as usize].parent
    }
}

#[cfg(test)]
mod tests;
