//! Text and tokens: tokenizers, chat templates, streaming output.
#![forbid(unsafe_code)]

mod chat;
mod error;
mod output;
mod tokenizer;

pub use chat::{ChatRequest, Message, Role, ToolCall};
pub use error::TextError;
pub use output::{Output, OutputStream};
pub use tokenizer::{Special, Tokenizer};
