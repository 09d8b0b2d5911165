//! Hyper-connections: several streams of the residual, mixed by coefficients of each row.

use crate::cpu::isa::Isa;
use crate::cpu::simd::elementwise::rms_factor;
use crate::cpu::simd::lanes::{Kernel, Lanes, dispatch};
use crate::deepseek4::HyperSpec;

/// Turns one row's products with its streams `x` into coefficients.
pub(super) fn coefficients(
    isa: Isa,
    mix: &mut [f32],
    x: &[f32],
    (base, scale): (&[f32], &[f32]),
    spec: &HyperSpec,
) {
    let (streams, eps) = (spec.streams, spec.eps);
    let factor = dispatch(isa, RmsFactor(x, spec.norm_eps));
    for (i, (m, base)) in mix.iter_mut().zip(base).enumerate() {
        *m = *m * factor * scale[(i / streams).min(2)] + base;
    }
    let (pre, rest) = mix.split_at_mut(streams);
    pre.iter_mut().for_each(|m| *m = sigmoid(*m) + eps);
    if rest.is_empty() {
        return;
    }
    let (post, comb) = rest.split_at_mut(streams);
    post.iter_mut().for_each(|m| *m = 2.0 * sigmoid(*m));
    for row in comb.chunks_exact_mut(streams) {
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        row.iter_mut().for_each(|c| *c = (*c - max).exp());
        let sum: f32 = row.iter().sum();
        row.iter_mut().for_each(|c| *c = *c / sum + eps);
    }
    normalise_columns(comb, streams, eps);
    for _ in 1..spec.iterations {
        for row in comb.chunks_exact_mut(streams) {
            let sum = row.iter().sum::<f32>() + eps;
            row.iter_mut().for_each(|c| *c /= sum);
        }
        normalise_columns(comb, streams, eps);
    }
}

fn normalise_columns(comb: &mut [f32], streams: usize, eps: f32) {
    for column in 0..streams {
        let sum = comb.iter().skip(column).step_by(streams).sum::<f32>() + eps;
        let column = comb.iter_mut().skip(column).step_by(streams);
        column.for_each(|c| *c /= sum);
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

struct RmsFactor<'a>(&'a [f32], f32);

impl Kernel for RmsFactor<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) -> f32 {
        rms_factor(s, self.0, self.1)
    }
}

/// `out = sum of pre[i] * x[i]` over the streams of one row.
pub(super) struct HyperIn<'a> {
    pub(super) out: &'a mut [f32],
    pub(super) x: &'a [f32],
    pub(super) pre: &'a [f32],
}

impl Kernel for HyperIn<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let width = self.out.len();
        for start in (0..width).step_by(S::N) {
            let part = start..width.min(start + S::N);
            let mut sum = s.splat(0.0);
            for (pre, x) in self.pre.iter().zip(self.x.chunks_exact(width)) {
                sum = s.mul_add(s.splat(*pre), s.load_part(&x[part.clone()]), sum);
            }
            s.store_part(&mut self.out[part], sum);
        }
    }
}

/// `x[j] = post[j] * y + sum of comb[i, j] * x[i]` over the streams of one row.
pub(super) struct HyperOut<'a> {
    pub(super) x: &'a mut [f32],
    pub(super) y: &'a [f32],
    pub(super) post: &'a [f32],
    pub(super) comb: &'a [f32],
}

impl Kernel for HyperOut<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let (width, streams) = (self.y.len(), self.post.len());
        let mut old = [s.splat(0.0); HyperSpec::MOST_STREAMS];
        for start in (0..width).step_by(S::N) {
            let part = start..width.min(start + S::N);
            let y = s.load_part(&self.y[part.clone()]);
            for (old, x) in old.iter_mut().zip(self.x.chunks_exact(width)) {
                *old = s.load_part(&x[part.clone()]);
            }
            for (j, x) in self.x.chunks_exact_mut(width).enumerate() {
                let mut sum = s.mul(s.splat(self.post[j]), y);
                for (i, old) in old[..streams].iter().enumerate() {
                    sum = s.mul_add(s.splat(self.comb[i * streams + j]), *old, sum);
                }
                s.store_part(&mut x[part.clone()], sum);
            }
        }
    }
}
