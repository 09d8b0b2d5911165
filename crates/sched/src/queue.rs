//! Requests that wait for a slot, and who gets the next one.
//!
//! The flow (tenant and priority) that holds the fewest slots for its weight comes first. Within it, the shortest by the
//! prompt tokens that are not cached, but every fourth slot goes to the one that waits longest.
//! First-come-first-served admission would rebuild the head-of-line blocking that the step policy avoids.

use crate::sequence::Sequence;
use crate::step::SeqId;
use crate::tenants::{Flow, Tenants};

/// Every so many of a flow's admissions its oldest is taken.
const OLDEST_EVERY: u64 = 4;

#[derive(Debug, Clone, Default)]
pub(crate) struct Queue {
    /// In arrival order, with the prompt tokens each had to compute when it arrived.
    waiting: Vec<(Sequence, u32)>,
    /// Scratch: flows of which nothing fits.
    passed: Vec<Flow>,
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
    /// When it is the turn of a flow's oldest and that does not fit, nobody passes it: what is reserved runs out, and then
    /// it fits. A flow of which nothing fits is passed by others, which counts as a turn.
    pub(crate) fn next(
        &mut self,
        tenants: &mut Tenants,
        fits: impl Fn(&Sequence) -> bool,
    ) -> Option<Sequence> {
        self.passed.clear();
        loop {
            let flow = self.next_flow(tenants)?;
            let mut mine =
                (0..self.waiting.len()).filter(|&index| self.waiting[index].0.flow == flow);
            let index = if tenants.is_oldest_turn(flow, OLDEST_EVERY) {
                Some(
                    mine.next()
                        .filter(|&oldest| fits(&self.waiting[oldest].0))?,
                )
            } else {
                mine.filter(|&index| fits(&self.waiting[index].0))
                    .min_by_key(|&index| (self.waiting[index].1, index))
            };
            let Some(index) = index else {
                self.passed.push(flow);
                continue;
            };
            for &flow in &self.passed {
                tenants.pass_over(flow);
            }
            tenants.admit(flow);
            return Some(self.waiting.remove(index).0);
        }
    }

    /// The flow that is next, of those with a free slot that were not passed; the one that waits longest among equals.
    fn next_flow(&self, tenants: &Tenants) -> Option<Flow> {
        let flows = self.waiting.iter().map(|(sequence, _)| sequence.flow);
        let ranked = flows
            .filter(|flow| !self.passed.contains(flow))
            .filter_map(|flow| {
                let rank = tenants.slot_rank(flow)?;
                Some((rank, flow))
            });
        ranked.min_by_key(|&(rank, _)| rank).map(|(_, flow)| flow)
    }
}

#[cfg(test)]
mod tests;
