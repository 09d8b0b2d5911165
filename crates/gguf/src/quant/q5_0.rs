//! Q5_0: 32 elements of 5 bits with one scale; `x = d · (q − 16)`.
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..6 | bit 4 of every `q`, bit `i` for element `i` |
//! | 6..22 | bits 0..4 of `q`, nibbles: low ones are elements 0..16, high ones 16..32 |

use super::blocks::{
    extreme, fifth_bit, fifth_bits, inverse, nibble, pack_nibbles, read_f16, write_f16,
};

/// Elements of a block.
pub const BLOCK_LEN: usize = 32;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 22;

/// The elements of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = read_f16(block, 0);
    for (index, x) in out.iter_mut().enumerate() {
        let q = (nibble(&block[6..], index) | fifth_bit(&block[2..6], index)) as i8 - 16;
        *x = d * f32::from(q);
    }
}

/// The block of 32 elements: the largest magnitude becomes −16.
pub fn quantize(values: &[f32; BLOCK_LEN], block: &mut [u8; BLOCK_BYTES]) {
    let d = extreme(values) / -16.0;
    let per_d = inverse(d);
    let codes = values.map(|x| ((x * per_d + 16.5) as u8).min(31));
    write_f16(block, 0, d);
    block[2..6].copy_from_slice(&fifth_bits(&codes));
    pack_nibbles(&codes, &mut block[6..]);
}
