//! Which experts a row takes, and with which shares.

use crate::cpu::matmul::Matrix;
use crate::cpu::ops::grain;
use crate::cpu::pool::Pool;
use crate::deepseek4::RouteSpec;

/// The logits of a batch.
pub(super) struct Router<'a> {
    pub(super) spec: &'a RouteSpec,
    /// Experts of a row.
    pub(super) chosen: usize,
    pub(super) experts: usize,
    /// `[n, experts]`.
    pub(super) logits: &'a [f32],
    pub(super) tokens: &'a [u32],
    pub(super) choose: Choose<'a>,
}

/// How experts are chosen.
pub(super) enum Choose<'a> {
    /// By score and this bias, `[experts]`.
    Best(&'a [f32]),
    /// By this table, `[vocab, chosen]`.
    Table(&'a Matrix),
}

impl Router<'_> {
    /// Fills `chosen` and `shares`, `[n, chosen]` both.
    pub(super) fn run(&self, pool: &Pool, (chosen, shares): (&mut [u32], &mut [f32])) {
        let (width, grain) = (self.chosen, grain(self.experts));
        pool.for_rows(chosen, width, grain, &|first, chosen| {
            for (row, chosen) in (first..).zip(chosen.chunks_exact_mut(width)) {
                self.choose(row, chosen);
            }
        });
        let chosen = &*chosen;
        pool.for_rows(shares, width, grain, &|first, shares| {
            for (row, shares) in (first..).zip(shares.chunks_exact_mut(width)) {
                let logits = self.logits(row);
                let chosen = &chosen[row * width..][..width];
                for (share, &expert) in shares.iter_mut().zip(chosen) {
                    *share = score(logits[expert as usize]);
                }
                let mut factor = self.spec.scale;
                if self.spec.normalised {
                    factor /= shares.iter().sum::<f32>();
                }
                shares.iter_mut().for_each(|share| *share *= factor);
            }
        });
    }

    fn choose(&self, row: usize, chosen: &mut [u32]) {
        match self.choose {
            Choose::Best(bias) => {
                let biased = |(&logit, bias): (&f32, &f32)| score(logit) + bias;
                largest(chosen, self.logits(row).iter().zip(bias).map(biased));
            }
            Choose::Table(table) => {
                let mut ids = vec![0.0; chosen.len()];
                table.dequantize_row(self.tokens[row] as usize, &mut ids);
                for (expert, id) in chosen.iter_mut().zip(ids) {
                    *expert = id as u32;
                }
            }
        }
    }

    fn logits(&self, row: usize) -> &[f32] {
        &self.logits[row * self.experts..][..self.experts]
    }
}

/// Fills `chosen` with the numbers of the largest values, descending; of equal ones the first comes first.
fn largest(chosen: &mut [u32], values: impl Iterator<Item = f32>) {
    let mut all: Vec<(u32, f32)> = (0..).zip(values).collect();
    let descending = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    let taken = chosen.len();
    if taken < all.len() {
        all.select_nth_unstable_by(taken, descending);
    }
    all[..taken].sort_unstable_by(descending);
    for (chosen, (index, _)) in chosen.iter_mut().zip(all) {
        *chosen = index;
    }
}

/// `sqrt(softplus(x))`.
fn score(x: f32) -> f32 {
    (x.max(0.0) + (-x.abs()).exp().ln_1p()).sqrt()
}
