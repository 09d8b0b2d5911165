//! Vector kernels. The only place besides the thread pool where `unsafe` is.
#![expect(unsafe_code, reason = "vector intrinsics and raw pointers")]

pub(crate) mod attention;
pub(crate) mod elementwise;
pub(crate) mod lanes;
pub(crate) mod matmul;
