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
    /// The vocabulary has more tokens or longer ones than grammars can be compiled for.
    #[error(
        "answers in a given form are not possible with this model: its vocabulary is too large"
    )]
    Unconstrainable,
    /// The form asked for an answer cannot be understood, enforced, or followed within the limits.
    #[error("{message}{}", path.as_ref().map(|path| format!(" (in `{path}`)")).unwrap_or_default())]
    Constraint {
        /// What is wrong with it.
        message: String,
        /// Where in a schema, as a JSON pointer; `None` where that is nowhere in particular.
        path: Option<String>,
    },
    /// No token may come next, and the answer must not end.
    #[error("the form asked for the answer leaves no token that could come next")]
    DeadEnd,
    /// The built-in encoding needs a control token that the vocabulary lacks.
    #[error("the chat encoding needs the control token {token}, which the vocabulary lacks")]
    MissingToken {
        /// How it is spelt.
        token: &'static str,
    },
    /// A file of wording for the built-in encoding is malformed.
    #[error("line {line} of the wording: {what}")]
    Prose {
        /// Line in the file, counted from 1.
        line: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// The built-in encoding has no such choice, or no such way of it.
    #[error("`{choice}` is none of the encoding's choices (known: {known})")]
    UnknownChoice {
        /// What was asked for.
        choice: String,
        /// The known names, separated by commas.
        known: String,
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

impl TextError {
    /// What is wrong with a constraint, nowhere in particular.
    pub(crate) fn constraint(message: impl Into<String>) -> Self {
        Self::Constraint {
            message: message.into(),
            path: None,
        }
    }
}
