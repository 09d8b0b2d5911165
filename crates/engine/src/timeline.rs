//! What happens, moment by moment, for whoever watches: a bounded ring of words that the engine thread writes and any number
//! of readers follow.
//!
//! The writer allocates nothing and waits for nobody: there is no lock, and a reader that is too slow misses the oldest
//! moments and is told so. Words are atomics of which every reader takes a copy and then looks whether the writer has been
//! over it meanwhile (a seqlock: Boehm, "Can Seqlocks Get Along With Programming Language Memory Models?", MSPC 2012).
//! The ring consists of pages; a moment never crosses from one into the next, so that the beginning of each page is a place
//! from which can be read.

mod moment;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

pub use moment::{Ending, Moment, StepMoment};

/// Words of a page.
const PAGE: u64 = 1024;
/// Pages of the ring: a mebibyte, which holds some minutes of a busy engine.
const PAGES: u64 = 128;
const WORDS: u64 = PAGE * PAGES;

/// Fills the rest of a page.
const PADDING: u64 = 0;

/// The ring.
#[derive(Debug)]
pub(crate) struct Timeline {
    words: Box<[AtomicU64]>,
    /// Words that have been written.
    written: AtomicU64,
    /// Words that have been written or may be half written.
    claimed: AtomicU64,
}

impl Timeline {
    pub(crate) fn new() -> Self {
        Self {
            words: (0..WORDS).map(|_| AtomicU64::new(PADDING)).collect(),
            written: AtomicU64::new(0),
            claimed: AtomicU64::new(0),
        }
    }

    fn word(&self, position: u64) -> &AtomicU64 {
        // Below 2^17.
        &self.words[(position % WORDS) as usize]
    }
}

/// The engine's end. There is one.
#[derive(Debug)]
pub(crate) struct Writer {
    ring: Arc<Timeline>,
    position: u64,
    /// The moment that is being written.
    moment: Vec<u64>,
}

impl Writer {
    pub(crate) fn new(ring: Arc<Timeline>) -> Self {
        Self {
            ring,
            position: 0,
            moment: Vec::with_capacity(PAGE as usize),
        }
    }

    /// Adds a moment.
    pub(crate) fn add(&mut self, moment: &Moment) {
        self.write(|out| moment.put(out));
    }

    /// Adds what `put` writes: at most [`PAGE`] words, of which the first is not [`PADDING`].
    fn write(&mut self, put: impl FnOnce(&mut Vec<u64>)) {
        self.moment.clear();
        put(&mut self.moment);
        let words = self.moment.len() as u64;
        debug_assert!((1..=PAGE).contains(&words) && self.moment[0] != PADDING);
        let left = PAGE - self.position % PAGE;
        let padding = if words > left { left } else { 0 };
        let end = self.position + padding + words;
        let ring = &*self.ring;
        ring.claimed.store(end, Ordering::Relaxed);
        // Whoever sees one of the words below sees the claim.
        fence(Ordering::Release);
        if padding > 0 {
            ring.word(self.position).store(PADDING, Ordering::Relaxed);
        }
        for (position, &word) in (self.position + padding..).zip(&self.moment) {
            ring.word(position).store(word, Ordering::Relaxed);
        }
        ring.written.store(end, Ordering::Release);
        self.position = end;
    }
}

/// Follows what the engine does.
#[derive(Debug, Clone)]
pub struct TimelineReader {
    ring: Arc<Timeline>,
    position: u64,
    words: Vec<u64>,
}

impl TimelineReader {
    /// From the oldest moment that there is.
    pub(crate) fn new(ring: Arc<Timeline>) -> Self {
        let written = ring.written.load(Ordering::Acquire);
        Self {
            ring,
            position: oldest(written),
            words: Vec::new(),
        }
    }

    /// Appends the moments since the last time. True if there were others, which it has missed.
    pub fn read(&mut self, moments: &mut Vec<Moment>) -> bool {
        let mut missed = false;
        loop {
            let written = self.ring.written.load(Ordering::Acquire);
            if self.position < oldest(written) {
                self.position = oldest(written);
                missed = true;
            }
            let since = self.position;
            let copy = (since..written).map(|at| self.ring.word(at).load(Ordering::Relaxed));
            self.words.clear();
            self.words.extend(copy);
            fence(Ordering::Acquire);
            let claimed = self.ring.claimed.load(Ordering::Relaxed);
            if claimed <= since + WORDS {
                self.position = written;
                moment::take_all(&self.words, since, moments);
                return missed;
            }
        }
    }
}

/// The first page that is whole and not about to be overwritten.
fn oldest(written: u64) -> u64 {
    (written.saturating_sub(WORDS - PAGE)).next_multiple_of(PAGE)
}

/// The next moment at `position`, in words that begin at `start`; `None` at their end.
fn next_at(words: &[u64], start: u64, position: &mut u64) -> Option<usize> {
    loop {
        let index = (*position - start) as usize;
        if *words.get(index)? != PADDING {
            return Some(index);
        }
        *position = (*position / PAGE + 1) * PAGE;
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
