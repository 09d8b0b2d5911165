//! Where in a block's record and in a running state each layer's rows lie.

use andante_compute::{Kept, Region, Row};

use super::spec::Spec;
use crate::KvLayout;

/// The records of a model.
pub(super) struct Layout {
    pub(super) layers: Vec<LayerLayout>,
    /// How keys are kept, compressed or of the window.
    pub(super) keys: Kept,
    /// How the indexer's rows are kept.
    pub(super) index: Kept,
    /// Bytes of a block's record.
    pub(super) block_bytes: usize,
    /// Bytes of a running state.
    pub(super) state_bytes: usize,
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
    /// The records of rows that are kept as `kept` says, which knows what a row is and how wide.
    pub(super) fn new(spec: &Spec, kept: impl Fn(Row, usize) -> Kept) -> Self {
        let plain = spec.head_dim - spec.ropes[0].forward.rotary_dim();
        let (width, index_width) = (spec.head_dim, spec.index.width);
        let keys = kept(Row::Key { plain }, width);
        let index = kept(Row::Index, index_width);
        let (mut block_bytes, mut state_bytes) = (0, 0);
        let region = |bytes: &mut usize, rows, width, kept: Kept| {
            let start = *bytes;
            let rows = Region {
                start,
                rows,
                width,
                kept,
            };
            *bytes = rows.end().next_multiple_of(ALIGN);
            rows
        };
        let layers = spec.layers.iter().map(|layer| {
            let ring = region(&mut state_bytes, spec.window, width, keys);
            let mut compressor = |ratio: usize, width: usize, rows: Kept| {
                let series = layer.series();
                let token = 2 * series * width;
                let exact = kept(Row::State, token);
                CompressorLayout {
                    rows: region(&mut block_bytes, spec.block_tokens / ratio, width, rows),
                    tokens: region(&mut state_bytes, series * ratio, token, exact),
                }
            };
            LayerLayout {
                ring,
                compressor: layer.ratio.map(|ratio| compressor(ratio, width, keys)),
                indexer: layer
                    .ratio
                    .filter(|_| layer.indexed())
                    .map(|ratio| compressor(ratio, index_width, index)),
            }
        });
        let layers = layers.collect();
        Self {
            layers,
            keys,
            index,
            block_bytes,
            state_bytes,
        }
    }

    /// As everybody else sees it.
    pub(super) fn kv(&self, spec: &Spec) -> KvLayout {
        KvLayout {
            block_tokens: spec.block_tokens as u32,
            block_bytes: self.block_bytes as u64,
            state_bytes: self.state_bytes as u64,
        }
    }
}

/// Where rows begin, so that their values are aligned.
const ALIGN: usize = 8;
