//! When reasoning must end, and the tokens that end it.
//!
//! A budget that is used up, or a model that ends its answer while it still thinks, ends the reasoning in the model's own way: the tokens
//! that close it are put in the place of what was sampled, one in each step, and the model goes on from there. So nobody gets an
//! answer that holds reasoning alone, unless the token limit cut it or the model will not have it otherwise.

use std::collections::VecDeque;

use andante_text::Opening;

/// How often a model that ends its answer while it thinks is asked to go on.
const MOST_ENDINGS: u32 = 4;

/// Follows the reasoning of one answer.
#[derive(Debug, Default)]
pub(crate) struct Thinking {
    /// The most tokens of reasoning.
    budget: Option<u32>,
    /// What closes it; empty where reasoning is not told apart.
    end: Vec<u32>,
    /// What is still to be put in place of samples.
    forced: VecDeque<u32>,
    /// How often the model ended its answer while it thought.
    endings: u32,
    /// The next token may not end the answer.
    owes_text: bool,
    /// The token that opens reasoning, while nothing has been said.
    chance: Option<u32>,
}

impl Thinking {
    pub(crate) fn new(budget: Option<u32>, opening: &Opening) -> Self {
        Self {
            budget,
            end: opening.dialect().reasoning_end().to_vec(),
            chance: opening.reasoning_token(),
            ..Self::default()
        }
    }

    /// The token that opens reasoning, the first time this is asked.
    pub(crate) fn take_chance(&mut self) -> Option<u32> {
        self.chance.take()
    }

    /// The token to use in place of a sample.
    pub(crate) fn forced(&mut self) -> Option<u32> {
        self.forced.pop_front()
    }

    /// Whether the next sample may not end the answer.
    pub(crate) fn owes_text(&mut self) -> bool {
        std::mem::take(&mut self.owes_text)
    }

    /// The model has ended its answer while it thought: the token to use in place of that end.
    pub(crate) fn ended(&mut self) -> Option<u32> {
        if self.endings == MOST_ENDINGS || self.end.is_empty() {
            return None;
        }
        self.endings += 1;
        self.owes_text = true;
        self.forced.extend(&self.end);
        self.forced.pop_front()
    }

    /// So many tokens have been reasoning, and the last one ended with a whole character.
    pub(crate) fn check_budget(&mut self, tokens: u32) {
        if self.budget.is_some_and(|budget| tokens >= budget) && self.forced.is_empty() {
            self.forced.extend(&self.end);
        }
    }
}
