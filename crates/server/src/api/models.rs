//! `GET /v1/models` and `GET /v1/models/{id}`: the one model, in the forms of OpenAI and Anthropic at once, with the hints
//! that clients look for beside them (llama-server's `meta`, vLLM's `max_model_len`, the router fields `status` and
//! `architecture`, OpenRouter's `top_provider` and `supported_parameters`). A model that goes by several names is listed under each. `GET /props`: what clients of llama-server ask about the model.

use andante_text::ChatTemplate;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::Id;
use super::openapi::{Keyed, NoSuch};
use crate::Server;
use crate::error::ApiError;

/// The model, as a list.
#[utoipa::path(get, path = "/models", tag = "OpenAI", responses((status = 200, body = Models)))]
pub(super) async fn list(State(server): State<Server>) -> Json<Models> {
    let data: Vec<Model> = server.model_names().map(|id| model(&server, id)).collect();
    let id = |model: Option<&Model>| model.map_or_else(String::new, |model| model.id.clone());
    Json(Models {
        object: "list",
        first_id: id(data.first()),
        last_id: id(data.last()),
        data,
        has_more: false,
    })
}

/// The model, if it has this name.
#[utoipa::path(
    get,
    path = "/models/{*id}",
    tag = "OpenAI",
    params(("id" = String, Path)),
    responses((status = 200, body = Model), NoSuch)
)]
pub(super) async fn retrieve(
    State(server): State<Server>,
    Id(id): Id,
) -> Result<Json<Model>, ApiError> {
    if server.model_names().any(|name| name == id) {
        return Ok(Json(model(&server, &id)));
    }
    Err(ApiError::NoModel {
        id,
        served: server.config().model_name.clone(),
    })
}

/// What clients of llama-server ask about the model.
#[utoipa::path(get, path = "/props", tag = "llama-server", responses((status = 200, body = Props), Keyed))]
pub(super) async fn props(State(server): State<Server>) -> Json<Props> {
    let engine = server.engine();
    Json(Props {
        default_generation_settings: GenerationSettings {
            n_ctx: engine.context(),
        },
        total_slots: engine.max_inside(),
        model_alias: server.config().model_name.clone(),
        chat_template: engine
            .template()
            .map_or("", ChatTemplate::source)
            .to_owned(),
        modalities: Modalities {
            vision: false,
            audio: false,
        },
    })
}

/// The one model there is.
#[derive(Serialize, ToSchema)]
pub(super) struct Models {
    object: &'static str,
    data: Vec<Model>,
    first_id: String,
    last_id: String,
    has_more: bool,
}

#[derive(Serialize, ToSchema)]
pub(super) struct Model {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    display_name: String,
    created_at: String,
    max_model_len: u32,
    context_length: u32,
    max_input_tokens: u32,
    capabilities: Vec<&'static str>,
    top_provider: Provider,
    #[schema(value_type = Vec<String>)]
    supported_parameters: [&'static str; SUPPORTED.len()],
    meta: Meta,
    status: Loaded,
    architecture: Media,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ModelMeta)]
struct Meta {
    n_ctx: u32,
    n_ctx_train: u32,
    n_vocab: usize,
    n_embd: usize,
    n_params: u64,
    size: u64,
}

/// OpenRouter's words for it, which ds4-server's clients read.
#[derive(Serialize, ToSchema)]
struct Provider {
    context_length: u32,
    max_completion_tokens: u32,
}

/// Fields of chat requests, in OpenRouter's list of names.
const SUPPORTED: [&str; 18] = [
    "tools",
    "tool_choice",
    "max_tokens",
    "temperature",
    "top_p",
    "min_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "seed",
    "stop",
    "reasoning",
    "response_format",
    "structured_outputs",
];

#[derive(Serialize, ToSchema)]
struct Loaded {
    value: &'static str,
}

#[derive(Serialize, ToSchema)]
struct Media {
    input_modalities: Vec<&'static str>,
    output_modalities: Vec<&'static str>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct Props {
    default_generation_settings: GenerationSettings,
    total_slots: u32,
    model_alias: String,
    chat_template: String,
    modalities: Modalities,
}

#[derive(Serialize, ToSchema)]
struct GenerationSettings {
    n_ctx: u32,
}

#[derive(Serialize, ToSchema)]
struct Modalities {
    vision: bool,
    audio: bool,
}

fn model(server: &Server, id: &str) -> Model {
    let info = server.engine().info();
    let context = server.engine().context();
    Model {
        id: id.to_owned(),
        object: "model",
        created: server.started_at_s(),
        owned_by: "andante",
        kind: "model",
        display_name: info.name.as_deref().unwrap_or(id).to_owned(),
        created_at: rfc3339(server.started_at_s()),
        max_model_len: context,
        context_length: context,
        max_input_tokens: context,
        capabilities: capabilities(server),
        top_provider: Provider {
            context_length: context,
            max_completion_tokens: context,
        },
        supported_parameters: SUPPORTED,
        meta: Meta {
            n_ctx: context,
            n_ctx_train: info.context,
            n_vocab: info.vocab,
            n_embd: info.hidden,
            n_params: info.parameters,
            size: info.weight_bytes,
        },
        status: Loaded { value: "loaded" },
        architecture: Media {
            input_modalities: vec!["text"],
            output_modalities: vec!["text"],
        },
    }
}

/// What the model's template knows, in Ollama's words.
pub(super) fn capabilities(server: &Server) -> Vec<&'static str> {
    let template = server.engine().template();
    let mut capabilities = vec!["completion"];
    if template.is_some_and(ChatTemplate::knows_tools) {
        capabilities.push("tools");
    }
    let thinks = [
        "<think>",
        "enable_thinking",
        "reasoning_effort",
        "reasoning_content",
    ];
    if template.is_some_and(|template| thinks.iter().any(|word| template.contains(word))) {
        capabilities.push("thinking");
    }
    capabilities
}

/// Seconds of Unix time as a date.
pub(super) fn rfc3339(unix_time_s: u64) -> String {
    let seconds = i64::try_from(unix_time_s).unwrap_or_default();
    jiff::Timestamp::from_second(seconds)
        .unwrap_or_default()
        .to_string()
}
