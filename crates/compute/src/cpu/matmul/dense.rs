//! Dense weights laid out so that one vector lane is one output row.
//!
//! Sixteen output rows form a group; inside it the columns follow each other, sixteen numbers each; those of BF16 come in
//! pairs of columns, the two of a row side by side, which is what bfloat16 tiles want.
//! Products are accumulated column by column, each in one fused step, in parts of [`BLOCK`] columns that start from
//! zero and are added to the total in order: one fixed order, with less error than a single chain. With bfloat16 tiles,
//! activations enter in two parts ([`super::split`]), and even and odd columns of a part are chains of their own.
//!
//! **What bounds it.** One row: reading the weights. Many rows: one fused step for each lane and column, 8 multiply-adds an
//! instruction with AVX2 and 16 with AVX-512, two instructions a cycle; `examples/matmul.rs` measures it. BF16 in tiles has
//! its own bounds, which the kernel's module gives.

use super::packed::{BLOCK, LOAD_BYTES, Lanes};
use crate::ComputeError;
use crate::cpu::memory::{Arena, Pages};
use crate::cpu::pool::{Pool, STRIP, Strip};
use andante_gguf::{Format, Tensor, quant};
use half::{bf16, f16};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// One f32 for each of sixteen rows.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(64))]
pub(crate) struct Floats(pub(crate) [f32; STRIP]);

/// Two neighbouring columns of sixteen rows, bf16.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
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

/// How a dense matrix is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DenseKind {
    F32,
    F16,
    Bf16,
}

impl DenseKind {
    /// That of a format: F16 and BF16 stay what they are, but BF16 has to come in whole blocks of columns; all others become
    /// F32.
    pub(super) fn of(format: Format, cols: usize) -> Self {
        match format {
            Format::F16 => Self::F16,
            Format::BF16 if cols.is_multiple_of(BLOCK) => Self::Bf16,
            _ => Self::F32,
        }
    }
}

impl Dense {
    /// Lays out a tensor, all threads together.
    ///
    /// # Errors
    /// [`ComputeError::OutOfMemory`].
    pub(super) fn load(
        (pool, arena): (&Pool, &mut Arena),
        tensor: &Tensor<'_>,
        kind: DenseKind,
    ) -> Result<Self, ComputeError> {
        let cols = tensor.cols();
        let values = match kind {
            DenseKind::F16 => Values::F16(load_groups((pool, arena), tensor, cols, &lay_lanes)?),
            DenseKind::Bf16 => {
                Values::Bf16(load_groups((pool, arena), tensor, cols / 2, &lay_pairs)?)
            }
            DenseKind::F32 => Values::F32(load_groups(
                (pool, arena),
                tensor,
                cols,
                &|bytes, group| {
                    lay_floats(tensor.format, bytes, &mut vec![0.0; cols], group);
                },
            )?),
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

/// Makes the groups of a tensor, of `len` entries each, all threads together; `lay` gets the bytes of up to sixteen rows.
fn load_groups<T: FromBytes + IntoBytes + Immutable + Send>(
    (pool, arena): (&Pool, &mut Arena),
    tensor: &Tensor<'_>,
    len: usize,
    lay: &(dyn Fn(&[u8], &mut [T]) + Sync),
) -> Result<Pages<T>, ComputeError> {
    let rows = tensor.rows();
    let mut groups = arena.pages(rows.div_ceil(STRIP) * len)?;
    let strip_bytes = STRIP * tensor.row(0).len();
    let part = (LOAD_BYTES / strip_bytes).max(1);
    for (first, groups) in (0..).step_by(part).zip(groups.chunks_mut(part * len)) {
        pool.for_rows(groups, len, 1, &|next, groups| {
            let bytes = tensor.data[(first + next) * strip_bytes..].chunks(strip_bytes);
            for (bytes, group) in bytes.zip(groups.chunks_exact_mut(len)) {
                lay(bytes, group);
            }
        });
        tensor.release(first * STRIP..rows.min((first + part) * STRIP));
    }
    Ok(groups)
}

/// Rows of F16, `bytes`, as a group.
pub(super) fn lay_lanes(bytes: &[u8], group: &mut [Lanes]) {
    for (lane, row) in bytes.chunks_exact(2 * group.len()).enumerate() {
        for (entry, word) in group.iter_mut().zip(words(row)) {
            entry.0[lane] = word;
        }
    }
}

/// Rows of BF16, `bytes`, as a group.
pub(super) fn lay_pairs(bytes: &[u8], group: &mut [Pairs]) {
    for (lane, row) in bytes.chunks_exact(4 * group.len()).enumerate() {
        for (column, word) in words(row).enumerate() {
            group[column / 2].0[lane][column % 2] = word;
        }
    }
}

/// Rows of any format, `bytes`, as a group of F32. `row` is memory for a row.
pub(super) fn lay_floats(format: Format, bytes: &[u8], row: &mut [f32], group: &mut [Floats]) {
    for (lane, bytes) in bytes.chunks_exact(format.row_bytes(row.len())).enumerate() {
        quant::dequantize(format, bytes, row);
        for (entry, &value) in group.iter_mut().zip(&*row) {
            entry.0[lane] = value;
        }
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u16> {
    let words = bytes.as_chunks::<2>().0;
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
    match group {
        DenseGroup::F32(values) => rows(cols, x, out, |column| values[column].0),
        DenseGroup::F16(values) => rows(cols, x, out, |column| {
            values[column].0.map(|bits| f16::from_bits(bits).to_f32())
        }),
        DenseGroup::Bf16(values) => rows(cols, x, out, |column| {
            values[column / 2]
                .0
                .map(|pair| bf16::from_bits(pair[column % 2]).to_f32())
        }),
    }
}

/// `weights` gives a column of the group.
fn rows(cols: usize, x: &[f32], out: &mut Strip<'_>, weights: impl Fn(usize) -> [f32; STRIP]) {
    for (row, x) in x.chunks_exact(cols).enumerate() {
        let mut total = [0.0_f32; STRIP];
        for (part, x) in x.chunks(BLOCK).enumerate() {
            let mut sum = [0.0_f32; STRIP];
            for (column, &x) in x.iter().enumerate() {
                for (sum, weight) in sum.iter_mut().zip(weights(part * BLOCK + column)) {
                    *sum = weight.mul_add(x, *sum);
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
