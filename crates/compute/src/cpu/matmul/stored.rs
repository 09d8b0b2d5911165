//! Weights that stay in the bytes of the file: the formats without a kernel, and all of a file that is larger than memory.
//!
//! Sixteen rows at a time are laid out as [`super::packed`] and [`super::dense`] have them, and then multiplied by the same
//! kernels, so that the results have the same bits. What has no kernel becomes F32 by the format's reference arithmetic. So
//! every format computes, in its own size of memory; what bounds it is the laying out, once for every product of a strip,
//! however many rows share it, or reading the file.

use super::dense::{DenseGroup, DenseKind, Floats, Pairs, lay_floats, lay_lanes, lay_pairs};
use super::packed::{BLOCK, Group, Kind, Lanes, Line, lay_group};
use crate::cpu::memory::sized;
use crate::cpu::pool::STRIP;
use andante_gguf::{Format, Kept, Tensor, quant};

/// A matrix as it lies in the file.
pub(crate) struct Stored {
    format: Format,
    cols: usize,
    row_bytes: usize,
    bytes: Kept,
    form: StoredForm,
}

/// What a strip is laid out as.
#[derive(Clone, Copy)]
enum StoredForm {
    Packed(Kind),
    Dense(DenseKind),
}

/// Sixteen rows laid out.
pub(crate) enum StoredGroup<'a> {
    Packed(Group<'a>),
    Dense(DenseGroup<'a>),
}

/// Memory for sixteen rows in any form.
#[derive(Default)]
pub(crate) struct StoredPanel {
    lines: Vec<Line>,
    lanes: Vec<Lanes>,
    pairs: Vec<Pairs>,
    floats: Vec<Floats>,
    /// One row before it is taken apart into lanes.
    row: Vec<f32>,
}

impl Stored {
    /// Keeps the tensor's bytes where they are.
    pub(crate) fn load(tensor: &Tensor<'_>) -> Self {
        let form = Kind::of(tensor.format).map_or_else(
            || StoredForm::Dense(DenseKind::of(tensor.format, tensor.cols())),
            StoredForm::Packed,
        );
        Self {
            format: tensor.format,
            cols: tensor.cols(),
            row_bytes: tensor.row(0).len(),
            bytes: tensor.keep(),
            form,
        }
    }

    /// How its strips are packed; `None` of dense ones.
    pub(crate) fn kind(&self) -> Option<Kind> {
        match self.form {
            StoredForm::Packed(kind) => Some(kind),
            StoredForm::Dense(_) => None,
        }
    }

    /// Whether its strips are pairs of columns.
    pub(crate) fn has_pairs(&self) -> bool {
        matches!(self.form, StoredForm::Dense(DenseKind::Bf16))
    }

    /// Writes row `index` as F32 into `out`.
    pub(crate) fn dequantize_row(&self, index: usize, out: &mut [f32]) {
        let bytes = &self.bytes[index * self.row_bytes..][..self.row_bytes];
        quant::dequantize(self.format, bytes, out);
    }

    /// The rows `16 index..16 index + 16` in `panel`; lanes past the last row are anything.
    pub(crate) fn group<'a>(&self, index: usize, panel: &'a mut StoredPanel) -> StoredGroup<'a> {
        let bytes = &self.bytes[index * STRIP * self.row_bytes..];
        let bytes = &bytes[..bytes.len().min(STRIP * self.row_bytes)];
        match self.form {
            StoredForm::Packed(kind) => {
                let blocks = self.cols / BLOCK;
                let quants = sized(&mut panel.lines, blocks * kind.bits);
                let scales = sized(&mut panel.lanes, kind.scales.lanes(blocks));
                lay_group(self.format, (bytes, self.row_bytes), quants, scales);
                StoredGroup::Packed(Group {
                    kind,
                    blocks,
                    quants,
                    scales,
                })
            }
            StoredForm::Dense(kind) => StoredGroup::Dense(match kind {
                DenseKind::F16 => {
                    let group = sized(&mut panel.lanes, self.cols);
                    lay_lanes(bytes, group);
                    DenseGroup::F16(group)
                }
                DenseKind::Bf16 => {
                    let group = sized(&mut panel.pairs, self.cols / 2);
                    lay_pairs(bytes, group);
                    DenseGroup::Bf16(group)
                }
                DenseKind::F32 => {
                    let group = sized(&mut panel.floats, self.cols);
                    let row = sized(&mut panel.row, self.cols);
                    lay_floats(self.format, bytes, row, group);
                    DenseGroup::F32(group)
                }
            }),
        }
    }
}
