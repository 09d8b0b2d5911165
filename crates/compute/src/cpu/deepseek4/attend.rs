//! Attention over a window and compressed rows, with one head of keys that are the values too.
//!
//! A row's keys are taken [`CHUNK`] at a time: their scores with all heads, a running softmax that begins with the sink, and their
//! shares' sum. Which keys share a chunk follows from the row's position alone.

use super::records::{CpuRecords, Sequence, place};
use crate::cpu::isa::Isa;
use crate::cpu::memory::sized;
use crate::cpu::pool::{Pool, Runs, lock};
use crate::cpu::simd::lanes::{MAX_LANES, dispatch};
use crate::cpu::simd::shared_rows::{Gather, LayQueries, Scores, Seen, Softmax, TOGETHER};
use crate::deepseek4::{CompressedRows, WindowSpec};
use crate::{Batch, CpuBackend};
use std::f32::consts::LOG2_E;
use std::ops::Range;
use std::sync::Mutex;

/// Keys that are taken together: some hundred KiB, which stay in the second-level cache between scores and sums.
const CHUNK: usize = 16 * TOGETHER;

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

/// Memory kept from call to call.
#[derive(Default)]
pub(in crate::cpu) struct WindowScratch {
    threads: Vec<Mutex<Work>>,
}

/// What one thread works with; `pitch` and `row_pitch` are the numbers of heads and dimensions in whole vectors.
#[derive(Default)]
struct Work {
    /// `[head_dim, pitch]`.
    queries: Vec<f32>,
    /// `[CHUNK, row_pitch]`.
    keys: Vec<f32>,
    /// `[CHUNK, pitch]`.
    scores: Vec<f32>,
    /// `[heads, row_pitch]`.
    sums: Vec<f32>,
    /// `[3, pitch]`: the parts of [`Seen`].
    seen: Vec<f32>,
}

/// What a row sees.
#[derive(Clone, Copy)]
enum Key {
    /// That of a position.
    Token(usize),
    /// A compressed row.
    Row(usize),
}

impl WindowAttention<'_> {
    /// Fills `out`, `[n, heads, head_dim]`.
    pub(super) fn run(
        &self,
        pool: &Pool,
        scratch: &mut WindowScratch,
        out: &mut [f32],
        states: &CpuRecords,
    ) {
        let (heads, head_dim) = (self.spec.heads, self.spec.ring.width);
        // The heads of a row are shared out where there are few rows.
        let few = self.batch.len() < 2 * pool.threads() && heads.is_multiple_of(MAX_LANES);
        let part = if few { MAX_LANES } else { heads };
        let (parts, width) = (heads / part, part * head_dim);
        let threads = pool.threads().max(scratch.threads.len());
        scratch.threads.resize_with(threads, Mutex::default);
        let run = (out.len() / width).div_ceil(pool.runs()).max(1);
        let outs = Runs::new(out, run * width);
        let works = &scratch.threads;
        pool.for_each_on(outs.count(), 1, &|thread, index| {
            let mut work = lock(&works[thread]);
            let outs = outs.take(index).chunks_exact_mut(width);
            for (unit, out) in (index * run..).zip(outs) {
                let heads = unit % parts * part..(unit % parts + 1) * part;
                self.attend((unit / parts, heads), out, &mut work, states);
            }
        });
    }

    /// Fills `out`, `[heads, head_dim]`, for some heads of a row.
    fn attend(
        &self,
        (row, heads): (usize, Range<usize>),
        out: &mut [f32],
        work: &mut Work,
        states: &CpuRecords,
    ) {
        let (isa, width, count) = (self.isa, self.spec.ring.width, heads.len());
        let [pitch, row_pitch] = [count, width].map(|n| n.next_multiple_of(MAX_LANES));
        let queries = sized(&mut work.queries, width * pitch);
        let keys = sized(&mut work.keys, CHUNK * row_pitch);
        let scores = sized(&mut work.scores, CHUNK * pitch);
        let sums = sized(&mut work.sums, count * row_pitch);
        let (max, rest) = sized(&mut work.seen, 3 * pitch).split_at_mut(pitch);
        let (sum, kept) = rest.split_at_mut(pitch);
        LayQueries {
            to: queries,
            from: &self.q[(row * self.spec.heads + heads.start) * width..][..out.len()],
            width,
            pitch,
            factor: self.spec.scale * LOG2_E,
        }
        .run();
        // The sink is a score without a value.
        for (max, sink) in max.iter_mut().zip(&self.sinks[heads]) {
            *max = sink * LOG2_E;
        }
        sum.fill(1.0);
        sums.fill(0.0);
        let sequence = Sequence::of_row(self.batch, row);
        let mut visible = self.visible(row);
        loop {
            let mut taken = 0_usize;
            for (to, key) in keys.chunks_exact_mut(row_pitch).zip(visible.by_ref()) {
                self.read(key, (&sequence, states), &mut to[..width]);
                taken += 1;
            }
            if taken == 0 {
                break;
            }
            let whole = taken.next_multiple_of(TOGETHER);
            let meet = Scores {
                scores: &mut scores[..whole * pitch],
                rows: &keys[..whole * row_pitch],
                row_pitch,
                queries,
                width,
                pitch,
            };
            dispatch(isa, meet);
            let shares = &mut scores[..taken * pitch];
            let seen = Seen { max, sum, kept };
            dispatch(
                isa,
                Softmax {
                    scores: shares,
                    seen,
                },
            );
            let gather = Gather {
                out: sums,
                kept,
                shares,
                rows: &keys[..taken * row_pitch],
                row_pitch,
                pitch,
            };
            dispatch(isa, gather);
        }
        let sums = sums.chunks_exact(row_pitch).zip(&*sum);
        for (out, (sums, sum)) in out.chunks_exact_mut(width).zip(sums) {
            for (out, x) in out.iter_mut().zip(sums) {
                *out = x / sum;
            }
        }
    }

    /// The keys that a row sees: the window's, oldest first, then compressed rows in ascending order.
    fn visible(&self, row: usize) -> impl Iterator<Item = Key> {
        let position = self.batch.positions[row] as usize;
        let window = (position + 1).saturating_sub(self.spec.ring.rows)..=position;
        let compressed = self.compressed.into_iter().flat_map(move |compressed| {
            let chosen = compressed.chosen.map(|chosen| chosen.row(row));
            let count = match chosen {
                None => (position + 1) / compressed.ratio,
                Some(chosen) => chosen.partition_point(|&index| index != u32::MAX),
            };
            (0..count).map(move |at| Key::Row(chosen.map_or(at, |chosen| chosen[at] as usize)))
        });
        window.map(Key::Token).chain(compressed)
    }

    /// Reads a key, of this batch or kept from earlier ones.
    fn read(&self, key: Key, (sequence, states): (&Sequence<'_>, &CpuRecords), to: &mut [f32]) {
        let ring = self.spec.ring;
        match key {
            Key::Token(position) => match position.checked_sub(sequence.start) {
                Some(own) => {
                    let start = (sequence.first_row + own) * ring.width;
                    to.copy_from_slice(&self.k[start..][..ring.width]);
                }
                None => states.read((sequence.state, ring, position % ring.rows), to),
            },
            Key::Row(index) => {
                let compressed = self.compressed.expect("where its rows are");
                let (block, at) = place(index, compressed.rows.rows);
                let at = (sequence.table[block], compressed.rows, at);
                compressed.blocks.read(at, to);
            }
        }
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
