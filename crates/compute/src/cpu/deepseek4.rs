//! The ops of [`Deepseek4`] on this machine.

mod attend;
mod compress;
mod grouped;
mod hyper;
mod index;
mod records;
mod rounding;
mod route;

pub use records::{CpuChoices, CpuRecords};

pub(super) use attend::WindowScratch;
pub(super) use grouped::GroupedScratch;
pub(super) use index::IndexScratch;

use super::experts::Preference;
use super::ops::grain;
use super::simd::lanes::dispatch;
use super::{CpuBackend, CpuBuffer, CpuWeight, KvType};
use crate::deepseek4::{
    CompressSpec, CompressWeights, CompressedRows, Deepseek4, HyperSpec, HyperWeights, IndexSpec,
    Kept, RouteBy, RouteSpec, Row, WindowSpec,
};
use crate::{Batch, ComputeError, ExpertWeights, ExpertsSpec};
use attend::WindowAttention;
use compress::Compressor;
use grouped::Grouped;
use hyper::{HyperIn, HyperOut};
use index::Indexer;
use route::{Choose, Router};

impl Deepseek4 for CpuBackend {
    type Records = CpuRecords;
    type Choices = CpuChoices;

    fn kept(&self, row: Row, width: usize) -> Kept {
        match self.kv_type {
            KvType::F32 => Kept::F32,
            KvType::F16 | KvType::BF16 => Kept::half(row),
            KvType::Q8_0 => Kept::compact(row, width),
        }
    }

    fn records(&mut self, count: usize, len: usize) -> Result<CpuRecords, ComputeError> {
        CpuRecords::new(count, len)
    }

    fn records_read(&self, records: &CpuRecords, index: u32, out: &mut [u8]) {
        out.copy_from_slice(records.bytes(index));
    }

    fn records_write(&mut self, records: &mut CpuRecords, index: u32, bytes: &[u8]) {
        records.bytes_mut(index).copy_from_slice(bytes);
    }

    fn records_copy(&mut self, records: &mut CpuRecords, from: u32, to: u32) {
        records.copy(from, to);
    }

    fn records_clear(&mut self, records: &mut CpuRecords, index: u32) {
        records.bytes_mut(index).fill(0);
    }

    fn choices(&mut self, max_rows: usize, width: usize) -> Result<CpuChoices, ComputeError> {
        CpuChoices::new(max_rows, width)
    }

    fn read_choices<'a>(
        &'a mut self,
        choices: &'a CpuChoices,
        n: usize,
    ) -> Result<&'a [u32], ComputeError> {
        Ok(choices.rows(n))
    }

    fn repeat(&mut self, out: &mut CpuBuffer, x: &CpuBuffer, n: usize) {
        let (wide, width) = (out.width(), x.width());
        assert!(wide.is_multiple_of(width));
        let x = x.rows(n);
        self.pool
            .for_rows(out.rows_mut(n), wide, grain(wide), &|first, outs| {
                let x = x[first * width..].chunks_exact(width);
                for (out, x) in outs.chunks_exact_mut(wide).zip(x) {
                    for copy in out.chunks_exact_mut(width) {
                        copy.copy_from_slice(x);
                    }
                }
            });
    }

    fn hyper_in(
        &mut self,
        out: &mut CpuBuffer,
        mix: &mut CpuBuffer,
        x: &CpuBuffer,
        weights: &HyperWeights<'_, CpuWeight>,
        spec: &HyperSpec,
        n: usize,
    ) {
        let (isa, width, coefficients) = (self.isa, out.width(), mix.width());
        assert!(x.width() == spec.streams * width && spec.streams <= HyperSpec::MOST_STREAMS);
        let (base, scale) = (weights.base.vector(), weights.scale.vector());
        let kinds = if coefficients == spec.streams { 1 } else { 3 };
        assert!(kinds == 1 || coefficients == spec.streams * (2 + spec.streams));
        assert!(base.len() == coefficients && scale.len() == kinds);
        let x = x.rows(n);
        let mix_grain = grain(x.len() / n.max(1));
        let mixes = mix.rows_mut(n);
        self.pool
            .for_rows(mixes, coefficients, mix_grain, &|first, mixes| {
                let x = x[first * spec.streams * width..].chunks_exact(spec.streams * width);
                for (mix, x) in mixes.chunks_exact_mut(coefficients).zip(x) {
                    hyper::coefficients(isa, mix, x, (base, scale), spec);
                }
            });
        let mixes = mix.rows(n);
        let out = out.rows_mut(n);
        self.pool.for_rows(out, width, mix_grain, &|first, outs| {
            let x = x[first * spec.streams * width..].chunks_exact(spec.streams * width);
            let mixes = mixes[first * coefficients..].chunks_exact(coefficients);
            for ((out, x), mix) in outs.chunks_exact_mut(width).zip(x).zip(mixes) {
                let pre = &mix[..spec.streams];
                dispatch(isa, HyperIn { out, x, pre });
            }
        });
    }

    fn hyper_out(
        &mut self,
        x: &mut CpuBuffer,
        y: &CpuBuffer,
        mix: &CpuBuffer,
        spec: &HyperSpec,
        n: usize,
    ) {
        let (isa, width, streams) = (self.isa, y.width(), spec.streams);
        let (wide, coefficients) = (streams * width, streams * (2 + streams));
        assert!(x.width() == wide && mix.width() == coefficients);
        let (y, mixes) = (y.rows(n), mix.rows(n));
        self.pool
            .for_rows(x.rows_mut(n), wide, grain(wide), &|first, xs| {
                let y = y[first * width..].chunks_exact(width);
                let mixes = mixes[first * coefficients..].chunks_exact(coefficients);
                for ((x, y), mix) in xs.chunks_exact_mut(wide).zip(y).zip(mixes) {
                    let (post, comb) = mix[streams..].split_at(streams);
                    dispatch(isa, HyperOut { x, y, post, comb });
                }
            });
    }

    fn grouped_matmul(&mut self, out: &mut CpuBuffer, weight: &CpuWeight, x: &CpuBuffer, n: usize) {
        let matrix = weight.matrix();
        let (width, wide) = (x.width(), out.width());
        assert!(width.is_multiple_of(matrix.cols()) && matrix.rows() == wide);
        let groups = width / matrix.cols();
        Grouped {
            isa: self.isa,
            matrix,
            groups,
        }
        .run(&self.pool, &mut self.grouped, (out.rows_mut(n), x.rows(n)));
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
        let compressor = Compressor {
            isa: self.isa,
            spec,
            kv: kv.rows(batch.len()),
            gate: gate.rows(batch.len()),
            ape: weights.ape.vector(),
            norm: weights.norm.vector(),
            batch,
        };
        compressor.check();
        compressor.run(&self.pool, blocks, states);
    }

    fn keep_heads(&mut self, x: &mut CpuBuffer, width: usize, kept: Kept, n: usize) {
        let wide = x.width();
        assert!(wide.is_multiple_of(width));
        if kept == Kept::F32 {
            return;
        }
        self.pool
            .for_rows(x.rows_mut(n), wide, grain(wide), &|_, x| {
                for head in x.chunks_exact_mut(width) {
                    rounding::keep(kept, head);
                }
            });
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
        assert!(q.width() == spec.heads * spec.rows.width && weights.width() == spec.heads);
        assert!(chosen.width() == spec.top_k && spec.rows.end() <= blocks.len());
        let n = batch.len();
        let indexer = Indexer {
            isa: self.isa,
            spec,
            q: q.rows(n),
            weights: weights.rows(n),
            blocks,
            batch,
        };
        indexer.run(&self.pool, &mut self.index, chosen.rows_mut(n));
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
        let (n, head_dim) = (batch.len(), spec.ring.width);
        let sinks = sinks.vector();
        assert!(q.width() == spec.heads * head_dim && out.width() == q.width());
        assert!(k.width() == head_dim && sinks.len() == spec.heads);
        assert!(spec.ring.end() <= states.len() && batch.states.len() == batch.sequences.len());
        assert!(compressed.is_none_or(|rows| {
            rows.rows.width == head_dim && rows.rows.end() <= rows.blocks.len()
        }));
        let attention = WindowAttention {
            isa: self.isa,
            spec,
            sinks,
            q: q.rows(n),
            k: k.rows(n),
            compressed,
            batch,
        };
        attention.run(&self.pool, &mut self.window, out.rows_mut(n), states);
        attention.keep(states);
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
        let (width, experts, n) = (chosen.width(), logits.width(), tokens.len());
        assert!(shares.width() == width && width <= experts);
        let choose = match by {
            RouteBy::Score(bias) => Choose::Best(bias.vector()),
            RouteBy::Table(table) => Choose::Table(table.matrix()),
        };
        assert!(match &choose {
            Choose::Best(bias) => bias.len() == experts,
            Choose::Table(table) => table.cols() == width,
        });
        let router = Router {
            spec,
            chosen: width,
            experts,
            logits: logits.rows(n),
            tokens,
            choose,
        };
        router.run(&self.pool, (chosen.rows_mut(n), shares.rows_mut(n)));
    }

    fn chosen_experts(
        &mut self,
        out: &mut CpuBuffer,
        x: &CpuBuffer,
        chosen: &CpuChoices,
        shares: &CpuBuffer,
        weights: &ExpertWeights<'_, CpuWeight>,
        spec: &ExpertsSpec,
        n: usize,
    ) {
        assert!(chosen.width() == spec.chosen && shares.width() == spec.chosen);
        let preference = Preference::Given(chosen.rows(n), shares.rows(n));
        self.mix_experts((out, x, n), weights, spec, preference);
    }
}
