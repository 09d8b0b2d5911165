//! The ops that DeepSeek V4 asks for beside those of [`Backend`].

use crate::{Backend, Batch, ComputeError, ExpertWeights, ExpertsSpec, RopeTable};

/// A backend that runs DeepSeek V4: hyper-connections, attention over a window and compressed rows, routing by tables.
///
/// What a sequence leaves behind lies in two kinds of [`Deepseek4::Records`]: one record for each KV block, with the compressed
/// rows of its tokens, and one for each sequence in flight ([`Batch::states`]) with its *running state*: the last tokens' rows.
/// Where in a record something lies is the model's choice ([`Region`]).
///
/// **Compressed rows.** Row `c` of ratio `r` stands for the tokens `r c .. r (c + 1)` and lies in the block of the last of them,
/// `e = r (c + 1) - 1`: in block `e / BLOCK_TOKENS` of the sequence's table, as row `e % BLOCK_TOKENS / r` of the region. A ratio
/// divides [`crate::BLOCK_TOKENS`] or is a multiple of it. The token at position `p` sees the rows `c < (p + 1) / r`.
///
/// Formulas: Hugging Face transformers, `models/deepseek_v4`. The rules of [`Backend`] hold here too: rows are independent bit for
/// bit, and what does not fit together panics.
#[expect(
    clippy::too_many_arguments,
    reason = "an op names every buffer it reads and writes"
)]
pub trait Deepseek4: Backend {
    /// Values `[records, len]`, kept from step to step.
    type Records: Send;
    /// Numbers of rows or experts: `u32` `[max_rows, width]`.
    type Choices: Send;

    /// `count` records of `len` values, all 0.
    ///
    /// # Errors
    /// [`ComputeError::OutOfMemory`].
    fn records(
        &mut self,
        count: usize,
        len: usize,
        precision: Precision,
    ) -> Result<Self::Records, ComputeError>;

    /// Bytes of one record of `len` values.
    fn record_bytes(&self, len: usize, precision: Precision) -> u64;

    /// How values are kept, in words: `f16`.
    fn records_format(&self, precision: Precision) -> &'static str;

    /// Copies a record into `out`, [`Deepseek4::record_bytes`] long; waits for what was enqueued.
    fn records_read(&self, records: &Self::Records, index: u32, out: &mut [u8]);

    /// Makes a record what [`Deepseek4::records_read`] gave.
    fn records_write(&mut self, records: &mut Self::Records, index: u32, bytes: &[u8]);

    /// Makes record `to` a copy of record `from`.
    fn records_copy(&mut self, records: &mut Self::Records, from: u32, to: u32);

    /// Fills a record with zeros.
    fn records_clear(&mut self, records: &mut Self::Records, index: u32);

    /// Room for choices.
    ///
    /// # Errors
    /// [`ComputeError::OutOfMemory`].
    fn choices(&mut self, max_rows: usize, width: usize) -> Result<Self::Choices, ComputeError>;

    /// Waits for everything enqueued and returns the first `n` rows, `[n, width]`.
    ///
    /// # Errors
    /// When the device failed.
    fn read_choices<'a>(
        &'a mut self,
        choices: &'a Self::Choices,
        n: usize,
    ) -> Result<&'a [u32], ComputeError>;

    /// `out[r] = x[r] x[r] …`: as many copies as `out` is wide.
    fn repeat(&mut self, out: &mut Self::Buffer, x: &Self::Buffer, n: usize);

    /// What a block takes from the streams of the residual. `x` is `[n, streams, hidden]`, `out` `[n, hidden]`. `mix` holds, for each
    /// row, the products of a matrix with the whole of `x[r]`, and becomes coefficients: with `m = mix[r] / sqrt(mean(x[r]^2) + norm_eps)`
    ///
    /// ```text
    /// pre[s]     = sigmoid(m[s] scale[0] + base[s]) + eps
    /// post[s]    = 2 sigmoid(m[S + s] scale[1] + base[S + s])
    /// comb[i, j] = (softmax over j of (m[2S + S i + j] scale[2] + base[2S + S i + j])) + eps, its columns normalised, then
    ///              `iterations - 1` times its rows and its columns (divided by their sum + eps)
    /// out[r]     = sum over s of pre[s] x[r, s]
    /// ```
    ///
    /// Where `mix` is `streams` wide instead of `streams * (2 + streams)`, there is only `pre`: the head's way to read the streams.
    fn hyper_in(
        &mut self,
        out: &mut Self::Buffer,
        mix: &mut Self::Buffer,
        x: &Self::Buffer,
        weights: &HyperWeights<'_, Self::Weight>,
        spec: &HyperSpec,
        n: usize,
    );

    /// Gives a block's output to the streams: `x[r, j] = post[j] y[r] + sum over i of comb[i, j] x[r, i]`, with the coefficients that
    /// [`Deepseek4::hyper_in`] left in `mix`.
    fn hyper_out(
        &mut self,
        x: &mut Self::Buffer,
        y: &Self::Buffer,
        mix: &Self::Buffer,
        spec: &HyperSpec,
        n: usize,
    );

    /// Cuts rows into parts, each with a matrix of its own: `out[r, g] = weight[g] · x[r, g]`. `weight` holds the groups' matrices one
    /// below the other; its width is that of a part.
    fn grouped_matmul(
        &mut self,
        out: &mut Self::Buffer,
        weight: &Self::Weight,
        x: &Self::Buffer,
        n: usize,
    );

    /// Writes the compressed rows of the windows of [`CompressSpec::ratio`] tokens that end in this batch, and keeps what later ones
    /// need. For token `t`, `kv` and `gate` hold `[series, width]`, `series` being 2 where windows overlap and 1 otherwise. The row of
    /// window `w` is, channel by channel,
    ///
    /// ```text
    /// row = sum over slots of softmax over slots(gate + ape[t mod ratio]) * kv
    /// ```
    ///
    /// over the window's tokens (of the last series) and, where windows overlap, those of the one before (of the first series; none
    /// for window 0); then its RMS norm with weight, turned for the position of the window's first token.
    ///
    /// `states` are [`Precision::Exact`], here and in [`Deepseek4::window_attention`].
    fn compress(
        &mut self,
        blocks: &mut Self::Records,
        states: &mut Self::Records,
        kv: &Self::Buffer,
        gate: &Self::Buffer,
        weights: &CompressWeights<'_, Self::Weight>,
        spec: &CompressSpec<'_>,
        batch: &Batch,
    );

    /// Whether the backend keeps so few bits of a row that the model is to round rows as it did in training: see [`Rounding`].
    fn rounds_rows(&self) -> bool;

    /// Rounds every head of the first `n` rows, in place.
    fn round_heads(&mut self, x: &mut Self::Buffer, rounding: Rounding, n: usize);

    /// Chooses the compressed rows that attention will see: the [`IndexSpec::top_k`] visible ones of the highest score (of equal ones
    /// the first), in ascending order and then `u32::MAX`. `q` is `[n, heads, width]`, `weights` `[n, heads]`;
    /// `score(row) = sum over h of scale * weights[h] * max(0, q[h] · row)`. `chosen` is `top_k` wide.
    fn index(
        &mut self,
        chosen: &mut Self::Choices,
        q: &Self::Buffer,
        weights: &Self::Buffer,
        blocks: &Self::Records,
        spec: &IndexSpec,
        batch: &Batch,
    );

    /// Attention with one key/value head whose values are its keys. A row at position `p` sees the keys of the positions
    /// `p - window + 1 ..= p`, and of the compressed rows all visible ones or, with choices, those alone. `q` and `out` are
    /// `[n, heads, head_dim]`; `k`, `[n, head_dim]`, are the batch's own keys, which afterwards lie in the sequences' states with the
    /// others of the window. `sinks`: as in [`Backend::attention`].
    fn window_attention(
        &mut self,
        out: &mut Self::Buffer,
        q: &Self::Buffer,
        k: &Self::Buffer,
        states: &mut Self::Records,
        compressed: Option<&CompressedRows<'_, Self>>,
        sinks: &Self::Weight,
        spec: &WindowSpec,
        batch: &Batch,
    );

    /// Chooses experts: with `s = sqrt(softplus(logits[r]))`, those that `table` has for the row's token, or else those with the
    /// largest `s + bias` (of equal ones the first), the largest first. Their shares are `s`, divided by the sum of the chosen ones where
    /// [`RouteSpec::normalised`], times [`RouteSpec::scale`].
    fn route(
        &mut self,
        chosen: &mut Self::Choices,
        shares: &mut Self::Buffer,
        logits: &Self::Buffer,
        by: &RouteBy<'_, Self::Weight>,
        spec: &RouteSpec,
        tokens: &[u32],
    );

    /// [`Backend::experts`], the experts of each row and their weights being given.
    fn chosen_experts(
        &mut self,
        out: &mut Self::Buffer,
        x: &Self::Buffer,
        chosen: &Self::Choices,
        shares: &Self::Buffer,
        weights: &ExpertWeights<'_, Self::Weight>,
        spec: &ExpertsSpec,
        n: usize,
    );
}

/// How exactly records keep values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// As they are.
    Exact,
    /// As the backend keeps keys and values, but with at least 16 bits.
    Kv,
}

/// What the model's own inference code does to rows that it keeps, and did in training (`inference/kernel.py` of the model's
/// repository): to and back from formats of few bits. Scales are powers of two, the smallest by which the largest magnitude of
/// their values fits; ties go to the even code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// e4m3 with a scale for 64 values, of the values before the rotary ones; a largest magnitude below 1e-4 counts as that.
    E4m3 {
        /// Values of a head.
        width: usize,
        /// The first of them, which are rounded.
        plain: usize,
    },
    /// A Hadamard transform of the head, whose matrix is orthonormal, then e2m1 with a scale for 32 values.
    HadamardE2m1 {
        /// Values of a head, a power of two.
        width: usize,
    },
}

/// A part of each record: rows of one width, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Values of the record before it.
    pub start: usize,
    /// Rows.
    pub rows: usize,
    /// Values of a row.
    pub width: usize,
}

impl Region {
    /// Values of the record up to its end.
    #[must_use]
    pub fn end(&self) -> usize {
        self.start + self.rows * self.width
    }
}

/// What makes coefficients of a block's products with the streams.
#[derive(Debug)]
pub struct HyperWeights<'a, W> {
    /// One value for each product.
    pub base: &'a W,
    /// One value for each kind of coefficient: 3, or 1.
    pub scale: &'a W,
}

/// The shape of hyper-connections.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HyperSpec {
    /// Streams of the residual, at most [`HyperSpec::MOST_STREAMS`].
    pub streams: usize,
    /// How often the columns of `comb` are normalised, at least once.
    pub iterations: usize,
    /// Added to coefficients and to sums that they are divided by.
    pub eps: f32,
    /// Of the RMS norm.
    pub norm_eps: f32,
}

impl HyperSpec {
    /// More streams than any model has.
    pub const MOST_STREAMS: usize = 16;
}

/// The weights of a compressor.
#[derive(Debug)]
pub struct CompressWeights<'a, W> {
    /// Added to gates: a vector, `[ratio, series, width]`.
    pub ape: &'a W,
    /// The norm of a row: `[width]`.
    pub norm: &'a W,
}

/// The shape of a compressor.
#[derive(Debug, Clone, Copy)]
pub struct CompressSpec<'a> {
    /// Tokens of a window.
    pub ratio: usize,
    /// Whether a row is made of the window before too.
    pub overlap: bool,
    /// Epsilon of the norm.
    pub eps: f32,
    /// How rows turn; of heads as wide as a row.
    pub rope: &'a RopeTable,
    /// How rows are rounded after that.
    pub rounding: Option<Rounding>,
    /// Where rows lie in the record of a block.
    pub rows: Region,
    /// Where the running state keeps `kv` and then `gate` of a token, as a ring: position `p` is row `p % rows`. As many rows as a
    /// compressed row is made of.
    pub tokens: Region,
}

/// The shape of an indexer.
#[derive(Debug, Clone, Copy)]
pub struct IndexSpec {
    /// Tokens of a window.
    pub ratio: usize,
    /// Heads of a query.
    pub heads: usize,
    /// Rows to choose.
    pub top_k: usize,
    /// Factor on the weights.
    pub scale: f32,
    /// Where rows lie in the record of a block.
    pub rows: Region,
}

/// The shape of attention over a window.
#[derive(Debug, Clone, Copy)]
pub struct WindowSpec {
    /// Query heads.
    pub heads: usize,
    /// Multiplies `q · k`.
    pub scale: f32,
    /// Where the running state keeps the window's keys, as a ring: position `p` is row `p % rows`. As many rows as the window has
    /// tokens, the row's own included.
    pub ring: Region,
}

/// Compressed rows that attention sees.
pub struct CompressedRows<'a, B: Deepseek4 + ?Sized> {
    /// The records of the KV blocks.
    pub blocks: &'a B::Records,
    /// Where rows lie in them.
    pub rows: Region,
    /// Tokens of a window.
    pub ratio: usize,
    /// Which of them; all visible ones when `None`.
    pub chosen: Option<&'a B::Choices>,
}

/// How experts are chosen.
#[derive(Debug)]
pub enum RouteBy<'a, W> {
    /// By their scores, to which this is added, `[experts]`.
    Score(&'a W),
    /// By the token: a matrix of expert numbers, `[vocab, chosen]`.
    Table(&'a W),
}

/// What experts' results are multiplied by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RouteSpec {
    /// Whether the shares of a row are divided by their sum.
    pub normalised: bool,
    /// Then multiplied by this.
    pub scale: f32,
}
