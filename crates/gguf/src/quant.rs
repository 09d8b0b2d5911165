//! The block formats: one module each, with the layout of a block and its reference arithmetic.
//!
//! Each module has `BLOCK_LEN` (elements), `BLOCK_BYTES` and `dequantize` of one block, and most have
//! `quantize`; the IQ formats need an importance matrix to be any good, so they are read only.
//! Dequantising is the definition of the format and is done in the order of ggml's reference, so
//! that results are equal bit for bit. Quantising follows ggml's reference for the formats without
//! super-blocks; for Q4_K, Q5_K and Q6_K it looks for the scales of least squared error by its own way.
//!
//! Layout and arithmetic of all of them: `ggml-common.h` and `ggml-quants.c` of
//! <https://github.com/ggml-org/ggml>. Fields are little-endian; `f16` is IEEE half precision;
//! `nibble` is four bits, the low one of a byte first.

mod blocks;
mod fit;

pub mod bf16;
pub mod f16;
pub mod f32;
pub mod i32;
pub mod iq1_m;
pub mod iq1_s;
pub mod iq2_s;
pub mod iq2_xs;
pub mod iq2_xxs;
pub mod iq3_s;
pub mod iq3_xxs;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod iq_grids;
pub mod k_scales;
pub mod mxfp4;
pub mod q2_k;
pub mod q3_k;
pub mod q4_0;
pub mod q4_1;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q8_0;

pub use blocks::{dequantize, quantize};
pub(crate) use blocks::{dequantize_blocks, quantize_blocks};

#[cfg(test)]
mod tests;
