//! The indexer: which compressed rows are worth attending to.

use super::records::{CpuRecords, Sequence, place};
use crate::Batch;
use crate::cpu::isa::Isa;
use crate::cpu::pool::Pool;
use crate::cpu::simd::lanes::{Kernel, Lanes, dispatch};
use crate::deepseek4::IndexSpec;

/// The queries of a batch.
pub(super) struct Indexer<'a> {
    pub(super) isa: Isa,
    pub(super) spec: &'a IndexSpec,
    /// `[n, heads, width]`.
    pub(super) q: &'a [f32],
    /// `[n, heads]`.
    pub(super) weights: &'a [f32],
    pub(super) blocks: &'a CpuRecords,
    pub(super) batch: &'a Batch,
}

impl Indexer<'_> {
    /// Fills `chosen`, `[n, top_k]`.
    pub(super) fn run(&self, pool: &Pool, chosen: &mut [u32]) {
        let top_k = self.spec.top_k;
        pool.for_rows(chosen, top_k, 1, &|first, chosen| {
            let mut scores = Vec::new();
            for (row, chosen) in (first..).zip(chosen.chunks_exact_mut(top_k)) {
                self.choose(row, chosen, &mut scores);
            }
        });
    }

    fn choose(&self, row: usize, chosen: &mut [u32], scores: &mut Vec<f32>) {
        let IndexSpec { ratio, heads, .. } = *self.spec;
        let visible = (self.batch.positions[row] as usize + 1) / ratio;
        if visible <= chosen.len() {
            chosen.fill(u32::MAX);
            let all = chosen.iter_mut().zip(0..visible as u32);
            return all.for_each(|(chosen, row)| *chosen = row);
        }
        let table = Sequence::of_row(self.batch, row).table;
        let weights = &self.weights[row * heads..][..heads];
        let weights: Vec<f32> = weights.iter().map(|w| w * self.spec.scale).collect();
        let width = self.spec.rows.width;
        scores.clear();
        scores.extend((0..visible).map(|index| {
            let (block, at) = place(index, ratio);
            let score = Score {
                q: &self.q[row * heads * width..][..heads * width],
                weights: &weights,
                row: self.blocks.row(table[block], self.spec.rows, at),
            };
            dispatch(self.isa, score)
        }));
        largest(chosen, scores.iter().copied());
        chosen.sort_unstable();
    }
}

/// Fills `chosen` with the numbers of the largest values, descending; of equal ones the first comes first.
pub(super) fn largest(chosen: &mut [u32], values: impl Iterator<Item = f32>) {
    // A selection of the whole is faster than insertion where much is to be chosen.
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

/// `sum of weights[h] * max(0, q[h] · row)`.
struct Score<'a> {
    q: &'a [f32],
    weights: &'a [f32],
    row: &'a [f32],
}

impl Kernel for Score<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) -> f32 {
        let mut score = 0.0;
        for (q, weight) in self.q.chunks_exact(self.row.len()).zip(self.weights) {
            score += weight * dot(s, q, self.row).max(0.0);
        }
        score
    }
}

/// `a · b`, in four sums over every fourth vector.
#[inline(always)]
pub(super) fn dot<S: Lanes>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [s.splat(0.0); 4];
    for (a, b) in a.chunks(4 * S::N).zip(b.chunks(4 * S::N)) {
        let parts = a.chunks(S::N).zip(b.chunks(S::N));
        for (sum, (a, b)) in sums.iter_mut().zip(parts) {
            *sum = s.mul_add(s.load_part(a), s.load_part(b), *sum);
        }
    }
    s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
}
