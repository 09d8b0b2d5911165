//! IQ3_S: 256 elements in 64 groups of four out of a grid of 512; a scale for eight groups;
//! `x = d · (1 + 2 · scale) · magnitude · sign`.
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..66 | bits 0..8 of each group's index |
//! | 66..74 | bit 8 of the indices, eight groups a byte |
//! | 74..106 | signs, one bit an element |
//! | 106..110 | scales, nibbles: 32 elements each, low ones first |

use super::blocks::read_f16;
use super::iq_grids::{IQ3_S, sign};

/// Elements of a block.
pub const BLOCK_LEN: usize = 256;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 110;

/// The elements of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = read_f16(block, 0);
    for (group, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let high = usize::from(block[66 + group / 8] >> (group % 8) & 1);
        let index = usize::from(block[2 + group]) | high << 8;
        let scale = block[106 + group / 16] >> (group / 8 % 2 * 4) & 0x0f;
        let scale = d * f32::from(1 + 2 * scale);
        for (at, code) in IQ3_S.four(index).into_iter().enumerate() {
            let magnitude = f32::from(2 * code + 1);
            out[at] = scale * magnitude * sign(block[74 + group / 2], group % 2 * 4 + at);
        }
    }
}
