//! Compressors: one row out of the tokens of a window.

use super::records::{CpuRecords, Sequence, place};
use crate::Batch;
use crate::cpu::isa::Isa;
use crate::cpu::pool::Pool;
use crate::cpu::rotation;
use crate::cpu::simd::elementwise::RmsNormHeads;
use crate::cpu::simd::lanes::dispatch;
use crate::deepseek4::{CompressSpec, Kept};

/// One compressor and the tokens of a batch.
pub(super) struct Compressor<'a> {
    pub(super) isa: Isa,
    pub(super) spec: &'a CompressSpec<'a>,
    /// `[n, series, width]`.
    pub(super) kv: &'a [f32],
    /// `[n, series, width]`.
    pub(super) gate: &'a [f32],
    /// `[ratio, series, width]`.
    pub(super) ape: &'a [f32],
    pub(super) norm: &'a [f32],
    pub(super) batch: &'a Batch,
}

/// A window that ends in the batch.
#[derive(Clone, Copy)]
struct Window {
    sequence: usize,
    index: usize,
}

impl Compressor<'_> {
    /// Panics unless all shapes fit together.
    pub(super) fn check(&self) {
        let Self { spec, batch, .. } = self;
        let (width, token) = (spec.rows.width, self.token_width());
        assert!(spec.tokens.rows == if spec.overlap { 2 } else { 1 } * spec.ratio);
        assert!(spec.tokens.width == 2 * token && self.norm.len() == width);
        assert!(spec.tokens.kept == Kept::F32);
        assert!(self.ape.len() == spec.ratio * token && spec.rope.head_dim() == width);
        assert!(self.kv.len() == batch.len() * token && self.gate.len() == self.kv.len());
        assert!(batch.states.len() == batch.sequences.len());
    }

    /// Values of `kv` or `gate` of a token.
    fn token_width(&self) -> usize {
        if self.spec.overlap {
            2 * self.spec.rows.width
        } else {
            self.spec.rows.width
        }
    }

    pub(super) fn run(&self, pool: &Pool, blocks: &mut CpuRecords, states: &mut CpuRecords) {
        let (ratio, width) = (self.spec.ratio, self.spec.rows.width);
        let ends = |sequence: &Sequence<'_>| {
            let index = sequence.index;
            let windows = sequence.start / ratio..(sequence.start + sequence.rows) / ratio;
            windows.map(move |window| Window {
                sequence: index,
                index: window,
            })
        };
        let sequences = || Sequence::all(self.batch);
        let windows: Vec<Window> = sequences().flat_map(|s| ends(&s)).collect();
        let mut rows = vec![0.0; windows.len() * width];
        let read = &*states;
        pool.for_rows(&mut rows, width, 1, &|first, rows| {
            for (row, &window) in rows.chunks_exact_mut(width).zip(&windows[first..]) {
                self.pool_window(row, window, read);
            }
        });
        for (row, window) in rows.chunks_exact(width).zip(&windows) {
            let (block, at) = place(window.index, self.spec.rows.rows);
            let block = Sequence::of(self.batch, window.sequence).table[block];
            blocks.write((block, self.spec.rows, at), row);
        }
        sequences().for_each(|sequence| self.keep(&sequence, states));
    }

    /// The row of a window.
    fn pool_window(&self, row: &mut [f32], window: Window, states: &CpuRecords) {
        let Self { isa, spec, .. } = *self;
        let (ratio, width, token) = (spec.ratio, row.len(), self.token_width());
        let sequence = Sequence::of(self.batch, window.sequence);
        let first = window.index * ratio;
        let before = if spec.overlap {
            first.saturating_sub(ratio)
        } else {
            first
        };
        // Of each slot, the values and the gates of its series.
        let slots = || {
            (before..first + ratio).map(|position| {
                let series = usize::from(spec.overlap && position >= first) * width;
                let (kv, gate) = self.token(&sequence, position, states);
                let ape = &self.ape[position % ratio * token + series..][..width];
                (
                    &kv[series..][..width],
                    gate[series..][..width].iter().zip(ape),
                )
            })
        };
        let mut max = vec![f32::NEG_INFINITY; width];
        for (_, gates) in slots() {
            for (max, (gate, ape)) in max.iter_mut().zip(gates) {
                *max = max.max(gate + ape);
            }
        }
        let mut sums = vec![0.0; width];
        for (kv, gates) in slots() {
            let gates = gates
                .zip(&max)
                .map(|((gate, ape), max)| (gate + ape - max).exp());
            for (((row, sum), kv), share) in row.iter_mut().zip(&mut sums).zip(kv).zip(gates) {
                *sum += share;
                *row += share * kv;
            }
        }
        row.iter_mut().zip(&sums).for_each(|(row, sum)| *row /= sum);
        let (weight, eps) = (self.norm, spec.eps);
        dispatch(
            isa,
            RmsNormHeads {
                x: row,
                weight,
                eps,
            },
        );
        self.turn(row, first);
    }

    fn turn(&self, row: &mut [f32], position: usize) {
        let (isa, rope) = (self.isa, self.spec.rope);
        let mut angles = vec![0.0; 2 * rope.rotary_dim()];
        rotation::fill(rope, position as u32, &mut angles);
        rotation::turn(isa, rope, &angles, row);
    }

    /// `kv` and `gate` of a token, in this batch or before.
    fn token<'s>(
        &'s self,
        sequence: &Sequence<'_>,
        position: usize,
        states: &'s CpuRecords,
    ) -> (&'s [f32], &'s [f32]) {
        let (width, tokens) = (self.token_width(), self.spec.tokens);
        match position.checked_sub(sequence.start) {
            Some(row) => {
                let start = (sequence.first_row + row) * width;
                (&self.kv[start..][..width], &self.gate[start..][..width])
            }
            None => states
                .row(sequence.state, tokens, position % tokens.rows)
                .split_at(width),
        }
    }

    /// Puts the last tokens into the running state.
    fn keep(&self, sequence: &Sequence<'_>, states: &mut CpuRecords) {
        let (width, tokens) = (self.token_width(), self.spec.tokens);
        for row in sequence.rows.saturating_sub(tokens.rows)..sequence.rows {
            let at = (sequence.start + row) % tokens.rows;
            let from = (sequence.first_row + row) * width;
            let (kv, gate) = states
                .row_mut(sequence.state, tokens, at)
                .split_at_mut(width);
            kv.copy_from_slice(&self.kv[from..][..width]);
            gate.copy_from_slice(&self.gate[from..][..width]);
        }
    }
}
