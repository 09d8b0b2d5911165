//! Some neighbouring activation rows, as the kernels address them.

use crate::cpu::matmul::{Activations, BLOCK, Kind, QUADS, Quants};

/// Rows `first..` of the activations of a call.
pub(super) struct Input<'a> {
    pub(super) first: usize,
    /// Blocks of a row.
    pub(super) blocks: usize,
    /// Spans of a row: parts with one weight scale.
    pub(super) spans: usize,
    /// Blocks from one row of `quants` to the next.
    pub(super) pitch: usize,
    pub(super) quants: &'a [Quants],
    /// `[rows, blocks]`
    pub(super) scales: &'a [f32],
    /// `[rows, blocks]`
    pub(super) sums: &'a [f32],
    /// `[rows, spans]`
    pub(super) starts: &'a [i32],
}

impl<'a> Input<'a> {
    pub(super) fn new(kind: Kind, x: &'a Activations, first: usize, rows: usize) -> Self {
        let (blocks, pitch) = (x.blocks(), x.pitch());
        let spans = blocks * BLOCK / kind.span();
        Self {
            first,
            blocks,
            spans,
            pitch,
            quants: &x.quants(first)[..(rows - 1) * pitch + blocks],
            scales: &x.scales(first)[..rows * blocks],
            sums: &x.sums(first)[..rows * blocks],
            starts: &x.starts(kind, first)[..rows * spans],
        }
    }

    /// Four values of block `block` of row `row`, as they lie in memory.
    #[inline]
    pub(super) fn quad(&self, row: usize, block: usize, quad: usize) -> i32 {
        debug_assert!(quad < QUADS);
        let block = &raw const self.quants[row * self.pitch + block];
        // SAFETY: `quad` is below 8, so the four bytes lie in the block, which is aligned to 32.
        unsafe { block.cast::<i32>().add(quad).read() }
    }
}
