//! What chat and text completions have in common on the wire.

use andante_engine::{FinishReason, PromptProgress, Usage};
use serde::Serialize;
use utoipa::ToSchema;

use crate::Server;
use crate::answer::Totals;
use crate::server::unix_time_s;

/// The fields that make an answer one answer: equal in all its chunks.
pub(super) struct Stamp {
    id: String,
    created: u64,
    model: String,
}

impl Stamp {
    pub(super) fn new(server: &Server, prefix: &str, model: String) -> Self {
        Self {
            id: server.unique_id(prefix),
            created: unix_time_s(),
            model,
        }
    }

    pub(super) fn completion<C>(
        &self,
        object: &'static str,
        choices: Vec<C>,
        usage: Option<Usage>,
    ) -> Completion<'_, C> {
        Completion {
            id: &self.id,
            object,
            created: self.created,
            model: &self.model,
            choices,
            usage: usage.map(WireUsage::from),
            prompt_progress: None,
            timings: None,
        }
    }
}

/// What a request's prompt would take.
#[derive(Serialize, ToSchema)]
pub(super) struct TokenCount {
    pub(super) input_tokens: usize,
}

/// A whole answer, or a chunk of one.
#[derive(Serialize, ToSchema)]
pub(super) struct Completion<'a, C> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<C>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<WireUsage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_progress: Option<WireProgress>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<WireTimings>,
}

impl<C> Completion<'_, C> {
    /// Says how far the prompt has come.
    pub(super) fn with_progress(mut self, progress: &PromptProgress) -> Self {
        self.prompt_progress = Some(progress.into());
        self
    }

    /// Says where the time went.
    pub(super) fn with_timings(mut self, totals: &Totals) -> Self {
        self.timings = Some(totals.into());
        self
    }
}

/// How far a prompt has come, as llama-server says it where `return_progress` asks for it, and what is left.
#[derive(Serialize, ToSchema)]
#[schema(as = PromptProgress)]
pub(super) struct WireProgress {
    /// Tokens of the prompt.
    total: u32,
    /// How many of them did not have to be computed.
    cache: u32,
    /// How many there are, those included.
    processed: u32,
    /// Since the first step that worked on it.
    time_ms: u64,
    /// What the rest is expected to take.
    remaining_ms: Option<u64>,
}

impl From<&PromptProgress> for WireProgress {
    fn from(progress: &PromptProgress) -> Self {
        Self {
            total: progress.prompt_tokens,
            cache: progress.cached_tokens,
            processed: progress.processed_tokens,
            time_ms: progress.elapsed_us / 1000,
            remaining_ms: progress.remaining_us.map(|us| us / 1000),
        }
    }
}

/// Where the time of an answer went, in llama-server's words.
#[derive(Serialize, ToSchema)]
#[schema(as = Timings)]
pub(super) struct WireTimings {
    /// Until the first step that worked on it.
    queued_ms: f64,
    cache_n: u32,
    prompt_n: u32,
    prompt_ms: f64,
    prompt_per_second: Option<f64>,
    predicted_n: u32,
    predicted_ms: f64,
    predicted_per_second: Option<f64>,
}

impl From<&Totals> for WireTimings {
    fn from(totals: &Totals) -> Self {
        let Totals { usage, timings } = totals;
        let ms = |us: u64| us as f64 / 1e3;
        let rate = |tokens: u32, us: u64| {
            (tokens > 0 && us > 0).then(|| f64::from(tokens) * 1e6 / us as f64)
        };
        let computed = usage.prompt_tokens - usage.cached_tokens;
        Self {
            queued_ms: ms(timings.queued_us),
            cache_n: usage.cached_tokens,
            prompt_n: computed,
            prompt_ms: ms(timings.prefill_us),
            prompt_per_second: rate(computed, timings.prefill_us),
            predicted_n: usage.completion_tokens,
            predicted_ms: ms(timings.decode_us),
            // The first token is the prompt's.
            predicted_per_second: rate(
                usage.completion_tokens.saturating_sub(1),
                timings.decode_us,
            ),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct WireUsage {
    prompt_tokens: u32,
    completion_tokens: u32,
    total_tokens: u32,
    prompt_tokens_details: PromptTokensDetails,
    completion_tokens_details: CompletionTokensDetails,
}

#[derive(Serialize, ToSchema)]
pub(super) struct PromptTokensDetails {
    cached_tokens: u32,
}

#[derive(Serialize, ToSchema)]
pub(super) struct CompletionTokensDetails {
    reasoning_tokens: u32,
}

impl From<Usage> for WireUsage {
    fn from(usage: Usage) -> Self {
        Self {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            total_tokens: usage.prompt_tokens + usage.completion_tokens,
            prompt_tokens_details: PromptTokensDetails {
                cached_tokens: usage.cached_tokens,
            },
            completion_tokens_details: CompletionTokensDetails {
                reasoning_tokens: usage.reasoning_tokens,
            },
        }
    }
}

/// Why an answer ended. One that was cut was cut, whatever it had called.
pub(super) fn finish_reason(reason: &FinishReason, called: bool) -> &'static str {
    match reason {
        FinishReason::Stop { .. } if called => "tool_calls",
        FinishReason::Stop { .. } => "stop",
        FinishReason::Length => "length",
    }
}

/// OpenAI's floor for the log-probability of an impossible token; JSON has no infinity.
pub(super) fn finite(logprob: f32) -> f32 {
    logprob.max(-9999.0)
}

/// A token's bytes as text: those of a token that is part of a character only become U+FFFD.
pub(super) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
