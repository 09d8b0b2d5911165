//! BF16: the upper half of an IEEE single.
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | the element |

use half::bf16;

/// Elements of a block.
pub const BLOCK_LEN: usize = 1;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 2;

/// The element of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    out[0] = f32::from_bits(u32::from(u16::from_le_bytes(*block)) << 16);
}

/// The block of an element, rounded to nearest, ties to even.
pub fn quantize(values: &[f32; BLOCK_LEN], block: &mut [u8; BLOCK_BYTES]) {
    *block = bf16::from_f32(values[0]).to_le_bytes();
}
