//! Q5_1: 32 elements of 5 bits with scale and minimum; `x = d · q + m`.
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..4 | `m`, f16 |
//! | 4..8 | bit 4 of every `q`, bit `i` for element `i` |
//! | 8..24 | bits 0..4 of `q`, nibbles: low ones are elements 0..16, high ones 16..32 |

use super::blocks::{
    fifth_bit, fifth_bits, inverse, nibble, pack_nibbles, range, read_f16, write_f16,
};

/// Elements of a block.
pub const BLOCK_LEN: usize = 32;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 24;

/// The elements of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let (d, m) = (read_f16(block, 0), read_f16(block, 2));
    for (index, x) in out.iter_mut().enumerate() {
        let q = nibble(&block[8..], index) | fifth_bit(&block[4..8], index);
        *x = d * f32::from(q) + m;
    }
}

/// The block of 32 elements: their range becomes 0..=31.
pub fn quantize(values: &[f32; BLOCK_LEN], block: &mut [u8; BLOCK_BYTES]) {
    let (min, max) = range(values);
    let d = (max - min) / 31.0;
    let per_d = inverse(d);
    let codes = values.map(|x| (((x - min) * per_d + 0.5) as u8).min(31));
    write_f16(block, 0, d);
    write_f16(block, 2, min);
    block[4..8].copy_from_slice(&fifth_bits(&codes));
    pack_nibbles(&codes, &mut block[8..]);
}
