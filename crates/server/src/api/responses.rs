//! `POST /v1/responses` and what goes with it. Sources of the format: OpenAI's API reference, the Open Responses
//! specification, and what clients were seen to send and need.

mod conversation;
mod encoder;
mod items;
pub(super) mod kept;
mod object;
mod store;
#[cfg(test)]
mod tests;
mod tools;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use andante_engine::{FinishReason, Sampling, Tenant};
use andante_text::{ChatRequest, Message, Role, ToolChoice};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::openapi::{OpenAiErrors, ResponseBody, StreamEvent};
use super::tools::{thinking, whether};
use super::{Job, constraint, sampling};
use crate::Server;
use crate::answer::Choice;
use crate::config::MAX_TOP_LOGPROBS;
use crate::error::ApiError;
use crate::json::Field;
use crate::server::unix_time_s;
use conversation::Reader;
use encoder::ResponseEncoder;
use items::Items;
use object::{Compaction, InputTokens, ResponseObject, ResponseUsage};
pub(crate) use store::ResponseStore;
use tools::Tools;

/// Answers a conversation as a list of items, which is kept for the next one to go on from.
#[utoipa::path(
    post,
    path = "/responses",
    tag = "OpenAI",
    request_body = ResponseBody,
    responses(
        (status = 200, content((ResponseObject = "application/json"), (StreamEvent = "text/event-stream"))),
        OpenAiErrors
    )
)]
pub(super) async fn create(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let owner = kept::owner(&server, &headers);
    super::answer(server, &headers, body, move |server, body| {
        decode(server, body, owner)
    })
    .await
}

/// What a request's prompt would take.
#[utoipa::path(
    post,
    path = "/responses/input_tokens",
    tag = "OpenAI",
    request_body = ResponseBody,
    responses((status = 200, body = InputTokens), OpenAiErrors)
)]
pub(super) async fn input_tokens(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<InputTokens>, ApiError> {
    let owner = kept::owner(&server, &headers);
    let count = server.prepare_body(&headers, body, move |server, body| {
        let input = Input::decode(server, body, &owner)?;
        Ok(server.engine().count_tokens(&input.chat)?)
    });
    Ok(Json(InputTokens {
        object: "response.input_tokens",
        input_tokens: count.await?,
    }))
}

/// What the model is asked for in place of the conversation.
pub(super) const SUMMARISE: &str = "Summarise the conversation so far for somebody who is to go on with it and sees nothing else: \
    the goal, decisions and facts that matter, what was done, what is left to do. Write only the summary.";

/// `POST /v1/responses/compact`: the conversation as one item, sealed, that takes its place in the next request.
#[utoipa::path(
    post,
    path = "/responses/compact",
    tag = "OpenAI",
    request_body = ResponseBody,
    responses((status = 200, body = Compaction), OpenAiErrors)
)]
pub(super) async fn compact(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Compaction>, ApiError> {
    let owner = kept::owner(&server, &headers);
    let job = move |server: &Server, body: &Field<'_>| {
        body.get("model").required()?;
        let mut chat = Input::decode(server, body, &owner)?.chat;
        chat.messages.push(Message::new(Role::User, SUMMARISE));
        chat.tool_choice = ToolChoice::None;
        chat.template_args
            .insert("enable_thinking".to_owned(), false.into());
        // The form that the client asked for is that of an answer, which this is not.
        let sampling = Sampling {
            constraint: None,
            stop: Vec::new(),
            ..sampling(body)?
        };
        let request = server.engine().prepare_chat(&chat, sampling)?;
        Ok(Job {
            requests: vec![request],
            choices_per_prompt: 1,
            stream: false,
            warning: None,
            encoder: (),
        })
    };
    let (answer, _) = super::begin(&server, &headers, body, job).await?;
    let (choices, totals) = answer.collect().await?;
    let is_cut = |choice: &Choice| choice.reason == FinishReason::Length;
    if choices.iter().any(is_cut) {
        return Err(ApiError::SummaryCut);
    }
    let summary: String = choices.iter().map(Choice::text).collect();
    let item = json!({
        "id": server.unique_id("cmp_"),
        "type": "compaction",
        "encrypted_content": server.engine().seal_reasoning(&summary),
    });
    Ok(Json(Compaction {
        id: server.unique_id("resp_"),
        object: "response.compaction",
        created_at: unix_time_s(),
        output: vec![item],
        usage: ResponseUsage::from(totals.usage),
    }))
}

fn decode(
    server: &Server,
    body: &Field<'_>,
    owner: Tenant,
) -> Result<Job<ResponseEncoder>, ApiError> {
    let model = body.get("model").required()?;
    let input = Input::decode(server, body, &owner)?;
    let sampling = sampling(body)?;
    let response = ResponseObject::beginning(server, model, body, &sampling)?;
    let response = serde_json::to_value(response).expect("a response is plain data");
    let request = server.engine().prepare_chat(&input.chat, sampling)?;
    let items = Items {
        tools: input.tools,
        seal_reasoning: includes(body, "reasoning.encrypted_content")?,
    };
    let mut encoder = ResponseEncoder::new(server, response, items);
    if body.get("store").bool()?.unwrap_or(true) {
        encoder = encoder.kept(input.items, owner);
    }
    Ok(Job {
        requests: vec![request],
        choices_per_prompt: 1,
        stream: body.get("stream").bool()?.unwrap_or(false),
        warning: warning(&input.skipped),
        encoder,
    })
}

fn refuse_unsupported(body: &Field<'_>) -> Result<(), ApiError> {
    let background = body.get("background");
    if background.bool()? == Some(true) {
        return Err(background.unsupported("an answer in the background"));
    }
    let top = body.get("top_logprobs");
    if top.integer(0, MAX_TOP_LOGPROBS)?.is_some_and(|top| top > 0) {
        return Err(top.unsupported("log-probabilities"));
    }
    let include = body.get("include");
    for item in include.items()?.into_iter().flatten() {
        if item.string()? == Some("message.output_text.logprobs") {
            return Err(item.unsupported("log-probabilities"));
        }
    }
    for (name, what) in [
        ("conversation", "a conversation kept here"),
        ("prompt", "a prompt kept here"),
    ] {
        let field = body.get(name);
        if field.is_present() {
            return Err(field.unsupported(what));
        }
    }
    Ok(())
}

fn sampling(body: &Field<'_>) -> Result<Sampling, ApiError> {
    let mut sampling = sampling::decode(body)?;
    let text = body.get("text");
    text.map()?;
    let format = constraint::format(&text.get("format"), "text.format.schema", false)?;
    sampling.constraint = constraint::only(sampling.constraint, format)?;
    Ok(sampling)
}

fn includes(body: &Field<'_>, what: &str) -> Result<bool, ApiError> {
    let mut found = false;
    for item in body.get("include").items()?.into_iter().flatten() {
        found |= item.string()? == Some(what);
    }
    Ok(found)
}

/// For the header `warning`: what of the input was passed over.
fn warning(skipped: &[String]) -> Option<String> {
    let named = |kind: &String| -> String {
        kind.chars()
            .filter(|c| c.is_ascii_alphanumeric() || *c == '_')
            .take(40)
            .collect()
    };
    let names: Vec<String> = skipped.iter().map(named).collect();
    (!names.is_empty()).then(|| format!("items of unknown types were skipped: {}", names.join(" ")))
}

/// An item that stands for a stored one.
const REFERENCE: &str = "item_reference";

/// What a request says, read.
struct Input {
    chat: ChatRequest,
    tools: Tools,
    /// All items, those of earlier responses included, each with an id.
    items: Vec<Arc<Value>>,
    skipped: Vec<String>,
}

impl Input {
    fn decode(server: &Server, body: &Field<'_>, owner: &Tenant) -> Result<Self, ApiError> {
        refuse_unsupported(body)?;
        let earlier = earlier(server, body, owner)?;
        let own = own_items(server, body, owner)?;
        let own_body = json!({ "input": own });
        let earlier_items: Vec<&Value> = earlier.iter().map(Arc::as_ref).collect();
        let earlier_body = json!({ "input": earlier_items });
        let own_field = Field::body(&own_body)?.get("input");
        let earlier_field = Field::body(&earlier_body)?.get("input");
        let mut lists = vec![body.get("tools")];
        for field in [&earlier_field, &own_field] {
            for item in field.items()?.into_iter().flatten() {
                if item.get("type").value() == Some(&json!("additional_tools")) {
                    lists.push(item.get("tools"));
                }
            }
        }
        let mut tools = Tools::decode(&lists)?;
        let tool_choice = tools.choose(&body.get("tool_choice"))?;
        let mut reader = Reader::new(server.engine(), &tools);
        if let Some(instructions) = body.get("instructions").string()? {
            reader.instructions(instructions);
        }
        reader.items(&earlier_field)?;
        reader.items(&own_field)?;
        let skipped = std::mem::take(&mut reader.skipped);
        let mut messages: Vec<Message> = reader.finish();
        super::history::settle(&mut messages);
        Ok(Self {
            chat: ChatRequest {
                messages,
                tools: tools.listed(),
                tool_choice,
                parallel_tool_calls: body.get("parallel_tool_calls").bool()?.unwrap_or(true),
                template_args: template_args(server, body)?,
                add_generation_prompt: true,
                ..ChatRequest::default()
            },
            tools,
            items: earlier
                .into_iter()
                .chain(own.into_iter().map(Arc::new))
                .collect(),
            skipped,
        })
    }
}

/// The conversation of the response that this one goes on from.
fn earlier(server: &Server, body: &Field<'_>, owner: &Tenant) -> Result<Vec<Arc<Value>>, ApiError> {
    let Some(id) = body.get("previous_response_id").string()? else {
        return Ok(Vec::new());
    };
    match server.responses().get(id, owner) {
        Some(stored) => Ok(stored.conversation()),
        None => Err(ApiError::NoPreviousResponse { id: id.to_owned() }),
    }
}

/// The request's own items, each with an id; references are followed.
fn own_items(server: &Server, body: &Field<'_>, owner: &Tenant) -> Result<Vec<Value>, ApiError> {
    let input = body.get("input");
    let mut own = Vec::new();
    match input.value() {
        None => {}
        Some(Value::String(text)) => {
            let part = json!({ "type": "input_text", "text": text });
            own.push(json!({ "type": "message", "role": "user", "content": [part] }));
        }
        Some(Value::Array(_)) => {
            let mut stored = referred(server, &input, owner)?;
            for item in input.items()?.into_iter().flatten() {
                own.push(followed(&item, &mut stored)?);
            }
        }
        Some(_) => return Err(input.wrong_type("a string or an array of items")),
    }
    for item in &mut own {
        if item["id"].is_null() {
            let message = item["type"].is_null() || item["type"] == "message";
            item["id"] = server
                .unique_id(if message { "msg_" } else { "item_" })
                .into();
        }
    }
    Ok(own)
}

/// The stored items that an input refers to. Each may be named once: a short request must not become a long one.
fn referred(
    server: &Server,
    input: &Field<'_>,
    owner: &Tenant,
) -> Result<HashMap<String, Value>, ApiError> {
    let mut ids = HashSet::new();
    for item in input.items()?.into_iter().flatten() {
        item.map()?;
        if item.get("type").string()? == Some(REFERENCE) {
            let id = item.get("id");
            if !ids.insert(id.required()?) {
                return Err(id.error("this item is referred to twice"));
            }
        }
    }
    Ok(server.responses().items(&ids, owner))
}

/// The item itself, or the stored one that it names.
fn followed(item: &Field<'_>, stored: &mut HashMap<String, Value>) -> Result<Value, ApiError> {
    let itself = || item.value().cloned().unwrap_or_default();
    if item.get("type").string()? != Some(REFERENCE) {
        return Ok(itself());
    }
    let id = item.get("id").required()?;
    match stored.remove(id) {
        Some(stored) => Ok(stored),
        // Reasoning that is gone is no reason to stop: the reference is passed over like an unknown item.
        None if id.starts_with("rs_") => Ok(itself()),
        None => Err(ApiError::NoObjectStored {
            what: "Item",
            id: id.to_owned(),
        }),
    }
}

/// Whether and how hard to think.
fn template_args(server: &Server, body: &Field<'_>) -> Result<Map<String, Value>, ApiError> {
    let reasoning = body.get("reasoning");
    reasoning.map()?;
    let effort = reasoning.get("effort").string()?;
    let named = server.thinks_by_name(body)?;
    Ok(thinking(whether(None, effort, named), effort))
}
