//! The interface between a model and whoever drives it.

use andante_compute::Batch;

use crate::ModelError;

/// A loaded model: weights, KV memory and the graph of one forward pass.
///
/// The order of calls is [`reserve`](Self::reserve) once, then any number of [`forward`](Self::forward), each followed by
/// at most one [`logits`](Self::logits) and one [`states`](Self::states). The logits of a row depend on that row's own sequence only: not on the other rows
/// of the batch, on how a prompt was cut into batches or on which KV blocks it got.
pub trait Model: Send {
    /// What the file says about the model.
    fn info(&self) -> &ModelInfo;

    /// The size of one KV block, known before any memory is taken.
    fn kv_layout(&self) -> KvLayout;

    /// Takes the memory for KV blocks and for the largest batch. Called once, before the first forward pass.
    ///
    /// # Errors
    /// When the backend cannot give that much memory.
    fn reserve(&mut self, limits: Limits) -> Result<(), ModelError>;

    /// Launches one forward pass: writes the keys and values of every row into its slot and computes the logits of
    /// `batch.logit_rows`. May return before the work is done.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Panics
    /// Before `reserve`, when the batch exceeds the reserved limits, or when a token is not in the vocabulary: checking
    /// requests is the caller's work.
    fn forward(&mut self, batch: &Batch) -> Result<(), ModelError>;

    /// Waits for the last forward pass and gives the logits of its `logit_rows`, in their order.
    ///
    /// # Errors
    /// When the device fails.
    fn logits(&mut self) -> Result<Logits<'_>, ModelError>;

    /// The same for the hidden states of its `state_rows`: what the output matrix would be multiplied with, after the last
    /// norm; `[state_rows, hidden]`.
    ///
    /// # Errors
    /// When the device fails.
    fn states(&mut self) -> Result<States<'_>, ModelError>;

    /// Copies one block's keys and values of all layers into `out`: `kv_layout().block_bytes` bytes, opaque, meaningful
    /// only to a model of the same [`kv_identity`](Self::kv_identity). Called between forward passes.
    ///
    /// # Panics
    /// Before `reserve`, for a block beyond the reserved ones, or when `out` has another length.
    fn read_block(&self, block: u32, out: &mut [u8]);

    /// Makes a block what [`read_block`](Self::read_block) gave, of this block or another, here or elsewhere.
    ///
    /// # Panics
    /// As `read_block`.
    fn write_block(&mut self, block: u32, bytes: &[u8]);

    /// Makes the running state in slot `to` a copy of that in slot `from`. A batch names the slot of each of its sequences; a sequence
    /// whose first row is at position 0 begins with an empty state, any other with the one that its slot holds. Called between forward
    /// passes, of a model with `state_bytes` alone, as the next two.
    ///
    /// # Panics
    /// Before `reserve`, for a slot beyond the reserved ones, or when the model has no running state.
    fn copy_state(&mut self, _from: u32, _to: u32) {
        panic!("{NO_STATE}");
    }

    /// Copies a running state into `out`: `kv_layout().state_bytes` bytes, as [`read_block`](Self::read_block) does.
    ///
    /// # Panics
    /// As `copy_state`, and when `out` has another length.
    fn read_state(&self, _slot: u32, _out: &mut [u8]) {
        panic!("{NO_STATE}");
    }

    /// Makes a running state what [`read_state`](Self::read_state) gave.
    ///
    /// # Panics
    /// As `read_state`.
    fn write_state(&mut self, _slot: u32, _bytes: &[u8]) {
        panic!("{NO_STATE}");
    }

    /// Names what decides a block's bytes beside the tokens before its end: the file, the backend's number format and
    /// arithmetic, the version of this program and its sources of arithmetic. Equal identities mean that blocks can be exchanged, bit for bit.
    ///
    /// Of the weights, only the first and last 4 KiB of each tensor are looked at, since reading all would take as long as
    /// reading the file: models that differ elsewhere alone are not told apart.
    fn kv_identity(&self) -> [u8; 32];
}

const NO_STATE: &str = "only asked of a model with running state";

/// Facts about a loaded model, for people and for the limits of requests.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelInfo {
    /// `general.architecture`.
    pub architecture: String,
    /// `general.name`.
    pub name: Option<String>,
    /// Number of token ids; also the width of a row of logits.
    pub vocab: usize,
    /// The context length the model was trained for, in tokens.
    pub context: u32,
    /// Number of layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads of a layer.
    pub heads: usize,
    /// Key and value heads of a layer.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// How far back each layer's attention reaches, in tokens; `None` is to the beginning.
    pub windows: Vec<Option<u32>>,
    /// Number of weights, a tied output matrix counted once.
    pub parameters: u64,
    /// Bytes of all weights as stored in the file.
    pub weight_bytes: u64,
    /// The backend's description of itself.
    pub backend: String,
    /// How the backend stores keys and values: `f16 pairs, avx512-vnni+amx`.
    pub kv_format: String,
    /// How the model wants a text's hidden states made one, if it was trained for that.
    pub pooling: Option<Pooling>,
    /// Rows of a batch that the backend computes together: see `Backend::row_granule`.
    pub row_granule: u32,
}

/// How the hidden states of a text become one. The first token's ("CLS") is none of them: in a model that looks back only, it knows
/// nothing of the text behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The last token's.
    Last,
}

/// The shape of KV memory as the scheduler sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayout {
    /// Tokens in one block.
    pub block_tokens: u32,
    /// Bytes of one block over all layers.
    pub block_bytes: u64,
    /// Bytes of running state per sequence beside the blocks: what a sequence needs to go on and its blocks do not hold. 0 when any
    /// block boundary is a reusable prefix; else those alone are where a checkpoint of the state was kept.
    pub state_bytes: u64,
}

/// The most that one forward pass may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// KV blocks.
    pub blocks: u32,
    /// Rows of a batch.
    pub batch_tokens: u32,
    /// Rows of a batch that need logits.
    pub logit_rows: u32,
    /// Rows of a batch whose hidden states are wanted.
    pub state_rows: u32,
    /// Slots for the running states of sequences and their checkpoints; 0 for a model that has none.
    pub running_states: u32,
}

/// Hidden states of one forward pass: `[rows, hidden]`, row-major.
#[derive(Debug, Clone, Copy)]
pub struct States<'a>(Logits<'a>);

impl<'a> States<'a> {
    /// Wraps `[rows, hidden]` values.
    ///
    /// # Panics
    /// When `values` is not a whole number of rows.
    #[must_use]
    pub fn new(values: &'a [f32], hidden: usize) -> Self {
        Self(Logits::new(values, hidden))
    }

    /// The state of the `i`-th wanted row: `[hidden]`.
    #[must_use]
    pub fn row(&self, i: usize) -> &'a [f32] {
        self.0.row(i)
    }
}

/// Logits of one forward pass: `[rows, vocab]`, row-major.
#[derive(Debug, Clone, Copy)]
pub struct Logits<'a> {
    values: &'a [f32],
    vocab: usize,
}

impl<'a> Logits<'a> {
    /// Wraps `[rows, vocab]` values.
    ///
    /// # Panics
    /// When `values` is not a whole number of rows.
    #[must_use]
    pub fn new(values: &'a [f32], vocab: usize) -> Self {
        assert!(vocab > 0 && values.len().is_multiple_of(vocab));
        Self { values, vocab }
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.values.len() / self.vocab
    }

    /// The logits of the `i`-th wanted row: `[vocab]`.
    #[must_use]
    pub fn row(&self, i: usize) -> &'a [f32] {
        &self.values[i * self.vocab..(i + 1) * self.vocab]
    }
}
