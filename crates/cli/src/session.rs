//! A model with its engine: what `serve` and `run` start and end.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use andante_engine::{EngineConfig, EngineHandle, EngineThread, Shutdown, TextStack};
use andante_gguf::GgufFile;
use andante_server::FormatShare;
use andante_text::{ChatTemplate, Choices, Dialect, Prose, Tokenizer};
use anyhow::{Context, Result};

use crate::args::{EngineArgs, MaxStall, ModelArgs};
use crate::backend::{self, Precision};
use crate::objects::Place;

/// The longest context that is reserved unless the user asks for more.
const DEFAULT_CONTEXT: u32 = 8192;

/// The stall bound where the machine is fast enough for it and nothing else is asked for.
const AUTO_STALL_MS: u32 = 100;

/// A running engine.
pub(crate) struct Session {
    pub(crate) handle: EngineHandle,
    /// The model's name for clients.
    pub(crate) name: String,
    /// How long loading the model took.
    pub(crate) load_time: Duration,
    /// Bytes of a block of keys and values.
    pub(crate) kv_block_bytes: u64,
    /// Tokens of one.
    pub(crate) kv_block_tokens: u32,
    /// What the model's tensors are made of.
    pub(crate) formats: Vec<FormatShare>,
    /// Bytes of a sequence's running state; 0 where the model has none.
    pub(crate) state_bytes: u64,
    thread: EngineThread,
}

/// Loads the model and starts its engine, configured by `engine` and then by `change`, its KV kept in `place`. `told` hears how many
/// bytes of how many are loaded.
pub(crate) fn start(
    model: &ModelArgs,
    engine: &EngineArgs,
    place: Option<Place>,
    told: &dyn Fn(u64, u64),
    change: impl FnOnce(&mut EngineConfig),
) -> Result<Session> {
    let (loaded, text) = backend::load_beside(model, Precision::Fast, told, |file| {
        text_stack(file, engine)
    })?;
    let mut config = config(engine, loaded.model.info().context);
    change(&mut config);
    config.secret = place.as_ref().and_then(Place::key);
    let layout = loaded.model.kv_layout();
    let formats = formats(&loaded.file);
    let store = place.map(|place| place.open(&*loaded.model)).transpose()?;
    let (handle, thread) = andante_engine::spawn_with_store(loaded.model, text?, &config, store)
        .context("cannot start the engine")?;
    Ok(Session {
        handle,
        name: loaded.name,
        load_time: loaded.load_time,
        kv_block_bytes: layout.block_bytes,
        kv_block_tokens: layout.block_tokens,
        formats,
        state_bytes: layout.state_bytes,
        thread,
    })
}

/// The largest first.
fn formats(file: &GgufFile) -> Vec<FormatShare> {
    let mut shares: Vec<FormatShare> = Vec::new();
    for tensor in file.tensors() {
        let (name, bytes) = (tensor.format.name(), tensor.data.len() as u64);
        match shares.iter_mut().find(|share| share.format == name) {
            Some(share) => {
                share.tensors += 1;
                share.bytes += bytes;
            }
            None => shares.push(FormatShare {
                format: name.to_owned(),
                tensors: 1,
                bytes,
            }),
        }
    }
    shares.sort_by_key(|share| std::cmp::Reverse(share.bytes));
    shares
}

fn text_stack(file: &GgufFile, args: &EngineArgs) -> Result<TextStack> {
    let metadata = file.metadata();
    let tokenizer =
        Tokenizer::from_metadata(metadata).context("cannot use the file's tokenizer")?;
    let template = match &args.chat_template_file {
        Some(path) => {
            let template = read_template(path, &tokenizer);
            Some(template.with_context(|| format!("cannot use {}", path.display()))?)
        }
        None if args.chat_prose.is_some() || !args.chat_choice.is_empty() => {
            Some(deepseek4(args, &tokenizer)?)
        }
        None => ChatTemplate::from_metadata(metadata, &tokenizer)
            .context("cannot use the file's chat template; --chat-template-file gives another")?,
    };
    let mut text = TextStack::new(tokenizer, template);
    if let Some(name) = &args.dialect {
        let dialect = Dialect::named(name, &text.tokenizer).context("an unknown dialect")?;
        text.dialect = Arc::new(dialect);
    }
    Ok(text)
}

fn read_template(path: &Path, tokenizer: &Tokenizer) -> Result<ChatTemplate> {
    let source = fs::read_to_string(path)?;
    Ok(ChatTemplate::new(&source, tokenizer)?)
}

/// DeepSeek V4's encoding as it is asked for.
fn deepseek4(args: &EngineArgs, tokenizer: &Tokenizer) -> Result<ChatTemplate> {
    let prose = match &args.chat_prose {
        Some(path) => {
            let read = || Ok::<_, anyhow::Error>(Prose::parse(&fs::read_to_string(path)?)?);
            read().with_context(|| format!("cannot use {}", path.display()))?
        }
        None => Prose::default(),
    };
    let mut choices = Choices::default();
    for choice in &args.chat_choice {
        choices.choose(choice).context("--chat-choice")?;
    }
    let template = ChatTemplate::deepseek4(tokenizer, prose, choices);
    template.context("--chat-prose and --chat-choice are for DeepSeek V4")
}

fn config(args: &EngineArgs, trained: u32) -> EngineConfig {
    EngineConfig {
        sessions: args.sessions,
        context: args.ctx.unwrap_or(trained.min(DEFAULT_CONTEXT)),
        max_active: args.max_active.unwrap_or(args.sessions),
        profile: args.profile.into(),
        max_stall_ms: match args.max_stall_ms {
            MaxStall::Auto => AUTO_STALL_MS,
            MaxStall::Ms(ms) => ms,
        },
        stall_auto: args.max_stall_ms == MaxStall::Auto,
        decode_share_permille: args.decode_share.map(|percent| percent * 10),
        max_idle_step_ms: args.max_idle_ms,
        prefill_chunk: args.prefill_chunk,
        mixed_prefill_tokens: args.mixed_prefill_quantum,
        mode: args.mode.into(),
        max_queue: args.max_queue,
        ..EngineConfig::default()
    }
}

impl Session {
    /// Ends the engine; an error if it had failed.
    pub(crate) fn finish(self) -> Result<()> {
        self.handle.shutdown(Shutdown::Now);
        self.thread.join().context("the engine failed")
    }
}
