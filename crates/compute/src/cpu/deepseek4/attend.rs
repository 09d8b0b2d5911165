//! Attention over a window and compressed rows, with one head of keys that are the values too.

use super::records::{CpuRecords, Sequence, place};
use crate::cpu::isa::Isa;
use crate::cpu::pool::Pool;
use crate::cpu::simd::lanes::{Kernel, Lanes, dispatch};
use crate::deepseek4::{CompressedRows, WindowSpec};
use crate::{Batch, CpuBackend};

/// Products that a thread takes at a time.
const GRAIN_PRODUCTS: usize = 32 * 1024;

/// The queries and keys of a batch.
pub(super) struct WindowAttention<'a> {
    pub(super) isa: Isa,
    pub(super) spec: &'a WindowSpec,
    /// `[heads]`.
    pub(super) sinks: &'a [f32],
    /// `[n, heads, head_dim]`.
    pub(super) q: &'a [f32],
    /// `[n, head_dim]`.
    pub(super) k: &'a [f32],
    pub(super) compressed: Option<&'a CompressedRows<'a, CpuBackend>>,
    pub(super) batch: &'a Batch,
}

impl WindowAttention<'_> {
    /// Fills `out`, `[n, heads, head_dim]`.
    pub(super) fn run(&self, pool: &Pool, out: &mut [f32], states: &CpuRecords) {
        let (heads, head_dim) = (self.spec.heads, self.spec.ring.width);
        let grain = GRAIN_PRODUCTS.div_ceil(2 * self.spec.ring.rows * head_dim);
        pool.for_rows(out, head_dim, grain, &|mut place, mut outs| {
            let (mut kept, mut scores) = (Vec::new(), Vec::new());
            while !outs.is_empty() {
                // The heads of one row.
                let row = place / heads;
                let count = (heads - place % heads).min(outs.len() / head_dim);
                let (own, rest) = std::mem::take(&mut outs).split_at_mut(count * head_dim);
                let keys = self.keys(row, states, &mut kept);
                for (place, out) in (place..).zip(own.chunks_exact_mut(head_dim)) {
                    let attend = Attend {
                        out,
                        q: &self.q[place * head_dim..][..head_dim],
                        keys: &keys,
                        scores: &mut scores,
                        scale: self.spec.scale,
                        sink: self.sinks[place % heads],
                    };
                    dispatch(self.isa, attend);
                }
                (place, outs) = (place + count, rest);
            }
        });
    }

    /// The keys that a row sees: those of the window, oldest first, then compressed ones in ascending order. Those that are kept
    /// from earlier steps are read into `kept`.
    fn keys<'k>(
        &'k self,
        row: usize,
        states: &CpuRecords,
        kept: &'k mut Vec<f32>,
    ) -> Vec<&'k [f32]> {
        let ring = self.spec.ring;
        let sequence = Sequence::of_row(self.batch, row);
        let position = self.batch.positions[row] as usize;
        let first = (position + 1).saturating_sub(ring.rows);
        kept.clear();
        let mut read = |records: &CpuRecords, at| {
            let start = kept.len();
            kept.resize(start + ring.width, 0.0);
            records.read(at, &mut kept[start..]);
        };
        for before in first..sequence.start {
            read(states, (sequence.state, ring, before % ring.rows));
        }
        if let Some(compressed) = self.compressed {
            let mut read = |index| {
                let (block, at) = place(index, compressed.rows.rows);
                let at = (sequence.table[block], compressed.rows, at);
                read(compressed.blocks, at);
            };
            match compressed.chosen {
                None => (0..(position + 1) / compressed.ratio).for_each(&mut read),
                Some(chosen) => chosen
                    .row(row)
                    .iter()
                    .take_while(|&&index| index != u32::MAX)
                    .for_each(|&index| read(index as usize)),
            }
        }
        let of_ring = sequence.start.saturating_sub(first);
        let own = sequence.first_row + first.saturating_sub(sequence.start)..=row;
        let mut keys: Vec<&[f32]> = kept.chunks_exact(ring.width).collect();
        let of_batch = own.map(|row| &self.k[row * ring.width..][..ring.width]);
        keys.splice(of_ring..of_ring, of_batch);
        keys
    }

    /// Puts the last keys into the running states.
    pub(super) fn keep(&self, states: &mut CpuRecords) {
        let ring = self.spec.ring;
        for sequence in Sequence::all(self.batch) {
            for row in sequence.rows.saturating_sub(ring.rows)..sequence.rows {
                let at = (sequence.start + row) % ring.rows;
                let key = &self.k[(sequence.first_row + row) * ring.width..][..ring.width];
                states.write((sequence.state, ring, at), key);
            }
        }
    }
}

/// Attention of one head of one row.
struct Attend<'a, 'k> {
    out: &'a mut [f32],
    q: &'a [f32],
    keys: &'a [&'k [f32]],
    scores: &'a mut Vec<f32>,
    scale: f32,
    sink: f32,
}

impl Kernel for Attend<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let scores = self.scores;
        scores.clear();
        let products = self.keys.iter().map(|key| dot(s, self.q, key) * self.scale);
        scores.extend(products);
        let max = scores.iter().copied().fold(self.sink, f32::max);
        let log2_e = std::f32::consts::LOG2_E;
        for part in scores.chunks_mut(S::N) {
            let below = s.sub(s.load_part(part), s.splat(max));
            let share = s.exp2(s.mul(below, s.splat(log2_e)));
            s.store_part(part, share);
        }
        let sum = scores.iter().sum::<f32>() + (self.sink - max).exp();
        let width = self.out.len();
        for start in (0..width).step_by(4 * S::N) {
            let part = start..width.min(start + 4 * S::N);
            let mut sums = [s.splat(0.0); 4];
            for (key, share) in self.keys.iter().zip(&*scores) {
                let share = s.splat(*share);
                for (sum, key) in sums.iter_mut().zip(key[part.clone()].chunks(S::N)) {
                    *sum = s.mul_add(share, s.load_part(key), *sum);
                }
            }
            let factor = s.splat(1.0 / sum);
            for (sum, out) in sums.iter().zip(self.out[part].chunks_mut(S::N)) {
                s.store_part(out, s.mul(*sum, factor));
            }
        }
    }
}

/// `a · b`, in four sums over every fourth vector.
#[inline(always)]
fn dot<S: Lanes>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [s.splat(0.0); 4];
    for (a, b) in a.chunks(4 * S::N).zip(b.chunks(4 * S::N)) {
        let parts = a.chunks(S::N).zip(b.chunks(S::N));
        for (sum, (a, b)) in sums.iter_mut().zip(parts) {
            *sum = s.mul_add(s.load_part(a), s.load_part(b), *sum);
        }
    }
    s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
}
