//! AVX2 with FMA and F16C: a vector holds eight rows, so a group is two halves.
//!
//! `vpmaddubsw` multiplies unsigned weights by signed activations and adds neighbours into 16 bits; as many of these as
//! cannot overflow are added up before they are widened to 32. Eight-bit weights would overflow at once: they enter as
//! magnitudes, with their signs moved to the activations.
//! The arithmetic is the panel module's.
//!
//! **What bounds it.** One row: reading the packed weights, once; in a loop over weights that fit no cache that is the
//! memory's rate. Many rows: the three vector ports (four on Zen). A block of 32 columns of eight rows costs 256
//! multiply-adds in 8 `vpmaddubsw` and, with values of four bits, 7 adds of 16 bits, one widening, one add of 32 bits and three
//! floating-point steps; values of eight bits need a sign, a widening and an add for every quad instead. On one
//! thread of a 4.1 GHz Xeon with AVX-512 (Sapphire Rapids), `vpmaddubsw` and add alone reach 185 GMAC/s, with sign and
//! widening 87; the whole block cannot exceed 157 and 80. Measured, 512 x 512 weights by 96 rows: Q4_K 94, Q4_0 91, Q5_0 90,
//! MXFP4 87, Q3_K 85, Q6_K 82, Q2_K 73; Q8_0 65, IQ4_NL 66. That was before [`in_turn`], which on a thread of an EPYC without AVX-512
//! took Q4_0 from 74 to 85, Q4_K from 79 to 90, Q5_K from 73 to 84, IQ2_XXS from 61 to 70. To repeat: `cargo run --release -p andante-compute
//! --example matmul -- 1 avx2`, on an idle machine.

use super::input::{Input, prefetch, prefetch_block, prefetch_next};
use super::layout::{Layout, for_layout};
use crate::cpu::matmul::{
    Activations, BLOCK, DenseGroup, Floats, Group, Lanes, Line, Pairs, Panel, Piece, QUADS, Quants,
    RowsMut, SUPER, Scales, scale_of,
};
use crate::cpu::pool::Strip;
use std::arch::asm;
use std::arch::x86_64::*;

/// Most activation rows for which unpacking in registers is faster.
const FUSED_ROWS: usize = 3;
/// Activation rows of a tile: two halves of sums in 16 bits each, which leaves registers for the weights.
const TILE: usize = 3;

/// Multiplies a packed group with all activation rows into `out`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn packed(group: &Group<'_>, x: &Activations, panel: &mut Panel, out: &mut Strip<'_>) {
    match x.rows() {
        1 => for_layout!(group.kind, L => fused::<L, 1>(group, x, out)),
        2 => for_layout!(group.kind, L => fused::<L, 2>(group, x, out)),
        FUSED_ROWS => for_layout!(group.kind, L => fused::<L, FUSED_ROWS>(group, x, out)),
        rows => for_layout!(group.kind, L => {
            unpack::<L>(group, panel);
            let quants = panel.quants_of(group);
            let parts = rows.div_ceil(TILE);
            for (part, first) in (0..rows).step_by(TILE).enumerate() {
                prefetch_next(group, panel.ahead, (part, parts));
                let count = TILE.min(rows - first);
                let input = Input::new(group.kind, x, first, count);
                match count {
                    1 => tile::<L, 1>(quants, panel, &input, out),
                    2 => tile::<L, 2>(quants, panel, &input, out),
                    _ => tile::<L, TILE>(quants, panel, &input, out),
                }
            }
        }),
    }
}

/// `N` activation rows at once, straight from the packed weights.
#[target_feature(enable = "avx2,fma,f16c")]
fn fused<L: Layout, const N: usize>(group: &Group<'_>, x: &Activations, out: &mut Strip<'_>) {
    let input = Input::new(group.kind, x, 0, N);
    let mut acc = [[_mm256_setzero_ps(); 2]; N];
    for block in 0..group.blocks {
        prefetch_block::<L>(group, block);
        let values: [&Quants; N] = std::array::from_fn(|row| input.block(row, block));
        for half in 0..2 {
            let quads = unpack_block::<L>(&group.quants[block * L::BITS..][..L::BITS], half);
            let (scales, mins) = unpack_scales::<L>(group.scales, block, half);
            for (row, acc) in acc.iter_mut().enumerate() {
                let activation_scale = _mm256_set1_ps(input.scales[row * input.blocks + block]);
                for (span, &scales) in scales.iter().enumerate().take(L::SPANS) {
                    let starts = [input.start(row, block * L::SPANS + span)];
                    let [[sum]] = dot::<L, 1, 1>(starts, [values[row]], span, |quad| [quads[quad]]);
                    let scale = _mm256_mul_ps(scales, activation_scale);
                    acc[half] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(sum), acc[half]);
                    if L::MIN {
                        let sum = _mm256_set1_ps(input.sum(row, block * L::SPANS + span));
                        acc[half] = _mm256_fmadd_ps(mins[span], sum, acc[half]);
                    }
                }
            }
        }
    }
    for (row, acc) in acc.into_iter().enumerate() {
        store(acc, out.row(row));
    }
}

/// `T` activation rows against an unpacked group.
#[target_feature(enable = "avx2,fma,f16c")]
fn tile<L: Layout, const T: usize>(
    quants: &[Line],
    panel: &Panel,
    input: &Input<'_>,
    out: &mut Strip<'_>,
) {
    let &Input {
        blocks,
        spans,
        pitch,
        ..
    } = input;
    assert!(quants.len() >= blocks * QUADS && spans == blocks * L::SPANS);
    assert!(panel.scales.len() >= spans && (!L::MIN || panel.mins.len() >= spans));
    assert!(input.quants.len() >= (T - 1) * pitch + blocks && input.scales.len() >= T * blocks);
    assert!(input.starts.len() >= T * spans && (!L::MIN || input.sums.len() >= T * spans));
    let mut acc = [[_mm256_setzero_ps(); 2]; T];
    for block in 0..blocks {
        // SAFETY: the lengths were checked above, for every row below `T`, block below `blocks`, span below `spans`.
        unsafe {
            let lines = quants.as_ptr().add(block * QUADS);
            let values = std::array::from_fn(|row| input.quants.get_unchecked(row * pitch + block));
            let scales: [f32; T] =
                std::array::from_fn(|row| *input.scales.get_unchecked(row * blocks + block));
            for span in 0..L::SPANS {
                let index = block * L::SPANS + span;
                let starts =
                    std::array::from_fn(|row| *input.starts.get_unchecked(row * spans + index));
                let sums = dot::<L, T, 2>(starts, values, span, |quad| {
                    let line = &*lines.add(quad);
                    [load_half(line, 0), load_half(line, 1)]
                });
                for half in 0..2 {
                    let weight_scales = load_floats(panel.scales.get_unchecked(index), half);
                    for row in 0..T {
                        let scale = _mm256_mul_ps(weight_scales, _mm256_set1_ps(scales[row]));
                        let sum = _mm256_cvtepi32_ps(sums[row][half]);
                        acc[row][half] = _mm256_fmadd_ps(scale, sum, acc[row][half]);
                    }
                    if L::MIN {
                        let min = load_floats(panel.mins.get_unchecked(index), half);
                        for (row, acc) in acc.iter_mut().enumerate() {
                            let sum = *input.sums.get_unchecked(row * spans + index);
                            acc[half] = _mm256_fmadd_ps(min, _mm256_set1_ps(sum), acc[half]);
                        }
                    }
                }
            }
        }
    }
    for (row, acc) in acc.into_iter().enumerate() {
        store(acc, out.row(input.first + row));
    }
}

/// The integer sums of a span of a block for `T` rows of activations and `H` vectors of eight rows of weights.
#[inline]
#[target_feature(enable = "avx2")]
fn dot<L: Layout, const T: usize, const H: usize>(
    starts: [i32; T],
    values: [&Quants; T],
    span: usize,
    weights: impl Fn(usize) -> [__m256i; H],
) -> [[__m256i; H]; T] {
    let quads = QUADS / L::SPANS;
    // Eight-bit weights are used signed, with no offset to subtract.
    let mut sums = starts.map(|start| [_mm256_set1_epi32(if L::RUN == 0 { 0 } else { start }); H]);
    for first in (span * quads..(span + 1) * quads).step_by(L::RUN.max(1)) {
        let mut narrow = [[_mm256_setzero_si256(); H]; T];
        for quad in first..first + L::RUN.max(1) {
            let weights = weights(quad);
            for (narrow, values) in narrow.iter_mut().zip(values) {
                let values = _mm256_set1_epi32(values.quad(quad));
                for (narrow, weights) in narrow.iter_mut().zip(weights) {
                    let products = products::<L>(weights, values);
                    *narrow = if quad == first {
                        products
                    } else {
                        in_turn::<L>(_mm256_add_epi16(*narrow, products))
                    };
                }
            }
        }
        for (sums, narrow) in sums.iter_mut().zip(narrow) {
            for (sum, narrow) in sums.iter_mut().zip(narrow) {
                let wide = _mm256_madd_epi16(narrow, _mm256_set1_epi16(1));
                *sum = in_turn::<L>(_mm256_add_epi32(*sum, wide));
            }
        }
    }
    sums
}

/// Keeps a sum's additions as they are written. All quads of a span are one piece of straight code, which the compiler would
/// put in the order of the results, with the broadcast activations waiting on the stack. Spans of half a block fit the registers,
/// and what is widened at once stays a loop.
#[inline]
#[target_feature(enable = "avx2")]
fn in_turn<L: Layout>(mut sum: __m256i) -> __m256i {
    if L::SPANS == 1 && L::RUN > 0 {
        // SAFETY: there is no instruction.
        unsafe {
            asm!("/* {0} */", inout(ymm_reg) sum, options(nomem, nostack, preserves_flags));
        }
    }
    sum
}

/// Sums of two products each, 16 bits, of a quad of weights and the same quad of activations in every lane.
#[inline]
#[target_feature(enable = "avx2")]
fn products<L: Layout>(weights: __m256i, values: __m256i) -> __m256i {
    if L::RUN == 0 {
        let signed = _mm256_xor_si256(weights, _mm256_set1_epi8(i8::MIN));
        _mm256_maddubs_epi16(_mm256_abs_epi8(signed), _mm256_sign_epi8(values, signed))
    } else {
        _mm256_maddubs_epi16(weights, values)
    }
}

/// Unpacks a group into `panel`.
#[target_feature(enable = "avx2,fma,f16c")]
fn unpack<L: Layout>(group: &Group<'_>, panel: &mut Panel) {
    panel.resize(group);
    for block in 0..group.blocks {
        for half in 0..2 {
            if L::BITS < 8 {
                let quads = unpack_block::<L>(&group.quants[block * L::BITS..][..L::BITS], half);
                for (line, quad) in panel.quants[block * QUADS..][..QUADS].iter_mut().zip(quads) {
                    // SAFETY: a line is two halves of 32 bytes, aligned by its type.
                    unsafe {
                        _mm256_store_si256((&raw mut *line).cast::<__m256i>().add(half), quad);
                    };
                }
            }
            let (scales, mins) = unpack_scales::<L>(group.scales, block, half);
            for span in 0..L::SPANS {
                let index = block * L::SPANS + span;
                store_floats(scales[span], &mut panel.scales[index], half);
                if L::MIN {
                    store_floats(mins[span], &mut panel.mins[index], half);
                }
            }
        }
    }
}

/// The eight quads of half the rows of a block, as unsigned bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn unpack_block<L: Layout>(lines: &[Line], half: usize) -> [__m256i; QUADS] {
    let table = L::TABLE.map(|table| {
        // SAFETY: a table is 16 bytes.
        _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
    });
    let mut quads = [_mm256_setzero_si256(); QUADS];
    for (quad, values) in quads.iter_mut().enumerate() {
        let [first, second] = Piece::of(L::BITS, quad);
        *values = bits(load_half(&lines[first.line], half), first);
        if !second.is_empty() {
            let high = bits(load_half(&lines[second.line], half), second);
            *values = _mm256_or_si256(*values, high);
        }
        if let Some(table) = table {
            *values = _mm256_shuffle_epi8(table, *values);
        }
    }
    quads
}

/// The bits of a piece, at their place in the code. Everything about the piece is known where this is compiled.
#[inline]
#[target_feature(enable = "avx2")]
fn bits(line: __m256i, piece: Piece) -> __m256i {
    let up = piece.place as i32 - piece.shift as i32;
    let moved = if up >= 0 {
        _mm256_sll_epi16(line, _mm_cvtsi32_si128(up))
    } else {
        _mm256_srl_epi16(line, _mm_cvtsi32_si128(-up))
    };
    let mask = piece.mask << piece.place;
    _mm256_and_si256(moved, _mm256_set1_epi8(mask.cast_signed()))
}

/// Scales and minima of the spans of a block, for half the rows; the second are for half-block spans only.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn unpack_scales<L: Layout>(
    lanes: &[Lanes],
    block: usize,
    half: usize,
) -> ([__m256; 2], [__m256; 2]) {
    let load = |index: usize| load_lanes(&lanes[index], half);
    let float = |index: usize| _mm256_cvtph_ps(load(index));
    let negative = |index: usize| _mm256_xor_ps(float(index), _mm256_set1_ps(-0.0));
    let zero = _mm256_setzero_ps();
    let base = block / SUPER * L::SCALES.lanes(SUPER);
    let within = block % SUPER;
    let factored = |scale| match L::FACTOR {
        1.0 => scale,
        factor => _mm256_mul_ps(scale, _mm256_set1_ps(factor)),
    };
    match L::SCALES {
        Scales::Plain => ([float(block), zero], [zero; 2]),
        Scales::Bf16 => {
            let bits = _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(load(block)));
            ([_mm256_castsi256_ps(bits), zero], [zero; 2])
        }
        Scales::Min => ([float(2 * block), zero], [float(2 * block + 1), zero]),
        Scales::Super => {
            let pair = _mm256_cvtepi16_epi32(load(base + 1 + within / 2));
            let up = _mm_cvtsi32_si128(24 - 8 * (within % 2) as i32);
            let scale = _mm256_srai_epi32::<24>(_mm256_sll_epi32(pair, up));
            let scale = _mm256_mul_ps(float(base), _mm256_cvtepi32_ps(scale));
            ([factored(scale), zero], [zero; 2])
        }
        Scales::SuperMin => {
            let both = _mm256_cvtepu16_epi32(load(base + 2 + within));
            let scale = _mm256_cvtepi32_ps(_mm256_and_si256(both, _mm256_set1_epi32(255)));
            let min = _mm256_cvtepi32_ps(_mm256_srli_epi32::<8>(both));
            (
                [_mm256_mul_ps(float(base), scale), zero],
                [_mm256_mul_ps(negative(base + 1), min), zero],
            )
        }
        Scales::SuperHalf => {
            let d = float(base);
            let both = _mm256_cvtepi16_epi32(load(base + 1 + within));
            let first = _mm256_cvtepi32_ps(_mm256_srai_epi32::<24>(_mm256_slli_epi32::<24>(both)));
            let last = _mm256_cvtepi32_ps(_mm256_srai_epi32::<8>(both));
            let scales = [
                factored(_mm256_mul_ps(d, first)),
                factored(_mm256_mul_ps(d, last)),
            ];
            (scales, [zero; 2])
        }
        Scales::SuperHalfMin => {
            let (d, dmin) = (float(base), negative(base + 1));
            let all = _mm256_cvtepu16_epi32(load(base + 2 + within));
            let nibble =
                |bits: __m256i| _mm256_cvtepi32_ps(_mm256_and_si256(bits, _mm256_set1_epi32(15)));
            (
                [
                    _mm256_mul_ps(d, nibble(all)),
                    _mm256_mul_ps(d, nibble(_mm256_srli_epi32::<8>(all))),
                ],
                [
                    _mm256_mul_ps(dmin, nibble(_mm256_srli_epi32::<4>(all))),
                    _mm256_mul_ps(dmin, nibble(_mm256_srli_epi32::<12>(all))),
                ],
            )
        }
    }
}

/// Multiplies a dense group with all rows of `x` into `out`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn dense(group: DenseGroup<'_>, x: &[f32], out: &mut Strip<'_>) {
    match group {
        DenseGroup::F32(weights) => dense_rows(weights, x, out, |weights: &Floats, half| {
            [load_floats(weights, half)]
        }),
        DenseGroup::F16(weights) => {
            dense_rows(weights, x, out, |weights: &Lanes, half| {
                [_mm256_cvtph_ps(load_lanes(weights, half))]
            });
        }
        DenseGroup::Bf16(weights) => dense_rows(weights, x, out, |weights: &Pairs, half| {
            // SAFETY: an entry is two halves of 32 bytes, aligned by its type.
            let both =
                unsafe { _mm256_load_si256((&raw const *weights).cast::<__m256i>().add(half)) };
            let odd = _mm256_and_si256(both, _mm256_set1_epi32(0xffff_0000_u32.cast_signed()));
            [_mm256_slli_epi32::<16>(both), odd].map(|bits| _mm256_castsi256_ps(bits))
        }),
    }
}

/// An entry `W` holds `C` columns.
#[target_feature(enable = "avx2,fma,f16c")]
fn dense_rows<W, const C: usize>(
    weights: &[W],
    x: &[f32],
    out: &mut Strip<'_>,
    load: impl Fn(&W, usize) -> [__m256; C] + Copy,
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
#[target_feature(enable = "avx2,fma,f16c")]
fn dense_tile<W, const C: usize, const T: usize>(
    weights: &[W],
    x: &[f32],
    first: usize,
    out: &mut Strip<'_>,
    load: impl Fn(&W, usize) -> [__m256; C],
) -> usize {
    let cols = weights.len() * C;
    let x = &x[..T * cols];
    let mut totals = [[_mm256_setzero_ps(); 2]; T];
    for (part, weights) in weights.chunks(BLOCK / C).enumerate() {
        if T <= 4 {
            prefetch(weights, size_of_val(weights));
        }
        let mut sums = [[_mm256_setzero_ps(); 2]; T];
        for (entry, weights) in weights.iter().enumerate() {
            let halves = load(weights, 0).into_iter().zip(load(weights, 1));
            for (column, (first, last)) in (entry * C..).zip(halves) {
                for (row, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: `x` has `T` rows of `cols` values, and the column is below `cols`.
                    let x = _mm256_set1_ps(unsafe {
                        *x.get_unchecked(row * cols + part * BLOCK + column)
                    });
                    sum[0] = _mm256_fmadd_ps(first, x, sum[0]);
                    sum[1] = _mm256_fmadd_ps(last, x, sum[1]);
                }
            }
        }
        for (total, sum) in totals.iter_mut().zip(sums) {
            total[0] = _mm256_add_ps(total[0], sum[0]);
            total[1] = _mm256_add_ps(total[1], sum[1]);
        }
    }
    for (row, total) in totals.into_iter().enumerate() {
        store(total, out.row(first + row));
    }
    T
}

/// Quantises one row of activations, as the portable version does.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn quantize(x: &[f32], out: &mut RowsMut<'_>) {
    let magnitude = _mm256_set1_epi32(0x7fff_ffff);
    for (block, x) in x.as_chunks::<BLOCK>().0.iter().enumerate() {
        // SAFETY: a block is four times eight values.
        let values = unsafe {
            let load = |index: usize| _mm256_loadu_ps(x.as_ptr().add(8 * index));
            [load(0), load(1), load(2), load(3)]
        };
        let bits = values.map(|v| _mm256_and_si256(_mm256_castps_si256(v), magnitude));
        let most = _mm256_max_epu32(
            _mm256_max_epu32(bits[0], bits[1]),
            _mm256_max_epu32(bits[2], bits[3]),
        );
        let most = _mm_max_epu32(
            _mm256_castsi256_si128(most),
            _mm256_extracti128_si256::<1>(most),
        );
        let most = _mm_max_epu32(most, _mm_shuffle_epi32::<0b01_00_11_10>(most));
        let most = _mm_max_epu32(most, _mm_shuffle_epi32::<0b10_11_00_01>(most));
        let (scale, inverse) = scale_of(f32::from_bits(_mm_cvtsi128_si32(most).cast_unsigned()));
        let inverse = _mm256_set1_ps(inverse);
        let quants = values.map(|v| _mm256_cvtps_epi32(_mm256_mul_ps(v, inverse)));
        // Packing works within halves of 128 bits: the permutation puts groups of four back in order.
        let first = _mm256_packs_epi32(quants[0], quants[1]);
        let last = _mm256_packs_epi32(quants[2], quants[3]);
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(first, last), order);
        // SAFETY: a block of quants is 32 bytes, aligned by its type.
        unsafe { _mm256_store_si256((&raw mut out.quants[block]).cast(), bytes) };
        let halves = [
            add_lanes(_mm256_add_epi32(quants[0], quants[1])),
            add_lanes(_mm256_add_epi32(quants[2], quants[3])),
        ];
        out.halves[2 * block..][..2].copy_from_slice(&halves);
        out.scales[block] = scale;
        out.sums[block] = scale * (halves[0] + halves[1]) as f32;
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn add_lanes(values: __m256i) -> i32 {
    let sum = _mm_add_epi32(
        _mm256_castsi256_si128(values),
        _mm256_extracti128_si256::<1>(values),
    );
    let sum = _mm_add_epi32(sum, _mm_shuffle_epi32::<0b01_00_11_10>(sum));
    _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32::<0b10_11_00_01>(sum)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_half(line: &Line, half: usize) -> __m256i {
    debug_assert!(half < 2);
    // SAFETY: a line is two halves of 32 bytes, aligned by its type.
    unsafe { _mm256_load_si256((&raw const *line).cast::<__m256i>().add(half)) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_lanes(lanes: &Lanes, half: usize) -> __m128i {
    debug_assert!(half < 2);
    // SAFETY: an entry is two halves of 16 bytes, aligned by its type.
    unsafe { _mm_load_si128((&raw const *lanes).cast::<__m128i>().add(half)) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_floats(floats: &Floats, half: usize) -> __m256 {
    debug_assert!(half < 2);
    // SAFETY: two halves of 32 bytes, aligned by their type.
    unsafe { _mm256_load_ps(floats.0.as_ptr().add(8 * half)) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_floats(value: __m256, floats: &mut Floats, half: usize) {
    debug_assert!(half < 2);
    // SAFETY: two halves of 32 bytes, aligned by their type.
    unsafe { _mm256_store_ps(floats.0.as_mut_ptr().add(8 * half), value) };
}

/// Writes the lanes that `out` has, at most sixteen.
#[inline]
#[target_feature(enable = "avx2")]
fn store(value: [__m256; 2], out: &mut [f32]) {
    if let Some(lanes) = out.as_mut_array::<16>() {
        // SAFETY: sixteen lanes.
        unsafe {
            _mm256_storeu_ps(lanes.as_mut_ptr(), value[0]);
            _mm256_storeu_ps(lanes.as_mut_ptr().add(8), value[1]);
        }
        return;
    }
    let mut lanes = Floats([0.0; 16]);
    store_floats(value[0], &mut lanes, 0);
    store_floats(value[1], &mut lanes, 1);
    out.copy_from_slice(&lanes.0[..out.len()]);
}
