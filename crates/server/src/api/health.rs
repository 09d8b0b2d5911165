//! `GET /health` for supervisors, `GET /version` for people, `HEAD /` for clients that only want to know whether somebody is there.

use andante_engine::Health;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::openapi::Ending;
use crate::Server;
use crate::error::ApiError;
use crate::page;

/// What programs are told that ask whether anybody is there.
const HELLO: &str = "Andante is running\n";

/// 200 while requests are taken, 503 when draining or after the engine failed.
#[utoipa::path(
    get,
    path = "/health",
    tag = "Andante",
    responses((status = 200, body = Working), Ending)
)]
pub(super) async fn health(State(server): State<Server>) -> Result<Json<Working>, ApiError> {
    match server.engine().health() {
        Health::Ready => Ok(Json(Working::new("ok", true))),
        Health::Draining => Err(ApiError::Draining),
        Health::Stopped | Health::Failed => Err(ApiError::EngineStopped),
    }
}

/// The same, in the words of those who ask for readiness.
#[utoipa::path(
    get,
    path = "/health/ready",
    tag = "Andante",
    responses((status = 200, body = Working), Ending)
)]
pub(super) async fn ready(state: State<Server>) -> Result<Json<Working>, ApiError> {
    health(state).await
}

/// 200 while the process is of use: also while it ends, and before it is ready. 503 after the engine failed.
#[utoipa::path(
    get,
    path = "/health/live",
    tag = "Andante",
    responses((status = 200, body = Working), Ending)
)]
pub(super) async fn live(State(server): State<Server>) -> Result<Json<Working>, ApiError> {
    match server.engine().health() {
        Health::Ready => Ok(Json(Working::new("ok", true))),
        Health::Draining | Health::Stopped => Ok(Json(Working::new("ending", false))),
        Health::Failed => Err(ApiError::EngineStopped),
    }
}

/// The program's version.
#[utoipa::path(get, path = "/version", tag = "Andante", responses((status = 200, body = Version)))]
pub(super) async fn version() -> Json<Version> {
    Json(Version {
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// That the server works.
#[derive(Serialize, ToSchema)]
pub(super) struct Working {
    status: &'static str,
    live: bool,
    ready: bool,
}

impl Working {
    fn new(status: &'static str, ready: bool) -> Self {
        Self {
            status,
            live: true,
            ready,
        }
    }
}

/// A version of the program, or of the API that it speaks.
#[derive(Serialize, ToSchema)]
pub(super) struct Version {
    pub(super) version: &'static str,
}

/// That somebody is there; the page for browsers.
#[utoipa::path(
    get,
    path = "/",
    tag = "Andante",
    responses((status = 200, content((String = "text/plain"), (String = "text/html"))))
)]
pub(super) async fn hello(headers: HeaderMap) -> Response {
    let mut response = if page::is_wanted(&headers) {
        page::index(&headers)
    } else {
        HELLO.into_response()
    };
    let vary = HeaderValue::from_static("accept");
    response.headers_mut().append(header::VARY, vary);
    response
}

/// The same under the path where Claude Code asks.
#[utoipa::path(get, path = "/api/hello", tag = "Anthropic", responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn api_hello() -> &'static str {
    HELLO
}
