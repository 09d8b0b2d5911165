//! F32: IEEE single precision.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | the element |

/// Elements of a block.
pub const BLOCK_LEN: usize = 1;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4;

/// The element of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    out[0] = f32::from_le_bytes(*block);
}

/// The block of an element.
pub fn quantize(values: &[f32; BLOCK_LEN], block: &mut [u8; BLOCK_BYTES]) {
    *block = values[0].to_le_bytes();
}
