//! Passes over a whole row of logits, written so that the compiler makes vector code of them.
//!
//! Sums run in one fixed order, so a row gives the same bits on every machine.

/// Elements that a pass looks at together. Short enough to skip well, long enough to be worth a vector loop.
const CHUNK: usize = 64;
/// Elements whose weights are summed in single precision before the sum goes on in double.
const SPAN: usize = 1024;
const LANES: usize = 16;

/// The largest element, or `None` when any element is not finite.
pub(super) fn finite_max(row: &[f32]) -> Option<f32> {
    // 0 · x is 0 for a finite x and NaN otherwise.
    let mut taint = [0.0_f32; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            taint[lane] += chunk[lane] * 0.0;
        }
    }
    let finite = taint.iter().all(|&lane| lane == 0.0) && rest.iter().all(|x| x.is_finite());
    (finite && !row.is_empty()).then(|| max(row))
}

/// The largest element; -∞ for an empty row.
pub(super) fn max(row: &[f32]) -> f32 {
    let mut best = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            best[lane] = if chunk[lane] > best[lane] {
                chunk[lane]
            } else {
                best[lane]
            };
        }
    }
    best.iter()
        .chain(rest)
        .fold(f32::NEG_INFINITY, |max, &x| max.max(x))
}

/// Makes -∞ of every element whose bit is not set: the lowest bit of `mask[0]` is that of element 0, and where `mask` ends
/// nothing is set.
pub(super) fn mask(row: &mut [f32], mask: &[u32]) {
    for (index, chunk) in row.chunks_mut(32).enumerate() {
        match mask.get(index).copied().unwrap_or(0) {
            0 => chunk.fill(f32::NEG_INFINITY),
            u32::MAX => {}
            word => {
                for (bit, logit) in chunk.iter_mut().enumerate() {
                    if word >> bit & 1 == 0 {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
}

/// The lowest id whose logit is `value`.
pub(super) fn position(row: &[f32], value: f32) -> u32 {
    let found = row
        .iter()
        .position(|&x| x == value)
        .expect("the value was found in this row");
    u32::try_from(found).expect("a vocabulary has fewer than 2^32 tokens")
}

/// Calls `f` with each chunk and the id of its first element.
pub(super) fn for_each_chunk(row: &[f32], mut f: impl FnMut(u32, &[f32])) {
    let mut id = 0;
    for chunk in row.chunks(CHUNK) {
        f(id, chunk);
        id += CHUNK as u32;
    }
}

/// Whether any element is larger than `bar`.
pub(super) fn any_above(chunk: &[f32], bar: f32) -> bool {
    chunk.iter().fold(false, |any, &x| any | (x > bar))
}

/// Whether any element is at least `floor`.
pub(super) fn any_at_least(chunk: &[f32], floor: f32) -> bool {
    chunk.iter().fold(false, |any, &x| any | (x >= floor))
}

/// Sum of `exp((x - max) / temperature)`.
pub(super) fn exp_sum(row: &[f32], max: f32, temperature: f32) -> f64 {
    row.chunks(SPAN)
        .map(|span| span_sum(span, max, temperature))
        .sum()
}

/// The id at `draw` (in 0..1) of the weights `exp((x - max) / temperature)`.
pub(super) fn draw(row: &[f32], max: f32, temperature: f32, draw: f64) -> u32 {
    let mut left = draw * exp_sum(row, max, temperature);
    // Rounding can leave a remainder behind the last token: then it is the last one that has any weight.
    let mut last = position(row, max);
    for (index, span) in row.chunks(SPAN).enumerate() {
        let sum = span_sum(span, max, temperature);
        if left >= sum {
            left -= sum;
            continue;
        }
        for (id, &x) in ((index * SPAN) as u32..).zip(span) {
            let weight = f64::from(exp((x - max) / temperature));
            if weight > 0.0 {
                last = id;
                if left < weight {
                    return id;
                }
            }
            left -= weight;
        }
    }
    last
}

fn span_sum(span: &[f32], max: f32, temperature: f32) -> f64 {
    let mut sums = [0.0_f32; LANES];
    let (chunks, rest) = span.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            sums[lane] += exp((chunk[lane] - max) / temperature);
        }
    }
    let lanes: f64 = sums.iter().map(|&sum| f64::from(sum)).sum();
    lanes
        + rest
            .iter()
            .map(|&x| f64::from(exp((x - max) / temperature)))
            .sum::<f64>()
}

/// `e^x` for `x <= 0`, within 2e-7 of its value; 0 below the smallest normal number.
///
/// `x = n·ln 2 + r` with a whole n: the power of two goes into the exponent bits, `e^r` is a Taylor polynomial, whose error
/// on `|r| <= ln 2 / 2` is below one rounding of f32.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    /// Adding this rounds to a whole number and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    /// ln 2 in two parts: the product of the first with a whole n is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let tail = 1.0 / 24.0 + r * (1.0 / 120.0 + r * (1.0 / 720.0 + r / 5040.0));
    let power_of_r = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * tail)));
    let power = f32::from_bits(rounded.to_bits().wrapping_add(127) << 23);
    if x < -87.0 { 0.0 } else { power_of_r * power }
}
