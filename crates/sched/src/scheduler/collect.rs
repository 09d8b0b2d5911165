//! What a completed step brought: outcomes checked and applied, costs learnt, service charged.

use super::Scheduler;
use crate::cost::fixed;
use crate::estimate::Verdict;
use crate::residents::Slot;
use crate::sequence::Phase;
use crate::stats::Miss;
use crate::step::{CompleteError, Outcome};
use crate::tenants::CHARGE_BITS;

impl Scheduler {
    pub(super) fn check(&self, step_no: u64, outcomes: &[Outcome]) -> Result<(), CompleteError> {
        if !self.in_flight || step_no != self.step.step_no {
            return Err(CompleteError::NotInFlight { step_no });
        }
        if outcomes.len() != self.rows.len() {
            return Err(CompleteError::OutcomeCount {
                given: outcomes.len(),
                planned: self.rows.len(),
            });
        }
        let decodes = self.step.decode.len();
        for (index, outcome) in outcomes.iter().enumerate() {
            let samples = index < decodes || self.step.prefill[index - decodes].last;
            let fits = match outcome {
                Outcome::Failed => true,
                Outcome::Prefilled => !samples,
                Outcome::Token(_) | Outcome::Sampling | Outcome::Finish => samples,
            };
            if !fits && !self.residents.get(self.rows[index]).draining {
                return Err(CompleteError::WrongOutcome { index });
            }
        }
        Ok(())
    }

    /// Feeds the estimate and the counters.
    pub(super) fn learn(&mut self, elapsed_us: u64) {
        let prefill_us = self.charge(elapsed_us);
        self.counts
            .spend(&self.step, elapsed_us, prefill_us, self.io_us);
        let verdict = if self.rows.is_empty() {
            Verdict::Normal
        } else {
            // Budgets fit well.
            let budget_us = self.step.budget_us as i64;
            self.estimate.observe(self.shape, budget_us, elapsed_us)
        };
        let elapsed_us = elapsed_us.saturating_add(self.io_us);
        self.counts
            .record(&self.step, self.shape, elapsed_us, verdict);
    }

    /// Charges a step to those it was spent for, as the cost model divides it: the decode rows share the intercept of a
    /// decode step, the prompts what mixing adds to it. Gives the part of the prompts, in µs.
    fn charge(&mut self, elapsed_us: u64) -> u64 {
        let model = *self.estimate.model();
        let (rows, ranges) = (self.step.decode.len(), self.step.prefill.len());
        let whole = fixed(model.step_us(self.shape).max(1));
        let decode = if rows > 0 { model.decode } else { 0 };
        let prefill = match (rows, ranges) {
            (_, 0) => 0,
            (0, _) => model.prefill,
            _ => (model.mixed - model.decode).max(0),
        };
        let mut prompts: u64 = 0;
        for (row, &slot) in self.rows.iter().enumerate() {
            let sequence = self.residents.get(slot);
            let cost = if row < rows {
                let context = i64::try_from(sequence.tokens.len()).unwrap_or(i64::MAX);
                (decode / rows as i64)
                    .saturating_add(model.row)
                    .saturating_add(model.context.saturating_mul(context))
            } else {
                let range = &self.step.prefill[row - rows];
                (prefill / ranges as i64).saturating_add(model.range(range.start, range.tokens))
            };
            let part =
                (i128::from(elapsed_us) << CHARGE_BITS) * i128::from(cost) / i128::from(whole);
            let part = u64::try_from(part).unwrap_or(u64::MAX);
            self.tenants.charge(sequence.flow, part);
            if row >= rows {
                prompts = prompts.saturating_add(part);
            }
        }
        prompts >> CHARGE_BITS
    }

    /// Counts what a prompt that is complete did not find.
    pub(super) fn count_missed(&mut self, slot: Slot) {
        let sequence = self.residents.get(slot);
        if sequence.warm {
            return;
        }
        let block_tokens = self.config.block_tokens;
        let mut left = u64::from(sequence.prompt - sequence.cached);
        let missed = &mut self.counts.missed;
        if !sequence.cache {
            missed.off += left;
            return;
        }
        let whole = sequence.adoptable(block_tokens) as u32 * block_tokens;
        let tail = left.min(u64::from(sequence.prompt - whole));
        missed.tail += tail;
        left -= tail;
        *match sequence.miss {
            Miss::New => &mut missed.new,
            Miss::Evicted => &mut missed.evicted,
            Miss::State => &mut missed.state,
        } += left;
    }

    /// Applies an outcome of the completed step; true if the sequence ends with it.
    pub(super) fn finish_row(&mut self, slot: Slot, tokens: u32, outcome: Outcome) -> bool {
        let block_tokens = self.config.block_tokens;
        let sequence = self.residents.get_mut(slot);
        sequence.in_step = false;
        if outcome != Outcome::Failed {
            sequence.advance(tokens, &mut self.blocks, block_tokens);
        }
        sequence.kept(outcome != Outcome::Failed, &mut self.blocks, block_tokens);
        sequence.draining || self.settle_outcome(slot, outcome)
    }

    /// Moves a sequence on to what its outcome says; true if it ends.
    pub(super) fn settle_outcome(&mut self, slot: Slot, outcome: Outcome) -> bool {
        let sequence = self.residents.get_mut(slot);
        match outcome {
            Outcome::Prefilled => false,
            Outcome::Token(token) => {
                sequence.phase = Phase::Ready;
                sequence.tokens.push(token);
                sequence.generated() >= sequence.max_new
            }
            Outcome::Sampling => {
                sequence.phase = Phase::Busy { sampling: true };
                false
            }
            Outcome::Finish => true,
            Outcome::Failed => {
                self.counts.failed += 1;
                true
            }
        }
    }
}
