//! Rows in the bytes that are kept of them.

use crate::deepseek4::Kept;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};
use zerocopy::{FromBytes, IntoBytes};

/// The largest magnitudes of the formats.
const E4M3_MOST: f32 = 448.0;
const E2M1_MOST: f32 = 6.0;

/// What codes stand for.
const E4M3: [f32; 256] = e4m3_values();
const E2M1: [f32; 16] = [
    0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
];

const ALIGNED: &str = "rows begin where their values may";

/// Writes a row as it is kept: [`Kept::row_bytes`].
pub(super) fn write(kept: Kept, row: &[f32], to: &mut [u8]) {
    match kept {
        Kept::F32 => to.copy_from_slice(row.as_bytes()),
        Kept::F16 => {
            let to = <[u16]>::mut_from_bytes(to).expect(ALIGNED);
            to.reinterpret_cast_mut::<f16>().convert_from_f32_slice(row);
        }
        Kept::E4m3 { plain } => write_e4m3(row.split_at(plain), to),
        Kept::HadamardE2m1 => {
            let mut row = row.to_vec();
            hadamard(&mut row);
            write_e2m1(&row, to);
        }
    }
}

/// Reads what is kept of a row: of [`Kept::HadamardE2m1`], the transform.
pub(super) fn read(kept: Kept, from: &[u8], row: &mut [f32]) {
    match kept {
        Kept::F32 => row.as_mut_bytes().copy_from_slice(from),
        Kept::F16 => {
            let from = <[u16]>::ref_from_bytes(from).expect(ALIGNED);
            from.reinterpret_cast::<f16>().convert_to_f32_slice(row);
        }
        Kept::E4m3 { plain } => read_e4m3(from, row.split_at_mut(plain)),
        Kept::HadamardE2m1 => read_e2m1(from, row),
    }
}

/// Makes a row what is kept of it.
pub(super) fn keep(kept: Kept, row: &mut [f32]) {
    let mut bytes = vec![0; kept.row_bytes(row.len())];
    write(kept, row, &mut bytes);
    read(kept, &bytes, row);
}

fn write_e4m3((plain, turning): (&[f32], &[f32]), to: &mut [u8]) {
    let (codes, rest) = to.split_at_mut(plain.len());
    let (halves, scales) = rest.split_at_mut(2 * turning.len());
    for (x, to) in turning.iter().zip(halves.as_chunks_mut::<2>().0) {
        *to = bf16::from_f32(*x).to_le_bytes();
    }
    scales.fill(0);
    let parts = plain.chunks(Kept::E4M3_VALUES);
    let codes = codes.chunks_mut(Kept::E4M3_VALUES);
    for ((values, codes), exponent) in parts.zip(codes).zip(scales) {
        let scale = scale(values, 1e-4, E4M3_MOST);
        *exponent = exponent_of(scale);
        for (code, x) in codes.iter_mut().zip(values) {
            *code = e4m3(x / scale);
        }
    }
}

fn read_e4m3(from: &[u8], (plain, turning): (&mut [f32], &mut [f32])) {
    let (codes, rest) = from.split_at(plain.len());
    let (halves, scales) = rest.split_at(2 * turning.len());
    for (x, from) in turning.iter_mut().zip(halves.as_chunks::<2>().0) {
        *x = bf16::from_le_bytes(*from).to_f32();
    }
    let parts = plain.chunks_mut(Kept::E4M3_VALUES);
    let codes = codes.chunks(Kept::E4M3_VALUES);
    for ((values, codes), &exponent) in parts.zip(codes).zip(scales) {
        let scale = scale_of(exponent);
        for (x, &code) in values.iter_mut().zip(codes) {
            *x = E4M3[usize::from(code)] * scale;
        }
    }
}

fn write_e2m1(row: &[f32], to: &mut [u8]) {
    let (codes, scales) = to.split_at_mut(row.len() / 2);
    let parts = row.chunks_exact(Kept::E2M1_VALUES);
    let codes = codes.chunks_exact_mut(Kept::E2M1_VALUES / 2);
    for ((values, codes), exponent) in parts.zip(codes).zip(scales) {
        let scale = scale(values, E2M1_MOST * f32::MIN_POSITIVE, E2M1_MOST);
        *exponent = exponent_of(scale);
        for (code, &[low, high]) in codes.iter_mut().zip(values.as_chunks::<2>().0) {
            *code = e2m1(low / scale) | e2m1(high / scale) << 4;
        }
    }
}

fn read_e2m1(from: &[u8], row: &mut [f32]) {
    let (codes, scales) = from.split_at(row.len() / 2);
    let parts = row.chunks_exact_mut(Kept::E2M1_VALUES);
    let codes = codes.chunks_exact(Kept::E2M1_VALUES / 2);
    for ((values, codes), &exponent) in parts.zip(codes).zip(scales) {
        let scale = scale_of(exponent);
        for ([low, high], code) in values.as_chunks_mut::<2>().0.iter_mut().zip(codes) {
            *low = E2M1[usize::from(code & 15)] * scale;
            *high = E2M1[usize::from(code >> 4)] * scale;
        }
    }
}

/// The smallest power of two by which the largest magnitude, at least `least`, divided is at most `most`.
fn scale(values: &[f32], least: f32, most: f32) -> f32 {
    let largest = values.iter().fold(least, |largest, x| largest.max(x.abs()));
    let exact = largest / most;
    // Anything behind the leading bit carries into the exponent; `exact` is a normal number.
    f32::from_bits((exact.to_bits() + 0x007f_ffff) & 0x7f80_0000)
}

/// Biased by 127, of a power of two.
fn exponent_of(scale: f32) -> u8 {
    (scale.to_bits() >> 23) as u8
}

fn scale_of(exponent: u8) -> f32 {
    f32::from_bits(u32::from(exponent) << 23)
}

/// The code of a sign, four bits of exponent and three of fraction: the step is an eighth of the leading bit, but at least 2^-9.
fn e4m3(x: f32) -> u8 {
    let rounded = to_steps(x.clamp(-E4M3_MOST, E4M3_MOST), -6, 3);
    let magnitude = rounded.abs();
    // Above 2^-6 the leading bits of a f32 whose exponent is biased by 7 instead of 127.
    let code = match magnitude * 64.0 < 1.0 {
        true => (magnitude * 512.0) as u8,
        false => ((magnitude.to_bits() >> 20) - (120 << 3)) as u8,
    };
    code | u8::from(rounded.is_sign_negative()) << 7
}

const fn e4m3_values() -> [f32; 256] {
    let mut values = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        let magnitude = (code & 0x7f) as u32;
        let value = match magnitude < 8 {
            true => magnitude as f32 / 512.0,
            false => f32::from_bits((magnitude + (120 << 3)) << 20),
        };
        values[code] = if code < 128 { value } else { -value };
        code += 1;
    }
    values
}

/// The code of a sign, two bits of exponent and one of fraction: the step is half of the leading bit, but at least 1/2.
fn e2m1(x: f32) -> u8 {
    let rounded = to_steps(x.clamp(-E2M1_MOST, E2M1_MOST), 0, 1);
    let code = match (2.0 * rounded.abs()) as u8 {
        halves @ 0..4 => halves,
        halves @ 4..=8 => 2 + halves / 2,
        _ => 7,
    };
    code | u8::from(rounded.is_sign_negative()) << 3
}

/// To the nearest number with `fraction` bits behind the leading one, which counts as `2^least` at least; of two the even one.
fn to_steps(x: f32, least: i32, fraction: i32) -> f32 {
    let exponent = ((x.to_bits() >> 23) & 0xff) as i32 - 127;
    let step = (2.0_f32).powi(exponent.max(least) - fraction);
    (x / step).round_ties_even() * step
}

/// Multiplies with the orthonormal Hadamard matrix of Sylvester's order.
fn hadamard(values: &mut [f32]) {
    let width = values.len();
    assert!(width.is_power_of_two());
    let mut half = 1;
    while half < width {
        for pair in values.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
    let factor = 1.0 / (width as f32).sqrt();
    values.iter_mut().for_each(|x| *x *= factor);
}

#[cfg(test)]
mod tests;
