//! Model graphs built from GGUF files.
//!
//! Knows: which architectures exist, what their metadata and tensors mean, and in which order the ops of a forward pass run.
//! Does not know: how an op is computed (`andante-compute`), what a token says (`andante-text`), which sequence runs when (`andante-sched`).
//!
//! * [`load`] turns a file and a backend into a [`Model`].
//! * [`outline()`] says what a file's model would be and take.
//! * [`Model`] is what the engine drives: reserve, forward, logits.
//! * `DecoderSpec` is everything that tells one member of the decoder family from another; `arch/` reads it from a file,
//!   `decoder.rs` holds the only layer loop.
//! * `deepseek4` is the one graph outside the family.
#![forbid(unsafe_code)]

mod arch;
mod decoder;
mod deepseek4;
mod error;
mod identity;
mod loader;
mod metadata;
mod model;
mod outline;
mod spec;
mod wanted;

pub use andante_compute::{Batch, BatchSequence, Logits as RowLogits};

pub use arch::known_architectures;
pub use error::ModelError;
pub use loader::{is_of_experts, load};
pub use model::{KvLayout, Limits, Logits, Model, ModelInfo, Pooling, States};
pub use outline::{Outline, outline};
