//! Model graphs built from GGUF files.
