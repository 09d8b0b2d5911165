//! IQ4_NL: 32 elements of 4 bits that stand for unevenly spaced values, with one scale;
//! `x = d · VALUES[q]`.
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..18 | `q`, nibbles: low ones are elements 0..16, high ones 16..32 |

use super::blocks::{nibble, read_f16};

/// Elements of a block.
pub const BLOCK_LEN: usize = 32;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 18;

/// What the sixteen codes stand for.
pub const VALUES: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// The elements of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = read_f16(block, 0);
    for (index, x) in out.iter_mut().enumerate() {
        *x = d * f32::from(VALUES[usize::from(nibble(&block[2..], index))]);
    }
}
