//! `GET /openapi.json`: the routes as an OpenAPI document, made from the router itself, the types of answers and, where bodies are
//! read field by field so that a complaint can name the field, from what is said of them here.

use std::collections::{BTreeMap, HashMap};

use axum::Json;
use serde_json::Value;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    Components, ContentBuilder, InfoBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder,
    SecurityRequirement,
};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use crate::error::{AnthropicError, OllamaError, OpenAiError};

/// The document that `routes` gathered, with what it says of all routes.
pub(super) fn document(mut gathered: OpenApi) -> OpenApi {
    gathered.info = InfoBuilder::new()
        .title("Andante")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "A local server for one language model. OpenAI's and Anthropic's routes also answer without /v1. Fields that are not \
             listed may be understood too; unknown ones are passed over.",
        ))
        .build();
    // A name of a model may have slashes in it; OpenAPI knows no such parameters.
    let paths = std::mem::take(&mut gathered.paths.paths);
    gathered.paths.paths = paths
        .into_iter()
        .map(|(path, item)| (path.replace("{*", "{"), item))
        .collect();
    let components = gathered.components.get_or_insert_with(Components::new);
    let mut errors = vec![
        ("OpenAiError".to_owned(), OpenAiError::schema()),
        ("AnthropicError".to_owned(), AnthropicError::schema()),
        ("OllamaError".to_owned(), OllamaError::schema()),
    ];
    // And what they consist of.
    OpenAiError::schemas(&mut errors);
    AnthropicError::schemas(&mut errors);
    components.schemas.extend(errors);
    let key = ApiKey::Header(ApiKeyValue::new("x-api-key"));
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    components.add_security_scheme("key", SecurityScheme::ApiKey(key));
    gathered.security = Some(vec![
        SecurityRequirement::default(),
        SecurityRequirement::new("bearer", [] as [&str; 0]),
        SecurityRequirement::new("key", [] as [&str; 0]),
    ]);
    gathered
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "Andante", responses((status = 200, body = Object)))]
pub(super) async fn openapi() -> Json<OpenApi> {
    Json(super::documented().1)
}

/// The refusals of a route that takes a body.
macro_rules! refusals {
    ($name:ident, $error:literal, $($status:literal $why:literal),+) => {
        pub(crate) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                [$(($status, $why)),+]
                    .map(|(status, why)| (status.to_owned(), refusal(why, $error)))
                    .into()
            }
        }
    };
}

macro_rules! refusals_of {
    ($name:ident, $error:literal, $unavailable:literal) => {
        refusals!(
            $name, $error,
            "400" "A field is wrong, or what it asks for cannot be done",
            "401" "No valid API key",
            "404" "What the request names is not there",
            "408" "The body did not arrive in time",
            "413" "The body is too large",
            "415" "The body is compressed",
            "429" "No room, or a limit is reached; Retry-After says when to come back",
            "500" "The model or the server failed",
            $unavailable "The server ends",
            "504" "The first token took too long"
        );
    };
}

refusals_of!(OpenAiErrors, "OpenAiError", "503");
refusals_of!(AnthropicErrors, "AnthropicError", "529");
refusals_of!(OllamaErrors, "OllamaError", "503");
refusals!(
    NoSuch, "OpenAiError",
    "400" "The address asks for something that cannot be",
    "401" "No valid API key",
    "404" "What the address names is not there"
);
refusals!(
    Asked, "OpenAiError",
    "400" "The address asks for something that cannot be",
    "401" "No valid API key"
);
refusals!(Keyed, "OpenAiError", "401" "No valid API key");
refusals!(KeyedOllama, "OllamaError", "401" "No valid API key");
refusals!(
    Ending, "OpenAiError",
    "401" "No valid API key",
    "503" "The server ends, or its engine has failed"
);

fn refusal(why: &str, error: &str) -> RefOr<Response> {
    let schema = RefOr::Ref(Ref::from_schema_name(error));
    let content = ContentBuilder::new().schema(Some(schema)).build();
    ResponseBuilder::new()
        .description(why)
        .content("application/json", content)
        .build()
        .into()
}

/// An event of a stream, as readers of server-sent events see it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "events are written as text")]
pub(crate) struct StreamEvent {
    event: Option<String>,
    /// A JSON object, or `[DONE]`.
    data: String,
}

/// A message of a conversation.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read field by field")]
pub(crate) struct ChatMessage {
    #[schema(example = "user", pattern = "^(system|developer|user|assistant|tool)$")]
    role: String,
    /// A string, or parts with texts.
    #[schema(value_type = Option<String>)]
    content: Value,
    #[schema(nullable = false)]
    tool_calls: Option<Vec<HashMap<String, Value>>>,
    tool_call_id: Option<String>,
}

/// A request for a chat completion.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read field by field")]
#[schema(example = json!({"messages": [{"role": "user", "content": "Say hello"}], "max_tokens": 8}))]
pub(crate) struct ChatBody {
    model: Option<String>,
    #[schema(min_items = 1)]
    messages: Vec<ChatMessage>,
    stream: Option<bool>,
    #[schema(minimum = 1)]
    max_completion_tokens: Option<u32>,
    #[schema(minimum = 1, maximum = 64)]
    n: Option<u32>,
    #[schema(minimum = 0, maximum = 2)]
    temperature: Option<f32>,
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f32>,
    seed: Option<i64>,
    stop: Option<Vec<String>>,
    logprobs: Option<bool>,
    #[schema(minimum = 0, maximum = 20)]
    top_logprobs: Option<u32>,
    tools: Option<Vec<HashMap<String, Value>>>,
    response_format: Option<HashMap<String, Value>>,
    reasoning_effort: Option<String>,
    /// In a stream: chunks with `prompt_progress` while the prompt is computed, and `timings` beside the usage.
    return_progress: Option<bool>,
    user: Option<String>,
}

/// A request for a text completion.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read field by field")]
#[schema(example = json!({"prompt": "Once upon a time", "max_tokens": 8}))]
pub(crate) struct CompletionBody {
    model: Option<String>,
    /// A string, strings, token ids, or lists of those.
    #[schema(value_type = String)]
    prompt: Value,
    stream: Option<bool>,
    echo: Option<bool>,
    #[schema(minimum = 1)]
    max_tokens: Option<u32>,
    #[schema(minimum = 1, maximum = 64)]
    n: Option<u32>,
    #[schema(minimum = 0, maximum = 20)]
    logprobs: Option<u32>,
    #[schema(minimum = 0, maximum = 2)]
    temperature: Option<f32>,
    seed: Option<i64>,
    stop: Option<Vec<String>>,
    user: Option<String>,
}

/// Texts to be made into vectors.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read field by field")]
#[schema(example = json!({"input": ["a text", "another"], "encoding_format": "float"}))]
pub(crate) struct EmbeddingBody {
    model: Option<String>,
    /// A string, strings, token ids, or lists of those.
    #[schema(value_type = Vec<String>)]
    input: Value,
    #[schema(pattern = "^(float|base64)$")]
    encoding_format: Option<String>,
    #[schema(minimum = 1)]
    dimensions: Option<u32>,
    user: Option<String>,
}

/// A request of the Messages API.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read field by field")]
#[schema(example = json!({"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": "Say hello"}]}))]
pub(crate) struct MessagesBody {
    model: Option<String>,
    messages: Vec<TurnOfMessages>,
    /// A string or text blocks.
    #[schema(value_type = Option<String>)]
    system: Value,
    #[schema(minimum = 1)]
    max_tokens: Option<u32>,
    stream: Option<bool>,
    stop_sequences: Option<Vec<String>>,
    #[schema(minimum = 0, maximum = 1)]
    temperature: Option<f32>,
    tools: Option<Vec<HashMap<String, Value>>>,
    tool_choice: Option<HashMap<String, Value>>,
    thinking: Option<HashMap<String, Value>>,
}

/// A message of the Messages API.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read field by field")]
pub(crate) struct TurnOfMessages {
    #[schema(pattern = "^(user|assistant)$")]
    role: String,
    /// A string or blocks.
    #[schema(value_type = String)]
    content: Value,
}

/// A request for a response.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read field by field")]
#[schema(example = json!({"model": "m", "input": "Say hello", "max_output_tokens": 8}))]
pub(crate) struct ResponseBody {
    model: String,
    /// A string or items.
    #[schema(value_type = String)]
    input: Value,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    store: Option<bool>,
    stream: Option<bool>,
    #[schema(minimum = 1)]
    max_output_tokens: Option<u32>,
    #[schema(minimum = 0, maximum = 2)]
    temperature: Option<f32>,
    tools: Option<Vec<HashMap<String, Value>>>,
    reasoning: Option<HashMap<String, Value>>,
    text: Option<HashMap<String, Value>>,
    include: Option<Vec<String>>,
    metadata: Option<HashMap<String, String>>,
}

/// A chat in Ollama's words.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read field by field")]
#[schema(example = json!({"model": "m", "messages": [{"role": "user", "content": "Say hello"}], "stream": false}))]
pub(crate) struct OllamaChatBody {
    model: String,
    messages: Vec<OllamaMessage>,
    stream: Option<bool>,
    options: Option<HashMap<String, Value>>,
    tools: Option<Vec<HashMap<String, Value>>>,
}

/// A message in Ollama's words.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read field by field")]
pub(crate) struct OllamaMessage {
    #[schema(pattern = "^(system|user|assistant|tool)$")]
    role: String,
    content: String,
}

/// A prompt in Ollama's words.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read field by field")]
#[schema(example = json!({"model": "m", "prompt": "Say hello", "stream": false}))]
pub(crate) struct OllamaGenerateBody {
    model: String,
    prompt: Option<String>,
    system: Option<String>,
    raw: Option<bool>,
    stream: Option<bool>,
    options: Option<HashMap<String, Value>>,
}

/// The name of a model.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read field by field")]
pub(crate) struct OllamaModelBody {
    model: String,
    stream: Option<bool>,
}

/// A text to be made into tokens.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read field by field")]
#[schema(example = json!({"content": "a text", "with_pieces": true}))]
pub(crate) struct TokenizeBody {
    content: Option<String>,
    add_special: Option<bool>,
    parse_special: Option<bool>,
    with_pieces: Option<bool>,
}

/// Tokens to be made into text.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read field by field")]
#[schema(example = json!({"tokens": [1, 2, 3]}))]
pub(crate) struct DetokenizeBody {
    tokens: Option<Vec<u32>>,
}

#[cfg(test)]
mod tests;
