//! `GET /v1/models` and `GET /v1/models/{id}`: the one model, in the forms of OpenAI and Anthropic at once, with the hints
//! that clients look for beside them (llama-server's `meta`, vLLM's `max_model_len`, the router fields `status` and
//! `architecture`). `GET /props`: what clients of llama-server ask about the model.

use andante_text::ChatTemplate;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::Id;
use crate::Server;
use crate::error::ApiError;

pub(super) async fn list(State(server): State<Server>) -> Json<Value> {
    let id = &server.config().model_name;
    Json(json!({
        "object": "list",
        "data": [model(&server)],
        "first_id": id,
        "last_id": id,
        "has_more": false,
    }))
}

pub(super) async fn retrieve(
    State(server): State<Server>,
    Id(id): Id,
) -> Result<Json<Value>, ApiError> {
    let served = &server.config().model_name;
    if id == *served {
        return Ok(Json(model(&server)));
    }
    Err(ApiError::NoModel {
        id,
        served: served.clone(),
    })
}

pub(super) async fn props(State(server): State<Server>) -> Json<Value> {
    let engine = server.engine();
    Json(json!({
        "default_generation_settings": { "n_ctx": engine.context() },
        "total_slots": engine.max_inside(),
        "model_alias": server.config().model_name,
        "chat_template": engine.template().map_or("", ChatTemplate::source),
        "modalities": { "vision": false, "audio": false },
    }))
}

fn model(server: &Server) -> Value {
    let info = server.engine().info();
    let context = server.engine().context();
    let id = &server.config().model_name;
    json!({
        "id": id,
        "object": "model",
        "created": server.started_at_s(),
        "owned_by": "andante",
        "type": "model",
        "display_name": info.name.as_ref().unwrap_or(id),
        "created_at": rfc3339(server.started_at_s()),
        "max_model_len": context,
        "context_length": context,
        "max_input_tokens": context,
        "capabilities": capabilities(server),
        "meta": {
            "n_ctx": context,
            "n_ctx_train": info.context,
            "n_vocab": info.vocab,
            "n_embd": info.hidden,
            "n_params": info.parameters,
            "size": info.weight_bytes,
        },
        "status": { "value": "loaded" },
        "architecture": { "input_modalities": ["text"], "output_modalities": ["text"] },
    })
}

/// What the model's template knows, in Ollama's words.
pub(super) fn capabilities(server: &Server) -> Vec<&'static str> {
    let source = server.engine().template().map(ChatTemplate::source);
    let knows = |words: &[&str]| {
        source.is_some_and(|source| words.iter().any(|word| source.contains(word)))
    };
    let mut capabilities = vec!["completion"];
    if knows(&["tools"]) {
        capabilities.push("tools");
    }
    if knows(&[
        "<think>",
        "enable_thinking",
        "reasoning_effort",
        "reasoning_content",
    ]) {
        capabilities.push("thinking");
    }
    capabilities
}

/// Seconds of Unix time as a date.
pub(super) fn rfc3339(unix_time_s: u64) -> String {
    let seconds = i64::try_from(unix_time_s).unwrap_or_default();
    jiff::Timestamp::from_second(seconds)
        .unwrap_or_default()
        .to_string()
}
