//! The ops of [`Backend`] on this machine.

use super::attention::Attention;
use super::experts::{Experts, Preference, Projection};
use super::kv::{self, Blocks, Storage, with_blocks};
use super::matmul::{self, Matrix, TILE_ROWS, WeightForm};
use super::pool::{Pool, Runs, TOGETHER};
use super::rotation;
use super::simd::attention::Element;
use super::simd::elementwise::{ActMul, Add, RmsNorm, RmsNormHeads, Scale};
use super::simd::lanes::dispatch;
use super::{CpuBackend, CpuBuffer, CpuKv, CpuWeight};
use crate::{
    Activation, AttentionSpec, Backend, Batch, ComputeError, ExpertWeights, ExpertsSpec, KvShape,
    RopeTable,
};
use andante_gguf::Tensor;
use smallvec::SmallVec;

/// Elements that a thread takes at a time in cheap ops: some microseconds of work.
pub(super) const GRAIN_ELEMENTS: usize = 16 * 1024;

/// Rows that a thread takes at a time.
pub(super) fn grain(width: usize) -> usize {
    GRAIN_ELEMENTS.div_ceil(width)
}

impl CpuBackend {
    /// `out` = the experts of the first `n` rows of `x`, by `preference`.
    pub(super) fn mix_experts(
        &mut self,
        (out, x, n): (&mut CpuBuffer, &CpuBuffer, usize),
        weights: &ExpertWeights<'_, CpuWeight>,
        spec: &ExpertsSpec,
        preference: Preference<'_>,
    ) {
        let experts = Experts {
            isa: self.isa,
            spec,
            gate: Projection::new(weights.gate, weights.gate_bias),
            up: Projection::new(weights.up, weights.up_bias),
            down: Projection::new(weights.down, weights.down_bias),
        };
        experts.check();
        let hidden = experts.hidden();
        assert!(x.width() == hidden && out.width() == hidden);
        let rows = (out.rows_mut(n), x.rows(n));
        experts.run(&self.pool, &mut self.experts, rows, preference);
    }
}

impl Backend for CpuBackend {
    type Buffer = CpuBuffer;
    type Weight = CpuWeight;
    type Kv = CpuKv;

    fn describe(&self) -> String {
        let threads = self.pool.threads();
        let plural = if threads == 1 { "" } else { "s" };
        let weights = match self.weights {
            WeightForm::LaidOut => "",
            WeightForm::ExpertsInFile => ", experts stay in the file",
            WeightForm::InFile => ", weights stay in the file",
            WeightForm::Reference => ", reference arithmetic",
        };
        format!("cpu: {threads} thread{plural}, {}{weights}", self.isa)
    }

    fn row_granule(&self) -> u32 {
        if self.isa.has_tiles() {
            TILE_ROWS as u32
        } else {
            1
        }
    }

    fn buffer(&mut self, max_rows: usize, width: usize) -> Result<CpuBuffer, ComputeError> {
        CpuBuffer::new(max_rows, width)
    }

    fn weight(&mut self, tensor: &Tensor<'_>) -> Result<CpuWeight, ComputeError> {
        let form = match self.weights {
            WeightForm::ExpertsInFile => WeightForm::LaidOut,
            form => form,
        };
        CpuWeight::load((&self.pool, &mut self.arena), tensor, form)
    }

    fn expert_weight(&mut self, tensor: &Tensor<'_>) -> Result<CpuWeight, ComputeError> {
        let form = match self.weights {
            WeightForm::ExpertsInFile => WeightForm::InFile,
            form => form,
        };
        CpuWeight::load((&self.pool, &mut self.arena), tensor, form)
    }

    fn kv(&mut self, shape: &KvShape, blocks: usize) -> Result<CpuKv, ComputeError> {
        CpuKv::new((self.kv_type, self.isa), shape, blocks)
    }

    fn kv_block_bytes(&self, shape: &KvShape) -> u64 {
        kv::block_bytes(self.kv_type, shape)
    }

    fn kv_format(&self, _: &KvShape) -> String {
        let reference = if self.weights == WeightForm::Reference {
            ", reference"
        } else {
            ""
        };
        let elements = kv::format(self.kv_type, self.isa);
        format!("{elements}, {}{reference}", self.isa)
    }

    fn kv_read(&self, kv: &CpuKv, block: u32, out: &mut [u8]) {
        out.copy_from_slice(kv.block(block));
    }

    fn kv_write_block(&mut self, kv: &mut CpuKv, block: u32, bytes: &[u8]) {
        kv.block_mut(block).copy_from_slice(bytes);
    }

    fn embed(&mut self, out: &mut CpuBuffer, table: &CpuWeight, tokens: &[u32], scale: f32) {
        let (isa, table, width) = (self.isa, table.matrix(), out.width());
        let rows = out.rows_mut(tokens.len());
        self.pool
            .for_rows(rows, width, grain(width), &|first, rows| {
                for (row, &token) in rows.chunks_exact_mut(width).zip(&tokens[first..]) {
                    table.dequantize_row(token as usize, row);
                    dispatch(
                        isa,
                        Scale {
                            x: row,
                            factor: scale,
                        },
                    );
                }
            });
    }

    fn rms_norm(
        &mut self,
        out: &mut CpuBuffer,
        x: &CpuBuffer,
        weight: &CpuWeight,
        eps: f32,
        n: usize,
    ) {
        let (isa, width, weight) = (self.isa, out.width(), weight.vector());
        assert!(x.width() == width && weight.len() == width);
        let x = x.rows(n);
        self.pool
            .for_rows(out.rows_mut(n), width, grain(width), &|first, out| {
                for (out, x) in out
                    .chunks_exact_mut(width)
                    .zip(x[first * width..].chunks_exact(width))
                {
                    dispatch(
                        isa,
                        RmsNorm {
                            out,
                            x,
                            weight,
                            eps,
                        },
                    );
                }
            });
    }

    fn add_rms_norm(
        &mut self,
        out: &mut CpuBuffer,
        residual: &mut CpuBuffer,
        delta: &CpuBuffer,
        weight: &CpuWeight,
        eps: f32,
        n: usize,
    ) {
        let (isa, width, weight) = (self.isa, out.width(), weight.vector());
        assert!(residual.width() == width && delta.width() == width && weight.len() == width);
        let delta = delta.rows(n);
        for_row_pairs(
            &self.pool,
            (out.rows_mut(n), residual.rows_mut(n)),
            width,
            &|first, outs, residuals| {
                let deltas = delta[first * width..].chunks_exact(width);
                let rows = outs
                    .chunks_exact_mut(width)
                    .zip(residuals.chunks_exact_mut(width));
                for ((out, residual), delta) in rows.zip(deltas) {
                    dispatch(
                        isa,
                        Add {
                            x: residual,
                            y: delta,
                        },
                    );
                    dispatch(
                        isa,
                        RmsNorm {
                            out,
                            x: residual,
                            weight,
                            eps,
                        },
                    );
                }
            },
        );
    }

    fn rms_norm_heads(&mut self, x: &mut CpuBuffer, weight: &CpuWeight, eps: f32, n: usize) {
        let (isa, width, weight) = (self.isa, x.width(), weight.vector());
        assert!(width.is_multiple_of(weight.len()));
        self.pool
            .for_rows(x.rows_mut(n), width, grain(width), &|_, x| {
                dispatch(isa, RmsNormHeads { x, weight, eps });
            });
    }

    fn matmul(&mut self, outs: &mut [(&CpuWeight, &mut CpuBuffer)], x: &CpuBuffer, n: usize) {
        let mut outs: SmallVec<[(&Matrix, &mut [f32]); TOGETHER]> = outs
            .iter_mut()
            .map(|(weight, out)| {
                let matrix = weight.matrix();
                assert!(matrix.rows() == out.width() && matrix.cols() == x.width());
                (matrix, out.rows_mut(n))
            })
            .collect();
        matmul::matmul(
            &self.pool,
            self.isa,
            &mut self.products,
            &mut outs,
            x.rows(n),
        );
    }

    fn add_bias(&mut self, x: &mut CpuBuffer, bias: &CpuWeight, n: usize) {
        let (isa, width, bias) = (self.isa, x.width(), bias.vector());
        assert!(bias.len() == width);
        self.pool
            .for_rows(x.rows_mut(n), width, grain(width), &|_, rows| {
                for x in rows.chunks_exact_mut(width) {
                    dispatch(isa, Add { x, y: bias });
                }
            });
    }

    fn rope(&mut self, x: &mut CpuBuffer, positions: &[u32], rope: &RopeTable) {
        let (isa, width, rotary_dim) = (self.isa, x.width(), rope.rotary_dim());
        assert!(width.is_multiple_of(rope.head_dim()));
        if rotary_dim == 0 {
            return;
        }
        let angles = self.angles.of(rope, positions, &self.pool);
        self.pool.for_rows(
            x.rows_mut(positions.len()),
            width,
            grain(width),
            &|first, rows| {
                let angles = angles.chunks_exact(2 * rotary_dim).skip(first);
                for (row, angles) in rows.chunks_exact_mut(width).zip(angles) {
                    rotation::turn(isa, rope, angles, row);
                }
            },
        );
    }

    fn kv_write(
        &mut self,
        kv: &mut CpuKv,
        layer: usize,
        k: &CpuBuffer,
        v: &CpuBuffer,
        slots: &[u32],
    ) {
        let rows = (k.rows(slots.len()), v.rows(slots.len()));
        with_blocks!(&mut kv.0, blocks => blocks.write(self.isa, layer, rows, slots));
    }

    fn attention(
        &mut self,
        out: &mut CpuBuffer,
        q: &CpuBuffer,
        kv: &CpuKv,
        layer: usize,
        spec: &AttentionSpec,
        sinks: Option<&CpuWeight>,
        batch: &Batch,
    ) {
        assert!(out.width() == spec.heads * spec.head_dim && q.width() == out.width());
        let (out, queries) = (out.rows_mut(batch.len()), q.rows(batch.len()));
        let sinks = sinks.map(CpuWeight::vector);
        assert!(sinks.is_none_or(|sinks| sinks.len() == spec.heads));
        let spec = (spec, sinks);
        with_blocks!(&kv.0, blocks => self.attend((blocks, layer), (out, queries), spec, batch));
    }

    fn act_mul(&mut self, gate: &mut CpuBuffer, up: &CpuBuffer, act: Activation, n: usize) {
        let (isa, width) = (self.isa, gate.width());
        assert!(up.width() == width);
        let up = up.rows(n);
        self.pool.for_rows(
            gate.rows_mut(n),
            width,
            grain(width).div_ceil(4),
            &|first, gate| {
                dispatch(
                    isa,
                    ActMul {
                        up: &up[first * width..][..gate.len()],
                        gate,
                        act,
                    },
                );
            },
        );
    }

    fn experts(
        &mut self,
        out: &mut CpuBuffer,
        x: &CpuBuffer,
        router: &CpuBuffer,
        weights: &ExpertWeights<'_, CpuWeight>,
        spec: &ExpertsSpec,
        n: usize,
    ) {
        assert!(router.width() == spec.experts);
        let preference = Preference::Logits(router.rows(n));
        self.mix_experts((out, x, n), weights, spec, preference);
    }

    fn add(&mut self, x: &mut CpuBuffer, y: &CpuBuffer, n: usize) {
        let (isa, width) = (self.isa, x.width());
        assert!(y.width() == width);
        let y = y.rows(n);
        self.pool
            .for_rows(x.rows_mut(n), width, grain(width), &|first, x| {
                dispatch(
                    isa,
                    Add {
                        y: &y[first * width..][..x.len()],
                        x,
                    },
                );
            });
    }

    fn scale(&mut self, x: &mut CpuBuffer, factor: f32, n: usize) {
        let (isa, width) = (self.isa, x.width());
        self.pool
            .for_rows(x.rows_mut(n), width, grain(width), &|_, x| {
                dispatch(isa, Scale { x, factor });
            });
    }

    fn select_rows(&mut self, out: &mut CpuBuffer, x: &CpuBuffer, rows: &[u32]) {
        let width = out.width();
        assert!(x.width() == width);
        for (out, &row) in out.rows_mut(rows.len()).chunks_exact_mut(width).zip(rows) {
            out.copy_from_slice(x.row(row as usize));
        }
    }

    fn read<'a>(&'a mut self, x: &'a CpuBuffer, n: usize) -> Result<&'a [f32], ComputeError> {
        Ok(x.rows(n))
    }
}

impl CpuBackend {
    fn attend<E: Element>(
        &mut self,
        (kv, layer): (&Blocks<E>, usize),
        (out, queries): (&mut [f32], &[f32]),
        (spec, sinks): (&AttentionSpec, Option<&[f32]>),
        batch: &Batch,
    ) {
        let shape = kv.shape();
        assert!(shape.kv_heads == spec.kv_heads && shape.head_dim == spec.head_dim);
        assert!(spec.heads.is_multiple_of(spec.kv_heads));
        let attention = Attention {
            isa: self.isa,
            kv,
            layer,
            spec,
            sinks,
            batch,
            queries,
        };
        attention.run(out, &self.pool, &mut self.attention);
    }
}

/// What [`for_row_pairs`] runs: the first row's number, and the rows of both matrices.
type PairJob<'a> = &'a (dyn Fn(usize, &mut [f32], &mut [f32]) + Sync);

/// [`Pool::for_rows`] for two matrices of the same shape, cut at the same rows.
fn for_row_pairs(pool: &Pool, (a, b): (&mut [f32], &mut [f32]), width: usize, job: PairJob<'_>) {
    let rows = a.len() / width;
    let run = rows.div_ceil(pool.runs()).max(grain(width));
    if rows <= run || pool.threads() == 1 {
        return job(0, a, b);
    }
    let (a, b) = (Runs::new(a, run * width), Runs::new(b, run * width));
    pool.for_each(a.count(), 1, &|index| {
        job(index * run, a.take(index), b.take(index));
    });
}
