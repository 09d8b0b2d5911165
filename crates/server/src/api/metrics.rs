//! `GET /metrics`: the engine's last status, written out by who asks for it, in the OpenMetrics text format or Prometheus'
//! own. `docs/metrics.md` lists what is written; it is made from the families themselves.
//!
//! Names follow OpenMetrics: base units, counters with `_total`. What a label can say is fixed, but for tenants, of which the
//! most served are shown.

mod family;
mod ours;
mod vllm;

use std::collections::BTreeMap;

use andante_engine::{ModelInfo, Status};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::registry::Registry;

use self::family::{Families, Family};
use super::openapi::Keyed;
use crate::Server;

/// The media type of OpenMetrics, by its specification.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The media type of Prometheus' older text format.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Counters, gauges and histograms, in OpenMetrics where that is accepted, else in Prometheus' text format.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "Andante",
    responses(
        (status = 200, content((String = "text/plain"), (String = "application/openmetrics-text"))),
        Keyed
    )
)]
pub(super) async fn metrics(State(server): State<Server>, headers: HeaderMap) -> Response {
    let source = Source {
        status: &server.engine().status(),
        info: server.engine().info(),
        model: &server.config().model_name,
        refusals: server.refusals(),
    };
    let mut families = ours::families(&source);
    if server.config().vllm_metrics {
        families.extend(vllm::families(&source));
    }
    let accepted = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok());
    let format = match accepted {
        Some(accept) if accept.contains("application/openmetrics-text") => Format::OpenMetrics,
        _ => Format::Prometheus,
    };
    let content_type = match format {
        Format::OpenMetrics => OPEN_METRICS,
        Format::Prometheus => PROMETHEUS,
    };
    (
        [(header::CONTENT_TYPE, content_type)],
        write(families, format),
    )
        .into_response()
}

/// What metrics are made of.
struct Source<'a> {
    status: &'a Status,
    info: &'a ModelInfo,
    /// The name under which clients see the model.
    model: &'a str,
    /// Refused HTTP requests, by status code.
    refusals: BTreeMap<u16, u64>,
}

#[derive(Clone, Copy)]
enum Format {
    OpenMetrics,
    Prometheus,
}

fn write(families: Vec<Family>, format: Format) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(families)));
    let mut written = String::new();
    match format {
        Format::OpenMetrics => text::encode(&mut written, &registry),
        Format::Prometheus => prometheus_text::encode(&mut written, &registry),
    }
    .expect("a string takes everything");
    written
}

#[cfg(test)]
mod tests;
