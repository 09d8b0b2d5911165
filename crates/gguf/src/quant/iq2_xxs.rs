//! IQ2_XXS: 256 elements in 32 groups of eight out of a grid of 256; a scale for four groups;
//! `x = d · (0.5 + scale) · 0.25 · magnitude · sign`.
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..66 | eight times four bytes of indices and a u32: 7 bits of signs for each group, 4 bits of scale on top |

use super::blocks::read_f16;
use super::iq_grids::{IQ2_VALUES, IQ2_XXS, even_signs, sign};

/// Elements of a block.
pub const BLOCK_LEN: usize = 256;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 66;

/// The elements of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = read_f16(block, 0);
    let (fields, outs) = (block[2..].as_chunks::<8>().0, out.as_chunks_mut::<32>().0);
    for (&[i0, i1, i2, i3, s0, s1, s2, s3], out) in fields.iter().zip(outs) {
        let rest = u32::from_le_bytes([s0, s1, s2, s3]);
        let scale = d * (0.5 + (rest >> 28) as f32) * 0.25;
        let groups = out.as_chunks_mut::<8>().0.iter_mut().zip([i0, i1, i2, i3]);
        for (group, (out, index)) in groups.enumerate() {
            let signs = even_signs((rest >> (7 * group)) as u8 & 0x7f);
            for (at, code) in IQ2_XXS.eight(index.into()).into_iter().enumerate() {
                out[at] = scale * f32::from(IQ2_VALUES[usize::from(code)]) * sign(signs, at);
            }
        }
    }
}
