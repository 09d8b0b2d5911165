//! `POST /v1/chat/completions`. Source of the format: OpenAI's API reference, and what its clients were seen to need.

use andante_engine::{Delta, FinishReason, TokenLogprob, TokenText, Usage};
use andante_text::{ChatRequest, ToolChoice};
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Serialize;
use serde_json::{Map, Value};

use super::sampling::{self, Delivery};
use super::wire::{Stamp, finish_reason, finite, lossy};
use super::{Encode, Job, message};
use crate::Server;
use crate::answer::{Choice, Totals};
use crate::config::MAX_TOP_LOGPROBS;
use crate::error::ApiError;
use crate::json::Field;
use crate::sse::Frames;

const CHUNK: &str = "chat.completion.chunk";

pub(super) async fn create(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    super::answer(server, &headers, body, decode).await
}

fn decode(server: &Server, body: &Field<'_>) -> Result<Job<ChatEncoder>, ApiError> {
    let delivery = Delivery::decode(server, body)?;
    let mut sampling = sampling::decode(body)?;
    sampling.logprobs = logprobs(body)?;
    let encoder = ChatEncoder {
        logprobs: sampling.logprobs.is_some(),
        include_usage: delivery.include_usage,
        stamp: Stamp::new(server, "chatcmpl-", delivery.model.clone()),
    };
    let request = server
        .engine()
        .prepare_chat(&chat_request(body)?, sampling)?;
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

pub(super) fn chat_request(body: &Field<'_>) -> Result<ChatRequest, ApiError> {
    let continued = body.get("continue_final_message");
    if continued.bool()? == Some(true) {
        return Err(continued.unsupported("continuing a message"));
    }
    refuse_audio(&body.get("modalities"))?;
    Ok(ChatRequest {
        messages: message::decode_all(&body.get("messages"))?,
        tools: tools(body)?,
        tool_choice: ToolChoice::Auto,
        parallel_tool_calls: true,
        template_args: template_args(body)?,
        add_generation_prompt: body.get("add_generation_prompt").bool()?.unwrap_or(true),
    })
}

fn refuse_audio(modalities: &Field<'_>) -> Result<(), ApiError> {
    for modality in modalities.items()?.into_iter().flatten() {
        match modality.string()? {
            Some("text") | None => {}
            Some(other) => return Err(modality.unsupported(&format!("`{other}`"))),
        }
    }
    Ok(())
}

/// The tools that the template is to describe.
pub(super) fn tools(body: &Field<'_>) -> Result<Vec<Value>, ApiError> {
    let functions = body.get("functions");
    if functions
        .items()?
        .is_some_and(|mut functions| functions.next().is_some())
    {
        return Err(functions.unsupported("the former name of `tools`"));
    }
    let choice = body.any_of(&["tool_choice", "function_call"]);
    let mut tools = Vec::new();
    for tool in body.get("tools").items()?.into_iter().flatten() {
        tool.map()?;
        let kind = tool.get("type");
        // Tools of other kinds are offers that no model here can take up; leaving one out breaks no promise.
        if kind.string()?.is_none_or(|kind| kind == "function") {
            let function = tool.get("function");
            function.map()?.ok_or_else(|| function.missing())?;
            let name = function.get("name");
            name.string()?.ok_or_else(|| name.missing())?;
            tools.extend(tool.value().cloned());
        }
    }
    match choice.value() {
        None => Ok(tools),
        Some(Value::String(choice)) if choice == "auto" => Ok(tools),
        Some(Value::String(choice)) if choice == "none" => Ok(Vec::new()),
        Some(Value::String(_) | Value::Object(_)) => Err(choice.unsupported("a forced tool call")),
        Some(_) => Err(choice.wrong_type("a string or an object")),
    }
}

/// What the chat template can read beside messages and tools.
fn template_args(body: &Field<'_>) -> Result<Map<String, Value>, ApiError> {
    let mut args = Map::new();
    if let Some(effort) = body.get("reasoning_effort").string()? {
        args.insert("reasoning_effort".to_owned(), effort.into());
    }
    let thinking = body.get("thinking");
    thinking.map()?;
    let thinking = match thinking.get("type").string()? {
        Some("enabled") => Some(true),
        Some("disabled") => Some(false),
        _ => None,
    };
    if let Some(on) = body.get("enable_thinking").bool()?.or(thinking) {
        args.insert("enable_thinking".to_owned(), on.into());
    }
    if let Some(given) = body.get("chat_template_kwargs").map()? {
        args.extend(given.clone());
    }
    Ok(args)
}

/// Writes chat completions and their chunks.
pub(super) struct ChatEncoder {
    stamp: Stamp,
    include_usage: bool,
    logprobs: bool,
}

#[derive(Serialize)]
struct ChunkChoice {
    index: usize,
    delta: ChunkDelta,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Logprobs>,
    finish_reason: Option<&'static str>,
}

#[derive(Serialize, Default)]
struct ChunkDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
}

#[derive(Serialize)]
struct WholeChoice {
    index: usize,
    message: WholeMessage,
    logprobs: Option<Logprobs>,
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct WholeMessage {
    role: &'static str,
    content: String,
    refusal: Option<String>,
    annotations: [(); 0],
}

#[derive(Serialize)]
struct Logprobs {
    content: Vec<LogprobEntry>,
    refusal: Option<String>,
}

#[derive(Serialize)]
struct LogprobEntry {
    #[serde(flatten)]
    token: ScoredToken,
    top_logprobs: Vec<ScoredToken>,
}

#[derive(Serialize)]
struct ScoredToken {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

impl ChatEncoder {
    fn push(&self, frames: &mut Frames, choice: ChunkChoice) {
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

impl Encode for ChatEncoder {
    fn started(&mut self, index: usize, _prompt: Usage, frames: &mut Frames) {
        let delta = ChunkDelta {
            role: Some("assistant"),
            content: Some(String::new()),
        };
        self.push(
            frames,
            ChunkChoice {
                index,
                delta,
                logprobs: None,
                finish_reason: None,
            },
        );
    }

    fn delta(&mut self, index: usize, delta: Delta, frames: &mut Frames) {
        let logprobs = self.logprobs(&delta.logprobs);
        let delta = ChunkDelta {
            role: None,
            content: Some(delta.texts().collect()),
        };
        self.push(
            frames,
            ChunkChoice {
                index,
                delta,
                logprobs,
                finish_reason: None,
            },
        );
    }

    fn finished(&mut self, index: usize, reason: FinishReason, frames: &mut Frames) {
        let finish_reason = Some(finish_reason(&reason));
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
            frames.push(
                &self
                    .stamp
                    .completion::<ChunkChoice>(CHUNK, Vec::new(), usage),
            );
        }
        frames.push_done();
    }

    fn whole(&mut self, choices: Vec<Choice>, totals: Totals) -> impl Serialize {
        let choice = |(index, choice): (usize, Choice)| WholeChoice {
            index,
            logprobs: self.logprobs(&choice.logprobs),
            finish_reason: finish_reason(&choice.reason),
            message: WholeMessage {
                role: "assistant",
                content: choice.text(),
                refusal: None,
                annotations: [],
            },
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
