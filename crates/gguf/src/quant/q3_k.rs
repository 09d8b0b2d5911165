//! Q3_K: 256 elements of 3 bits in sixteen sub-blocks of 16; `x = (d · (scale − 32)) · (q − 4)`,
//! scale of the sub-block.
//!
//! | bytes | field |
//! |---|---|
//! | 0..32 | bit 2 of every `q`: bit `g` of byte `i` for element `32·g + i` |
//! | 32..96 | bits 0..2 of `q`, pairs of bits, as in Q2_K |
//! | 96..104 | bits 0..4 of the scales, nibbles: low ones are sub-blocks 0..8, high ones 8..16 |
//! | 104..108 | bits 4..6 of the scales: those of sub-block `4·g + i` in byte `i`, shifted by `2·g` |
//! | 108..110 | `d`, f16 |

use super::blocks::read_f16;
use super::q2_k::code;

/// Elements of a block.
pub const BLOCK_LEN: usize = 256;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 110;

/// The elements of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = read_f16(block, 108);
    for (sub, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * f32::from(scale(block, sub));
        for (at, x) in out.iter_mut().enumerate() {
            let element = sub * 16 + at;
            let high = block[element % 32] >> (element / 32) & 1;
            let q = (code(&block[32..96], element) | high << 2) as i8 - 4;
            *x = scale * f32::from(q);
        }
    }
}

/// The scale of a sub-block, −32..32.
pub fn scale(block: &[u8; BLOCK_BYTES], sub: usize) -> i8 {
    let low = block[96 + sub % 8] >> (sub / 8 * 4) & 0x0f;
    let high = block[104 + sub % 4] >> (sub / 4 * 2) & 0x03;
    (low | high << 4) as i8 - 32
}
