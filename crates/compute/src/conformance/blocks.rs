//! Random weights in any format, the ones that can only be read included.

use super::rig::Random;
use andante_gguf::{Format, quant};

/// Rows of `values` in `format`: quantised where that is possible, otherwise blocks of random bytes with moderate scales.
pub(crate) fn weights(format: Format, values: &[f32]) -> Vec<u8> {
    if format.can_quantize() {
        let mut bytes = Vec::new();
        quant::quantize(format, values, &mut bytes);
        return bytes;
    }
    let mut random = Random(u64::from(values[0].to_bits()));
    let mut bytes: Vec<u8> = (0..format.row_bytes(values.len()))
        .map(|_| random.below(256) as u8)
        .collect();
    let mut values = values.iter().cycle();
    set_scales(format, &mut bytes, || {
        values.next().expect("some values") / 1024.0
    });
    bytes
}

/// Gives the scale fields of blocks of a quantised format these values, so that their elements are ordinary numbers.
pub(crate) fn set_scales(format: Format, blocks: &mut [u8], mut scale: impl FnMut() -> f32) {
    let floats: &[usize] = match format {
        Format::Q4_1 | Format::Q5_1 | Format::Q4_K | Format::Q5_K => &[0, 2],
        Format::Q2_K => &[80, 82],
        Format::Q3_K => &[108],
        Format::Q6_K => &[208],
        Format::IQ1_M | Format::MXFP4 => &[],
        _ => &[0],
    };
    for block in blocks.chunks_exact_mut(format.block_bytes()) {
        for &at in floats {
            block[at..at + 2].copy_from_slice(&half::f16::from_f32(scale()).to_le_bytes());
        }
        match format {
            // The upper bits of an f16 exponent: 2^-7 to 2^-3.
            Format::IQ1_M => block[55] = block[55] & 0x8f | 0x20,
            // 2^-8 to 2^-5.
            Format::MXFP4 => block[0] = 120 + block[0] % 4,
            _ => {}
        }
    }
}
