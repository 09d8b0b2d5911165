//! Kernels in vector instructions, each behind a safe function that takes an [`Isa`](super::Isa).
#![expect(unsafe_code, reason = "vector intrinsics")]

pub(crate) mod matmul;
