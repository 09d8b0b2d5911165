//! The sequences that hold KV memory, each in a slot.

use crate::sequence::{Phase, Sequence};

/// Index of a resident sequence.
pub(crate) type Slot = u32;

#[derive(Debug, Clone)]
pub(crate) struct Residents {
    slots: Vec<Option<Sequence>>,
    /// Occupied slots in order of arrival.
    order: Vec<Slot>,
}

impl Residents {
    pub(crate) fn new(slots: u32) -> Self {
        Self {
            slots: vec![None; slots as usize],
            order: Vec::with_capacity(slots as usize),
        }
    }

    pub(crate) fn len(&self) -> u32 {
        // At most one for each slot.
        self.order.len() as u32
    }

    /// A slot that nobody has.
    pub(crate) fn vacant(&self) -> Option<Slot> {
        // Slots are counted in a `u32`.
        self.slots
            .iter()
            .position(Option::is_none)
            .map(|slot| slot as Slot)
    }

    pub(crate) fn insert(&mut self, slot: Slot, sequence: Sequence) {
        let arrival = sequence.arrival;
        let rank = self
            .order
            .partition_point(|&other| self.get(other).arrival < arrival);
        self.order.insert(rank, slot);
        self.slots[slot as usize] = Some(sequence);
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Sequence {
        self.order.retain(|&other| other != slot);
        self.slots[slot as usize]
            .take()
            .expect("only residents leave")
    }

    pub(crate) fn get(&self, slot: Slot) -> &Sequence {
        self.slots[slot as usize]
            .as_ref()
            .expect("the slot is occupied")
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> &mut Sequence {
        self.slots[slot as usize]
            .as_mut()
            .expect("the slot is occupied")
    }

    /// Occupied slots in order of arrival: the `rank`-th.
    pub(crate) fn by_rank(&self, rank: usize) -> Option<Slot> {
        self.order.get(rank).copied()
    }

    /// In order of arrival.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sequence> {
        self.order.iter().map(|&slot| self.get(slot))
    }

    /// Number of ready and busy decoders.
    pub(crate) fn active(&self) -> u32 {
        self.count(|sequence| sequence.phase != Phase::Prefill && !sequence.parked)
    }

    pub(crate) fn count(&self, test: impl Fn(&Sequence) -> bool) -> u32 {
        self.iter().filter(|sequence| test(sequence)).count() as u32
    }
}
