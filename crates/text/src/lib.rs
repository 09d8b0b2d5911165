//! Text and tokens: tokenizers, chat templates, streaming output.
#![forbid(unsafe_code)]

mod chat;
mod error;
mod output;

pub use chat::{ChatRequest, Message, Role, ToolCall};
pub use error::TextError;
pub use output::{Output, OutputStream};
