//! KV that is loaded and saved: units in the plan, at most one under way.

use super::Scheduler;
use crate::checkpoints::StateId;
use crate::cost::FRACTION_BITS;
use crate::estimate::Estimate;
use crate::log::Entry;
use crate::policy::Io;
use crate::residents::Slot;
use crate::sequence::Sequence;
use crate::step::{IoKind, IoUnit, StateCopy};
use crate::tenants::CHARGE_BITS;

/// An I/O unit under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outstanding {
    pub(super) unit_no: u64,
    /// Whose prompt is being loaded; `None` for a save.
    pub(super) load: Option<Slot>,
    pub(super) blocks: u32,
    /// The checkpoint that a load ends with.
    pub(super) state: Option<StateId>,
}

impl Scheduler {
    /// Takes in what became of an I/O unit: it did `done_blocks` of its blocks in `elapsed_us`. False if it is not
    /// outstanding. When fewer blocks were done than asked, the store has failed: a load's sequence computes the rest
    /// itself, a save is given up.
    pub fn io_done(&mut self, unit_no: u64, done_blocks: u32, elapsed_us: u64) -> bool {
        self.note(Entry::IoDone {
            unit_no,
            done_blocks,
            elapsed_us,
        });
        let Some(unit) = self.outstanding.filter(|unit| unit.unit_no == unit_no) else {
            return false;
        };
        self.outstanding = None;
        if self.in_flight
            && self
                .step
                .io
                .as_ref()
                .is_some_and(|io| io.unit_no == unit_no)
        {
            self.io_us = elapsed_us;
        }
        let done = done_blocks.min(unit.blocks);
        if done == unit.blocks {
            self.estimate
                .observe_io(unit.load.is_some(), done, elapsed_us);
        } else {
            self.counts.io_failures += 1;
        }
        let Some(slot) = unit.load else {
            self.counts.saved_blocks += u64::from(done);
            return true;
        };
        let block_tokens = self.config.block_tokens;
        let sequence = self.residents.get_mut(slot);
        let cached = sequence.cached;
        sequence.loaded(unit.blocks, done, &mut self.blocks, block_tokens);
        if self.blocks.checkpoints.is_some() {
            let whole = done == unit.blocks;
            sequence.loaded_state(unit.state, whole, &mut self.blocks, block_tokens);
            // At once: the checkpoint may be another's when the sequence is planned next.
            let from = sequence.take_restore();
            self.restores
                .extend(from.map(|from| StateCopy { from, to: slot }));
        }
        // What came before a failure is of no use without the state that is missing.
        self.counts.cached_tokens =
            self.counts.cached_tokens + u64::from(sequence.cached) - u64::from(cached);
        self.tenants
            .charge(sequence.flow, elapsed_us.saturating_mul(1 << CHARGE_BITS));
        self.counts.loaded_tokens += u64::from(done * block_tokens);
        if sequence.draining {
            self.end(slot);
        }
        true
    }

    /// Puts the policy's I/O unit into the step; gives its predicted time in µs.
    pub(super) fn launch_io(&mut self) -> i64 {
        self.io_us = 0;
        self.step.io = None;
        self.step.states.load = None;
        let block_tokens = self.config.block_tokens;
        let (kind, load, blocks, time) = match self.policy.io() {
            None => return 0,
            Some(Io::Load { prompt, blocks }) => {
                let slot = self.prompts[prompt].slot;
                let sequence = self.residents.get_mut(slot);
                sequence.loading = true;
                self.step.states.load = sequence.load_state(blocks, &mut self.blocks, block_tokens);
                sequence.grow(blocks * block_tokens, &mut self.blocks, block_tokens);
                let kind = IoKind::Load {
                    id: sequence.id,
                    start_block: sequence.computed / block_tokens,
                    blocks,
                };
                (kind, Some(slot), blocks, self.estimate.load().units(blocks))
            }
            Some(Io::Save { blocks }) => {
                let blocks = self.blocks.take_unsaved(blocks);
                if blocks.is_empty() {
                    return 0;
                }
                // As many as there are block numbers at most.
                let count = blocks.len() as u32;
                let time = self.estimate.save().units(count);
                (IoKind::Save { blocks }, None, count, time)
            }
        };
        self.io_units += 1;
        let unit_no = self.io_units;
        self.outstanding = Some(Outstanding {
            unit_no,
            load,
            blocks,
            state: self.step.states.load,
        });
        self.step.io = Some(IoUnit { unit_no, kind });
        time >> FRACTION_BITS
    }
}

/// Blocks that a sequence could load, if that is not dearer than computing them.
pub(super) fn worth_loading(sequence: &Sequence, estimate: &Estimate, block_tokens: u32) -> u32 {
    let blocks = sequence.loadable(block_tokens);
    if sequence.is_half_loaded() {
        return blocks;
    }
    let tokens = blocks * block_tokens;
    let computing = estimate.model().range(sequence.computed, tokens);
    if blocks > 0 && estimate.load().units(blocks) <= computing {
        blocks
    } else {
        0
    }
}
