//! GGUF files: metadata, tensors and block formats.
