//! Rows as formats of few bits hold them.

use crate::deepseek4::Rounding;

/// The largest magnitudes of the formats.
const E4M3_MOST: f32 = 448.0;
const E2M1_MOST: f32 = 6.0;

/// Rounds one head.
pub(super) fn round(head: &mut [f32], rounding: Rounding) {
    match rounding {
        Rounding::E4m3 { plain, .. } => {
            for values in head[..plain].chunks_mut(64) {
                let scale = scale(values, 1e-4, E4M3_MOST);
                for x in values {
                    *x = e4m3(*x / scale) * scale;
                }
            }
        }
        Rounding::HadamardE2m1 { .. } => {
            hadamard(head);
            for values in head.chunks_mut(32) {
                let scale = scale(values, E2M1_MOST * f32::MIN_POSITIVE, E2M1_MOST);
                for x in values {
                    *x = e2m1(*x / scale) * scale;
                }
            }
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

/// Four bits of exponent, three of fraction: the step is an eighth of the leading bit, but at least 2^-9.
fn e4m3(x: f32) -> f32 {
    to_steps(x.clamp(-E4M3_MOST, E4M3_MOST), -6, 3)
}

/// Two bits of exponent, one of fraction: the step is half of the leading bit, but at least 1/2.
fn e2m1(x: f32) -> f32 {
    to_steps(x.clamp(-E2M1_MOST, E2M1_MOST), 0, 1)
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
