//! What can go wrong with a model file or its device.

/// Errors of loading and running a model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file lacks a metadata key or holds another type there.
    #[error(transparent)]
    Gguf(#[from] andante_gguf::Error),
    /// The backend refused or failed.
    #[error(transparent)]
    Compute(#[from] andante_compute::ComputeError),
    /// No row of the architecture table has this name.
    #[error("unknown architecture `{name}` (known: {})", .known.join(", "))]
    UnknownArchitecture {
        /// `general.architecture` of the file.
        name: String,
        /// Every name in the table.
        known: Vec<&'static str>,
    },
    /// A metadata value that cannot be true or that this graph does not cover.
    #[error("metadata `{key}` is {found}, expected {expected}")]
    Metadata {
        /// The key.
        key: String,
        /// The value in the file.
        found: String,
        /// What would be accepted.
        expected: String,
    },
    /// A tensor that the architecture needs.
    #[error("tensor `{name}` is missing")]
    MissingTensor {
        /// The tensor.
        name: String,
    },
    /// A tensor whose shape contradicts the metadata.
    #[error("tensor `{name}` has shape {found:?}, expected {expected:?}")]
    TensorShape {
        /// The tensor.
        name: String,
        /// Shape by the metadata, contiguous dimension first.
        expected: Vec<u64>,
        /// Shape in the file.
        found: Vec<u64>,
    },
    /// A tensor with a value that cannot be true.
    #[error("tensor `{name}` holds {found}, expected {expected}")]
    TensorValue {
        /// The tensor.
        name: String,
        /// What it holds.
        found: String,
        /// What would be accepted.
        expected: String,
    },
    /// A tensor that the graph would ignore: computing without it would silently give other logits.
    #[error("tensor `{name}` has no place in architecture `{architecture}`")]
    UnusedTensor {
        /// The tensor.
        name: String,
        /// `general.architecture` of the file.
        architecture: String,
    },
}
