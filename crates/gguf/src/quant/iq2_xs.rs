//! IQ2_XS: 256 elements in 32 groups of eight out of a grid of 512; a scale for two groups;
//! `x = d · (0.5 + scale) · 0.25 · magnitude · sign`.
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..66 | a u16 for each group: 9 bits of index, 7 bits of signs on top |
//! | 66..74 | scales, nibbles: groups `4·i` and `4·i + 1` low, the next two high in byte `i` |

use super::blocks::read_f16;
use super::iq_grids::{IQ2_VALUES, IQ2_XS, even_signs, sign};

/// Elements of a block.
pub const BLOCK_LEN: usize = 256;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 74;

/// The elements of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = read_f16(block, 0);
    let fields = block[2..66].as_chunks::<2>().0;
    let outs = out.as_chunks_mut::<8>().0;
    for (group, (&field, out)) in fields.iter().zip(outs).enumerate() {
        let field = u16::from_le_bytes(field);
        let scale = block[66 + group / 4] >> (group / 2 % 2 * 4) & 0x0f;
        let scale = d * (0.5 + f32::from(scale)) * 0.25;
        let signs = even_signs((field >> 9) as u8);
        for (at, code) in IQ2_XS.eight((field & 511).into()).into_iter().enumerate() {
            out[at] = scale * f32::from(IQ2_VALUES[usize::from(code)]) * sign(signs, at);
        }
    }
}
