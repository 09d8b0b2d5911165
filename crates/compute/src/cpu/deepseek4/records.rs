//! Memory that lasts from step to step: records of values, and choices.

use super::rounding;
use crate::cpu::memory::Pages;
use crate::deepseek4::{Kept, Region};
use crate::{Batch, BatchSequence, ComputeError};
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes `[records, len]`.
pub struct CpuRecords {
    data: Pages<u8>,
    len: usize,
}

impl CpuRecords {
    pub(super) fn new(count: usize, len: usize) -> Result<Self, ComputeError> {
        assert!(len.is_multiple_of(ALIGN), "records are whole words");
        let data = pages(count, len, "what sequences leave behind")?;
        Ok(Self { data, len })
    }

    /// Bytes of a record.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self, index: u32) -> &[u8] {
        &self.data[self.record(index)]
    }

    pub(super) fn bytes_mut(&mut self, index: u32) -> &mut [u8] {
        let record = self.record(index);
        &mut self.data[record]
    }

    pub(super) fn copy(&mut self, from: u32, to: u32) {
        let (from, to) = (self.record(from), self.record(to));
        self.data.copy_within(from, to.start);
    }

    /// A row that is kept as it is.
    pub(super) fn row(&self, record: u32, region: Region, row: usize) -> &[f32] {
        assert!(region.kept == Kept::F32);
        let bytes = self.row_bytes((record, region, row));
        <[f32]>::ref_from_bytes(&self.data[bytes]).expect(ALIGNED)
    }

    /// A row that is kept as it is.
    pub(super) fn row_mut(&mut self, record: u32, region: Region, row: usize) -> &mut [f32] {
        assert!(region.kept == Kept::F32);
        let bytes = self.row_bytes((record, region, row));
        <[f32]>::mut_from_bytes(&mut self.data[bytes]).expect(ALIGNED)
    }

    /// Reads a row into `out`.
    pub(super) fn read(&self, at: (u32, Region, usize), out: &mut [f32]) {
        rounding::read(at.1.kept, &self.data[self.row_bytes(at)], out);
    }

    /// Makes a row what is kept of `from`.
    pub(super) fn write(&mut self, at: (u32, Region, usize), from: &[f32]) {
        let bytes = self.row_bytes(at);
        rounding::write(at.1.kept, from, &mut self.data[bytes]);
    }

    fn record(&self, index: u32) -> Range<usize> {
        let start = index as usize * self.len;
        start..start + self.len
    }

    /// Where a row lies.
    fn row_bytes(&self, (record, region, row): (u32, Region, usize)) -> Range<usize> {
        assert!(row < region.rows && region.start.is_multiple_of(ALIGN));
        let len = region.kept.row_bytes(region.width);
        let start = record as usize * self.len + region.start + row * len;
        start..start + len
    }
}

/// Where values begin.
const ALIGN: usize = align_of::<f32>();

const ALIGNED: &str = "records, regions and rows of f32 are whole words";

/// `u32` `[max_rows, width]`.
pub struct CpuChoices {
    data: Pages<u32>,
    width: usize,
}

impl CpuChoices {
    pub(super) fn new(max_rows: usize, width: usize) -> Result<Self, ComputeError> {
        let data = pages(max_rows, width, "a buffer of choices")?;
        Ok(Self { data, width })
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn row(&self, index: usize) -> &[u32] {
        &self.data[index * self.width..][..self.width]
    }

    pub(super) fn rows(&self, n: usize) -> &[u32] {
        &self.data[..n * self.width]
    }

    pub(super) fn rows_mut(&mut self, n: usize) -> &mut [u32] {
        &mut self.data[..n * self.width]
    }
}

fn pages<T: FromBytes + IntoBytes + Immutable>(
    rows: usize,
    width: usize,
    what: &'static str,
) -> Result<Pages<T>, ComputeError> {
    let len = rows.checked_mul(width).ok_or(ComputeError::OutOfMemory {
        what,
        bytes: u64::MAX,
    })?;
    Pages::new(len, what)
}

/// Where compressed row `index` lies: its block's place in the table, and the row in the block's region of so many rows.
pub(super) fn place(index: usize, rows: usize) -> (usize, usize) {
    (index / rows, index % rows)
}

/// The sequences of a batch with what belongs to them.
pub(super) struct Sequence<'a> {
    /// Its number in the batch.
    pub(super) index: usize,
    /// Its first row in the batch, and how many it has.
    pub(super) first_row: usize,
    pub(super) rows: usize,
    /// The position of the first row.
    pub(super) start: usize,
    /// Its block table.
    pub(super) table: &'a [u32],
    /// Its running state's record.
    pub(super) state: u32,
}

impl<'a> Sequence<'a> {
    pub(super) fn of(batch: &'a Batch, index: usize) -> Self {
        let BatchSequence { rows, blocks } = &batch.sequences[index];
        Self {
            index,
            first_row: rows.start as usize,
            rows: rows.len(),
            start: batch.positions[rows.start as usize] as usize,
            table: &batch.block_tables[blocks.start as usize..blocks.end as usize],
            state: batch.states[index],
        }
    }

    pub(super) fn all(batch: &'a Batch) -> impl Iterator<Item = Self> {
        (0..batch.sequences.len()).map(|index| Self::of(batch, index))
    }

    /// The sequence of a row.
    pub(super) fn of_row(batch: &'a Batch, row: usize) -> Self {
        let after = |sequence: &BatchSequence| sequence.rows.end as usize <= row;
        Self::of(batch, batch.sequences.partition_point(after))
    }
}
