//! `POST /v1/embeddings`: texts as vectors of length 1. Source of the format: OpenAI's API reference.

use andante_engine::{Delta, FinishReason, Usage};
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Encode, Job, completions};
use crate::Server;
use crate::answer::{Choice, Totals};
use crate::error::ApiError;
use crate::json::Field;
use crate::sse::Frames;

pub(super) async fn create(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    super::answer(server, &headers, body, decode).await
}

fn decode(server: &Server, body: &Field<'_>) -> Result<Job<Encoder>, ApiError> {
    let engine = server.engine();
    let input = body.any_of(&["input", "content"]);
    let requests = completions::prompts(&input)?
        .into_iter()
        .map(|text| engine.prepare_embedding(text))
        .collect::<Result<Vec<_>, _>>()?;
    let format = body.get("encoding_format");
    let base64 = match format.string()? {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(format.error("may be `float` or `base64`")),
    };
    let width = engine.info().hidden;
    let most = i64::try_from(width).expect("a hidden state fits memory");
    let dimensions = body.get("dimensions").integer(1, most)?;
    let model = body.get("model").string()?;
    Ok(Job {
        choices_per_prompt: 1,
        stream: false,
        warning: None,
        encoder: Encoder {
            model: model.unwrap_or(&server.config().model_name).to_owned(),
            dimensions: dimensions
                .map_or(width, |n| usize::try_from(n).expect("the range is checked")),
            base64,
        },
        requests,
    })
}

struct Encoder {
    model: String,
    dimensions: usize,
    base64: bool,
}

impl Encode for Encoder {
    fn started(&mut self, _: usize, _: Usage, _: &mut Frames) {}
    fn delta(&mut self, _: usize, _: Delta, _: &mut Frames) {}
    fn finished(&mut self, _: usize, _: FinishReason, _: &mut Frames) {}
    fn ended(&mut self, _: Totals, _: &mut Frames) {}

    fn whole(&mut self, choices: Vec<Choice>, totals: Totals) -> impl Serialize {
        let data = choices.into_iter().enumerate().map(|(index, choice)| {
            let vector = shorten(choice.embedding, self.dimensions);
            json!({"object": "embedding", "index": index, "embedding": self.vector(&vector)})
        });
        let tokens = totals.usage.prompt_tokens;
        json!({
            "object": "list",
            "data": data.collect::<Vec<_>>(),
            "model": self.model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        })
    }
}

impl Encoder {
    fn vector(&self, vector: &[f32]) -> Value {
        if self.base64 {
            let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
            BASE64_STANDARD.encode(bytes).into()
        } else {
            vector.into()
        }
    }
}

/// The first `dimensions` (a model trained for it packs most into them: Matryoshka), scaled to length 1.
fn shorten(mut vector: Vec<f32>, dimensions: usize) -> Vec<f32> {
    vector.truncate(dimensions);
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x /= length);
    }
    vector
}

#[cfg(test)]
mod tests;
