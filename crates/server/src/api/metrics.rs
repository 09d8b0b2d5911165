//! `GET /metrics` in the OpenMetrics text format: the engine's last status, written out by who asks for it.
//!
//! Names follow OpenMetrics: base units, counters with `_total`.

use std::fmt;
use std::sync::atomic::AtomicU64;

use andante_engine::{Failure, Health, Histogram, Status, StoreStats};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::openapi::Keyed;
use super::scheduler::limit_name;
use crate::Server;

/// The media type of the format, by its specification.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = [(&'static str, String); 1];
type Seconds = Gauge<f64, AtomicU64>;
type SecondsCounter = Counter<f64, AtomicU64>;

/// Counters and gauges in the OpenMetrics text format.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "Andante",
    responses((status = 200, body = String, content_type = "application/openmetrics-text"), Keyed)
)]
pub(super) async fn metrics(State(server): State<Server>) -> Response {
    let page = render(&server.engine().status());
    ([(header::CONTENT_TYPE, OPEN_METRICS)], page).into_response()
}

pub(super) fn render(status: &Status) -> String {
    let mut page = Page(Registry::with_prefix("andante"));
    requests(&mut page, status);
    tokens_and_steps(&mut page, status);
    constraints(&mut page, status);
    stall(&mut page, status);
    blocks(&mut page, status);
    if let Some(stats) = &status.store {
        store(&mut page, stats);
    }
    tenants(&mut page, status);
    let mut written = String::new();
    text::encode(&mut written, &page.0).expect("a string takes everything");
    written
}

fn requests(page: &mut Page, status: &Status) {
    let ready = i64::from(status.health == Health::Ready);
    page.gauge("ready", "1 while requests are taken", ready);
    let mut ended = vec![
        ("finished", status.finished),
        ("cancelled", status.cancelled),
        ("refused", status.refused),
    ];
    ended.extend(
        status
            .failures
            .iter()
            .map(|(&failure, &count)| (failure_name(failure), count)),
    );
    page.counters("requests", "Requests by how they ended", "outcome", ended);
    let stats = &status.scheduler;
    let now = [
        ("queued", stats.queued),
        ("prefilling", stats.prefilling),
        ("active", stats.active),
        ("parked", stats.parked),
    ];
    page.gauges(
        "sequences",
        "Requests inside, by what they wait for or do",
        "state",
        now,
    );
    page.gauge(
        "sequences_resident",
        "Requests that hold KV memory",
        stats.resident.into(),
    );
    page.histogram(
        "first_token",
        "From a request's arrival to its first token",
        status.first_token_time,
    );
    page.histogram(
        "longest_gap",
        "Longest gap between two tokens of an answer",
        status.longest_gap,
    );
}

fn tokens_and_steps(page: &mut Page, status: &Status) {
    let stats = &status.scheduler;
    let tokens = [
        ("prefill", stats.prefill_tokens),
        ("decode", stats.decode_tokens),
        (
            "cached",
            stats.cached_tokens.saturating_sub(stats.loaded_tokens),
        ),
        ("loaded", stats.loaded_tokens),
    ];
    page.counters(
        "tokens",
        "Tokens computed (prefill, decode) or found (cached in memory, loaded from the store)",
        "kind",
        tokens.to_vec(),
    );
    page.histogram("step", "Duration of a step", status.step_time);
    page.seconds_counter(
        "steps_predicted",
        "Expected time of all steps",
        stats.predicted_us,
    );
    page.counter(
        "step_disturbances",
        "Steps of more than three times their expected time",
        stats.disturbances,
    );
    page.counter(
        "saved_blocks",
        "KV blocks saved to the store",
        stats.saved_blocks,
    );
    page.counter(
        "io_failures",
        "Loads and saves that were not completed",
        stats.io_failures,
    );
}

fn constraints(page: &mut Page, status: &Status) {
    page.counter(
        "masks",
        "Tokens chosen among those that a constraint allows",
        status.masks,
    );
    page.seconds_counter(
        "masks_computed",
        "Time spent on finding out what constraints allow, beside the model",
        status.mask_us,
    );
    page.seconds_counter(
        "masks_awaited",
        "How much of that the engine waited for",
        status.mask_wait_us,
    );
}

fn stall(page: &mut Page, status: &Status) {
    let stats = &status.scheduler;
    let broken = [
        ("decode", stats.violations.decode),
        ("floor", stats.violations.floor),
        ("model", stats.violations.model),
        ("disturbance", stats.violations.disturbance),
    ];
    page.counters(
        "stall_violations",
        "Steps beside running answers that were over a tenth longer than the stall bound, by cause",
        "cause",
        broken.to_vec(),
    );
    let finite = |us: u64| (us != u64::MAX).then_some(us);
    if let Some(us) = status.stall_asked_us {
        page.seconds("stall_bound_asked", "Stall bound that was asked for", us);
    }
    if let Some(us) = finite(stats.stall_us) {
        page.seconds("stall_bound", "Stall bound in force", us);
    }
    if let Some((us, limit)) = stats.stall_kept {
        let bound = Family::<Labels, Seconds>::default();
        bound
            .get_or_create(&[("limit", limit_name(limit).to_owned())])
            .set(seconds(us));
        page.0.register_with_unit(
            "stall_bound_kept",
            "Stall bound that can be kept, where the one in force cannot, and what is in its way",
            Unit::Seconds,
            bound,
        );
    }
}

fn blocks(page: &mut Page, status: &Status) {
    let blocks = status.scheduler.blocks;
    let now = [
        ("used", blocks.used),
        ("cached", blocks.cached),
        ("free", blocks.free),
    ];
    page.gauges("kv_blocks", "KV blocks by what they hold", "state", now);
    page.gauge(
        "kv_blocks_reserved",
        "KV blocks promised to requests inside",
        blocks.reserved.into(),
    );
}

fn store(page: &mut Page, stats: &StoreStats) {
    let blocks = [
        ("loaded", stats.loaded_blocks),
        ("saved", stats.saved_blocks),
        ("deduplicated", stats.deduplicated),
        ("unsaved", stats.unsaved),
        ("evicted", stats.evicted),
    ];
    page.counters(
        "kv_store_blocks",
        "Blocks by what became of them: loaded from the store, saved to it, there already, not to be saved, given up for \
         others",
        "event",
        blocks.to_vec(),
    );
    let misses = [
        ("absent", stats.absent),
        ("damaged", stats.damaged),
        ("foreign", stats.foreign),
        ("unreadable", stats.unreadable),
    ];
    page.counters(
        "kv_store_misses",
        "Blocks of prompts that the store could not give, by reason",
        "reason",
        misses.to_vec(),
    );
    let moved = [("read", stats.read_bytes), ("written", stats.written_bytes)];
    page.counters(
        "kv_store_moved_bytes",
        "Bytes of objects read and written",
        "direction",
        moved.to_vec(),
    );
    let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    for (name, help, count) in [
        ("kv_store_held_blocks", "Blocks in the store", stats.blocks),
        ("kv_store_used_bytes", "What they take", stats.used_bytes),
        (
            "kv_store_budget_bytes",
            "What they may take",
            stats.budget_bytes,
        ),
    ] {
        page.gauge(name, help, whole(count));
    }
}

fn tenants(page: &mut Page, status: &Status) {
    let service = Family::<Labels, SecondsCounter>::default();
    let queued = Family::<Labels, Gauge>::default();
    let resident = Family::<Labels, Gauge>::default();
    for tenant in &status.tenants {
        let label = [("tenant", tenant.name.to_string())];
        // Names are cut short for showing, so two tenants may have one.
        service
            .get_or_create(&label)
            .inc_by(seconds(tenant.stats.service_us));
        queued
            .get_or_create(&label)
            .inc_by(tenant.stats.queued.into());
        resident
            .get_or_create(&label)
            .inc_by(tenant.stats.resident.into());
    }
    let registry = &mut page.0;
    registry.register_with_unit(
        "tenant_service",
        "Time spent for a tenant",
        Unit::Seconds,
        service,
    );
    registry.register(
        "tenant_queued",
        "Requests of a tenant that wait for a slot",
        queued,
    );
    registry.register(
        "tenant_resident",
        "Requests of a tenant that hold KV memory",
        resident,
    );
}

/// The metrics of one answer.
struct Page(Registry);

impl Page {
    fn gauge(&mut self, name: &str, help: &str, value: i64) {
        let gauge = Gauge::<i64>::default();
        gauge.set(value);
        self.0.register(name, help, gauge);
    }

    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        values: impl IntoIterator<Item = (&'static str, u32)>,
    ) {
        let family = Family::<Labels, Gauge>::default();
        for (value, count) in values {
            family
                .get_or_create(&[(label, value.to_owned())])
                .set(count.into());
        }
        self.0.register(name, help, family);
    }

    fn counter(&mut self, name: &str, help: &str, count: u64) {
        let counter = Counter::<u64>::default();
        counter.inc_by(count);
        self.0.register(name, help, counter);
    }

    fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        counts: Vec<(&'static str, u64)>,
    ) {
        let family = Family::<Labels, Counter>::default();
        for (value, count) in counts {
            family
                .get_or_create(&[(label, value.to_owned())])
                .inc_by(count);
        }
        self.0.register(name, help, family);
    }

    fn seconds(&mut self, name: &str, help: &str, us: u64) {
        let gauge = Seconds::default();
        gauge.set(seconds(us));
        self.0.register_with_unit(name, help, Unit::Seconds, gauge);
    }

    fn seconds_counter(&mut self, name: &str, help: &str, us: u64) {
        let counter = SecondsCounter::default();
        counter.inc_by(seconds(us));
        self.0
            .register_with_unit(name, help, Unit::Seconds, counter);
    }

    fn histogram(&mut self, name: &str, help: &str, durations: Histogram) {
        self.0
            .register_with_unit(name, help, Unit::Seconds, Durations(durations));
    }
}

/// A histogram of the engine's as a metric.
#[derive(Debug)]
struct Durations(Histogram);

impl EncodeMetric for Durations {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = self.0.counts();
        let bounds = Histogram::BOUNDS_US.iter().map(|&us| seconds(us));
        // The encoder sums the buckets up.
        let buckets: Vec<(f64, u64)> = bounds
            .chain([f64::INFINITY])
            .zip(counts.iter().copied())
            .collect();
        let sum = seconds(self.0.sum_us());
        encoder.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

fn failure_name(failure: Failure) -> &'static str {
    match failure {
        Failure::ShuttingDown => "shutting_down",
        Failure::NonFiniteLogits => "non_finite_logits",
        Failure::DeadEnd => "dead_end",
        Failure::Constraint => "constraint",
        Failure::Model => "model_failed",
        Failure::TooLong => "too_long",
        Failure::QueueTimeout => "queue_timeout",
        Failure::FirstTokenTimeout => "first_token_timeout",
        Failure::ReaderTimeout => "reader_timeout",
        Failure::EngineStopped => "engine_stopped",
    }
}

#[cfg(test)]
mod tests;
