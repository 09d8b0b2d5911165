//! AVX-512 with VNNI: one vector holds the sixteen rows of a group, `vpdpbusd` advances all of them by four columns.
//!
//! Few activation rows use the [`fused`] kernel, which unpacks weights in registers on their way from memory; more
//! use [`tile`], which reads the group unpacked in a [`Panel`]. The arithmetic is the panel module's.
//!
//! **What bounds it.** One row: reading the packed weights, once. Many rows: the two 512-bit ports; a block of 32 columns
//! costs 8 `vpdpbusd` and three floating-point steps for each row, four with a minimum, and twice those for formats with two
//! scales a block. On one thread of a 4.1 GHz Xeon (Sapphire Rapids) `vpdpbusd` alone reaches 479 GMAC/s, so the block cannot
//! exceed 348, 319 or 274. Measured, 512 x 512 weights by 96 rows: Q8_0 220, IQ4_NL and MXFP4 217, Q4_0 215, Q5_0 202, Q4_K 192;
//! Q6_K 148, Q3_K 145, Q2_K 139. To repeat: `cargo run --release -p andante-compute --example matmul -- 1 avx512`, on an idle
//! machine.

use super::input::{Input, prefetch, prefetch_block, prefetch_next};
use super::layout::{Layout, for_layout};
use crate::cpu::matmul::{
    Activations, BLOCK, DenseGroup, Floats, Group, Lanes, Line, Pairs, Panel, Piece, QUADS,
    RowsMut, SUPER, Scales, scale_of,
};
use crate::cpu::pool::Strip;
use std::arch::x86_64::*;

/// Most activation rows for which unpacking in registers is faster.
pub(super) const FUSED_ROWS: usize = 4;
/// Activation rows of a tile: two accumulators each, which leaves registers for the weights.
const TILE: usize = 12;

/// Multiplies a packed group with all activation rows into `out`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn packed(group: &Group<'_>, x: &Activations, panel: &mut Panel, out: &mut Strip<'_>) {
    match x.rows() {
        1 => for_layout!(group.kind, L => fused::<L, 1>(group, x, out)),
        2 => for_layout!(group.kind, L => fused::<L, 2>(group, x, out)),
        3 => for_layout!(group.kind, L => fused::<L, 3>(group, x, out)),
        FUSED_ROWS => for_layout!(group.kind, L => fused::<L, FUSED_ROWS>(group, x, out)),
        _ => {
            for_layout!(group.kind, L => unpack::<L, false>(group, panel));
            tiles(group, x, panel, out);
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn tiles(group: &Group<'_>, x: &Activations, panel: &Panel, out: &mut Strip<'_>) {
    let (quants, scales) = (panel.quants_of(group), group.kind.scales);
    let mut first = 0;
    let parts = x.rows().div_ceil(TILE);
    while first < x.rows() {
        prefetch_next(group, panel.ahead, (first / TILE, parts));
        let rows = TILE.min(x.rows() - first);
        let input = Input::new(group.kind, x, first, rows);
        macro_rules! tile_of {
            ($($rows:literal)*) => {
                match (rows, scales.spans(), scales.has_min()) {
                    $(
                        ($rows, 2, false) => tile::<$rows, 4, false>(quants, panel, &input, out),
                        ($rows, 2, true) => tile::<$rows, 4, true>(quants, panel, &input, out),
                        ($rows, _, false) => tile::<$rows, 8, false>(quants, panel, &input, out),
                        ($rows, _, true) => tile::<$rows, 8, true>(quants, panel, &input, out),
                    )*
                    _ => unreachable!("a tile has 1 to {TILE} rows"),
                }
            };
        }
        tile_of!(1 2 3 4 5 6 7 8 9 10 11 12);
        first += rows;
    }
}

/// `N` activation rows at once, straight from the packed weights.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn fused<L: Layout, const N: usize>(group: &Group<'_>, x: &Activations, out: &mut Strip<'_>) {
    let input = Input::new(group.kind, x, 0, N);
    let mut acc = [_mm512_setzero_ps(); N];
    for block in 0..group.blocks {
        prefetch_block::<L>(group, block);
        let quads = unpack_block::<L>(&group.quants[block * L::BITS..][..L::BITS]);
        let (scales, mins) = unpack_scales::<L>(group.scales, block);
        for (row, acc) in acc.iter_mut().enumerate() {
            let values = input.block(row, block);
            let activation_scale = _mm512_set1_ps(input.scales[row * input.blocks + block]);
            for (span, &scales) in scales.iter().enumerate().take(L::SPANS) {
                let mut sum = _mm512_set1_epi32(input.start(row, block * L::SPANS + span));
                let first = span * QUADS / L::SPANS;
                for (quad, &weights) in quads.iter().enumerate().skip(first).take(QUADS / L::SPANS)
                {
                    sum = _mm512_dpbusd_epi32(sum, weights, _mm512_set1_epi32(values.quad(quad)));
                }
                let scale = _mm512_mul_ps(scales, activation_scale);
                *acc = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(sum), *acc);
                if L::MIN {
                    let sum = input.sum(row, block * L::SPANS + span);
                    *acc = _mm512_fmadd_ps(mins[span], _mm512_set1_ps(sum), *acc);
                }
            }
        }
    }
    for (row, acc) in acc.into_iter().enumerate() {
        store(acc, out.row(row));
    }
}

/// `T` activation rows against an unpacked group; `SPAN` quads share a weight scale.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn tile<const T: usize, const SPAN: usize, const MIN: bool>(
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
    assert!(
        quants.len() >= blocks * QUADS
            && panel.scales.len() >= spans
            && spans * SPAN == blocks * QUADS
    );
    assert!(input.quants.len() >= (T - 1) * pitch + blocks && input.scales.len() >= T * blocks);
    assert!(input.starts.len() >= T * spans);
    assert!(!MIN || panel.mins.len() >= spans && input.sums.len() >= T * spans);
    let mut acc = [_mm512_setzero_ps(); T];
    for span in 0..spans {
        let block = span * SPAN / QUADS;
        // SAFETY: the lengths were checked above, for every row below `T`, block below `blocks`, span below `spans`;
        // lines and floats are aligned to 64 bytes by their types, a block's quads lie inside it.
        unsafe {
            let mut sums = [_mm512_setzero_si512(); T];
            for (row, sum) in sums.iter_mut().enumerate() {
                *sum = _mm512_set1_epi32(*input.starts.get_unchecked(row * spans + span));
            }
            let values = input
                .quants
                .as_ptr()
                .add(block)
                .cast::<i32>()
                .add(span * SPAN % QUADS);
            for quad in 0..SPAN {
                let weights = _mm512_load_si512(quants.as_ptr().add(span * SPAN + quad).cast());
                for (row, sum) in sums.iter_mut().enumerate() {
                    let values = _mm512_set1_epi32(*values.add(row * pitch * QUADS + quad));
                    *sum = _mm512_dpbusd_epi32(*sum, weights, values);
                }
            }
            let scales = _mm512_load_ps(panel.scales.as_ptr().add(span).cast());
            for (row, (acc, sum)) in acc.iter_mut().zip(sums).enumerate() {
                let scale = _mm512_mul_ps(
                    scales,
                    _mm512_set1_ps(*input.scales.get_unchecked(row * blocks + block)),
                );
                *acc = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(sum), *acc);
            }
            if MIN {
                let min = _mm512_load_ps(panel.mins.as_ptr().add(span).cast());
                for (row, acc) in acc.iter_mut().enumerate() {
                    let sum = _mm512_set1_ps(*input.sums.get_unchecked(row * spans + span));
                    *acc = _mm512_fmadd_ps(min, sum, *acc);
                }
            }
        }
    }
    for (row, acc) in acc.into_iter().enumerate() {
        store(acc, out.row(input.first + row));
    }
}

/// Unpacks a group into `panel`; with `SIGNED`, the offset is subtracted from the values.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn unpack<L: Layout, const SIGNED: bool>(group: &Group<'_>, panel: &mut Panel) {
    panel.resize(group);
    let offset = _mm512_set1_epi8(group.kind.offset.cast_signed());
    for block in 0..group.blocks {
        if L::BITS < 8 || SIGNED {
            let quads = unpack_block::<L>(&group.quants[block * L::BITS..][..L::BITS]);
            for (line, quad) in panel.quants[block * QUADS..][..QUADS].iter_mut().zip(quads) {
                let quad = if SIGNED {
                    _mm512_sub_epi8(quad, offset)
                } else {
                    quad
                };
                // SAFETY: a line is 64 bytes, aligned by its type.
                unsafe { _mm512_store_si512((&raw mut *line).cast(), quad) };
            }
        }
        let (scales, mins) = unpack_scales::<L>(group.scales, block);
        for span in 0..L::SPANS {
            store_floats(scales[span], &mut panel.scales[block * L::SPANS + span]);
            if L::MIN {
                store_floats(mins[span], &mut panel.mins[block * L::SPANS + span]);
            }
        }
    }
}

/// The eight quads of a block as unsigned bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn unpack_block<L: Layout>(lines: &[Line]) -> [__m512i; QUADS] {
    let table = L::TABLE.map(|table| {
        // SAFETY: a table is 16 bytes.
        _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
    });
    let mut quads = [_mm512_setzero_si512(); QUADS];
    for (quad, values) in quads.iter_mut().enumerate() {
        let [first, second] = Piece::of(L::BITS, quad);
        *values = bits(&lines[first.line], first);
        if !second.is_empty() {
            *values = _mm512_or_si512(*values, bits(&lines[second.line], second));
        }
        if let Some(table) = table {
            *values = _mm512_shuffle_epi8(table, *values);
        }
    }
    quads
}

/// The bits of a piece, at their place in the code. Everything about the piece is known where this is compiled.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn bits(line: &Line, piece: Piece) -> __m512i {
    // SAFETY: a line is 64 bytes, aligned by its type.
    let line = unsafe { _mm512_load_si512((&raw const *line).cast()) };
    let up = piece.place as i32 - piece.shift as i32;
    let moved = if up >= 0 {
        _mm512_sll_epi16(line, _mm_cvtsi32_si128(up))
    } else {
        _mm512_srl_epi16(line, _mm_cvtsi32_si128(-up))
    };
    let mask = piece.mask << piece.place;
    _mm512_and_si512(moved, _mm512_set1_epi8(mask.cast_signed()))
}

/// Scales and minima of the spans of a block; the second are for half-block spans only.
#[inline]
#[target_feature(enable = "avx2,avx512f")]
fn unpack_scales<L: Layout>(lanes: &[Lanes], block: usize) -> ([__m512; 2], [__m512; 2]) {
    // SAFETY: an entry is 32 bytes, aligned by its type.
    let load = |index: usize| unsafe { _mm256_load_si256((&raw const lanes[index]).cast()) };
    let half = |index: usize| _mm512_cvtph_ps(load(index));
    let negative = |index: usize| {
        let bits = _mm512_castps_si512(half(index));
        _mm512_castsi512_ps(_mm512_xor_si512(bits, _mm512_set1_epi32(i32::MIN)))
    };
    let zero = _mm512_setzero_ps();
    let base = block / SUPER * L::SCALES.lanes(SUPER);
    let within = block % SUPER;
    let factored = |scale| match L::FACTOR {
        1.0 => scale,
        factor => _mm512_mul_ps(scale, _mm512_set1_ps(factor)),
    };
    match L::SCALES {
        Scales::Plain => ([half(block), zero], [zero; 2]),
        Scales::Bf16 => {
            let bits = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(load(block)));
            ([_mm512_castsi512_ps(bits), zero], [zero; 2])
        }
        Scales::Min => ([half(2 * block), zero], [half(2 * block + 1), zero]),
        Scales::Super => {
            let pair = _mm512_cvtepi16_epi32(load(base + 1 + within / 2));
            let up = _mm_cvtsi32_si128(24 - 8 * (within % 2) as i32);
            let scale = _mm512_srai_epi32::<24>(_mm512_sll_epi32(pair, up));
            let scale = _mm512_mul_ps(half(base), _mm512_cvtepi32_ps(scale));
            ([factored(scale), zero], [zero; 2])
        }
        Scales::SuperMin => {
            let both = _mm512_cvtepu16_epi32(load(base + 2 + within));
            let scale = _mm512_cvtepi32_ps(_mm512_and_si512(both, _mm512_set1_epi32(255)));
            let min = _mm512_cvtepi32_ps(_mm512_srli_epi32::<8>(both));
            (
                [_mm512_mul_ps(half(base), scale), zero],
                [_mm512_mul_ps(negative(base + 1), min), zero],
            )
        }
        Scales::SuperHalf => {
            let d = half(base);
            let both = _mm512_cvtepi16_epi32(load(base + 1 + within));
            let first = _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(_mm512_slli_epi32::<24>(both)));
            let last = _mm512_cvtepi32_ps(_mm512_srai_epi32::<8>(both));
            let scales = [
                factored(_mm512_mul_ps(d, first)),
                factored(_mm512_mul_ps(d, last)),
            ];
            (scales, [zero; 2])
        }
        Scales::SuperHalfMin => {
            let (d, dmin) = (half(base), negative(base + 1));
            let all = _mm512_cvtepu16_epi32(load(base + 2 + within));
            let nibble =
                |bits: __m512i| _mm512_cvtepi32_ps(_mm512_and_si512(bits, _mm512_set1_epi32(15)));
            (
                [
                    _mm512_mul_ps(d, nibble(all)),
                    _mm512_mul_ps(d, nibble(_mm512_srli_epi32::<8>(all))),
                ],
                [
                    _mm512_mul_ps(dmin, nibble(_mm512_srli_epi32::<4>(all))),
                    _mm512_mul_ps(dmin, nibble(_mm512_srli_epi32::<12>(all))),
                ],
            )
        }
    }
}

/// Multiplies a dense group with all rows of `x` into `out`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn dense(group: DenseGroup<'_>, x: &[f32], out: &mut Strip<'_>) {
    match group {
        DenseGroup::F32(weights) => {
            dense_rows(weights, x, out, |weights: &Floats| [floats(weights)]);
        }
        DenseGroup::F16(weights) => dense_rows(weights, x, out, |weights: &Lanes| {
            // SAFETY: an entry is 32 bytes, aligned by its type.
            [_mm512_cvtph_ps(unsafe {
                _mm256_load_si256((&raw const *weights).cast())
            })]
        }),
        DenseGroup::Bf16(weights) => dense_rows(weights, x, out, |weights: &Pairs| {
            // SAFETY: an entry is 64 bytes, aligned by its type.
            let both = unsafe { _mm512_load_si512((&raw const *weights).cast()) };
            let odd = _mm512_and_si512(both, _mm512_set1_epi32(0xffff_0000_u32.cast_signed()));
            [_mm512_slli_epi32::<16>(both), odd].map(|bits| _mm512_castsi512_ps(bits))
        }),
    }
}

/// An entry `W` holds `C` columns.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn dense_rows<W, const C: usize>(
    weights: &[W],
    x: &[f32],
    out: &mut Strip<'_>,
    load: impl Fn(&W) -> [__m512; C] + Copy,
) {
    let cols = weights.len() * C;
    let rows = x.len() / cols;
    let mut first = 0;
    while first < rows {
        let x = &x[first * cols..];
        let count = match rows - first {
            8.. => dense_tile::<W, C, 8>(weights, x, first, out, load),
            4.. => dense_tile::<W, C, 4>(weights, x, first, out, load),
            2.. => dense_tile::<W, C, 2>(weights, x, first, out, load),
            _ => dense_tile::<W, C, 1>(weights, x, first, out, load),
        };
        first += count;
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn dense_tile<W, const C: usize, const T: usize>(
    weights: &[W],
    x: &[f32],
    first: usize,
    out: &mut Strip<'_>,
    load: impl Fn(&W) -> [__m512; C],
) -> usize {
    let cols = weights.len() * C;
    let x = &x[..T * cols];
    let mut totals = [_mm512_setzero_ps(); T];
    for (part, weights) in weights.chunks(BLOCK / C).enumerate() {
        if T <= 4 {
            prefetch(weights, size_of_val(weights));
        }
        let mut sums = [_mm512_setzero_ps(); T];
        for (entry, weights) in weights.iter().enumerate() {
            for (column, weights) in (entry * C..).zip(load(weights)) {
                for (row, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: `x` has `T` rows of `cols` values, and the column is below `cols`.
                    let x = unsafe { *x.get_unchecked(row * cols + part * BLOCK + column) };
                    *sum = _mm512_fmadd_ps(weights, _mm512_set1_ps(x), *sum);
                }
            }
        }
        for (total, sum) in totals.iter_mut().zip(sums) {
            *total = _mm512_add_ps(*total, sum);
        }
    }
    for (row, total) in totals.into_iter().enumerate() {
        store(total, out.row(first + row));
    }
    T
}

/// Quantises one row of activations, as the portable version does.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn quantize(x: &[f32], out: &mut RowsMut<'_>) {
    let magnitude = _mm512_set1_epi32(0x7fff_ffff);
    for (block, x) in x.as_chunks::<BLOCK>().0.iter().enumerate() {
        // SAFETY: a block is 32 values.
        let (a, b) = unsafe {
            (
                _mm512_loadu_ps(x.as_ptr()),
                _mm512_loadu_ps(x.as_ptr().add(16)),
            )
        };
        let bits = |v: __m512| _mm512_and_si512(_mm512_castps_si512(v), magnitude);
        let amax = f32::from_bits(_mm512_reduce_max_epu32(_mm512_max_epu32(bits(a), bits(b))));
        let (scale, inverse) = scale_of(amax);
        let inverse = _mm512_set1_ps(inverse);
        let (a, b) = (
            _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse)),
            _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse)),
        );
        let target = (&raw mut out.quants[block]).cast::<__m128i>();
        // SAFETY: a block of quants is 32 bytes, aligned by its type.
        unsafe {
            _mm_store_si128(target, _mm512_cvtsepi32_epi8(a));
            _mm_store_si128(target.add(1), _mm512_cvtsepi32_epi8(b));
        }
        let halves = [_mm512_reduce_add_epi32(a), _mm512_reduce_add_epi32(b)];
        out.halves[2 * block..][..2].copy_from_slice(&halves);
        out.scales[block] = scale;
        out.sums[block] = scale * (halves[0] + halves[1]) as f32;
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn floats(floats: &Floats) -> __m512 {
    // SAFETY: 64 bytes, aligned by their type.
    unsafe { _mm512_load_ps((&raw const *floats).cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store_floats(value: __m512, floats: &mut Floats) {
    // SAFETY: 64 bytes, aligned by their type.
    unsafe { _mm512_store_ps((&raw mut *floats).cast(), value) };
}

/// Writes the lanes that `out` has, at most sixteen.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn store(value: __m512, out: &mut [f32]) {
    let mask = u16::MAX >> (16 - out.len());
    // SAFETY: only the lanes below `out.len()` are written.
    unsafe { _mm512_mask_storeu_ps(out.as_mut_ptr(), mask, value) };
}
