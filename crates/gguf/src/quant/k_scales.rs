//! The 6-bit scales and minima of Q4_K and Q5_K, 12 bytes for eight sub-blocks, and how
//! they are found.
//!
//! | bytes | bits 0..6 | bits 6..8 |
//! |---|---|---|
//! | 0..4 | scale of sub-blocks 0..4 | bits 4..6 of the scale of sub-blocks 4..8 |
//! | 4..8 | minimum of sub-blocks 0..4 | bits 4..6 of the minimum of sub-blocks 4..8 |
//!
//! Bytes 8..12 hold bits 0..4 of the scale (low nibble) and of the minimum (high nibble) of
//! sub-blocks 4..8.

use super::blocks::{inverse, range, read_f16, write_f16};
use super::fit;

/// Bytes of the packed scales and minima.
pub const PACKED_BYTES: usize = 12;

/// Sub-blocks of a block and elements of a sub-block.
pub(super) const SUB_BLOCKS: usize = 8;
pub(super) const SUB_LEN: usize = 32;

/// Scale and minimum, 6 bits each, of sub-block `index` (0..8).
pub fn unpack(packed: &[u8; PACKED_BYTES], index: usize) -> (u8, u8) {
    if index < 4 {
        return (packed[index] & 0x3f, packed[index + 4] & 0x3f);
    }
    let scale = packed[index + 4] & 0x0f | packed[index - 4] >> 6 << 4;
    let min = packed[index + 4] >> 4 | packed[index] >> 6 << 4;
    (scale, min)
}

pub(super) fn pack(pairs: &[(u8, u8); SUB_BLOCKS]) -> [u8; PACKED_BYTES] {
    let mut packed = [0; PACKED_BYTES];
    for index in 0..4 {
        let ((scale, min), (later_scale, later_min)) = (pairs[index], pairs[index + 4]);
        packed[index] = scale | later_scale >> 4 << 6;
        packed[index + 4] = min | later_min >> 4 << 6;
        packed[index + 8] = later_scale & 0x0f | later_min << 4;
    }
    packed
}

/// `d · scale` and `dmin · min` of sub-block `index` of a block that begins with `d`, `dmin` and
/// the packed scales.
pub(super) fn scale_and_min(block: &[u8], index: usize) -> (f32, f32) {
    let packed = block[4..].first_chunk().expect("a whole block");
    let (scale, min) = unpack(packed, index);
    (
        read_f16(block, 0) * f32::from(scale),
        read_f16(block, 2) * f32::from(min),
    )
}

/// Fits every sub-block, writes `d`, `dmin` and the packed scales (bytes 0..16), and returns the codes.
pub(super) fn quantize(values: &[f32; 256], max_code: u8, block: &mut [u8]) -> [u8; 256] {
    let most = f32::from(max_code);
    let (subs, _) = values.as_chunks::<SUB_LEN>();
    let fits: [(f32, f32); SUB_BLOCKS] = std::array::from_fn(|sub| fit::affine(&subs[sub], most));
    let (_, max_scale) = range(&fits.map(|fit| fit.0));
    let (max_min, _) = range(&fits.map(|fit| fit.1));
    write_f16(block, 0, max_scale / MAX_SCALE);
    write_f16(block, 2, -max_min / MAX_SCALE);
    let units = (read_f16(block, 0), read_f16(block, 2));
    let pairs = std::array::from_fn(|sub| nearest(&subs[sub], fits[sub], units, most));
    block[4..16].copy_from_slice(&pack(&pairs));

    let mut codes = [0; 256];
    let (sub_codes, _) = codes.as_chunks_mut::<SUB_LEN>();
    for (index, (codes, values)) in sub_codes.iter_mut().zip(subs).enumerate() {
        let (scale, min) = scale_and_min(block, index);
        let per_unit = inverse(scale);
        *codes = values.map(|x| fit::code((x + min) * per_unit, most) as u8);
    }
    codes
}

const MAX_SCALE: f32 = 63.0;

/// The 6-bit scale and minimum of least error near those that were fitted: rounding them both changes what is best.
fn nearest(
    values: &[f32; SUB_LEN],
    (scale, offset): (f32, f32),
    (d, dmin): (f32, f32),
    max_code: f32,
) -> (u8, u8) {
    let code = |value: f32, unit: f32| (value * inverse(unit)).round().clamp(0.0, MAX_SCALE);
    let (scale, min) = (code(scale, d), code(-offset, dmin));
    let near = |code: f32| [0.0, -1.0, 1.0].map(|step| (code + step).clamp(0.0, MAX_SCALE));
    let (mut best, mut least) = ((scale, min), f32::INFINITY);
    for scale in near(scale) {
        for min in near(min) {
            let error = fit::affine_error(values, (d * scale, -dmin * min), max_code);
            if error < least {
                (best, least) = ((scale, min), error);
            }
        }
    }
    (best.0 as u8, best.1 as u8)
}
