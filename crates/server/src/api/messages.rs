//! `POST /v1/messages` and `POST /v1/messages/count_tokens`. Source of the format: Anthropic's API reference, and what its
//! clients were seen to send and need.

mod conversation;
mod encoder;
#[cfg(test)]
mod tests;

use super::openapi::{AnthropicErrors, MessagesBody, StreamEvent};
use super::wire::TokenCount;
use super::{Job, constraint, sampling};
use crate::Server;
use crate::error::ApiError;
use crate::json::Field;
use crate::server::REQUEST_ID;
use andante_engine::Sampling;
use andante_text::ChatRequest;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use encoder::MessageEncoder;

/// Answers a conversation, in Anthropic's words.
#[utoipa::path(
    post,
    path = "/messages",
    tag = "Anthropic",
    request_body = MessagesBody,
    responses(
        (status = 200, content((encoder::WholeMessage = "application/json"), (StreamEvent = "text/event-stream"))),
        AnthropicErrors
    )
)]
pub(super) async fn create(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let id = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let request_id = id.unwrap_or_default().to_owned();
    super::answer(server, &headers, body, move |server, body| {
        decode(server, body, request_id)
    })
    .await
}

/// Counts without a place in the queue: agents ask for dozens at a time.
#[utoipa::path(
    post,
    path = "/messages/count_tokens",
    tag = "Anthropic",
    request_body = MessagesBody,
    responses((status = 200, body = TokenCount), AnthropicErrors)
)]
pub(super) async fn count_tokens(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<TokenCount>, ApiError> {
    let count = server.prepare_body(&headers, body, |server, body| {
        Ok(server.engine().count_tokens(&chat_request(server, body)?)?)
    });
    let input_tokens = count.await?;
    Ok(Json(TokenCount { input_tokens }))
}

fn decode(
    server: &Server,
    body: &Field<'_>,
    request_id: String,
) -> Result<Job<MessageEncoder>, ApiError> {
    let chat = chat_request(server, body)?;
    let request = server.engine().prepare_chat(&chat, sampling(body)?)?;
    let model = body.get("model").string()?;
    let thinking = body.get("thinking");
    Ok(Job {
        requests: vec![request],
        choices_per_prompt: 1,
        stream: body.get("stream").bool()?.unwrap_or(false),
        warning: None,
        encoder: MessageEncoder::new(
            server,
            model.unwrap_or(&server.config().model_name),
            request_id,
            thinking.get("display").string()? != Some("omitted"),
        ),
    })
}

fn sampling(body: &Field<'_>) -> Result<Sampling, ApiError> {
    let mut sampling = sampling::decode(body)?;
    let now = body.get("output_config").get("format");
    let now = constraint::format(&now, "output_config.format.schema", true)?;
    let before = constraint::format(&body.get("output_format"), "output_format.schema", true)?;
    sampling.constraint = constraint::only(constraint::only(sampling.constraint, before)?, now)?;
    Ok(sampling)
}

fn chat_request(server: &Server, body: &Field<'_>) -> Result<ChatRequest, ApiError> {
    let tools = conversation::Tools::decode(&body.get("tools"))?;
    let mut messages = conversation::system(&body.get("system"))?;
    let read = conversation::Reader::new(server.engine(), &tools);
    messages.extend(read.messages(&body.get("messages"))?);
    super::history::settle(&mut messages);
    let continue_final_message = super::history::is_open(&messages);
    let choice = body.get("tool_choice");
    let single = choice.get("disable_parallel_tool_use").bool()? == Some(true);
    let tool_choice = tools.choose(&choice)?;
    Ok(ChatRequest {
        tools: tools.listed(),
        loaded_tools: tools.loaded(&messages),
        messages,
        tool_choice,
        parallel_tool_calls: !single,
        template_args: conversation::template_args(server, body)?,
        add_generation_prompt: true,
        continue_final_message,
    })
}
