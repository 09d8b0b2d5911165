//! One module per command.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod config;
pub(crate) mod health;
pub(crate) mod inspect;
pub(crate) mod kv;
pub(crate) mod logits;
pub(crate) mod manual;
pub(crate) mod perplexity;
pub(crate) mod probe;
pub(crate) mod pull;
pub(crate) mod quantize;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod simulate;
pub(crate) mod tokens;
pub(crate) mod top;
