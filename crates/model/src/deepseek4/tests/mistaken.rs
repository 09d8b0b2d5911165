//! A backend that makes one mistake: for those within ops, which no wrong file shows.

use std::collections::VecDeque;

use andante_compute::{
    Activation, AttentionSpec, Backend, CompressSpec, CompressWeights, CompressedRows,
    ComputeError, CpuBackend, CpuBuffer, CpuChoices, CpuKv, CpuRecords, CpuWeight,
    Deepseek4 as Ops, ExpertWeights, ExpertsSpec, HyperSpec, HyperWeights, IndexSpec, Kept,
    KvShape, Region, RopeTable, RouteBy, RouteSpec, Row, WindowSpec,
};
use andante_gguf::{Format, Tensor};

use super::portable::{HEAD_DIM, HEADS};
use super::{Batch, floats};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mistake {
    /// Query heads are not normed.
    PlainQueries,
    /// Compressed rows are not normed.
    PlainRows,
    /// Compressed rows turn as their last token does.
    RowsAtTheirEnd,
    /// Compressed rows turn for their number.
    RowsAtTheirNumber,
    /// The indexer sees a row only after the token that completes it.
    LateChoices,
    /// Attention sees a row only after the token that completes it.
    LateRows,
    /// The shared expert's gate is cut off below too.
    GatesFromBelow,
    /// Experts' scores are sigmoids.
    Sigmoids,
    /// Experts' shares have the bias in them.
    BiasedShares,
}

impl Mistake {
    pub(super) const ALL: [Self; 9] = [
        Self::PlainQueries,
        Self::PlainRows,
        Self::RowsAtTheirEnd,
        Self::RowsAtTheirNumber,
        Self::LateChoices,
        Self::LateRows,
        Self::GatesFromBelow,
        Self::Sigmoids,
        Self::BiasedShares,
    ];
}

/// The processor with a mistake. What it is given must be in exact form: F32 weights and rows.
pub(super) struct Mistaken {
    inner: CpuBackend,
    mistake: Option<Mistake>,
    /// Bytes of a block's record.
    block_bytes: usize,
    /// The biases of routers, in the order of layers.
    biases: VecDeque<Vec<f32>>,
}

impl Mistaken {
    pub(super) fn new(inner: CpuBackend, mistake: Option<Mistake>) -> Self {
        Self {
            inner,
            mistake,
            block_bytes: 0,
            biases: VecDeque::new(),
        }
    }

    /// What is in the first `n` rows of a buffer.
    fn values(&mut self, x: &CpuBuffer, n: usize) -> Vec<f32> {
        self.inner.read(x, n).expect("a processor").to_vec()
    }

    /// Makes the first `n` rows of a buffer `values`.
    fn set(&mut self, x: &mut CpuBuffer, values: &[f32], n: usize) {
        let table = self.floats(values, &[values.len() / n, n]);
        let rows: Vec<u32> = (0..n as u32).collect();
        self.inner.embed(x, &table, &rows, 1.0);
    }

    fn floats(&mut self, values: &[f32], shape: &[usize]) -> CpuWeight {
        let bytes = bytes_of(values);
        let shape: Vec<u64> = shape.iter().map(|&n| n as u64).collect();
        let tensor = Tensor::new("values", &shape, Format::F32, &bytes);
        self.inner.weight(&tensor).expect("small")
    }

    /// Turns the compressed rows that a batch has completed on from their right position to another, that of a row's number.
    fn turn_rows(
        &mut self,
        blocks: &mut CpuRecords,
        spec: &CompressSpec<'_>,
        batch: &Batch,
        to: impl Fn(usize) -> usize,
    ) {
        let back = spec.rope.clone().inverse();
        let mut buffer = self.inner.buffer(1, spec.rows.width).expect("small");
        let Region { start, rows, .. } = spec.rows;
        let row_bytes = spec.rows.kept.row_bytes(spec.rows.width);
        let mut record = vec![0; self.block_bytes];
        for sequence in &batch.sequences {
            let (ratio, first) = (spec.ratio, batch.positions[sequence.rows.start as usize]);
            let first = first as usize;
            for row in first / ratio..(first + sequence.rows.len()) / ratio {
                let table = &batch.block_tables[sequence.blocks.start as usize..];
                let block = table[row / rows];
                let start = start + row % rows * row_bytes;
                let place = start..start + row_bytes;
                self.inner.records_read(blocks, block, &mut record);
                self.set(&mut buffer, &floats(&record[place.clone()]), 1);
                let position = (row * ratio) as u32;
                self.inner.rope(&mut buffer, &[position], &back);
                self.inner.rope(&mut buffer, &[to(row) as u32], spec.rope);
                record[place].copy_from_slice(&bytes_of(&self.values(&buffer, 1)));
                self.inner.records_write(blocks, block, &record);
            }
        }
    }
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// The batch as it was a token before.
fn before(batch: &Batch) -> Batch {
    let mut before = batch.clone();
    for position in &mut before.positions {
        *position = position.saturating_sub(1);
    }
    before
}

/// `sqrt(softplus(x))`.
fn score(x: f32) -> f32 {
    x.exp().ln_1p().sqrt()
}

/// Methods that do as the processor does.
macro_rules! right {
    ($(fn $name:ident(&self $(, $arg:ident: $type:ty)*) $(-> $output:ty)?;)*) => {
        $(fn $name(&self $(, $arg: $type)*) $(-> $output)? {
            self.inner.$name($($arg),*)
        })*
    };
    ($(fn $name:ident(&mut self $(, $arg:ident: $type:ty)*) $(-> $output:ty)?;)*) => {
        $(fn $name(&mut self $(, $arg: $type)*) $(-> $output)? {
            self.inner.$name($($arg),*)
        })*
    };
}

impl Backend for Mistaken {
    type Buffer = CpuBuffer;
    type Weight = CpuWeight;
    type Kv = CpuKv;

    fn weight(&mut self, tensor: &Tensor<'_>) -> Result<CpuWeight, ComputeError> {
        if tensor.name.ends_with("exp_probs_b.bias") {
            self.biases.push_back(tensor.dequantize());
        }
        self.inner.weight(tensor)
    }

    fn rms_norm_heads(&mut self, x: &mut CpuBuffer, weight: &CpuWeight, eps: f32, n: usize) {
        let is_queries = self.values(x, 1).len() == (HEADS * HEAD_DIM) as usize;
        if self.mistake != Some(Mistake::PlainQueries) || !is_queries {
            self.inner.rms_norm_heads(x, weight, eps, n);
        }
    }

    fn act_mul(&mut self, gate: &mut CpuBuffer, up: &CpuBuffer, act: Activation, n: usize) {
        if let (Some(Mistake::GatesFromBelow), Activation::SiluBelow(limit)) = (self.mistake, act) {
            let mut values = self.values(gate, n);
            values.iter_mut().for_each(|x| *x = x.max(-limit));
            self.set(gate, &values, n);
        }
        self.inner.act_mul(gate, up, act, n);
    }

    fn read<'a>(&'a mut self, x: &'a CpuBuffer, n: usize) -> Result<&'a [f32], ComputeError> {
        self.inner.read(x, n)
    }

    right! {
        fn describe(&self) -> String;
        fn kv_block_bytes(&self, shape: &KvShape) -> u64;
        fn kv_format(&self, shape: &KvShape) -> String;
        fn kv_read(&self, kv: &CpuKv, block: u32, out: &mut [u8]);
    }

    right! {
        fn buffer(&mut self, rows: usize, width: usize) -> Result<CpuBuffer, ComputeError>;
        fn kv(&mut self, shape: &KvShape, blocks: usize) -> Result<CpuKv, ComputeError>;
        fn kv_write_block(&mut self, kv: &mut CpuKv, block: u32, bytes: &[u8]);
        fn embed(&mut self, out: &mut CpuBuffer, table: &CpuWeight, tokens: &[u32], scale: f32);
        fn rms_norm(&mut self, out: &mut CpuBuffer, x: &CpuBuffer, weight: &CpuWeight, eps: f32, n: usize);
        fn add_rms_norm(&mut self, out: &mut CpuBuffer, residual: &mut CpuBuffer, delta: &CpuBuffer, weight: &CpuWeight, eps: f32, n: usize);
        fn matmul(&mut self, outs: &mut [(&CpuWeight, &mut CpuBuffer)], x: &CpuBuffer, n: usize);
        fn add_bias(&mut self, x: &mut CpuBuffer, bias: &CpuWeight, n: usize);
        fn rope(&mut self, x: &mut CpuBuffer, positions: &[u32], rope: &RopeTable);
        fn kv_write(&mut self, kv: &mut CpuKv, layer: usize, k: &CpuBuffer, v: &CpuBuffer, slots: &[u32]);
        fn attention(&mut self, out: &mut CpuBuffer, q: &CpuBuffer, kv: &CpuKv, layer: usize, spec: &AttentionSpec, sinks: Option<&CpuWeight>, batch: &Batch);
        fn experts(&mut self, out: &mut CpuBuffer, x: &CpuBuffer, router: &CpuBuffer, weights: &ExpertWeights<'_, CpuWeight>, spec: &ExpertsSpec, n: usize);
        fn add(&mut self, x: &mut CpuBuffer, y: &CpuBuffer, n: usize);
        fn scale(&mut self, x: &mut CpuBuffer, factor: f32, n: usize);
        fn select_rows(&mut self, out: &mut CpuBuffer, x: &CpuBuffer, rows: &[u32]);
    }
}

impl Ops for Mistaken {
    type Records = CpuRecords;
    type Choices = CpuChoices;

    fn records(&mut self, count: usize, len: usize) -> Result<CpuRecords, ComputeError> {
        // Those of blocks come first.
        if self.block_bytes == 0 {
            self.block_bytes = len;
        }
        self.inner.records(count, len)
    }

    fn compress(
        &mut self,
        blocks: &mut CpuRecords,
        states: &mut CpuRecords,
        kv: &CpuBuffer,
        gate: &CpuBuffer,
        weights: &CompressWeights<'_, CpuWeight>,
        spec: &CompressSpec<'_>,
        batch: &Batch,
    ) {
        let ratio = spec.ratio;
        match self.mistake {
            Some(Mistake::PlainRows) => {
                // What a norm divides by is all but constant.
                let spec = CompressSpec { eps: 1e12, ..*spec };
                let norm = self.floats(&vec![1e6; spec.rows.width], &[spec.rows.width]);
                let weights = CompressWeights {
                    ape: weights.ape,
                    norm: &norm,
                };
                self.inner
                    .compress(blocks, states, kv, gate, &weights, &spec, batch);
            }
            mistake => {
                self.inner
                    .compress(blocks, states, kv, gate, weights, spec, batch);
                match mistake {
                    Some(Mistake::RowsAtTheirEnd) => {
                        self.turn_rows(blocks, spec, batch, |row| (row + 1) * ratio - 1);
                    }
                    Some(Mistake::RowsAtTheirNumber) => {
                        self.turn_rows(blocks, spec, batch, |row| row);
                    }
                    _ => {}
                }
            }
        }
    }

    fn index(
        &mut self,
        chosen: &mut CpuChoices,
        q: &CpuBuffer,
        weights: &CpuBuffer,
        blocks: &CpuRecords,
        spec: &IndexSpec,
        batch: &Batch,
    ) {
        if self.mistake == Some(Mistake::LateChoices) {
            let batch = before(batch);
            self.inner.index(chosen, q, weights, blocks, spec, &batch);
        } else {
            self.inner.index(chosen, q, weights, blocks, spec, batch);
        }
    }

    fn window_attention(
        &mut self,
        out: &mut CpuBuffer,
        q: &CpuBuffer,
        k: &CpuBuffer,
        states: &mut CpuRecords,
        compressed: Option<&CompressedRows<'_, Self>>,
        sinks: &CpuWeight,
        spec: &WindowSpec,
        batch: &Batch,
    ) {
        let mut compressed = compressed.map(|seen| CompressedRows::<CpuBackend> {
            blocks: seen.blocks,
            rows: seen.rows,
            ratio: seen.ratio,
            chosen: seen.chosen,
        });
        let n = batch.len();
        let all = self.inner.choices(n, n);
        let mut all = all.expect("small");
        if let Some(seen) = compressed.as_mut().filter(|seen| seen.chosen.is_none())
            && self.mistake == Some(Mistake::LateRows)
        {
            // As many rows to choose as there are tokens: all that are visible, whatever their scores.
            let weights = self.inner.buffer(n, spec.heads).expect("small");
            let late = IndexSpec {
                ratio: seen.ratio,
                heads: spec.heads,
                top_k: n,
                scale: 1.0,
                rows: seen.rows,
            };
            let before = before(batch);
            self.inner
                .index(&mut all, q, &weights, seen.blocks, &late, &before);
            seen.chosen = Some(&all);
        }
        let compressed = compressed.as_ref();
        self.inner
            .window_attention(out, q, k, states, compressed, sinks, spec, batch);
    }

    fn route(
        &mut self,
        chosen: &mut CpuChoices,
        shares: &mut CpuBuffer,
        logits: &CpuBuffer,
        by: &RouteBy<'_, CpuWeight>,
        spec: &RouteSpec,
        tokens: &[u32],
    ) {
        let n = tokens.len();
        let values = self.values(logits, n);
        let experts = values.len() / n;
        if self.mistake == Some(Mistake::Sigmoids) {
            // The logits whose scores are those sigmoids.
            let of = |x: f32| (1.0 / (1.0 + (-x).exp())).powi(2).exp_m1().ln();
            let values: Vec<f32> = values.iter().map(|&x| of(x)).collect();
            let mut logits = self.inner.buffer(n, experts).expect("small");
            self.set(&mut logits, &values, n);
            return self.inner.route(chosen, shares, &logits, by, spec, tokens);
        }
        self.inner.route(chosen, shares, logits, by, spec, tokens);
        if let (Some(Mistake::BiasedShares), RouteBy::Score(_)) = (self.mistake, by) {
            let bias = self.biases.pop_front().expect("one for each layer");
            let ids = self.inner.read_choices(chosen, n).expect("a processor");
            let ids: Vec<usize> = ids.iter().map(|&id| id as usize).collect();
            let width = ids.len() / n;
            let of_row = |(row, ids): (usize, &[usize])| {
                let score = |&id: &usize| score(values[row * experts + id]) + bias[id];
                let sum: f32 = ids.iter().map(score).sum();
                let shares = ids.iter().map(|id| score(id) / sum * spec.scale);
                shares.collect::<Vec<f32>>()
            };
            let new: Vec<f32> = ids.chunks(width).enumerate().flat_map(of_row).collect();
            self.set(shares, &new, n);
        }
    }

    fn read_choices<'a>(
        &'a mut self,
        choices: &'a CpuChoices,
        n: usize,
    ) -> Result<&'a [u32], ComputeError> {
        self.inner.read_choices(choices, n)
    }

    right! {
        fn kept(&self, row: Row, width: usize) -> Kept;
        fn records_read(&self, records: &CpuRecords, index: u32, out: &mut [u8]);
    }

    right! {
        fn records_write(&mut self, records: &mut CpuRecords, index: u32, bytes: &[u8]);
        fn records_copy(&mut self, records: &mut CpuRecords, from: u32, to: u32);
        fn records_clear(&mut self, records: &mut CpuRecords, index: u32);
        fn choices(&mut self, rows: usize, width: usize) -> Result<CpuChoices, ComputeError>;
        fn repeat(&mut self, out: &mut CpuBuffer, x: &CpuBuffer, n: usize);
        fn hyper_in(&mut self, out: &mut CpuBuffer, mix: &mut CpuBuffer, x: &CpuBuffer, weights: &HyperWeights<'_, CpuWeight>, spec: &HyperSpec, n: usize);
        fn hyper_out(&mut self, x: &mut CpuBuffer, y: &CpuBuffer, mix: &CpuBuffer, spec: &HyperSpec, n: usize);
        fn grouped_matmul(&mut self, out: &mut CpuBuffer, weight: &CpuWeight, x: &CpuBuffer, n: usize);
        fn keep_heads(&mut self, x: &mut CpuBuffer, width: usize, kept: Kept, n: usize);
        fn chosen_experts(&mut self, out: &mut CpuBuffer, x: &CpuBuffer, chosen: &CpuChoices, shares: &CpuBuffer, weights: &ExpertWeights<'_, CpuWeight>, spec: &ExpertsSpec, n: usize);
    }
}
