//! Text and tokens: tokenizers, chat templates, streaming output.
//!
//! Knows: how a vocabulary cuts text and what bytes a token stands for, how a conversation becomes a prompt, and what of an
//! answer may be shown. Does not know: models, sampling, scheduling, HTTP or any wire format.
#![forbid(unsafe_code)]

mod chat;
mod constraint;
mod dialect;
mod error;
mod output;
mod part;
mod prompt;
mod replay;
mod template;
#[cfg(test)]
mod test_vocab;
mod tokenizer;

pub use chat::{ChatRequest, Message, Role, ToolCall, ToolChoice};
pub use constraint::{Constraint, ConstraintCompiler, Matcher};
pub use dialect::{Dialect, Opening, Parser, is_strict};
pub use error::TextError;
pub use output::{Output, OutputStream};
pub use part::Part;
pub use prompt::{Prompt, Spelling};
pub use replay::{Turn, replay};
pub use template::{ChatTemplate, Choices, Prose, choices};
pub use tokenizer::{Special, Tokenizer};
