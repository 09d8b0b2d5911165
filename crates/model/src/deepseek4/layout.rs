//! Where in a block's record and in a running state each layer's rows lie.

use andante_compute::{BLOCK_TOKENS, Region};

use super::spec::Spec;

/// The records of a model.
pub(super) struct Layout {
    pub(super) layers: Vec<LayerLayout>,
    /// Values of a block's record.
    pub(super) block_len: usize,
    /// Values of a running state.
    pub(super) state_len: usize,
}

/// One layer's part of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct LayerLayout {
    /// In the state: the keys of the window.
    pub(super) ring: Region,
    pub(super) compressor: Option<CompressorLayout>,
    pub(super) indexer: Option<CompressorLayout>,
}

/// A compressor's part of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct CompressorLayout {
    /// In the block: compressed rows.
    pub(super) rows: Region,
    /// In the state: what the next rows are made of.
    pub(super) tokens: Region,
}

impl Layout {
    pub(super) fn new(spec: &Spec) -> Self {
        let (mut block_len, mut state_len) = (0, 0);
        let region = |len: &mut usize, rows, width| {
            let start = *len;
            *len += rows * width;
            Region { start, rows, width }
        };
        let layers = spec.layers.iter().map(|layer| {
            let ring = region(&mut state_len, spec.window, spec.head_dim);
            let mut compressor = |ratio: usize, width: usize| {
                let series = layer.series();
                CompressorLayout {
                    rows: region(&mut block_len, (BLOCK_TOKENS / ratio).max(1), width),
                    tokens: region(&mut state_len, series * ratio, 2 * series * width),
                }
            };
            LayerLayout {
                ring,
                compressor: layer.ratio.map(|ratio| compressor(ratio, spec.head_dim)),
                indexer: layer
                    .ratio
                    .filter(|_| layer.indexed())
                    .map(|ratio| compressor(ratio, spec.index.width)),
            }
        });
        let layers = layers.collect();
        Self {
            layers,
            block_len,
            state_len,
        }
    }
}
