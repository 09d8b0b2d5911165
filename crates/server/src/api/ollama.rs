//! Ollama's API, since many tools speak no other: `/api/chat`, `/api/generate`, and what they ask before.
//! Source of the format: Ollama's API reference.

mod encoder;
pub(super) mod model;
#[cfg(test)]
mod tests;

use andante_engine::{Constrained, PromptInput, Sampling};
use andante_text::{ChatRequest, Constraint, Message, Role, ToolCall};
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::{Map, Value};

use super::openapi::{OllamaChatBody, OllamaErrors, OllamaGenerateBody};
use super::{Job, constraint, history, sampling, tools};
use crate::Server;
use crate::error::ApiError;
use crate::json::Field;
use encoder::{Kind, OllamaEncoder};

/// Answers a conversation, streamed as lines of JSON unless asked otherwise.
#[utoipa::path(
    post,
    path = "/api/chat",
    tag = "Ollama",
    request_body = OllamaChatBody,
    responses(
        (status = 200, content((encoder::Object = "application/json"), (String = "application/x-ndjson"))),
        OllamaErrors
    )
)]
pub(super) async fn chat(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    super::answer(server, &headers, body, decode_chat).await
}

/// Answers a prompt, streamed as lines of JSON unless asked otherwise.
#[utoipa::path(
    post,
    path = "/api/generate",
    tag = "Ollama",
    request_body = OllamaGenerateBody,
    responses(
        (status = 200, content((encoder::Object = "application/json"), (String = "application/x-ndjson"))),
        OllamaErrors
    )
)]
pub(super) async fn generate(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    super::answer(server, &headers, body, decode_generate).await
}

fn decode_chat(server: &Server, body: &Field<'_>) -> Result<Job<OllamaEncoder>, ApiError> {
    let mut messages = Vec::new();
    for message in body.get("messages").items()?.into_iter().flatten() {
        messages.push(read_message(&message)?);
    }
    history::settle(&mut messages);
    let mut requests = Vec::new();
    // Without messages this asks for the model to be loaded, which it is.
    if !messages.is_empty() {
        let chat = ChatRequest {
            continue_final_message: history::is_open(&messages),
            messages,
            tools: super::chat::request::tools(body)?,
            template_args: template_args(server, body)?,
            add_generation_prompt: true,
            ..ChatRequest::default()
        };
        requests.push(server.engine().prepare_chat(&chat, sampling(body)?)?);
    }
    job(body, Kind::Chat, requests)
}

fn decode_generate(server: &Server, body: &Field<'_>) -> Result<Job<OllamaEncoder>, ApiError> {
    for name in ["suffix", "template"] {
        let field = body.get(name);
        if field.string()?.is_some_and(|text| !text.is_empty()) {
            return Err(field.unsupported(&format!("`{name}`")));
        }
    }
    refuse_images(body)?;
    let engine = server.engine();
    let prompt = body.get("prompt").string()?.unwrap_or_default();
    let mut requests = Vec::new();
    if body.get("raw").bool()?.unwrap_or(false) {
        let text = PromptInput::Text(prompt.to_owned());
        requests.push(engine.prepare_text(text, sampling(body)?)?);
    } else if !prompt.is_empty() {
        let system = body.get("system").string()?.filter(|text| !text.is_empty());
        let system = system.map(|text| Message::new(Role::System, text));
        let user = Message::new(Role::User, prompt);
        let chat = ChatRequest {
            messages: system.into_iter().chain([user]).collect(),
            template_args: template_args(server, body)?,
            add_generation_prompt: true,
            ..ChatRequest::default()
        };
        requests.push(engine.prepare_chat(&chat, sampling(body)?)?);
    }
    job(body, Kind::Generate, requests)
}

fn job(
    body: &Field<'_>,
    kind: Kind,
    requests: Vec<andante_engine::Request>,
) -> Result<Job<OllamaEncoder>, ApiError> {
    let model = body.get("model").required()?;
    Ok(Job {
        encoder: OllamaEncoder::new(kind, model, requests.is_empty()),
        requests,
        choices_per_prompt: 1,
        stream: body.get("stream").bool()?.unwrap_or(true),
        warning: None,
    })
}

fn sampling(body: &Field<'_>) -> Result<Sampling, ApiError> {
    let options = body.get("options");
    options.map()?;
    let mut sampling = sampling::decode(&options)?;
    let format = body.get("format");
    let constraint = match format.value() {
        None => None,
        Some(Value::String(text)) if text.is_empty() => None,
        Some(Value::String(text)) if text == "json" => Some(Constraint::JsonObject),
        Some(schema @ Value::Object(_)) => Some(Constraint::JsonSchema {
            schema: schema.clone(),
            strict: false,
        }),
        Some(_) => return Err(format.wrong_type("`json` or a schema")),
    };
    let name = "format";
    let asked = constraint.map(|constraint| Constrained { constraint, name });
    sampling.constraint = constraint::only(sampling.constraint, asked)?;
    Ok(sampling)
}

/// `think`: a switch, or how hard.
fn template_args(server: &Server, body: &Field<'_>) -> Result<Map<String, Value>, ApiError> {
    let think = body.get("think");
    match think.value() {
        None => Ok(tools::thinking(server.thinks_by_name(body)?, None)),
        Some(Value::Bool(on)) => Ok(tools::thinking(Some(*on), None)),
        Some(Value::String(effort)) => Ok(tools::thinking(Some(effort != "none"), Some(effort))),
        Some(_) => Err(think.wrong_type("a boolean or a string")),
    }
}

fn read_message(message: &Field<'_>) -> Result<Message, ApiError> {
    message.map()?;
    refuse_images(message)?;
    let role = message.get("role");
    let role = match role.required()? {
        "system" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        other => return Err(role.error(format!("`{other}` is no role"))),
    };
    let owned = |key: &str| -> Result<Option<String>, ApiError> {
        Ok(message.get(key).string()?.map(str::to_owned))
    };
    let mut tool_calls = Vec::new();
    for call in message.get("tool_calls").items()?.into_iter().flatten() {
        tool_calls.push(read_call(&call)?);
    }
    let content = owned("content")?.filter(|text| !text.is_empty() || tool_calls.is_empty());
    Ok(Message {
        role,
        content: if tool_calls.is_empty() {
            Some(content.unwrap_or_default())
        } else {
            content
        },
        name: owned("tool_name")?,
        reasoning: owned("thinking")?.filter(|text| !text.is_empty()),
        tool_calls,
        tool_call_id: owned("tool_call_id")?,
    })
}

fn read_call(call: &Field<'_>) -> Result<ToolCall, ApiError> {
    let function = call.get("function");
    function.map()?.ok_or_else(|| function.missing())?;
    Ok(ToolCall {
        id: call.get("id").string()?.map(str::to_owned),
        name: function.get("name").required()?.to_owned(),
        arguments: tools::arguments(&function.get("arguments"))?,
    })
}

fn refuse_images(field: &Field<'_>) -> Result<(), ApiError> {
    let images = field.get("images");
    if images.array()?.is_some_and(|images| !images.is_empty()) {
        return Err(images.error("images are not supported; this model reads text"));
    }
    Ok(())
}
