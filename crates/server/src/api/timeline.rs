//! `GET /timeline` and `GET /timeline/events`: what the engine has just done and goes on to do, step by step, for the page's schedule
//! and for `andante top`.
//!
//! Times are µs of the engine's own clock. Sequences have numbers, tenants pseudonyms: nobody learns here what others ask,
//! or who they are. A stream has two kinds of events:
//!
//! * `moments`, a tenth of a second of them at a time: `{"missed": false, "moments": […]}`. `missed` says that some before these
//!   are lost, since the reader was slow. Each moment has a `kind`: `arrived`, `admitted`, `started`, `step`, `parked`, `unparked` or
//!   `ended`, and an `id`, but for steps. A decode row of a step, and a range that is `last` of its prompt, gives a token
//!   when the step ends, at `started_us + actual_us`.
//! * `state`, first and then every second: `now_us`, `own` (the reader's own tenant), the fitted `cost`, the `stall` bound,
//!   `counts`, `blocks`, `tenants`.
//!
//! Watching costs the engine nothing: it writes its moments whether somebody reads them or not, and waits for nobody.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use andante_engine::{
    Ending, EngineHandle, Health, Moment, Priority, StepMoment, TenantStatus, TimelineReader,
};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse as _, Response};
use futures_core::Stream;
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::openapi::{Asked, StreamEvent};
use super::scheduler;
use crate::Server;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::sse::{EVENT_STREAM, Frames};

/// How often what has happened is told.
const EVERY: Duration = Duration::from_millis(100);
/// How often the state is.
const STATE_EVERY: Duration = Duration::from_secs(1);

/// What has happened, as far as it is still known.
#[utoipa::path(
    get,
    path = "/timeline",
    tag = "Andante",
    params(("since_us" = Option<u64>, Query, description = "Only what was over after this time, by the engine's clock")),
    responses((status = 200, body = Object), Asked)
)]
pub(super) async fn timeline(
    State(server): State<Server>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Json<Value>, ApiError> {
    let mut watch = Watch::new(&server, &headers, since(&uri)?);
    let mut page = watch.state();
    let (missed, moments) = watch.moments();
    page["missed"] = missed.into();
    page["moments"] = moments.into();
    Ok(Json(page))
}

/// What has happened and goes on to happen, as a stream. Ends when the server takes no more requests.
#[utoipa::path(
    get,
    path = "/timeline/events",
    tag = "Andante",
    params(("since_us" = Option<u64>, Query, description = "Only what was over after this time, by the engine's clock")),
    responses((status = 200, body = StreamEvent, content_type = "text/event-stream"), Asked)
)]
pub(super) async fn events(
    State(server): State<Server>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, ApiError> {
    let watch = Watch::new(&server, &headers, since(&uri)?);
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stream = Watching {
        watch,
        ticks,
        keep_alive: server.config().keep_alive,
        told: Instant::now(),
        told_state: None,
        frames: Frames::default(),
    };
    let headers = [
        (header::CONTENT_TYPE, EVENT_STREAM),
        (header::CACHE_CONTROL, "no-cache"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, Body::from_stream(stream)).into_response())
}

/// `since_us` of the address.
fn since(uri: &Uri) -> Result<u64, ApiError> {
    let pairs = uri.query().unwrap_or_default().split('&');
    let mut given = pairs.filter_map(|pair| pair.strip_prefix("since_us="));
    let wrong = |_| ApiError::Field {
        path: "since_us".to_owned(),
        why: "must be a whole number of microseconds".to_owned(),
    };
    given
        .next()
        .map_or(Ok(0), |since| since.parse().map_err(wrong))
}

/// Somebody who watches.
struct Watch {
    engine: EngineHandle,
    reader: TimelineReader,
    since_us: u64,
    /// The pseudonym of whoever it is.
    own: String,
}

impl Watch {
    fn new(server: &Server, headers: &HeaderMap, since_us: u64) -> Self {
        let engine = server.engine().clone();
        let own = Caller::of(headers).tenant(None, server.config());
        Self {
            reader: engine.timeline(),
            own: pseudonym(engine.pseudonym(own.id())),
            engine,
            since_us,
        }
    }

    fn state(&self) -> Value {
        let status = self.engine.status();
        let mut state = scheduler::facts(&status);
        state["now_us"] = self.engine.now_us().into();
        state["own"] = self.own.as_str().into();
        let tenant = |tenant: &TenantStatus| {
            let number = self.engine.pseudonym(tenant.stats.tenant);
            scheduler::tenant(&pseudonym(number), &tenant.stats)
        };
        state["tenants"] = status.tenants.iter().map(tenant).collect();
        state
    }

    /// What has happened since the last time, and whether something before it is lost.
    fn moments(&mut self) -> (bool, Vec<Value>) {
        let mut moments = Vec::new();
        let missed = self.reader.read(&mut moments);
        let new = moments
            .iter()
            .filter(|moment| end_us(moment) >= self.since_us);
        (missed, new.map(describe).collect())
    }
}

/// The body of a stream.
struct Watching {
    watch: Watch,
    ticks: Interval,
    keep_alive: Duration,
    told: Instant,
    told_state: Option<Instant>,
    frames: Frames,
}

impl Watching {
    fn fill(&mut self, now: Instant) {
        if self.told_state.is_none_or(|told| now - told >= STATE_EVERY) {
            self.told_state = Some(now);
            self.frames.push_named("state", &self.watch.state());
        }
        let (missed, moments) = self.watch.moments();
        if missed || !moments.is_empty() {
            let event = json!({"missed": missed, "moments": moments});
            self.frames.push_named("moments", &event);
        }
        if self.frames.is_empty() && now - self.told >= self.keep_alive {
            self.frames.push_comment();
        }
    }
}

impl Stream for Watching {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let watching = self.get_mut();
        loop {
            let Poll::Ready(now) = watching.ticks.poll_tick(cx) else {
                return Poll::Pending;
            };
            // Who only watches keeps no server from ending.
            if watching.watch.engine.health() != Health::Ready {
                return Poll::Ready(None);
            }
            watching.fill(now);
            if !watching.frames.is_empty() {
                watching.told = now;
                return Poll::Ready(Some(Ok(watching.frames.take())));
            }
        }
    }
}

/// When a moment was over.
fn end_us(moment: &Moment) -> u64 {
    match moment {
        Moment::Step(step) => step.record.started_us + step.record.actual_us,
        Moment::Arrived { at_us, .. }
        | Moment::Admitted { at_us, .. }
        | Moment::Started { at_us, .. }
        | Moment::Parked { at_us, .. }
        | Moment::Unparked { at_us, .. }
        | Moment::Ended { at_us, .. } => *at_us,
    }
}

fn pseudonym(number: u32) -> String {
    format!("{number:08x}")
}

fn describe(moment: &Moment) -> Value {
    let simple = |kind, at_us, id| json!({"kind": kind, "at_us": at_us, "id": id});
    match *moment {
        Moment::Arrived {
            at_us,
            id,
            tenant,
            priority,
            prompt_tokens,
            stored_tokens,
            max_new,
            cache,
        } => json!({
            "kind": "arrived",
            "at_us": at_us,
            "id": id,
            "tenant": pseudonym(tenant),
            "priority": match priority {
                Priority::Low => "low",
                Priority::Normal => "normal",
                Priority::High => "high",
            },
            "prompt_tokens": prompt_tokens,
            "stored_tokens": stored_tokens,
            "max_new": max_new,
            "cache": cache,
        }),
        Moment::Admitted { at_us, id } => simple("admitted", at_us, id),
        Moment::Started {
            at_us,
            id,
            cached_tokens,
        } => json!({"kind": "started", "at_us": at_us, "id": id, "cached_tokens": cached_tokens}),
        Moment::Step(ref step) => describe_step(step),
        Moment::Parked { at_us, id } => simple("parked", at_us, id),
        Moment::Unparked { at_us, id } => simple("unparked", at_us, id),
        Moment::Ended {
            at_us,
            id,
            how,
            cached_tokens,
            tokens,
        } => json!({
            "kind": "ended",
            "at_us": at_us,
            "id": id,
            "how": match how {
                Ending::Stop => "stop",
                Ending::Length => "length",
                Ending::Cancelled => "cancelled",
                Ending::Failed => "failed",
            },
            "cached_tokens": cached_tokens,
            "tokens": tokens,
        }),
    }
}

/// As `/scheduler` describes a step, with what waited when it was over.
fn describe_step(step: &StepMoment) -> Value {
    let mut described = scheduler::step(&step.record);
    described["kind"] = "step".into();
    described["rows"] = step.rows.into();
    described["queued"] = step.queued.into();
    described["resident"] = step.resident.into();
    described["blocks_used"] = step.blocks_used.into();
    described["blocks_cached"] = step.blocks_cached.into();
    described
}

#[cfg(test)]
mod tests;
