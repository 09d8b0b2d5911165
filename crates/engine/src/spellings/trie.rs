//! Sequences of tokens that share their beginnings, in pieces as long as a KV block.

use andante_text::Spelling;
use rustc_hash::FxHashMap;

use super::Spelt;

/// Tokens of a piece, at most.
pub(crate) const PIECE: usize = 32;
/// Pieces that are kept: two million tokens, in some 20 MB.
const MOST_NODES: usize = 1 << 16;
/// Domain of the ids (BLAKE3's `derive_key` mode).
const DOMAIN: &str = "andante said 1 piece";

/// Names the tokens from the beginning of a sequence to the end of a piece, and their salt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PieceId(pub(crate) [u8; 16]);

/// Consecutive tokens of what was said, 32 of them unless the sequence ends with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// What it continues.
    pub(crate) parent: PieceId,
    /// Bit `i`: a prompt or an answer ended after `i + 1` of the tokens.
    pub(crate) ends: u32,
    pub(crate) tokens: Box<[u32]>,
}

impl PieceId {
    /// What first pieces continue: eight zero bytes and the salt.
    pub(crate) fn root(salt: u64) -> Self {
        let mut id = [0; 16];
        id[8..].copy_from_slice(&salt.to_le_bytes());
        Self(id)
    }

    /// Of a root.
    fn salt(self) -> u64 {
        let (_, salt) = self.0.split_last_chunk().expect("16 bytes");
        u64::from_le_bytes(*salt)
    }

    fn is_root(self) -> bool {
        self.0[..8] == [0; 8]
    }

    fn child(self, tokens: &[u32]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(DOMAIN);
        hasher.update(&self.0);
        for token in tokens {
            hasher.update(&token.to_le_bytes());
        }
        let mut id = [0; 16];
        hasher.finalize_xof().fill(&mut id);
        Self(id)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Trie {
    /// The first is nobody's, without tokens; its children are the roots of the salts, without tokens too.
    nodes: Vec<Node>,
    ids: FxHashMap<PieceId, usize>,
    most_nodes: usize,
    /// Counts calls.
    now: u64,
}

#[derive(Debug, Clone)]
struct Node {
    id: PieceId,
    parent: usize,
    tokens: Box<[u32]>,
    children: Vec<usize>,
    /// As in [`Piece`].
    ends: u32,
    /// When it was last wanted: never before its children were.
    used: u64,
    /// No store was told of it as it is.
    unwritten: bool,
}

/// After so many tokens of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    node: usize,
    tokens: usize,
}

/// The longest sequence that says how a prompt begins.
pub(super) struct Known<'p> {
    pub(super) place: Place,
    /// All its tokens.
    count: usize,
    pub(super) spelling: Spelling<'p>,
}

impl Default for Trie {
    fn default() -> Self {
        Self::new(MOST_NODES)
    }
}

impl Trie {
    pub(super) fn new(most_nodes: usize) -> Self {
        Self {
            nodes: vec![Node::new(PieceId([0xFF; 16]), 0, &[])],
            ids: FxHashMap::default(),
            most_nodes,
            now: 0,
        }
    }

    pub(super) fn insert(&mut self, said: &Spelt) {
        self.now += 1;
        let tokens: Vec<u32> = said.prompt.iter().chain(&said.answer).copied().collect();
        let ends = [said.prompt.len(), tokens.len()];
        let mut node = self.root(said.salt);
        self.nodes[node].used = self.now;
        for (index, piece) in tokens.chunks(PIECE).enumerate() {
            node = self.child(node, piece);
            let start = index * PIECE;
            let within = |end: &usize| (start + 1..=start + piece.len()).contains(end);
            let bits = ends.into_iter().filter(within);
            let bits = bits.fold(0, |bits, end| bits | 1 << (end - start - 1));
            self.nodes[node].end_at(bits);
            self.nodes[node].used = self.now;
        }
        self.bound();
    }

    /// Takes in pieces that were written once, each after the one that it continues.
    pub(super) fn add(&mut self, pieces: Vec<Piece>) {
        for Piece {
            parent,
            ends,
            tokens,
        } in pieces
        {
            let before = match self.ids.get(&parent) {
                Some(&before) => before,
                None if parent.is_root() => self.push(0, parent, &[]),
                // What it continues is forgotten.
                None => continue,
            };
            let id = parent.child(&tokens);
            let known = self.ids.get(&id).copied();
            let node = known.unwrap_or_else(|| self.push(before, id, &tokens));
            let node = &mut self.nodes[node];
            if known.is_some() && node.ends | ends == node.ends {
                // To be read again says nothing of when it was wanted.
                continue;
            }
            self.now += 1;
            node.used = self.now;
            node.ends |= ends;
            node.unwritten &= known.is_some();
        }
        for index in (1..self.nodes.len()).rev() {
            let Node { parent, used, .. } = self.nodes[index];
            self.nodes[parent].used = used.max(self.nodes[parent].used);
        }
        self.bound();
    }

    /// What was not given before, as it is now.
    pub(super) fn take_unwritten(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for index in 1..self.nodes.len() {
            if std::mem::take(&mut self.nodes[index].unwritten) {
                pieces.push(self.piece(index));
            }
        }
        pieces
    }

    /// The pieces that were wanted last, the latest at the end, each after the one that it continues.
    pub(super) fn latest(&self, most: usize) -> Vec<Piece> {
        let has_tokens = |&index: &usize| !self.nodes[index].tokens.is_empty();
        let mut order: Vec<usize> = (1..self.nodes.len()).filter(has_tokens).collect();
        // A piece was never wanted before those that continue it; of equals, it is the older node.
        order.sort_by_key(|&index| (std::cmp::Reverse(self.nodes[index].used), index));
        order.truncate(most);
        let kept = order.len();
        let mut given = vec![false; self.nodes.len()];
        let mut pieces = Vec::with_capacity(kept);
        for end in order.into_iter().rev() {
            let mut chain = Vec::new();
            let mut node = end;
            while !self.nodes[node].tokens.is_empty() && !given[node] {
                given[node] = true;
                chain.push(node);
                node = self.nodes[node].parent;
            }
            pieces.extend(chain.into_iter().rev().map(|index| self.piece(index)));
        }
        pieces
    }

    /// The sequences that nothing continues, the one that was wanted last first, with their salts.
    pub(super) fn last_said(&self, most: usize) -> Vec<(u64, Vec<u32>)> {
        let is_end = |&index: &usize| {
            self.nodes[index].children.is_empty() && !self.nodes[index].tokens.is_empty()
        };
        let mut ends: Vec<usize> = (1..self.nodes.len()).filter(is_end).collect();
        ends.sort_by_key(|&index| std::cmp::Reverse((self.nodes[index].used, index)));
        ends.truncate(most);
        let said = |node: usize| {
            let place = Place {
                node,
                tokens: self.nodes[node].tokens.len(),
            };
            (self.salt(node), self.tokens(place))
        };
        ends.into_iter().map(said).collect()
    }

    fn salt(&self, mut node: usize) -> u64 {
        while !self.nodes[node].tokens.is_empty() {
            node = self.nodes[node].parent;
        }
        self.nodes[node].id.salt()
    }

    fn piece(&self, index: usize) -> Piece {
        let node = &self.nodes[index];
        Piece {
            parent: self.nodes[node.parent].id,
            ends: node.ends,
            tokens: node.tokens.clone(),
        }
    }

    /// Where the sequences of a salt begin.
    fn root(&mut self, salt: u64) -> usize {
        let id = PieceId::root(salt);
        let known = self.ids.get(&id).copied();
        known.unwrap_or_else(|| self.push(0, id, &[]))
    }

    /// The child that begins with these tokens, made if need be. Only the last piece of a sequence is short.
    fn child(&mut self, parent: usize, piece: &[u32]) -> usize {
        let mut children = self.nodes[parent].children.iter().copied();
        if let Some(found) = children.find(|&child| self.nodes[child].tokens.starts_with(piece)) {
            return found;
        }
        let id = self.nodes[parent].id.child(piece);
        self.push(parent, id, piece)
    }

    fn push(&mut self, parent: usize, id: PieceId, tokens: &[u32]) -> usize {
        let new = self.nodes.len();
        self.nodes.push(Node::new(id, parent, tokens));
        self.nodes[parent].children.push(new);
        self.ids.insert(id, new);
        new
    }

    /// The most tokens from the root that spell the prompt as far as they go, and end where they may.
    pub(super) fn find<'p>(&mut self, salt: u64, start: Spelling<'p>) -> Option<Known<'p>> {
        let mut best: Option<Known<'p>> = None;
        let root = *self.ids.get(&PieceId::root(salt))?;
        let mut open = vec![(root, 0, start)];
        while let Some((parent, before, spelling)) = open.pop() {
            for &child in &self.nodes[parent].children {
                let mut spelling = spelling.clone();
                let node = &self.nodes[child];
                let mut taken = 0;
                while taken < node.tokens.len() && spelling.take(node.tokens[taken]) {
                    taken += 1;
                    let ends =
                        node.ends >> (taken - 1) & 1 == 1 && spelling.is_between_characters();
                    let count = before + taken;
                    if (ends || spelling.is_between_segments())
                        && best.as_ref().is_none_or(|best| best.count < count)
                    {
                        best = Some(Known {
                            place: Place {
                                node: child,
                                tokens: taken,
                            },
                            count,
                            spelling: spelling.clone(),
                        });
                    }
                }
                if taken == PIECE {
                    open.push((child, before + taken, spelling));
                }
            }
        }
        if let Some(best) = &best {
            self.now += 1;
            let mut node = best.place.node;
            while node != 0 {
                self.nodes[node].used = self.now;
                node = self.nodes[node].parent;
            }
        }
        best
    }

    /// All tokens from the root to a place.
    pub(super) fn tokens(&self, place: Place) -> Vec<u32> {
        let mut pieces = vec![&self.nodes[place.node].tokens[..place.tokens]];
        let mut node = self.nodes[place.node].parent;
        while node != 0 {
            pieces.push(&self.nodes[node].tokens);
            node = self.nodes[node].parent;
        }
        pieces.into_iter().rev().flatten().copied().collect()
    }

    /// Drops the quarter of the nodes that were not wanted for longest, when there are too many. With a node go its children:
    /// they were not wanted later.
    fn bound(&mut self) {
        if self.nodes.len() <= self.most_nodes {
            return;
        }
        let mut times: Vec<u64> = self.nodes[1..].iter().map(|node| node.used).collect();
        let quarter = times.len() / 4;
        let (_, &mut oldest, _) = times.select_nth_unstable(quarter);
        let mut moved = vec![0; self.nodes.len()];
        let nobody = &self.nodes[0];
        let mut kept = vec![Node::new(nobody.id, 0, &[])];
        self.ids.clear();
        for (index, node) in std::mem::take(&mut self.nodes)
            .into_iter()
            .enumerate()
            .skip(1)
        {
            if node.used > oldest {
                // A parent is older than its children, so it has its new place.
                let (parent, place) = (moved[node.parent], kept.len());
                moved[index] = place;
                kept[parent].children.push(place);
                self.ids.insert(node.id, place);
                kept.push(Node {
                    parent,
                    children: Vec::new(),
                    ..node
                });
            }
        }
        self.nodes = kept;
    }
}

impl Node {
    fn new(id: PieceId, parent: usize, tokens: &[u32]) -> Self {
        Self {
            id,
            parent,
            tokens: tokens.into(),
            children: Vec::new(),
            ends: 0,
            used: 0,
            unwritten: !tokens.is_empty(),
        }
    }

    fn end_at(&mut self, bits: u32) {
        self.unwritten |= self.ends | bits != self.ends;
        self.ends |= bits;
    }
}

#[cfg(test)]
impl Trie {
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Parents know their children and were never wanted before them.
    pub(super) fn check(&self) {
        for (index, node) in self.nodes.iter().enumerate().skip(1) {
            assert!(self.nodes[node.parent].children.contains(&index));
            assert!(node.parent == 0 || self.nodes[node.parent].used >= node.used);
            assert_eq!(self.ids[&node.id], index);
        }
    }
}
