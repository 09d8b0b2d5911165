//! `GET /kv`: where the KV blocks are, which prefixes memory holds, how they part and how many of their blocks are in the store, too,
//! what was found and what was missed.
//!
//! Prefixes are told by their lengths alone. `space` is a pseudonym: prefixes of two spaces are never shared.

use std::time::{Duration, Instant};

use andante_engine::{EngineHandle, PrefixRun, StoreStats};
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::openapi::Ending;
use super::scheduler;
use crate::Server;
use crate::error::ApiError;

/// How long a description is good for: the engine makes one between two steps, however many ask.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// The last description, and when it was made.
#[derive(Default)]
pub(crate) struct LastMap(tokio::sync::Mutex<Option<(Instant, Value)>>);

/// Where KV is, at most a second ago. The form follows the engine, not a promise.
#[utoipa::path(get, path = "/kv", tag = "Andante", responses((status = 200, body = Object), Ending))]
pub(super) async fn kv(State(server): State<Server>) -> Result<Json<Value>, ApiError> {
    let mut last = server.last_map().0.lock().await;
    if let Some((made, map)) = &*last
        && made.elapsed() < GOOD_FOR
    {
        return Ok(Json(map.clone()));
    }
    let map = server
        .prepare(|server| describe(server.engine()).ok_or(ApiError::EngineStopped))
        .await?;
    *last = Some((Instant::now(), map.clone()));
    Ok(Json(map))
}

/// `None` if the engine has ended.
fn describe(engine: &EngineHandle) -> Option<Value> {
    let (map, holdings) = engine.prefix_map()?;
    let stored = holdings.map(|holdings| holdings.of(&map));
    let status = engine.status();
    let facts = scheduler::facts(&status);
    let run = |(index, run): (usize, &PrefixRun)| {
        json!({
            "parent": run.parent,
            "blocks": run.blocks,
            "tokens": run.tokens,
            "holders": run.holders,
            "stored": stored.as_ref().map(|stored| stored[index]),
            "space": (run.salt != 0).then(|| format!("{:08x}", engine.pseudonym(run.salt))),
        })
    };
    Some(json!({
        "block_tokens": status.block_tokens,
        "block_bytes": status.block_bytes,
        "format": engine.info().kv_format,
        "blocks": facts["blocks"],
        "tokens": {
            "computed": status.scheduler.prefill_tokens,
            "memory": status.scheduler.cached_tokens.saturating_sub(status.scheduler.loaded_tokens),
            "store": status.scheduler.loaded_tokens,
        },
        "store": status.store.as_ref().map(store),
        "runs": map.runs.iter().enumerate().map(run).collect::<Vec<_>>(),
        "left_out": map.left_out,
    }))
}

fn store(stats: &StoreStats) -> Value {
    json!({
        "blocks": stats.blocks,
        "used_bytes": stats.used_bytes,
        "budget_bytes": stats.budget_bytes,
        "loaded": stats.loaded_blocks,
        "saved": stats.saved_blocks,
        "deduplicated": stats.deduplicated,
        "unsaved": stats.unsaved,
        "evicted": stats.evicted,
        "read_bytes": stats.read_bytes,
        "written_bytes": stats.written_bytes,
        "misses": {
            "absent": stats.absent,
            "damaged": stats.damaged,
            "foreign": stats.foreign,
            "unreadable": stats.unreadable,
        },
    })
}

#[cfg(test)]
mod tests;
