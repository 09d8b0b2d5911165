//! What is told of the model.

use serde_json::json;

use crate::FormatShare;
use crate::fixture::{Fixture, conversation};

#[tokio::test]
async fn the_model_is_described() {
    let server = Fixture::with(conversation(), |_, config| {
        config.formats = vec![FormatShare {
            format: "Q4_1".into(),
            tensors: 3,
            bytes: 100,
        }];
    });
    let model = server.get("/model").await.json();
    assert_eq!(
        (&model["name"], &model["architecture"]),
        (&json!("Fake"), &json!("fake"))
    );
    assert_eq!(
        (&model["context"], &model["context_trained"]),
        (&json!(512), &json!(4096))
    );
    assert_eq!(model["windows"], json!([{"window": null, "layers": 1}]));
    // Four sessions of 512 tokens in blocks of 16.
    let kv = &model["kv"];
    assert_eq!(
        (&kv["blocks"], &kv["block_tokens"]),
        (&json!(128), &json!(16))
    );
    assert_eq!(
        kv["bytes"].as_u64().unwrap(),
        128 * kv["block_bytes"].as_u64().unwrap()
    );
    assert_eq!(
        model["formats"],
        json!([{"format": "Q4_1", "tensors": 3, "bytes": 100}])
    );
}
