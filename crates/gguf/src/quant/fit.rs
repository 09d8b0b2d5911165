//! Scales of least squared error, for the quantisers of the K formats.
//!
//! For given codes the best scale (and offset) follows in closed form, and for given scales the best codes do; which codes
//! to begin with is tried out: the range of the values is mapped to a little less or more than the range of the codes.

use super::blocks::{extreme, inverse, range};

/// Steps of a tenth by which the range is stretched, each way.
const STEPS: i32 = 10;

/// Scale and offset of `values ≈ scale · q + offset` with codes `0..=max_code`, scale not below and offset not above 0.
pub(super) fn affine(values: &[f32; 32], max_code: f32) -> (f32, f32) {
    let (low, high) = range(values);
    let low = low.min(0.0);
    let width = high - low;
    if width <= 0.0 || !width.is_finite() {
        return (0.0, low);
    }
    let mut best = (width / max_code, low);
    let mut least = affine_error(values, best, max_code);
    for step in -STEPS..=STEPS {
        let per_unit = (max_code + step as f32 / 10.0) / width;
        let codes = values.map(|x| code((x - low) * per_unit, max_code));
        let Some(fit) = least_squares(values, &codes) else {
            continue;
        };
        let error = affine_error(values, fit, max_code);
        if error < least {
            (best, least) = (fit, error);
        }
    }
    best
}

/// The sum of squared errors with the best codes for this scale and offset.
pub(super) fn affine_error(values: &[f32; 32], (scale, offset): (f32, f32), max_code: f32) -> f32 {
    let per_unit = inverse(scale);
    let errors = values.map(|x| {
        let error = x - offset - scale * code((x - offset) * per_unit, max_code);
        error * error
    });
    errors.iter().sum()
}

/// The nearest code. Values that are no numbers get 0.
pub(super) fn code(value: f32, max_code: f32) -> f32 {
    // Halves may round either way: truncating is much faster than rounding.
    (value.max(0.0).min(max_code) + 0.5) as i32 as f32
}

/// Scale and offset of least error for given codes, the offset not above 0; `None` where all codes are equal.
fn least_squares(values: &[f32; 32], codes: &[f32; 32]) -> Option<(f32, f32)> {
    let (mut q, mut qq, mut x, mut xq) = (0.0, 0.0, 0.0, 0.0);
    for (&value, &code) in values.iter().zip(codes) {
        q += code;
        qq += code * code;
        x += value;
        xq += value * code;
    }
    let determinant = 32.0 * qq - q * q;
    if determinant <= 0.0 {
        return None;
    }
    let offset = (qq * x - q * xq) / determinant;
    let fit = if offset <= 0.0 {
        ((32.0 * xq - q * x) / determinant, offset)
    } else {
        (xq / qq, 0.0)
    };
    (fit.0 > 0.0).then_some(fit)
}

/// The scale of `values ≈ scale · q` with codes `-max_code..max_code`; 0 where all values are.
pub(super) fn scale(values: &[f32; 16], max_code: f32) -> f32 {
    let extreme = extreme(values);
    if extreme == 0.0 || !extreme.is_finite() {
        return 0.0;
    }
    let (mut best, mut most) = (extreme / -max_code, 0.0);
    for step in -STEPS..=STEPS {
        // Codes reach one further down than up, so the extreme goes down.
        let per_unit = -(max_code + step as f32 / 10.0) / extreme;
        let (mut qq, mut xq) = (0.0, 0.0);
        for &x in values {
            let code = signed_code(x * per_unit, max_code);
            qq += code * code;
            xq += x * code;
        }
        // What the best scale for these codes, xq / qq, takes off the sum of squares.
        if qq > 0.0 && xq * xq > most * qq {
            (best, most) = (xq / qq, xq * xq / qq);
        }
    }
    best
}

/// The sum of squared errors with the best codes for this scale.
pub(super) fn scale_error(values: &[f32; 16], scale: f32, max_code: f32) -> f32 {
    let per_unit = inverse(scale);
    let errors = values.map(|x| {
        let error = x - scale * signed_code(x * per_unit, max_code);
        error * error
    });
    errors.iter().sum()
}

/// The nearest code in `-max_code..max_code`. Values that are no numbers get the lowest.
pub(super) fn signed_code(value: f32, max_code: f32) -> f32 {
    code(value + max_code, 2.0 * max_code - 1.0) - max_code
}
