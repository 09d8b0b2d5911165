//! SentencePiece's BPE as Llama 2 and Gemma use it: characters are merged into the neighbours whose joined text is
//! the token of the highest score; a character that is no token becomes its bytes.
//!
//! There are no words: a merge may cross anything. A blank is `▁`, and since vocabularies hardly ever have it inside
//! a token, most of the places before one are places that no token crosses; cutting there changes nothing but the speed.

use andante_gguf::Metadata;
use rustc_hash::{FxHashMap, FxHashSet};

use super::merge::{Joined, Merger, NONE};
use super::vocab::{Vocab, check_length};
use crate::TextError;

/// What stands for a blank.
pub(super) const BLANK: char = '▁';

/// The model of a SentencePiece vocabulary.
#[derive(Debug)]
pub(super) struct Spm {
    tokens: FxHashMap<Box<str>, Joined>,
    /// Length in bytes of the longest token.
    longest: usize,
    /// The characters that some token has before a `▁`.
    before_blank: FxHashSet<char>,
    /// The token of every byte, or of [`Spm::unknown`], or [`NONE`].
    bytes: [u32; 256],
    add_space_prefix: bool,
}

impl Spm {
    pub(super) fn from_metadata(metadata: &Metadata, vocab: &Vocab) -> Result<Self, TextError> {
        let scores = metadata
            .f32s("tokenizer.ggml.scores")?
            .unwrap_or_else(|| vec![0.0; vocab.len()]);
        check_length("tokenizer.ggml.scores", vocab.len(), scores.len())?;
        let ids = vocab.ids_of_text();
        let unknown = metadata
            .u32("tokenizer.ggml.unknown_token_id")?
            .filter(|&id| (id as usize) < vocab.len())
            .unwrap_or(NONE);
        let mut bytes = [unknown; 256];
        for (byte, slot) in (0..=u8::MAX).zip(&mut bytes) {
            let text = format!("<0x{byte:02X}>");
            if let Some(&id) = ids.get(text.as_str()) {
                *slot = id;
            }
        }
        let mut before_blank = FxHashSet::default();
        for text in ids.keys() {
            for (at, _) in text.match_indices(BLANK) {
                before_blank.extend(text[..at].chars().next_back().filter(|&c| c != BLANK));
            }
        }
        Ok(Self {
            longest: ids.keys().map(|text| text.len()).max().unwrap_or(0),
            tokens: ids
                .into_iter()
                .map(|(text, id)| {
                    let rank = rank_of_score(scores[id as usize]);
                    (text.into(), Joined { rank, id })
                })
                .collect(),
            before_blank,
            bytes,
            add_space_prefix: metadata
                .bool("tokenizer.ggml.add_space_prefix")?
                .unwrap_or(true),
        })
    }

    /// Whether a text that comes first gets a blank before it.
    pub(super) fn adds_blank(&self) -> bool {
        self.add_space_prefix
    }

    /// Appends the tokens of a text without special tokens; `first`: it begins the prompt or follows a special token.
    pub(super) fn encode(&self, text: &str, first: bool, merger: &mut Merger, ids: &mut Vec<u32>) {
        let mut escaped = String::with_capacity(text.len() + text.len() / 4 + BLANK.len_utf8());
        if first && self.add_space_prefix {
            escaped.push(BLANK);
        }
        escaped.extend(text.chars().map(|c| if c == ' ' { BLANK } else { c }));
        let mut start = 0;
        let mut previous = BLANK;
        for (at, c) in escaped.char_indices() {
            if c == BLANK && previous != BLANK && !self.before_blank.contains(&previous) {
                self.encode_part(&escaped[start..at], merger, ids);
                start = at;
            }
            previous = c;
        }
        self.encode_part(&escaped[start..], merger, ids);
    }

    fn encode_part(&self, text: &str, merger: &mut Merger, ids: &mut Vec<u32>) {
        merger.clear();
        for c in text.chars() {
            merger.push(c.len_utf8(), NONE);
        }
        merger.merge(|left, right| {
            let range = left.range().start..right.range().end;
            if range.len() > self.longest {
                return None;
            }
            self.tokens.get(&text[range]).copied()
        });
        for symbol in merger.symbols() {
            let part = &text[symbol.range()];
            match self.tokens.get(part) {
                Some(token) => ids.push(token.id),
                None => ids.extend(
                    part.bytes()
                        .map(|byte| self.bytes[usize::from(byte)])
                        .filter(|&id| id != NONE),
                ),
            }
        }
    }
}

/// Orders as the scores do, the highest first. The bits of a float, read as an integer, order the positive numbers;
/// flipped, the negative ones.
fn rank_of_score(score: f32) -> u32 {
    // Both zeros are equal.
    let bits = (score + 0.0).to_bits();
    if bits >> 31 == 0 {
        !(bits | 1 << 31)
    } else {
        bits
    }
}
