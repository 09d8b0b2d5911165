//! Text to tokens and back.

use serde_json::json;

use crate::fixture::{Fixture, user};

#[tokio::test]
async fn text_becomes_tokens_and_text_again() {
    let server = Fixture::new();
    let reply = server
        .post("/tokenize", &json!({"content": "hé"}))
        .await
        .json();
    assert_eq!(reply, json!({"tokens": [104, 195, 169]}));
    let reply = server
        .post("/tokenize", &json!({"content": "hé", "with_pieces": true}))
        .await
        .json();
    let pieces = json!([{"id": 104, "piece": "h"}, {"id": 195, "piece": [195]}, {"id": 169, "piece": [169]}]);
    assert_eq!(reply["tokens"], pieces);
    let reply = server
        .post("/detokenize", &json!({"tokens": [104, 195, 169]}))
        .await
        .json();
    assert_eq!(reply, json!({"content": "hé"}));
    server
        .post("/detokenize", &json!({"tokens": ["x"]}))
        .await
        .error(400);
}

#[tokio::test]
async fn control_tokens_are_read_where_they_are_asked_for() {
    let server = Fixture::new();
    let tokens = async |body| server.post("/tokenize", &body).await.json()["tokens"].clone();
    assert_eq!(tokens(json!({"content": "<|im_end|>"})).await, json!([257]));
    let text = tokens(json!({"content": "<|im_end|>", "parse_special": false})).await;
    assert_eq!(text.as_array().unwrap().len(), 10);
}

#[tokio::test]
async fn a_conversation_is_shown_as_the_model_sees_it() {
    let server = Fixture::new();
    let reply = server
        .post("/apply-template", &json!({"messages": user("hi")}))
        .await
        .json();
    let prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(reply, json!({"prompt": prompt}));
}
