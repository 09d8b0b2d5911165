//! Policies of other servers, in the smallest form that shows what they do: prompts in order of arrival, a fixed number of
//! prompt tokens per step.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Who goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Prompts alone as long as there are any (SGLang without mixed chunks, mini-sglang, nano-vllm).
    PrefillFirst,
    /// Answers alone as long as there are any.
    DecodeFirst,
    /// A step of prompts, a step of answers.
    Alternate,
    /// All answers and what is left of the chunk in every step (Sarathi-Serve, vLLM, llama-server).
    Mixed,
}

/// A policy that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Andante's scheduler; with its stall bound in ms if it is not the common one.
    Ours { stall_ms: Option<u32> },
    /// Another one, with its chunk in tokens if it is not the common one.
    Fixed { kind: Kind, chunk: Option<u32> },
}

/// A text that names no policy.
#[derive(Debug, Error)]
#[error(
    "one of ours, prefill-first, decode-first, alternate, mixed; `mixed:512` gives the chunk, `ours:60` the bound in ms"
)]
pub(crate) struct NoPolicy;

impl FromStr for Choice {
    type Err = NoPolicy;

    fn from_str(text: &str) -> Result<Self, NoPolicy> {
        let (name, number) = match text.split_once(':') {
            Some((name, number)) => {
                let number = number.parse().ok().filter(|&number: &u32| number > 0);
                (name, Some(number.ok_or(NoPolicy)?))
            }
            None => (text, None),
        };
        let kind = match name {
            "ours" => return Ok(Self::Ours { stall_ms: number }),
            "prefill-first" => Kind::PrefillFirst,
            "decode-first" => Kind::DecodeFirst,
            "alternate" => Kind::Alternate,
            "mixed" => Kind::Mixed,
            _ => return Err(NoPolicy),
        };
        Ok(Self::Fixed {
            kind,
            chunk: number,
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PrefillFirst => "prefill-first",
            Self::DecodeFirst => "decode-first",
            Self::Alternate => "alternate",
            Self::Mixed => "mixed",
        })
    }
}

/// A policy with its chunk and what it remembers.
#[derive(Debug, Clone)]
pub(crate) struct Fixed {
    kind: Kind,
    /// Tokens of a step; in a mixed step the decode rows count.
    chunk: u32,
    /// Alternate: the last step was one of prompts.
    owed: bool,
}

/// What a step holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// All decoders.
    pub(crate) decode: bool,
    /// Index of a prompt and its tokens.
    pub(crate) parts: Vec<(usize, u32)>,
}

impl Fixed {
    pub(crate) fn new(kind: Kind, chunk: u32) -> Self {
        Self {
            kind,
            chunk,
            owed: false,
        }
    }

    /// `prompts`: tokens still to compute of each, the oldest first.
    pub(crate) fn plan(&mut self, prompts: &[u32], decoders: u32) -> Turn {
        let decode = decoders > 0;
        let (decode, budget) = match self.kind {
            Kind::PrefillFirst if prompts.is_empty() => (decode, 0),
            Kind::PrefillFirst => (false, self.chunk),
            Kind::DecodeFirst if decode => (true, 0),
            Kind::DecodeFirst => (false, self.chunk),
            Kind::Alternate if prompts.is_empty() || (decode && self.owed) => (decode, 0),
            Kind::Alternate => (false, self.chunk),
            Kind::Mixed => (decode, self.chunk.saturating_sub(decoders)),
        };
        let parts = fill(prompts, budget);
        self.owed = !parts.is_empty();
        Turn { decode, parts }
    }
}

/// First come, first served.
fn fill(prompts: &[u32], mut budget: u32) -> Vec<(usize, u32)> {
    let mut parts = Vec::new();
    for (index, &remaining) in prompts.iter().enumerate() {
        if budget == 0 {
            break;
        }
        let tokens = remaining.min(budget);
        budget -= tokens;
        parts.push((index, tokens));
    }
    parts
}

#[cfg(test)]
mod tests;
