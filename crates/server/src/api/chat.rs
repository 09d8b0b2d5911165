//! `POST /v1/chat/completions`. Source of the format: OpenAI's API reference, and what its clients were seen to need.

pub(super) mod request;

use andante_engine::{Delta, FinishReason, PromptProgress, TokenLogprob, TokenText, Usage};
use andante_text::{Part, ToolChoice};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use super::openapi::{ChatBody, OpenAiErrors, StreamEvent};
use super::sampling::{self, Delivery};
use super::wire::{Completion, Stamp, TokenCount, finish_reason, finite, lossy};
use super::{Encode, Job};
use crate::Server;
use crate::answer::{Choice, Totals};
use crate::config::MAX_TOP_LOGPROBS;
use crate::error::ApiError;
use crate::json::Field;
use crate::sse::Frames;

const CHUNK: &str = "chat.completion.chunk";

/// Answers a conversation.
#[utoipa::path(
    post,
    path = "/chat/completions",
    tag = "OpenAI",
    request_body = ChatBody,
    responses(
        (status = 200, content((Completion<WholeChoice> = "application/json"), (StreamEvent = "text/event-stream"))),
        OpenAiErrors
    )
)]
pub(super) async fn create(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    super::answer(server, &headers, body, decode).await
}

/// `POST /v1/chat/completions/input_tokens`: how many tokens the prompt of such a request has, as llama-server answers it.
#[utoipa::path(
    post,
    path = "/chat/completions/input_tokens",
    tag = "llama-server",
    request_body = ChatBody,
    responses((status = 200, body = TokenCount), OpenAiErrors)
)]
pub(super) async fn input_tokens(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<TokenCount>, ApiError> {
    let count = server.prepare_body(&headers, body, |server, body| {
        Ok(server
            .engine()
            .count_tokens(&request::decode(server, body)?)?)
    });
    let input_tokens = count.await?;
    Ok(Json(TokenCount { input_tokens }))
}

fn decode(server: &Server, body: &Field<'_>) -> Result<Job<ChatEncoder>, ApiError> {
    let delivery = Delivery::decode(server, body)?;
    let mut sampling = sampling::decode(body)?;
    sampling.logprobs = logprobs(body)?;
    let chat = request::decode(server, body)?;
    let is_forced = matches!(
        chat.tool_choice,
        ToolChoice::Required | ToolChoice::Named(_)
    );
    // llama-server's: chunks with `prompt_progress` while the prompt is computed, and `timings` at the end.
    let reports_progress = body.get("return_progress").bool()?.unwrap_or(false);
    let encoder = ChatEncoder {
        logprobs: sampling.logprobs.is_some(),
        include_usage: delivery.include_usage,
        reports_progress,
        stamp: Stamp::new(server, "chatcmpl-", delivery.model.clone()),
        calls: vec![0; delivery.n],
        opening: Opening {
            role: "assistant",
            content: (!is_forced).then_some(""),
        },
    };
    let request = server.engine().prepare_chat(&chat, sampling)?;
    let request = request.with_progress(reports_progress && delivery.stream);
    Ok(Job {
        requests: delivery.choices(&request).collect(),
        choices_per_prompt: delivery.n,
        stream: delivery.stream,
        warning: None,
        encoder,
    })
}

fn logprobs(body: &Field<'_>) -> Result<Option<u8>, ApiError> {
    let wanted = body.get("logprobs").bool()?.unwrap_or(false);
    let top = body.get("top_logprobs");
    let top_n = top.integer(0, MAX_TOP_LOGPROBS)?;
    if top_n.is_some() && !wanted {
        return Err(top.error("needs `logprobs` to be true"));
    }
    Ok(wanted.then(|| u8::try_from(top_n.unwrap_or(0)).expect("the range is checked")))
}

/// Writes chat completions and their chunks.
pub(super) struct ChatEncoder {
    stamp: Stamp,
    include_usage: bool,
    reports_progress: bool,
    logprobs: bool,
    /// Calls that each choice of a stream has begun.
    calls: Vec<usize>,
    opening: Opening,
}

#[derive(Serialize)]
struct ChunkChoice<D = ChunkDelta> {
    index: usize,
    delta: D,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Logprobs>,
    finish_reason: Option<&'static str>,
}

/// Who speaks, said before anything is known of the answer. An answer that will be calls has no content.
#[derive(Serialize, Clone, Copy)]
struct Opening {
    role: &'static str,
    content: Option<&'static str>,
}

#[derive(Serialize, Default)]
struct ChunkDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[CallDelta; 1]>,
}

/// A piece of a call: the first has its id and name, all have its place.
#[derive(Serialize)]
struct CallDelta {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    function: FunctionDelta,
}

#[derive(Serialize)]
struct FunctionDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    arguments: String,
}

#[derive(Serialize, ToSchema)]
pub(super) struct WholeCall {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    function: WholeFunction,
}

#[derive(Serialize, ToSchema)]
pub(super) struct WholeFunction {
    name: String,
    arguments: String,
}

#[derive(Serialize, ToSchema)]
pub(super) struct WholeChoice {
    index: usize,
    message: WholeMessage,
    logprobs: Option<Logprobs>,
    finish_reason: &'static str,
}

#[derive(Serialize, ToSchema)]
pub(super) struct WholeMessage {
    role: &'static str,
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WholeCall>,
    refusal: Option<String>,
    #[schema(value_type = Vec<Object>, max_items = 0)]
    annotations: [(); 0],
}

#[derive(Serialize, ToSchema)]
pub(super) struct Logprobs {
    content: Vec<LogprobEntry>,
    refusal: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct LogprobEntry {
    #[serde(flatten)]
    token: ScoredToken,
    top_logprobs: Vec<ScoredToken>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct ScoredToken {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

impl ChatEncoder {
    fn push<D: Serialize>(&self, frames: &mut Frames, choice: ChunkChoice<D>) {
        frames.push(&self.stamp.completion(CHUNK, vec![choice], None));
    }

    fn logprobs(&self, tokens: &[TokenLogprob]) -> Option<Logprobs> {
        let entries = || tokens.iter().map(LogprobEntry::from).collect();
        self.logprobs.then(|| Logprobs {
            content: entries(),
            refusal: None,
        })
    }
}

impl ChatEncoder {
    /// A part as a delta of choice `index`.
    fn part(&mut self, index: usize, part: Part) -> ChunkDelta {
        let mut delta = ChunkDelta::default();
        match part {
            Part::Text(text) => delta.content = Some(text),
            Part::Reasoning(text) => delta.reasoning_content = Some(text),
            Part::Call { id, name } => {
                delta.tool_calls = Some([CallDelta {
                    index: self.calls[index],
                    id: Some(id),
                    kind: Some("function"),
                    function: FunctionDelta {
                        name: Some(name),
                        arguments: String::new(),
                    },
                }]);
                self.calls[index] += 1;
            }
            Part::Arguments(arguments) => {
                delta.tool_calls = Some([CallDelta {
                    index: self.calls[index].saturating_sub(1),
                    id: None,
                    kind: None,
                    function: FunctionDelta {
                        name: None,
                        arguments,
                    },
                }]);
            }
        }
        delta
    }
}

impl WholeMessage {
    fn new(parts: Vec<Part>) -> Self {
        let (mut content, mut reasoning) = (None::<String>, None::<String>);
        let mut tool_calls: Vec<WholeCall> = Vec::new();
        for part in parts {
            match part {
                Part::Text(text) => content.get_or_insert_default().push_str(&text),
                Part::Reasoning(text) => reasoning.get_or_insert_default().push_str(&text),
                Part::Call { id, name } => tool_calls.push(WholeCall {
                    id,
                    kind: "function",
                    function: WholeFunction {
                        name,
                        arguments: String::new(),
                    },
                }),
                Part::Arguments(more) => {
                    if let Some(call) = tool_calls.last_mut() {
                        call.function.arguments.push_str(&more);
                    }
                }
            }
        }
        if tool_calls.is_empty() {
            // Only an answer that is nothing but calls has no content.
            content.get_or_insert_default();
        }
        Self {
            role: "assistant",
            content,
            reasoning_content: reasoning,
            tool_calls,
            refusal: None,
            annotations: [],
        }
    }
}

impl Encode for ChatEncoder {
    fn opened(&mut self, frames: &mut Frames) {
        for index in 0..self.calls.len() {
            let choice = ChunkChoice {
                index,
                delta: self.opening,
                logprobs: None,
                finish_reason: None,
            };
            self.push(frames, choice);
        }
    }

    fn progress(&mut self, index: usize, progress: &PromptProgress, frames: &mut Frames) {
        let choice = ChunkChoice {
            index,
            delta: ChunkDelta::default(),
            logprobs: None,
            finish_reason: None,
        };
        let chunk = self.stamp.completion(CHUNK, vec![choice], None);
        frames.push(&chunk.with_progress(progress));
    }

    fn started(&mut self, _index: usize, _prompt: Usage, _frames: &mut Frames) {}

    fn delta(&mut self, index: usize, delta: Delta, frames: &mut Frames) {
        let mut logprobs = self.logprobs(&delta.logprobs);
        let mut deltas: Vec<ChunkDelta> = delta
            .parts
            .into_iter()
            .map(|part| self.part(index, part))
            .collect();
        if deltas.is_empty() {
            // Log-probabilities of tokens whose text was said before.
            deltas.push(ChunkDelta {
                content: Some(String::new()),
                ..ChunkDelta::default()
            });
        }
        for delta in deltas {
            let choice = ChunkChoice {
                index,
                delta,
                logprobs: logprobs.take(),
                finish_reason: None,
            };
            self.push(frames, choice);
        }
    }

    fn finished(&mut self, index: usize, reason: FinishReason, frames: &mut Frames) {
        let finish_reason = Some(finish_reason(&reason, self.calls[index] > 0));
        let delta = ChunkDelta::default();
        self.push(
            frames,
            ChunkChoice {
                index,
                delta,
                logprobs: None,
                finish_reason,
            },
        );
    }

    fn ended(&mut self, totals: Totals, frames: &mut Frames) {
        // Never to those who did not ask: their code reads `choices[0]` of every chunk.
        if self.include_usage {
            let usage = Some(totals.usage);
            let mut chunk = self
                .stamp
                .completion::<ChunkChoice>(CHUNK, Vec::new(), usage);
            if self.reports_progress {
                chunk = chunk.with_timings(&totals);
            }
            frames.push(&chunk);
        }
        frames.push_done();
    }

    fn whole(&mut self, choices: Vec<Choice>, totals: Totals) -> impl Serialize {
        let choice = |(index, choice): (usize, Choice)| {
            let message = WholeMessage::new(choice.parts);
            WholeChoice {
                index,
                logprobs: self.logprobs(&choice.logprobs),
                finish_reason: finish_reason(&choice.reason, !message.tool_calls.is_empty()),
                message,
            }
        };
        let choices = choices.into_iter().enumerate().map(choice).collect();
        self.stamp
            .completion("chat.completion", choices, Some(totals.usage))
    }
}

impl From<&TokenLogprob> for LogprobEntry {
    fn from(token: &TokenLogprob) -> Self {
        Self {
            token: ScoredToken::from(&token.token),
            top_logprobs: token.top.iter().map(ScoredToken::from).collect(),
        }
    }
}

impl From<&TokenText> for ScoredToken {
    fn from(token: &TokenText) -> Self {
        Self {
            token: lossy(&token.bytes),
            logprob: finite(token.logprob),
            bytes: token.bytes.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
