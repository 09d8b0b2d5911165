//! GGUF model files: metadata, tensor directory, split files, block formats.
//!
//! Knows: the bytes of a GGUF file (versions 2 and 3, little-endian), how a model is cut into
//! several files, and the layout and reference arithmetic of every block format; those definitions
//! are what fast kernels elsewhere are checked against. Does not know: what a metadata key means to
//! a model or tokenizer, how to multiply, where tensors end up.
//!
//! Sources of the format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md> and
//! `ggml/src/ggml-quants.c` of the same repository.

mod bytes;
mod error;
mod file;
mod format;
mod head;
mod metadata;
mod mmap;
mod part;
pub mod quant;
mod reader;
mod split;
mod tensor;
mod value;
mod writer;

pub use bytes::Kept;
pub use error::{Error, Fault, Malformed, Place};
pub use file::GgufFile;
pub use format::Format;
pub use head::GgufHead;
pub use metadata::Metadata;
pub use split::PartName;
pub use tensor::Tensor;
pub use value::{Array, Strings, Value, ValueType};
pub use writer::GgufWriter;
