//! How prompts and answers were spelt, for later prompts that begin with the same words.
//!
//! A model does not spell as the tokenizer does: what it sampled comes back in the next prompt as text, and encoded anew it may
//! become other tokens, whose keys and values nobody has. So the tokens of ended requests are kept, in a trie of
//! pieces as long as a KV block, and where they say how a prompt begins, they stand for that part of it; only the rest is
//! encoded.
//!
//! They may stand for a prompt only up to where the tokenizer would begin afresh (a control token), or up to the end of a prompt
//! or answer: in the middle of a text the rest would be encoded differently than with what is before it, and the same prompt
//! would give other tokens from one time to the next.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use andante_text::{Prompt, Spelling, Tokenizer};

/// Tokens of a node, at most.
const PIECE: usize = 32;
/// Nodes that are kept: two million tokens, in some 15 MB.
const MOST_NODES: usize = 1 << 16;
/// Requests that wait for the next text to be encoded; where prompts come as tokens, it never does.
const MOST_ENDED: usize = 64;

/// What has been said to this engine, and by it.
#[derive(Debug, Default)]
pub(crate) struct Spellings {
    /// What has ended and is not yet in the trie: the engine's thread puts it here and goes on.
    ended: Mutex<VecDeque<Spelt>>,
    trie: Mutex<Trie>,
}

/// A request that has ended.
#[derive(Debug)]
pub(crate) struct Spelt {
    pub(crate) prompt: Arc<[u32]>,
    pub(crate) answer: Vec<u32>,
}

impl Spellings {
    /// Remembers a request.
    pub(crate) fn note(&self, said: Spelt) {
        let mut ended = lock(&self.ended);
        if ended.len() == MOST_ENDED {
            ended.pop_front();
        }
        ended.push_back(said);
    }

    /// The tokens of a prompt: those that said its beginning before, if they are others than its own, and its own.
    pub(crate) fn encode(&self, prompt: &Prompt, tokenizer: &Tokenizer) -> Vec<u32> {
        let tokens = prompt.encode(tokenizer);
        let ended = std::mem::take(&mut *lock(&self.ended));
        let mut trie = lock(&self.trie);
        for said in ended {
            trie.insert(&said);
        }
        let Some(known) = trie.find(Spelling::new(prompt, tokenizer)) else {
            return tokens;
        };
        let before = trie.tokens(known.place);
        drop(trie);
        if tokens.starts_with(&before) {
            tokens
        } else {
            known.spelling.rest(before)
        }
    }
}

/// Sequences of tokens that share their beginnings.
#[derive(Debug)]
struct Trie {
    /// The first is the root, without tokens.
    nodes: Vec<Node>,
    most_nodes: usize,
    /// Counts calls.
    now: u64,
}

#[derive(Debug, Clone, Default)]
struct Node {
    parent: usize,
    tokens: Box<[u32]>,
    children: Vec<usize>,
    /// Bit `i`: a prompt or an answer ended after `i + 1` of the tokens.
    ends: u32,
    /// When it was last wanted: never before its children were.
    used: u64,
}

/// After so many tokens of a node.
#[derive(Debug, Clone, Copy)]
struct Place {
    node: usize,
    tokens: usize,
}

/// The longest sequence that says how a prompt begins.
struct Known<'p> {
    place: Place,
    /// All its tokens.
    count: usize,
    spelling: Spelling<'p>,
}

impl Default for Trie {
    fn default() -> Self {
        Self::new(MOST_NODES)
    }
}

impl Trie {
    fn new(most_nodes: usize) -> Self {
        Self {
            nodes: vec![Node::default()],
            most_nodes,
            now: 0,
        }
    }

    fn insert(&mut self, said: &Spelt) {
        self.now += 1;
        let tokens: Vec<u32> = said.prompt.iter().chain(&said.answer).copied().collect();
        let ends = [said.prompt.len(), tokens.len()];
        let mut node = 0;
        for (index, piece) in tokens.chunks(PIECE).enumerate() {
            node = self.child(node, piece);
            let start = index * PIECE;
            for end in ends {
                if (start + 1..=start + piece.len()).contains(&end) {
                    self.nodes[node].ends |= 1 << (end - start - 1);
                }
            }
            self.nodes[node].used = self.now;
        }
        if self.nodes.len() > self.most_nodes {
            self.forget();
        }
    }

    /// The child that begins with these tokens, made if need be. Only the last piece of a sequence is short.
    fn child(&mut self, parent: usize, piece: &[u32]) -> usize {
        let mut children = self.nodes[parent].children.iter().copied();
        if let Some(found) = children.find(|&child| self.nodes[child].tokens.starts_with(piece)) {
            return found;
        }
        let new = self.nodes.len();
        self.nodes.push(Node {
            parent,
            tokens: piece.into(),
            ..Node::default()
        });
        self.nodes[parent].children.push(new);
        new
    }

    /// The most tokens from the root that spell the prompt as far as they go, and end where they may.
    fn find<'p>(&mut self, start: Spelling<'p>) -> Option<Known<'p>> {
        let mut best: Option<Known<'p>> = None;
        let mut open = vec![(0, 0, start)];
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
    fn tokens(&self, place: Place) -> Vec<u32> {
        let mut pieces = vec![&self.nodes[place.node].tokens[..place.tokens]];
        let mut node = self.nodes[place.node].parent;
        while node != 0 {
            pieces.push(&self.nodes[node].tokens);
            node = self.nodes[node].parent;
        }
        pieces.into_iter().rev().flatten().copied().collect()
    }

    /// Drops the quarter of the nodes that were not wanted for longest. With a node go its children: they were not wanted later.
    fn forget(&mut self) {
        let mut times: Vec<u64> = self.nodes[1..].iter().map(|node| node.used).collect();
        let quarter = times.len() / 4;
        let (_, &mut oldest, _) = times.select_nth_unstable(quarter);
        let mut moved = vec![0; self.nodes.len()];
        let mut kept = vec![Node::default()];
        for (index, node) in self.nodes.iter_mut().enumerate().skip(1) {
            if node.used > oldest {
                // A parent is older than its children, so it has its new place.
                let (parent, place) = (moved[node.parent], kept.len());
                moved[index] = place;
                kept[parent].children.push(place);
                kept.push(Node {
                    parent,
                    children: Vec::new(),
                    ..std::mem::take(node)
                });
            }
        }
        self.nodes = kept;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
