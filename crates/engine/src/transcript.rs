//! Whole sessions for bug reports: a file of JSON lines with every prompt as the model saw it, what of it was found, every
//! token and what was read from it.
//!
//! Each line has an `event`, all but `begin`, `lost` and `full` the request's `id`:
//!
//! | event | |
//! | --- | --- |
//! | `begin` | the first line: `version` of this format, `program`, `model`, `config` |
//! | `request` | it has arrived: `at_us`, `tenant`, `prompt` as text, its `tokens`, `stored_tokens` that the store has, `max_new`, `seed`, `sampling`, `constrained` |
//! | `found` | its first token is there: `at_us`, `cached_tokens` of the prompt that were found, `load_us` of loading |
//! | `token` | chosen: `token`, its `text`, the `parts` of the answer that it completed, as `[kind, text]` |
//! | `rest` | the `parts` that were held back until the end |
//! | `end` | `outcome` (`end of answer`, `stop string`, `length`, `cancelled`, or what failed), `prompt_tokens`, `new_tokens` |
//! | `lost` | so many `lines` are missing here, since the disk was too slow |
//! | `full` | the last line of a file that has reached its size |
//!
//! Bytes that are no UTF-8 are replaced in texts, not in tokens. The engine never waits for the disk.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use andante_model::ModelInfo;
use andante_text::{Part, Tokenizer};
use serde_json::{Value, json};

use crate::mailbox::Submission;
use crate::recording;

/// The version of the format.
const VERSION: u32 = 1;
/// Lines that may wait for the writer, and their bytes.
const LINES: usize = 4096;
const MOST_WAITING_BYTES: usize = 64 << 20;
/// Room for the last line.
const LAST_BYTES: u64 = 64;

/// Where whole sessions are written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptConfig {
    /// The file. What was in it is lost; nobody else may read it.
    pub path: PathBuf,
    /// Its largest size.
    pub most_bytes: u64,
}

/// The way to the file; clones lead to the same one.
#[derive(Debug, Clone)]
pub(crate) struct Transcript(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// `None` ends the file.
    sender: SyncSender<Option<Vec<u8>>>,
    waiting_bytes: AtomicUsize,
    lost: AtomicU64,
}

/// The thread that writes.
#[derive(Debug)]
pub(crate) struct Writer {
    transcript: Transcript,
    thread: Option<JoinHandle<()>>,
}

impl Transcript {
    /// Opens the file.
    pub(crate) fn open(config: &TranscriptConfig) -> io::Result<(Self, Writer)> {
        let file = recording::open(&config.path)?;
        tracing::warn!(
            "whole prompts and answers are written to {}, {} MiB at most",
            config.path.display(),
            config.most_bytes >> 20
        );
        Self::to(file, config.most_bytes)
    }

    /// To `output`, `most_bytes` at most.
    pub(crate) fn to(
        output: impl Write + Send + 'static,
        most_bytes: u64,
    ) -> io::Result<(Self, Writer)> {
        let (sender, lines) = sync_channel(LINES);
        let transcript = Self(Arc::new(Shared {
            sender,
            waiting_bytes: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
        }));
        let shared = Arc::clone(&transcript.0);
        let thread = std::thread::Builder::new()
            .name("transcript".into())
            .spawn(move || {
                let mut file = Bounded {
                    output: BufWriter::new(output),
                    left: most_bytes.saturating_sub(LAST_BYTES),
                };
                if let Err(error) = write(&lines, &shared, &mut file) {
                    tracing::warn!(%error, "the transcript has ended: it cannot be written");
                }
            })?;
        let writer = Writer {
            transcript: transcript.clone(),
            thread: Some(thread),
        };
        Ok((transcript, writer))
    }

    /// What wrote it, and what it served.
    pub(crate) fn begin(&self, info: &ModelInfo, config: &str) {
        self.line(&json!({
            "event": "begin",
            "version": VERSION,
            "program": concat!("andante ", env!("CARGO_PKG_VERSION")),
            "model": {
                "architecture": info.architecture,
                "name": info.name,
                "vocab": info.vocab,
                "backend": info.backend,
                "kv_format": info.kv_format,
            },
            "config": config,
        }));
    }

    /// A request has arrived, and the store has so many tokens of its prompt.
    pub(crate) fn request(&self, submission: &Submission, stored: u32, tokenizer: &Tokenizer) {
        let request = &submission.request;
        let prompt: Vec<u8> = request.prompt.iter().fold(Vec::new(), |mut text, &token| {
            text.extend_from_slice(tokenizer.piece(token));
            text
        });
        let sampling = &request.sampling;
        self.line(&json!({
            "event": "request",
            "id": submission.id,
            "at_us": submission.submitted_us,
            "tenant": request.tenant.name(),
            "prompt": String::from_utf8_lossy(&prompt),
            "tokens": &request.prompt[..],
            "stored_tokens": stored,
            "max_new": request.max_new,
            "seed": request.seed,
            "constrained": request.constraint.is_some(),
            "sampling": {
                "temperature": sampling.temperature,
                "top_k": sampling.top_k,
                "top_p": sampling.top_p,
                "min_p": sampling.min_p,
                "typical_p": sampling.typical_p,
                "repetition_penalty": sampling.repetition_penalty,
                "repeat_last_n": sampling.repeat_last_n,
                "frequency_penalty": sampling.frequency_penalty,
                "presence_penalty": sampling.presence_penalty,
                "logit_bias": sampling.logit_bias,
                "stop": sampling.stop,
                "ignore_eos": sampling.ignore_eos,
                "cache_prompt": sampling.cache_prompt,
                "reasoning_budget": sampling.reasoning_budget,
            },
        }));
    }

    /// A prompt is complete.
    pub(crate) fn found(&self, id: u64, at_us: u64, cached_tokens: u32, load_us: u64) {
        self.line(&json!({
            "event": "found",
            "id": id,
            "at_us": at_us,
            "cached_tokens": cached_tokens,
            "load_us": load_us,
        }));
    }

    /// A token was chosen, which completed these parts.
    pub(crate) fn token(&self, id: u64, token: u32, piece: &[u8], completed: &[Part]) {
        self.line(&json!({
            "event": "token",
            "id": id,
            "token": token,
            "text": String::from_utf8_lossy(piece),
            "parts": parts(completed),
        }));
    }

    /// What was held back until the answer's end.
    pub(crate) fn rest(&self, id: u64, rest: &[Part]) {
        if !rest.is_empty() {
            self.line(&json!({"event": "rest", "id": id, "parts": parts(rest)}));
        }
    }

    /// A request has ended so, after so many tokens of its prompt and its answer.
    pub(crate) fn end(&self, id: u64, outcome: &str, tokens: (u32, u32)) {
        self.line(&json!({
            "event": "end",
            "id": id,
            "outcome": outcome,
            "prompt_tokens": tokens.0,
            "new_tokens": tokens.1,
        }));
    }

    fn line(&self, line: &Value) {
        let mut bytes = line.to_string().into_bytes();
        bytes.push(b'\n');
        let size = bytes.len();
        let waiting = self.0.waiting_bytes.fetch_add(size, Ordering::Relaxed);
        let fits = waiting + size <= MOST_WAITING_BYTES;
        if !fits || self.0.sender.try_send(Some(bytes)).is_err() {
            self.0.waiting_bytes.fetch_sub(size, Ordering::Relaxed);
            self.0.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn parts(parts: &[Part]) -> Vec<[&str; 2]> {
    parts.iter().map(told).collect()
}

fn told(part: &Part) -> [&str; 2] {
    match part {
        Part::Text(text) => ["text", text],
        Part::Reasoning(text) => ["reasoning", text],
        Part::Call { name, .. } => ["call", name],
        Part::Arguments(text) => ["arguments", text],
    }
}

impl Writer {
    /// Writes what is left, and waits until it is written.
    pub(crate) fn finish(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A writer that has failed has said so.
            let _ = self.transcript.0.sender.send(None);
            let _ = thread.join();
        }
    }
}

/// A file that may not grow beyond its size.
struct Bounded<W: Write> {
    output: BufWriter<W>,
    left: u64,
}

impl<W: Write> Bounded<W> {
    /// Whether there was room for the line.
    fn write(&mut self, line: &[u8]) -> io::Result<bool> {
        let size = line.len() as u64;
        if size > self.left {
            return Ok(false);
        }
        self.left -= size;
        self.output.write_all(line)?;
        Ok(true)
    }
}

fn write(
    lines: &Receiver<Option<Vec<u8>>>,
    shared: &Shared,
    file: &mut Bounded<impl Write>,
) -> io::Result<()> {
    loop {
        let line = match lines.try_recv() {
            Ok(line) => line,
            Err(TryRecvError::Empty) => {
                file.output.flush()?;
                lines.recv().unwrap_or(None)
            }
            Err(TryRecvError::Disconnected) => None,
        };
        let Some(line) = line else {
            return file.output.flush();
        };
        shared
            .waiting_bytes
            .fetch_sub(line.len(), Ordering::Relaxed);
        let lost = shared.lost.swap(0, Ordering::Relaxed);
        let mut room = true;
        if lost > 0 {
            let gap = json!({"event": "lost", "lines": lost});
            room = file.write(format!("{gap}\n").as_bytes())?;
        }
        if !(room && file.write(&line)?) {
            tracing::warn!("the transcript has reached its size, and ends");
            file.output.write_all(b"{\"event\":\"full\"}\n")?;
            return file.output.flush();
        }
    }
}
