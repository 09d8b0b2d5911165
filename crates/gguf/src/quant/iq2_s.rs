//! IQ2_S: 256 elements in 32 groups of eight out of a grid of 1024; a scale for two groups;
//! `x = d · (0.5 + scale) · 0.25 · magnitude · sign`.
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..34 | bits 0..8 of each group's index |
//! | 34..66 | signs, a byte for each group |
//! | 66..74 | bits 8..10 of the indices, pairs of bits, four groups a byte |
//! | 74..82 | scales, nibbles: groups `4·i` and `4·i + 1` low, the next two high in byte `i` |

use super::blocks::read_f16;
use super::iq_grids::{IQ2_S, IQ2_VALUES, sign};

/// Elements of a block.
pub const BLOCK_LEN: usize = 256;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 82;

/// The elements of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = read_f16(block, 0);
    for (group, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let high = usize::from(block[66 + group / 4] >> (group % 4 * 2) & 3);
        let index = usize::from(block[2 + group]) | high << 8;
        let scale = block[74 + group / 4] >> (group / 2 % 2 * 4) & 0x0f;
        let scale = d * (0.5 + f32::from(scale)) * 0.25;
        for (at, code) in IQ2_S.eight(index).into_iter().enumerate() {
            out[at] =
                scale * f32::from(IQ2_VALUES[usize::from(code)]) * sign(block[34 + group], at);
        }
    }
}
