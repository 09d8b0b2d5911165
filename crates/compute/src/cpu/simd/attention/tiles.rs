//! Attention in AMX bfloat16 tiles.
//!
//! A factor is split in two, `high` with the leading 8 bits of its significand and `low` with the next 8, and a product is
//! `low·high + high·high + high·low`, summed in `f32`: what is left out is 2^-16 of it, below the rounding of keys and
//! values to half precision, whose 11 bits the two parts hold exactly. Keys and values that are stored as bfloat16 have no
//! `low`, and two products do. Tiles multiply sixteen rows with sixteen columns
//! over 32 steps of the depth; each element is summed over those in ascending order, the products of each in the
//! order above, whatever the other rows are.
//!
//! Many rows are bound by the tiles, at 3/512 of a cycle for a multiply-add against 1/32 in `f32` vectors, and by what
//! lies between the two products, some 3 cycles a score in all: 2.1 times the vectors' speed with heads of 64, 2.6 times
//! with heads of 256. One row (generation) is bound by splitting keys and values, five instructions for 32 of them while
//! the tiles work on the ones before: as fast as the vectors to a third slower, as the group of query heads is small.
//! `cargo run --release -p andante-compute --example ops -- 1 best attention` repeats it, `avx512` instead of `best`
//! beside it.

use super::{Bf16, F16, Queries, SPAN, Softmax, Span, States, pitch};
use crate::BLOCK_TOKENS;
use crate::cpu::isa::Isa;
use crate::cpu::memory::sized;
use crate::cpu::simd::lanes::dispatch;
use crate::cpu::simd::tiles::{Tiles, split};
use std::arch::asm;
use std::arch::x86_64::*;

/// Rows of a tile, and columns of a result; results need room for whole tiles.
pub(super) const ROWS: usize = 16;
/// The depth of a tile.
const DEPTH: usize = 32;

/// A left operand, `[ROWS, DEPTH]`, or a right one, `[DEPTH / 2, ROWS columns, 2]`, in its two parts.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct SplitTile {
    high: [u16; ROWS * DEPTH],
    low: [u16; ROWS * DEPTH],
}

/// Bytes of a line of a tile.
const LINE: usize = 64;

impl Default for SplitTile {
    fn default() -> Self {
        Self {
            high: [0; ROWS * DEPTH],
            low: [0; ROWS * DEPTH],
        }
    }
}

impl SplitTile {
    fn lines(&mut self, line: usize) -> (*mut __m512i, *mut __m512i) {
        let at = line * DEPTH..(line + 1) * DEPTH;
        (
            self.high[at.clone()].as_mut_ptr().cast(),
            self.low[at].as_mut_ptr().cast(),
        )
    }
}

/// A span of a type that tiles multiply.
#[derive(Clone, Copy)]
pub(crate) enum TileSpan<'a> {
    F16(Span<'a, F16>),
    Bf16(Span<'a, Bf16>),
}

/// 16-bit numbers that can be split.
trait Parts: Copy + 'static {
    /// Whether `high` is all of a number; there is no `low` then.
    const WHOLE: bool;
    const ZEROS: &[Self; DEPTH];
    /// Writes a line of a right operand. Values outside `seen` become 0.
    fn split_line(values: &[Self; DEPTH], seen: u32, tile: &mut SplitTile, line: usize);
}

impl Parts for F16 {
    const WHOLE: bool = false;
    const ZEROS: &[Self; DEPTH] = &[Self(0); DEPTH];

    #[inline(always)]
    fn split_line(values: &[Self; DEPTH], seen: u32, tile: &mut SplitTile, line: usize) {
        // SAFETY: tiles are used only where the processor has AVX-512.
        unsafe { split_half_line(values, seen, tile, line) }
    }
}

impl Parts for Bf16 {
    const WHOLE: bool = true;
    const ZEROS: &[Self; DEPTH] = &[Self(0); DEPTH];

    #[inline(always)]
    fn split_line(values: &[Self; DEPTH], seen: u32, tile: &mut SplitTile, line: usize) {
        // SAFETY: as above.
        unsafe { copy_line(values, seen, tile, line) }
    }
}

/// Memory of one thread, kept from call to call.
#[derive(Default)]
pub(crate) struct TileWork {
    /// `[row groups, chunks of the head]`
    queries: Vec<SplitTile>,
    /// `[depth, PAIR columns]` of the keys or values in hand.
    right: Vec<SplitTile>,
    /// `[row groups, blocks]`
    weights: Vec<SplitTile>,
    /// `[rows, SPAN]`
    scores: Vec<f32>,
}

impl TileWork {
    /// Takes over the queries of a tile.
    pub(super) fn pack(&mut self, isa: Isa, queries: Queries<'_>) {
        let Queries {
            row,
            rows,
            head_dim,
            factor,
        } = queries;
        let (groups, chunks) = (rows.div_ceil(ROWS), head_dim.div_ceil(DEPTH));
        sized(&mut self.queries, groups * chunks);
        sized(&mut self.scores, groups * ROWS * SPAN);
        assert!(isa.has_tiles());
        for index in 0..rows {
            let tiles = &mut self.queries[index / ROWS * chunks..][..chunks];
            // SAFETY: an `Isa` with tiles exists only where the processor has AVX-512.
            unsafe { pack_row(row(index), factor, index % ROWS, tiles) };
        }
    }

    /// Shapes this thread's tiles for `rows` rows, as long as the result lives.
    pub(super) fn configure(isa: Isa, rows: usize) -> Tiles {
        // One group of rows is as high as it must be: what tiles cost goes with their rows.
        let (left, right) = ((rows.min(ROWS), LINE), (DEPTH / 2, LINE));
        assert!(isa.has_tiles());
        // SAFETY: an `Isa` with tiles exists only where they can be used.
        unsafe { Tiles::configure(&[left, left, left, left, left, left, right, right]) }
    }

    /// What a span gives the rows of the queries; `states` has room for whole groups of rows.
    pub(super) fn attend(&mut self, isa: Isa, span: TileSpan<'_>, states: &mut States) {
        match span {
            TileSpan::F16(span) => self.attend_to(isa, span, states),
            TileSpan::Bf16(span) => self.attend_to(isa, span, states),
        }
    }

    fn attend_to<P: Parts>(&mut self, isa: Isa, span: Span<'_, P>, states: &mut States) {
        let (pitch, blocks) = (pitch(span.head_dim), span.blocks.len());
        let groups = span.visible.len().div_ceil(ROWS);
        let chunks = span.head_dim.div_ceil(DEPTH);
        sized(&mut self.weights, groups * blocks);
        sized(&mut self.right, PAIR * chunks.max(blocks));
        let Self {
            queries,
            right,
            weights,
            scores,
        } = self;
        assert!(isa.has_tiles());
        let product = Product {
            groups,
            depth: chunks,
            pairs: blocks,
            pitch: SPAN,
        };
        // SAFETY: an `Isa` with tiles exists only where the processor has AVX-512 and the system allows tiles.
        unsafe { product.run(queries, &Keys(&span), right, scores) };
        let softmax = Softmax {
            scores,
            visible: span.visible,
            max: &mut states.max,
            sum: &mut states.sum,
        };
        dispatch(isa, softmax);
        let product = Product {
            groups,
            depth: blocks,
            pairs: pitch / (PAIR * ROWS),
            pitch,
        };
        // SAFETY: as above.
        unsafe {
            split_weights(span.visible.len(), blocks, scores, weights);
            product.run(weights, &Values::new(&span), right, &mut states.out);
        }
    }
}

/// Columns of tiles that are multiplied side by side.
const PAIR: usize = 2;

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
fn pack_row(query: &[f32], factor: f32, line: usize, tiles: &mut [SplitTile]) {
    let factor = _mm512_set1_ps(factor);
    for (tile, part) in tiles.iter_mut().zip(query.chunks(DEPTH)) {
        let mut padded = [0.0; DEPTH];
        padded[..part.len()].copy_from_slice(part);
        // SAFETY: the array has 32 values.
        let (first, last) = unsafe {
            (
                _mm512_loadu_ps(padded.as_ptr()),
                _mm512_loadu_ps(padded.as_ptr().add(16)),
            )
        };
        split_row(
            [_mm512_mul_ps(first, factor), _mm512_mul_ps(last, factor)],
            line,
            tile,
        );
    }
}

/// Where the lines of right operands come from.
trait Lines {
    type Number: Parts;
    /// The line of `column`, 0 or 1, of a pair of columns at step `depth`; which of its values count.
    fn line(
        &self,
        pair: usize,
        depth: usize,
        column: usize,
        line: usize,
    ) -> (&[Self::Number; DEPTH], u32);
    /// Asks for what will be needed after this line.
    fn prefetch(&self, pair: usize, depth: usize, line: usize);
}

/// Columns are tokens, a pair of them is a block; the depth is the head's.
struct Keys<'a, P>(&'a Span<'a, P>);

impl<P: Parts> Lines for Keys<'_, P> {
    type Number = P;

    #[inline(always)]
    fn line(
        &self,
        pair: usize,
        depth: usize,
        column: usize,
        line: usize,
    ) -> (&[Self::Number; DEPTH], u32) {
        let lines = self.0.blocks[pair].keys.as_chunks::<DEPTH>().0;
        match lines.get((depth * DEPTH / 2 + line) * PAIR + column) {
            Some(values) => (values, BOTH),
            None => (P::ZEROS, BOTH), // beyond the head's dimensions
        }
    }

    #[inline(always)]
    fn prefetch(&self, pair: usize, depth: usize, line: usize) {
        let at = (depth * DEPTH / 2 + line) * PAIR * DEPTH;
        if let Some(next) = self.0.blocks.get(pair + 1) {
            prefetch(next.keys, at);
            prefetch(next.keys, at + DEPTH);
        }
        let values = self.0.blocks[pair].values;
        prefetch(values, at);
        prefetch(values, at + DEPTH);
    }
}

/// Columns are the head's dimensions; the depth is the span's tokens.
struct Values<'a, P> {
    span: &'a Span<'a, P>,
    /// Lines of 32 values from one pair of tokens to the next.
    pitch: usize,
    /// The first token that no row sees.
    end: usize,
}

impl<'a, P> Values<'a, P> {
    fn new(span: &'a Span<'a, P>) -> Self {
        let ends = span.visible.iter().map(|visible| visible.end);
        Self {
            span,
            pitch: pitch(span.head_dim) / ROWS,
            end: ends.max().unwrap_or(0),
        }
    }
}

impl<P: Parts> Lines for Values<'_, P> {
    type Number = P;

    #[inline(always)]
    fn line(
        &self,
        pair: usize,
        depth: usize,
        column: usize,
        line: usize,
    ) -> (&[Self::Number; DEPTH], u32) {
        let lines = self.span.blocks[depth].values.as_chunks::<DEPTH>().0;
        // Tokens that no row sees may hold anything; their weights of 0 would not make that harmless.
        let seen = match self.end.saturating_sub(depth * BLOCK_TOKENS + 2 * line) {
            0 => 0,
            1 => FIRST,
            _ => BOTH,
        };
        (&lines[line * self.pitch + pair * PAIR + column], seen)
    }

    #[inline(always)]
    fn prefetch(&self, pair: usize, depth: usize, line: usize) {
        if depth == 0 {
            let at = (pair * DEPTH / 2 + line) * PAIR * DEPTH;
            prefetch(self.span.then, at);
            prefetch(self.span.then, at + DEPTH);
        }
    }
}

/// Both rows of a pair, or the first alone.
const BOTH: u32 = u32::MAX;
const FIRST: u32 = BOTH / 3;

/// A line of half-precision values as a line of bfloat16 parts, exactly, but that magnitudes below 2^-14 become 0.
/// Values outside `seen` become 0 too.
///
/// With `s` the sign, `e` the five bits of the exponent and `m` the ten of the significand, `high` has the exponent
/// `e - 15` and the upper seven bits of `m`. `low` has the other three, `t`, as `t * 2^(e - 25)`: its exponent and
/// significand are those of `t` ([`LOW`]) with `e` added to the exponent.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn split_half_line(values: &[F16; DEPTH], seen: u32, tile: &mut SplitTile, line: usize) {
    let word = |bits: u16| _mm512_set1_epi16(bits.cast_signed());
    // SAFETY: 64 bytes each.
    let (values, low_bits) = unsafe {
        (
            _mm512_loadu_si512(values.as_ptr().cast()),
            _mm512_loadu_si512(LOW.as_ptr().cast()),
        )
    };
    let normal = _mm512_mask_test_epi16_mask(seen, values, word(0x7c00));
    // Sign, three copies of it to be cleared, five bits of exponent, seven of significand.
    let shifted = _mm512_srai_epi16::<3>(values);
    let (all, exponent) = (
        _mm512_and_si512(shifted, word(0x8fff)),
        _mm512_and_si512(shifted, word(0x8f80)),
    );
    const REBIAS: u16 = (127 - 15) << 7;
    let high_part = _mm512_maskz_add_epi16(normal, all, word(REBIAS));
    // The instruction looks at the lowest five bits alone.
    let low_part =
        _mm512_maskz_add_epi16(normal, exponent, _mm512_permutexvar_epi16(values, low_bits));
    let (high, low) = tile.lines(line);
    // SAFETY: a line is 64 bytes, aligned by the tile's type.
    unsafe {
        _mm512_store_si512(high, high_part);
        _mm512_store_si512(low, low_part);
    }
}

/// A line of bfloat16 values as one of parts; `low` is not used.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn copy_line(values: &[Bf16; DEPTH], seen: u32, tile: &mut SplitTile, line: usize) {
    // SAFETY: 64 bytes each, and a line's are aligned by the tile's type.
    unsafe {
        let values = _mm512_maskz_loadu_epi16(seen, values.as_ptr().cast());
        _mm512_store_si512(tile.lines(line).0, values);
    }
}

/// The lowest three bits of a significand as bfloat16 bits, by the lowest five. That 0 becomes some 2^-100 of the value
/// does not show in an `f32`.
const LOW: [u16; 32] = {
    let mut low = [0; 32];
    let mut index = 0_u32;
    while index < 32 {
        let t = index % 8;
        if t > 0 {
            let exponent = t.ilog2();
            let significand = (t << (7 - exponent)) & 127;
            low[index as usize] = ((127 - 25 + exponent) << 7 | significand) as u16;
        }
        index += 1;
    }
    low
};

/// Weights as left operands: `[row groups, blocks]`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
fn split_weights(rows: usize, depth: usize, scores: &[f32], tiles: &mut [SplitTile]) {
    for (row, scores) in scores.chunks_exact(SPAN).take(rows).enumerate() {
        let tiles = &mut tiles[row / ROWS * depth..][..depth];
        for (tile, scores) in tiles.iter_mut().zip(scores.as_chunks::<DEPTH>().0) {
            // SAFETY: the chunk has 32 values.
            let parts = unsafe {
                [
                    _mm512_loadu_ps(scores.as_ptr()),
                    _mm512_loadu_ps(scores.as_ptr().add(16)),
                ]
            };
            split_row(parts, row % ROWS, tile);
        }
    }
}

/// Asks for the cache line of element `index`, if there is such an element.
#[inline]
fn prefetch<P>(elements: &[P], index: usize) {
    // SAFETY: a hint that never faults; every x86-64 machine has it.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(elements.as_ptr().wrapping_add(index).cast()) }
}

/// 32 neighbours in depth of one row, as a line of a left operand.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn split_row(parts: [__m512; 2], line: usize, tile: &mut SplitTile) {
    let [high_part, low_part] = split(parts);
    let (high, low) = tile.lines(line);
    // SAFETY: a line is 64 bytes, aligned by the tile's type.
    unsafe {
        _mm512_store_si512(high, high_part);
        _mm512_store_si512(low, low_part);
    }
}

/// `c = a · b`: `a` is `[groups, depth]` left operands, `b` `[depth, pairs of columns]` right ones, `c` has rows of
/// `pitch` values.
#[derive(Clone, Copy)]
struct Product {
    groups: usize,
    depth: usize,
    pairs: usize,
    pitch: usize,
}

impl Product {
    /// Splits the right operands, a pair of columns at a time, into `right` and multiplies.
    ///
    /// # Safety
    /// Tiles may be used, and [`TileWork::configure`] has shaped them.
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn run<L: Lines>(self, a: &[SplitTile], b: &L, right: &mut [SplitTile], c: &mut [f32]) {
        let Self {
            groups,
            depth,
            pairs,
            pitch,
        } = self;
        assert!(depth > 0 && a.len() >= groups * depth && right.len() >= depth * PAIR);
        assert!(c.len() >= groups * ROWS * pitch && pitch >= pairs * PAIR * ROWS);
        for pair in 0..pairs {
            let c = &raw mut c[pair * PAIR * ROWS];
            if groups == 1 {
                // SAFETY: by the lengths above, the group, the columns and their results exist; the rest is the
                // caller's promise.
                unsafe { self.one_group(a, (b, pair), right, c) };
                continue;
            }
            for (step, right) in right.chunks_exact_mut(PAIR).take(depth).enumerate() {
                split_step(b, (pair, step), right);
            }
            for group in (0..groups).step_by(2) {
                let a = &raw const a[group * depth];
                // SAFETY: as above, for two groups or the last.
                unsafe {
                    let c = c.add(group * ROWS * pitch);
                    if group + 1 < groups {
                        two_by_two::<L::Number>(a, right.as_ptr(), depth, (c, pitch));
                    } else {
                        zero();
                        for step in 0..depth {
                            one_by_two::<L::Number>(a.add(step), right.as_ptr().add(step * PAIR));
                        }
                        store(c, pitch);
                    }
                }
            }
        }
    }

    /// One group of rows. Tiles multiply a step while the vectors split the next one: an instruction that waits for the
    /// one before it would hold up everything behind it.
    ///
    /// # Safety
    /// As for [`Product::run`]; the group, the columns and their results exist.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn one_group<L: Lines>(
        self,
        a: &[SplitTile],
        (b, pair): (&L, usize),
        right: &mut [SplitTile],
        c: *mut f32,
    ) {
        // SAFETY: the caller's promise.
        unsafe { zero() };
        for step in 0..self.depth {
            split_step(b, (pair, step), &mut right[step * PAIR..][..PAIR]);
            if let Some(before) = step.checked_sub(1) {
                // SAFETY: the caller's promise.
                unsafe {
                    one_by_two::<L::Number>(&raw const a[before], &raw const right[before * PAIR]);
                };
            }
        }
        let last = self.depth - 1;
        // SAFETY: the caller's promise.
        unsafe {
            one_by_two::<L::Number>(&raw const a[last], &raw const right[last * PAIR]);
            store(c, self.pitch);
        }
    }
}

/// One step of a pair of columns as right operands.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn split_step<L: Lines>(b: &L, (pair, step): (usize, usize), right: &mut [SplitTile]) {
    for line in 0..DEPTH / 2 {
        b.prefetch(pair, step, line);
        for (column, tile) in right.iter_mut().enumerate() {
            let (values, seen) = b.line(pair, step, column, line);
            L::Number::split_line(values, seen, tile, line);
        }
    }
}

/// Two groups of rows by two columns, all steps. An instruction waits for the one before it on the same sum, so four sums
/// take turns.
///
/// # Safety
/// The tiles are configured, the operands and results exist.
unsafe fn two_by_two<P: Parts>(
    a: *const SplitTile,
    b: *const SplitTile,
    depth: usize,
    (c, pitch): (*mut f32, usize),
) {
    macro_rules! multiply {
        ($($low:literal,)*) => {
            asm!(
                "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                "2:",
                "tileloadd tmm4, [{a} + {line} + 1024]", "tileloadd tmm5, [{a2} + {line} + 1024]",
                "tileloadd tmm6, [{b} + {line}]", "tileloadd tmm7, [{b} + {line} + 2048]",
                "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6", "tdpbf16ps tmm3, tmm5, tmm7",
                "tileloadd tmm4, [{a} + {line}]", "tileloadd tmm5, [{a2} + {line}]",
                "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6", "tdpbf16ps tmm3, tmm5, tmm7",
                $($low,)*
                "add {a}, 2048", "add {a2}, 2048", "add {b}, 4096",
                "dec {depth}", "jnz 2b",
                "tilestored [{c} + {pitch}], tmm0", "tilestored [{c} + {pitch} + 64], tmm1",
                "tilestored [{c2} + {pitch}], tmm2", "tilestored [{c2} + {pitch} + 64], tmm3",
                a = inout(reg) a => _, a2 = inout(reg) a.add(depth) => _, b = inout(reg) b => _,
                depth = inout(reg) depth => _, line = in(reg) LINE,
                c = in(reg) c, c2 = in(reg) c.add(ROWS * pitch), pitch = in(reg) pitch * size_of::<f32>(),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            )
        };
    }
    // SAFETY: the caller's promise.
    unsafe {
        if P::WHOLE {
            multiply!();
        } else {
            multiply!(
                "tileloadd tmm6, [{b} + {line} + 1024]",
                "tileloadd tmm7, [{b} + {line} + 3072]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
            );
        }
    }
}

// The sums of the following three stay in tiles 0 and 1 from one to the next. Like the tiles' shapes they are state that
// the compiler does not know of and, without the instruction set enabled for it, cannot touch.

/// Starts the sums of one group of rows and two columns.
///
/// # Safety
/// The tiles are configured.
#[inline(always)]
unsafe fn zero() {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("tilezero tmm0", "tilezero tmm1", out("tmm0") _, out("tmm1") _, options(nostack, preserves_flags));
    }
}

/// Adds one step of depth.
///
/// # Safety
/// The tiles are configured; the operands exist.
#[inline(always)]
unsafe fn one_by_two<P: Parts>(a: *const SplitTile, b: *const SplitTile) {
    macro_rules! multiply {
        ($($low:literal,)*) => {
            asm!(
                "tileloadd tmm5, [{a} + {line} + 1024]", "tileloadd tmm4, [{a} + {line}]",
                "tileloadd tmm6, [{b} + {line}]", "tileloadd tmm7, [{b} + {line} + 2048]",
                "tdpbf16ps tmm0, tmm5, tmm6", "tdpbf16ps tmm1, tmm5, tmm7",
                "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm1, tmm4, tmm7",
                $($low,)*
                a = in(reg) a, b = in(reg) b, line = in(reg) LINE,
                out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, preserves_flags),
            )
        };
    }
    // SAFETY: the caller's promise.
    unsafe {
        if P::WHOLE {
            multiply!();
        } else {
            multiply!(
                "tileloadd tmm6, [{b} + {line} + 1024]",
                "tileloadd tmm7, [{b} + {line} + 3072]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
            );
        }
    }
}

/// Writes the sums.
///
/// # Safety
/// The tiles are configured; sixteen rows of `pitch` values exist at `c`.
#[inline(always)]
unsafe fn store(c: *mut f32, pitch: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "tilestored [{c} + {pitch}], tmm0", "tilestored [{c} + {pitch} + 64], tmm1",
            c = in(reg) c, pitch = in(reg) pitch * size_of::<f32>(),
            options(nostack, preserves_flags),
        );
    }
}
