//! Products of activations with the weight matrices of a model file.
//!
//! Weights keep their file's width (4-bit stays 4-bit) but are laid out anew at load, sixteen output rows side by
//! side ([`packed`], [`dense`]). Quantised weights meet activations quantised to int8 ([`activations`]), once for all the
//! matrices of a call; dense weights meet F32 activations, or, in bfloat16 tiles, activations in two parts ([`split`]). Formats
//! without a packed kernel, and files larger than memory, stay as they are in the file and are laid out strip by strip on
//! their way to the kernels ([`stored`]). Every output element is accumulated in one order that depends on the weight's format alone ([`panel`] writes it down), so a row's result does not depend on the other rows,
//! on the number of threads, or on the instruction set; the last but for BF16 in tiles.

mod activations;
mod decode;
mod dense;
mod grids;
mod packed;
mod panel;
mod split;
mod stored;

#[cfg(target_arch = "x86_64")]
pub(crate) use activations::scale_of;
pub(crate) use activations::{
    ActivationBuffer, Activations, Quants, RowsMut, TILE_ROWS, quantize_row,
};
pub(crate) use dense::{DenseGroup, Floats, Pairs, multiply as multiply_dense};
pub(crate) use packed::{BLOCK, Codes, Group, Kind, Lanes, Line, Piece, QUADS, SUPER, Scales};
pub(crate) use panel::{Panel, multiply as multiply_packed};
pub(crate) use split::{SplitBlock, SplitBuffer, SplitRows};

use crate::ComputeError;
use crate::cpu::isa::Isa;
use crate::cpu::memory::Arena;
use crate::cpu::pool::{Output, Pool, STRIP, Strip, TOGETHER};
use crate::cpu::simd::matmul as simd;
use andante_gguf::Tensor;
use dense::{Dense, DenseKind};
use packed::Packed;
use smallvec::SmallVec;
use std::sync::{Mutex, PoisonError};
use stored::{Stored, StoredGroup};

/// Bytes that a tensor takes in memory where it is [laid out](WeightForm::LaidOut): about those of the file, but for formats
/// whose codes are indices of a grid, which are looked up.
#[must_use]
pub fn laid_out_bytes(tensor: &Tensor<'_>) -> u64 {
    let bytes = match Kind::of(tensor.format) {
        Some(kind) => Packed::bytes(tensor, kind),
        None => tensor.data.len(),
    };
    bytes as u64
}

/// A weight matrix ready to be multiplied: `[rows, cols]`, outputs by inputs.
pub(crate) struct Matrix {
    rows: usize,
    cols: usize,
    weights: Weights,
}

/// Where and how a backend keeps the matrices of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightForm {
    /// In memory, laid out for the kernels; formats without a kernel as they are in the file.
    LaidOut,
    /// Those of experts, of which a step reads only some, as [`Self::InFile`], the others as [`Self::LaidOut`].
    ExpertsInFile,
    /// In the file, laid out strip by strip whenever they are multiplied: for files that are larger than memory.
    InFile,
    /// As F32 in memory: slow, for comparing with other runtimes.
    Reference,
}

enum Weights {
    Packed(Packed),
    Dense(Dense),
    Stored(Stored),
}

impl Matrix {
    /// Takes over a tensor.
    ///
    /// # Errors
    /// [`ComputeError::WeightShape`] when a side is zero.
    pub(crate) fn load(
        memory: (&Pool, &mut Arena),
        tensor: &Tensor<'_>,
        weights: WeightForm,
    ) -> Result<Self, ComputeError> {
        let (rows, cols) = (tensor.rows(), tensor.cols());
        if rows == 0 || cols == 0 {
            let (tensor, rows, cols) = (tensor.name.to_owned(), rows as u64, cols as u64);
            return Err(ComputeError::WeightShape { tensor, rows, cols });
        }
        let is_dense = tensor.format.block_len() == 1;
        let weights = match (weights, Kind::of(tensor.format)) {
            (WeightForm::Reference, _) => {
                Weights::Dense(Dense::load(memory, tensor, DenseKind::F32)?)
            }
            (WeightForm::LaidOut, Some(kind)) => {
                Weights::Packed(Packed::load(memory, tensor, kind)?)
            }
            (WeightForm::LaidOut, None) if is_dense => {
                let kind = DenseKind::of(tensor.format, cols);
                Weights::Dense(Dense::load(memory, tensor, kind)?)
            }
            // What is kept in the file, and what has no kernel.
            _ => Weights::Stored(Stored::load(tensor)),
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

    /// Fills `out` with the products of the rows `16 index..` and every row of `x`. `out` has sixteen columns, or several
    /// times that where the matrix wants activations in [`Form::Split`].
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
            Weights::Dense(dense) => match dense.pairs(index).filter(|_| isa.has_tiles()) {
                Some(pairs) => {
                    let x = x.split.expect("tiles need split rows");
                    simd::split_dense(isa, pairs, &x, out);
                }
                None => simd::dense(isa, dense.group(index), x.floats, out),
            },
            Weights::Stored(stored) => {
                // The kernels want the rest of the panel.
                let mut strip = std::mem::take(&mut panel.stored);
                match stored.group(index, &mut strip) {
                    StoredGroup::Packed(group) => {
                        let x = x.quants.expect("packed matrices need quantised rows");
                        simd::packed(isa, &group, &x, panel, out);
                    }
                    StoredGroup::Dense(DenseGroup::Bf16(pairs)) if isa.has_tiles() => {
                        let x = x.split.expect("tiles need split rows");
                        simd::split_dense(isa, pairs, &x, out);
                    }
                    StoredGroup::Dense(group) => simd::dense(isa, group, x.floats, out),
                }
                panel.stored = strip;
            }
        }
    }

    /// What activations it is multiplied with.
    pub(crate) fn form(&self, isa: Isa) -> Form {
        match &self.weights {
            Weights::Packed(packed) => Form::Quants(packed.kind()),
            Weights::Dense(dense) if isa.has_tiles() && dense.pairs(0).is_some() => Form::Split,
            Weights::Stored(stored) if isa.has_tiles() && stored.has_pairs() => Form::Split,
            Weights::Stored(stored) => stored.kind().map_or(Form::Floats, Form::Quants),
            Weights::Dense(_) => Form::Floats,
        }
    }

    /// Groups that are multiplied together with `rows` rows: few enough for the second-level cache, and so that all
    /// threads get some.
    fn groups_together(&self, (pool, isa): (&Pool, Isa), rows: usize) -> usize {
        const CACHE_BYTES: usize = 1 << 20;
        if self.form(isa) != Form::Split || matches!(self.weights, Weights::Stored(_)) {
            return 1;
        }
        if rows <= TILE_ROWS {
            return 2;
        }
        let shared = self.rows / STRIP / (4 * pool.threads());
        let cached = CACHE_BYTES / (self.cols * STRIP * size_of::<u16>());
        shared.min(cached).max(1).next_multiple_of(2)
    }
}

/// Activations as a matrix needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Quantised to int8.
    Quants(Kind),
    /// F32.
    Floats,
    /// In two bfloat16 parts.
    Split,
}

impl Form {
    /// The kind of a matrix that needs quantised rows.
    pub(crate) fn kind(self) -> Option<Kind> {
        match self {
            Self::Quants(kind) => Some(kind),
            Self::Floats | Self::Split => None,
        }
    }
}

/// What groups are multiplied with: the same rows in the forms that matrices need.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) quants: Option<Activations<'a>>,
    /// `[rows, cols]`.
    pub(crate) floats: &'a [f32],
    pub(crate) split: Option<SplitRows<'a>>,
}

/// Memory that products reuse.
#[derive(Default)]
pub(crate) struct Scratch {
    activations: ActivationBuffer,
    split: SplitBuffer,
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
    let forms: SmallVec<[_; TOGETHER]> = outs.iter().map(|(matrix, _)| matrix.form(isa)).collect();
    let kinds = || forms.iter().filter_map(|form| form.kind());
    let (quants, split) = (kinds().next().is_some(), forms.contains(&Form::Split));
    if quants {
        scratch.activations.quantize((pool, isa), x, n, kinds());
    }
    if split {
        scratch.split.split((pool, isa), x, n);
    }
    if scratch.panels.len() < pool.threads() {
        scratch.panels.resize_with(pool.threads(), || {
            Mutex::new(Panel::of_thread(pool.threads()))
        });
    }
    let Scratch {
        activations,
        split: split_rows,
        panels,
    } = &*scratch;
    let matrices: SmallVec<[_; TOGETHER]> = outs.iter().map(|(matrix, _)| *matrix).collect();
    let mut outputs: SmallVec<[_; TOGETHER]> = outs
        .iter_mut()
        .map(|(matrix, out)| Output {
            data: out,
            width: matrix.rows,
            strips: matrix.groups_together((pool, isa), n),
        })
        .collect();
    let grain = MIN_PRODUCTS.div_ceil(n * cols * STRIP);
    let inputs = Inputs {
        quants: quants.then(|| activations.all()),
        floats: x,
        split: split.then(|| split_rows.part(0..n)),
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
