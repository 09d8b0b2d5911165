//! The model whose weights are a formula, against logits, layers' outputs and choices that a reference in double precision made.

mod errors;
mod files;
mod flash;
mod independence;
mod mistaken;
mod mtp;
mod mutations;
mod portable;
mod quantised;
mod reference;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use andante_compute::{
    Batch, CpuBackend, CpuConfig, Deepseek4 as Ops, KvType, Logits as Wanted, WeightForm,
};
use andante_gguf::GgufFile;

use super::{Deepseek4, load};
use crate::metadata::Keys;
use crate::{Limits, Model, ModelError};

/// Half a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Half {
    Attention,
    FeedForward,
}

/// What layers computed, of all batches in order.
#[derive(Default)]
pub(super) struct Trace {
    deltas: BTreeMap<(usize, Half), Vec<f32>>,
    streams: BTreeMap<usize, Vec<f32>>,
    rows: BTreeMap<usize, Vec<u32>>,
    experts: BTreeMap<usize, Vec<u32>>,
}

impl Trace {
    pub(super) fn delta(&mut self, layer: usize, half: Half, values: Vec<f32>) {
        self.deltas.entry((layer, half)).or_default().extend(values);
    }

    pub(super) fn streams(&mut self, layer: usize, values: Vec<f32>) {
        self.streams.entry(layer).or_default().extend(values);
    }

    pub(super) fn rows(&mut self, layer: usize, chosen: &[u32]) {
        self.rows.entry(layer).or_default().extend(chosen);
    }

    pub(super) fn experts(&mut self, layer: usize, chosen: &[u32]) {
        self.experts.entry(layer).or_default().extend(chosen);
    }
}

/// Tokens of a block: those of the longest compressed row.
const BLOCK: usize = 128;

type Portable = Deepseek4<CpuBackend>;

/// F32 products, as the reference's.
fn exact(threads: usize) -> CpuConfig {
    CpuConfig {
        threads: Some(threads),
        weights: WeightForm::Reference,
        kv_type: KvType::F32,
        ..CpuConfig::default()
    }
}

fn try_load(bytes: Vec<u8>, config: CpuConfig) -> Result<Portable, ModelError> {
    let file = GgufFile::from_bytes(bytes)?;
    let backend = CpuBackend::new(config)?;
    load(&Keys::new(&file)?, backend, &mut |_, _| {})
}

/// The formula's model.
fn model(config: CpuConfig) -> Portable {
    static FILE: LazyLock<Vec<u8>> = LazyLock::new(portable::gguf);
    reserved(try_load(FILE.clone(), config).unwrap())
}

/// With room for sequences of 2,048 tokens.
fn reserved<B: Ops>(mut model: Deepseek4<B>) -> Deepseek4<B> {
    let limits = Limits {
        blocks: 96,
        batch_tokens: 2048,
        logit_rows: 2048,
        state_rows: 8,
        running_states: 8,
    };
    model.reserve(limits).unwrap();
    model
}

/// A sequence: its tokens, its blocks and its running state.
struct Sequence<'a> {
    tokens: &'a [u32],
    table: &'a [u32],
    state: u32,
}

impl<'a> Sequence<'a> {
    fn push(&self, batch: &mut Batch, rows: std::ops::Range<usize>) {
        batch.push_sequence(
            &self.tokens[rows.clone()],
            rows.start as u32,
            self.table,
            BLOCK as u32,
            Wanted::All,
        );
        batch.states.push(self.state);
    }

    /// Logits of the rows from `start` on, in chunks.
    fn run<B: Ops>(
        &self,
        model: &mut Deepseek4<B>,
        mut start: usize,
        chunks: &[usize],
    ) -> Vec<f32> {
        let mut rows = Vec::new();
        for &chunk in chunks {
            let mut batch = Batch::default();
            self.push(&mut batch, start..start + chunk);
            rows.extend(forward(model, &batch));
            start += chunk;
        }
        rows
    }
}

fn forward<B: Ops>(model: &mut Deepseek4<B>, batch: &Batch) -> Vec<f32> {
    model.forward(batch).unwrap();
    let logits = model.logits().unwrap();
    (0..logits.rows())
        .flat_map(|i| logits.row(i).to_vec())
        .collect()
}

/// The blocks of a sequence, in no order.
fn table(blocks: u32, salt: u32) -> Vec<u32> {
    (0..blocks).map(|i| (i * 37 + salt * 11) % 96).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (values, _) = bytes.as_chunks::<4>();
    values.iter().map(|v| f32::from_le_bytes(*v)).collect()
}

/// The most likely token of a row of logits.
fn best(row: &[f32]) -> Option<usize> {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    row.iter().position(|&x| x == largest)
}

fn assert_bits(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let differs = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits();
    let first = found.iter().zip(expected).position(differs);
    assert_eq!(first, None, "{what}: value {first:?} differs");
}

fn assert_close(what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    assert!(found.iter().all(|value| value.is_finite()), "{what}");
    let differences = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
    let largest = differences.fold(0.0, f32::max);
    assert!(largest <= tolerance, "{what}: differs by {largest}");
}
