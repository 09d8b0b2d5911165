//! `/tokenize`, `/detokenize` and `/apply-template`, in llama-server's shapes.

use andante_text::Special;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use serde_json::{Value, json};

use super::{chat, wire};
use crate::Server;
use crate::error::ApiError;
use crate::json::Field;

pub(super) async fn tokenize(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    with_body(server, headers, body, |server, body| {
        let content = body.get("content").string()?.unwrap_or_default();
        let tokenizer = server.engine().tokenizer();
        // Whoever asks here vouches for the text, as in llama-server.
        let special = match body.get("parse_special").bool()? {
            Some(false) => Special::Text,
            _ => Special::Parse,
        };
        let mut tokens = tokenizer.encode(content, special);
        if body.get("add_special").bool()? == Some(true)
            && tokenizer.add_bos()
            && let Some(bos) = tokenizer.bos()
        {
            tokens.insert(0, bos);
        }
        if body.get("with_pieces").bool()? != Some(true) {
            return Ok(json!({ "tokens": tokens }));
        }
        let with_piece = |&id: &u32| json!({ "id": id, "piece": piece(tokenizer.piece(id)) });
        let tokens: Vec<Value> = tokens.iter().map(with_piece).collect();
        Ok(json!({ "tokens": tokens }))
    })
    .await
}

pub(super) async fn detokenize(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    with_body(server, headers, body, |server, body| {
        let tokens = body.get("tokens").tokens()?;
        let tokenizer = server.engine().tokenizer();
        let pieces = tokens.iter().map(|&token| tokenizer.piece(token));
        let bytes: Vec<u8> = pieces.flatten().copied().collect();
        Ok(json!({ "content": wire::lossy(&bytes) }))
    })
    .await
}

pub(super) async fn apply_template(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    with_body(server, headers, body, |server, body| {
        let prompt = server.engine().render(&chat::request::decode(body)?)?;
        Ok(json!({ "prompt": prompt.text() }))
    })
    .await
}

async fn with_body(
    server: Server,
    headers: HeaderMap,
    body: Body,
    work: impl FnOnce(&Server, &Field<'_>) -> Result<Value, ApiError> + Send + 'static,
) -> Result<Json<Value>, ApiError> {
    let body = server.read_body(&headers, body).await?;
    let answer = server.prepare(move |server| {
        let body: Value = serde_json::from_slice(&body)?;
        work(server, &Field::body(&body)?)
    });
    Ok(Json(answer.await?))
}

/// Text, or the bytes of what is part of a character only.
fn piece(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => bytes.into(),
    }
}

#[cfg(test)]
mod tests;
