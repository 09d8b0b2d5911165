//! Q5_K: 256 elements of 5 bits in eight sub-blocks of 32; `x = (d · scale) · q − dmin · min`,
//! scale and min of the sub-block.
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..4 | `dmin`, f16 |
//! | 4..16 | scales and minima, 6 bits each: see `k_scales` |
//! | 16..48 | bit 4 of every `q`: bit `s` of byte `i` for element `i` of sub-block `s` |
//! | 48..176 | bits 0..4 of `q`, nibbles: 32 bytes for each pair of sub-blocks, low nibbles the even one, high nibbles the odd one |

use super::k_scales::{self, SUB_LEN, scale_and_min};
use super::q4_k::pack_low_nibbles;

/// Elements of a block.
pub const BLOCK_LEN: usize = 256;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 176;

/// The elements of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let high_bits = &block[16..48];
    let (code_pairs, _) = block[48..].as_chunks::<SUB_LEN>();
    for (index, out) in out.as_chunks_mut::<SUB_LEN>().0.iter_mut().enumerate() {
        let (scale, min) = scale_and_min(block, index);
        for ((x, byte), high) in out.iter_mut().zip(code_pairs[index / 2]).zip(high_bits) {
            let q = byte >> (index % 2 * 4) & 0x0f | (high >> index & 1) << 4;
            *x = scale * f32::from(q) - min;
        }
    }
}

/// A block of 256 elements, scales of least squared error (not ggml's codes).
pub fn quantize(values: &[f32; BLOCK_LEN], block: &mut [u8; BLOCK_BYTES]) {
    let codes = k_scales::quantize(values, 31, block);
    for (at, high) in block[16..48].iter_mut().enumerate() {
        *high = (0..k_scales::SUB_BLOCKS)
            .fold(0, |bits, sub| bits | codes[sub * SUB_LEN + at] >> 4 << sub);
    }
    pack_low_nibbles(&codes, &mut block[48..]);
}
