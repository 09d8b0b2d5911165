//! Activations quantised to int8: 32 columns share one f32 scale.
//!
//! With `amax` the block's largest magnitude, `scale = amax / 127` and `q = round(x * (127 / amax))`, ties to even.
//! A block is quantised from its own values alone. Every vector version of this gives the same bits.

use super::packed::{BLOCK, Kind};
use crate::cpu::isa::Isa;
use crate::cpu::memory::sized;
use crate::cpu::pool::{Pool, Runs};
use crate::cpu::simd::matmul as simd;
use std::ops::Range;

/// Rows that a kernel may read at once: as many are there from any row on.
pub(crate) const TILE_ROWS: usize = 16;

/// The signed values of one block.
#[derive(Clone, Copy, Default)]
#[repr(C, align(32))]
pub(crate) struct Quants(pub(crate) [i8; BLOCK]);

/// Rows of quantised activations, and the sums that formats with a minimum or an offset need.
#[derive(Default)]
pub(crate) struct ActivationBuffer {
    rows: usize,
    blocks: usize,
    /// `[rows, pitch]`, of which the first `blocks` of each row count.
    quants: Vec<Quants>,
    /// `[rows, blocks]`
    scales: Vec<f32>,
    /// `[rows, blocks]`: scale times the sum of the block's values.
    sums: Vec<f32>,
    /// `[rows, 2 * blocks]`: sums of the values of each half block.
    halves: Vec<i32>,
    /// `[rows, 2 * blocks]`: scale times those; only where a kind of the call needs them.
    half_sums: Vec<f32>,
    starts: Vec<Starts>,
}

/// Integer sums start here instead of at zero, which subtracts a format's offset from every weight:
/// `sum((w - offset) * a) = -offset * sum(a) + sum(w * a)`.
#[derive(Default)]
struct Starts {
    offset: u8,
    span: usize,
    /// `[rows, spans]`
    values: Vec<i32>,
}

/// One row to be filled, or several that follow each other.
pub(crate) struct RowsMut<'a> {
    pub(crate) quants: &'a mut [Quants],
    pub(crate) scales: &'a mut [f32],
    pub(crate) sums: &'a mut [f32],
    pub(crate) halves: &'a mut [i32],
}

impl ActivationBuffer {
    /// Blocks from one row to the next; odd, so that the rows of a tile lie in different cache sets.
    fn pitch(&self) -> usize {
        self.blocks | 1
    }

    /// Quantises `x`, `[rows, cols]`, and prepares the sums that these kinds of weights need.
    pub(crate) fn quantize(
        &mut self,
        (pool, isa): (&Pool, Isa),
        x: &[f32],
        rows: usize,
        kinds: impl Iterator<Item = Kind>,
    ) {
        self.rows = rows;
        self.blocks = x.len() / rows / BLOCK;
        let (blocks, pitch) = (self.blocks, self.pitch());
        self.make_room();
        sized(&mut self.halves, rows * blocks * 2);

        let run = rows
            .div_ceil(pool.threads().min(pool.runs()))
            .max(MIN_VALUES.div_ceil(blocks * BLOCK));
        let quants = Runs::new(&mut self.quants[..rows * pitch], run * pitch);
        let scales = Runs::new(&mut self.scales[..rows * blocks], run * blocks);
        let sums = Runs::new(&mut self.sums[..rows * blocks], run * blocks);
        let halves = Runs::new(&mut self.halves[..rows * blocks * 2], run * blocks * 2);
        pool.for_each(quants.count(), 1, &|index| {
            let rows = quants.take(index).chunks_exact_mut(pitch);
            let rows = rows
                .zip(scales.take(index).chunks_exact_mut(blocks))
                .zip(sums.take(index).chunks_exact_mut(blocks))
                .zip(halves.take(index).chunks_exact_mut(blocks * 2));
            let x = x[index * run * blocks * BLOCK..].chunks_exact(blocks * BLOCK);
            for ((((quants, scales), sums), halves), x) in rows.zip(x) {
                let mut out = RowsMut {
                    quants: &mut quants[..blocks],
                    scales,
                    sums,
                    halves,
                };
                simd::quantize(isa, x, &mut out);
            }
        });
        self.start_from(kinds);
    }

    /// Becomes a copy of `rows` of `from`, in this order.
    pub(crate) fn gather(&mut self, pool: &Pool, from: &Self, rows: &[u32]) {
        (self.rows, self.blocks) = (rows.len(), from.blocks);
        self.make_room();
        let copy = |pool: &Pool, to: &mut [Quants], from: &[Quants], width: usize| {
            pool.for_rows(
                to,
                width,
                MIN_VALUES.div_ceil(width * BLOCK),
                &|first, to| {
                    for (to, &row) in to.chunks_exact_mut(width).zip(&rows[first..]) {
                        to.copy_from_slice(&from[row as usize * width..][..width]);
                    }
                },
            );
        };
        let pitch = self.pitch();
        copy(
            pool,
            &mut self.quants[..rows.len() * pitch],
            &from.quants,
            pitch,
        );
        gather_rows(&mut self.scales, &from.scales, rows, from.blocks);
        gather_rows(&mut self.sums, &from.sums, rows, from.blocks);
        self.starts.resize_with(from.starts.len(), Starts::default);
        for (to, from) in self.starts.iter_mut().zip(&from.starts) {
            (to.offset, to.span) = (from.offset, from.span);
            let spans = self.blocks * BLOCK / from.span;
            to.values.clear();
            to.values.resize(padded(rows.len()) * spans, 0);
            gather_rows(&mut to.values, &from.values, rows, spans);
        }
    }

    /// Whole tiles can be read from any row on; what the rows past the last hold does not matter.
    fn make_room(&mut self) {
        let (padded, pitch) = (padded(self.rows), self.pitch());
        sized(&mut self.quants, padded * pitch);
        sized(&mut self.scales, padded * self.blocks);
        sized(&mut self.sums, padded * self.blocks);
    }

    fn start_from(&mut self, kinds: impl Iterator<Item = Kind>) {
        let mut used = 0;
        self.half_sums.clear();
        for kind in kinds {
            if kind.scales.has_min() && kind.scales.spans() == 2 && self.half_sums.is_empty() {
                self.scale_halves();
            }
            let (offset, span) = (kind.offset, kind.span());
            if self.starts[..used]
                .iter()
                .any(|starts| starts.offset == offset && starts.span == span)
            {
                continue;
            }
            if self.starts.len() == used {
                self.starts.push(Starts::default());
            }
            let starts = &mut self.starts[used];
            (starts.offset, starts.span) = (offset, span);
            starts.values.clear();
            let padding = (padded(self.rows) - self.rows) * self.blocks * BLOCK / span;
            let factor = -i32::from(offset);
            let halves = &self.halves[..self.rows * self.blocks * 2];
            if span == BLOCK {
                starts.values.extend(
                    halves
                        .chunks_exact(2)
                        .map(|pair| factor * (pair[0] + pair[1])),
                );
            } else {
                starts
                    .values
                    .extend(halves.iter().map(|half| factor * half));
            }
            starts.values.extend(std::iter::repeat_n(0, padding));
            used += 1;
        }
        self.starts.truncate(used);
    }

    fn scale_halves(&mut self) {
        let scales = &self.scales[..self.rows * self.blocks];
        let pairs = self.halves.as_chunks::<2>().0.iter().zip(scales);
        let sums = pairs.flat_map(|(pair, scale)| pair.map(|half| scale * half as f32));
        self.half_sums.extend(sums);
        let len = padded(self.rows) * self.blocks * 2;
        self.half_sums.resize(len, 0.0);
    }

    /// All rows.
    pub(crate) fn all(&self) -> Activations<'_> {
        self.part(0..self.rows)
    }

    /// Some neighbouring rows.
    pub(crate) fn part(&self, rows: Range<usize>) -> Activations<'_> {
        assert!(rows.start <= rows.end && rows.end <= self.rows);
        Activations {
            buffer: self,
            first: rows.start,
            rows: rows.len(),
        }
    }
}

/// Neighbouring rows of an [`ActivationBuffer`]; row numbers count from the first of them.
#[derive(Clone, Copy)]
pub(crate) struct Activations<'a> {
    buffer: &'a ActivationBuffer,
    first: usize,
    rows: usize,
}

impl<'a> Activations<'a> {
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Blocks of a row.
    pub(crate) fn blocks(&self) -> usize {
        self.buffer.blocks
    }

    /// Blocks from one row to the next.
    pub(crate) fn pitch(&self) -> usize {
        self.buffer.pitch()
    }

    /// Blocks of row `row` and of those after it; [`Self::pitch`] apart.
    pub(crate) fn quants(&self, row: usize) -> &'a [Quants] {
        &self.buffer.quants[(self.first + row) * self.pitch()..]
    }

    /// Scales of row `row` and of those after it.
    pub(crate) fn scales(&self, row: usize) -> &'a [f32] {
        &self.buffer.scales[(self.first + row) * self.blocks()..]
    }

    /// Scaled sums of each span, for row `row` and those after it; for kinds with a minimum.
    pub(crate) fn sums(&self, kind: Kind, row: usize) -> &'a [f32] {
        let spans = kind.scales.spans();
        let sums = match spans {
            1 => &self.buffer.sums,
            _ => &self.buffer.half_sums,
        };
        &sums[(self.first + row) * self.blocks() * spans..]
    }

    /// Where the integer sums of each span begin, for row `row` and those after it.
    pub(crate) fn starts(&self, kind: Kind, row: usize) -> &'a [i32] {
        let starts = self
            .buffer
            .starts
            .iter()
            .find(|starts| starts.offset == kind.offset && starts.span == kind.span());
        let starts = starts.expect("the kind was named when the activations were quantised");
        &starts.values[(self.first + row) * self.blocks() * BLOCK / starts.span..]
    }
}

/// Rows that must exist so that a whole tile does from every one of `rows` rows on.
fn padded(rows: usize) -> usize {
    rows + TILE_ROWS - 1
}

/// Fewer values than this are not worth a second thread.
const MIN_VALUES: usize = 16 * 1024;

/// The portable quantiser of one row.
pub(crate) fn quantize_row(x: &[f32], out: &mut RowsMut<'_>) {
    for (block, x) in x.as_chunks::<BLOCK>().0.iter().enumerate() {
        // Magnitudes compare as their bits do, and a NaN is above all numbers: it ends up in the scale.
        let amax = f32::from_bits(
            x.iter()
                .map(|x| x.to_bits() & 0x7fff_ffff)
                .max()
                .unwrap_or(0),
        );
        let (scale, inverse) = scale_of(amax);
        let quants = x.map(|x| (x * inverse).round_ties_even() as i8);
        out.quants[block] = Quants(quants);
        let (first, last) = quants.split_at(BLOCK / 2);
        let sum = |half: &[i8]| half.iter().map(|&q| i32::from(q)).sum::<i32>();
        let halves = [sum(first), sum(last)];
        out.halves[2 * block..][..2].copy_from_slice(&halves);
        out.scales[block] = scale;
        out.sums[block] = scale * (halves[0] + halves[1]) as f32;
    }
}

/// Scale and factor of a block whose largest magnitude is `amax`. Below 1e-30 the factor could overflow: such a block
/// counts as zero.
pub(crate) fn scale_of(amax: f32) -> (f32, f32) {
    if amax < 1e-30 {
        (0.0, 0.0)
    } else {
        (amax / 127.0, 127.0 / amax)
    }
}

/// `to[i] = from[rows[i]]`, rows of `width` values.
fn gather_rows<T: Copy>(to: &mut [T], from: &[T], rows: &[u32], width: usize) {
    for (to, &row) in to.chunks_exact_mut(width).zip(rows) {
        to.copy_from_slice(&from[row as usize * width..][..width]);
    }
}

#[cfg(test)]
impl ActivationBuffer {
    /// Everything a kernel can see: values, then the bits of scales and sums, then the starts.
    pub(crate) fn contents(&self) -> (Vec<i8>, Vec<u32>, Vec<i32>) {
        let rows = self.quants.chunks(self.pitch()).take(self.rows);
        let quants = rows
            .flat_map(|row| &row[..self.blocks])
            .flat_map(|block| block.0)
            .collect();
        let count = self.rows * self.blocks;
        let floats = self.scales[..count]
            .iter()
            .chain(&self.sums[..count])
            .map(|value| value.to_bits())
            .collect();
        (
            quants,
            floats,
            self.starts
                .iter()
                .flat_map(|starts| &starts.values)
                .copied()
                .collect(),
        )
    }
}
