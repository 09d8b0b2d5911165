//! What a step of the engine asks the system for is what it hands to clients, and no more: an event of a token owns its text.
//!
//! A program of its own, with one test: the count is of the whole process.

#[path = "../../model/tests/tiny/counting.rs"]
mod counting;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use andante_engine::{
    Engine, EngineConfig, EventStream, Progress, PromptInput, Sampling, SystemClock, TextStack,
};
use andante_gguf::{GgufFile, GgufWriter};
use andante_model::{Batch, KvLayout, Limits, Logits, Model, ModelError, ModelInfo, States};
use andante_text::Tokenizer;
use counting::ALLOCATIONS;

/// The 128 ASCII characters.
const VOCAB: usize = 128;

/// A model that says `a` and asks for no memory, for what the model asks for is counted elsewhere.
struct Steady {
    info: ModelInfo,
    rows: usize,
    logits: Vec<f32>,
}

impl Steady {
    fn new() -> Self {
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

fn text_stack() -> TextStack {
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

#[test]
fn a_step_allocates_what_it_says_and_no_more() {
    const SEQUENCES: u32 = 16;
    let config = EngineConfig {
        sessions: SEQUENCES,
        context: 2048,
        ..EngineConfig::default()
    };
    let clock = Arc::new(SystemClock::new());
    let (mut engine, handle) =
        Engine::new(Box::new(Steady::new()), text_stack(), &config, clock).expect("an engine");
    let mut streams: Vec<EventStream> = (0..SEQUENCES)
        .map(|_| {
            let request = handle
                .prepare_text(PromptInput::Text("go".into()), Sampling::default())
                .expect("a request");
            handle.submit(request).expect("room")
        })
        .collect();
    let mut step = || {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        assert!(matches!(engine.step(), Ok(Progress::Stepped)));
        let count = ALLOCATIONS.load(Ordering::Relaxed) - before;
        for stream in &mut streams {
            while stream.try_recv().is_some() {}
        }
        count
    };
    // What remembers the whole answer doubles its memory now and then, next after 256 tokens.
    for _ in 0..140 {
        step();
    }
    // The text of a token, and the list of parts that it is in.
    let told = 2 * SEQUENCES as usize;
    for _ in 0..100 {
        assert_eq!(step(), told);
    }
}
