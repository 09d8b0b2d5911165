//! The operations of an LLM and the CPU backend that runs them.
//!
//! Knows: the op vocabulary ([`Backend`]), the rows of a step ([`Batch`]), how tensors of a model file are computed
//! with on this machine. Does not know: architectures, layers' order, tokens' meaning, requests, scheduling.

mod backend;
mod batch;
pub mod conformance;
mod cpu;
mod deepseek4;
mod error;
mod rope;

pub use backend::{
    Activation, AttentionSpec, BLOCK_TOKENS, Backend, ExpertWeights, ExpertsSpec, KvShape,
};
pub use batch::{Batch, BatchSequence, Logits};
pub use cpu::{
    CpuBackend, CpuBuffer, CpuChoices, CpuConfig, CpuKv, CpuRecords, CpuWeight, Isa, KvType, Level,
    Peak, WeightForm, laid_out_bytes,
};
pub use deepseek4::{
    CompressSpec, CompressWeights, CompressedRows, Deepseek4, HyperSpec, HyperWeights, IndexSpec,
    Kept, Region, RouteBy, RouteSpec, Row, WindowSpec,
};
pub use error::ComputeError;
pub use rope::{RopeScaling, RopeSpec, RopeStyle, RopeTable};
