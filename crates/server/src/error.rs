//! What can go wrong with a request, and the one mapping of it to OpenAI's error envelope.
//!
//! Clients steer by these answers. They read the status, `code` and `Retry-After`, and they match words of the message:
//! a text with "overloaded" in it is sent again, "maximum context length is" starts a compaction.

use andante_engine::{EngineHandle, Failure, RequestError, SubmitError};
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

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
    #[error("{0}")]
    Failed(Failure),
    #[error("the engine has stopped")]
    EngineStopped,
    #[error("the server is shutting down")]
    Draining,
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

    fn status(&self) -> StatusCode {
        match self {
            Self::Json(_) | Self::NoObject { .. } | Self::Field { .. } | Self::BodyCut => {
                StatusCode::BAD_REQUEST
            }
            Self::Refused(_) | Self::TooManyChoices { .. } | Self::Failed(Failure::TooLong) => {
                StatusCode::BAD_REQUEST
            }
            Self::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::ContentEncoding => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::NoRoute { .. } | Self::NoModel { .. } => StatusCode::NOT_FOUND,
            Self::NoMethod { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAdmitted(SubmitError::QueueFull { .. }) | Self::QueueTimeout { .. } => {
                StatusCode::TOO_MANY_REQUESTS
            }
            // Nothing is known to be wrong, and the same request may do better: its prompt's prefix is in the cache now.
            Self::Failed(Failure::FirstTokenTimeout) => StatusCode::GATEWAY_TIMEOUT,
            Self::NotAdmitted(SubmitError::ShuttingDown)
            | Self::Failed(Failure::ShuttingDown)
            | Self::Draining
            | Self::NotAdmitted(SubmitError::Dead)
            | Self::EngineStopped => StatusCode::SERVICE_UNAVAILABLE,
            Self::Failed(_) | Self::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// OpenAI's `type`: some clients try again by this word, whatever the status.
    fn kind(&self) -> &'static str {
        match self.status() {
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::SERVICE_UNAVAILABLE => "service_unavailable",
            StatusCode::GATEWAY_TIMEOUT => "timeout_error",
            StatusCode::INTERNAL_SERVER_ERROR => "server_error",
            _ => "invalid_request_error",
        }
    }

    fn code(&self) -> Option<&'static str> {
        match self {
            Self::Refused(RequestError::ContextLength { .. }) => Some("context_length_exceeded"),
            Self::NoModel { .. } => Some("model_not_found"),
            Self::BodyTooLarge { .. } => Some("request_too_large"),
            Self::NotAdmitted(SubmitError::QueueFull { .. }) | Self::QueueTimeout { .. } => {
                Some("rate_limit_exceeded")
            }
            _ => None,
        }
    }

    fn param(&self) -> Option<&str> {
        match self {
            Self::Field { path, .. } => Some(path),
            Self::Refused(RequestError::InvalidParameter { name, .. }) => Some(name),
            Self::NoModel { .. } => Some("model"),
            Self::TooManyChoices { .. } => Some("n"),
            _ => None,
        }
    }

    fn retry_after_s(&self) -> Option<u32> {
        match self {
            Self::NotAdmitted(SubmitError::QueueFull { retry_after_s })
            | Self::QueueTimeout { retry_after_s, .. } => Some(*retry_after_s),
            _ if self.status() == StatusCode::SERVICE_UNAVAILABLE => Some(RESTART_S),
            _ => None,
        }
    }

    /// The envelope: a response's body, or the event that ends a stream.
    pub(crate) fn envelope(&self) -> Value {
        let mut error = json!({
            "message": self.to_string(),
            "type": self.kind(),
            "param": self.param(),
            "code": self.code(),
        });
        if let Self::Refused(RequestError::ContextLength {
            prompt_tokens,
            context,
        }) = self
        {
            error["n_prompt_tokens"] = (*prompt_tokens).into();
            error["n_ctx"] = (*context).into();
        }
        json!({ "error": error })
    }
}

/// Rides on a response for the log: why it is not the answer that was asked for.
#[derive(Clone)]
pub(crate) struct Refusal(pub(crate) String);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status(), Json(self.envelope())).into_response();
        if let Some(seconds) = self.retry_after_s() {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(Refusal(self.to_string()));
        response
    }
}

#[cfg(test)]
mod tests;
