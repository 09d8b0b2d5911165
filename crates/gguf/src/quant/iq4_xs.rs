//! IQ4_XS: 256 elements of 4 bits in eight sub-blocks of 32, values as in IQ4_NL;
//! `x = (d · (scale − 32)) · VALUES[q]`, scale of the sub-block.
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..4 | bits 4..6 of the scales, u16: those of sub-block `s` shifted by `2·s` |
//! | 4..8 | bits 0..4 of the scales, nibbles: sub-block `2·i` low, `2·i + 1` high in byte `i` |
//! | 8..136 | `q`, 16 bytes for each sub-block: low nibbles its elements 0..16, high ones 16..32 |

use super::blocks::{nibble, read_f16};
use super::iq4_nl::VALUES;

/// Elements of a block.
pub const BLOCK_LEN: usize = 256;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 136;

/// The elements of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = read_f16(block, 0);
    let codes = block[8..].as_chunks::<16>().0;
    for (sub, (out, codes)) in out
        .as_chunks_mut::<32>()
        .0
        .iter_mut()
        .zip(codes)
        .enumerate()
    {
        let scale = d * f32::from(scale(block, sub));
        for (index, x) in out.iter_mut().enumerate() {
            *x = scale * f32::from(VALUES[usize::from(nibble(codes, index))]);
        }
    }
}

/// The scale of a sub-block, −32..32.
pub fn scale(block: &[u8; BLOCK_BYTES], sub: usize) -> i8 {
    let low = block[4 + sub / 2] >> (sub % 2 * 4) & 0x0f;
    let high = (u16::from_le_bytes([block[2], block[3]]) >> (2 * sub) & 3) as u8;
    (low | high << 4) as i8 - 32
}
