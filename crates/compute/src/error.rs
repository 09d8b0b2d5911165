//! What the world can do to a backend.

/// Why a backend could not be set up or could not finish.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ComputeError {
    /// The memory asked for cannot be had.
    #[error("not enough memory: {what} needs {bytes} bytes")]
    OutOfMemory {
        /// What the memory was for.
        what: &'static str,
        /// Its size in bytes.
        bytes: u64,
    },
    /// A weight is stored in a format this backend cannot compute with.
    #[error("tensor {tensor}: format {format} is not supported by this backend")]
    UnsupportedFormat {
        /// The tensor's name in the file.
        tensor: String,
        /// The format's name.
        format: &'static str,
    },
    /// A weight's shape makes no matrix: a side is zero or too large.
    #[error("tensor {tensor}: {rows} rows of {cols} values make no usable matrix")]
    WeightShape {
        /// The tensor's name in the file.
        tensor: String,
        /// Rows (outputs).
        rows: u64,
        /// Columns (inputs).
        cols: u64,
    },
    /// The rows of each expert cannot be worked on apart.
    #[error(
        "tensor {tensor}: experts of {rows} rows are not supported by this backend, only multiples of {multiple}"
    )]
    ExpertRows {
        /// The tensor's name in the file.
        tensor: String,
        /// Rows (outputs) of each expert.
        rows: u64,
        /// What they have to be a multiple of.
        multiple: u64,
    },
    /// The KV cache's shape is one this backend cannot hold.
    #[error(
        "KV cache of {layers} layers, {kv_heads} heads of {head_dim}, blocks of {block_tokens} tokens \
         is not supported by this backend"
    )]
    KvShape {
        /// Layers.
        layers: usize,
        /// Key/value heads.
        kv_heads: usize,
        /// Values per head.
        head_dim: usize,
        /// Tokens per block.
        block_tokens: usize,
    },
    /// The operating system gave no thread.
    #[error("cannot start a worker thread: {0}")]
    Thread(#[source] std::io::Error),
}
