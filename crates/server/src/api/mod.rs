//! The table of routes, and the one path that every answer takes: decode, prepare, submit, encode.

mod blocks;
mod cache;
mod chat;
mod completions;
mod constraint;
mod embeddings;
mod health;
mod history;
mod message;
mod messages;
mod metrics;
mod model;
mod models;
mod ollama;
mod openapi;
mod responses;
mod sampling;
mod scheduler;
mod timeline;
mod tokens;
mod tools;
mod wire;

use std::convert::Infallible;
use std::sync::Arc;

use andante_engine::{Delta, FinishReason, PromptProgress, Request, Usage};
use axum::body::Body;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) use cache::LastMap;
pub(crate) use responses::ResponseStore;

use crate::Server;
use crate::answer::{Answer, Choice, Totals};
use crate::caller::Account;
use crate::error::{ApiError, Envelope};
use crate::json::Field;
use crate::observe::{Asked, Observation};
use crate::page;
use crate::server::REQUEST_ID;
use crate::sse::{self, Frames};

/// Every route.
pub(crate) fn routes(server: Server) -> Router {
    documented()
        .0
        .route("/page/{*file}", get(page::file))
        .method_not_allowed_fallback(no_method)
        .fallback(no_route)
        .with_state(server)
}

/// Every route, and the document that says what each takes and gives: whoever adds one to the router describes it. OpenAI's and
/// Anthropic's also answer without `/v1`, since base addresses are given both ways.
fn documented() -> (Router<Server>, OpenApi) {
    let versioned = OpenApiRouter::new()
        .routes(routes!(chat::create))
        .routes(routes!(chat::input_tokens))
        .routes(routes!(completions::create))
        .routes(routes!(embeddings::create))
        .routes(routes!(messages::create))
        .routes(routes!(messages::count_tokens))
        .routes(routes!(responses::create))
        .routes(routes!(responses::input_tokens))
        .routes(routes!(responses::compact))
        .routes(routes!(responses::kept::retrieve, responses::kept::remove))
        .routes(routes!(responses::kept::cancel))
        .routes(routes!(responses::kept::input_items))
        .routes(routes!(models::list))
        .routes(routes!(models::retrieve))
        .routes(routes!(health::health))
        .routes(routes!(health::ready))
        .routes(routes!(health::live));
    let (plain, _) = versioned.clone().split_for_parts();
    let (router, gathered) = OpenApiRouter::new()
        .nest("/v1", versioned)
        // Claude Code and Ollama's clients ask whether anybody is there.
        .routes(routes!(health::hello))
        .routes(routes!(health::api_hello))
        .routes(routes!(ollama::chat))
        .routes(routes!(ollama::generate))
        .routes(routes!(ollama::model::tags))
        .routes(routes!(ollama::model::ps))
        .routes(routes!(ollama::model::show))
        .routes(routes!(ollama::model::pull))
        .routes(routes!(ollama::model::version))
        .routes(routes!(tokens::tokenize))
        .routes(routes!(tokens::detokenize))
        .routes(routes!(tokens::apply_template))
        .routes(routes!(models::props))
        .routes(routes!(health::version))
        .routes(routes!(metrics::metrics))
        .routes(routes!(scheduler::scheduler))
        .routes(routes!(cache::kv))
        .routes(routes!(model::model))
        .routes(routes!(timeline::timeline))
        .routes(routes!(timeline::events))
        .routes(routes!(openapi::openapi))
        .split_for_parts();
    (router.merge(plain), openapi::document(gathered))
}

/// The `{id}` of a path. One that is not text is empty, and nobody's.
pub(crate) struct Id(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let id = Path::<String>::from_request_parts(parts, state).await;
        Ok(Self(id.map(|Path(id)| id).unwrap_or_default()))
    }
}

/// A decoded and prepared request: what to run, and how to write the answer.
pub(crate) struct Job<E> {
    pub(crate) requests: Vec<Request>,
    pub(crate) choices_per_prompt: usize,
    pub(crate) stream: bool,
    /// What of the request was passed over, in ASCII.
    pub(crate) warning: Option<String>,
    pub(crate) encoder: E,
}

/// How an API writes an answer. All but `whole` is for streams.
pub(crate) trait Encode: Send + Unpin + 'static {
    /// The content type of a stream.
    const CONTENT_TYPE: &'static str = sse::EVENT_STREAM;

    /// The request has been taken in. What is written here is the client's first byte, which waits for nothing: a proxy that
    /// has seen it knows that the server is there.
    fn opened(&mut self, frames: &mut Frames) {
        frames.push_comment();
    }
    /// A choice's prompt has come so far. Only APIs that can be asked for this write it.
    fn progress(&mut self, _choice: usize, _progress: &PromptProgress, _frames: &mut Frames) {}
    /// A choice's prompt is computed; `prompt` counts its tokens.
    fn started(&mut self, choice: usize, prompt: Usage, frames: &mut Frames);
    /// A piece of a choice.
    fn delta(&mut self, choice: usize, delta: Delta, frames: &mut Frames);
    /// A choice is complete.
    fn finished(&mut self, choice: usize, reason: FinishReason, frames: &mut Frames);
    /// All choices are complete: what is written here is the stream's end.
    fn ended(&mut self, totals: Totals, frames: &mut Frames);
    /// The answer has failed: what is written here is the stream's end.
    fn failed(&mut self, error: &ApiError, frames: &mut Frames) {
        frames.push(&Envelope::OpenAi.body(error, ""));
        frames.push_done();
    }
    /// Nothing has happened for a while, and the client must not take that for a dead connection.
    fn keep_alive(&mut self, frames: &mut Frames) {
        frames.push_comment();
    }
    /// The whole answer at once.
    fn whole(&mut self, choices: Vec<Choice>, totals: Totals) -> impl Serialize;
}

/// Answers a request that `decode` understands.
async fn answer<E: Encode>(
    server: Server,
    headers: &HeaderMap,
    body: Body,
    decode: impl FnOnce(&Server, &Field<'_>) -> Result<Job<E>, ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let (answer, delivery) = begin(&server, headers, body, decode).await?;
    let mut encoder = delivery.encoder;
    let mut response = if delivery.stream {
        sse::response(answer, encoder, server.config().keep_alive)
    } else {
        let (choices, totals) = answer.collect().await?;
        Json(encoder.whole(choices, totals)).into_response()
    };
    if let Some(warning) = delivery
        .warning
        .and_then(|warning| warning_header(&warning))
    {
        response.headers_mut().insert(header::WARNING, warning);
    }
    Ok(response)
}

/// Reads, prepares and submits a request. All that can be refused is refused here, before the status line.
async fn begin<E: Send + 'static>(
    server: &Server,
    headers: &HeaderMap,
    body: Body,
    decode: impl FnOnce(&Server, &Field<'_>) -> Result<Job<E>, ApiError> + Send + 'static,
) -> Result<(Answer, Job<E>), ApiError> {
    let mut observation = Observation::take();
    let begun = submit(server, headers, body, decode, &mut observation).await;
    match begun {
        Ok((mut answer, job)) => {
            answer.observe(observation);
            Ok((answer, job))
        }
        Err(error) => {
            if let Some(observation) = observation {
                observation.refused(&error);
            }
            Err(error)
        }
    }
}

async fn submit<E: Send + 'static>(
    server: &Server,
    headers: &HeaderMap,
    body: Body,
    decode: impl FnOnce(&Server, &Field<'_>) -> Result<Job<E>, ApiError> + Send + 'static,
    observation: &mut Option<Observation>,
) -> Result<(Answer, Job<E>), ApiError> {
    let pass = server.admit(headers)?;
    let id = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let id: Option<Arc<str>> = id.map(Into::into);
    let observed = observation.is_some();
    let (mut job, asked) = server
        .prepare_body(headers, body, move |server, body| {
            let asked = observed.then(|| Asked::of(body));
            let mut job = decode(server, body)?;
            let Account { tenant, priority } = server.account();
            for request in &mut job.requests {
                request.set_account(tenant.clone(), *priority);
                if let Some(id) = &id {
                    request.set_name(Arc::clone(id));
                }
            }
            Ok((job, asked))
        })
        .await?;
    let engine = server.engine();
    let (choices, room) = (job.requests.len(), engine.max_inside());
    if choices > room as usize {
        return Err(ApiError::TooManyChoices { choices, room });
    }
    let prompts = job.requests.iter().step_by(job.choices_per_prompt);
    let prompts: Vec<u32> = prompts.map(Request::prompt_tokens).collect();
    if let (Some(observation), Some(asked)) = (observation, asked) {
        observation.submitted(asked);
    }
    let streams = std::mem::take(&mut job.requests).into_iter();
    let streams = streams.map(|request| engine.submit(request));
    let streams = streams.collect::<Result<_, _>>()?;
    prompts.into_iter().for_each(|tokens| pass.charge(tokens));
    let answer = Answer::new(engine.clone(), streams, job.choices_per_prompt, pass);
    Ok((answer, job))
}

/// The header by which a response says that it is not quite what was asked for (RFC 7234, 5.5: miscellaneous).
fn warning_header(warning: &str) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("199 andante \"{warning}\"")).ok()
}

async fn no_route(uri: Uri) -> ApiError {
    ApiError::NoRoute {
        path: uri.path().to_owned(),
    }
}

async fn no_method(method: Method, uri: Uri) -> ApiError {
    ApiError::NoMethod {
        method: method.to_string(),
        path: uri.path().to_owned(),
    }
}

#[cfg(test)]
mod tests;
