//! Q6_K: 256 elements of 6 bits in sixteen sub-blocks of 16; `x = (d · scale) · (q − 32)`, scale of
//! the sub-block.
//!
//! | bytes | field |
//! |---|---|
//! | 0..128 | bits 0..4 of `q`, nibbles |
//! | 128..192 | bits 4..6 of `q`, pairs of bits |
//! | 192..208 | scales, i8 each |
//! | 208..210 | `d`, f16 |
//!
//! The block is two halves of 128 elements, each with 64 bytes of nibbles and 32 bytes of bit
//! pairs. Element `32·g + i` of a half (`g` in 0..4, `i` in 0..32) has its nibble in byte `32·(g
//! mod 2) + i`, low for `g < 2`, high above, and its bits 4..6 in byte `i`, shifted by `2·g`.

use super::blocks::{extreme, inverse, read_f16, write_f16};
use super::fit;

/// Elements of a block.
pub const BLOCK_LEN: usize = 256;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 210;

const SUB_LEN: usize = 16;
const HIGH: usize = 128;
const SCALES: usize = 192;
const D: usize = 208;

/// Where the two pieces of an element's code are: byte and shift of the nibble, byte and shift of
/// the pair of high bits.
fn places(element: usize) -> [(usize, usize); 2] {
    let (half, group, at) = (element / 128, element % 128 / 32, element % 32);
    [
        (half * 64 + group % 2 * 32 + at, group / 2 * 4),
        (HIGH + half * 32 + at, group * 2),
    ]
}

/// `d · scale` of the sub-block of `element`.
fn scale(block: &[u8; BLOCK_BYTES], element: usize) -> f32 {
    read_f16(block, D) * f32::from(block[SCALES + element / SUB_LEN] as i8)
}

/// The elements of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    for (element, x) in out.iter_mut().enumerate() {
        let [(low, low_shift), (high, high_shift)] = places(element);
        let code = block[low] >> low_shift & 0x0f | (block[high] >> high_shift & 0x03) << 4;
        *x = scale(block, element) * f32::from(code as i8 - 32);
    }
}

/// A block of 256 elements, scales of least squared error (not ggml's codes).
pub fn quantize(values: &[f32; BLOCK_LEN], block: &mut [u8; BLOCK_BYTES]) {
    block.fill(0);
    let (subs, _) = values.as_chunks::<SUB_LEN>();
    let scales: [f32; BLOCK_LEN / SUB_LEN] =
        std::array::from_fn(|sub| fit::scale(&subs[sub], 32.0));
    write_f16(block, D, extreme(&scales) / -128.0);
    let d = read_f16(block, D);
    for (sub, (values, fitted)) in subs.iter().zip(scales).enumerate() {
        block[SCALES + sub] = nearest(values, fitted, d).cast_unsigned();
    }
    for (element, x) in values.iter().enumerate() {
        let code = fit::signed_code(x * inverse(scale(block, element)), 32.0);
        let code = (code + 32.0) as u8;
        let [(low, low_shift), (high, high_shift)] = places(element);
        block[low] |= (code & 0x0f) << low_shift;
        block[high] |= (code >> 4) << high_shift;
    }
}

/// The 8-bit scale of least error near the one that was fitted.
fn nearest(values: &[f32; SUB_LEN], fitted: f32, d: f32) -> i8 {
    let code = (fitted * inverse(d)).round();
    let (mut best, mut least) = (0, f32::INFINITY);
    for step in [0.0, -1.0, 1.0] {
        let code = (code + step) as i8;
        let error = fit::scale_error(values, d * f32::from(code), 32.0);
        if error < least {
            (best, least) = (code, error);
        }
    }
    best
}
