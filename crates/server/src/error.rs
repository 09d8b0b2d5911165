//! What can go wrong with a request, and the one mapping of it to each API's status and envelope.
//!
//! Clients steer by these answers. They read the status, `code` and `Retry-After`, and they match words of the message:
//! a text with "overloaded" in it is sent again, "maximum context length is" starts a compaction.
//!
//! A handler returns an [`ApiError`]; what surrounds all handlers knows the request's API and writes the envelope.

mod envelope;

use std::sync::Arc;

use andante_engine::{EngineHandle, Failure, RequestError, SubmitError};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::limits::Limit;
pub(crate) use envelope::{AnthropicError, Envelope, OllamaError, OpenAiError};

/// Everything that ends a request without an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("the request body is not valid JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the request body must be a JSON object, got {found}")]
    NoObject { found: &'static str },
    #[error("`{path}`: {why}")]
    Field { path: String, why: String },
    #[error("the request body is larger than {limit} bytes")]
    BodyTooLarge { limit: usize },
    #[error("the request body did not arrive in time")]
    BodyTimeout,
    #[error("the request body ended early")]
    BodyCut,
    #[error("content-encoding is not supported; send the body as it is")]
    ContentEncoding,
    #[error("there is no `{path}` here")]
    NoRoute { path: String },
    #[error("`{path}` does not answer to {method}")]
    NoMethod { method: String, path: String },
    #[error("the model `{id}` does not exist; this server has `{served}`")]
    NoModel { id: String, served: String },
    #[error("{what} with id '{id}' not found.")]
    NoObjectStored { what: &'static str, id: String },
    /// Clients act on its code: they send the whole conversation instead.
    #[error("Previous response with id '{id}' not found.")]
    NoPreviousResponse { id: String },
    #[error(
        "the summary was cut by the limit of tokens; ask for it earlier, or with a larger limit"
    )]
    SummaryCut,
    #[error("no valid API key was given; send it as `Authorization: Bearer` or `x-api-key`")]
    NoKey,
    #[error("{}", refusal_text(.0))]
    Refused(#[from] RequestError),
    #[error("this asks for {choices} answers at once; the server has room for {room}")]
    TooManyChoices { choices: usize, room: u32 },
    #[error("{}", not_admitted_text(*.0))]
    NotAdmitted(#[from] SubmitError),
    /// The engine's estimate of when it will have room goes with it.
    #[error("Rate limit reached: {failure}. Please try again in {retry_after_s}s.")]
    QueueTimeout {
        failure: Failure,
        retry_after_s: u32,
    },
    #[error("Rate limit reached: {limit}. Please try again in {retry_after_s}s.")]
    OverLimit { limit: Limit, retry_after_s: u32 },
    #[error("{0}")]
    Failed(Failure),
    #[error("the engine has stopped")]
    EngineStopped,
    #[error("the server is shutting down")]
    Draining,
    #[error("the model is being loaded: {percent} %")]
    Loading { percent: u64 },
    #[error("internal server error")]
    Panicked,
}

/// Seconds after which a client may try a server again that is going down: another one may be up by then.
const RESTART_S: u32 = 5;

/// The sentence by which clients recognise a prompt that is too long is OpenAI's, to the letter.
fn refusal_text(error: &RequestError) -> String {
    match error {
        RequestError::ContextLength {
            prompt_tokens,
            context,
        } => format!(
            "This model's maximum context length is {context} tokens. However, your messages resulted in \
             {prompt_tokens} tokens. Please reduce the length of the messages."
        ),
        other => other.to_string(),
    }
}

/// OpenAI's sentence for a client that has to wait: some read the seconds out of it.
fn not_admitted_text(error: SubmitError) -> String {
    match error {
        SubmitError::QueueFull { retry_after_s } => {
            format!("Rate limit reached: the queue is full. Please try again in {retry_after_s}s.")
        }
        other => other.to_string(),
    }
}

impl ApiError {
    /// A request that failed in `engine` after it was taken in.
    pub(crate) fn failed(failure: Failure, engine: &EngineHandle) -> Self {
        match failure {
            Failure::QueueTimeout => Self::QueueTimeout {
                failure,
                retry_after_s: engine.retry_after_s(),
            },
            other => Self::Failed(other),
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Json(_)
            | Self::NoObject { .. }
            | Self::Field { .. }
            | Self::NoPreviousResponse { .. }
            | Self::SummaryCut
            | Self::BodyCut => StatusCode::BAD_REQUEST,
            // The form asked for leads nowhere: sending the request again would not help.
            Self::Refused(_)
            | Self::TooManyChoices { .. }
            | Self::Failed(Failure::TooLong | Failure::DeadEnd | Failure::Constraint) => {
                StatusCode::BAD_REQUEST
            }
            Self::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::ContentEncoding => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::NoRoute { .. } | Self::NoModel { .. } | Self::NoObjectStored { .. } => {
                StatusCode::NOT_FOUND
            }
            Self::NoKey => StatusCode::UNAUTHORIZED,
            Self::NoMethod { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAdmitted(SubmitError::QueueFull { .. })
            | Self::QueueTimeout { .. }
            | Self::OverLimit { .. } => StatusCode::TOO_MANY_REQUESTS,
            // Nothing is known to be wrong, and the same request may do better: its prompt's prefix is in the cache now.
            Self::Failed(Failure::FirstTokenTimeout) => StatusCode::GATEWAY_TIMEOUT,
            Self::NotAdmitted(SubmitError::ShuttingDown)
            | Self::Failed(Failure::ShuttingDown)
            | Self::Draining
            | Self::Loading { .. }
            | Self::NotAdmitted(SubmitError::Dead)
            | Self::EngineStopped => StatusCode::SERVICE_UNAVAILABLE,
            Self::Failed(_) | Self::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn retry_after_s(&self) -> Option<u32> {
        match self {
            Self::NotAdmitted(SubmitError::QueueFull { retry_after_s })
            | Self::QueueTimeout { retry_after_s, .. }
            | Self::OverLimit { retry_after_s, .. } => Some(*retry_after_s),
            _ if self.status() == StatusCode::SERVICE_UNAVAILABLE => Some(RESTART_S),
            _ => None,
        }
    }

    /// The response in an API's form: status, headers and envelope.
    pub(crate) fn response(&self, envelope: Envelope, request_id: &str) -> Response {
        let body = axum::Json(envelope.body(self, request_id));
        let mut response = (envelope.status(self), body).into_response();
        if let Some(seconds) = self.retry_after_s() {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if matches!(self, Self::NoKey) {
            let scheme = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// Rides on a response whose envelope is still to be written: why it is not the answer that was asked for.
#[derive(Clone)]
pub(crate) struct Refusal(pub(crate) Arc<ApiError>);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(Refusal(Arc::new(self)));
        response
    }
}

#[cfg(test)]
mod tests;
