//! The response object and its companions. Items are written where they are made (`items`); here they are any JSON.

use andante_engine::{Priority, Sampling, Usage};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::Server;
use crate::error::ApiError;
use crate::json::Field;
use crate::server::unix_time_s;

/// A response: the request's fields among its own.
#[derive(Serialize, ToSchema)]
#[schema(as = Response)]
pub(in crate::api) struct ResponseObject {
    id: String,
    object: &'static str,
    created_at: u64,
    completed_at: Option<u64>,
    status: &'static str,
    background: bool,
    #[schema(value_type = Option<Object>)]
    error: Option<Value>,
    #[schema(value_type = Option<Object>)]
    incomplete_details: Option<Value>,
    instructions: Option<String>,
    max_output_tokens: Option<i64>,
    max_tool_calls: Option<i64>,
    model: String,
    #[schema(value_type = Vec<Object>)]
    output: Vec<Value>,
    parallel_tool_calls: bool,
    previous_response_id: Option<String>,
    prompt_cache_key: Option<String>,
    reasoning: ReasoningEcho,
    safety_identifier: Option<String>,
    service_tier: &'static str,
    store: bool,
    temperature: f32,
    #[schema(value_type = Object)]
    text: Value,
    /// A word, or an object.
    #[schema(value_type = Value)]
    tool_choice: Value,
    #[schema(value_type = Vec<Object>)]
    tools: Value,
    top_logprobs: u32,
    top_p: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    truncation: &'static str,
    usage: Option<ResponseUsage>,
    user: Option<String>,
    #[schema(value_type = Object)]
    metadata: Value,
}

impl ResponseObject {
    /// The response before anything of it is there: the request's fields, or their defaults, among its own.
    pub(super) fn beginning(
        server: &Server,
        model: &str,
        body: &Field<'_>,
        sampling: &Sampling,
    ) -> Result<Self, ApiError> {
        let echo = |key: &str, default: Value| body.get(key).value().cloned().unwrap_or(default);
        let text = |field: Field<'_>| Ok::<_, ApiError>(field.string()?.map(str::to_owned));
        let reasoning = body.get("reasoning");
        let mut format = json!({ "format": { "type": "text" } });
        if let (Some(format), Some(given)) = (format.as_object_mut(), body.get("text").map()?) {
            format.extend(given.clone());
        }
        body.get("metadata").map()?;
        Ok(Self {
            id: server.unique_id("resp_"),
            object: "response",
            created_at: unix_time_s(),
            completed_at: None,
            status: "in_progress",
            background: false,
            error: None,
            incomplete_details: None,
            instructions: text(body.get("instructions"))?,
            max_output_tokens: body.get("max_output_tokens").integer(-1, i64::MAX)?,
            max_tool_calls: body.get("max_tool_calls").integer(0, i64::MAX)?,
            model: model.to_owned(),
            output: Vec::new(),
            parallel_tool_calls: body.get("parallel_tool_calls").bool()?.unwrap_or(true),
            previous_response_id: text(body.get("previous_response_id"))?,
            prompt_cache_key: text(body.get("prompt_cache_key"))?,
            reasoning: ReasoningEcho {
                effort: text(reasoning.get("effort"))?,
                summary: text(reasoning.get("summary"))?,
            },
            safety_identifier: text(body.get("safety_identifier"))?,
            service_tier: match server.account().priority {
                Priority::Low => "flex",
                Priority::Normal => "default",
                Priority::High => "priority",
            },
            store: body.get("store").bool()?.unwrap_or(true),
            temperature: sampling.temperature,
            text: format,
            tool_choice: echo("tool_choice", "auto".into()),
            tools: tools(echo("tools", json!([]))),
            top_logprobs: 0,
            top_p: sampling.top_p,
            presence_penalty: sampling.presence_penalty,
            frequency_penalty: sampling.frequency_penalty,
            truncation: "disabled",
            usage: None,
            user: text(body.get("user"))?,
            metadata: echo("metadata", json!({})),
        })
    }
}

/// Tools as they were sent; a function has all its fields, since clients read them without asking.
fn tools(mut tools: Value) -> Value {
    for tool in tools.as_array_mut().into_iter().flatten() {
        if let Some(tool) = tool
            .as_object_mut()
            .filter(|tool| tool.get("type") == Some(&json!("function")))
        {
            for key in ["description", "parameters", "strict"] {
                tool.entry(key).or_insert(Value::Null);
            }
        }
    }
    tools
}

#[derive(Serialize, ToSchema)]
struct ReasoningEcho {
    effort: Option<String>,
    summary: Option<String>,
}

/// Tokens of a response.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct ResponseUsage {
    input_tokens: u32,
    input_tokens_details: InputDetails,
    output_tokens: u32,
    output_tokens_details: OutputTokens,
    total_tokens: u32,
}

#[derive(Serialize, ToSchema)]
struct InputDetails {
    cached_tokens: u32,
}

#[derive(Serialize, ToSchema)]
struct OutputTokens {
    reasoning_tokens: u32,
}

/// What a request's prompt would take.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct InputTokens {
    pub(super) object: &'static str,
    pub(super) input_tokens: usize,
}

/// A conversation as one item.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct Compaction {
    pub(super) id: String,
    pub(super) object: &'static str,
    pub(super) created_at: u64,
    #[schema(value_type = Vec<Object>)]
    pub(super) output: Vec<Value>,
    pub(super) usage: ResponseUsage,
}

/// That a response is forgotten.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct Deleted {
    pub(super) id: String,
    pub(super) object: &'static str,
    pub(super) deleted: bool,
}

/// A page of the items that a response was made from.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct ItemPage {
    pub(super) object: &'static str,
    #[schema(value_type = Vec<Object>)]
    pub(super) data: Vec<Value>,
    pub(super) first_id: Option<String>,
    pub(super) last_id: Option<String>,
    pub(super) has_more: bool,
}

impl From<Usage> for ResponseUsage {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: InputDetails {
                cached_tokens: usage.cached_tokens,
            },
            output_tokens: usage.completion_tokens,
            output_tokens_details: OutputTokens {
                reasoning_tokens: usage.reasoning_tokens,
            },
            total_tokens: usage.prompt_tokens + usage.completion_tokens,
        }
    }
}
