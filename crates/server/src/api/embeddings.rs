//! `POST /v1/embeddings`: texts as vectors of length 1. Source of the format: OpenAI's API reference.

use andante_engine::{Delta, FinishReason, Usage};
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use utoipa::ToSchema;

use super::openapi::{EmbeddingBody, OpenAiErrors};
use super::{Encode, Job, completions};
use crate::Server;
use crate::answer::{Choice, Totals};
use crate::error::ApiError;
use crate::json::Field;
use crate::sse::Frames;

/// Makes vectors of texts.
#[utoipa::path(
    post,
    path = "/embeddings",
    tag = "OpenAI",
    request_body = EmbeddingBody,
    responses((status = 200, body = Embeddings), OpenAiErrors)
)]
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
            Embedding {
                object: "embedding",
                index,
                embedding: self.vector(vector),
            }
        });
        let tokens = totals.usage.prompt_tokens;
        Embeddings {
            object: "list",
            data: data.collect(),
            model: self.model.clone(),
            usage: EmbeddingUsage {
                prompt_tokens: tokens,
                total_tokens: tokens,
            },
        }
    }
}

/// Vectors, in the order of the texts.
#[derive(Serialize, ToSchema)]
pub(super) struct Embeddings {
    object: &'static str,
    data: Vec<Embedding>,
    model: String,
    usage: EmbeddingUsage,
}

#[derive(Serialize, ToSchema)]
struct Embedding {
    object: &'static str,
    index: usize,
    embedding: Vector,
}

/// Numbers, or little-endian floats in base64.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum Vector {
    Floats(Vec<f32>),
    Base64(String),
}

#[derive(Serialize, ToSchema)]
struct EmbeddingUsage {
    prompt_tokens: u32,
    total_tokens: u32,
}

impl Encoder {
    fn vector(&self, vector: Vec<f32>) -> Vector {
        if self.base64 {
            let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
            Vector::Base64(BASE64_STANDARD.encode(bytes))
        } else {
            Vector::Floats(vector)
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
