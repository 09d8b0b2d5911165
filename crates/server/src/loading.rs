//! What is answered while the model is being loaded: that the server lives, how far it is, and that all else has to wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;

use crate::error::{ApiError, Envelope};
use crate::server::REQUEST_ID;

/// How far loading is; clones tell of the same.
#[derive(Clone, Default)]
pub struct Loading {
    /// In thousandths.
    permille: Arc<AtomicU64>,
}

impl Loading {
    /// So many bytes of so many are there.
    pub fn set(&self, done: u64, total: u64) {
        let permille = u128::from(done) * 1000 / u128::from(total.max(1));
        let permille = u64::try_from(permille.min(1000)).expect("at most 1000");
        self.permille.store(permille, Ordering::Relaxed);
    }

    fn permille(&self) -> u64 {
        self.permille.load(Ordering::Relaxed)
    }

    pub(crate) fn router(&self) -> Router {
        Router::new()
            .route("/health", get(health))
            .route("/v1/health", get(health))
            .route("/health/ready", get(health))
            .route("/health/live", get(live))
            .fallback(wait)
            .with_state(self.clone())
    }
}

/// In the words of [`crate::api`]'s own `/health`.
async fn health(State(loading): State<Loading>) -> Response {
    let progress = loading.permille() as f64 / 1000.0;
    let body = json!({"status": "loading", "live": true, "ready": false, "progress": progress});
    (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
}

async fn live() -> Response {
    Json(json!({"status": "loading", "live": true, "ready": false})).into_response()
}

async fn wait(State(loading): State<Loading>, request: Request) -> Response {
    let envelope = Envelope::of(request.uri().path(), request.headers());
    let id = request.headers().get(REQUEST_ID);
    let id = id.and_then(|id| id.to_str().ok()).unwrap_or_default();
    let percent = loading.permille() / 10;
    ApiError::Loading { percent }.response(envelope, id)
}

#[cfg(test)]
mod tests;
