//! Model graphs built from GGUF files.
//!
//! Knows: which architectures exist, what their metadata and tensors mean, and in which order the ops of a forward pass run.
//! Does not know: how an op is computed (`andante-compute`), what a token says (`andante-text`), which sequence runs when (`andante-sched`).
//!
//! [`Model`] is what the engine drives: reserve, forward, logits.
#![forbid(unsafe_code)]

mod error;
mod model;

pub use andante_compute::{Batch, BatchSequence};

pub use error::ModelError;
pub use model::{KvLayout, Limits, Logits, Model, ModelInfo};
