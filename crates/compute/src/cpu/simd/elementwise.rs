//! Kernels over rows of activations: norms, activations, rotation, sums.

use super::lanes::{Kernel, Lanes};
use crate::Activation;
use crate::rope::RopeStyle;

/// `x += y`.
pub(crate) struct Add<'a> {
    pub(crate) x: &'a mut [f32],
    pub(crate) y: &'a [f32],
}

impl Kernel for Add<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        for (x, y) in self.x.chunks_mut(S::N).zip(self.y.chunks(S::N)) {
            let sum = s.add(s.load_part(x), s.load_part(y));
            s.store_part(x, sum);
        }
    }
}

/// `x *= factor`.
pub(crate) struct Scale<'a> {
    pub(crate) x: &'a mut [f32],
    pub(crate) factor: f32,
}

impl Kernel for Scale<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let factor = s.splat(self.factor);
        for x in self.x.chunks_mut(S::N) {
            let product = s.mul(s.load_part(x), factor);
            s.store_part(x, product);
        }
    }
}

/// `gate = act(gate, up)`, as [`Activation`] says.
pub(crate) struct ActMul<'a> {
    pub(crate) gate: &'a mut [f32],
    pub(crate) up: &'a [f32],
    pub(crate) act: Activation,
}

impl Kernel for ActMul<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        match self.act {
            Activation::Silu => act_mul(s, self.gate, self.up, |x, up| (x, x, up)),
            // (1 + tanh(y)) / 2 = sigmoid(2 y), so all activations are x * sigmoid(..).
            Activation::GeluTanh => act_mul(s, self.gate, self.up, |x, up| {
                const TWO_ROOT_2_OVER_PI: f32 = 1.595_769;
                let square = s.mul(x, x);
                let inner = s.mul_add(
                    square,
                    s.splat(0.044_715 * TWO_ROOT_2_OVER_PI),
                    s.splat(TWO_ROOT_2_OVER_PI),
                );
                (x, s.mul(x, inner), up)
            }),
            // `min` and `max` give the second where one is no number, which so stays visible.
            Activation::ClampedSwiglu => act_mul(s, self.gate, self.up, |x, up| {
                let (most, least) = (s.splat(7.0), s.splat(-7.0));
                let x = s.min(most, x);
                let up = s.max(least, s.min(most, up));
                (x, s.mul(x, s.splat(1.702)), s.add(up, s.splat(1.0)))
            }),
            Activation::SiluBelow(limit) => act_mul(s, self.gate, self.up, |x, up| {
                let (most, least) = (s.splat(limit), s.splat(-limit));
                let x = s.min(most, x);
                (x, x, s.max(least, s.min(most, up)))
            }),
        }
    }
}

/// `gate = x * sigmoid(z) * factor` with `(x, z, factor) = parts(gate, up)`.
#[inline(always)]
fn act_mul<S: Lanes>(
    s: S,
    gate: &mut [f32],
    up: &[f32],
    parts: impl Fn(S::V, S::V) -> (S::V, S::V, S::V),
) {
    let (one, minus_log2_e) = (s.splat(1.0), s.splat(-std::f32::consts::LOG2_E));
    for (gate, up) in gate.chunks_mut(S::N).zip(up.chunks(S::N)) {
        let (x, z, factor) = parts(s.load_part(gate), s.load_part(up));
        let below = s.add(one, s.exp2(s.mul(z, minus_log2_e)));
        let result = s.mul(s.div(x, below), factor);
        s.store_part(gate, result);
    }
}

/// `out = x / sqrt(mean(x^2) + eps) * weight` for one row.
pub(crate) struct RmsNorm<'a> {
    pub(crate) out: &'a mut [f32],
    pub(crate) x: &'a [f32],
    pub(crate) weight: &'a [f32],
    pub(crate) eps: f32,
}

impl Kernel for RmsNorm<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let factor = s.splat(rms_factor(s, self.x, self.eps));
        let inputs = self.x.chunks(S::N).zip(self.weight.chunks(S::N));
        for (out, (x, weight)) in self.out.chunks_mut(S::N).zip(inputs) {
            let scaled = s.mul(s.mul(s.load_part(x), factor), s.load_part(weight));
            s.store_part(out, scaled);
        }
    }
}

/// [`RmsNorm`] in place, of every run of `weight.len()` values.
pub(crate) struct RmsNormHeads<'a> {
    pub(crate) x: &'a mut [f32],
    pub(crate) weight: &'a [f32],
    pub(crate) eps: f32,
}

impl Kernel for RmsNormHeads<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        for head in self.x.chunks_exact_mut(self.weight.len()) {
            let factor = s.splat(rms_factor(s, head, self.eps));
            for (x, weight) in head.chunks_mut(S::N).zip(self.weight.chunks(S::N)) {
                let scaled = s.mul(s.mul(s.load_part(x), factor), s.load_part(weight));
                s.store_part(x, scaled);
            }
        }
    }
}

/// `1 / sqrt(mean(x^2) + eps)`, summed in four running vectors.
#[inline(always)]
pub(crate) fn rms_factor<S: Lanes>(s: S, x: &[f32], eps: f32) -> f32 {
    let mut sums = [s.splat(0.0); 4];
    for quad in x.chunks(4 * S::N) {
        for (sum, part) in sums.iter_mut().zip(quad.chunks(S::N)) {
            let v = s.load_part(part);
            *sum = s.mul_add(v, v, *sum);
        }
    }
    let total = s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])));
    1.0 / (total / x.len() as f32 + eps).sqrt()
}

/// Turns every head of one row.
///
/// `cos` and `sin` have one value for each turning element of a head (`[rotary_dim]`), so that
/// `out[i] = x[i] * cos[i] + partner(x[i]) * sin[i]`: the first of a pair has `-sin`.
pub(crate) struct Rotate<'a> {
    pub(crate) row: &'a mut [f32],
    pub(crate) head_dim: usize,
    /// The first value of a head that turns.
    pub(crate) start: usize,
    pub(crate) cos: &'a [f32],
    pub(crate) sin: &'a [f32],
    pub(crate) style: RopeStyle,
}

impl Kernel for Rotate<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let rotary_dim = self.cos.len();
        for head in self.row.chunks_exact_mut(self.head_dim) {
            let turning = &mut head[self.start..][..rotary_dim];
            match self.style {
                RopeStyle::Interleaved => rotate_neighbours(s, turning, self.cos, self.sin),
                RopeStyle::Neox => rotate_halves(s, turning, self.cos, self.sin),
            }
        }
    }
}

#[inline(always)]
fn rotate_neighbours<S: Lanes>(s: S, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let angles = cos.chunks(S::N).zip(sin.chunks(S::N));
    for (x, (cos, sin)) in x.chunks_mut(S::N).zip(angles) {
        let v = s.load_part(x);
        let crossed = s.mul(s.swap_pairs(v), s.load_part(sin));
        let turned = s.mul_add(v, s.load_part(cos), crossed);
        s.store_part(x, turned);
    }
}

#[inline(always)]
fn rotate_halves<S: Lanes>(s: S, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (low, high) = x.split_at_mut(cos.len() / 2);
    let ((cos_low, cos_high), (sin_low, sin_high)) =
        (cos.split_at(low.len()), sin.split_at(low.len()));
    for (i, (low, high)) in low.chunks_mut(S::N).zip(high.chunks_mut(S::N)).enumerate() {
        let part = i * S::N..i * S::N + low.len();
        let (a, b) = (s.load_part(low), s.load_part(high));
        let crossed = s.mul(b, s.load_part(&sin_low[part.clone()]));
        let first = s.mul_add(a, s.load_part(&cos_low[part.clone()]), crossed);
        let crossed = s.mul(a, s.load_part(&sin_high[part.clone()]));
        let second = s.mul_add(b, s.load_part(&cos_high[part]), crossed);
        s.store_part(low, first);
        s.store_part(high, second);
    }
}

#[cfg(test)]
mod tests;
