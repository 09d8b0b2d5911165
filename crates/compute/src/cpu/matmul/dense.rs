//! Dense weights laid out so that one vector lane is one output row.
//!
//! Sixteen output rows form a group; inside it the columns follow each other, sixteen numbers each.
//! Products are accumulated column by column, each in one fused step, in parts of [`BLOCK`] columns that start from
//! zero and are added to the total in order: one fixed order, with less error than a single chain.
//!
//! **What bounds it.** One row: reading the weights. Many rows: one fused step for each lane and column, 8 multiply-adds an
//! instruction with AVX2 and 16 with AVX-512, two instructions a cycle; `examples/matmul.rs` measures it.

use super::packed::{BLOCK, Lanes};
use crate::ComputeError;
use crate::cpu::memory::{Pages, WEIGHTS};
use crate::cpu::pool::{Pool, STRIP, Strip};
use andante_gguf::{Format, Tensor};
use half::{bf16, f16};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// One f32 for each of sixteen rows.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(64))]
pub(crate) struct Floats(pub(crate) [f32; STRIP]);

/// A dense matrix; rows are padded with zeros to whole groups.
pub(crate) struct Dense {
    cols: usize,
    values: Values,
}

enum Values {
    F32(Pages<Floats>),
    F16(Pages<Lanes>),
    Bf16(Pages<Lanes>),
}

/// Sixteen rows of a dense matrix, one entry a column.
#[derive(Clone, Copy)]
pub(crate) enum DenseGroup<'a> {
    F32(&'a [Floats]),
    F16(&'a [Lanes]),
    Bf16(&'a [Lanes]),
}

impl Dense {
    /// Lays out a tensor, all threads together; formats other than F16 and BF16 become F32.
    ///
    /// # Errors
    /// [`ComputeError::OutOfMemory`].
    pub(crate) fn load(
        pool: &Pool,
        tensor: &Tensor<'_>,
        reference: bool,
    ) -> Result<Self, ComputeError> {
        let (rows, cols) = (tensor.rows(), tensor.cols());
        let groups = rows.div_ceil(STRIP);
        let lanes_of = |index: usize| 0..STRIP.min(rows - index * STRIP);
        let half = || {
            let mut lanes = Pages::<Lanes>::new(groups * cols, WEIGHTS)?;
            pool.for_rows(&mut lanes, cols, 1, &|first, part| {
                for (index, group) in (first..).zip(part.chunks_exact_mut(cols)) {
                    for lane in lanes_of(index) {
                        let (words, _) = tensor.row(index * STRIP + lane).as_chunks::<2>();
                        for (entry, &word) in group.iter_mut().zip(words) {
                            entry.0[lane] = u16::from_le_bytes(word);
                        }
                    }
                }
            });
            Ok(lanes)
        };
        let values = match tensor.format {
            Format::F16 if !reference => Values::F16(half()?),
            Format::BF16 if !reference => Values::Bf16(half()?),
            format => {
                let mut values = Pages::<Floats>::new(groups * cols, WEIGHTS)?;
                pool.for_rows(&mut values, cols, 1, &|first, part| {
                    let mut row = vec![0.0; cols];
                    for (index, group) in (first..).zip(part.chunks_exact_mut(cols)) {
                        for lane in lanes_of(index) {
                            let bytes = tensor.row(index * STRIP + lane);
                            andante_gguf::quant::dequantize(format, bytes, &mut row);
                            for (entry, &value) in group.iter_mut().zip(&row) {
                                entry.0[lane] = value;
                            }
                        }
                    }
                });
                Values::F32(values)
            }
        };
        Ok(Self { cols, values })
    }

    /// The rows `16 index..16 index + 16`.
    pub(crate) fn group(&self, index: usize) -> DenseGroup<'_> {
        let range = index * self.cols..(index + 1) * self.cols;
        match &self.values {
            Values::F32(values) => DenseGroup::F32(&values[range]),
            Values::F16(values) => DenseGroup::F16(&values[range]),
            Values::Bf16(values) => DenseGroup::Bf16(&values[range]),
        }
    }
}

impl DenseGroup<'_> {
    /// The value of `lane` at `column`.
    pub(crate) fn value(&self, lane: usize, column: usize) -> f32 {
        match self {
            Self::F32(values) => values[column].0[lane],
            Self::F16(values) => f16::from_bits(values[column].0[lane]).to_f32(),
            Self::Bf16(values) => bf16::from_bits(values[column].0[lane]).to_f32(),
        }
    }

    fn cols(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F16(values) | Self::Bf16(values) => values.len(),
        }
    }
}

/// The portable kernel: fills `out` with the products of the group and every row of `x`, `[rows, cols]`.
pub(crate) fn multiply(group: DenseGroup<'_>, x: &[f32], out: &mut Strip<'_>) {
    let cols = group.cols();
    for (row, x) in x.chunks_exact(cols).enumerate() {
        let mut total = [0.0_f32; STRIP];
        for (part, x) in x.chunks(BLOCK).enumerate() {
            let mut sum = [0.0_f32; STRIP];
            for (column, &x) in x.iter().enumerate() {
                for (lane, sum) in sum.iter_mut().enumerate() {
                    *sum = group.value(lane, part * BLOCK + column).mul_add(x, *sum);
                }
            }
            for (total, sum) in total.iter_mut().zip(sum) {
                *total += sum;
            }
        }
        let out = out.row(row);
        out.copy_from_slice(&total[..out.len()]);
    }
}
