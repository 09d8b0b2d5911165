//! MXFP4: 32 elements of 4 bits, small floats (e2m1), with a power of two as scale;
//! `x = 2^(e − 128) · VALUES[q]`.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | `e`, the exponent (e8m0) |
//! | 1..17 | `q`, nibbles: low ones are elements 0..16, high ones 16..32 |
//!
//! OCP Microscaling Formats (MX) Specification 1.0, section 5; the elements' values are doubled
//! here, and the scale halved, so that they are whole. Unlike there, `e = 255` is a number.

use super::blocks::{nibble, pack_nibbles};

/// Elements of a block.
pub const BLOCK_LEN: usize = 32;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 17;

/// What the sixteen codes stand for, doubled.
pub const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The halved scale, `2^(exponent − 128)`: below 2 a subnormal number.
pub fn scale(exponent: u8) -> f32 {
    f32::from_bits(match exponent {
        0 | 1 => 0x0020_0000 << exponent,
        _ => u32::from(exponent - 1) << 23,
    })
}

/// The elements of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = scale(block[0]);
    for (index, x) in out.iter_mut().enumerate() {
        *x = d * f32::from(VALUES[usize::from(nibble(&block[1..], index))]);
    }
}

/// The block of 32 elements: the largest magnitude's exponent gives the scale, every element takes
/// the nearest value, the first of equals.
pub fn quantize(values: &[f32; BLOCK_LEN], block: &mut [u8; BLOCK_BYTES]) {
    let largest = values
        .iter()
        .fold(0.0_f32, |largest, x| largest.max(x.abs()));
    block[0] = match largest {
        0.0 => 0,
        _ => (largest.log2().floor() + 125.0) as u8,
    };
    let d = scale(block[0]);
    let nearest = |x: f32| {
        let error = |code: u8| (d * f32::from(VALUES[usize::from(code)]) - x).abs();
        (1..16).fold(0, |best, code| {
            if error(code) < error(best) {
                code
            } else {
                best
            }
        })
    };
    pack_nibbles(&values.map(nearest), &mut block[1..]);
}
