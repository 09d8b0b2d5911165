//! The ops that DeepSeek V4 asks for beside those of [`Backend`].

use crate::{Backend, Batch, ComputeError, ExpertWeights, ExpertsSpec, RopeTable};

/// A backend that runs DeepSeek V4: hyper-connections, attention over a window and compressed rows, routing by tables.
///
/// What a sequence leaves behind lies in two kinds of [`Deepseek4::Records`]: one record for each KV block, with the compressed
/// rows of its tokens, and one for each sequence in flight ([`Batch::states`]) with its *running state*: the last tokens' rows.
/// Where in a record something lies is the model's choice ([`Region`]).
///
/// **Compressed rows.** Row `c` of ratio `r` stands for the tokens `r c .. r (c + 1)`. A block of the model holds as many tokens as
/// make whole rows of every ratio, so that row `c` lies in block `c / rows` of the sequence's table, as row `c % rows` of the
/// region, `rows` being the region's. The token at position `p` sees the rows `c < (p + 1) / r`.
///
/// Formulas: Hugging Face transformers, `models/deepseek_v4`. The rules of [`Backend`] hold here too: rows are independent bit for
/// bit, and what does not fit together panics.
#[expect(
    clippy::too_many_arguments,
    reason = "an op names every buffer it reads and writes"
)]
pub trait Deepseek4: Backend {
    /// Bytes `[records, len]`, kept from step to step.
    type Records: Send;
    /// Numbers of rows or experts: `u32` `[max_rows, width]`.
    type Choices: Send;

    /// How this backend keeps rows of `width` values.
    fn kept(&self, row: Row, width: usize) -> Kept;

    /// `count` records of `len` bytes, a multiple of 4, all 0; they take room only where they are written.
    ///
    /// # Errors
    /// [`ComputeError::OutOfMemory`].
    fn records(&mut self, count: usize, len: usize) -> Result<Self::Records, ComputeError>;

    /// Copies a record into `out`; waits for what was enqueued.
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
    /// [`CompressSpec::tokens`] are kept as [`Kept::F32`].
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

    /// Makes every head of the first `n` rows, `width` wide, what is kept of it.
    fn keep_heads(&mut self, x: &mut Self::Buffer, width: usize, kept: Kept, n: usize);

    /// Chooses the compressed rows that attention will see: the [`IndexSpec::top_k`] visible ones of the highest score (of equal ones
    /// the first), in ascending order and then `u32::MAX`. `q` is `[n, heads, width]`, `weights` `[n, heads]`;
    /// `score(row) = sum over h of scale * weights[h] * max(0, q[h] · row)`. `chosen` is `top_k` wide. Where rows are transformed
    /// ([`Kept::HadamardE2m1`]), `q` is too.
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
    /// others of the window. They are what the ring keeps of them ([`Deepseek4::keep_heads`]): else it would matter how a prompt is
    /// cut. `sinks`: as in [`Backend::attention`].
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

/// What a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// Of a running state, to go on computing with.
    State,
    /// A key, compressed or of the window, whose values behind the first `plain` turn.
    Key {
        /// Values that do not turn.
        plain: usize,
    },
    /// A compressed row of the indexer.
    Index,
}

/// How rows are kept.
///
/// The formats of 8 and 4 bits round as the model's own inference code does, and did in training (`inference/kernel.py` of the
/// model's repository): a scale is the smallest power of two by which the largest magnitude of its values fits, and is stored
/// as its exponent, biased by 127; ties go to the even code. What is kept of a row is kept again without a loss, but for the transform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// As they are.
    F32,
    /// In half precision.
    F16,
    /// The first `plain` values as e4m3, the others as bfloat16, then a scale for each 64 of the first, then zeros up to a
    /// multiple of 8 bytes: 584 for 512 values of which 448 are plain. A largest magnitude below 1e-4 counts as that.
    E4m3 {
        /// Values in e4m3.
        plain: usize,
    },
    /// The row's Hadamard transform, whose matrix is orthonormal, as e2m1, two in a byte with the first in the low bits, then a
    /// scale for each 32: 68 bytes for 128 values. The width is a power of two, at least 32.
    HadamardE2m1,
}

impl Kept {
    /// Values of e4m3 that share a scale.
    pub(crate) const E4M3_VALUES: usize = 64;
    /// Values of e2m1 that share a scale.
    pub(crate) const E2M1_VALUES: usize = 32;

    /// In half precision, but states.
    #[must_use]
    pub fn half(row: Row) -> Self {
        match row {
            Row::State => Self::F32,
            Row::Key { .. } | Row::Index => Self::F16,
        }
    }

    /// In as few bits as the model was trained for, but states.
    #[must_use]
    pub fn compact(row: Row, width: usize) -> Self {
        match row {
            Row::Key { plain } => Self::E4m3 { plain },
            Row::Index if width.is_power_of_two() && width >= Self::E2M1_VALUES => {
                Self::HadamardE2m1
            }
            Row::Index | Row::State => Self::half(row),
        }
    }

    /// Bytes of a row of `width` values.
    #[must_use]
    pub fn row_bytes(self, width: usize) -> usize {
        match self {
            Self::F32 => 4 * width,
            Self::F16 => 2 * width,
            Self::E4m3 { plain } => {
                let scales = plain.div_ceil(Self::E4M3_VALUES);
                (plain + 2 * (width - plain) + scales).next_multiple_of(8)
            }
            Self::HadamardE2m1 => width / 2 + width / Self::E2M1_VALUES,
        }
    }

    /// In words: `f16`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::E4m3 { .. } => "e4m3",
            Self::HadamardE2m1 => "hadamard e2m1",
        }
    }
}

/// A part of each record: rows of one width, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Bytes of the record before it, a multiple of 4.
    pub start: usize,
    /// Rows.
    pub rows: usize,
    /// Values of a row.
    pub width: usize,
    /// How they are kept.
    pub kept: Kept,
}

impl Region {
    /// Bytes of the record up to its end.
    #[must_use]
    pub fn end(&self) -> usize {
        self.start + self.rows * self.kept.row_bytes(self.width)
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
