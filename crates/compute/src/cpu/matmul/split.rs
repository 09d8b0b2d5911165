//! Activations in two bfloat16 parts, for products in bfloat16 tiles.
//!
//! `high` is the value rounded to the 8 bits of a bfloat16's significand, `low` the rest rounded likewise: together they
//! are within 2^-17 of the value. Both halves round away from zero. Bfloat16 weights are exact, so that is all the
//! error there is beside the summing in `f32`.

use super::packed::BLOCK;
use crate::cpu::isa::Isa;
use crate::cpu::memory::sized;
use crate::cpu::pool::Pool;
use crate::cpu::simd::matmul as simd;
use std::ops::Range;

/// A block of columns of one row.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub(crate) struct SplitBlock {
    pub(crate) high: [u16; BLOCK],
    pub(crate) low: [u16; BLOCK],
}

/// Rows of split activations.
#[derive(Default)]
pub(crate) struct SplitBuffer {
    rows: usize,
    blocks: usize,
    /// `[rows, pitch]`, of which the first `blocks` of each row count.
    values: Vec<SplitBlock>,
}

/// Neighbouring rows of a [`SplitBuffer`].
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "only x86-64 has tiles")
)]
#[derive(Clone, Copy)]
pub(crate) struct SplitRows<'a> {
    pub(crate) rows: usize,
    pub(crate) blocks: usize,
    /// Blocks from one row to the next.
    pub(crate) pitch: usize,
    /// Whole tiles can be read from any row on; what the rows past the last hold does not matter.
    pub(crate) values: &'a [SplitBlock],
}

impl SplitBuffer {
    /// Splits `x`, `[rows, cols]`, on a machine that has tiles for it.
    pub(crate) fn split(&mut self, (pool, isa): (&Pool, Isa), x: &[f32], rows: usize) {
        let cols = x.len() / rows;
        assert!(cols.is_multiple_of(BLOCK), "whole blocks of columns");
        (self.rows, self.blocks) = (rows, cols / BLOCK);
        let (blocks, pitch) = (self.blocks, self.pitch());
        sized(&mut self.values, (rows + super::TILE_ROWS - 1) * pitch);
        let values = &mut self.values[..rows * pitch];
        let grain = MIN_VALUES.div_ceil(cols);
        pool.for_rows(values, pitch, grain, &|first, values| {
            for (out, x) in values
                .chunks_exact_mut(pitch)
                .zip(x[first * cols..].chunks_exact(cols))
            {
                simd::split(isa, x, &mut out[..blocks]);
            }
        });
    }

    /// Some neighbouring rows.
    pub(crate) fn part(&self, rows: Range<usize>) -> SplitRows<'_> {
        assert!(rows.start <= rows.end && rows.end <= self.rows);
        SplitRows {
            rows: rows.len(),
            blocks: self.blocks,
            pitch: self.pitch(),
            values: &self.values[rows.start * self.pitch()..],
        }
    }

    /// Blocks from one row to the next; odd, so that the rows of a tile lie in different cache sets.
    fn pitch(&self) -> usize {
        self.blocks | 1
    }
}

/// Fewer values than this are not worth a second thread.
const MIN_VALUES: usize = 16 * 1024;
