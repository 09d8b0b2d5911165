//! An error as each API's clients read it.
//!
//! Sources: the API references of OpenAI, Anthropic and Ollama, and what agents were seen to match.

use andante_engine::{RequestError, SubmitError};
use axum::http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::ApiError;

/// Whose form an error has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Envelope {
    OpenAi,
    Anthropic,
    Ollama,
}

/// "Overloaded": Anthropic's status for a server that takes no work just now.
const OVERLOADED: u16 = 529;

impl Envelope {
    /// That of the API which a request is addressed to.
    pub(crate) fn of(path: &str, headers: &HeaderMap) -> Self {
        let is_messages = |path: &str| path == "/messages" || path.starts_with("/messages/");
        if is_messages(path.strip_prefix("/v1").unwrap_or(path))
            || headers.contains_key("anthropic-version")
        {
            Self::Anthropic
        } else if path.starts_with("/api/") {
            Self::Ollama
        } else {
            Self::OpenAi
        }
    }

    pub(super) fn status(self, error: &ApiError) -> StatusCode {
        match (self, error.status()) {
            (Self::Anthropic, StatusCode::SERVICE_UNAVAILABLE) => {
                StatusCode::from_u16(OVERLOADED).expect("three digits are a status")
            }
            (_, status) => status,
        }
    }

    /// The body of a refusal, and the event that ends a stream which failed.
    pub(crate) fn body(self, error: &ApiError, request_id: &str) -> Value {
        let body = match self {
            Self::OpenAi => serde_json::to_value(OpenAiError {
                error: openai(error),
            }),
            Self::Anthropic => serde_json::to_value(AnthropicError {
                kind: "error",
                error: AnthropicErrorBody {
                    kind: anthropic_type(error.status()),
                    message: anthropic_message(error),
                },
                request_id: request_id.to_owned(),
            }),
            Self::Ollama => serde_json::to_value(OllamaError {
                error: error.to_string(),
            }),
        };
        body.expect("an error is plain data")
    }
}

/// A refusal in OpenAI's form.
#[derive(Serialize, ToSchema)]
pub(crate) struct OpenAiError {
    error: OpenAiErrorBody,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct OpenAiErrorBody {
    message: String,
    #[serde(rename = "type")]
    kind: &'static str,
    /// The field that is wrong.
    param: Option<String>,
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n_prompt_tokens: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n_ctx: Option<u32>,
}

/// A refusal in Anthropic's form.
#[derive(Serialize, ToSchema)]
pub(crate) struct AnthropicError {
    #[serde(rename = "type")]
    kind: &'static str,
    error: AnthropicErrorBody,
    request_id: String,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct AnthropicErrorBody {
    #[serde(rename = "type")]
    kind: &'static str,
    message: String,
}

/// A refusal in Ollama's form.
#[derive(Serialize, ToSchema)]
pub(crate) struct OllamaError {
    error: String,
}

fn openai(error: &ApiError) -> OpenAiErrorBody {
    let too_long = error.too_long();
    OpenAiErrorBody {
        message: error.to_string(),
        kind: error.kind(),
        param: error.param().map(str::to_owned),
        code: error.code(),
        n_prompt_tokens: too_long.map(|(prompt_tokens, _)| prompt_tokens),
        n_ctx: too_long.map(|(_, context)| context),
    }
}

/// The words by which clients of the Messages API tell errors apart.
fn anthropic_type(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        StatusCode::GATEWAY_TIMEOUT => "timeout_error",
        StatusCode::INTERNAL_SERVER_ERROR => "api_error",
        _ => "invalid_request_error",
    }
}

/// The sentence for a prompt that is too long is Anthropic's: its clients read the numbers out of it.
fn anthropic_message(error: &ApiError) -> String {
    match error.too_long() {
        Some((prompt_tokens, context)) => {
            format!("prompt is too long: {prompt_tokens} tokens > {context} maximum")
        }
        None => error.to_string(),
    }
}

impl ApiError {
    /// OpenAI's `type`: some clients try again by this word, whatever the status.
    pub(crate) fn kind(&self) -> &'static str {
        match self.status() {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::SERVICE_UNAVAILABLE => "service_unavailable",
            StatusCode::GATEWAY_TIMEOUT => "timeout_error",
            StatusCode::INTERNAL_SERVER_ERROR => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// OpenAI's `code`.
    pub(crate) fn code(&self) -> Option<&'static str> {
        match self {
            Self::Refused(RequestError::ContextLength { .. }) => Some("context_length_exceeded"),
            Self::NoModel { .. } => Some("model_not_found"),
            Self::NoPreviousResponse { .. } => Some("previous_response_not_found"),
            Self::NoKey => Some("invalid_api_key"),
            Self::BodyTooLarge { .. } => Some("request_too_large"),
            Self::NotAdmitted(SubmitError::QueueFull { .. })
            | Self::QueueTimeout { .. }
            | Self::OverLimit { .. } => Some("rate_limit_exceeded"),
            _ => None,
        }
    }

    fn param(&self) -> Option<&str> {
        match self {
            Self::Field { path, .. } => Some(path),
            Self::Refused(
                RequestError::InvalidParameter { name, .. } | RequestError::Constraint { name, .. },
            ) => Some(name),
            Self::NoModel { .. } => Some("model"),
            Self::NoPreviousResponse { .. } => Some("previous_response_id"),
            Self::TooManyChoices { .. } => Some("n"),
            _ => None,
        }
    }

    /// The prompt's tokens and the context, where that is what is wrong.
    fn too_long(&self) -> Option<(usize, u32)> {
        match self {
            Self::Refused(RequestError::ContextLength {
                prompt_tokens,
                context,
            }) => Some((*prompt_tokens, *context)),
            _ => None,
        }
    }
}
