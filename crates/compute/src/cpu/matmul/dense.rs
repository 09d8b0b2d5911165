//! Dense weights laid out so that one vector lane is one output row.
//!
//! Sixteen output rows form a group; inside it the columns follow each other, sixteen numbers each; those of BF16 come in
//! pairs of columns, the two of a row side by side, which is what bfloat16 tiles want.
//! Products are accumulated column by column, each in one fused step, in parts of [`BLOCK`] columns that start from
//! zero and are added to the total in order: one fixed order, with less error than a single chain. With bfloat16 tiles,
//! activations enter in two parts ([`super::split`]), and even and odd columns of a part are chains of their own.
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

/// Two neighbouring columns of sixteen rows, bf16.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(64))]
pub(crate) struct Pairs(pub(crate) [[u16; 2]; STRIP]);

/// A dense matrix; rows are padded with zeros to whole groups.
pub(crate) struct Dense {
    cols: usize,
    values: Values,
}

enum Values {
    F32(Pages<Floats>),
    F16(Pages<Lanes>),
    Bf16(Pages<Pairs>),
}

/// Sixteen rows of a dense matrix, one entry a column or two.
#[derive(Clone, Copy)]
pub(crate) enum DenseGroup<'a> {
    F32(&'a [Floats]),
    F16(&'a [Lanes]),
    Bf16(&'a [Pairs]),
}

impl Dense {
    /// Lays out a tensor, all threads together; formats other than F16 and BF16 become F32, and so does BF16 that does not
    /// come in whole blocks of columns.
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
        let values = match tensor.format {
            Format::F16 if !reference => {
                let mut values = Pages::<Lanes>::new(groups * cols, WEIGHTS)?;
                pool.for_rows(&mut values, cols, 1, &|first, part| {
                    for (index, group) in (first..).zip(part.chunks_exact_mut(cols)) {
                        for lane in lanes_of(index) {
                            for (entry, word) in group.iter_mut().zip(words(tensor, index, lane)) {
                                entry.0[lane] = word;
                            }
                        }
                    }
                });
                Values::F16(values)
            }
            Format::BF16 if !reference && cols.is_multiple_of(BLOCK) => {
                let mut values = Pages::<Pairs>::new(groups * cols / 2, WEIGHTS)?;
                pool.for_rows(&mut values, cols / 2, 1, &|first, part| {
                    for (index, group) in (first..).zip(part.chunks_exact_mut(cols / 2)) {
                        for lane in lanes_of(index) {
                            for (column, word) in words(tensor, index, lane).enumerate() {
                                group[column / 2].0[lane][column % 2] = word;
                            }
                        }
                    }
                });
                Values::Bf16(values)
            }
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

    /// The groups from `index` on as pairs of columns, when they are stored so: `[groups, cols / 2]`.
    pub(crate) fn pairs(&self, index: usize) -> Option<&[Pairs]> {
        match &self.values {
            Values::Bf16(values) => Some(&values[index * self.cols / 2..]),
            Values::F32(_) | Values::F16(_) => None,
        }
    }

    /// The rows `16 index..16 index + 16`.
    pub(crate) fn group(&self, index: usize) -> DenseGroup<'_> {
        let range = index * self.cols..(index + 1) * self.cols;
        match &self.values {
            Values::F32(values) => DenseGroup::F32(&values[range]),
            Values::F16(values) => DenseGroup::F16(&values[range]),
            Values::Bf16(values) => DenseGroup::Bf16(&values[range.start / 2..range.end / 2]),
        }
    }
}

/// The 16-bit numbers of a row of a group.
fn words<'a>(tensor: &Tensor<'a>, group: usize, lane: usize) -> impl Iterator<Item = u16> + 'a {
    let words = tensor.row(group * STRIP + lane).as_chunks::<2>().0;
    words.iter().map(|&word| u16::from_le_bytes(word))
}

impl DenseGroup<'_> {
    /// The value of `lane` at `column`.
    pub(crate) fn value(&self, lane: usize, column: usize) -> f32 {
        match self {
            Self::F32(values) => values[column].0[lane],
            Self::F16(values) => f16::from_bits(values[column].0[lane]).to_f32(),
            Self::Bf16(values) => bf16::from_bits(values[column / 2].0[lane][column % 2]).to_f32(),
        }
    }

    fn cols(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
            Self::Bf16(values) => 2 * values.len(),
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
