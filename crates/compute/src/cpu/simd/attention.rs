//! The kernels of attention: a tile of query rows against one span of keys and values.
//!
//! A *span* is [`SPAN`] tokens at a fixed absolute position. For each row and span, in this order and no other:
//! `q · k` over the dimensions ascending, the span's maximum and sum of weights, `Σ weight · v` over the tokens
//! ascending. Spans are then merged in ascending order ([`Merge`]). How many rows share a pass over the keys and
//! values changes none of it, so a row's result is the same in any tile.
//!
//! Both products are one small matrix product ([`tile`]): lanes are tokens for `q · k` (keys are stored transposed)
//! and dimensions for `weight · v`, so no sum ever runs across lanes.

mod elements;
#[cfg(target_arch = "x86_64")]
mod tiles;

pub(crate) use elements::{Bf16, Element, F16, Q8, Store};

use super::lanes::{Kernel, Lanes, MAX_LANES, dispatch};
use crate::BLOCK_TOKENS;
use crate::cpu::isa::Isa;
use crate::cpu::memory::sized;
use elements::Rows;
use std::ops::Range;
use zerocopy::{FromBytes, IntoBytes};

/// Tokens in a span.
pub(crate) const SPAN: usize = 4 * BLOCK_TOKENS;

/// Keys and values of one KV head in one block.
#[derive(Clone, Copy)]
pub(crate) struct HeadBlock<'a, E> {
    /// `[head_dim, BLOCK_TOKENS]`, rows as [`Element::layout`] says.
    pub(crate) keys: &'a [E],
    /// `[BLOCK_TOKENS, pitch]`, `pitch` = [`pitch`] of `head_dim`; zeros beyond `head_dim`; rows as the keys'.
    pub(crate) values: &'a [E],
    /// What else the elements need to be numbers, as [`Element`] says.
    pub(crate) scales: &'a [E],
}

impl HeadBlock<'_, Q8> {
    /// Of the keys and of the values, in half precision.
    fn scales(&self) -> (&[u16], &[u16]) {
        let all = <[u16]>::ref_from_bytes(self.scales.as_bytes());
        let all = all.expect("a whole number of them, where blocks have even lengths");
        all.split_at(all.len() / 2)
    }
}

/// How the rows of keys and of values lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One after the other.
    Rows,
    /// Two interleaved: element `i` of both, then element `i + 1` of both.
    Pairs,
}

impl Layout {
    /// Where a block keeps the key of a token, in one dimension.
    pub(crate) fn key(self, dimension: usize, token: usize) -> usize {
        match self {
            Self::Rows => dimension * BLOCK_TOKENS + token,
            Self::Pairs => dimension / 2 * 2 * BLOCK_TOKENS + 2 * token + dimension % 2,
        }
    }
}

/// Elements from one row to the next where rows of `head_dim` values are kept for vectors.
pub(crate) fn pitch(head_dim: usize) -> usize {
    head_dim.next_multiple_of(2 * MAX_LANES)
}

/// One span as the rows of a tile see it.
#[derive(Clone, Copy)]
pub(crate) struct Span<'a, E> {
    pub(crate) head_dim: usize,
    /// The span's blocks as far as any row sees them; at least one, at most `SPAN / BLOCK_TOKENS`.
    pub(crate) blocks: &'a [HeadBlock<'a, E>],
    /// What will be read next, after this span.
    pub(crate) then: &'a [E],
    /// The tokens of the span that each row sees.
    pub(crate) visible: &'a [Range<usize>],
}

/// The queries of a tile: where they are and what they are multiplied with.
#[derive(Clone, Copy)]
pub(crate) struct Queries<'a> {
    /// The query of row `i`: `[head_dim]`.
    pub(crate) row: &'a dyn Fn(usize) -> &'a [f32],
    pub(crate) rows: usize,
    pub(crate) head_dim: usize,
    /// With `log2(e)` in it, weights are powers of two.
    pub(crate) factor: f32,
}

/// Attention of a tile's rows over some spans.
#[derive(Default)]
pub(crate) struct States {
    /// `[rows, pitch]`: `Σ weight · v`; a weight is `2^(score - max)`.
    pub(crate) out: Vec<f32>,
    /// `[rows]`: the largest score; minus infinity where a row saw nothing.
    pub(crate) max: Vec<f32>,
    /// `[rows]`: `Σ weight`.
    pub(crate) sum: Vec<f32>,
}

impl States {
    /// States of `rows` rows that have seen nothing.
    pub(crate) fn clear(&mut self, rows: usize, pitch: usize) {
        for (values, len, value) in [
            (&mut self.out, rows * pitch, 0.0),
            (&mut self.max, rows, f32::NEG_INFINITY),
            (&mut self.sum, rows, 0.0),
        ] {
            values.clear();
            values.resize(len, value);
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn truncate(&mut self, rows: usize, pitch: usize) {
        self.out.truncate(rows * pitch);
        self.max.truncate(rows);
        self.sum.truncate(rows);
    }
}

/// Memory that one thread works in, and the queries it works on.
#[derive(Default)]
pub(crate) struct SpanWork {
    /// [`groups`] of rows, in a group `[head_dim, rows]`.
    queries: Vec<f32>,
    /// `[BLOCK_TOKENS * pitch]`: a block's keys or values as `f32`.
    block: Vec<f32>,
    /// `[pitch]`: their scales.
    scales: Vec<f32>,
    /// `[rows, SPAN]`: scores, then weights.
    scores: Vec<f32>,
    #[cfg(target_arch = "x86_64")]
    tiles: tiles::TileWork,
}

/// Rows of a tile at most, over all its query heads: enough that reading keys and values costs little beside using
/// them, few enough that what is at work stays in the caches and that a short prompt still makes several tiles.
pub(crate) fn most_rows<E: Element>(isa: Isa) -> usize {
    match E::layout(isa) {
        Layout::Rows => 96,
        Layout::Pairs => 384,
    }
}

impl SpanWork {
    /// Takes over the queries of a tile, which keys and values of type `E` will meet as long as the result lives.
    pub(crate) fn prepare<E: Element>(&mut self, isa: Isa, queries: Queries<'_>) -> Prepared {
        #[cfg(target_arch = "x86_64")]
        if E::layout(isa) == Layout::Pairs {
            self.tiles.pack(isa, queries);
            return Prepared {
                _tiles: Some(tiles::TileWork::configure(isa, queries.rows)),
            };
        }
        let Queries { rows, head_dim, .. } = queries;
        sized(&mut self.queries, rows * head_dim);
        sized(&mut self.block, BLOCK_TOKENS * pitch(head_dim));
        sized(&mut self.scales, pitch(head_dim));
        sized(&mut self.scores, rows * SPAN);
        let packed = &mut self.queries;
        dispatch(isa, PackQueries { packed, queries });
        Prepared {
            #[cfg(target_arch = "x86_64")]
            _tiles: None,
        }
    }

    /// What one span alone gives the rows.
    pub(crate) fn attend<E: Element>(&mut self, isa: Isa, span: Span<'_, E>, states: &mut States) {
        let (rows, pitch) = (span.visible.len(), pitch(span.head_dim));
        #[cfg(target_arch = "x86_64")]
        if E::layout(isa) == Layout::Pairs
            && let Some(span) = E::in_tiles(span)
        {
            // Tiles write whole groups of rows.
            states.clear(rows.next_multiple_of(tiles::ROWS), pitch);
            self.tiles.attend(isa, span, states);
            return states.truncate(rows, pitch);
        }
        states.clear(rows, pitch);
        let work = self;
        dispatch(isa, SpanAttention { span, work, states });
    }
}

/// The state of the processor that [`SpanWork::attend`] needs.
pub(crate) struct Prepared {
    #[cfg(target_arch = "x86_64")]
    _tiles: Option<super::tiles::Tiles>,
}

/// Lays out the queries of a tile for [`SpanAttention`].
struct PackQueries<'a, 'q> {
    packed: &'a mut [f32],
    queries: Queries<'q>,
}

impl Kernel for PackQueries<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let Queries {
            row,
            rows,
            head_dim,
            factor,
        } = self.queries;
        for (first, count) in groups::<S>(rows) {
            let group = &mut self.packed[first * head_dim..][..count * head_dim];
            for r in 0..count {
                for (d, &x) in row(first + r).iter().enumerate() {
                    group[d * count + r] = x * factor;
                }
            }
        }
    }
}

/// Attention of a tile of rows over one span, in vectors.
struct SpanAttention<'a, E> {
    span: Span<'a, E>,
    work: &'a mut SpanWork,
    states: &'a mut States,
}

impl<E: Element> Kernel for SpanAttention<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(mut self, s: S) {
        self.check();
        // One group of rows uses each key and value once: converting them first would only cost.
        let direct = !E::IS_F32 && self.span.visible.len() <= S::TILE_ROWS;
        for (index, block) in self.span.blocks.iter().enumerate() {
            let next = self.span.blocks.get(index + 1);
            let next = next
                .map_or(self.span.blocks[0].values, |next| next.keys)
                .as_ptr();
            if direct {
                let keys = E::keys(s, block, &mut self.work.scales);
                self.score(s, index, Ahead::of(keys, next));
            } else {
                let buffers = (&mut self.work.block[..], &mut self.work.scales[..]);
                let keys = E::keys_to_f32(s, block, self.span.head_dim, buffers);
                self.score(s, index, Ahead::of(keys, next));
            }
        }
        Softmax {
            scores: &mut self.work.scores,
            visible: self.span.visible,
            max: &mut self.states.max,
            sum: &mut self.states.sum,
        }
        .run(s);
        for (index, block) in self.span.blocks.iter().enumerate() {
            let next = self.span.blocks.get(index + 1);
            let next = next.map_or(self.span.then, |next| next.values).as_ptr();
            if direct {
                let values = E::values(s, block, &mut self.work.scales);
                self.gather(s, index, Ahead::of(values, next));
            } else {
                let buffers = (&mut self.work.block[..], &mut self.work.scales[..]);
                let values = E::values_to_f32(s, block, buffers);
                self.gather(s, index, Ahead::of(values, next));
            }
        }
    }
}

const LINE_BYTES: usize = 64;

/// Rows to work with now, and where to ask meanwhile for those that are needed next: blocks lie anywhere, so the processor
/// cannot guess.
struct Ahead<R, E> {
    now: R,
    next: *const E,
}

impl<R: Copy, E> Clone for Ahead<R, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: Copy, E> Copy for Ahead<R, E> {}

impl<R: Rows, E> Ahead<R, E> {
    /// `next` is asked for in full while as many numbers are read from `now`.
    fn of(now: R, next: *const E) -> Self {
        Self { now, next }
    }

    /// Both without the first `count` columns.
    #[inline(always)]
    fn skip_columns(self, count: usize) -> Self {
        Self {
            now: self.now.skip_columns(count),
            next: self.next.wrapping_add(count),
        }
    }

    /// Both without the first `count` rows.
    #[inline(always)]
    fn skip_rows(self, count: usize, pitch: usize) -> Self {
        Self {
            now: self.now.skip_rows(count, pitch),
            next: self.next.wrapping_add(count * pitch),
        }
    }

    /// Asks for the cache lines that go with `count` elements, a whole number of vectors.
    #[inline(always)]
    fn prefetch<S: Lanes>(self, s: S, count: usize) {
        for line in (0..count * size_of::<E>()).step_by(LINE_BYTES) {
            s.prefetch(self.next.wrapping_byte_add(line));
        }
    }
}

impl<E: Element> SpanAttention<'_, E> {
    /// Everything that the unsafe parts rely on.
    fn check(&self) {
        let (rows, pitch) = (self.span.visible.len(), pitch(self.span.head_dim));
        assert!(self.work.queries.len() >= rows * self.span.head_dim);
        assert!(self.span.blocks.len() <= SPAN / BLOCK_TOKENS);
        for block in self.span.blocks {
            assert!(block.keys.len() >= self.span.head_dim * BLOCK_TOKENS);
            assert!(block.values.len() == BLOCK_TOKENS * pitch);
            assert!(
                size_of_val(block.scales) == 4 * BLOCK_TOKENS * E::row_scales(self.span.head_dim)
            );
        }
        for visible in self.span.visible {
            assert!(visible.end <= self.span.blocks.len() * BLOCK_TOKENS);
        }
        assert!(self.work.block.len() >= BLOCK_TOKENS * pitch);
        assert!(self.work.scores.len() >= rows * SPAN && self.states.out.len() >= rows * pitch);
    }

    /// `scores = queries · keys` of block `index`.
    #[inline(always)]
    fn score<S: Lanes, R: Rows>(&mut self, s: S, index: usize, keys: Ahead<R, E>) {
        for (first, rows) in groups::<S>(self.span.visible.len()) {
            if seen(&self.span.visible[first..first + rows], index).is_empty() {
                continue;
            }
            // SAFETY: by `check`, a group's queries are `[head_dim, rows]`, keys `[head_dim, BLOCK_TOKENS]`, and the
            // scores of these rows `[rows, SPAN]`, of which this block has the columns from `index * BLOCK_TOKENS`.
            unsafe {
                let a = self.work.queries.as_ptr().add(first * self.span.head_dim);
                let c = self
                    .work
                    .scores
                    .as_mut_ptr()
                    .add(first * SPAN + index * BLOCK_TOKENS);
                let mut column = 0;
                while column < BLOCK_TOKENS {
                    let product = Product {
                        a,
                        b: keys.skip_columns(column),
                        c: c.add(column),
                        depth: self.span.head_dim,
                        b_pitch: BLOCK_TOKENS,
                        c_pitch: SPAN,
                    };
                    column += product.of_queries(s, rows, BLOCK_TOKENS - column);
                }
            }
        }
    }

    /// `out += weights · values` of block `index`.
    #[inline(always)]
    fn gather<S: Lanes, R: Rows>(&mut self, s: S, index: usize, values: Ahead<R, E>) {
        let pitch = pitch(self.span.head_dim);
        for (first, rows) in groups::<S>(self.span.visible.len()) {
            // Tokens that no row sees may hold anything; their weights of 0 would not make that harmless.
            let tokens = seen(&self.span.visible[first..first + rows], index);
            if tokens.is_empty() {
                continue;
            }
            // SAFETY: by `check`, weights are `[rows, SPAN]`, of which `tokens` lie in this block's part; values
            // `[BLOCK_TOKENS, pitch]`; `out` `[rows, pitch]`; columns are whole vectors within `pitch`.
            unsafe {
                let a = self
                    .work
                    .scores
                    .as_ptr()
                    .add(first * SPAN + index * BLOCK_TOKENS + tokens.start);
                let values = values.skip_rows(tokens.start, pitch);
                let c = self.states.out.as_mut_ptr().add(first * pitch);
                let mut column = 0;
                while column < pitch {
                    let product = Product {
                        a,
                        b: values.skip_columns(column),
                        c: c.add(column),
                        depth: tokens.len(),
                        b_pitch: pitch,
                        c_pitch: pitch,
                    };
                    column += product.of_weights(s, rows, pitch - column);
                }
            }
        }
    }
}

/// Cuts rows into groups that one product takes: `(first row, rows)`.
fn groups<S: Lanes>(rows: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let fits = |len: &&usize| **len <= S::TILE_ROWS.min(rows - first);
        let len = *GROUP_ROWS.iter().find(fits)?;
        first += len;
        Some((first - len, len))
    })
}

/// The numbers of rows that products are compiled for.
const GROUP_ROWS: [usize; 7] = [12, 8, 6, 4, 3, 2, 1];

/// The tokens of block `index` that any of these rows sees, counted from the block's start.
#[inline(always)]
fn seen(visible: &[Range<usize>], index: usize) -> Range<usize> {
    let (mut start, mut end) = (SPAN, 0);
    for visible in visible.iter().filter(|visible| !visible.is_empty()) {
        start = start.min(visible.start);
        end = end.max(visible.end);
    }
    let block = index * BLOCK_TOKENS;
    let clip = |token: usize| token.clamp(block, block + BLOCK_TOKENS) - block;
    clip(start)..clip(end)
}

/// Turns the scores of rows, `[rows, SPAN]`, into weights.
struct Softmax<'a> {
    scores: &'a mut [f32],
    visible: &'a [Range<usize>],
    max: &'a mut [f32],
    sum: &'a mut [f32],
}

impl Kernel for Softmax<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        for (row, visible) in self.visible.iter().enumerate() {
            let scores = &mut self.scores[row * SPAN..][..SPAN];
            (self.max[row], self.sum[row]) = softmax(s, scores, visible);
        }
    }
}

/// Turns one row's scores of a span into weights; the largest score and the sum of weights.
///
/// Weights of tokens outside `visible` are 0, up to the end of the span.
#[inline(always)]
fn softmax<S: Lanes>(s: S, scores: &mut [f32], visible: &Range<usize>) -> (f32, f32) {
    let partial = visible.start > 0 || visible.end < SPAN;
    if visible.is_empty() {
        scores.fill(0.0);
        return (f32::NEG_INFINITY, 0.0);
    }
    if partial {
        scores[..visible.start].fill(f32::NEG_INFINITY);
        scores[visible.end..].fill(f32::NEG_INFINITY);
    }
    let mut max = [s.splat(f32::NEG_INFINITY); 2];
    for pair in scores.chunks_exact(2 * S::N) {
        max[0] = s.max(max[0], s.load(pair));
        max[1] = s.max(max[1], s.load(&pair[S::N..]));
    }
    let max = s.largest(s.max(max[0], max[1]));
    let all_max = s.splat(max);
    for part in scores.chunks_exact_mut(S::N) {
        let weight = s.exp2(s.sub(s.load(part), all_max));
        s.store(part, weight);
    }
    if partial {
        // The smallest power of two is not 0.
        scores[..visible.start].fill(0.0);
        scores[visible.end..].fill(0.0);
    }
    let mut sum = [s.splat(0.0); 2];
    for pair in scores.chunks_exact(2 * S::N) {
        sum[0] = s.add(sum[0], s.load(pair));
        sum[1] = s.add(sum[1], s.load(&pair[S::N..]));
    }
    (max, s.sum(s.add(sum[0], sum[1])))
}

/// A small matrix product `c (+)= a · b`; each element is summed over the depth ascending.
struct Product<R, E> {
    a: *const f32,
    b: Ahead<R, E>,
    c: *mut f32,
    depth: usize,
    b_pitch: usize,
    c_pitch: usize,
}

/// Calls [`Product::tile`] with the number of rows as a constant, for as many vectors of columns as there are and
/// registers allow: 4, 2 or 1. The number of columns done.
macro_rules! with_rows {
    ($s:ident, $rows:ident, $columns:ident, |$r:ident, $v:ident| $call:expr, [$($n:literal)*]) => {
        match $rows {
            $($n if $n <= S::TILE_ROWS => {
                const $r: usize = $n;
                if 3 * $r <= S::TILE_ROWS && $columns >= 4 * S::N {
                    const $v: usize = 4;
                    $call;
                    4 * S::N
                } else if $columns >= 2 * S::N {
                    const $v: usize = 2;
                    $call;
                    2 * S::N
                } else {
                    const $v: usize = 1;
                    $call;
                    S::N
                }
            })*
            _ => unreachable!("a group has as many rows as a product is compiled for"),
        }
    };
}

impl<B: Rows, E> Product<B, E> {
    /// `c = a · b` for some of the `columns` that are left, a multiple of `S::N`; how many. `a` is `[depth, rows]`.
    ///
    /// # Safety
    /// `a` has `depth * rows` elements; `b` `depth` rows, `c` `rows` rows of `columns`.
    #[inline(always)]
    unsafe fn of_queries<S: Lanes>(self, s: S, rows: usize, columns: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            with_rows!(s, rows, columns, |R, V| self.tile::<S, R, V, 1, R, false>(s), [1 2 3 4 6 8 12])
        }
    }

    /// `c += a · b`, as [`Product::of_queries`]. `a` is `[rows, SPAN]`, of which the first `depth` columns count.
    ///
    /// # Safety
    /// As for [`Product::of_queries`].
    #[inline(always)]
    unsafe fn of_weights<S: Lanes>(self, s: S, rows: usize, columns: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            with_rows!(s, rows, columns, |R, V| self.tile::<S, R, V, SPAN, 1, true>(s), [1 2 3 4 6 8 12])
        }
    }

    /// `R` rows by `V` vectors in registers; `a[r][k]` is at `r * ROW + k * STEP`; added to `c` if `ADD`.
    ///
    /// # Safety
    /// All those elements exist.
    #[inline(always)]
    unsafe fn tile<
        S: Lanes,
        const R: usize,
        const V: usize,
        const ROW: usize,
        const STEP: usize,
        const ADD: bool,
    >(
        self,
        s: S,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = [[s.splat(0.0); V]; R];
            if ADD {
                for (r, sums) in sums.iter_mut().enumerate() {
                    for (v, sum) in sums.iter_mut().enumerate() {
                        *sum = s.load_at(self.c.add(r * self.c_pitch + v * S::N));
                    }
                }
            }
            let (mut a, mut b) = (self.a, self.b);
            for _ in 0..self.depth {
                let columns: [S::V; V] = std::array::from_fn(|v| b.now.load(s, v * S::N));
                b.prefetch(s, V * S::N);
                for (r, sums) in sums.iter_mut().enumerate() {
                    let factor = s.splat(*a.add(r * ROW));
                    for (sum, &column) in sums.iter_mut().zip(&columns) {
                        *sum = s.mul_add(factor, column, *sum);
                    }
                }
                a = a.add(STEP);
                b = b.skip_rows(1, self.b_pitch);
            }
            for (r, sums) in sums.iter().enumerate() {
                for (v, &sum) in sums.iter().enumerate() {
                    s.store_at(self.c.add(r * self.c_pitch + v * S::N), sum);
                }
            }
        }
    }
}

/// [`States`] as slices.
pub(crate) struct RowStates<'a> {
    /// `[rows, pitch]`: `Σ weight · v`.
    pub(crate) out: &'a mut [f32],
    /// `[rows]`: the largest score.
    pub(crate) max: &'a mut [f32],
    /// `[rows]`: `Σ weight`.
    pub(crate) sum: &'a mut [f32],
}

/// Adds the next span to what the spans before it gave.
pub(crate) struct Merge<'a> {
    /// Starts as zeros with a maximum of minus infinity.
    pub(crate) total: RowStates<'a>,
    pub(crate) out: &'a [f32],
    pub(crate) max: &'a [f32],
    pub(crate) sum: &'a [f32],
    /// Multiple of [`MAX_LANES`].
    pub(crate) pitch: usize,
}

impl Kernel for Merge<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let total = self.total;
        let rows = total
            .out
            .chunks_exact_mut(self.pitch)
            .zip(self.out.chunks_exact(self.pitch));
        for (row, (total_out, out)) in rows.enumerate() {
            if self.max[row] == f32::NEG_INFINITY {
                continue; // the row sees nothing of this span
            }
            let (before, span) = (total.max[row], self.max[row]);
            let max = if before > span { before } else { span };
            let old = s.exp2(s.splat(before - max));
            let new = s.exp2(s.splat(span - max));
            for (to, from) in total_out.chunks_exact_mut(S::N).zip(out.chunks_exact(S::N)) {
                let kept = s.mul(s.load(to), old);
                let merged = s.mul_add(s.load(from), new, kept);
                s.store(to, merged);
            }
            let sum = s.mul(s.splat(total.sum[row]), old);
            total.sum[row] = s.first(s.mul_add(s.splat(self.sum[row]), new, sum));
            total.max[row] = max;
        }
    }
}

#[cfg(test)]
mod tests;
