//! Products of activations with the weight matrices of a model file.
//!
//! Weights keep their file's width (4-bit stays 4-bit) but are laid out anew at load, sixteen output rows side by
//! side ([`packed`], [`dense`]). Quantised weights meet activations quantised to int8 ([`activations`]), once for all the
//! matrices of a call; dense weights meet F32 activations. Formats without a packed kernel stay as they are in the file and
//! are dequantised strip by strip on their way to the dense kernel ([`stored`]). Every output element is accumulated in one order that
//! depends on the weight's format alone ([`panel`] writes it down), so a row's result does not depend on the other rows,
//! on the number of threads, or on the instruction set.

mod activations;
mod decode;
mod dense;
mod packed;
mod panel;
mod stored;

pub(crate) use activations::{
    ActivationBuffer, Activations, Quants, RowsMut, TILE_ROWS, quantize_row, scale_of,
};
pub(crate) use dense::{DenseGroup, Floats, multiply as multiply_dense};
pub(crate) use packed::{BLOCK, Codes, Group, Kind, Lanes, Line, Piece, QUADS, SUPER, Scales};
pub(crate) use panel::{Panel, multiply as multiply_packed};

use crate::ComputeError;
use crate::cpu::isa::Isa;
use crate::cpu::pool::{Output, Pool, STRIP, Strip};
use crate::cpu::simd::matmul as simd;
use andante_gguf::Tensor;
use dense::Dense;
use packed::Packed;
use std::sync::{Mutex, PoisonError};
use stored::Stored;

/// A weight matrix ready to be multiplied: `[rows, cols]`, outputs by inputs.
pub(crate) struct Matrix {
    rows: usize,
    cols: usize,
    weights: Weights,
}

enum Weights {
    Packed(Packed),
    Dense(Dense),
    Stored(Stored),
}

impl Matrix {
    /// Lays out a tensor; with `reference`, as F32.
    ///
    /// # Errors
    /// [`ComputeError::WeightShape`] when a side is zero.
    pub(crate) fn load(
        pool: &Pool,
        tensor: &Tensor<'_>,
        reference: bool,
    ) -> Result<Self, ComputeError> {
        let (rows, cols) = (tensor.rows(), tensor.cols());
        if rows == 0 || cols == 0 {
            let (tensor, rows, cols) = (tensor.name.to_owned(), rows as u64, cols as u64);
            return Err(ComputeError::WeightShape { tensor, rows, cols });
        }
        let weights = match Kind::of(tensor.format).filter(|_| !reference) {
            None if reference || tensor.format.block_len() == 1 => {
                Weights::Dense(Dense::load(pool, tensor, reference)?)
            }
            None => Weights::Stored(Stored::load(tensor)),
            Some(kind) => Weights::Packed(Packed::load(pool, tensor, kind)?),
        };
        Ok(Self {
            rows,
            cols,
            weights,
        })
    }

    /// Number of outputs.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Number of inputs.
    pub(crate) fn cols(&self) -> usize {
        self.cols
    }

    /// Writes row `index` as F32 into `out`, which holds `cols` values.
    pub(crate) fn dequantize_row(&self, index: usize, out: &mut [f32]) {
        assert!(index < self.rows, "row {index} of {}", self.rows);
        assert_eq!(out.len(), self.cols, "a row's length");
        let lane = index % STRIP;
        match &self.weights {
            Weights::Dense(dense) => {
                let group = dense.group(index / STRIP);
                for (column, out) in out.iter_mut().enumerate() {
                    *out = group.value(lane, column);
                }
            }
            Weights::Stored(stored) => stored.dequantize_row(index, out),
            Weights::Packed(packed) => {
                let group = packed.group(index / STRIP);
                let Kind { offset, .. } = packed.kind();
                for (column, out) in out.iter_mut().enumerate() {
                    let (block, column) = (column / BLOCK, column % BLOCK);
                    let value = i32::from(group.value(block, lane, column)) - i32::from(offset);
                    *out = group.scale(block, lane, column) * value as f32
                        + group.min(block, lane, column);
                }
            }
        }
    }

    /// Fills `out` with the products of the rows `16 index..16 index + 16` and every row of `x`.
    pub(crate) fn multiply_group(
        &self,
        isa: Isa,
        x: Inputs<'_>,
        panel: &mut Panel,
        (index, out): (usize, &mut Strip<'_>),
    ) {
        match &self.weights {
            Weights::Packed(packed) => {
                let x = x.quants.expect("packed matrices need quantised rows");
                simd::packed(isa, &packed.group(index), &x, panel, out);
            }
            Weights::Dense(dense) => simd::dense(isa, dense.group(index), x.floats, out),
            Weights::Stored(stored) => {
                let group = stored.group(index, &mut panel.stored);
                simd::dense(isa, group, x.floats, out);
            }
        }
    }

    /// How it is packed; `None` when it is multiplied with `f32` activations.
    pub(crate) fn kind(&self) -> Option<Kind> {
        match &self.weights {
            Weights::Packed(packed) => Some(packed.kind()),
            Weights::Dense(_) | Weights::Stored(_) => None,
        }
    }
}

/// What groups are multiplied with: the same rows in the forms that matrices need.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    /// For packed matrices.
    pub(crate) quants: Option<Activations<'a>>,
    /// For all others: `[rows, cols]`.
    pub(crate) floats: &'a [f32],
}

/// Memory that products reuse.
#[derive(Default)]
pub(crate) struct Scratch {
    activations: ActivationBuffer,
    /// One a thread; a thread locks its own.
    panels: Vec<Mutex<Panel>>,
}

/// Fills every output, `[n, matrix.rows()]`, with the products of its matrix and the rows of `x`, `[n, cols]`.
pub(crate) fn matmul(
    pool: &Pool,
    isa: Isa,
    scratch: &mut Scratch,
    outs: &mut [(&Matrix, &mut [f32])],
    x: &[f32],
) {
    let Some(cols) = outs.first().map(|(matrix, _)| matrix.cols) else {
        return;
    };
    assert!(
        outs.iter().all(|(matrix, _)| matrix.cols == cols),
        "all matrices of a call have one width"
    );
    let n = x.len() / cols;
    if n == 0 {
        return;
    }
    let kinds: Vec<_> = outs
        .iter()
        .filter_map(|(matrix, _)| matrix.kind())
        .collect();
    if !kinds.is_empty() {
        scratch
            .activations
            .quantize((pool, isa), x, n, kinds.iter().copied());
    }
    if scratch.panels.len() < pool.threads() {
        scratch.panels.resize_with(pool.threads(), Mutex::default);
    }
    let Scratch {
        activations,
        panels,
    } = &*scratch;
    let matrices: Vec<_> = outs.iter().map(|(matrix, _)| *matrix).collect();
    let mut outputs: Vec<_> = outs
        .iter_mut()
        .map(|(matrix, out)| Output {
            data: out,
            width: matrix.rows,
        })
        .collect();
    let grain = MIN_PRODUCTS.div_ceil(n * cols * STRIP);
    let inputs = Inputs {
        quants: (!kinds.is_empty()).then(|| activations.all()),
        floats: x,
    };
    pool.for_strips(&mut outputs, n, grain, &|thread, index, mut strip| {
        let mut panel = panels[thread]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let group = strip.index();
        matrices[index].multiply_group(isa, inputs, &mut panel, (group, &mut strip));
    });
}

/// Products that a thread takes at a time: some microseconds of work, so that taking it costs nothing.
pub(crate) const MIN_PRODUCTS: usize = 32 * 1024;

#[cfg(test)]
mod tests;
