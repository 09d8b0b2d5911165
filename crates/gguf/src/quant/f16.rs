//! F16: IEEE half precision.
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | the element |

use super::blocks::{read_f16, write_f16};

/// Elements of a block.
pub const BLOCK_LEN: usize = 1;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 2;

/// The element of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    out[0] = read_f16(block, 0);
}

/// The block of an element, rounded to nearest, ties to even.
pub fn quantize(values: &[f32; BLOCK_LEN], block: &mut [u8; BLOCK_BYTES]) {
    write_f16(block, 0, values[0]);
}
