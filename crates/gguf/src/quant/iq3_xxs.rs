//! IQ3_XXS: 256 elements in 64 groups of four out of a grid of 256; a scale for eight groups;
//! `x = d · (0.5 + scale) · 0.5 · magnitude · sign`.
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..66 | the groups' indices |
//! | 66..98 | a u32 for eight groups: 7 bits of signs for each pair of groups, 4 bits of scale on top |

use super::blocks::read_f16;
use super::iq_grids::{IQ3_XXS, IQ3_XXS_VALUES, even_signs, sign};

/// Elements of a block.
pub const BLOCK_LEN: usize = 256;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 98;

/// The elements of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = read_f16(block, 0);
    let fields = block[66..].as_chunks::<4>().0;
    for (group, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let rest = u32::from_le_bytes(fields[group / 8]);
        let scale = d * (0.5 + (rest >> 28) as f32) * 0.5;
        let signs = even_signs((rest >> (7 * (group / 2 % 4))) as u8 & 0x7f);
        let codes = IQ3_XXS.four(block[2 + group].into());
        for (at, code) in codes.into_iter().enumerate() {
            let magnitude = f32::from(IQ3_XXS_VALUES[usize::from(code)]);
            out[at] = scale * magnitude * sign(signs, group % 2 * 4 + at);
        }
    }
}
