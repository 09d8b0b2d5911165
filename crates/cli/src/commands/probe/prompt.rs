//! Prompts of random tokens or words, never the same twice, so that no prefix cache can help.

use std::time::{SystemTime, UNIX_EPOCH};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde_json::Value;

/// Ids that every usual vocabulary has and that are ordinary text in it: above control and byte tokens, below 32,000.
const IDS: std::ops::Range<u32> = 1000..30_000;

/// Common words, most of them one token in most vocabularies.
const WORDS: [&str; 64] = [
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world",
    "school", "state", "family", "student", "group", "country", "problem", "hand", "part", "place",
    "case", "week", "company", "system", "program", "question", "work", "night", "point", "home",
    "water", "room", "mother", "area", "money", "story", "fact", "month", "lot", "right", "study",
    "book", "eye", "job", "word", "business", "issue", "side", "kind", "head", "house", "service",
    "friend", "father", "power", "hour", "game", "line", "end", "member", "law", "car", "city",
];

/// A source of prompts.
#[derive(Debug)]
pub(super) struct Prompts {
    random: Pcg64,
    /// As arrays of token ids, or as text.
    pub(super) ids: bool,
    /// Tokens that a word of text makes; measured on the server.
    pub(super) tokens_per_word: f64,
}

impl Prompts {
    /// Without a seed, prompts that no earlier run has sent.
    pub(super) fn new(seed: Option<u64>) -> Self {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH);
        let seed = seed.unwrap_or_else(|| now().map_or(0, |time| time.as_nanos() as u64));
        Self {
            random: Pcg64::seed_from_u64(seed),
            ids: true,
            tokens_per_word: 1.0,
        }
    }

    /// A prompt of about `tokens` tokens, exactly that many as ids; the server may add one in front.
    pub(super) fn prompt(&mut self, tokens: u32) -> Value {
        if self.ids {
            let ids = (0..tokens).map(|_| self.random.random_range(IDS));
            return ids.collect::<Vec<_>>().into();
        }
        let words = (f64::from(tokens) / self.tokens_per_word).round().max(1.0) as usize;
        let words = (0..words).map(|_| WORDS[self.random.random_range(0..WORDS.len())]);
        words.collect::<Vec<_>>().join(" ").into()
    }
}

/// One prompt behind another.
pub(super) fn join(beginning: &Value, rest: Value) -> Value {
    match (beginning, rest) {
        (Value::Array(beginning), Value::Array(rest)) => {
            [&beginning[..], &rest[..]].concat().into()
        }
        (Value::String(beginning), Value::String(rest)) => format!("{beginning} {rest}").into(),
        _ => unreachable!("a server's prompts have one form"),
    }
}

#[cfg(test)]
mod tests;
