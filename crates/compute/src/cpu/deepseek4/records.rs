//! Memory that lasts from step to step: records of values, and choices.

use crate::ComputeError;
use crate::cpu::memory::Pages;
use crate::deepseek4::Region;
use crate::{BLOCK_TOKENS, Batch, BatchSequence};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `f32` `[records, len]`.
pub struct CpuRecords {
    data: Pages<f32>,
    len: usize,
}

impl CpuRecords {
    pub(super) fn new(count: usize, len: usize) -> Result<Self, ComputeError> {
        let data = pages(count, len, "what sequences leave behind")?;
        Ok(Self { data, len })
    }

    /// Values of a record.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self, index: u32) -> &[u8] {
        self.data[index as usize * self.len..][..self.len].as_bytes()
    }

    pub(super) fn bytes_mut(&mut self, index: u32) -> &mut [u8] {
        self.data[index as usize * self.len..][..self.len].as_mut_bytes()
    }

    pub(super) fn copy(&mut self, from: u32, to: u32) {
        let (from, to) = (from as usize * self.len, to as usize * self.len);
        self.data.copy_within(from..from + self.len, to);
    }

    pub(super) fn row(&self, record: u32, region: Region, row: usize) -> &[f32] {
        assert!(row < region.rows);
        &self.data[record as usize * self.len + region.start + row * region.width..][..region.width]
    }

    pub(super) fn row_mut(&mut self, record: u32, region: Region, row: usize) -> &mut [f32] {
        assert!(row < region.rows);
        let start = record as usize * self.len + region.start + row * region.width;
        &mut self.data[start..][..region.width]
    }
}

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

/// Where compressed row `index` lies: its block's place in the table, and the row in the block's region.
pub(super) fn place(index: usize, ratio: usize) -> (usize, usize) {
    let last = (index + 1) * ratio - 1;
    (last / BLOCK_TOKENS, last % BLOCK_TOKENS / ratio)
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
