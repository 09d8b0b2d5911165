//! What Ollama's clients ask about models before they talk to one.

use andante_text::ChatTemplate;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::Server;
use crate::api::models::{capabilities, rfc3339};
use crate::error::ApiError;
use crate::sse::JSON_LINES;

/// The version of Ollama's API that is spoken here: clients that need its `/v1/responses` ask for 0.13.4 at least.
const VERSION: &str = "0.13.4";

pub(in crate::api) async fn version() -> Json<Value> {
    Json(json!({ "version": VERSION }))
}

pub(in crate::api) async fn tags(State(server): State<Server>) -> Json<Value> {
    let mut model = entry(&server);
    model["modified_at"] = rfc3339(server.started_at_s()).into();
    Json(json!({ "models": [model] }))
}

/// The models in memory.
pub(in crate::api) async fn ps(State(server): State<Server>) -> Json<Value> {
    let mut model = entry(&server);
    model["size_vram"] = 0.into();
    model["context_length"] = server.engine().context().into();
    Json(json!({ "models": [model] }))
}

pub(in crate::api) async fn show(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    asked(&server, &headers, body).await?;
    let info = server.engine().info();
    let architecture = &info.architecture;
    let mut model_info = Map::new();
    model_info.insert("general.architecture".into(), architecture.as_str().into());
    model_info.insert("general.parameter_count".into(), info.parameters.into());
    for (key, value) in [
        ("context_length", u64::from(server.engine().context())),
        ("embedding_length", info.hidden as u64),
        ("block_count", info.layers as u64),
        ("attention.head_count", info.heads as u64),
        ("attention.head_count_kv", info.kv_heads as u64),
    ] {
        model_info.insert(format!("{architecture}.{key}"), value.into());
    }
    Ok(Json(json!({
        "modelfile": "",
        "parameters": "",
        "template": server.engine().template().map_or("", ChatTemplate::source),
        "modified_at": rfc3339(server.started_at_s()),
        "details": details(&server),
        "model_info": model_info,
        "capabilities": capabilities(&server),
    })))
}

/// The model that is served is there; others cannot be had.
pub(in crate::api) async fn pull(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let (id, stream) = asked(&server, &headers, body).await?;
    let served = &server.config().model_name;
    if id.strip_suffix(":latest").unwrap_or(&id) != served {
        return Err(ApiError::NoModel {
            id,
            served: served.clone(),
        });
    }
    let kind = if stream {
        JSON_LINES
    } else {
        "application/json"
    };
    Ok(([(header::CONTENT_TYPE, kind)], "{\"status\":\"success\"}\n").into_response())
}

/// The model that a request names, and whether the answer is to be streamed.
async fn asked(
    server: &Server,
    headers: &HeaderMap,
    body: Body,
) -> Result<(String, bool), ApiError> {
    let asked = server.prepare_body(headers, body, |_, body| {
        let model = body.any_of(&["model", "name"]);
        let id = model.required()?;
        let stream = body.get("stream").bool()?.unwrap_or(true);
        Ok((id.to_owned(), stream))
    });
    asked.await
}

fn entry(server: &Server) -> Value {
    let name = &server.config().model_name;
    json!({
        "name": name,
        "model": name,
        "size": server.engine().info().weight_bytes,
        "digest": "",
        "details": details(server),
    })
}

fn details(server: &Server) -> Value {
    let info = server.engine().info();
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": info.architecture,
        "families": [info.architecture],
        "parameter_size": parameter_size(info.parameters),
        "quantization_level": "",
    })
}

/// A number of weights as people say it: `134.5M`, `7.2B`.
pub(super) fn parameter_size(parameters: u64) -> String {
    let (unit, name) = if parameters < 1_000_000_000 {
        (1e6, "M")
    } else {
        (1e9, "B")
    };
    format!("{:.1}{name}", parameters as f64 / unit)
}
