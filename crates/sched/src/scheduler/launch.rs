//! From a decision of the policy to a step: rows, blocks for them, predicted time.

use super::Scheduler;
use crate::cost::Shape;
use crate::policy::Candidate;
use crate::stats::StallLimit;
use crate::step::{Prefill, StateCopy};

impl Scheduler {
    pub(super) fn launch(&mut self, decode: bool, forced: bool, contended: bool) {
        let block_tokens = self.config.block_tokens;
        self.step.decode.clear();
        self.step.prefill.clear();
        self.rows.clear();
        self.step.states.keep.clear();
        self.step.states.restore.clear();
        self.step.states.restore.append(&mut self.restores);
        self.shape = if decode {
            self.decode_shape()
        } else {
            Shape::default()
        };
        for rank in 0.. {
            let Some(slot) = self.residents.by_rank(rank) else {
                break;
            };
            let sequence = self.residents.get_mut(slot);
            if decode && sequence.runs_next() {
                sequence.in_step = true;
                sequence.grow(1, &mut self.blocks, block_tokens);
                let kept = sequence.keep_after(1, &mut self.blocks, &self.config);
                let keep = |to| StateCopy { from: slot, to };
                self.step.states.keep.extend(kept.map(keep));
                self.step.decode.push(sequence.id);
                self.rows.push(slot);
            }
        }
        for part in self.policy.parts() {
            let Candidate {
                slot,
                start,
                remaining,
                ..
            } = self.prompts[part.prompt];
            let sequence = self.residents.get_mut(slot);
            sequence.in_step = true;
            sequence.grow(part.tokens, &mut self.blocks, block_tokens);
            let kept = sequence.keep_after(part.tokens, &mut self.blocks, &self.config);
            let keep = |to| StateCopy { from: slot, to };
            self.step.states.keep.extend(kept.map(keep));
            self.shape.add_range(start, part.tokens);
            let last = part.tokens == remaining && !sequence.warm;
            self.step.prefill.push(Prefill {
                id: sequence.id,
                start,
                tokens: part.tokens,
                last,
            });
            self.rows.push(slot);
        }
        let io_us = self.launch_io();
        let pass_us = self.pass_us();
        let budget = self.policy.budget_us(contended);
        self.step.step_no += 1;
        // Times and costs are not negative.
        self.step.predicted_us = (pass_us + io_us) as u64;
        self.step.budget_us = budget as u64;
        self.step.contended = contended;
        let likely = self.estimate.likely_us(self.shape.regime(), pass_us) + io_us;
        self.step.floor_limited = forced && likely > budget;
        self.note_limit(likely);
        self.in_flight = true;
    }

    /// Predicted time of the forward pass, µs; a step of I/O alone has none.
    fn pass_us(&self) -> i64 {
        if self.rows.is_empty() {
            return 0;
        }
        self.estimate.model().step_us(self.shape)
    }

    /// Remembers the longest contended step that cannot be shorter, and why.
    fn note_limit(&mut self, likely_us: i64) {
        let step = &self.step;
        let decodes_only = step.prefill.is_empty() && step.io.is_none();
        let limit = if step.floor_limited {
            StallLimit::Floor
        } else if decodes_only {
            StallLimit::Decode
        } else {
            return;
        };
        let likely_us = likely_us as u64;
        let longest = self.counts.stall_kept.map_or(step.budget_us, |(us, _)| us);
        if step.contended && likely_us > longest && self.estimate.is_learnt(self.shape.regime()) {
            self.counts.stall_kept = Some((likely_us, limit));
        }
    }
}
