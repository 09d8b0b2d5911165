//! `/tokenize`, `/detokenize` and `/apply-template`, in llama-server's shapes.

use andante_text::Special;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::Serialize;
use utoipa::ToSchema;

use super::openapi::{ChatBody, DetokenizeBody, OpenAiErrors, TokenizeBody};
use super::{chat, wire};
use crate::Server;
use crate::error::ApiError;

/// The tokens of a text.
#[utoipa::path(
    post,
    path = "/tokenize",
    tag = "llama-server",
    request_body = TokenizeBody,
    responses((status = 200, body = Tokens), OpenAiErrors)
)]
pub(super) async fn tokenize(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Tokens>, ApiError> {
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
        let with_pieces = body.get("with_pieces").bool()? == Some(true);
        let token = |id| match with_pieces {
            true => Token::WithPiece {
                id,
                piece: piece(tokenizer.piece(id)),
            },
            false => Token::Id(id),
        };
        let tokens = tokens.into_iter().map(token).collect();
        Ok(Tokens { tokens })
    });
    Ok(Json(answer.await?))
}

/// The text of tokens.
#[utoipa::path(
    post,
    path = "/detokenize",
    tag = "llama-server",
    request_body = DetokenizeBody,
    responses((status = 200, body = Content), OpenAiErrors)
)]
pub(super) async fn detokenize(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Content>, ApiError> {
    let answer = server.prepare_body(&headers, body, |server, body| {
        let tokens = body.get("tokens").tokens()?;
        let tokenizer = server.engine().tokenizer();
        let pieces = tokens.iter().map(|&token| tokenizer.piece(token));
        let bytes: Vec<u8> = pieces.flatten().copied().collect();
        let content = wire::lossy(&bytes);
        Ok(Content { content })
    });
    Ok(Json(answer.await?))
}

/// A conversation as the chat template writes it.
#[utoipa::path(
    post,
    path = "/apply-template",
    tag = "llama-server",
    request_body = ChatBody,
    responses((status = 200, body = Prompt), OpenAiErrors)
)]
pub(super) async fn apply_template(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Prompt>, ApiError> {
    let answer = server.prepare_body(&headers, body, |server, body| {
        let prompt = server
            .engine()
            .render(&chat::request::decode(server, body)?)?;
        let prompt = prompt.text();
        Ok(Prompt { prompt })
    });
    Ok(Json(answer.await?))
}

/// The tokens of a text.
#[derive(Serialize, ToSchema)]
pub(super) struct Tokens {
    tokens: Vec<Token>,
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum Token {
    Id(u32),
    WithPiece { id: u32, piece: Piece },
}

/// Text, or the bytes of what is part of a character only.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum Piece {
    Text(String),
    Bytes(Vec<u8>),
}

/// The text of tokens.
#[derive(Serialize, ToSchema)]
pub(super) struct Content {
    content: String,
}

/// A conversation as the model reads it.
#[derive(Serialize, ToSchema)]
pub(super) struct Prompt {
    prompt: String,
}

fn piece(bytes: &[u8]) -> Piece {
    match std::str::from_utf8(bytes) {
        Ok(text) => Piece::Text(text.to_owned()),
        Err(_) => Piece::Bytes(bytes.to_vec()),
    }
}

#[cfg(test)]
mod tests;
