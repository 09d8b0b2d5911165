//! `GET /model`: what is loaded: its shape, its formats, and the memory that it and its KV take.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::openapi::Keyed;
use crate::Server;

/// The model that is loaded.
#[utoipa::path(get, path = "/model", tag = "Andante", responses((status = 200, body = LoadedModel), Keyed))]
pub(super) async fn model(State(server): State<Server>) -> Json<LoadedModel> {
    let engine = server.engine();
    let (info, status) = (engine.info(), engine.status());
    let mut windows = BTreeMap::new();
    for &window in &info.windows {
        *windows.entry(window).or_insert(0) += 1;
    }
    let blocks = status.scheduler.blocks.total;
    let formats = server.config().formats.iter();
    Json(LoadedModel {
        name: info.name.clone(),
        architecture: info.architecture.clone(),
        parameters: info.parameters,
        weight_bytes: info.weight_bytes,
        layers: info.layers,
        hidden: info.hidden,
        heads: info.heads,
        kv_heads: info.kv_heads,
        head_dim: info.head_dim,
        vocab: info.vocab,
        context: engine.context(),
        context_trained: info.context,
        windows: windows
            .into_iter()
            .map(|(window, layers)| Window { window, layers })
            .collect(),
        dialect: engine.dialect().name().to_owned(),
        backend: info.backend.clone(),
        kv: KvMemory {
            format: info.kv_format.clone(),
            blocks,
            block_tokens: status.block_tokens,
            block_bytes: status.block_bytes,
            bytes: u64::from(blocks) * status.block_bytes,
            bytes_per_token: status.block_bytes / u64::from(status.block_tokens),
        },
        formats: formats
            .map(|share| Format {
                format: share.format.clone(),
                tensors: share.tensors,
                bytes: share.bytes,
            })
            .collect(),
    })
}

#[derive(Serialize, ToSchema)]
pub(super) struct LoadedModel {
    name: Option<String>,
    architecture: String,
    parameters: u64,
    /// In the file.
    weight_bytes: u64,
    layers: usize,
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    vocab: usize,
    /// Tokens of one session.
    context: u32,
    context_trained: u32,
    windows: Vec<Window>,
    /// How it writes calls and reasoning.
    dialect: String,
    /// What computes it, in its own words.
    backend: String,
    kv: KvMemory,
    /// What its tensors are made of; empty where the server was not told.
    formats: Vec<Format>,
}

/// Layers whose attention reaches back equally far.
#[derive(Serialize, ToSchema)]
struct Window {
    /// In tokens; nothing is to the beginning.
    window: Option<u32>,
    layers: usize,
}

#[derive(Serialize, ToSchema)]
struct KvMemory {
    format: String,
    blocks: u32,
    block_tokens: u32,
    block_bytes: u64,
    bytes: u64,
    bytes_per_token: u64,
}

#[derive(Serialize, ToSchema)]
struct Format {
    format: String,
    tensors: usize,
    bytes: u64,
}

#[cfg(test)]
mod tests;
