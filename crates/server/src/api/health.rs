//! `GET /health` for supervisors, `GET /version` for people, `HEAD /` for clients that only want to know whether somebody is there.

use andante_engine::Health;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::Server;
use crate::error::ApiError;

/// 200 while requests are taken, 503 when draining or after the engine failed.
pub(super) async fn health(State(server): State<Server>) -> Result<Json<Value>, ApiError> {
    match server.engine().health() {
        Health::Ready => Ok(Json(json!({ "status": "ok" }))),
        Health::Draining => Err(ApiError::Draining),
        Health::Stopped | Health::Failed => Err(ApiError::EngineStopped),
    }
}

pub(super) async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

pub(super) async fn hello() -> &'static str {
    "Andante is running\n"
}
