//! What the block formats share: walking over blocks, half-precision fields, packed nibbles.

use half::f16;

use crate::Format;

/// Elements of `bytes` by the reference arithmetic.
///
/// # Panics
/// When `bytes` is not whole blocks or `out` is not as long as their elements.
pub fn dequantize(format: Format, bytes: &[u8], out: &mut [f32]) {
    format.dequantize(bytes, out);
}

/// Appends the blocks of `values` to `out`. Values that are not finite give some value, like the
/// reference.
///
/// # Panics
/// When `values` is not whole blocks, or the format can only be read ([`Format::can_quantize`]).
pub fn quantize(format: Format, values: &[f32], out: &mut Vec<u8>) {
    format.quantize(values, out);
}

pub(crate) fn dequantize_blocks<const BYTES: usize, const LEN: usize>(
    bytes: &[u8],
    out: &mut [f32],
    block: impl Fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    let (blocks, rest) = bytes.as_chunks::<BYTES>();
    let (outs, out_rest) = out.as_chunks_mut::<LEN>();
    assert!(
        rest.is_empty(),
        "{} bytes are not whole blocks of {BYTES}",
        bytes.len()
    );
    assert!(
        out_rest.is_empty() && blocks.len() == outs.len(),
        "{} blocks do not fill the output",
        blocks.len()
    );
    blocks
        .iter()
        .zip(outs)
        .for_each(|(bytes, out)| block(bytes, out));
}

pub(crate) fn quantize_blocks<const BYTES: usize, const LEN: usize>(
    values: &[f32],
    out: &mut Vec<u8>,
    block: impl Fn(&[f32; LEN], &mut [u8; BYTES]),
) {
    let (blocks, rest) = values.as_chunks::<LEN>();
    assert!(
        rest.is_empty(),
        "{} values are not whole blocks of {LEN}",
        values.len()
    );
    out.reserve(blocks.len() * BYTES);
    let mut bytes = [0; BYTES];
    for values in blocks {
        block(values, &mut bytes);
        out.extend(bytes);
    }
}

/// The f16 at byte `at` of a block.
pub(super) fn read_f16(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Stores `value` as f16 at byte `at`, rounded to nearest, ties to even.
pub(super) fn write_f16(block: &mut [u8], at: usize, value: f32) {
    block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
}

/// The 4-bit code of element `index` in 16 bytes: low nibbles are the first 16 elements, high
/// nibbles the last 16.
pub(super) fn nibble(codes: &[u8], index: usize) -> u8 {
    if index < 16 {
        codes[index] & 0x0f
    } else {
        codes[index - 16] >> 4
    }
}

/// Stores the low four bits of 32 codes as [`nibble`] reads them.
pub(super) fn pack_nibbles(codes: &[u8; 32], out: &mut [u8]) {
    for (index, byte) in out.iter_mut().enumerate() {
        *byte = codes[index] & 0x0f | codes[index + 16] << 4;
    }
}

/// Bit 4 of 32 codes, bit `i` for element `i`.
pub(super) fn fifth_bits(codes: &[u8; 32]) -> [u8; 4] {
    let bits = codes.iter().enumerate().fold(0, |bits, (index, code)| {
        bits | u32::from(code >> 4 & 1) << index
    });
    bits.to_le_bytes()
}

/// Bit 4 of element `index`, in place.
pub(super) fn fifth_bit(bits: &[u8], index: usize) -> u8 {
    (bits[index / 8] >> (index % 8) & 1) << 4
}

/// The value of the largest magnitude, the first of equals.
pub(super) fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(
        0.0_f32,
        |extreme, &x| if x.abs() > extreme.abs() { x } else { extreme },
    )
}

/// The smallest and the largest value.
pub(super) fn range(values: &[f32]) -> (f32, f32) {
    values
        .iter()
        .fold((f32::INFINITY, f32::NEG_INFINITY), |(min, max), &x| {
            (min.min(x), max.max(x))
        })
}

/// `1 / scale`, 0 for a scale of 0.
pub(super) fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}
