//! The KV cache: keys and values in blocks, laid out for the attention kernels.
//!
//! ```text
//! block           [layers][kv_heads] of head blocks; all of a block is contiguous
//! head block      keys   [head_dim, BLOCK_TOKENS]   transposed: lanes of a vector are tokens
//!                 values [BLOCK_TOKENS, pitch]      pitch: head_dim rounded up to 32, the rest zeros
//!                 scales of the keys [pitch / 32, BLOCK_TOKENS] and the values [BLOCK_TOKENS, pitch / 32], of 8-bit types
//! ```
//!
//! Where tiles multiply them, two neighbouring rows of either are interleaved, element by element ([`Layout::Pairs`]).

use super::isa::Isa;
use super::memory::Pages;
use super::simd::attention::{Bf16, Element, F16, HeadBlock, Layout, Q8, Store, pitch};
use super::simd::lanes::dispatch;
use crate::{BLOCK_TOKENS, ComputeError, KvShape};
use zerocopy::{FromBytes, IntoBytes};

/// How keys and values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvType {
    /// IEEE half precision.
    F16,
    /// The leading 16 bits of single precision.
    BF16,
    /// 8 bits, with one half-precision scale for 32 dimensions of a head: 8.5 bits a value.
    Q8_0,
    /// Single precision.
    F32,
}

impl KvType {
    /// Every type.
    pub const ALL: [Self; 4] = [Self::F16, Self::BF16, Self::Q8_0, Self::F32];

    /// Its usual name, in small letters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::F32 => "f32",
        }
    }
}

/// Keys and values of all layers.
pub struct CpuKv(pub(super) Storage);

/// The cache in any type.
pub(super) enum Storage {
    F16(Blocks<F16>),
    BF16(Blocks<Bf16>),
    Q8_0(Blocks<Q8>),
    F32(Blocks<f32>),
}

/// The same for a cache of any type.
macro_rules! with_blocks {
    ($storage:expr, $blocks:ident => $body:expr) => {
        match $storage {
            Storage::F16($blocks) => $body,
            Storage::BF16($blocks) => $body,
            Storage::Q8_0($blocks) => $body,
            Storage::F32($blocks) => $body,
        }
    };
}
pub(super) use with_blocks;

/// The same for the elements of any type.
macro_rules! with_element {
    ($kv_type:expr, $element:ident => $body:expr) => {
        match $kv_type {
            KvType::F16 => {
                type $element = F16;
                $body
            }
            KvType::BF16 => {
                type $element = Bf16;
                $body
            }
            KvType::Q8_0 => {
                type $element = Q8;
                $body
            }
            KvType::F32 => {
                type $element = f32;
                $body
            }
        }
    };
}

impl CpuKv {
    pub(super) fn new(
        (kv_type, isa): (KvType, Isa),
        shape: &KvShape,
        blocks: usize,
    ) -> Result<Self, ComputeError> {
        Ok(Self(match kv_type {
            KvType::F16 => Storage::F16(Blocks::new(isa, shape, blocks)?),
            KvType::BF16 => Storage::BF16(Blocks::new(isa, shape, blocks)?),
            KvType::Q8_0 => Storage::Q8_0(Blocks::new(isa, shape, blocks)?),
            KvType::F32 => Storage::F32(Blocks::new(isa, shape, blocks)?),
        }))
    }

    pub(super) fn block(&self, block: u32) -> &[u8] {
        with_blocks!(&self.0, blocks => blocks.block(block).as_bytes())
    }

    pub(super) fn block_mut(&mut self, block: u32) -> &mut [u8] {
        with_blocks!(&mut self.0, blocks => blocks.block_mut(block).as_mut_bytes())
    }
}

/// Bytes of one block.
pub(super) fn block_bytes(kv_type: KvType, shape: &KvShape) -> u64 {
    with_element!(kv_type, E => (block_len::<E>(shape) * size_of::<E>()) as u64)
}

/// How the elements of a block are stored and lie, in words.
pub(super) fn format(kv_type: KvType, isa: Isa) -> String {
    let layout = match with_element!(kv_type, E => E::layout(isa)) {
        Layout::Rows => "rows",
        Layout::Pairs => "pairs",
    };
    format!("{} {layout}", kv_type.name())
}

/// Elements of one block.
fn block_len<E: Element>(shape: &KvShape) -> usize {
    shape.layers * shape.kv_heads * head_block_len::<E>(shape.head_dim)
}

/// Elements of one head's keys and values in one block.
fn head_block_len<E: Element>(head_dim: usize) -> usize {
    let scales = 2 * BLOCK_TOKENS * E::row_scales(head_dim);
    keys_len(head_dim) + values_len(head_dim) + scales * size_of::<u16>() / size_of::<E>()
}

/// Elements of one head's keys in one block: whole pairs of rows.
fn keys_len(head_dim: usize) -> usize {
    head_dim.next_multiple_of(2) * BLOCK_TOKENS
}

/// Elements of one head's values in one block.
fn values_len(head_dim: usize) -> usize {
    BLOCK_TOKENS * pitch(head_dim)
}

/// A cache of one element type.
pub(super) struct Blocks<E> {
    shape: KvShape,
    layout: Layout,
    data: Pages<E>,
    // One head's row and its scales, while it is stored.
    row: Vec<E>,
    row_scales: Vec<u16>,
}

impl<E: Element> Blocks<E> {
    fn new(isa: Isa, shape: &KvShape, blocks: usize) -> Result<Self, ComputeError> {
        let &KvShape {
            layers,
            kv_heads,
            head_dim,
            block_tokens,
        } = shape;
        if block_tokens != BLOCK_TOKENS || layers == 0 || kv_heads == 0 || head_dim == 0 {
            return Err(ComputeError::KvShape {
                layers,
                kv_heads,
                head_dim,
                block_tokens,
            });
        }
        let what = "the KV cache";
        let len = [layers, kv_heads, head_block_len::<E>(head_dim)]
            .iter()
            .try_fold(blocks, |product, &factor| product.checked_mul(factor))
            .ok_or(ComputeError::OutOfMemory {
                what,
                bytes: u64::MAX,
            })?;
        Ok(Self {
            shape: *shape,
            layout: E::layout(isa),
            data: Pages::new(len, what)?,
            row: vec![E::default(); pitch(head_dim)],
            row_scales: vec![0; E::row_scales(head_dim)],
        })
    }

    pub(super) fn shape(&self) -> &KvShape {
        &self.shape
    }

    fn block(&self, block: u32) -> &[E] {
        let len = block_len::<E>(&self.shape);
        &self.data[block as usize * len..][..len]
    }

    fn block_mut(&mut self, block: u32) -> &mut [E] {
        let len = block_len::<E>(&self.shape);
        &mut self.data[block as usize * len..][..len]
    }

    /// Where a head's part of a block begins.
    fn start(&self, block: usize, layer: usize, head: usize) -> usize {
        assert!(layer < self.shape.layers && head < self.shape.kv_heads);
        ((block * self.shape.layers + layer) * self.shape.kv_heads + head)
            * head_block_len::<E>(self.shape.head_dim)
    }

    /// Keys and values of one head in one block.
    pub(super) fn head_block(&self, block: usize, layer: usize, head: usize) -> HeadBlock<'_, E> {
        let head_dim = self.shape.head_dim;
        let all = &self.data[self.start(block, layer, head)..][..head_block_len::<E>(head_dim)];
        let (keys, rest) = all.split_at(keys_len(head_dim));
        let (values, scales) = rest.split_at(values_len(head_dim));
        HeadBlock {
            keys,
            values,
            scales,
        }
    }

    /// Stores the keys and values of the rows at `slots`; `k` and `v` are `[rows, kv_heads, head_dim]`.
    pub(super) fn write(
        &mut self,
        isa: Isa,
        layer: usize,
        (k, v): (&[f32], &[f32]),
        slots: &[u32],
    ) {
        let KvShape {
            kv_heads, head_dim, ..
        } = self.shape;
        let rows = k
            .chunks_exact(kv_heads * head_dim)
            .zip(v.chunks_exact(kv_heads * head_dim));
        for (&slot, (k, v)) in slots.iter().zip(rows) {
            let (block, offset) = (slot as usize / BLOCK_TOKENS, slot as usize % BLOCK_TOKENS);
            for (head, (k, v)) in k
                .chunks_exact(head_dim)
                .zip(v.chunks_exact(head_dim))
                .enumerate()
            {
                let start = self.start(block, layer, head);
                self.write_head(isa, start, offset, (k, v));
            }
        }
    }

    /// Stores one token's key and value in the head block that begins at `start`.
    fn write_head(&mut self, isa: Isa, start: usize, offset: usize, (k, v): (&[f32], &[f32])) {
        let (head_dim, pitch) = (k.len(), pitch(k.len()));
        let all = &mut self.data[start..][..head_block_len::<E>(head_dim)];
        let (keys, rest) = all.split_at_mut(keys_len(head_dim));
        let (values, scales) = rest.split_at_mut(values_len(head_dim));
        let scales = <[u16]>::mut_from_bytes(scales.as_mut_bytes());
        let scales = scales.expect("a whole number of them, where blocks have even lengths");
        let (key_scales, value_scales) = scales.split_at_mut(scales.len() / 2);
        let (row, row_scales) = (&mut self.row[..], &mut self.row_scales[..]);

        let to = &mut *row;
        let scales = &mut *row_scales;
        dispatch(
            isa,
            Store {
                to,
                scales,
                from: v,
            },
        );
        match self.layout {
            Layout::Rows => values[offset * pitch..][..pitch].copy_from_slice(row),
            Layout::Pairs => {
                let pair = &mut values[offset / 2 * 2 * pitch..][..2 * pitch];
                let elements = pair.iter_mut().skip(offset % 2).step_by(2);
                elements.zip(&*row).for_each(|(to, &value)| *to = value);
            }
        }
        value_scales[offset * row_scales.len()..][..row_scales.len()].copy_from_slice(row_scales);

        let to = &mut *row;
        let scales = &mut *row_scales;
        dispatch(
            isa,
            Store {
                to,
                scales,
                from: k,
            },
        );
        for (dimension, &key) in row[..head_dim].iter().enumerate() {
            keys[self.layout.key(dimension, offset)] = key;
        }
        let columns = key_scales.iter_mut().skip(offset).step_by(BLOCK_TOKENS);
        columns
            .zip(&*row_scales)
            .for_each(|(to, &scale)| *to = scale);
    }
}
