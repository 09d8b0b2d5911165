//! Q8_0: 32 elements of 8 bits with one scale; `x = d · q`.
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..34 | `q`, i8 each |

use super::blocks::{extreme, inverse, read_f16, write_f16};

/// Elements of a block.
pub const BLOCK_LEN: usize = 32;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 34;

/// The elements of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = read_f16(block, 0);
    for (x, &q) in out.iter_mut().zip(&block[2..]) {
        *x = f32::from(q as i8) * d;
    }
}

/// The block of 32 elements: the largest magnitude becomes 127.
pub fn quantize(values: &[f32; BLOCK_LEN], block: &mut [u8; BLOCK_BYTES]) {
    let d = extreme(values).abs() / 127.0;
    let per_d = inverse(d);
    write_f16(block, 0, d);
    for (q, x) in block[2..].iter_mut().zip(values) {
        *q = (x * per_d).round() as i8 as u8;
    }
}
