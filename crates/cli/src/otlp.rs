//! Requests as OpenTelemetry spans, sent to a collector by OTLP (protobuf over HTTP).
//!
//! Each request to the model is a server span by the conventions for generative AI, a child of the span that its caller names by W3C's
//! `traceparent`. Below it, each answer has three spans: `queue`, `prefill`, `decode`. Spans are made when a request has ended, from
//! times that the engine takes anyway: while it runs nothing is added to its steps.
//!
//! Whether a request is traced is the caller's decision where it sends a `traceparent`, else that of OpenTelemetry's variables
//! (`OTEL_TRACES_SAMPLER`), all by default. `OTEL_EXPORTER_OTLP_HEADERS` and the others for spans are read too. A collector that
//! is away costs spans, never a request: 2,048 wait, further ones are dropped.
//!
//! Source of names: OpenTelemetry semantic conventions, `gen_ai` and `http`.

mod delivery;

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use andante_engine::FinishReason;
use andante_server::{ErrorKind, Observed, ObservedChoice, Observer};
use anyhow::{Context as _, Result, ensure};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer as _,
    TracerProvider as _,
};
use opentelemetry::{Array, Context, KeyValue, StringValue, Value};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use delivery::Delivery;

/// The program, as a service and as a provider of models.
const SERVICE: &str = "andante";
/// Where a collector takes spans.
const PATH: &str = "/v1/traces";
/// How long the last spans may take when the server ends.
const LAST: Duration = Duration::from_secs(5);

/// What makes spans and sends them.
pub(crate) struct Traces {
    provider: SdkTracerProvider,
}

impl Traces {
    /// To the collector at this base address, such as `http://localhost:4318`.
    ///
    /// # Errors
    /// When it is no address.
    pub(crate) fn start(endpoint: &str) -> Result<Self> {
        ensure!(
            endpoint.starts_with("http://") || endpoint.starts_with("https://"),
            "{endpoint} is no address: give http://HOST:PORT of a collector that takes OTLP over HTTP"
        );
        let address = format!("{}{PATH}", endpoint.trim_end_matches('/'));
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Delivery::new())
            .with_endpoint(address)
            .build()
            .with_context(|| format!("cannot send to {endpoint}"))?;
        let resource = Resource::builder()
            .with_service_name(SERVICE)
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_resource(resource)
            .with_batch_exporter(exporter)
            .build();
        Ok(Self { provider })
    }

    /// What is to hear of requests; `model` is the name of what answers them.
    pub(crate) fn observer(&self, model: &str) -> Observer {
        let tracer = self.provider.tracer(SERVICE);
        let model = model.to_owned();
        Observer::new(move |observed| tell(&tracer, &model, &observed))
    }
}

impl Drop for Traces {
    /// Sends what is left.
    fn drop(&mut self) {
        if let Err(error) = self.provider.shutdown_with_timeout(LAST) {
            tracing::warn!(%error, "the last spans are lost");
        }
    }
}

/// Makes a request's spans.
fn tell(tracer: &SdkTracer, model: &str, observed: &Observed) {
    let asked = observed.model.as_deref().unwrap_or(model);
    let builder = SpanBuilder::from_name(format!("{} {asked}", observed.operation))
        .with_kind(SpanKind::Server)
        .with_start_time(observed.began)
        .with_attributes(attributes(model, observed));
    let span = tracer.build_with_context(builder, &caller(observed));
    let context = Context::new().with_span(span);
    for choice in &observed.choices {
        if let Some(submitted) = observed.submitted {
            tell_choice(tracer, &context, submitted, choice);
        }
    }
    let span = context.span();
    if let Some(error) = &observed.error
        && is_ours(error.kind)
    {
        span.set_status(Status::error(error.message.clone()));
    }
    span.end_with_timestamp(observed.ended);
}

/// The span that the caller says it is in.
fn caller(observed: &Observed) -> Context {
    let mut headers = HashMap::new();
    for (name, value) in [
        ("traceparent", &observed.traceparent),
        ("tracestate", &observed.tracestate),
    ] {
        if let Some(value) = value {
            headers.insert(name.to_owned(), value.clone());
        }
    }
    TraceContextPropagator::new().extract_with_context(&Context::new(), &headers)
}

/// For a server's span, an error is what the server did wrong, not what it was asked wrongly.
fn is_ours(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::Refused(status) => status >= 500,
        ErrorKind::Failed => true,
        ErrorKind::Cancelled => false,
    }
}

fn attributes(model: &str, observed: &Observed) -> Vec<KeyValue> {
    let asked = &observed.parameters;
    let name = observed.model.as_deref().unwrap_or(model).to_owned();
    let mut attributes = vec![
        KeyValue::new("gen_ai.operation.name", observed.operation),
        KeyValue::new("gen_ai.provider.name", SERVICE),
        KeyValue::new("gen_ai.request.model", name),
        KeyValue::new("gen_ai.request.stream", asked.stream),
        KeyValue::new("url.path", observed.path.clone()),
        // As in the log's lines and the timeline.
        KeyValue::new(
            "http.response.header.x-request-id",
            observed.request_id.clone(),
        ),
    ];
    let mut add = |name: &'static str, value: Option<Value>| {
        attributes.extend(value.map(|value| KeyValue::new(name, value)));
    };
    add(
        "gen_ai.request.max_tokens",
        asked.max_tokens.map(Value::I64),
    );
    add(
        "gen_ai.request.temperature",
        asked.temperature.map(Value::F64),
    );
    add("gen_ai.request.top_p", asked.top_p.map(Value::F64));
    add("gen_ai.request.seed", asked.seed.map(Value::I64));
    let choices = &observed.choices;
    if let Some(first) = choices.first() {
        let sum = |of: fn(&ObservedChoice) -> u32| {
            Some(choices.iter().map(of).map(i64::from).sum::<i64>().into())
        };
        // Of several answers to one prompt, that counts once.
        let once = |tokens: u32| Some(i64::from(tokens).into());
        add("gen_ai.response.model", Some(model.to_owned().into()));
        add("gen_ai.response.finish_reasons", Some(reasons(choices)));
        add(
            "gen_ai.response.time_to_first_chunk",
            first_chunk(observed).map(Value::F64),
        );
        add("gen_ai.usage.input_tokens", once(first.usage.prompt_tokens));
        add(
            "gen_ai.usage.cache_read.input_tokens",
            once(first.usage.cached_tokens),
        );
        add(
            "gen_ai.usage.output_tokens",
            sum(|choice| choice.usage.completion_tokens),
        );
        add(
            "gen_ai.usage.reasoning.output_tokens",
            sum(|choice| choice.usage.reasoning_tokens),
        );
    }
    let error = observed.error.as_ref().map(|error| error.kind);
    let status = match error {
        None | Some(ErrorKind::Failed) => Some(200),
        Some(ErrorKind::Refused(status)) => Some(i64::from(status)),
        Some(ErrorKind::Cancelled) => None,
    };
    add("http.response.status_code", status.map(Value::I64));
    let kind = error.map(|kind| match kind {
        ErrorKind::Refused(status) => status.to_string(),
        ErrorKind::Failed => "failed".to_owned(),
        ErrorKind::Cancelled => "cancelled".to_owned(),
    });
    add("error.type", kind.map(Value::from));
    attributes
}

fn reasons(choices: &[ObservedChoice]) -> Value {
    let reasons = choices.iter().map(|choice| match choice.reason {
        FinishReason::Stop { .. } => "stop".into(),
        FinishReason::Length => "length".into(),
    });
    Value::Array(Array::String(reasons.collect::<Vec<StringValue>>()))
}

/// Seconds from the request to its first token.
fn first_chunk(observed: &Observed) -> Option<f64> {
    let submitted = observed.submitted?.duration_since(observed.began).ok()?;
    let first = observed.choices.iter().map(first_us).min()?;
    Some((submitted + Duration::from_micros(first)).as_secs_f64())
}

fn first_us(choice: &ObservedChoice) -> u64 {
    choice.timings.queued_us + choice.timings.prefill_us
}

/// The spans of an answer.
fn tell_choice(
    tracer: &SdkTracer,
    request: &Context,
    submitted: SystemTime,
    choice: &ObservedChoice,
) {
    let (timings, usage) = (choice.timings, choice.usage);
    let mut since = submitted;
    let mut phase = |name: &'static str, us: u64, attributes: Vec<KeyValue>| {
        let builder = SpanBuilder::from_name(name)
            .with_start_time(since)
            .with_attributes(attributes);
        since += Duration::from_micros(us);
        tracer
            .build_with_context(builder, request)
            .end_with_timestamp(since);
    };
    let seconds = |us: u64| us as f64 / 1e6;
    phase("queue", timings.queued_us, Vec::new());
    let new = usage.prompt_tokens.saturating_sub(usage.cached_tokens);
    let parts = vec![
        KeyValue::new("andante.prefill.tokens", i64::from(new)),
        KeyValue::new("andante.prefill.load", seconds(timings.load_us)),
        KeyValue::new("andante.prefill.wait", seconds(timings.wait_us)),
    ];
    phase("prefill", timings.prefill_us, parts);
    let tokens = i64::from(usage.completion_tokens);
    let parts = vec![KeyValue::new("andante.decode.tokens", tokens)];
    phase("decode", timings.decode_us, parts);
}

#[cfg(test)]
mod tests;
