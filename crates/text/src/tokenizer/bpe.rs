//! Byte-level byte-pair encoding: words of the pre-tokenizer, merged from single bytes by the ranks of a merge list.

use andante_gguf::Metadata;
use rustc_hash::{FxHashMap, FxHashSet};

use super::bytes;
use super::merge::{Joined, Merger, NONE};
use super::split::PreTokenizer;
use super::vocab::{TokenKind, Vocab};
use crate::TextError;

/// The model of a byte-level vocabulary.
#[derive(Debug)]
pub(super) struct Bpe {
    pre_tokenizer: PreTokenizer,
    /// The token of every single byte, or [`NONE`]: some vocabularies lack bytes that valid UTF-8 has.
    bytes: [u32; 256],
    merges: FxHashMap<(u32, u32), Joined>,
    /// Whole words that are taken without merging.
    words: FxHashMap<Vec<u8>, u32>,
}

impl Bpe {
    pub(super) fn from_metadata(metadata: &Metadata, vocab: &Vocab) -> Result<Self, TextError> {
        let name = metadata.str("tokenizer.ggml.pre")?.unwrap_or("default");
        let pre_tokenizer = PreTokenizer::new(name)?;
        let ids = vocab.ids_of_text();
        let mut single = [NONE; 256];
        let mut words = FxHashMap::default();
        for (&text, &id) in &ids {
            let mut chars = text.chars();
            if let (Some(c), None) = (chars.next(), chars.next())
                && let Some(byte) = bytes::byte_of(c)
            {
                single[usize::from(byte)] = id;
            }
            if pre_tokenizer.whole_words && text.chars().all(|c| bytes::byte_of(c).is_some()) {
                let mut word = Vec::with_capacity(text.len());
                bytes::decode(text, &mut word);
                words.insert(word, id);
            }
        }
        Ok(Self {
            pre_tokenizer,
            bytes: single,
            merges: read_merges(metadata, vocab, &ids)?,
            words,
        })
    }

    /// Whether a prompt begins with BOS when the file does not say.
    pub(super) fn add_bos(&self) -> bool {
        self.pre_tokenizer.add_bos
    }

    /// Appends the tokens of a text without special tokens. Bytes that the vocabulary lacks give nothing.
    pub(super) fn encode(&self, text: &str, merger: &mut Merger, ids: &mut Vec<u32>) {
        self.pre_tokenizer.split(text, &mut |word| {
            if let Some(&id) = self.words.get(word.as_bytes()) {
                ids.push(id);
                return;
            }
            merger.clear();
            for byte in word.bytes() {
                merger.push(1, self.bytes[usize::from(byte)]);
            }
            merger.merge(|left, right| self.merges.get(&(left.id, right.id)).copied());
            ids.extend(merger.symbols().map(|s| s.id).filter(|&id| id != NONE));
        });
    }
}

/// The merge list by pairs of ids. Merges into control tokens are left out: text must not become one.
fn read_merges(
    metadata: &Metadata,
    vocab: &Vocab,
    ids: &FxHashMap<&str, u32>,
) -> Result<FxHashMap<(u32, u32), Joined>, TextError> {
    let control: FxHashSet<&str> = vocab
        .of_kinds(&[TokenKind::Control, TokenKind::Unknown])
        .map(|(_, text)| text)
        .collect();
    let lines = metadata.require_strings("tokenizer.ggml.merges")?;
    let mut merges = FxHashMap::with_capacity_and_hasher(lines.len(), Default::default());
    let mut joined = String::new();
    for (index, line) in lines.into_iter().enumerate() {
        let bad = || TextError::BadMerge {
            index,
            merge: line.to_owned(),
        };
        // A merge of the blank itself is possible, hence not at byte 0.
        let (left, right) = line
            .char_indices()
            .skip(1)
            .find(|&(_, c)| c == ' ')
            .map(|(at, _)| (&line[..at], &line[at + 1..]))
            .ok_or_else(bad)?;
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        if control.contains(joined.as_str()) {
            continue;
        }
        let id = |text: &str| ids.get(text).copied().ok_or_else(bad);
        let pair = (id(left)?, id(right)?);
        let rank = u32::try_from(index).map_err(|_| bad())?;
        merges.entry(pair).or_insert(Joined {
            rank,
            id: id(&joined)?,
        });
    }
    Ok(merges)
}
