//! What is told of a request when it has ended, for tracing: whose trace it belongs to, what was asked, what it took.
//!
//! Middleware begins an [`Observation`], the request's own path takes it over and fills it in, and whoever has it last drops
//! it: that tells. Without an [`Observer`] there is none, and nothing is done.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use andante_engine::{FinishReason, Timings, Usage};
use axum::http::{HeaderMap, HeaderName, Request};
use serde_json::Value;

use crate::error::ApiError;
use crate::json::Field;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// The longest header that is taken over; W3C asks for at least 512 characters of `tracestate`.
const MOST_HEADER_BYTES: usize = 1024;

/// Hears of every request to the model that has ended. Called on the server's threads; must not wait.
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn(Observed) + Send + Sync>);

impl Observer {
    /// One that does this.
    pub fn new(tell: impl Fn(Observed) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Tells it of a request.
    pub fn hear(&self, observed: Observed) {
        (self.0)(observed);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// A request to the model, from its first byte to its end.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The header `traceparent`, as it came.
    pub traceparent: Option<String>,
    /// The header `tracestate`, as it came.
    pub tracestate: Option<String>,
    /// The id that the answer had.
    pub request_id: String,
    /// The path that was asked for.
    pub path: String,
    /// What was asked: `chat`, `text_completion` or `embeddings`.
    pub operation: &'static str,
    /// The model that was asked for, if one was named.
    pub model: Option<String>,
    /// What was asked of it.
    pub parameters: Parameters,
    /// When its head had been read.
    pub began: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// When the engine got it, if it did.
    pub submitted: Option<SystemTime>,
    /// The answers that were completed.
    pub choices: Vec<ObservedChoice>,
    /// Why there was no whole answer.
    pub error: Option<ObservedError>,
}

/// What a request asks of its answer. `None` where it does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Parameters {
    /// Most tokens.
    pub max_tokens: Option<i64>,
    /// Temperature.
    pub temperature: Option<f64>,
    /// Nucleus.
    pub top_p: Option<f64>,
    /// Seed.
    pub seed: Option<i64>,
    /// Whether it comes in pieces.
    pub stream: bool,
}

/// One completed answer.
#[derive(Debug, Clone)]
pub struct ObservedChoice {
    /// Why it ended.
    pub reason: FinishReason,
    /// Its tokens.
    pub usage: Usage,
    /// Its time.
    pub timings: Timings,
}

/// Why there was no whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedError {
    /// In one word.
    pub kind: ErrorKind,
    /// What happened, for people.
    pub message: String,
}

/// How a request ended without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Before its status line, with this status code.
    Refused(u16),
    /// After it.
    Failed,
    /// Its client has gone.
    Cancelled,
}

tokio::task_local! {
    /// That of the request whose handler runs, until it is taken.
    static CURRENT: RefCell<Option<Observation>>;
}

/// An account of a request that is being made. Dropped before the request has ended, it tells that the client has gone.
pub(crate) struct Observation {
    observer: Observer,
    /// Until it is told.
    observed: Option<Box<Observed>>,
}

/// What a request's body says of what it wants.
pub(crate) struct Asked {
    model: Option<String>,
    parameters: Parameters,
}

impl Observation {
    /// Of a request that has just come, if somebody is to hear of it.
    pub(crate) fn begin<B>(
        observer: Option<&Observer>,
        request: &Request<B>,
        id: &str,
    ) -> Option<Self> {
        let observer = observer?.clone();
        let (path, headers) = (request.uri().path(), request.headers());
        let observed = Observed {
            traceparent: header(headers, &TRACEPARENT),
            tracestate: header(headers, &TRACESTATE),
            request_id: id.to_owned(),
            path: path.to_owned(),
            operation: operation(path),
            model: None,
            parameters: Parameters::default(),
            began: SystemTime::now(),
            ended: SystemTime::UNIX_EPOCH,
            submitted: None,
            choices: Vec::new(),
            error: None,
        };
        Some(Self {
            observer,
            observed: Some(Box::new(observed)),
        })
    }

    /// Runs a handler that may [take](Self::take) it. Untaken, the request was none to the model, and nothing is told.
    pub(crate) async fn lend<T>(observation: Option<Self>, handler: impl Future<Output = T>) -> T {
        let Some(observation) = observation else {
            return handler.await;
        };
        let run = async {
            let done = handler.await;
            if let Some(mut untaken) = Self::take() {
                untaken.observed = None;
            }
            done
        };
        CURRENT.scope(RefCell::new(Some(observation)), run).await
    }

    /// That of the request whose handler runs.
    pub(crate) fn take() -> Option<Self> {
        CURRENT.try_with(RefCell::take).ok().flatten()
    }

    /// The engine gets it now.
    pub(crate) fn submitted(&mut self, asked: Asked) {
        if let Some(observed) = &mut self.observed {
            observed.submitted = Some(SystemTime::now());
            observed.model = asked.model;
            observed.parameters = asked.parameters;
        }
    }

    /// An answer is complete.
    pub(crate) fn choice(&mut self, reason: &FinishReason, usage: Usage, timings: Timings) {
        if let Some(observed) = &mut self.observed {
            observed.choices.push(ObservedChoice {
                reason: reason.clone(),
                usage,
                timings,
            });
        }
    }

    /// All answers are.
    pub(crate) fn complete(mut self) {
        self.tell(None);
    }

    /// It was refused before the status line.
    pub(crate) fn refused(mut self, error: &ApiError) {
        self.tell(Some(ObservedError {
            kind: ErrorKind::Refused(error.status().as_u16()),
            message: error.to_string(),
        }));
    }

    /// It failed after that.
    pub(crate) fn failed(mut self, error: &ApiError) {
        self.tell(Some(ObservedError {
            kind: ErrorKind::Failed,
            message: error.to_string(),
        }));
    }

    fn tell(&mut self, error: Option<ObservedError>) {
        if let Some(mut observed) = self.observed.take() {
            observed.ended = SystemTime::now();
            observed.error = error;
            self.observer.hear(*observed);
        }
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        self.tell(Some(ObservedError {
            kind: ErrorKind::Cancelled,
            message: "the client has gone".into(),
        }));
    }
}

impl Asked {
    pub(crate) fn of(body: &Field<'_>) -> Self {
        let most = ["max_completion_tokens", "max_tokens", "max_output_tokens"];
        let value = |key: &str| body.get(key).value();
        let parameters = Parameters {
            max_tokens: body.any_of(&most).value().and_then(Value::as_i64),
            temperature: value("temperature").and_then(Value::as_f64),
            top_p: value("top_p").and_then(Value::as_f64),
            seed: value("seed").and_then(Value::as_i64),
            stream: value("stream") == Some(&Value::Bool(true)),
        };
        Self {
            model: value("model").and_then(Value::as_str).map(str::to_owned),
            parameters,
        }
    }
}

/// A header that is short text.
fn header(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    (text.len() <= MOST_HEADER_BYTES).then(|| text.to_owned())
}

/// What a path asks for, in the words of OpenTelemetry's conventions for generative AI.
fn operation(path: &str) -> &'static str {
    match path.strip_prefix("/v1").unwrap_or(path) {
        "/completions" | "/api/generate" => "text_completion",
        "/embeddings" => "embeddings",
        _ => "chat",
    }
}

#[cfg(test)]
mod tests;
