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

pub(super) async fn tokenize(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let answer = server.prepare_body(&headers, body, |server, body| {
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
    });
    Ok(Json(answer.await?))
}

pub(super) async fn detokenize(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let answer = server.prepare_body(&headers, body, |server, body| {
        let tokens = body.get("tokens").tokens()?;
        let tokenizer = server.engine().tokenizer();
        let pieces = tokens.iter().map(|&token| tokenizer.piece(token));
        let bytes: Vec<u8> = pieces.flatten().copied().collect();
        Ok(json!({ "content": wire::lossy(&bytes) }))
    });
    Ok(Json(answer.await?))
}

pub(super) async fn apply_template(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let answer = server.prepare_body(&headers, body, |server, body| {
        let prompt = server.engine().render(&chat::request::decode(body)?)?;
        Ok(json!({ "prompt": prompt.text() }))
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
