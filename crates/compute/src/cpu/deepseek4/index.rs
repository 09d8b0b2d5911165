//! The indexer: which compressed rows are worth attending to.

use super::records::{CpuRecords, Sequence, place};
use crate::Batch;
use crate::cpu::isa::Isa;
use crate::cpu::pool::Pool;
use crate::cpu::simd::lanes::{Kernel, Lanes, MAX_LANES, dispatch};
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
        let visible = (self.batch.positions[row] as usize + 1) / self.spec.ratio;
        if visible <= chosen.len() {
            chosen.fill(u32::MAX);
            let all = chosen.iter_mut().zip(0..visible as u32);
            return all.for_each(|(chosen, row)| *chosen = row);
        }
        self.score(row, visible, scores);
        largest(chosen, scores.iter().copied());
        chosen.sort_unstable();
    }

    /// Fills `scores` with those of all visible compressed rows.
    fn score(&self, row: usize, visible: usize, scores: &mut Vec<f32>) {
        let IndexSpec { heads, rows, .. } = *self.spec;
        let table = Sequence::of_row(self.batch, row).table;
        let weights = &self.weights[row * heads..][..heads];
        let weights: Vec<f32> = weights.iter().map(|w| w * self.spec.scale).collect();
        let mut key = vec![0.0; rows.width];
        let mut keys = vec![0.0; rows.width * MAX_LANES];
        scores.clear();
        scores.resize(visible.next_multiple_of(MAX_LANES), 0.0);
        for (part, scores) in scores.chunks_exact_mut(MAX_LANES).enumerate() {
            let first = part * MAX_LANES;
            for (lane, index) in (first..visible.min(first + MAX_LANES)).enumerate() {
                let (block, at) = place(index, rows.rows);
                self.blocks.read((table[block], rows, at), &mut key);
                let lanes = keys[lane..].iter_mut().step_by(MAX_LANES);
                lanes.zip(&key).for_each(|(to, &value)| *to = value);
            }
            let q = &self.q[row * heads * rows.width..][..heads * rows.width];
            let (keys, weights) = (&keys, &weights);
            dispatch(
                self.isa,
                Score {
                    scores,
                    q,
                    weights,
                    keys,
                },
            );
        }
        scores.truncate(visible);
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

/// Heads that share the reading of keys.
const HEADS: usize = 4;

/// `sum of weights[h] * max(0, q[h] · key)` of [`MAX_LANES`] keys, each in a lane of its own.
struct Score<'a> {
    /// `[MAX_LANES]`.
    scores: &'a mut [f32],
    /// `[heads, width]`.
    q: &'a [f32],
    weights: &'a [f32],
    /// `[width, MAX_LANES]`.
    keys: &'a [f32],
}

impl Kernel for Score<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let width = self.keys.len() / MAX_LANES;
        for (lane, scores) in (0..).step_by(S::N).zip(self.scores.chunks_exact_mut(S::N)) {
            let keys = || {
                self.keys
                    .chunks_exact(MAX_LANES)
                    .map(|key| s.load(&key[lane..]))
            };
            let mut score = s.splat(0.0);
            let mut add = |sum: S::V, weight: f32| {
                let product = s.max(s.splat(0.0), sum);
                score = s.mul_add(s.splat(weight), product, score);
            };
            let groups = self.q.chunks_exact(HEADS * width);
            let last = groups.remainder().chunks_exact(width);
            let (together, alone) = self.weights.split_at(groups.len() * HEADS);
            for (q, weights) in groups.zip(together.chunks_exact(HEADS)) {
                let mut sums = [s.splat(0.0); HEADS];
                for (i, key) in keys().enumerate() {
                    for (head, sum) in sums.iter_mut().enumerate() {
                        *sum = s.mul_add(s.splat(q[head * width + i]), key, *sum);
                    }
                }
                for (sum, &weight) in sums.into_iter().zip(weights) {
                    add(sum, weight);
                }
            }
            for (q, &weight) in last.zip(alone) {
                let mut sum = s.splat(0.0);
                for (&q, key) in q.iter().zip(keys()) {
                    sum = s.mul_add(s.splat(q), key, sum);
                }
                add(sum, weight);
            }
            s.store(scores, score);
        }
    }
}
