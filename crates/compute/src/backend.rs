//! The op vocabulary: what a model asks of a machine.

use crate::{Batch, ComputeError, RopeTable};
use andante_gguf::Tensor;

/// A machine that runs language models: about twenty operations over opaque buffers.
///
/// Buffers hold `f32` rows, `[max_rows, width]`, and are made at load. Ops enqueue in order and never block;
/// only [`Backend::read`] waits. `n` is the number of rows an op works on, at most the buffers' `max_rows`.
///
/// **Rows are independent, bit for bit:** what an op computes for a row depends on that row (for attention: on that
/// row's sequence) alone, not on the other rows of the call, the number of threads, or where KV blocks lie.
///
/// Widths, head counts and row counts that do not fit together are bugs of the caller and panic.
#[expect(
    clippy::too_many_arguments,
    reason = "an op names every buffer it reads and writes"
)]
pub trait Backend: Send + 'static {
    /// Activations: `f32` `[max_rows, width]`.
    type Buffer: Send;
    /// A matrix `[rows (outputs), cols (inputs)]`, quantised or dense, or a vector (one row).
    type Weight: Send;
    /// Keys and values of all layers, in blocks of tokens.
    type Kv: Send;

    /// The machine in words, for people: `cpu: 2 threads, avx512-vnni`.
    fn describe(&self) -> String;

    /// Rows that products compute together, where a part of them costs nearly what all do; 1 where every row counts.
    fn row_granule(&self) -> u32 {
        1
    }

    /// A buffer of zeros.
    ///
    /// # Errors
    /// [`ComputeError::OutOfMemory`].
    fn buffer(&mut self, max_rows: usize, width: usize) -> Result<Self::Buffer, ComputeError>;

    /// Takes over a tensor of a model file: `cols` = its contiguous dimension, `rows` = the product of the others.
    ///
    /// # Errors
    /// A format or shape this backend cannot compute with, or too little memory.
    fn weight(&mut self, tensor: &Tensor<'_>) -> Result<Self::Weight, ComputeError>;

    /// [`Self::weight`] of a matrix of all experts, of which a step reads only those that its rows chose: it may be kept elsewhere.
    ///
    /// # Errors
    /// Those of [`Self::weight`].
    fn expert_weight(&mut self, tensor: &Tensor<'_>) -> Result<Self::Weight, ComputeError> {
        self.weight(tensor)
    }

    /// A KV cache of `blocks` blocks.
    ///
    /// # Errors
    /// A shape this backend cannot hold, or too little memory.
    fn kv(&mut self, shape: &KvShape, blocks: usize) -> Result<Self::Kv, ComputeError>;

    /// Bytes that one block of such a cache takes here, all layers, keys and values.
    fn kv_block_bytes(&self, shape: &KvShape) -> u64;

    /// What the bytes of a block mean here, beside the shape: number format, layout, and the arithmetic they were made
    /// with, as far as it decides their bits. `f16 pairs, avx512-vnni+amx`.
    fn kv_format(&self, shape: &KvShape) -> String;

    /// Copies a block, keys and values of all layers, into `out`, [`Backend::kv_block_bytes`] long; waits for what was
    /// enqueued. The bytes mean something only to backends of the same [`Backend::kv_format`].
    fn kv_read(&self, kv: &Self::Kv, block: u32, out: &mut [u8]);

    /// Makes a block what [`Backend::kv_read`] gave, wherever that block was.
    fn kv_write_block(&mut self, kv: &mut Self::Kv, block: u32, bytes: &[u8]);

    /// `out[r] = table[tokens[r]] * scale`; one row per token.
    fn embed(&mut self, out: &mut Self::Buffer, table: &Self::Weight, tokens: &[u32], scale: f32);

    /// `out[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight`.
    fn rms_norm(
        &mut self,
        out: &mut Self::Buffer,
        x: &Self::Buffer,
        weight: &Self::Weight,
        eps: f32,
        n: usize,
    );

    /// `residual[r] += delta[r]`, then `out[r]` = the RMS norm of `residual[r]`, as in [`Backend::rms_norm`].
    fn add_rms_norm(
        &mut self,
        out: &mut Self::Buffer,
        residual: &mut Self::Buffer,
        delta: &Self::Buffer,
        weight: &Self::Weight,
        eps: f32,
        n: usize,
    );

    /// RMS norm in place, of each head on its own: `weight` has `head_dim` values, a row of `x` whole heads.
    fn rms_norm_heads(&mut self, x: &mut Self::Buffer, weight: &Self::Weight, eps: f32, n: usize);

    /// `outs[i].1[r] = outs[i].0 · x[r]` for every `i`: several matrices share the work done on `x`.
    fn matmul(
        &mut self,
        outs: &mut [(&Self::Weight, &mut Self::Buffer)],
        x: &Self::Buffer,
        n: usize,
    );

    /// `x[r] += bias`.
    fn add_bias(&mut self, x: &mut Self::Buffer, bias: &Self::Weight, n: usize);

    /// Turns every head of row `r` for `positions[r]`, in place; a row of `x` is whole heads of `rope.head_dim()`.
    fn rope(&mut self, x: &mut Self::Buffer, positions: &[u32], rope: &RopeTable);

    /// Stores keys and values of one layer, each row `[kv_heads, head_dim]`: row `r` goes to slot `slots[r]` =
    /// `block * block_tokens + offset`. Slots are distinct.
    fn kv_write(
        &mut self,
        kv: &mut Self::Kv,
        layer: usize,
        k: &Self::Buffer,
        v: &Self::Buffer,
        slots: &[u32],
    );

    /// Causal attention of all rows of `batch` over their sequences' blocks, which already hold the rows' own keys
    /// and values: `out` and `q` are `[rows, heads, head_dim]`; query head `h` reads KV head
    /// `h / (heads / kv_heads)`; row at position `p` sees positions `p - window + 1 ..= p` (all when no window).
    ///
    /// `sinks`, `[heads]`: one more logit for each head, which takes its share of the softmax and adds no value
    /// (gpt-oss; it is not scaled).
    fn attention(
        &mut self,
        out: &mut Self::Buffer,
        q: &Self::Buffer,
        kv: &Self::Kv,
        layer: usize,
        spec: &AttentionSpec,
        sinks: Option<&Self::Weight>,
        batch: &Batch,
    );

    /// `gate[r] = act(gate[r], up[r])`, element by element.
    fn act_mul(&mut self, gate: &mut Self::Buffer, up: &Self::Buffer, act: Activation, n: usize);

    /// A mixture-of-experts feed-forward layer, `hidden` to `hidden`. `router` holds each row's logits, `[experts]`.
    /// A row takes the [`ExpertsSpec::chosen`] experts with the largest logits (of equal ones the first), and
    ///
    /// ```text
    /// out[r] = sum over its experts e of weight[e] * (down[e] · act(gate[e] · x[r], up[e] · x[r]))
    /// ```
    ///
    /// with each product's bias where there is one; the weights are a softmax
    /// over the chosen experts' logits (a softmax over all, divided by the sum over the chosen, is the same). The sum begins with the largest logit.
    /// Other experts' matrices are not read.
    fn experts(
        &mut self,
        out: &mut Self::Buffer,
        x: &Self::Buffer,
        router: &Self::Buffer,
        weights: &ExpertWeights<'_, Self::Weight>,
        spec: &ExpertsSpec,
        n: usize,
    );

    /// `x[r] += y[r]`.
    fn add(&mut self, x: &mut Self::Buffer, y: &Self::Buffer, n: usize);

    /// `x[r] *= factor`.
    fn scale(&mut self, x: &mut Self::Buffer, factor: f32, n: usize);

    /// `out[i] = x[rows[i]]`.
    fn select_rows(&mut self, out: &mut Self::Buffer, x: &Self::Buffer, rows: &[u32]);

    /// Waits for everything enqueued and returns the first `n` rows, `[n, width]`.
    ///
    /// # Errors
    /// When the device failed; the results of this step are lost.
    fn read<'a>(&'a mut self, x: &'a Self::Buffer, n: usize) -> Result<&'a [f32], ComputeError>;
}

/// The shape of a KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvShape {
    /// Layers that keep keys and values.
    pub layers: usize,
    /// Key/value heads per layer.
    pub kv_heads: usize,
    /// Values per head.
    pub head_dim: usize,
    /// Tokens per block: [`BLOCK_TOKENS`].
    pub block_tokens: usize,
}

/// Tokens in a block of [`Backend::Kv`], so that a block means the same to the attention kernels of every backend (32 keys of 16
/// bits are one cache line). A model that keeps compressed rows has blocks of a multiple of it, of whole rows of every layer.
pub const BLOCK_TOKENS: usize = 32;

/// How attention is done in a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionSpec {
    /// Query heads, a multiple of `kv_heads`.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Values per head.
    pub head_dim: usize,
    /// Multiplies `q · k` before the softmax; usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Sliding window in tokens, the row's own included; all positions when `None`.
    pub window: Option<u32>,
}

/// The activation of a gated feed-forward layer, a function of gate `g` and up `u`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    /// `silu(g) * u` with `silu(x) = x * sigmoid(x)`.
    Silu,
    /// `gelu(g) * u` with GELU in its tanh form: `x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`.
    GeluTanh,
    /// gpt-oss's: `g * sigmoid(1.702 g) * (u + 1)`, `g` being cut off above 7 and `u` outside `-7..=7`.
    ClampedSwiglu,
    /// `silu(min(g, limit)) * min(max(u, -limit), limit)` (DeepSeek V4).
    SiluBelow(f32),
}

/// The shape of a mixture-of-experts layer, and how rows choose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpertsSpec {
    /// Experts of the layer.
    pub experts: usize,
    /// Experts that work on a row.
    pub chosen: usize,
    /// The activation inside each expert.
    pub activation: Activation,
}

/// The weights of a mixture-of-experts layer. A matrix of all experts is a tensor `[cols, rows, experts]`, contiguous
/// dimension first; its bias is a vector, `[experts * rows]`.
#[derive(Debug)]
pub struct ExpertWeights<'a, W> {
    /// Each expert's gate: `[hidden, feed_forward, experts]`.
    pub gate: &'a W,
    /// Each expert's up: `[hidden, feed_forward, experts]`.
    pub up: &'a W,
    /// Each expert's down: `[feed_forward, hidden, experts]`.
    pub down: &'a W,
    /// Added to gate's products.
    pub gate_bias: Option<&'a W>,
    /// Added to up's products.
    pub up_bias: Option<&'a W>,
    /// Added to down's products.
    pub down_bias: Option<&'a W>,
}
