//! What a request may ask of sampling, with its limits.

use andante_text::Constraint;

use crate::error::RequestError;

/// How the next token of one request is chosen. `sampler.rs` documents the order in which the parts apply.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Divides the logits. 0 picks the most likely token and skips every filter below.
    pub temperature: f32,
    /// Keeps the k most likely tokens. 0 keeps all.
    pub top_k: u32,
    /// Keeps the smallest set of most likely tokens whose probability reaches p. 1 keeps all.
    pub top_p: f32,
    /// Drops tokens less likely than this share of the most likely one. 0 keeps all.
    pub min_p: f32,
    /// Keeps the tokens whose surprise is nearest the expected surprise, up to this probability. 1 keeps all.
    pub typical_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen in the last [`Self::repeat_last_n`] tokens. 1 is off.
    pub repetition_penalty: f32,
    /// The window of [`Self::repetition_penalty`], over prompt and answer. 0 is off, `None` is everything.
    pub repeat_last_n: Option<u32>,
    /// Subtracted once for every time that a token occurs in the answer so far.
    pub frequency_penalty: f32,
    /// Subtracted from every token that occurs in the answer so far.
    pub presence_penalty: f32,
    /// Added to the logits of single tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Start of the request's own random numbers; drawn at preparation when `None`.
    pub seed: Option<u64>,
    /// The most tokens to generate; `None` is as many as the context holds.
    pub max_tokens: Option<u32>,
    /// Texts that end the answer and are not part of it.
    pub stop: Vec<String>,
    /// Never choose an end-of-generation token.
    pub ignore_eos: bool,
    /// The form that the answer must have.
    pub constraint: Option<Constrained>,
    /// Report the log-probability of each token and of this many most likely ones.
    pub logprobs: Option<u8>,
    /// Look for the prompt's prefix in the cache.
    pub cache_prompt: bool,
    /// The most tokens of reasoning in an answer to a conversation. Then the reasoning is closed, and the answer follows.
    pub reasoning_budget: Option<u32>,
    /// Share the prompt's prefix only with requests that name the same salt.
    pub cache_salt: Option<String>,
}

/// A form of the answer, and who asked for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Constrained {
    /// The form.
    pub constraint: Constraint,
    /// Name of the request's field, for the complaint about it.
    pub name: &'static str,
}

impl Default for Sampling {
    /// The model's own distribution, less the far tail that quantised models have too much of (`min_p` 0.05).
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.05,
            typical_p: 1.0,
            repetition_penalty: 1.0,
            repeat_last_n: Some(64),
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: None,
            max_tokens: None,
            stop: Vec::new(),
            ignore_eos: false,
            constraint: None,
            logprobs: None,
            cache_prompt: true,
            reasoning_budget: None,
            cache_salt: None,
        }
    }
}

impl Sampling {
    /// The most likely token at every step.
    #[must_use]
    pub fn greedy() -> Self {
        Self {
            temperature: 0.0,
            ..Self::default()
        }
    }

    /// Checks every parameter against its range.
    pub(crate) fn check(&self, vocab: usize) -> Result<(), RequestError> {
        let rules = [
            (
                "temperature",
                self.temperature >= 0.0 && self.temperature.is_finite(),
                "must be a number of at least 0",
            ),
            (
                "top_p",
                self.top_p > 0.0 && self.top_p <= 1.0,
                "must be above 0 and at most 1",
            ),
            (
                "min_p",
                (0.0..=1.0).contains(&self.min_p),
                "must be between 0 and 1",
            ),
            (
                "typical_p",
                self.typical_p > 0.0 && self.typical_p <= 1.0,
                "must be above 0 and at most 1",
            ),
            (
                "repetition_penalty",
                self.repetition_penalty > 0.0 && self.repetition_penalty.is_finite(),
                "must be a number above 0",
            ),
            (
                "frequency_penalty",
                self.frequency_penalty.is_finite(),
                "must be a number",
            ),
            (
                "presence_penalty",
                self.presence_penalty.is_finite(),
                "must be a number",
            ),
            (
                "logit_bias",
                self.logit_bias.iter().all(|&(_, bias)| !bias.is_nan()),
                "must hold numbers",
            ),
            (
                "logit_bias",
                self.logit_bias
                    .iter()
                    .all(|&(token, _)| (token as usize) < vocab),
                "must name tokens of the model",
            ),
            (
                "max_tokens",
                self.max_tokens != Some(0),
                "must be at least 1",
            ),
            (
                "stop",
                self.stop.iter().all(|s| !s.is_empty()),
                "must not hold an empty text",
            ),
        ];
        match rules.into_iter().find(|(_, holds, _)| !holds) {
            Some((name, _, rule)) => Err(RequestError::InvalidParameter { name, rule }),
            None => Ok(()),
        }
    }
}
