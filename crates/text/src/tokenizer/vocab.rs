//! The tokens of a model: texts, kinds, and the ids that have a role.

use andante_gguf::Metadata;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::TextError;

/// What a token is for (`tokenizer.ggml.token_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// Part of ordinary text.
    Normal,
    /// Stands for what the vocabulary cannot write.
    Unknown,
    /// Structure of a prompt: never produced by user text.
    Control,
    /// Text that is always one token.
    UserDefined,
    /// Never produced, stands for nothing.
    Unused,
    /// One byte, as `<0xFF>`.
    Byte,
}

impl TokenKind {
    /// The numbers of the GGUF specification; others are unused tokens.
    fn from_id(id: i32) -> Self {
        match id {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            6 => Self::Byte,
            _ => Self::Unused,
        }
    }
}

/// Tokens that end an answer in every model that has them, whatever the file says about their kind.
/// The list is llama.cpp's (`src/llama-vocab.cpp`, end-of-generation ids).
const END_TEXTS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    // Fill-in-the-middle padding, repository and file separators: an answer that goes on to another file is over.
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

/// Structure of DeepSeek's conversations that its files list as user-defined: found in all text, it would be structure in users'
/// words too. Where a vocabulary has the last of them, all are control tokens.
const DSML_TEXTS: &[&str] = &["<think>", "</think>", "｜DSML｜"];

/// Keys of ids that end an answer.
const END_KEYS: &[&str] = &[
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
    "tokenizer.ggml.fim_pad_token_id",
    "tokenizer.ggml.fim_rep_token_id",
    "tokenizer.ggml.fim_sep_token_id",
];

/// The token list.
#[derive(Debug)]
pub(crate) struct Vocab {
    /// As the file has them: byte-level vocabularies in their printable alphabet, SentencePiece with `▁` for a blank.
    pub(crate) texts: Vec<String>,
    pub(crate) kinds: Vec<TokenKind>,
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
    pub(crate) ends: FxHashSet<u32>,
}

impl Vocab {
    /// Reads the list; `default_bos` and `default_eos` are for files that name none.
    pub(super) fn from_metadata(
        metadata: &Metadata,
        default_bos: Option<u32>,
        default_eos: Option<u32>,
    ) -> Result<Self, TextError> {
        let texts: Vec<String> = metadata
            .require_strings("tokenizer.ggml.tokens")?
            .into_iter()
            .map(str::to_owned)
            .collect();
        let kinds = match metadata.i32s("tokenizer.ggml.token_type")? {
            Some(ids) => ids.into_iter().map(TokenKind::from_id).collect(),
            None => vec![TokenKind::Normal; texts.len()],
        };
        check_length("tokenizer.ggml.token_type", texts.len(), kinds.len())?;
        let id = |key| token_id(metadata, key, texts.len());
        let in_range = |id: &u32| (*id as usize) < texts.len();
        let bos = id("tokenizer.ggml.bos_token_id")?.or(default_bos.filter(in_range));
        let eos = id("tokenizer.ggml.eos_token_id")?.or(default_eos.filter(in_range));
        let mut ends: FxHashSet<u32> = eos.into_iter().collect();
        for key in END_KEYS {
            ends.extend(id(key)?);
        }
        let mut vocab = Self {
            texts,
            kinds,
            bos,
            eos,
            ends,
        };
        vocab.find_ends();
        vocab.find_dsml();
        Ok(vocab)
    }

    /// Number of tokens.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// The kind of a token; ids outside the vocabulary are unused.
    pub(crate) fn kind(&self, id: u32) -> TokenKind {
        self.kinds
            .get(id as usize)
            .copied()
            .unwrap_or(TokenKind::Unused)
    }

    /// Tokens of the given kinds with their texts; empty texts cannot be found in a text and are left out.
    pub(crate) fn of_kinds(&self, kinds: &[TokenKind]) -> impl Iterator<Item = (u32, &str)> {
        (0..)
            .zip(&self.texts)
            .zip(&self.kinds)
            .filter(move |((_, text), kind)| !text.is_empty() && kinds.contains(kind))
            .map(|((id, text), _)| (id, text.as_str()))
    }

    /// Ids by text, of the tokens that ordinary text may become; the first of equal texts.
    pub(super) fn ids_of_text(&self) -> FxHashMap<&str, u32> {
        let mut ids = FxHashMap::with_capacity_and_hasher(self.len(), Default::default());
        for (id, (text, kind)) in (0..).zip(self.texts.iter().zip(&self.kinds)) {
            if !text.is_empty() && !matches!(kind, TokenKind::Control | TokenKind::Unknown) {
                ids.entry(text.as_str()).or_insert(id);
            }
        }
        ids
    }

    /// Makes the tokens of [`DSML_TEXTS`] control tokens.
    fn find_dsml(&mut self) {
        let special = [TokenKind::UserDefined, TokenKind::Control];
        let found: Vec<(u32, usize)> = self
            .of_kinds(&special)
            .filter_map(|(id, text)| {
                Some((id, DSML_TEXTS.iter().position(|known| *known == text)?))
            })
            .collect();
        if found
            .iter()
            .any(|&(_, known)| known + 1 == DSML_TEXTS.len())
        {
            for (id, _) in found {
                self.kinds[id as usize] = TokenKind::Control;
            }
        }
    }

    /// Adds the tokens that end an answer by their text, and makes them control tokens.
    fn find_ends(&mut self) {
        let ends: FxHashSet<&str> = END_TEXTS.iter().copied().collect();
        let mut found: FxHashMap<&str, u32> = FxHashMap::default();
        for (id, text) in (0..).zip(&self.texts) {
            if let Some(&end) = ends.get(text.as_str()) {
                found.insert(end, id);
            }
        }
        for &id in found.values() {
            self.kinds[id as usize] = TokenKind::Control;
        }
        let has = |text| found.contains_key(text);
        // Harmony and Solar end their channels, not their answers, with <|end|>; Gemma 4 has an </s> that is text.
        if (has("<|call|>") && has("<|return|>"))
            || (has("<|flush|>") && (has("<|call|>") || has("<|calls|>")))
        {
            found.remove("<|end|>");
        }
        if found.contains_key("<|tool_response>") {
            found.remove("</s>");
        }
        self.ends.extend(found.into_values());
    }
}

/// Checks that an array has one entry for each token.
pub(super) fn check_length(
    key: &'static str,
    expected: usize,
    found: usize,
) -> Result<(), TextError> {
    if expected == found {
        Ok(())
    } else {
        Err(TextError::VocabularyLength {
            key,
            expected,
            found,
        })
    }
}

fn token_id(
    metadata: &Metadata,
    key: &'static str,
    vocab: usize,
) -> Result<Option<u32>, TextError> {
    match metadata.u32(key)? {
        Some(id) if id as usize >= vocab => Err(TextError::TokenOutOfRange { key, id, vocab }),
        id => Ok(id),
    }
}
