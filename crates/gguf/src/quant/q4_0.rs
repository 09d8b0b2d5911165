//! Q4_0: 32 elements of 4 bits with one scale; `x = d · (q − 8)`.
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..18 | `q`, nibbles: low ones are elements 0..16, high ones 16..32 |

use super::blocks::{extreme, inverse, nibble, pack_nibbles, read_f16, write_f16};

/// Elements of a block.
pub const BLOCK_LEN: usize = 32;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 18;

/// The elements of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = read_f16(block, 0);
    for (index, x) in out.iter_mut().enumerate() {
        let q = nibble(&block[2..], index) as i8 - 8;
        *x = d * f32::from(q);
    }
}

/// The block of 32 elements: the largest magnitude becomes −8.
pub fn quantize(values: &[f32; BLOCK_LEN], block: &mut [u8; BLOCK_BYTES]) {
    let d = extreme(values) / -8.0;
    let per_d = inverse(d);
    write_f16(block, 0, d);
    pack_nibbles(
        &values.map(|x| ((x * per_d + 8.5) as u8).min(15)),
        &mut block[2..],
    );
}
