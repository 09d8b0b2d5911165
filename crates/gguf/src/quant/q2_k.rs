//! Q2_K: 256 elements of 2 bits in sixteen sub-blocks of 16; `x = (d · scale) · q − dmin · min`,
//! scale and min of the sub-block.
//!
//! | bytes | field |
//! |---|---|
//! | 0..16 | a byte for each sub-block: scale in the low nibble, min in the high one |
//! | 16..80 | `q`, pairs of bits: see `code` |
//! | 80..82 | `d`, f16 |
//! | 82..84 | `dmin`, f16 |

use super::blocks::read_f16;

/// Elements of a block.
pub const BLOCK_LEN: usize = 256;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 84;

/// The elements of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let (d, dmin) = (read_f16(block, 80), read_f16(block, 82));
    for (sub, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * f32::from(block[sub] & 0x0f);
        let min = dmin * f32::from(block[sub] >> 4);
        for (at, x) in out.iter_mut().enumerate() {
            *x = scale * f32::from(code(&block[16..80], sub * 16 + at)) - min;
        }
    }
}

/// The two bits of an element, out of 64 bytes: each half of the block has 32 bytes, in which
/// element `32·g + i` (`g` in 0..4, `i` in 0..32) is in byte `i`, shifted by `2·g`.
pub(super) fn code(pairs: &[u8], element: usize) -> u8 {
    let (half, group, at) = (element / 128, element % 128 / 32, element % 32);
    pairs[half * 32 + at] >> (2 * group) & 3
}
