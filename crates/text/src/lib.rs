//! Text and tokens: tokenizers, chat templates, streaming output.
