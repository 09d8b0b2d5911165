//! The merge loop that byte-level BPE and SentencePiece share.
//!
//! Text begins as small symbols in a chain. The adjacent pair with the lowest rank is joined, leftmost first among
//! equals, until no pair can be joined. O(n log n) in the number of symbols, whatever the text.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// The id of a symbol that is no token, and the end of the chain.
pub(super) const NONE: u32 = u32::MAX;

/// A stretch of the text that is joined so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Symbol {
    /// First byte.
    start: u32,
    /// One past the last byte; 0 once the symbol has been joined to its left neighbour.
    end: u32,
    /// Its token, or [`NONE`].
    pub(super) id: u32,
    previous: u32,
    next: u32,
}

impl Symbol {
    /// Its bytes.
    pub(super) fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// What joining two symbols gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Joined {
    /// Lower ranks are joined first.
    pub(super) rank: u32,
    /// The token of the joined text.
    pub(super) id: u32,
}

/// A pair that can be joined: (rank, index of the left symbol, end of the right symbol, token).
type Candidate = Reverse<(u32, u32, u32, u32)>;

/// The chain and the queue, kept between words to save allocations.
#[derive(Debug, Default)]
pub(super) struct Merger {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Candidate>,
}

impl Merger {
    /// Begins a new chain.
    pub(super) fn clear(&mut self) {
        self.symbols.clear();
        self.queue.clear();
    }

    /// Appends a symbol of `len` bytes.
    pub(super) fn push(&mut self, len: usize, id: u32) {
        let index = small(self.symbols.len());
        let start = self.symbols.last().map_or(0, |last| last.end);
        if let Some(last) = self.symbols.last_mut() {
            last.next = index;
        }
        self.symbols.push(Symbol {
            start,
            end: start + small(len),
            id,
            previous: index.wrapping_sub(1),
            next: NONE,
        });
    }

    /// Joins until nothing can be joined; `join` tells what two neighbours give.
    pub(super) fn merge(&mut self, join: impl Fn(&Symbol, &Symbol) -> Option<Joined>) {
        for left in 1..small(self.symbols.len()) {
            self.consider(left - 1, &join);
        }
        while let Some(Reverse((_, left, end, id))) = self.queue.pop() {
            let symbol = self.symbols[left as usize];
            if symbol.end == 0 || symbol.next == NONE {
                continue;
            }
            let right = self.symbols[symbol.next as usize];
            // Symbols only grow, so a pair with the same beginning and end is the pair that was queued.
            if right.end != end {
                continue;
            }
            self.symbols[symbol.next as usize].end = 0;
            if right.next != NONE {
                self.symbols[right.next as usize].previous = left;
            }
            let joined = &mut self.symbols[left as usize];
            joined.end = end;
            joined.id = id;
            joined.next = right.next;
            if symbol.previous != NONE {
                self.consider(symbol.previous, &join);
            }
            self.consider(left, &join);
        }
    }

    /// What is left, in text order.
    pub(super) fn symbols(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(|symbol| symbol.end != 0)
    }

    /// Queues the pair that begins with symbol `left`, if it can be joined.
    fn consider(&mut self, left: u32, join: impl Fn(&Symbol, &Symbol) -> Option<Joined>) {
        let symbol = &self.symbols[left as usize];
        if symbol.next == NONE {
            return;
        }
        let right = &self.symbols[symbol.next as usize];
        if let Some(joined) = join(symbol, right) {
            self.queue
                .push(Reverse((joined.rank, left, right.end, joined.id)));
        }
    }
}

/// Offsets are 32 bits wide: a chain is one stretch of one prompt.
fn small(n: usize) -> u32 {
    u32::try_from(n).expect("a text to tokenise is smaller than 4 GiB")
}
