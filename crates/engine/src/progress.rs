//! How far a prompt has come, and how long the rest of it will take.

use andante_sched::CostModel;

use crate::event::Usage;

/// How far a prompt has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptProgress {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// How many of them did not have to be computed.
    pub cached_tokens: u32,
    /// How many there are now, those included.
    pub processed_tokens: u32,
    /// Since the first step that worked on it, in µs.
    pub elapsed_us: u64,
    /// What the rest of it will take, in µs, if the others leave it the time that they left it so far: the cost model says how much
    /// work the rest is beside what has been done, since later tokens cost more than earlier ones.
    pub remaining_us: Option<u64>,
}

impl PromptProgress {
    pub(crate) fn new(prompt: Usage, processed: u32, elapsed_us: u64, cost: &CostModel) -> Self {
        let (total, cached) = (prompt.prompt_tokens, prompt.cached_tokens);
        let done = work(cost, cached, processed);
        let left = work(cost, processed, total);
        let remaining = (u128::from(elapsed_us) * left).checked_div(done);
        Self {
            prompt_tokens: total,
            cached_tokens: cached,
            processed_tokens: processed,
            elapsed_us,
            remaining_us: remaining.map(|us| u64::try_from(us).unwrap_or(u64::MAX)),
        }
    }
}

/// What the tokens from `start` to `end` cost, in fixed-point µs, without what a step costs by itself: `b·q + e·Σ(p+1)` of
/// [`CostModel`].
fn work(cost: &CostModel, start: u32, end: u32) -> u128 {
    let whole = |coefficient: i64| u128::try_from(coefficient).unwrap_or(0);
    let (start, tokens) = (u128::from(start), u128::from(end.saturating_sub(start)));
    let attended = tokens * start + tokens * (tokens + 1) / 2;
    whole(cost.token) * tokens + whole(cost.attend) * attended
}

#[cfg(test)]
mod tests;
