//! The indexer: which compressed rows are worth attending to.

use super::records::{CpuRecords, Sequence, place};
use crate::Batch;
use crate::cpu::isa::Isa;
use crate::cpu::memory::sized;
use crate::cpu::pool::{Pool, Runs, lock};
use crate::cpu::simd::lanes::{MAX_LANES, dispatch};
use crate::cpu::simd::shared_rows::{LayQueries, ScoreSums, Scores, TOGETHER};
use crate::deepseek4::IndexSpec;
use std::ops::Range;
use std::sync::Mutex;

/// Compressed rows that are scored together.
const CHUNK: usize = 16 * TOGETHER;

/// Compressed rows that a thread takes at a time where a row of the batch is shared out.
const PART: usize = 4 * CHUNK;

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

/// Memory kept from call to call.
#[derive(Default)]
pub(in crate::cpu) struct IndexScratch {
    /// Scores of one row that several threads share.
    scores: Vec<f32>,
    threads: Vec<Mutex<Work>>,
}

/// What one thread works with; `pitch` and `row_pitch` are the numbers of heads and dimensions in whole vectors.
#[derive(Default)]
struct Work {
    /// `[width, pitch]`.
    queries: Vec<f32>,
    /// `[pitch]`.
    weights: Vec<f32>,
    /// `[CHUNK, row_pitch]`.
    rows: Vec<f32>,
    /// `[CHUNK, pitch]`.
    products: Vec<f32>,
    /// Those of one row of the batch.
    scores: Vec<f32>,
    order: Vec<u32>,
}

impl Indexer<'_> {
    /// Fills `chosen`, `[n, top_k]`.
    pub(super) fn run(&self, pool: &Pool, scratch: &mut IndexScratch, chosen: &mut [u32]) {
        let (top_k, n) = (self.spec.top_k, self.batch.len());
        let threads = pool.threads().max(scratch.threads.len());
        scratch.threads.resize_with(threads, Mutex::default);
        if n < 2 * pool.threads() {
            for (row, chosen) in chosen.chunks_exact_mut(top_k).enumerate() {
                self.choose_together(pool, scratch, row, chosen);
            }
            return;
        }
        let works = &scratch.threads;
        let run = n.div_ceil(pool.runs());
        let runs = Runs::new(chosen, run * top_k);
        pool.for_each_on(runs.count(), 1, &|thread, index| {
            let work = &mut *lock(&works[thread]);
            let chosen = runs.take(index).chunks_exact_mut(top_k);
            for (row, chosen) in (index * run..).zip(chosen) {
                let visible = self.visible(row);
                if all(chosen, visible) {
                    continue;
                }
                let mut scores = std::mem::take(&mut work.scores);
                let scores_of_row = sized(&mut scores, visible);
                self.score(row, 0..visible, scores_of_row, work);
                choose(chosen, scores_of_row, &mut work.order);
                work.scores = scores;
            }
        });
    }

    /// One row of the batch by all threads.
    fn choose_together(
        &self,
        pool: &Pool,
        scratch: &mut IndexScratch,
        row: usize,
        chosen: &mut [u32],
    ) {
        let visible = self.visible(row);
        if all(chosen, visible) {
            return;
        }
        let scores = sized(&mut scratch.scores, visible);
        let works = &scratch.threads;
        let part = PART.max(visible.div_ceil(pool.runs()));
        let parts = Runs::new(scores, part);
        pool.for_each_on(parts.count(), 1, &|thread, index| {
            let scores = parts.take(index);
            let rows = index * part..index * part + scores.len();
            self.score(row, rows, scores, &mut lock(&works[thread]));
        });
        choose(chosen, scores, &mut lock(&works[0]).order);
    }

    /// Compressed rows that a row of the batch sees.
    fn visible(&self, row: usize) -> usize {
        (self.batch.positions[row] as usize + 1) / self.spec.ratio
    }

    /// The scores of some compressed rows.
    fn score(&self, row: usize, range: Range<usize>, scores: &mut [f32], work: &mut Work) {
        let (isa, heads, region) = (self.isa, self.spec.heads, self.spec.rows);
        let width = region.width;
        let [pitch, row_pitch] = [heads, width].map(|n| n.next_multiple_of(MAX_LANES));
        let queries = sized(&mut work.queries, width * pitch);
        LayQueries {
            to: queries,
            from: &self.q[row * heads * width..][..heads * width],
            width,
            pitch,
            factor: 1.0,
        }
        .run();
        let weights = sized(&mut work.weights, pitch);
        for (to, weight) in weights
            .iter_mut()
            .zip(&self.weights[row * heads..][..heads])
        {
            *to = weight * self.spec.scale;
        }
        let rows = sized(&mut work.rows, CHUNK * row_pitch);
        let products = sized(&mut work.products, CHUNK * pitch);
        let table = Sequence::of_row(self.batch, row).table;
        for (first, scores) in range.step_by(CHUNK).zip(scores.chunks_mut(CHUNK)) {
            for (index, to) in (first..first + scores.len()).zip(rows.chunks_exact_mut(row_pitch)) {
                let (block, at) = place(index, region.rows);
                self.blocks
                    .read((table[block], region, at), &mut to[..width]);
            }
            let whole = scores.len().next_multiple_of(TOGETHER);
            let products = &mut products[..whole * pitch];
            let meet = Scores {
                scores: products,
                rows: &rows[..whole * row_pitch],
                row_pitch,
                queries,
                width,
                pitch,
            };
            dispatch(isa, meet);
            let add = ScoreSums {
                sums: scores,
                scores: products,
                weights,
                heads,
            };
            dispatch(isa, add);
        }
    }
}

/// Chooses all rows where no more are visible than can be chosen; whether it did.
fn all(chosen: &mut [u32], visible: usize) -> bool {
    if visible > chosen.len() {
        return false;
    }
    chosen.fill(u32::MAX);
    for (chosen, row) in chosen.iter_mut().zip(0..visible as u32) {
        *chosen = row;
    }
    true
}

/// Fills `chosen` with the numbers of the largest scores, ascending; of equal ones the first are taken. There are more scores than
/// are chosen.
fn choose(chosen: &mut [u32], scores: &[f32], order: &mut Vec<u32>) {
    order.clear();
    order.extend(scores.iter().map(|&score| rank(score)));
    let least = order.len() - chosen.len();
    let (_, &mut threshold, above) = order.select_nth_unstable(least);
    let above = above.iter().filter(|&&other| other > threshold).count();
    // How many of the threshold's equals there is room for.
    let mut equals = chosen.len() - above;
    let mut chosen = chosen.iter_mut();
    for (row, &score) in (0..).zip(scores) {
        let rank = rank(score);
        if rank < threshold || rank == threshold && equals == 0 {
            continue;
        }
        equals -= usize::from(rank == threshold);
        *chosen.next().expect("as many as there is room for") = row;
    }
}

/// Numbers in the order of [`f32::total_cmp`].
fn rank(score: f32) -> u32 {
    let bits = score.to_bits();
    bits ^ if bits >> 31 == 0 { 1 << 31 } else { u32::MAX }
}
