//! The operations of an LLM and the CPU backend that runs them.
//!
//! Knows: the op vocabulary ([`Backend`]), the rows of a step ([`Batch`]), how tensors of a model file are computed
//! with on this machine. Does not know: architectures, layers' order, tokens' meaning, requests, scheduling.

mod backend;
mod batch;
pub mod conformance;
mod cpu;
mod error;
mod rope;

pub use backend::{
    Activation, AttentionSpec, BLOCK_TOKENS, Backend, ExpertWeights, ExpertsSpec, KvShape,
};
pub use batch::{Batch, BatchSequence, Logits};
pub use cpu::{
    CpuBackend, CpuBuffer, CpuConfig, CpuKv, CpuWeight, Isa, KvType, Level, Peak, WeightForm,
};
pub use error::ComputeError;
pub use rope::{RopeScaling, RopeSpec, RopeStyle, RopeTable};
