//! Memory that lasts from step to step: records of values, and choices.

use crate::cpu::kv::KvType;
use crate::cpu::memory::Pages;
use crate::deepseek4::{Precision, Region};
use crate::{BLOCK_TOKENS, Batch, BatchSequence, ComputeError};
use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// How values are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    F32,
    F16,
}

impl Kept {
    /// Half precision stands in for all types of fewer bits than single precision.
    pub(super) fn of(precision: Precision, kv_type: KvType) -> Self {
        match (precision, kv_type) {
            (Precision::Exact, _) | (_, KvType::F32) => Self::F32,
            (Precision::Kv, KvType::F16 | KvType::BF16 | KvType::Q8_0) => Self::F16,
        }
    }

    pub(super) fn value_bytes(self) -> usize {
        match self {
            Self::F32 => size_of::<f32>(),
            Self::F16 => size_of::<f16>(),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
        }
    }
}

/// Values `[records, len]`.
pub struct CpuRecords {
    data: Data,
    len: usize,
}

enum Data {
    F32(Pages<f32>),
    F16(Pages<u16>),
}

impl CpuRecords {
    pub(super) fn new(kept: Kept, count: usize, len: usize) -> Result<Self, ComputeError> {
        let what = "what sequences leave behind";
        let data = match kept {
            Kept::F32 => Data::F32(pages(count, len, what)?),
            Kept::F16 => Data::F16(pages(count, len, what)?),
        };
        Ok(Self { data, len })
    }

    /// Values of a record.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self, index: u32) -> &[u8] {
        let record = self.record(index);
        match &self.data {
            Data::F32(data) => data[record].as_bytes(),
            Data::F16(data) => data[record].as_bytes(),
        }
    }

    pub(super) fn bytes_mut(&mut self, index: u32) -> &mut [u8] {
        let record = self.record(index);
        match &mut self.data {
            Data::F32(data) => data[record].as_mut_bytes(),
            Data::F16(data) => data[record].as_mut_bytes(),
        }
    }

    pub(super) fn copy(&mut self, from: u32, to: u32) {
        let (from, to) = (self.record(from), self.record(to));
        match &mut self.data {
            Data::F32(data) => data.copy_within(from, to.start),
            Data::F16(data) => data.copy_within(from, to.start),
        }
    }

    /// A row of an exact record.
    pub(super) fn row(&self, record: u32, region: Region, row: usize) -> &[f32] {
        let values = self.values(record, region, row);
        match &self.data {
            Data::F32(data) => &data[values],
            Data::F16(_) => panic!("{NOT_EXACT}"),
        }
    }

    /// A row of an exact record.
    pub(super) fn row_mut(&mut self, record: u32, region: Region, row: usize) -> &mut [f32] {
        let values = self.values(record, region, row);
        match &mut self.data {
            Data::F32(data) => &mut data[values],
            Data::F16(_) => panic!("{NOT_EXACT}"),
        }
    }

    /// Copies a row into `out`.
    pub(super) fn read(&self, (record, region, row): (u32, Region, usize), out: &mut [f32]) {
        let values = self.values(record, region, row);
        match &self.data {
            Data::F32(data) => out.copy_from_slice(&data[values]),
            Data::F16(data) => data[values]
                .reinterpret_cast::<f16>()
                .convert_to_f32_slice(out),
        }
    }

    /// Makes a row what `from` is, to the nearest of what is kept.
    pub(super) fn write(&mut self, (record, region, row): (u32, Region, usize), from: &[f32]) {
        let values = self.values(record, region, row);
        match &mut self.data {
            Data::F32(data) => data[values].copy_from_slice(from),
            Data::F16(data) => data[values]
                .reinterpret_cast_mut::<f16>()
                .convert_from_f32_slice(from),
        }
    }

    fn record(&self, index: u32) -> Range<usize> {
        let start = index as usize * self.len;
        start..start + self.len
    }

    fn values(&self, record: u32, region: Region, row: usize) -> Range<usize> {
        assert!(row < region.rows);
        let start = record as usize * self.len + region.start + row * region.width;
        start..start + region.width
    }
}

const NOT_EXACT: &str = "only exact records are used in place";

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
