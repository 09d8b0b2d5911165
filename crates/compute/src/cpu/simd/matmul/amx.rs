//! AMX: tiles multiply sixteen activation rows with a block of sixteen weight rows in one instruction.
//!
//! The quads of a [`Panel`] are just the layout that the second operand of `tdpbssd` wants: four columns of sixteen weight
//! rows in each tile row. The integer sums of a span come back through memory and enter the same floating-point steps
//! as everywhere, so the results have the same bits.
//!
//! **What bounds it.** Not the multiplications: `tdpbssd` over the 32 columns of a block reaches 1860 GMAC/s on one thread of
//! a 4.1 GHz Xeon (Sapphire Rapids). Every block's 16 x 16 sums go through memory and take three or four vector
//! steps a row. Measured, 512 x 512 weights by 96 rows: Q5_0 272, MXFP4 266, Q4_0 258, Q8_0 256, Q4_K 217; formats with two
//! scales a block, whose tiles are half as deep, gain little over `vpdpbusd`: Q6_K 164, Q3_K 148, Q2_K 125. To repeat:
//! `cargo run --release -p andante-compute --example matmul -- 1 amx`, on an idle machine.

use super::avx512::{floats, store, unpack};
use super::input::{Input, prefetch_next};
use super::layout::{Layout, for_layout};
use crate::cpu::matmul::{Activations, BLOCK, Group, Line, Panel, QUADS, TILE_ROWS};
use crate::cpu::pool::Strip;
use crate::cpu::simd::tiles::Tiles;
use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Multiplies a packed group with all activation rows into `out`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn packed(group: &Group<'_>, x: &Activations, panel: &mut Panel, out: &mut Strip<'_>) {
    let columns = group.kind.span();
    let (sums, values, weights) = ((TILE_ROWS, 64), (TILE_ROWS, columns), (columns / 4, 64));
    // SAFETY: an `Isa` with tiles exists only where they can be used.
    let _tiles = unsafe { Tiles::configure(&[sums, sums, values, values, weights, weights]) };
    for_layout!(group.kind, L => {
        unpack::<L, true>(group, panel);
        let parts = x.rows().div_ceil(TILE_ROWS);
        for (part, first) in (0..x.rows()).step_by(TILE_ROWS).enumerate() {
            prefetch_next(group, panel.ahead, (part, parts));
            let count = TILE_ROWS.min(x.rows() - first);
            // The rows after the last exist, and what comes of them is not stored.
            let input = Input::new(group.kind, x, first, TILE_ROWS);
            match count {
                1..=4 => tile::<L, 4>(panel, &input, count, out),
                5..=8 => tile::<L, 8>(panel, &input, count, out),
                9..=12 => tile::<L, 12>(panel, &input, count, out),
                _ => tile::<L, TILE_ROWS>(panel, &input, count, out),
            }
        }
    });
}

/// The integer sums of one span: sixteen activation rows by sixteen weight rows.
#[repr(C, align(64))]
struct Sums([[i32; 16]; TILE_ROWS]);

/// Spans whose sums the vectors take up together, while the tiles work on the next ones: a sum that a tile has just
/// stored cannot be read at once.
const DEPTH: usize = 4;

/// `T` activation rows, of which `count` are stored, against an unpacked signed group.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn tile<L: Layout, const T: usize>(
    panel: &Panel,
    input: &Input<'_>,
    count: usize,
    out: &mut Strip<'_>,
) {
    let mut acc = [_mm512_setzero_ps(); T];
    // Zeroing them would take longer than the tiles need.
    let mut sums = [const { MaybeUninit::<Sums>::uninit() }; 2 * DEPTH];
    let spans = input.spans;
    let mut multiplied = 0;
    for first in (0..spans).step_by(DEPTH) {
        let end = spans.min(first + 2 * DEPTH);
        while multiplied < end {
            multiply::<L>(
                multiplied,
                panel,
                input,
                &mut sums[multiplied % (2 * DEPTH)],
            );
            multiplied += 1;
        }
        let mut span = first;
        while span < spans.min(first + DEPTH) {
            // SAFETY: `multiply` has written this span's sums.
            let sums = unsafe { sums[span % (2 * DEPTH)].assume_init_ref() };
            add_span::<L, T>(span, panel, input, sums, &mut acc);
            span += 1;
        }
    }
    for (row, acc) in acc.into_iter().enumerate().take(count) {
        store(acc, out.row(input.first + row));
    }
}

/// The integer sums of a span.
#[inline]
#[target_feature(enable = "avx512f")]
fn multiply<L: Layout>(
    span: usize,
    panel: &Panel,
    input: &Input<'_>,
    sums: &mut MaybeUninit<Sums>,
) {
    let quads = QUADS / L::SPANS;
    let weights: &[Line] = &panel.quants[span * quads..][..quads];
    let block = span / L::SPANS;
    let values = &input.quants[block..=(TILE_ROWS - 1) * input.pitch + block];
    // SAFETY: the tiles are configured for these shapes (`packed`): sixteen rows of values, a row `pitch` blocks after the
    // one before, all inside the slice; `quads` lines of weights; sixteen lines of sums.
    unsafe {
        let values = values
            .as_ptr()
            .cast::<u8>()
            .add(span % L::SPANS * BLOCK / L::SPANS);
        let pitch = input.pitch * BLOCK;
        // Neighbouring spans use different tiles.
        if span.is_multiple_of(2) {
            asm!(
                "tilezero tmm0",
                "tileloadd tmm2, [{values} + {pitch}]",
                "tileloadd tmm4, [{weights} + {line}]",
                "tdpbssd tmm0, tmm2, tmm4",
                "tilestored [{sums} + {line}], tmm0",
                values = in(reg) values, pitch = in(reg) pitch, line = in(reg) 64_usize,
                weights = in(reg) weights.as_ptr(), sums = in(reg) sums,
                out("tmm0") _, out("tmm2") _, out("tmm4") _,
                options(nostack, preserves_flags),
            );
        } else {
            asm!(
                "tilezero tmm1",
                "tileloadd tmm3, [{values} + {pitch}]",
                "tileloadd tmm5, [{weights} + {line}]",
                "tdpbssd tmm1, tmm3, tmm5",
                "tilestored [{sums} + {line}], tmm1",
                values = in(reg) values, pitch = in(reg) pitch, line = in(reg) 64_usize,
                weights = in(reg) weights.as_ptr(), sums = in(reg) sums,
                out("tmm1") _, out("tmm3") _, out("tmm5") _,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// The floating-point steps of a span.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn add_span<L: Layout, const T: usize>(
    span: usize,
    panel: &Panel,
    input: &Input<'_>,
    sums: &Sums,
    acc: &mut [__m512; T],
) {
    let (block, blocks, spans) = (span / L::SPANS, input.blocks, input.spans);
    let scales = floats(&panel.scales[span]);
    let activation_scales = &input.scales[block..=(T - 1) * blocks + block];
    for (row, acc) in acc.iter_mut().enumerate() {
        // SAFETY: `row` is below `T`, so `row * blocks` lies in the slice; a row of sums is 64 bytes, aligned by its type.
        let (sum, scale) = unsafe {
            (
                _mm512_load_si512((&raw const sums.0[row]).cast()),
                *activation_scales.get_unchecked(row * blocks),
            )
        };
        let scale = _mm512_mul_ps(scales, _mm512_set1_ps(scale));
        *acc = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(sum), *acc);
    }
    if L::MIN {
        let min = floats(&panel.mins[span]);
        let activation_sums = &input.sums[span..=(T - 1) * spans + span];
        for (row, acc) in acc.iter_mut().enumerate() {
            // SAFETY: `row` is below `T`, so `row * spans` lies in the slice.
            let total = unsafe { *activation_sums.get_unchecked(row * spans) };
            *acc = _mm512_fmadd_ps(min, _mm512_set1_ps(total), *acc);
        }
    }
}
