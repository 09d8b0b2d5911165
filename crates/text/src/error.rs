//! What can go wrong with a vocabulary or a template: everything here is caused by the model file or by a request.

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// A metadata key is absent or has the wrong type.
    #[error(transparent)]
    Metadata(#[from] andante_gguf::Error),
    /// `tokenizer.ggml.model` names a kind of tokenizer that is not supported.
    #[error("unknown tokenizer model '{name}' (known: {known})")]
    UnknownTokenizer {
        /// The name in the file.
        name: String,
        /// The supported names.
        known: &'static str,
    },
    /// `tokenizer.ggml.pre` names a pre-tokenizer that is not supported.
    #[error("unknown pre-tokenizer '{name}' (known: {known})")]
    UnknownPreTokenizer {
        /// The name in the file.
        name: String,
        /// The supported names, separated by commas.
        known: String,
    },
    /// An array of the vocabulary has another length than `tokenizer.ggml.tokens`.
    #[error("{key} has {found} entries, the vocabulary has {expected} tokens")]
    VocabularyLength {
        /// The metadata key.
        key: &'static str,
        /// Number of tokens.
        expected: usize,
        /// Number of entries.
        found: usize,
    },
    /// A special token id lies outside the vocabulary.
    #[error("{key} is {id}, the vocabulary has {vocab} tokens")]
    TokenOutOfRange {
        /// The metadata key.
        key: &'static str,
        /// The id in the file.
        id: u32,
        /// Number of tokens.
        vocab: usize,
    },
    /// A merge is not two known tokens whose concatenation is a token.
    #[error("tokenizer.ggml.merges[{index}] '{merge}' does not join two tokens into a third")]
    BadMerge {
        /// Index in the array.
        index: usize,
        /// The text of the merge.
        merge: String,
    },
    /// The chat template does not parse, or failed while rendering.
    #[error("chat template{}: {message}", line.map(|n| format!(" line {n}")).unwrap_or_default())]
    Template {
        /// Line in the template, counted from 1.
        line: Option<usize>,
        /// What the template or its engine said.
        message: String,
    },
}
