//! The KV cache: keys and values in blocks, laid out for the attention kernels.
//!
//! ```text
//! block           [layers][kv_heads] of head blocks; all of a block is contiguous
//! head block      keys   [head_dim, BLOCK_TOKENS]   transposed: lanes of a vector are tokens
//!                 values [BLOCK_TOKENS, pitch]      pitch: head_dim rounded up to 32, the rest zeros
//! ```
//!
//! Where tiles multiply them, two neighbouring rows of either are interleaved, element by element ([`Layout::Pairs`]).

use super::isa::Isa;
use super::memory::Pages;
use super::simd::attention::{Element, HeadBlock, Layout, Store, pitch};
use super::simd::lanes::dispatch;
use crate::{BLOCK_TOKENS, ComputeError, KvShape};
use zerocopy::IntoBytes;

/// How keys and values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvType {
    /// IEEE half precision.
    F16,
    /// Single precision.
    F32,
}

impl KvType {
    fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

/// Keys and values of all layers.
pub struct CpuKv(pub(super) Storage);

/// The cache in either precision.
pub(super) enum Storage {
    F16(Blocks<u16>),
    F32(Blocks<f32>),
}

impl CpuKv {
    pub(super) fn new(
        (kv_type, isa): (KvType, Isa),
        shape: &KvShape,
        blocks: usize,
    ) -> Result<Self, ComputeError> {
        Ok(Self(match kv_type {
            KvType::F16 => Storage::F16(Blocks::new(isa, shape, blocks)?),
            KvType::F32 => Storage::F32(Blocks::new(isa, shape, blocks)?),
        }))
    }

    pub(super) fn block(&self, block: u32) -> &[u8] {
        match &self.0 {
            Storage::F16(blocks) => blocks.block(block).as_bytes(),
            Storage::F32(blocks) => blocks.block(block).as_bytes(),
        }
    }

    pub(super) fn block_mut(&mut self, block: u32) -> &mut [u8] {
        match &mut self.0 {
            Storage::F16(blocks) => blocks.block_mut(block).as_mut_bytes(),
            Storage::F32(blocks) => blocks.block_mut(block).as_mut_bytes(),
        }
    }
}

/// Bytes of one block.
pub(super) fn block_bytes(kv_type: KvType, shape: &KvShape) -> u64 {
    (shape.layers * shape.kv_heads * head_block_len(shape.head_dim) * kv_type.bytes()) as u64
}

/// How the elements of a block are stored and lie, in words.
pub(super) fn format(kv_type: KvType, isa: Isa) -> String {
    let (name, layout) = match kv_type {
        KvType::F16 => ("f16", Layout::of::<u16>(isa)),
        KvType::F32 => ("f32", Layout::of::<f32>(isa)),
    };
    match layout {
        Layout::Rows => format!("{name} rows"),
        Layout::Pairs => format!("{name} pairs"),
    }
}

/// Elements of one head's keys and values in one block.
fn head_block_len(head_dim: usize) -> usize {
    keys_len(head_dim) + BLOCK_TOKENS * pitch(head_dim)
}

/// Elements of one head's keys in one block: whole pairs of rows.
fn keys_len(head_dim: usize) -> usize {
    head_dim.next_multiple_of(2) * BLOCK_TOKENS
}

/// A cache of one element type.
pub(super) struct Blocks<E> {
    shape: KvShape,
    layout: Layout,
    data: Pages<E>,
    row: Vec<E>, // one head's row, while it is stored
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
        let len = [layers, kv_heads, head_block_len(head_dim)]
            .iter()
            .try_fold(blocks, |product, &factor| product.checked_mul(factor))
            .ok_or(ComputeError::OutOfMemory {
                what,
                bytes: u64::MAX,
            })?;
        Ok(Self {
            shape: *shape,
            layout: Layout::of::<E>(isa),
            data: Pages::new(len, what)?,
            row: vec![E::default(); pitch(head_dim)],
        })
    }

    pub(super) fn shape(&self) -> &KvShape {
        &self.shape
    }

    /// Elements of a block.
    fn block_len(&self) -> usize {
        self.shape.layers * self.shape.kv_heads * head_block_len(self.shape.head_dim)
    }

    fn block(&self, block: u32) -> &[E] {
        let len = self.block_len();
        &self.data[block as usize * len..][..len]
    }

    fn block_mut(&mut self, block: u32) -> &mut [E] {
        let len = self.block_len();
        &mut self.data[block as usize * len..][..len]
    }

    fn start(&self, block: usize, layer: usize, head: usize) -> usize {
        assert!(layer < self.shape.layers && head < self.shape.kv_heads);
        ((block * self.shape.layers + layer) * self.shape.kv_heads + head)
            * head_block_len(self.shape.head_dim)
    }

    /// Keys and values of one head in one block.
    pub(super) fn head_block(&self, block: usize, layer: usize, head: usize) -> HeadBlock<'_, E> {
        let all =
            &self.data[self.start(block, layer, head)..][..head_block_len(self.shape.head_dim)];
        let (keys, values) = all.split_at(keys_len(self.shape.head_dim));
        HeadBlock { keys, values }
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
        let pitch = pitch(head_dim);
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
                let (keys, values) =
                    self.data[start..][..head_block_len(head_dim)].split_at_mut(keys_len(head_dim));
                let row = &mut self.row[..];
                dispatch(isa, Store { to: row, from: v });
                match self.layout {
                    Layout::Rows => values[offset * pitch..][..pitch].copy_from_slice(row),
                    Layout::Pairs => {
                        let pair = &mut values[offset / 2 * 2 * pitch..][..2 * pitch];
                        let elements = pair.iter_mut().skip(offset % 2).step_by(2);
                        elements.zip(&*row).for_each(|(to, &value)| *to = value);
                    }
                }
                dispatch(isa, Store { to: row, from: k });
                for (dimension, &key) in row[..head_dim].iter().enumerate() {
                    keys[self.layout.key(dimension, offset)] = key;
                }
            }
        }
    }
}
