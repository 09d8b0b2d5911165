//! Weights that stay in the bytes of the file: the formats without a packed kernel.
//!
//! Sixteen rows at a time are dequantised by the format's reference arithmetic into a panel of F32, which the dense kernel
//! then multiplies. So every format computes, in its own size of memory, with the dense kernel's order of accumulation;
//! what bounds it is the reference arithmetic, once for every product of a strip, however many rows share it.

use super::dense::{DenseGroup, Floats};
use crate::cpu::pool::STRIP;
use andante_gguf::{Format, Tensor, quant};

/// A matrix as it lies in the file.
pub(crate) struct Stored {
    format: Format,
    cols: usize,
    bytes: Vec<u8>,
}

/// Sixteen rows as F32, and one before it is taken apart into lanes.
#[derive(Default)]
pub(crate) struct StoredPanel {
    lanes: Vec<Floats>,
    row: Vec<f32>,
}

impl Stored {
    /// Copies the tensor's blocks.
    pub(crate) fn load(tensor: &Tensor<'_>) -> Self {
        Self {
            format: tensor.format,
            cols: tensor.cols(),
            bytes: tensor.data.to_vec(),
        }
    }

    /// Writes row `index` as F32 into `out`.
    pub(crate) fn dequantize_row(&self, index: usize, out: &mut [f32]) {
        let row_bytes = self.format.row_bytes(self.cols);
        let bytes = &self.bytes[index * row_bytes..][..row_bytes];
        quant::dequantize(self.format, bytes, out);
    }

    /// The rows `16 index..16 index + 16` in `panel`; lanes past the last row are zero.
    pub(crate) fn group<'a>(&self, index: usize, panel: &'a mut StoredPanel) -> DenseGroup<'a> {
        let rows = self.bytes.len() / self.format.row_bytes(self.cols);
        let StoredPanel { lanes, row } = panel;
        lanes.clear();
        lanes.resize(self.cols, Floats([0.0; STRIP]));
        row.resize(self.cols, 0.0);
        for (lane, index) in (index * STRIP..rows).take(STRIP).enumerate() {
            self.dequantize_row(index, row);
            for (entry, &value) in lanes.iter_mut().zip(&*row) {
                entry.0[lane] = value;
            }
        }
        DenseGroup::F32(lanes)
    }
}
