//! Text and tokens: tokenizers, chat templates, streaming output.
#![forbid(unsafe_code)]

mod chat;
mod error;
mod output;
mod prompt;
mod template;
mod tokenizer;

pub use chat::{ChatRequest, Message, Role, ToolCall};
pub use error::TextError;
pub use output::{Output, OutputStream};
pub use prompt::Prompt;
pub use template::ChatTemplate;
pub use tokenizer::{Special, Tokenizer};
