//! What is told of the KV blocks.

use serde_json::json;

use super::*;
use crate::fixture::{Fixture, user};

#[tokio::test]
async fn shared_prefixes_are_shown_by_their_lengths() {
    let server = Fixture::new();
    let page = server.get("/kv").await.json();
    assert_eq!((&page["runs"], &page["store"]), (&json!([]), &Value::Null));
    let same = "the same beginning of some length ".repeat(3);
    for end in ["one", "two"] {
        let text = format!("{same}{end}");
        server
            .chat(&json!({"messages": user(&text), "max_tokens": 20}))
            .await;
    }
    server.idle_after(2).await;
    // The description before is good for a second, so that a flood of them costs the engine nothing.
    assert_eq!(server.get("/kv").await.json(), page);
    let page = describe(&server.engine).expect("it runs");
    let runs = page["runs"].as_array().unwrap();
    let root = &runs[0];
    assert_eq!(
        (&root["parent"], &root["holders"]),
        (&Value::Null, &json!(0))
    );
    assert_eq!(
        (&root["space"], &root["stored"]),
        (&Value::Null, &Value::Null)
    );
    // <|im_start|>user, a line break, and 102 letters, in blocks of 16.
    assert_eq!((&root["blocks"], &root["tokens"]), (&json!(6), &json!(96)));
    assert!(
        runs[1..].iter().all(|run| run["parent"] == 0) && runs.len() == 3,
        "{runs:?}"
    );
    assert_eq!(page["tokens"]["memory"], 96);
    assert!(!page.to_string().contains("beginning"));
}

#[tokio::test]
async fn an_engine_that_has_ended_has_no_blocks() {
    let server = Fixture::new();
    server.engine.shutdown(andante_engine::Shutdown::Now);
    // It ends after the step in hand.
    while server.engine.prefix_map().is_some() {
        tokio::task::yield_now().await;
    }
    server.get("/kv").await.error(503);
}
