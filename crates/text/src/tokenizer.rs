//! Text to tokens and tokens to bytes, from the vocabulary in a model file.
//!
//! Ids and bytes are those of llama.cpp (`src/llama-vocab.cpp`) for the same file, with one exception: here ordinary text never
//! becomes a control token, not even by merging. The merge loops and the splitting are written here, and not taken
//! from the `tokenizers` crate, for three reasons: SentencePiece's order of merges (by score, ties leftmost, characters outside
//! the vocabulary included) is not one that its BPE model can express; its patterns backtrack, and when they run into the
//! engine's limit the rest of the text silently becomes one word; and bytes and ids need no string for each token.

mod bpe;
mod bytes;
mod merge;
mod special;
mod split;
mod spm;
#[cfg(test)]
mod tests;
mod vocab;

use andante_gguf::Metadata;

use bpe::Bpe;
use merge::Merger;
pub(crate) use special::{Fragment, SpecialTokens};
use spm::Spm;
pub(crate) use vocab::TokenKind;
use vocab::Vocab;

use crate::TextError;

/// What the spelling of a control token in a text means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// Nothing: it is text like any other. For everything that a user wrote.
    Text,
    /// The token. For text that the operator vouches for, such as a raw completion prompt.
    Parse,
}

/// A model's vocabulary and the way it cuts text into tokens.
#[derive(Debug)]
pub struct Tokenizer {
    vocab: Vocab,
    model: Model,
    /// The bytes of every token.
    pieces: Pieces,
    /// All tokens that are found by their spelling.
    special: SpecialTokens,
    /// Those of them that are found in user text as well.
    user_defined: SpecialTokens,
    add_bos: bool,
    add_eos: bool,
}

#[derive(Debug)]
enum Model {
    Bpe(Box<Bpe>),
    Spm(Box<Spm>),
}

impl Tokenizer {
    /// Reads the `tokenizer.ggml.*` keys of a model file.
    ///
    /// # Errors
    /// Keys that are missing, of the wrong type or inconsistent, and tokenizers or pre-tokenizers that are not supported.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, TextError> {
        let (vocab, model, default_bos) = match metadata.require_str("tokenizer.ggml.model")? {
            "gpt2" => {
                let vocab = Vocab::from_metadata(metadata, None, None)?;
                let bpe = Bpe::from_metadata(metadata, &vocab)?;
                let add_bos = bpe.add_bos();
                (vocab, Model::Bpe(Box::new(bpe)), add_bos)
            }
            "llama" => {
                let vocab = Vocab::from_metadata(metadata, Some(1), Some(2))?;
                let spm = Spm::from_metadata(metadata, &vocab)?;
                (vocab, Model::Spm(Box::new(spm)), true)
            }
            name => {
                return Err(TextError::UnknownTokenizer {
                    name: name.to_owned(),
                    known: "gpt2, llama",
                });
            }
        };
        let flag = |key, default| metadata.bool(key).map(|flag| flag.unwrap_or(default));
        let add_bos = flag("tokenizer.ggml.add_bos_token", default_bos)?;
        let add_eos = flag("tokenizer.ggml.add_eos_token", false)?;
        Ok(Self {
            pieces: Pieces::of(&vocab, &model),
            special: SpecialTokens::new(vocab.of_kinds(&[
                TokenKind::Control,
                TokenKind::Unknown,
                TokenKind::UserDefined,
            ])),
            user_defined: SpecialTokens::new(vocab.of_kinds(&[TokenKind::UserDefined])),
            add_bos: add_bos && vocab.bos.is_some(),
            add_eos: add_eos && vocab.eos.is_some(),
            vocab,
            model,
        })
    }

    /// The tokens of a text, without BOS and EOS. With [`Special::Text`] none of them is a control token.
    #[must_use]
    pub fn encode(&self, text: &str, special: Special) -> Vec<u32> {
        let mut encoder = Encoder::new(self);
        encoder.text(text, special);
        encoder.finish()
    }

    /// The bytes of a token: half a character is possible, and control tokens give their spelling.
    /// Ids outside the vocabulary have none.
    #[must_use]
    pub fn piece(&self, token: u32) -> &[u8] {
        self.pieces.get(token)
    }

    /// Number of tokens in the vocabulary.
    #[must_use]
    pub fn vocab(&self) -> usize {
        self.vocab.len()
    }

    /// Whether a prompt begins with [`Tokenizer::bos`].
    #[must_use]
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether a text is followed by [`Tokenizer::eos`]; for embeddings and training, not for prompts to be continued.
    #[must_use]
    pub fn add_eos(&self) -> bool {
        self.add_eos
    }

    /// The token that begins a text.
    #[must_use]
    pub fn bos(&self) -> Option<u32> {
        self.vocab.bos
    }

    /// The token that ends a text; an answer may end with others too, see [`Tokenizer::is_end`].
    #[must_use]
    pub fn eos(&self) -> Option<u32> {
        self.vocab.eos
    }

    /// Whether an answer ends with this token.
    #[must_use]
    pub fn is_end(&self, token: u32) -> bool {
        self.vocab.ends.contains(&token)
    }

    /// Whether the token is structure rather than text.
    #[must_use]
    pub fn is_control(&self, token: u32) -> bool {
        self.vocab.kind(token) == TokenKind::Control
    }

    /// What the token is for.
    pub(crate) fn kind(&self, token: u32) -> TokenKind {
        self.vocab.kind(token)
    }

    /// Whether the token is said by its bytes: not structure, and not a stand-in for what the vocabulary cannot write.
    pub(crate) fn is_text(&self, token: u32) -> bool {
        matches!(
            self.vocab.kind(token),
            TokenKind::Normal | TokenKind::Byte | TokenKind::UserDefined
        )
    }

    /// Whether the token is found in all text by its spelling.
    pub(crate) fn is_user_defined(&self, token: u32) -> bool {
        self.vocab.kind(token) == TokenKind::UserDefined
    }

    /// Whether a text that begins a prompt or follows a special token is encoded with a blank before it.
    pub(crate) fn begins_with_blank(&self) -> bool {
        match &self.model {
            Model::Bpe(_) => false,
            Model::Spm(spm) => spm.adds_blank(),
        }
    }

    /// The tokens of the given kinds and how they are written.
    pub(crate) fn spellings(&self, kinds: &[TokenKind]) -> impl Iterator<Item = (u32, &str)> {
        self.vocab.of_kinds(kinds)
    }
}

impl Model {
    /// Appends the bytes that a token stands for.
    fn piece(&self, kind: TokenKind, text: &str, out: &mut Vec<u8>) {
        match (kind, self) {
            (TokenKind::Unused, _) => {}
            (TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined, _) => {
                out.extend_from_slice(text.as_bytes());
            }
            (TokenKind::Byte, _) => out.extend(byte_of_text(text)),
            (TokenKind::Normal, Self::Bpe(_)) => bytes::decode(text, out),
            (TokenKind::Normal, Self::Spm(_)) => {
                for (index, part) in text.split(spm::BLANK).enumerate() {
                    if index > 0 {
                        out.push(b' ');
                    }
                    out.extend_from_slice(part.as_bytes());
                }
            }
        }
    }
}

/// The bytes of every token, one after the other.
#[derive(Debug)]
struct Pieces {
    bytes: Vec<u8>,
    /// Where each token's bytes begin, and where the last one's end.
    starts: Vec<usize>,
}

impl Pieces {
    fn of(vocab: &Vocab, model: &Model) -> Self {
        let (mut bytes, mut starts) = (Vec::new(), Vec::with_capacity(vocab.len() + 1));
        for (id, text) in (0..).zip(&vocab.texts) {
            starts.push(bytes.len());
            model.piece(vocab.kind(id), text, &mut bytes);
        }
        starts.push(bytes.len());
        Self { bytes, starts }
    }

    fn get(&self, token: u32) -> &[u8] {
        match self.starts.get(token as usize..) {
            Some(&[start, end, ..]) => &self.bytes[start..end],
            _ => &[],
        }
    }
}

/// The byte that `<0xFF>` stands for.
fn byte_of_text(text: &str) -> Option<u8> {
    u8::from_str_radix(text.strip_prefix("<0x")?.strip_suffix('>')?, 16).ok()
}

/// Collects the tokens of a prompt made of texts and control tokens.
pub(crate) struct Encoder<'v> {
    tokenizer: &'v Tokenizer,
    merger: Merger,
    ids: Vec<u32>,
    /// Nothing but special tokens stands before what comes next.
    first: bool,
}

impl<'v> Encoder<'v> {
    pub(crate) fn new(tokenizer: &'v Tokenizer) -> Self {
        Self::continuing(tokenizer, Vec::new(), true)
    }

    /// Goes on behind `ids`; `first` as in the field.
    pub(crate) fn continuing(tokenizer: &'v Tokenizer, ids: Vec<u32>, first: bool) -> Self {
        Self {
            tokenizer,
            merger: Merger::default(),
            ids,
            first,
        }
    }

    /// Appends one token.
    pub(crate) fn token(&mut self, id: u32) {
        self.ids.push(id);
        self.first = true;
    }

    /// Appends the tokens of a text.
    pub(crate) fn text(&mut self, text: &str, special: Special) {
        let tokenizer = self.tokenizer;
        let tokens = match special {
            Special::Text => &tokenizer.user_defined,
            Special::Parse => &tokenizer.special,
        };
        tokens.fragments(text, |fragment| match fragment {
            Fragment::Token { id, .. } => self.token(id),
            Fragment::Text(text) => {
                match &tokenizer.model {
                    Model::Bpe(bpe) => bpe.encode(text, &mut self.merger, &mut self.ids),
                    Model::Spm(spm) => {
                        spm.encode(text, self.first, &mut self.merger, &mut self.ids);
                    }
                }
                self.first = false;
            }
        });
    }

    pub(crate) fn finish(self) -> Vec<u32> {
        self.ids
    }
}
