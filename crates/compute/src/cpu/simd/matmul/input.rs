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
    /// `[rows, spans]`; empty for kinds without a minimum.
    pub(super) sums: &'a [f32],
    /// `[rows, spans]`
    pub(super) starts: &'a [i32],
}

impl<'a> Input<'a> {
    pub(super) fn new(kind: Kind, x: &'a Activations, first: usize, rows: usize) -> Self {
        let (blocks, pitch) = (x.blocks(), x.pitch());
        let spans = blocks * BLOCK / kind.span();
        let sums = if kind.scales.has_min() {
            &x.sums(kind, first)[..rows * spans]
        } else {
            &[]
        };
        Self {
            first,
            blocks,
            spans,
            pitch,
            quants: &x.quants(first)[..(rows - 1) * pitch + blocks],
            scales: &x.scales(first)[..rows * blocks],
            sums,
            starts: &x.starts(kind, first)[..rows * spans],
        }
    }

    #[inline]
    pub(super) fn block(&self, row: usize, block: usize) -> &'a Quants {
        &self.quants[row * self.pitch + block]
    }

    /// Where the integer sum of a span begins.
    #[inline]
    pub(super) fn start(&self, row: usize, span: usize) -> i32 {
        self.starts[row * self.spans + span]
    }

    /// The scaled sum of a span, for kinds with a minimum.
    #[inline]
    pub(super) fn sum(&self, row: usize, span: usize) -> f32 {
        self.sums[row * self.spans + span]
    }
}

impl Quants {
    /// Four values, as they lie in memory.
    #[inline]
    pub(super) fn quad(&self, quad: usize) -> i32 {
        assert!(quad < QUADS, "a block has {QUADS} quads");
        // SAFETY: the four bytes lie in the block, which is aligned to 32.
        unsafe { (&raw const *self).cast::<i32>().add(quad).read() }
    }
}
