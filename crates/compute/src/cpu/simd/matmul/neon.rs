//! NEON: a vector holds four columns of four rows, so a group is four quarters. `sdot`, where the processor has it, advances
//! the four rows by their four columns; elsewhere products of 8 bits are widened and added in pairs.
//!
//! Values whose offset does not fit beside them in a signed byte have it subtracted while they are unpacked. The arithmetic
//! is the panel module's, so the results have the bits of every other instruction set. All vectors here are of the
//! instructions that 64-bit Arm begins with.
//!
//! **What bounds it.** One row: reading the packed weights. Many rows: for a block of 32 columns of four rows, 8 `sdot` and
//! three or four floating-point steps. Checked under emulation; unmeasured.

use super::input::{Input, prefetch, prefetch_block, prefetch_next};
use super::layout::{Layout, for_layout};
use crate::cpu::isa::Isa;
use crate::cpu::matmul::{
    Activations, BLOCK, DenseGroup, Floats, Group, Kind, Lanes, Line, Pairs, Panel, Piece, QUADS,
    SUPER, Scales,
};
use crate::cpu::pool::{STRIP, Strip};
use std::arch::aarch64::*;
use std::arch::asm;

/// Activation rows that are computed together: four quarters of sums each.
const TILE: usize = 4;
/// Vectors of four rows in a group.
const QUARTERS: usize = STRIP / 4;

/// Multiplies a packed group with all activation rows into `out`.
#[target_feature(enable = "neon")]
pub(super) fn packed(
    isa: Isa,
    group: &Group<'_>,
    x: &Activations,
    panel: &mut Panel,
    out: &mut Strip<'_>,
) {
    for_layout!(group.kind, L => {
        if isa.has_dot() {
            multiply::<L, true>(group, x, panel, out);
        } else {
            multiply::<L, false>(group, x, panel, out);
        }
    });
}

#[target_feature(enable = "neon")]
fn multiply<L: Layout, const DOT: bool>(
    group: &Group<'_>,
    x: &Activations,
    panel: &mut Panel,
    out: &mut Strip<'_>,
) {
    if x.rows() <= TILE {
        let quads = |block, quarter| {
            if quarter == 0 {
                prefetch_block::<L>(group, block);
            }
            unpack_quads::<L>(group, block, quarter)
        };
        let scales = |block, quarter| unpack_scales::<L>(group.scales, block, quarter);
        return tile_of::<L, DOT>((group.kind, x), 0, out, quads, scales);
    }
    unpack::<L>(group, panel);
    let panel = &*panel;
    let quads = |block, quarter| panel_quads(panel, block, quarter);
    let scales = |block, quarter| panel_scales::<L>(panel, block, quarter);
    let parts = x.rows().div_ceil(TILE);
    for (part, first) in (0..x.rows()).step_by(TILE).enumerate() {
        prefetch_next(group, panel.ahead, (part, parts));
        tile_of::<L, DOT>((group.kind, x), first, out, quads, scales);
    }
}

#[target_feature(enable = "neon")]
fn tile_of<L: Layout, const DOT: bool>(
    x: (Kind, &Activations),
    first: usize,
    out: &mut Strip<'_>,
    quads: impl Fn(usize, usize) -> [int8x16_t; QUADS],
    scales: impl Fn(usize, usize) -> SpanScales,
) {
    match x.1.rows() - first {
        1 => tile::<L, 1, DOT>(x, first, out, quads, scales),
        2 => tile::<L, 2, DOT>(x, first, out, quads, scales),
        3 => tile::<L, 3, DOT>(x, first, out, quads, scales),
        _ => tile::<L, TILE, DOT>(x, first, out, quads, scales),
    }
}

/// Scales and minima of the spans of a block, for four rows; the second are for half-block spans only.
type SpanScales = ([float32x4_t; 2], [float32x4_t; 2]);

/// Whether the offset is subtracted from the values of a layout, not from the sums.
const fn is_signed<L: Layout>() -> bool {
    L::LARGEST > i8::MAX as usize
}

/// `T` activation rows against a group; `quads` and `scales` give four rows of a block, by block and quarter.
#[inline]
#[target_feature(enable = "neon")]
fn tile<L: Layout, const T: usize, const DOT: bool>(
    (kind, x): (Kind, &Activations),
    first: usize,
    out: &mut Strip<'_>,
    quads: impl Fn(usize, usize) -> [int8x16_t; QUADS],
    scales: impl Fn(usize, usize) -> SpanScales,
) {
    let input = Input::new(kind, x, first, T);
    let zero = vdupq_n_f32(0.0);
    let mut acc = [[zero; QUARTERS]; T];
    for block in 0..input.blocks {
        for quarter in 0..QUARTERS {
            let quads = quads(block, quarter);
            let (scales, mins) = scales(block, quarter);
            for (row, acc) in acc.iter_mut().enumerate() {
                let acc = &mut acc[quarter];
                let values = input.block(row, block).0.as_ptr();
                // SAFETY: a block is two vectors of 16 bytes.
                let values = unsafe { [vld1q_s8(values), vld1q_s8(values.add(16))] };
                let activation_scale = input.scales[row * input.blocks + block];
                for span in 0..L::SPANS {
                    let index = block * L::SPANS + span;
                    let start = if is_signed::<L>() {
                        0
                    } else {
                        input.start(row, index)
                    };
                    let mut sum = vdupq_n_s32(start);
                    for half in span..span + 2 / L::SPANS {
                        let quads = [0, 1, 2, 3].map(|quad| quads[4 * half + quad]);
                        sum = dot::<DOT>(sum, quads, values[half]);
                    }
                    let scale = vmulq_n_f32(scales[span], activation_scale);
                    *acc = vfmaq_f32(*acc, scale, vcvtq_f32_s32(sum));
                    if L::MIN {
                        *acc = vfmaq_n_f32(*acc, mins[span], input.sum(row, index));
                    }
                }
            }
        }
    }
    for (row, acc) in acc.into_iter().enumerate() {
        store(acc, out.row(input.first + row));
    }
}

/// Adds the products of sixteen columns of four rows of weights with those of one row of activations.
#[inline]
#[target_feature(enable = "neon")]
fn dot<const DOT: bool>(
    mut sum: int32x4_t,
    weights: [int8x16_t; 4],
    values: int8x16_t,
) -> int32x4_t {
    let [a, b, c, d] = weights;
    if DOT {
        // The standard library does not have this instruction yet.
        // SAFETY: `DOT` is set only where detection found it; it touches registers alone.
        unsafe {
            asm!(
                ".arch_extension dotprod",
                "sdot {sum:v}.4s, {a:v}.16b, {x:v}.4b[0]", "sdot {sum:v}.4s, {b:v}.16b, {x:v}.4b[1]",
                "sdot {sum:v}.4s, {c:v}.16b, {x:v}.4b[2]", "sdot {sum:v}.4s, {d:v}.16b, {x:v}.4b[3]",
                sum = inout(vreg) sum, a = in(vreg) a, b = in(vreg) b, c = in(vreg) c, d = in(vreg) d,
                x = in(vreg) values, options(pure, nomem, nostack, preserves_flags),
            );
        }
        return sum;
    }
    let x = vreinterpretq_s32_s8(values);
    let quads = [
        vdupq_laneq_s32::<0>(x),
        vdupq_laneq_s32::<1>(x),
        vdupq_laneq_s32::<2>(x),
        vdupq_laneq_s32::<3>(x),
    ];
    for (weights, quad) in weights.into_iter().zip(quads) {
        let values = vreinterpretq_s8_s32(quad);
        let low = vmull_s8(vget_low_s8(weights), vget_low_s8(values));
        let high = vmull_high_s8(weights, values);
        // Two products are at most 2 * 128 * 127.
        sum = vpadalq_s16(sum, vpaddq_s16(low, high));
    }
    sum
}

/// The eight quads of four rows of a block, as [`Layout`]'s values or, where [`is_signed`], less their offset.
#[inline]
#[target_feature(enable = "neon")]
fn unpack_quads<L: Layout>(group: &Group<'_>, block: usize, quarter: usize) -> [int8x16_t; QUADS] {
    let lines = &group.quants[block * L::BITS..][..L::BITS];
    let offset = L::CODES.offset();
    let table = L::TABLE.map(|table| {
        let table =
            table.map(|value| value.wrapping_sub(if is_signed::<L>() { offset } else { 0 }));
        // SAFETY: a table is 16 bytes.
        unsafe { vld1q_u8(table.as_ptr()) }
    });
    std::array::from_fn(|quad| {
        let [first, second] = Piece::of(L::BITS, quad);
        let mut values = bits(&lines[first.line], quarter, first);
        if !second.is_empty() {
            values = vorrq_u8(values, bits(&lines[second.line], quarter, second));
        }
        if let Some(table) = table {
            values = vqtbl1q_u8(table, values);
        }
        if L::BITS == 8 {
            values = veorq_u8(values, vdupq_n_u8(128));
        }
        vreinterpretq_s8_u8(values)
    })
}

/// The same from a panel.
#[inline]
#[target_feature(enable = "neon")]
fn panel_quads(panel: &Panel, block: usize, quarter: usize) -> [int8x16_t; QUADS] {
    let lines: &[Line; QUADS] = panel.quants[block * QUADS..]
        .first_chunk()
        .expect("a block");
    // SAFETY: a line is four quarters of 16 bytes.
    std::array::from_fn(|quad| unsafe {
        vreinterpretq_s8_u8(vld1q_u8(lines[quad].0.as_ptr().add(16 * quarter)))
    })
}

#[inline]
#[target_feature(enable = "neon")]
fn panel_scales<L: Layout>(panel: &Panel, block: usize, quarter: usize) -> SpanScales {
    let spans = |floats: &[Floats]| {
        std::array::from_fn(|span| match span < L::SPANS {
            true => load(&floats[block * L::SPANS + span], quarter),
            false => vdupq_n_f32(0.0),
        })
    };
    let mins = if L::MIN {
        spans(&panel.mins)
    } else {
        [vdupq_n_f32(0.0); 2]
    };
    (spans(&panel.scales), mins)
}

/// Unpacks a group into `panel`.
#[target_feature(enable = "neon")]
fn unpack<L: Layout>(group: &Group<'_>, panel: &mut Panel) {
    panel.resize(group);
    for block in 0..group.blocks {
        for quarter in 0..QUARTERS {
            let quads = unpack_quads::<L>(group, block, quarter);
            let lines = panel.quants[block * QUADS..].iter_mut();
            for (line, quad) in lines.zip(quads) {
                // SAFETY: a line is four quarters of 16 bytes.
                unsafe {
                    vst1q_u8(
                        line.0.as_mut_ptr().add(16 * quarter),
                        vreinterpretq_u8_s8(quad),
                    );
                }
            }
            let (scales, mins) = unpack_scales::<L>(group.scales, block, quarter);
            for span in 0..L::SPANS {
                let index = block * L::SPANS + span;
                store_quarter(scales[span], &mut panel.scales[index].0, quarter);
                if L::MIN {
                    store_quarter(mins[span], &mut panel.mins[index].0, quarter);
                }
            }
        }
    }
}

/// The bits of a piece, at their place in the code. Everything about the piece is known where this is compiled.
#[inline]
#[target_feature(enable = "neon")]
fn bits(line: &Line, quarter: usize, piece: Piece) -> uint8x16_t {
    debug_assert!(quarter < QUARTERS);
    // SAFETY: a line is four quarters of 16 bytes.
    let line = unsafe { vld1q_u8(line.0.as_ptr().add(16 * quarter)) };
    let up = piece.place as i8 - piece.shift as i8;
    let moved = vshlq_u8(line, vdupq_n_s8(up));
    vandq_u8(moved, vdupq_n_u8(piece.mask << piece.place))
}

#[inline]
#[target_feature(enable = "neon")]
fn unpack_scales<L: Layout>(lanes: &[Lanes], block: usize, quarter: usize) -> SpanScales {
    let words = |index: usize| load_lanes(&lanes[index], quarter);
    let wide = |index: usize| vmovl_u16(words(index));
    let signed = |index: usize| vmovl_s16(vreinterpret_s16_u16(words(index)));
    let float = |index: usize| half_to_float(words(index));
    let negative = |index: usize| vnegq_f32(float(index));
    let zero = vdupq_n_f32(0.0);
    let base = block / SUPER * L::SCALES.lanes(SUPER);
    let within = block % SUPER;
    let factored = |scale| match L::FACTOR {
        1.0 => scale,
        factor => vmulq_n_f32(scale, factor),
    };
    match L::SCALES {
        Scales::Plain => ([float(block), zero], [zero; 2]),
        Scales::Bf16 => (
            [vreinterpretq_f32_u32(vshlq_n_u32::<16>(wide(block))), zero],
            [zero; 2],
        ),
        Scales::Min => ([float(2 * block), zero], [float(2 * block + 1), zero]),
        Scales::Super => {
            let up = 24 - 8 * (within % 2) as i32;
            let scale = vshlq_s32(signed(base + 1 + within / 2), vdupq_n_s32(up));
            let scale = vcvtq_f32_s32(vshrq_n_s32::<24>(scale));
            ([factored(vmulq_f32(float(base), scale)), zero], [zero; 2])
        }
        Scales::SuperMin => {
            let both = wide(base + 2 + within);
            let scale = vcvtq_f32_u32(vandq_u32(both, vdupq_n_u32(255)));
            let min = vcvtq_f32_u32(vshrq_n_u32::<8>(both));
            (
                [vmulq_f32(float(base), scale), zero],
                [vmulq_f32(negative(base + 1), min), zero],
            )
        }
        Scales::SuperHalf => {
            let d = float(base);
            let both = signed(base + 1 + within);
            let first = vcvtq_f32_s32(vshrq_n_s32::<24>(vshlq_n_s32::<24>(both)));
            let last = vcvtq_f32_s32(vshrq_n_s32::<8>(both));
            let scales = [factored(vmulq_f32(d, first)), factored(vmulq_f32(d, last))];
            (scales, [zero; 2])
        }
        Scales::SuperHalfMin => {
            let (d, dmin) = (float(base), negative(base + 1));
            let all = wide(base + 2 + within);
            let nibble = |bits: uint32x4_t| vcvtq_f32_u32(vandq_u32(bits, vdupq_n_u32(15)));
            (
                [
                    vmulq_f32(d, nibble(all)),
                    vmulq_f32(d, nibble(vshrq_n_u32::<8>(all))),
                ],
                [
                    vmulq_f32(dmin, nibble(vshrq_n_u32::<4>(all))),
                    vmulq_f32(dmin, nibble(vshrq_n_u32::<12>(all))),
                ],
            )
        }
    }
}

/// Multiplies a dense group with all rows of `x` into `out`.
#[target_feature(enable = "neon")]
pub(super) fn dense(group: DenseGroup<'_>, x: &[f32], out: &mut Strip<'_>) {
    match group {
        DenseGroup::F32(weights) => {
            dense_rows(weights, x, out, |weights: &Floats, quarter| {
                [load(weights, quarter)]
            });
        }
        DenseGroup::F16(weights) => dense_rows(weights, x, out, |weights: &Lanes, quarter| {
            [half_to_float(load_lanes(weights, quarter))]
        }),
        DenseGroup::Bf16(weights) => dense_rows(weights, x, out, |weights: &Pairs, quarter| {
            // SAFETY: an entry is four quarters of 16 bytes.
            let both = unsafe { vld1q_u32(weights.0.as_ptr().cast::<u32>().add(4 * quarter)) };
            let odd = vandq_u32(both, vdupq_n_u32(0xffff_0000));
            [vshlq_n_u32::<16>(both), odd].map(|bits| vreinterpretq_f32_u32(bits))
        }),
    }
}

/// An entry `W` holds `C` columns.
#[target_feature(enable = "neon")]
fn dense_rows<W, const C: usize>(
    weights: &[W],
    x: &[f32],
    out: &mut Strip<'_>,
    load: impl Fn(&W, usize) -> [float32x4_t; C] + Copy,
) {
    let cols = weights.len() * C;
    let rows = x.len() / cols;
    let mut first = 0;
    while first < rows {
        let x = &x[first * cols..];
        first += match rows - first {
            4.. => dense_tile::<W, C, 4>(weights, x, first, out, load),
            2.. => dense_tile::<W, C, 2>(weights, x, first, out, load),
            _ => dense_tile::<W, C, 1>(weights, x, first, out, load),
        };
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn dense_tile<W, const C: usize, const T: usize>(
    weights: &[W],
    x: &[f32],
    first: usize,
    out: &mut Strip<'_>,
    load: impl Fn(&W, usize) -> [float32x4_t; C],
) -> usize {
    let cols = weights.len() * C;
    let x = &x[..T * cols];
    let zero = vdupq_n_f32(0.0);
    let mut totals = [[zero; QUARTERS]; T];
    for (part, weights) in weights.chunks(BLOCK / C).enumerate() {
        prefetch(weights, size_of_val(weights));
        let mut sums = [[zero; QUARTERS]; T];
        for (entry, weights) in weights.iter().enumerate() {
            for quarter in 0..QUARTERS {
                for (column, weights) in (entry * C..).zip(load(weights, quarter)) {
                    for (row, sum) in sums.iter_mut().enumerate() {
                        // SAFETY: `x` has `T` rows of `cols` values, and the column is below `cols`.
                        let x = unsafe { *x.get_unchecked(row * cols + part * BLOCK + column) };
                        sum[quarter] = vfmaq_n_f32(sum[quarter], weights, x);
                    }
                }
            }
        }
        for (total, sum) in totals.iter_mut().zip(sums) {
            for (total, sum) in total.iter_mut().zip(sum) {
                *total = vaddq_f32(*total, sum);
            }
        }
    }
    for (row, total) in totals.into_iter().enumerate() {
        store(total, out.row(first + row));
    }
    T
}

#[inline]
#[target_feature(enable = "neon")]
fn half_to_float(half: uint16x4_t) -> float32x4_t {
    vcvt_f32_f16(vreinterpret_f16_u16(half))
}

#[inline]
#[target_feature(enable = "neon")]
fn load(floats: &Floats, quarter: usize) -> float32x4_t {
    debug_assert!(quarter < QUARTERS);
    // SAFETY: four quarters of 16 bytes.
    unsafe { vld1q_f32(floats.0.as_ptr().add(4 * quarter)) }
}

#[inline]
#[target_feature(enable = "neon")]
fn load_lanes(lanes: &Lanes, quarter: usize) -> uint16x4_t {
    debug_assert!(quarter < QUARTERS);
    // SAFETY: an entry is four quarters of 8 bytes.
    unsafe { vld1_u16(lanes.0.as_ptr().add(4 * quarter)) }
}

#[inline]
#[target_feature(enable = "neon")]
fn store_quarter(value: float32x4_t, to: &mut [f32; STRIP], quarter: usize) {
    debug_assert!(quarter < QUARTERS);
    // SAFETY: four quarters of 16 bytes.
    unsafe { vst1q_f32(to.as_mut_ptr().add(4 * quarter), value) };
}

/// Writes the lanes that `out` has, at most sixteen.
#[inline]
#[target_feature(enable = "neon")]
fn store(value: [float32x4_t; QUARTERS], out: &mut [f32]) {
    let mut lanes = [0.0; STRIP];
    for (quarter, value) in value.into_iter().enumerate() {
        store_quarter(value, &mut lanes, quarter);
    }
    out.copy_from_slice(&lanes[..out.len()]);
}
