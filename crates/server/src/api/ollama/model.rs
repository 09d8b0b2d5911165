//! What Ollama's clients ask about models before they talk to one.

use andante_text::ChatTemplate;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::Server;
use crate::api::health::Version;
use crate::api::models::{capabilities, rfc3339};
use crate::api::openapi::{KeyedOllama, OllamaErrors, OllamaModelBody};
use crate::error::ApiError;
use crate::sse::JSON_LINES;

/// The version of Ollama's API that is spoken here: clients that need its `/v1/responses` ask for 0.13.4 at least.
const VERSION: &str = "0.13.4";

/// The version of Ollama's API.
#[utoipa::path(get, path = "/api/version", tag = "Ollama", responses((status = 200, body = Version)))]
pub(in crate::api) async fn version() -> Json<Version> {
    Json(Version { version: VERSION })
}

/// The models that can be had.
#[utoipa::path(get, path = "/api/tags", tag = "Ollama", responses((status = 200, body = Listed)))]
pub(in crate::api) async fn tags(State(server): State<Server>) -> Json<Listed> {
    let listed = |name| Entry {
        modified_at: Some(rfc3339(server.started_at_s())),
        ..entry(&server, name)
    };
    Json(Listed {
        models: server.model_names().map(listed).collect(),
    })
}

/// The models in memory.
#[utoipa::path(get, path = "/api/ps", tag = "Ollama", responses((status = 200, body = Listed), KeyedOllama))]
pub(in crate::api) async fn ps(State(server): State<Server>) -> Json<Listed> {
    let mut model = entry(&server, &server.config().model_name);
    model.size_vram = Some(0);
    model.context_length = Some(server.engine().context());
    Json(Listed {
        models: vec![model],
    })
}

/// What the model is.
#[utoipa::path(
    post,
    path = "/api/show",
    tag = "Ollama",
    request_body = OllamaModelBody,
    responses((status = 200, body = Shown), OllamaErrors)
)]
pub(in crate::api) async fn show(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Shown>, ApiError> {
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
    let template = server.engine().template();
    Ok(Json(Shown {
        modelfile: "",
        parameters: "",
        template: template.map_or("", ChatTemplate::source).to_owned(),
        modified_at: rfc3339(server.started_at_s()),
        details: details(&server),
        model_info,
        capabilities: capabilities(&server),
    }))
}

/// The model that is served is there; others cannot be had.
#[utoipa::path(
    post,
    path = "/api/pull",
    tag = "Ollama",
    request_body = OllamaModelBody,
    responses(
        (status = 200, content((Pulled = "application/json"), (String = "application/x-ndjson"))),
        OllamaErrors
    )
)]
pub(in crate::api) async fn pull(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let (id, stream) = asked(&server, &headers, body).await?;
    let name = id.strip_suffix(":latest").unwrap_or(&id);
    if !server.model_names().any(|known| known == name) {
        return Err(ApiError::NoModel {
            served: server.config().model_name.clone(),
            id,
        });
    }
    let mut response = Json(Pulled { status: "success" }).into_response();
    if stream {
        let lines = HeaderValue::from_static(JSON_LINES);
        response.headers_mut().insert(header::CONTENT_TYPE, lines);
    }
    Ok(response)
}

/// The one model there is.
#[derive(Serialize, ToSchema)]
#[schema(as = OllamaModels)]
pub(in crate::api) struct Listed {
    models: Vec<Entry>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = OllamaModel)]
struct Entry {
    name: String,
    model: String,
    size: u64,
    digest: &'static str,
    details: Details,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_vram: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_length: Option<u32>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = OllamaDetails)]
struct Details {
    parent_model: &'static str,
    format: &'static str,
    family: String,
    families: Vec<String>,
    parameter_size: String,
    quantization_level: &'static str,
}

/// What the model is.
#[derive(Serialize, ToSchema)]
#[schema(as = OllamaShown)]
pub(in crate::api) struct Shown {
    modelfile: &'static str,
    parameters: &'static str,
    template: String,
    modified_at: String,
    details: Details,
    #[schema(value_type = Object)]
    model_info: Map<String, Value>,
    capabilities: Vec<&'static str>,
}

/// That the model is there.
#[derive(Serialize, ToSchema)]
#[schema(as = OllamaPulled)]
pub(in crate::api) struct Pulled {
    status: &'static str,
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

fn entry(server: &Server, name: &str) -> Entry {
    Entry {
        name: name.to_owned(),
        model: name.to_owned(),
        size: server.engine().info().weight_bytes,
        digest: "",
        details: details(server),
        modified_at: None,
        size_vram: None,
        context_length: None,
    }
}

fn details(server: &Server) -> Details {
    let info = server.engine().info();
    Details {
        parent_model: "",
        format: "gguf",
        family: info.architecture.clone(),
        families: vec![info.architecture.clone()],
        parameter_size: parameter_size(info.parameters),
        quantization_level: "",
    }
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
