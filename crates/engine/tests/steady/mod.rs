//! A model and a vocabulary for programs that watch what the engine asks the system for.

use andante_engine::TextStack;
use andante_gguf::{GgufFile, GgufWriter};
use andante_model::{Batch, KvLayout, Limits, Logits, Model, ModelError, ModelInfo, States};
use andante_text::Tokenizer;

/// The 128 ASCII characters.
const VOCAB: usize = 128;

/// A model that says `a` and asks for no memory, for what the model asks for is counted elsewhere.
pub(crate) struct Steady {
    info: ModelInfo,
    rows: usize,
    logits: Vec<f32>,
    on_forward: Box<dyn FnMut() + Send>,
}

impl Steady {
    /// Does this with every pass.
    pub(crate) fn new(on_forward: impl FnMut() + Send + 'static) -> Self {
        let mut row = [0.0; VOCAB];
        row[usize::from(b'a')] = 20.0;
        Self {
            info: ModelInfo {
                architecture: "steady".into(),
                name: None,
                vocab: VOCAB,
                context: 4096,
                layers: 1,
                hidden: 1,
                heads: 1,
                kv_heads: 1,
                head_dim: 1,
                windows: vec![None],
                parameters: 1,
                weight_bytes: 1,
                backend: String::new(),
                kv_format: String::new(),
                pooling: None,
                row_granule: 1,
            },
            rows: 0,
            logits: row.repeat(64),
            on_forward: Box::new(on_forward),
        }
    }
}

impl Model for Steady {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn kv_layout(&self) -> KvLayout {
        KvLayout {
            block_tokens: 32,
            block_bytes: 1,
            state_bytes: 0,
        }
    }

    fn reserve(&mut self, _: Limits) -> Result<(), ModelError> {
        Ok(())
    }

    fn forward(&mut self, batch: &Batch) -> Result<(), ModelError> {
        (self.on_forward)();
        self.rows = batch.logit_rows.len();
        Ok(())
    }

    fn logits(&mut self) -> Result<Logits<'_>, ModelError> {
        Ok(Logits::new(&self.logits[..self.rows * VOCAB], VOCAB))
    }

    fn states(&mut self) -> Result<States<'_>, ModelError> {
        Ok(States::new(&[], 1))
    }

    fn read_block(&self, _: u32, _: &mut [u8]) {}

    fn write_block(&mut self, _: u32, _: &[u8]) {}

    fn kv_identity(&self) -> [u8; 32] {
        [0; 32]
    }
}

/// A vocabulary of these.
pub(crate) fn text_stack() -> TextStack {
    let tokens: Vec<String> = (0..VOCAB as u32)
        .map(|code| char::from_u32(if code <= 32 { code + 256 } else { code }))
        .map(|character| character.expect("a letter").to_string())
        .collect();
    let file = GgufWriter::new()
        .metadata("tokenizer.ggml.model", "gpt2")
        .metadata("tokenizer.ggml.pre", "default")
        .metadata("tokenizer.ggml.tokens", tokens)
        .metadata("tokenizer.ggml.merges", Vec::<String>::new())
        .metadata("tokenizer.ggml.add_bos_token", false)
        .finish();
    let file = GgufFile::from_bytes(file).expect("a file just written");
    TextStack::new(
        Tokenizer::from_metadata(file.metadata()).expect("a vocabulary"),
        None,
    )
}
