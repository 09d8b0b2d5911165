//! Requests that wait for a slot, and who gets the next one.
//!
//! Shortest first by the prompt tokens that are not cached, but every fourth slot goes to the one that waits longest.
//! First-come-first-served admission would rebuild the head-of-line blocking that the step policy avoids.

use crate::sequence::Sequence;
use crate::step::SeqId;

/// Every so many admissions the oldest is taken.
const OLDEST_EVERY: u64 = 4;

#[derive(Debug, Clone, Default)]
pub(crate) struct Queue {
    /// In arrival order, with the prompt tokens each had to compute when it arrived.
    waiting: Vec<(Sequence, u32)>,
    admitted: u64,
}

impl Queue {
    pub(crate) fn len(&self) -> u32 {
        // At most `Config::max_queue`.
        self.waiting.len() as u32
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sequence> {
        self.waiting.iter().map(|(sequence, _)| sequence)
    }

    pub(crate) fn push(&mut self, sequence: Sequence, uncached: u32) {
        self.waiting.push((sequence, uncached));
    }

    pub(crate) fn remove(&mut self, id: SeqId) -> Option<Sequence> {
        let index = self
            .waiting
            .iter()
            .position(|(sequence, _)| sequence.id == id)?;
        Some(self.waiting.remove(index).0)
    }

    /// The next sequence to admit, of those for which `fits` holds.
    ///
    /// When it is the oldest's turn and it does not fit, nobody passes it: what is reserved runs out, and then it fits.
    pub(crate) fn next(&mut self, fits: impl Fn(&Sequence) -> bool) -> Option<Sequence> {
        let index = if (self.admitted + 1).is_multiple_of(OLDEST_EVERY) {
            (!self.waiting.is_empty())
                .then_some(0)
                .filter(|&oldest| fits(&self.waiting[oldest].0))
        } else {
            let shortest = |&index: &usize| (self.waiting[index].1, index);
            (0..self.waiting.len())
                .filter(|&index| fits(&self.waiting[index].0))
                .min_by_key(shortest)
        }?;
        self.admitted += 1;
        Some(self.waiting.remove(index).0)
    }
}

#[cfg(test)]
impl Queue {
    /// How far it is in its cycle of turns.
    pub(crate) fn turn(&self) -> u64 {
        self.admitted % OLDEST_EVERY
    }
}

#[cfg(test)]
mod tests;
