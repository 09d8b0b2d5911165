//! The CPU backend: a thread pool, instruction-set tokens, kernels.

mod isa;
mod matmul;
mod pool;
mod simd;

pub use isa::{Isa, Level};
