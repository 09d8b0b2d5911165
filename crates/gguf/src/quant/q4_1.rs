//! Q4_1: 32 elements of 4 bits with scale and minimum; `x = d · q + m`.
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..4 | `m`, f16 |
//! | 4..20 | `q`, nibbles: low ones are elements 0..16, high ones 16..32 |

use super::blocks::{inverse, nibble, pack_nibbles, range, read_f16, write_f16};

/// Elements of a block.
pub const BLOCK_LEN: usize = 32;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 20;

/// The elements of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let (d, m) = (read_f16(block, 0), read_f16(block, 2));
    for (index, x) in out.iter_mut().enumerate() {
        *x = d * f32::from(nibble(&block[4..], index)) + m;
    }
}

/// The block of 32 elements: their range becomes 0..=15.
pub fn quantize(values: &[f32; BLOCK_LEN], block: &mut [u8; BLOCK_BYTES]) {
    let (min, max) = range(values);
    let d = (max - min) / 15.0;
    let per_d = inverse(d);
    write_f16(block, 0, d);
    write_f16(block, 2, min);
    pack_nibbles(
        &values.map(|x| (((x - min) * per_d + 0.5) as u8).min(15)),
        &mut block[4..],
    );
}
