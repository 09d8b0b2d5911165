//! What chat and text completions have in common on the wire.

use andante_engine::{FinishReason, Usage};
use serde::Serialize;
use utoipa::ToSchema;

use crate::Server;
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
