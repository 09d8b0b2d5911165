//! `GET /v1/models` and `GET /v1/models/{id}`: the one model, with the hints that clients look for beside OpenAI's
//! fields (llama-server's `meta`, vLLM's `max_model_len`, the router fields `status` and `architecture`).

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::Server;
use crate::error::ApiError;

pub(super) async fn list(State(server): State<Server>) -> Json<Value> {
    Json(json!({ "object": "list", "data": [model(&server)] }))
}

pub(super) async fn retrieve(
    State(server): State<Server>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    // A name that is not text is nobody's name.
    let id = id.map(|Path(id)| id).unwrap_or_default();
    let served = &server.config().model_name;
    if id == *served {
        return Ok(Json(model(&server)));
    }
    Err(ApiError::NoModel {
        id,
        served: served.clone(),
    })
}

fn model(server: &Server) -> Value {
    let info = server.engine().info();
    let context = server.engine().context();
    json!({
        "id": server.config().model_name,
        "object": "model",
        "created": server.started_at_s(),
        "owned_by": "andante",
        "max_model_len": context,
        "context_length": context,
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
