//! Inputs in all their forms, floats and base64, and fewer dimensions.

use andante_engine::fake::FakeModel;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::shorten;
use crate::fixture::Fixture;

/// What the scripted model makes of a text.
fn vector(text: &str, dimensions: usize) -> Vec<f32> {
    let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
    shorten(FakeModel::state(&tokens).to_vec(), dimensions)
}

fn floats(embedding: &Value) -> Vec<f32> {
    serde_json::from_value(embedding.clone()).expect("numbers")
}

#[tokio::test]
async fn every_form_of_input_gets_its_vector() {
    let server = Fixture::new();
    let forms = [
        json!("ab"),
        json!(["ab"]),
        json!([97, 98]),
        json!([[97, 98]]),
        json!(["ab", "c"]),
    ];
    for input in forms {
        let reply = server
            .post("/v1/embeddings", &json!({"model": "any", "input": input}))
            .await
            .json();
        assert_eq!(
            (&reply["object"], &reply["model"]),
            (&json!("list"), &json!("any"))
        );
        assert_eq!(
            floats(&reply["data"][0]["embedding"]),
            vector("ab", 4),
            "{input}"
        );
        let texts = reply["data"].as_array().expect("a list");
        if let Some(second) = texts.get(1) {
            assert_eq!(second["index"], 1);
            assert_eq!(floats(&second["embedding"]), vector("c", 4));
        }
        let tokens = if texts.len() == 2 { 3 } else { 2 };
        assert_eq!(
            reply["usage"],
            json!({"prompt_tokens": tokens, "total_tokens": tokens})
        );
    }
}

#[tokio::test]
async fn base64_has_the_same_bits_and_fewer_dimensions_length_one() {
    let server = Fixture::new();
    let body = json!({"input": "hello", "dimensions": 2, "encoding_format": "base64"});
    let reply = server.post("/v1/embeddings", &body).await.json();
    let text = reply["data"][0]["embedding"].as_str().expect("text");
    let bytes = BASE64_STANDARD.decode(text).expect("base64");
    let floats: Vec<f32> = bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|&word| f32::from_le_bytes(word))
        .collect();
    assert_eq!(floats, vector("hello", 2));
    let length: f32 = floats.iter().map(|x| x * x).sum();
    assert!((length - 1.0).abs() < 1e-6, "{length}");
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_by_name() {
    let server = Fixture::new();
    for (body, param) in [
        (json!({}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": "a", "dimensions": 5}), "dimensions"),
        (
            json!({"input": "a", "encoding_format": "int8"}),
            "encoding_format",
        ),
    ] {
        let error = server.post("/v1/embeddings", &body).await.error(400);
        assert_eq!(error["param"], param, "{body}");
    }
    let long = json!({"input": "a".repeat(600)});
    let error = server.post("/v1/embeddings", &long).await.error(400);
    assert_eq!(error["code"], "context_length_exceeded");
}
