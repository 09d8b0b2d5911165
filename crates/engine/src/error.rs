//! Errors of the engine: a refused request, a refused submission, a request that failed, an engine that cannot run.

use std::path::PathBuf;

/// Why a request was refused before it was submitted. All of them are the caller's to mend.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The prompt alone fills the context: no token could be generated.
    #[error(
        "the prompt has {prompt_tokens} tokens and the context holds {context}; at least one must be left for the answer"
    )]
    ContextLength {
        /// Tokens of the rendered prompt.
        prompt_tokens: usize,
        /// Tokens that one sequence may hold, prompt and answer together.
        context: u32,
    },
    /// There is nothing to continue.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// A token id that the model does not have.
    #[error("token {token} is outside the vocabulary of {vocab}")]
    UnknownToken {
        /// The id given.
        token: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// A sampling parameter outside its range.
    #[error("{name} {rule}")]
    InvalidParameter {
        /// Name of the field of [`crate::Sampling`].
        name: &'static str,
        /// What it must be, as in "must be at least 0".
        rule: &'static str,
    },
    /// A form of the answer that cannot be understood, enforced, or followed within the limits.
    #[error("{name}: {error}")]
    Constraint {
        /// Name of the request's field, as in [`crate::Constrained::name`].
        name: &'static str,
        /// What is wrong with it.
        error: andante_text::TextError,
    },
    /// The model file carries no chat template.
    #[error("the model has no chat template")]
    NoTemplate,
    /// The chat template failed on these messages.
    #[error(transparent)]
    Template(#[from] andante_text::TextError),
}

/// Why a request was not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// As many requests are waiting as the queue holds.
    #[error("the queue is full; try again in {retry_after_s} s")]
    QueueFull {
        /// Estimate of when a place will be free, in seconds, at least 1.
        retry_after_s: u32,
    },
    /// The engine finishes what it has and takes nothing new.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The engine has stopped after a failure.
    #[error("the engine has stopped")]
    Dead,
}

/// Why a submitted request ended without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Failure {
    /// The engine was told to stop before this request was done.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The model produced logits that are not numbers for this sequence.
    #[error("the model produced logits that are not finite numbers")]
    NonFiniteLogits,
    /// The form asked for the answer allows no further token, and no end.
    #[error("the form asked for the answer leaves no token that could come next")]
    DeadEnd,
    /// The form asked for the answer is too complex to be followed further.
    #[error("the form asked for the answer is too complex to be followed further")]
    Constraint,
    /// A forward pass failed: every request of the engine fails with it.
    #[error("the model failed")]
    Model,
    /// The request needs more memory than the engine reserved.
    #[error("the request does not fit the engine's memory")]
    TooLong,
    /// The request was not admitted in time.
    #[error("the request has waited too long for its turn")]
    QueueTimeout,
    /// The prompt was not computed in time.
    #[error("the first token has taken too long")]
    FirstTokenTimeout,
    /// The client let its ring stay full for too long.
    #[error("the client has stopped reading")]
    ReaderTimeout,
    /// The engine ended without finishing this request.
    #[error("the engine has stopped")]
    EngineStopped,
}

impl Failure {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::ShuttingDown,
        Self::NonFiniteLogits,
        Self::DeadEnd,
        Self::Constraint,
        Self::Model,
        Self::TooLong,
        Self::QueueTimeout,
        Self::FirstTokenTimeout,
        Self::ReaderTimeout,
        Self::EngineStopped,
    ];
}

/// Why an engine could not start, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// An option outside its range.
    #[error("{name} {rule}")]
    Config {
        /// The field of [`crate::EngineConfig`].
        name: &'static str,
        /// What it must be.
        rule: &'static str,
    },
    /// The model failed.
    #[error(transparent)]
    Model(#[from] andante_model::ModelError),
    /// The file for the scheduling log, or that for whole sessions, cannot be written.
    #[error("cannot write to {}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// The operating system gave no thread.
    #[error("cannot start the engine's thread: {0}")]
    Thread(#[source] std::io::Error),
    /// A bug.
    #[error("the engine has panicked")]
    Panicked,
}
