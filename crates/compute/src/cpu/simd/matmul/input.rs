//! Some neighbouring activation rows, as the kernels address them, and asking for weights before they are needed.

use super::layout::Layout;
use crate::cpu::matmul::{Activations, BLOCK, Group, Kind, QUADS, Quants, SUPER};

/// How many bytes before their use weights are asked for. The processor's own guesses end at a page; with these two
/// threads of a Sapphire Rapids Xeon generated from a 1B Q4_0 file at 93 % of the bandwidth of a plain sum instead of 66 %.
const AHEAD: usize = 4096;

/// Asks for what a kernel of few rows will need some time after `block`.
#[inline(always)]
pub(super) fn prefetch_block<L: Layout>(group: &Group<'_>, block: usize) {
    let bytes = L::BITS * LINE;
    prefetch(&group.quants[block * L::BITS..], bytes);
    // 32 bytes for a block, or somewhat more: a line for every second one would do, but costs as much to find out.
    let later = block + AHEAD / bytes;
    let entry = L::SCALES.lanes(later / SUPER * SUPER) + later % SUPER;
    hint(group.scales.as_ptr().wrapping_add(entry));
}

/// Asks for what lies [`AHEAD`] of the first `bytes` bytes of `weights`.
#[inline(always)]
pub(super) fn prefetch<T>(weights: &[T], bytes: usize) {
    let start = weights.as_ptr().cast::<u8>();
    for at in (0..bytes).step_by(LINE) {
        hint(start.wrapping_add(AHEAD + at));
    }
}

/// Asks for a part, of `parts`, of the group that this thread will probably take after `group`, while it has the arithmetic of
/// many rows to do: `ahead` groups on.
#[inline(always)]
pub(super) fn prefetch_next(group: &Group<'_>, ahead: usize, (part, parts): (usize, usize)) {
    let (quants, scales) = (group.quants, group.scales);
    for (start, bytes) in [
        (quants.as_ptr().cast::<u8>(), size_of_val(quants)),
        (scales.as_ptr().cast(), size_of_val(scales)),
    ] {
        let lines = bytes.div_ceil(LINE);
        for line in lines * part / parts..lines * (part + 1) / parts {
            hint_far(start.wrapping_add(ahead * bytes + line * LINE));
        }
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn hint<T>(address: *const T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint that never faults; every x86-64 machine has it.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

/// [`hint`], as far as the second-level cache.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn hint_far<T>(address: *const T) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    // SAFETY: as in `hint`.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn hint_far<T>(address: *const T) {
    use std::arch::asm;
    // SAFETY: a hint that never faults.
    unsafe {
        asm!("prfm pldl2keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn hint<T>(address: *const T) {
    use std::arch::asm;
    // SAFETY: a hint that never faults.
    unsafe {
        asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
}

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
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "other kernels take values otherwise")
    )]
    #[inline]
    pub(super) fn quad(&self, quad: usize) -> i32 {
        assert!(quad < QUADS, "a block has {QUADS} quads");
        // SAFETY: the four bytes lie in the block, which is aligned to 32.
        unsafe { (&raw const *self).cast::<i32>().add(quad).read() }
    }
}
