//! I32: whole numbers, such as the ids in a table. No format of weights.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | the element, two's complement |

/// Elements of a block.
pub const BLOCK_LEN: usize = 1;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4;

/// The element of a block, rounded where `f32` has no such number.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    out[0] = i32::from_le_bytes(*block) as f32;
}
