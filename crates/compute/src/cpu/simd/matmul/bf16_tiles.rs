//! AMX bfloat16 tiles: bf16 weights by activations split in two bfloat16 parts.
//!
//! A tile takes sixteen activation rows, a block of 32 columns and sixteen weight rows; the pairs of columns that
//! [`Pairs`] stores are what the second operand of `tdpbf16ps` wants, so weights go from memory to the tiles as they are.
//! Each element is summed in `f32` over the blocks in ascending order, the low parts of a block before the high ones,
//! whatever the other rows are.
//!
//! **What bounds it.** Up to sixteen rows: reading the weights, which are asked for two blocks ahead: one row read 14 to
//! 16 GB/s in most runs on one thread of a Sapphire Rapids Xeon that others used too, 8 to 13 without. Many rows: two products in tiles for each of
//! `f32`, at 16 cycles for 8192, so 1050 GMAC/s at 4.1 GHz at the most, and reading activations and weights from the second-level cache
//! beside them. Measured on a machine that others used too: 512 x 512 weights by 512 rows 390 GMAC/s, 2048 x 2048 weights
//! 260 to 390; `f32` vectors reach 75 and 46. To repeat:
//! `cargo run --release -p andante-compute --example matmul -- 1 amx BF16`.

use super::avx512::store;
use crate::cpu::matmul::{Pairs, SplitBlock, SplitRows, TILE_ROWS};
use crate::cpu::pool::{STRIP, Strip};
use crate::cpu::simd::tiles::{Tiles, split};
use std::arch::asm;
use std::arch::x86_64::*;

/// Bytes of a line of a tile.
const LINE: usize = 64;
/// Lines of a block of weights.
const LINES: usize = 16;
/// Groups of weight rows that are multiplied side by side.
const PAIR: usize = 2;
/// How many blocks before its use a block of weights is asked for.
const AHEAD: usize = 2;

/// Splits one row of activations.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn split_row(x: &[f32], out: &mut [SplitBlock]) {
    for (x, out) in x.as_chunks::<32>().0.iter().zip(out) {
        // SAFETY: a block is 32 values.
        let parts = unsafe {
            [
                _mm512_loadu_ps(x.as_ptr()),
                _mm512_loadu_ps(x.as_ptr().add(16)),
            ]
        };
        let [high, low] = split(parts);
        // SAFETY: each part is 64 bytes, aligned by the block's type.
        unsafe {
            _mm512_store_si512(out.high.as_mut_ptr().cast(), high);
            _mm512_store_si512(out.low.as_mut_ptr().cast(), low);
        }
    }
}

/// Multiplies the groups of `out`, whose weights come first in `weights`, with all activation rows.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn multiply(weights: &[Pairs], x: &SplitRows<'_>, out: &mut Strip<'_>) {
    let groups = out.width().div_ceil(STRIP);
    let lines = x.blocks * LINES;
    assert!(x.blocks > 0 && weights.len() >= groups * lines);
    assert!(x.values.len() >= (x.rows + TILE_ROWS - 2) * x.pitch + x.blocks);
    // A single group of rows is as high as it must be: what tiles cost goes with their rows.
    let rows = x.rows.min(TILE_ROWS);
    let (sums, left, right) = ((rows, LINE), (rows, LINE), (LINES, LINE));
    // SAFETY: an `Isa` with tiles exists only where they can be used.
    let _tiles = unsafe { Tiles::configure(&[sums, sums, sums, sums, left, left, right, right]) };
    let mut sums = [[const { Sums([[0.0; STRIP]; TILE_ROWS]) }; PAIR]; PAIR];
    for first in (0..x.rows).step_by(2 * TILE_ROWS) {
        let one = x.rows - first <= TILE_ROWS;
        for group in (0..groups).step_by(PAIR) {
            // Of an odd number of groups the last is multiplied twice.
            let both = [group, (group + 1).min(groups - 1)];
            let operands = Operands {
                values: [first, if one { first } else { first + TILE_ROWS }]
                    .map(|row| x.values[row * x.pitch..].as_ptr()),
                pitch: x.pitch,
                weights: both.map(|group| weights[group * lines..][..lines].as_ptr()),
                blocks: x.blocks,
            };
            // SAFETY: the tiles are configured; by the lengths above all blocks of both groups of weights exist, and of
            // sixteen rows from every one of `rows` rows on.
            unsafe {
                if one {
                    operands.one_by_two(&mut sums[0]);
                } else {
                    operands.two_by_two(&mut sums);
                }
            }
            for (tile, sums) in sums.iter().enumerate().take(if one { 1 } else { 2 }) {
                let start = first + tile * TILE_ROWS;
                for row in start..x.rows.min(start + TILE_ROWS) {
                    let out = out.row(row)[group * STRIP..].chunks_mut(STRIP);
                    for (out, sums) in out.zip(sums) {
                        // SAFETY: a row of sums is 64 bytes, aligned by its type.
                        let sums = unsafe { _mm512_load_ps(sums.0[row - start].as_ptr()) };
                        store(sums, out);
                    }
                }
            }
        }
    }
}

/// The sums of a tile.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Sums([[f32; STRIP]; TILE_ROWS]);

/// Two groups of activation rows, and two of weight rows.
struct Operands {
    values: [*const SplitBlock; 2],
    pitch: usize,
    weights: [*const Pairs; PAIR],
    blocks: usize,
}

impl Operands {
    /// The first group of rows by both groups of weights. Weights are asked for ahead of the tiles, which wait for them.
    ///
    /// # Safety
    /// The tiles are configured; the operands exist.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn one_by_two(self, sums: &mut [Sums; PAIR]) {
        // The sums stay in tiles 0 and 1 from one step to the next: state that the compiler does not know of and, without
        // the instruction set enabled for it, cannot touch.
        // SAFETY: the tiles are configured.
        unsafe {
            asm!("tilezero tmm0", "tilezero tmm1", out("tmm0") _, out("tmm1") _, options(nostack, preserves_flags));
        }
        for block in 0..self.blocks {
            let weights = self
                .weights
                .map(|weights| weights.wrapping_add(block * LINES));
            for line in 0..LINES {
                for weights in weights {
                    let ahead = weights.wrapping_add(AHEAD * LINES + line);
                    _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
                }
            }
            // SAFETY: the caller's promise.
            unsafe {
                asm!(
                    "tileloadd tmm4, [{a} + {pitch} + 64]", "tileloadd tmm5, [{a} + {pitch}]",
                    "tileloadd tmm6, [{b} + {line}]", "tileloadd tmm7, [{b2} + {line}]",
                    "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm1, tmm4, tmm7",
                    "tdpbf16ps tmm0, tmm5, tmm6", "tdpbf16ps tmm1, tmm5, tmm7",
                    a = in(reg) self.values[0].wrapping_add(block), pitch = in(reg) self.pitch * size_of::<SplitBlock>(),
                    b = in(reg) weights[0], b2 = in(reg) weights[1], line = in(reg) LINE,
                    out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack, preserves_flags),
                );
            }
        }
        // SAFETY: a tile of sums is sixteen lines.
        unsafe {
            asm!(
                "tilestored [{sums} + {line}], tmm0", "tilestored [{sums} + {line} + 1024], tmm1",
                line = in(reg) LINE, sums = in(reg) sums,
                options(nostack, preserves_flags),
            );
        }
    }

    /// Both groups of rows by both groups of weights: four sums take turns, since an instruction waits for the one before
    /// it on the same sum.
    ///
    /// # Safety
    /// The tiles are configured, all with sixteen rows; the operands exist.
    #[inline]
    unsafe fn two_by_two(self, sums: &mut [[Sums; PAIR]; PAIR]) {
        // SAFETY: the caller's promise; a tile of sums is sixteen lines.
        unsafe {
            asm!(
                "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                "2:",
                "tileloadd tmm4, [{a} + {pitch} + 64]", "tileloadd tmm5, [{a2} + {pitch} + 64]",
                "tileloadd tmm6, [{b} + {line}]", "tileloadd tmm7, [{b2} + {line}]",
                "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6", "tdpbf16ps tmm3, tmm5, tmm7",
                "tileloadd tmm4, [{a} + {pitch}]", "tileloadd tmm5, [{a2} + {pitch}]",
                "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6", "tdpbf16ps tmm3, tmm5, tmm7",
                "add {a}, 128", "add {a2}, 128", "add {b}, 1024", "add {b2}, 1024",
                "dec {blocks}", "jnz 2b",
                "tilestored [{sums} + {line}], tmm0", "tilestored [{sums} + {line} + 1024], tmm1",
                "tilestored [{sums} + {line} + 2048], tmm2", "tilestored [{sums} + {line} + 3072], tmm3",
                a = inout(reg) self.values[0] => _, a2 = inout(reg) self.values[1] => _,
                pitch = in(reg) self.pitch * size_of::<SplitBlock>(),
                b = inout(reg) self.weights[0] => _, b2 = inout(reg) self.weights[1] => _,
                blocks = inout(reg) self.blocks => _, line = in(reg) LINE, sums = in(reg) sums,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}
