//! `GET /scheduler`: how the scheduler decides, what it knows and what it has just done. Times are in microseconds, of the
//! engine's own clock.

use andante_engine::{
    CostModel, FRACTION_BITS, IoRecord, Mode, Profile, SchedulerStats, StallLimit, Status,
    StepRecord, TenantStats,
};
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::openapi::Keyed;
use crate::Server;

/// How the scheduler decides and what it has done. The form follows the scheduler, not a promise.
#[utoipa::path(get, path = "/scheduler", tag = "Andante", responses((status = 200, body = Object), Keyed))]
pub(super) async fn scheduler(State(server): State<Server>) -> Json<Value> {
    let engine = server.engine();
    let mut page = describe(&engine.status());
    page["kv_format"] = engine.info().kv_format.as_str().into();
    Json(page)
}

fn describe(status: &Status) -> Value {
    let mut page = facts(status);
    page["config"] = status.config.as_str().into();
    let tenants = status.tenants.iter();
    page["tenants"] = tenants
        .map(|status| tenant(&status.name, &status.stats))
        .collect();
    page["recent"] = status.recent.iter().map(|record| step(record)).collect();
    page
}

/// What tells nothing about anybody.
pub(super) fn facts(status: &Status) -> Value {
    let stats = &status.scheduler;
    json!({
        "mode": match status.mode {
            Mode::Mix => "mix",
            Mode::HandOff => "hand-off",
        },
        "profile": match status.profile {
            Profile::Interactive => "interactive",
            Profile::Batch => "batch",
            Profile::Strict => "strict",
        },
        "block_tokens": status.block_tokens,
        "cost": cost(&stats.cost, stats.margin_permille),
        "stall": {
            "asked_us": status.stall_asked_us,
            "auto": status.stall_auto,
            "in_force_us": Some(stats.stall_us).filter(|&us| us != u64::MAX),
            "kept_us": stats.stall_kept.map(|(us, _)| us),
            "limit": stats.stall_kept.map(|(_, limit)| limit_name(limit)),
        },
        "counts": counts(stats),
        "blocks": {
            "total": stats.blocks.total,
            "used": stats.blocks.used,
            "cached": stats.blocks.cached,
            "free": stats.blocks.free,
            "reserved": stats.blocks.reserved,
        },
        "requests": {
            "finished": status.finished,
            "failed": status.failed,
            "cancelled": status.cancelled,
            "refused": status.refused,
        },
    })
}

/// A tenant's account.
pub(super) fn tenant(name: &str, stats: &TenantStats) -> Value {
    json!({
        "name": name,
        "weight": f64::from(stats.weight_permille) / 1000.0,
        "service_us": stats.service_us,
        "queued": stats.queued,
        "resident": stats.resident,
    })
}

/// The fitted cost of a step: an intercept for its kind, and what each token, attended position, context position and row
/// adds.
fn cost(cost: &CostModel, margin_permille: [u32; 3]) -> Value {
    // Below 2^53 units of 2^-20 µs, two hours, the value is exact.
    let us = |fixed: i64| fixed as f64 / f64::from(1_u32 << FRACTION_BITS);
    json!({
        "decode_us": us(cost.decode),
        "prefill_us": us(cost.prefill),
        "mixed_us": us(cost.mixed),
        "token_us": us(cost.token),
        "attend_us": us(cost.attend),
        "context_us": us(cost.context),
        "row_us": us(cost.row),
        "margin_permille": margin_permille,
    })
}

fn counts(stats: &SchedulerStats) -> Value {
    json!({
        "queued": stats.queued,
        "resident": stats.resident,
        "prefilling": stats.prefilling,
        "active": stats.active,
        "parked": stats.parked,
        "steps": stats.steps,
        "predicted_us": stats.predicted_us,
        "actual_us": stats.actual_us,
        "prefill_tokens": stats.prefill_tokens,
        "cached_tokens": stats.cached_tokens,
        "decode_tokens": stats.decode_tokens,
        "loaded_tokens": stats.loaded_tokens,
        "saved_blocks": stats.saved_blocks,
        "io_failures": stats.io_failures,
        "disturbances": stats.disturbances,
        "failed": stats.failed,
        "violations": {
            "decode": stats.violations.decode,
            "floor": stats.violations.floor,
            "model": stats.violations.model,
            "disturbance": stats.violations.disturbance,
        },
    })
}

/// A step, planned and measured.
pub(super) fn step(step: &StepRecord) -> Value {
    json!({
        "step_no": step.step_no,
        "started_us": step.started_us,
        "predicted_us": step.predicted_us,
        "actual_us": step.actual_us,
        "io_us": step.io_us,
        "budget_us": Some(step.budget_us).filter(|&us| us < i64::MAX as u64),
        "contended": step.contended,
        "floor_limited": step.floor_limited,
        "decode": step.decode,
        "prefill": step.prefill.iter().map(|part| json!({
            "id": part.id,
            "start": part.start,
            "tokens": part.tokens,
            "last": part.last,
        })).collect::<Vec<_>>(),
        "io": step.io.map(|io| match io {
            IoRecord::Load { id, blocks } => json!({"load": {"id": id, "blocks": blocks}}),
            IoRecord::Save { blocks } => json!({"save": {"blocks": blocks}}),
        }),
    })
}

pub(super) fn limit_name(limit: StallLimit) -> &'static str {
    match limit {
        StallLimit::Decode => "decode",
        StallLimit::Floor => "floor",
    }
}

#[cfg(test)]
mod tests;
