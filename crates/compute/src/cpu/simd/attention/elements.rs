//! The types that keys and values are stored as, and how kernels read and write them.
//!
//! A [`Number`] stands for itself. [`Q8`] is 8 bits with one half-precision scale for 32 dimensions of a token, the
//! arithmetic of the block format Q8_0; the scales follow a head block's keys and values. Either way a kernel sees [`Rows`] of
//! `f32` vectors, and what it sees is what is stored, exactly.
//!
//! What 8 bits cost beside half precision, in instructions with AVX2 (`cargo xtask callgrind`): 43 % more for one row, which
//! widens and scales each vector where it is used, 5 % for many rows, which do so once a block. Tiles do not multiply them.

use super::{HeadBlock, Layout, pitch};
use crate::BLOCK_TOKENS;
use crate::cpu::isa::Isa;
use crate::cpu::simd::lanes::{Kernel, Lanes, MAX_LANES};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Dimensions that share a scale.
const SCALED: usize = 32;

/// A type that keys and values are stored as.
pub(crate) trait Element:
    Copy + Default + Send + Sync + FromBytes + IntoBytes + Immutable + 'static
{
    /// A block's keys as a product reads them: rows are dimensions.
    type Keys: Rows;
    /// A block's values as a product reads them: rows are tokens.
    type Values: Rows;
    /// Whether it needs no conversion.
    const IS_F32: bool;

    /// What the kernels of an instruction set want.
    fn layout(isa: Isa) -> Layout;
    /// Scales of a row of `head_dim` values.
    fn row_scales(head_dim: usize) -> usize;
    /// The keys of a block whose rows lie one after the other; `scales`, `[pitch]`, is room for them as `f32`.
    fn keys<S: Lanes>(s: S, block: &HeadBlock<'_, Self>, scales: &mut [f32]) -> Self::Keys;
    /// The values of such a block.
    fn values<S: Lanes>(s: S, block: &HeadBlock<'_, Self>, scales: &mut [f32]) -> Self::Values;
    /// Its keys as `f32`, `[head_dim, BLOCK_TOKENS]`: in place, or in `buffer`.
    fn keys_to_f32<S: Lanes>(
        s: S,
        block: &HeadBlock<'_, Self>,
        head_dim: usize,
        buffers: (&mut [f32], &mut [f32]),
    ) -> *const f32;
    /// Its values as `f32`, `[BLOCK_TOKENS, pitch]`.
    fn values_to_f32<S: Lanes>(
        s: S,
        block: &HeadBlock<'_, Self>,
        buffers: (&mut [f32], &mut [f32]),
    ) -> *const f32;
    /// Stores a row of a head, `to` being `[pitch]`, and its scales.
    fn store_row<S: Lanes>(s: S, from: &[f32], to: &mut [Self], scales: &mut [u16]);
    /// The span in the form that tiles multiply.
    #[cfg(target_arch = "x86_64")]
    fn in_tiles(span: super::Span<'_, Self>) -> Option<super::tiles::TileSpan<'_>>;
}

/// Rows of numbers that a product reads one after the other.
pub(crate) trait Rows: Copy {
    /// The vector at `column` of the first row.
    ///
    /// # Safety
    /// The row has `column + S::N` numbers.
    unsafe fn load<S: Lanes>(self, s: S, column: usize) -> S::V;
    /// Without the first `count` columns.
    fn skip_columns(self, count: usize) -> Self;
    /// Without the first `count` rows of `pitch` numbers.
    fn skip_rows(self, count: usize, pitch: usize) -> Self;
}

/// A number by itself.
pub(crate) trait Number:
    Copy + Default + Send + Sync + FromBytes + IntoBytes + Immutable + 'static
{
    /// Whether it needs no conversion.
    const IS_F32: bool;
    /// Reads a vector.
    ///
    /// # Safety
    /// `S::N` numbers can be read at `from`.
    unsafe fn load_at<S: Lanes>(s: S, from: *const Self) -> S::V;
    /// Writes a vector, rounded to this type; too large numbers become the largest.
    ///
    /// # Safety
    /// `S::N` numbers can be written at `to`.
    unsafe fn store_at<S: Lanes>(s: S, to: *mut Self, v: S::V);
    /// See [`Element::in_tiles`].
    #[cfg(target_arch = "x86_64")]
    fn in_tiles(span: super::Span<'_, Self>) -> Option<super::tiles::TileSpan<'_>>;
}

impl Number for f32 {
    const IS_F32: bool = true;

    #[inline(always)]
    unsafe fn load_at<S: Lanes>(s: S, from: *const Self) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { s.load_at(from) }
    }
    #[inline(always)]
    unsafe fn store_at<S: Lanes>(s: S, to: *mut Self, v: S::V) {
        // SAFETY: the caller's promise.
        unsafe { s.store_at(to, v) }
    }
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn in_tiles(_: super::Span<'_, Self>) -> Option<super::tiles::TileSpan<'_>> {
        None
    }
}

/// IEEE half precision, as bits.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub(crate) struct F16(pub(in crate::cpu::simd) u16);

impl Number for F16 {
    const IS_F32: bool = false;

    #[inline(always)]
    unsafe fn load_at<S: Lanes>(s: S, from: *const Self) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { s.load_half_at(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store_at<S: Lanes>(s: S, to: *mut Self, v: S::V) {
        // An infinity would turn the zero weight of a token that a row must not see into "not a number".
        const MAX: f32 = 65504.0;
        let v = s.min(s.splat(MAX), s.max(s.splat(-MAX), v));
        // SAFETY: the caller's promise.
        unsafe { s.store_half_at(to.cast(), v) }
    }
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn in_tiles(span: super::Span<'_, Self>) -> Option<super::tiles::TileSpan<'_>> {
        Some(super::tiles::TileSpan::F16(span))
    }
}

/// The leading 16 bits of an `f32`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub(crate) struct Bf16(pub(in crate::cpu::simd) u16);

impl Number for Bf16 {
    const IS_F32: bool = false;

    #[inline(always)]
    unsafe fn load_at<S: Lanes>(s: S, from: *const Self) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { s.load_bf16_at(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store_at<S: Lanes>(s: S, to: *mut Self, v: S::V) {
        // As above.
        const MAX: f32 = f32::from_bits(0x7f7f_0000);
        let v = s.min(s.splat(MAX), s.max(s.splat(-MAX), v));
        // SAFETY: the caller's promise.
        unsafe { s.store_bf16_at(to.cast(), v) }
    }
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn in_tiles(span: super::Span<'_, Self>) -> Option<super::tiles::TileSpan<'_>> {
        Some(super::tiles::TileSpan::Bf16(span))
    }
}

impl<N: Number> Rows for *const N {
    #[inline(always)]
    unsafe fn load<S: Lanes>(self, s: S, column: usize) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { N::load_at(s, self.add(column)) }
    }
    #[inline(always)]
    fn skip_columns(self, count: usize) -> Self {
        self.wrapping_add(count)
    }
    #[inline(always)]
    fn skip_rows(self, count: usize, pitch: usize) -> Self {
        self.wrapping_add(count * pitch)
    }
}

impl<N: Number> Element for N {
    type Keys = *const N;
    type Values = *const N;
    const IS_F32: bool = N::IS_F32;

    fn layout(isa: Isa) -> Layout {
        if isa.has_tiles() && !N::IS_F32 {
            Layout::Pairs
        } else {
            Layout::Rows
        }
    }
    fn row_scales(_: usize) -> usize {
        0
    }
    #[inline(always)]
    fn keys<S: Lanes>(_: S, block: &HeadBlock<'_, N>, _: &mut [f32]) -> *const N {
        block.keys.as_ptr()
    }
    #[inline(always)]
    fn values<S: Lanes>(_: S, block: &HeadBlock<'_, N>, _: &mut [f32]) -> *const N {
        block.values.as_ptr()
    }
    #[inline(always)]
    fn keys_to_f32<S: Lanes>(
        s: S,
        block: &HeadBlock<'_, N>,
        head_dim: usize,
        (buffer, _): (&mut [f32], &mut [f32]),
    ) -> *const f32 {
        to_f32(s, &block.keys[..head_dim * BLOCK_TOKENS], buffer)
    }
    #[inline(always)]
    fn values_to_f32<S: Lanes>(
        s: S,
        block: &HeadBlock<'_, N>,
        (buffer, _): (&mut [f32], &mut [f32]),
    ) -> *const f32 {
        to_f32(s, block.values, buffer)
    }
    #[inline(always)]
    fn store_row<S: Lanes>(s: S, from: &[f32], to: &mut [N], _: &mut [u16]) {
        assert!(to.len() >= from.len().next_multiple_of(S::N));
        for (part, from) in from.chunks(S::N).enumerate() {
            let v = s.load_part(from);
            // SAFETY: part * N + N <= to.len(), just checked.
            unsafe { N::store_at(s, to.as_mut_ptr().add(part * S::N), v) }
        }
    }
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn in_tiles(span: super::Span<'_, N>) -> Option<super::tiles::TileSpan<'_>> {
        N::in_tiles(span)
    }
}

/// A block's numbers as `f32`: in place where they are, else converted into `buffer`.
#[inline(always)]
fn to_f32<S: Lanes, N: Number>(s: S, from: &[N], buffer: &mut [f32]) -> *const f32 {
    if N::IS_F32 {
        return from.as_ptr().cast();
    }
    let buffer = &mut buffer[..from.len()];
    assert!(from.len().is_multiple_of(BLOCK_TOKENS));
    for part in (0..from.len()).step_by(S::N) {
        // SAFETY: part + N <= len of both: the length is a multiple of BLOCK_TOKENS and so of N.
        unsafe {
            s.store_at(
                buffer.as_mut_ptr().add(part),
                N::load_at(s, from.as_ptr().add(part)),
            );
        }
    }
    buffer.as_ptr()
}

/// A number of 8 bits that a scale belongs to.
///
/// In a head block, scales are half precision: of the keys `[row_scales, BLOCK_TOKENS]`, then of the values
/// `[BLOCK_TOKENS, row_scales]`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub(crate) struct Q8(i8);

/// Keys of 8 bits; 32 rows share scales, one for each column.
#[derive(Clone, Copy)]
pub(crate) struct Q8Keys {
    now: *const i8,
    /// Of the first row's columns.
    scales: *const f32,
    row: usize,
}

impl Rows for Q8Keys {
    #[inline(always)]
    unsafe fn load<S: Lanes>(self, s: S, column: usize) -> S::V {
        let scales = self.scales.wrapping_add(self.row / SCALED * BLOCK_TOKENS);
        // SAFETY: the caller's promise; scales are as wide as keys.
        unsafe {
            let scale = s.load_at(scales.add(column));
            s.mul(s.load_i8_at(self.now.add(column)), scale)
        }
    }
    #[inline(always)]
    fn skip_columns(mut self, count: usize) -> Self {
        self.now = self.now.wrapping_add(count);
        self.scales = self.scales.wrapping_add(count);
        self
    }
    #[inline(always)]
    fn skip_rows(mut self, count: usize, pitch: usize) -> Self {
        self.now = self.now.wrapping_add(count * pitch);
        self.row += count;
        self
    }
}

/// Values of 8 bits; 32 columns of a row share a scale.
#[derive(Clone, Copy)]
pub(crate) struct Q8Values {
    now: *const i8,
    /// Of the first row.
    scales: *const f32,
    column: usize,
}

impl Rows for Q8Values {
    #[inline(always)]
    unsafe fn load<S: Lanes>(self, s: S, column: usize) -> S::V {
        // SAFETY: the caller's promise; a row has a scale for each 32 of its values.
        unsafe {
            let scale = s.splat(*self.scales.add((self.column + column) / SCALED));
            s.mul(s.load_i8_at(self.now.add(column)), scale)
        }
    }
    #[inline(always)]
    fn skip_columns(mut self, count: usize) -> Self {
        self.now = self.now.wrapping_add(count);
        self.column += count;
        self
    }
    #[inline(always)]
    fn skip_rows(mut self, count: usize, pitch: usize) -> Self {
        self.now = self.now.wrapping_add(count * pitch);
        self.scales = self.scales.wrapping_add(count * (pitch / SCALED));
        self
    }
}

impl Element for Q8 {
    type Keys = Q8Keys;
    type Values = Q8Values;
    const IS_F32: bool = false;

    fn layout(_: Isa) -> Layout {
        Layout::Rows
    }
    fn row_scales(head_dim: usize) -> usize {
        pitch(head_dim) / SCALED
    }
    #[inline(always)]
    fn keys<S: Lanes>(s: S, block: &HeadBlock<'_, Self>, scales: &mut [f32]) -> Q8Keys {
        Q8Keys {
            now: block.keys.as_ptr().cast(),
            scales: widen(s, block.scales().0, scales),
            row: 0,
        }
    }
    #[inline(always)]
    fn values<S: Lanes>(s: S, block: &HeadBlock<'_, Self>, scales: &mut [f32]) -> Q8Values {
        Q8Values {
            now: block.values.as_ptr().cast(),
            scales: widen(s, block.scales().1, scales),
            column: 0,
        }
    }
    #[inline(always)]
    fn keys_to_f32<S: Lanes>(
        s: S,
        block: &HeadBlock<'_, Self>,
        head_dim: usize,
        (buffer, scales): (&mut [f32], &mut [f32]),
    ) -> *const f32 {
        let rows = &mut buffer[..head_dim * BLOCK_TOKENS];
        assert!(block.keys.len() >= rows.len());
        // SAFETY: the block has as many keys.
        unsafe { rows_to_f32(s, Self::keys(s, block, scales), rows, BLOCK_TOKENS) }
    }
    #[inline(always)]
    fn values_to_f32<S: Lanes>(
        s: S,
        block: &HeadBlock<'_, Self>,
        (buffer, scales): (&mut [f32], &mut [f32]),
    ) -> *const f32 {
        let rows = &mut buffer[..block.values.len()];
        let pitch = rows.len() / BLOCK_TOKENS;
        // SAFETY: the block has as many values.
        unsafe { rows_to_f32(s, Self::values(s, block, scales), rows, pitch) }
    }

    /// As [`andante_gguf::quant::q8_0`] has it, but for a scale beyond half precision, which becomes the largest.
    #[inline(always)]
    fn store_row<S: Lanes>(s: S, from: &[f32], to: &mut [Self], scales: &mut [u16]) {
        let groups = from.chunks(SCALED).zip(to.chunks_exact_mut(SCALED));
        for ((from, to), scale) in groups.zip(scales) {
            let mut padded = [0.0; SCALED];
            padded[..from.len()].copy_from_slice(from);
            *scale = quantize(s, &padded, to);
        }
    }
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn in_tiles(_: super::Span<'_, Self>) -> Option<super::tiles::TileSpan<'_>> {
        None
    }
}

/// 32 values as 8 bits each; the scale in half precision.
#[inline(always)]
fn quantize<S: Lanes>(s: S, from: &[f32; SCALED], to: &mut [Q8]) -> u16 {
    assert!(to.len() == SCALED);
    const MAX_SCALE: f32 = 65504.0;
    let (mut largest, mut zero) = (s.splat(0.0), s.splat(0.0));
    for part in from.chunks_exact(S::N) {
        let v = s.load(part);
        largest = s.max(largest, s.max(v, s.sub(s.splat(0.0), v)));
        // Not a number if `v` is none, or infinite.
        zero = s.mul_add(v, s.splat(0.0), zero);
    }
    let scale = (s.largest(largest) / 127.0).min(MAX_SCALE);
    let per_scale = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    for (part, to) in from.chunks_exact(S::N).zip(to.chunks_exact_mut(S::N)) {
        let v = s.mul(s.load(part), s.splat(per_scale));
        // Halves away from zero: the largest number below a half is added, with the sign of `v`, and what follows the
        // point dropped. Sums of less than 1 are 0, so that the sign of tiny numbers does not matter.
        const ALMOST_HALF: f32 = 0.5 - f32::EPSILON / 4.0;
        let signed = s.mul(v, s.splat(f32::MAX));
        let half = s.min(s.splat(ALMOST_HALF), s.max(s.splat(-ALMOST_HALF), signed));
        // SAFETY: the part is N long.
        unsafe { s.store_i8_at(to.as_mut_ptr().cast(), s.add(v, half)) }
    }
    // A sequence whose values are no numbers must stay recognisable.
    half::f16::from_f32(scale + s.sum(zero)).to_bits()
}

/// Half-precision scales as `f32`.
#[inline(always)]
fn widen<S: Lanes>(s: S, from: &[u16], to: &mut [f32]) -> *const f32 {
    let to = &mut to[..from.len()];
    assert!(from.len().is_multiple_of(2 * MAX_LANES));
    for part in (0..from.len()).step_by(S::N) {
        // SAFETY: part + N <= len of both, a multiple of N.
        unsafe {
            let scales = s.load_half_at(from.as_ptr().add(part));
            s.store_at(to.as_mut_ptr().add(part), scales);
        }
    }
    to.as_ptr()
}

/// Rows of `pitch` numbers, a multiple of [`MAX_LANES`], as `f32`.
///
/// # Safety
/// There are as many rows as fill `to`.
#[inline(always)]
unsafe fn rows_to_f32<S: Lanes>(
    s: S,
    mut rows: impl Rows,
    to: &mut [f32],
    pitch: usize,
) -> *const f32 {
    for row in to.chunks_exact_mut(pitch) {
        for (part, to) in row.chunks_exact_mut(S::N).enumerate() {
            // SAFETY: the caller's promise.
            s.store(to, unsafe { rows.load(s, part * S::N) });
        }
        rows = rows.skip_rows(1, pitch);
    }
    to.as_ptr()
}

/// A row of one head as it is stored, and its scales.
pub(crate) struct Store<'a, E> {
    pub(crate) to: &'a mut [E],
    pub(crate) scales: &'a mut [u16],
    pub(crate) from: &'a [f32],
}

impl<E: Element> Kernel for Store<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        E::store_row(s, self.from, self.to, self.scales);
    }
}
