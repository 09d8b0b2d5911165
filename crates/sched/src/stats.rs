//! Counters for a status page and for the start-up and shutdown log.

use crate::cost::{CostModel, Shape};
use crate::estimate::Verdict;
use crate::step::{Step, TenantId};

/// A snapshot of the scheduler. Counts since start where not said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Now: requests waiting for a slot.
    pub queued: u32,
    /// Now: sequences that hold KV memory.
    pub resident: u32,
    /// Now: resident sequences whose prompt is being computed.
    pub prefilling: u32,
    /// Now: decoders, ready or busy, not parked.
    pub active: u32,
    /// Now: sequences that wait for their client to read.
    pub parked: u32,
    /// Now: the KV blocks.
    pub blocks: BlockStats,
    /// Prompt tokens computed.
    pub prefill_tokens: u64,
    /// Prompt tokens found in the prefix index instead.
    pub cached_tokens: u64,
    /// Decode rows computed.
    pub decode_tokens: u64,
    /// Steps completed.
    pub steps: u64,
    /// Their predicted time, µs.
    pub predicted_us: u64,
    /// Their measured time, µs.
    pub actual_us: u64,
    /// Contended steps that took more than 1.1 · T_stall.
    pub violations: Violations,
    /// Steps that took more than three times their prediction (from the fitted model).
    pub disturbances: u64,
    /// Sequences that failed.
    pub failed: u64,
    /// The cost model now.
    pub cost: CostModel,
    /// T_stall in force, µs.
    pub stall_us: u64,
    /// The bound that can be kept where T_stall cannot, µs, and why. From measured steps, never from the first guess.
    pub stall_kept: Option<(u64, StallLimit)>,
    /// Prompt tokens loaded from the store.
    pub loaded_tokens: u64,
    /// KV blocks saved to the store.
    pub saved_blocks: u64,
    /// I/O units that did not do all they were asked.
    pub io_failures: u64,
    /// Safety factors on predictions of decode, prefill and mixed steps, permille.
    pub margin_permille: [u32; 3],
    /// Where the measured time of the steps went.
    pub times: Times,
    /// Prompt tokens that had to be computed, by why they were not found. Counted when a prompt is complete.
    pub missed: Missed,
}

/// Measured time of steps, as the cost model divides it between prompts and answers; µs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// Spent on prompts.
    pub prefill_us: u64,
    /// Spent on answers.
    pub decode_us: u64,
    /// Spent on loading and saving KV, within steps.
    pub io_us: u64,
    /// All time of steps beside running answers.
    pub contended_us: u64,
    /// What prompts took of it: over `contended_us`, their share.
    pub contended_prefill_us: u64,
}

/// Prompt tokens that were not found, by why; for those of whole blocks, what was the matter with the first missing block
/// when the request got its slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Missed {
    /// Nobody is known to have computed them.
    pub new: u64,
    /// They were in memory and had to make room, and the store did not give them back.
    pub evicted: u64,
    /// They are in memory, but no checkpoint of running state from which to go on behind them.
    pub state: u64,
    /// Behind the prompt's last whole block, its last token included, which is always computed.
    pub tail: u64,
    /// The request was not to use what others have computed.
    pub off: u64,
}

/// What is the matter with a missing block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Miss {
    #[default]
    New,
    Evicted,
    State,
}

/// Why a contended step cannot be as short as T_stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StallLimit {
    /// The decode rows alone take longer.
    Decode,
    /// The smallest prompt piece worth a step does.
    Floor,
}

/// One tenant's account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantStats {
    /// Who.
    pub tenant: TenantId,
    /// Its weight, permille.
    pub weight_permille: u32,
    /// Time spent for it, µs: its part of every measured step.
    pub service_us: u64,
    /// Now: its requests that wait for a slot.
    pub queued: u32,
    /// Now: its resident sequences.
    pub resident: u32,
}

/// Where the KV blocks are; `used + cached + free` is the total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockStats {
    /// All.
    pub total: u32,
    /// Held by sequences.
    pub used: u32,
    /// Held by nobody, but still in the prefix index.
    pub cached: u32,
    /// Without content.
    pub free: u32,
    /// Promised to resident sequences; at most `total`, at least `used`.
    pub reserved: u32,
}

/// Broken step bounds by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Violations {
    /// The decode rows alone were expected to take longer than the budget.
    pub decode: u64,
    /// The smallest allowed prefill range did not fit.
    pub floor: u64,
    /// The step was expected to fit.
    pub model: u64,
    /// Something else held the machine.
    pub disturbance: u64,
}

/// What has been done since the start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) prefill_tokens: u64,
    pub(crate) cached_tokens: u64,
    pub(crate) decode_tokens: u64,
    pub(crate) steps: u64,
    pub(crate) predicted_us: u64,
    pub(crate) actual_us: u64,
    pub(crate) violations: Violations,
    pub(crate) disturbances: u64,
    pub(crate) failed: u64,
    pub(crate) stall_kept: Option<(u64, StallLimit)>,
    pub(crate) loaded_tokens: u64,
    pub(crate) saved_blocks: u64,
    pub(crate) io_failures: u64,
    pub(crate) times: Times,
    pub(crate) missed: Missed,
}

impl Counts {
    /// Counts the time of a completed step, of which `prefill_us` went to prompts and `io_us` came on top.
    pub(crate) fn spend(&mut self, step: &Step, elapsed_us: u64, prefill_us: u64, io_us: u64) {
        let prefill_us = prefill_us.min(elapsed_us);
        let times = &mut self.times;
        times.prefill_us += prefill_us;
        times.decode_us += elapsed_us - prefill_us;
        times.io_us += io_us;
        if step.contended {
            times.contended_us += elapsed_us + io_us;
            times.contended_prefill_us += prefill_us;
        }
    }

    /// Counts a completed step.
    pub(crate) fn record(&mut self, step: &Step, shape: Shape, elapsed_us: u64, verdict: Verdict) {
        self.steps += 1;
        self.prefill_tokens += shape.tokens;
        self.decode_tokens += u64::from(shape.rows);
        self.predicted_us += step.predicted_us;
        self.actual_us += elapsed_us;
        self.disturbances += u64::from(verdict == Verdict::Disturbed);
        if !step.contended || elapsed_us <= step.budget_us + step.budget_us / 10 {
            return;
        }
        let violations = &mut self.violations;
        *match verdict {
            Verdict::Disturbed => &mut violations.disturbance,
            Verdict::Normal if step.floor_limited => &mut violations.floor,
            Verdict::Normal if shape.tokens == 0 && step.predicted_us > step.budget_us => {
                &mut violations.decode
            }
            Verdict::Normal => &mut violations.model,
        } += 1;
    }
}
