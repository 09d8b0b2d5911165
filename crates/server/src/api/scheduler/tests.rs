//! What `andante probe` and `andante simulate` read.

use std::time::Duration;

use andante_engine::{Profile, StallLimit};
use serde_json::{Value, json};

use super::*;
use crate::fixture::{Fixture, conversation, user};

#[tokio::test]
async fn the_schedulers_decisions_can_be_read() {
    // The clock counts microseconds, and a scripted model may need less than one.
    let model = conversation().on_forward(|_| std::thread::sleep(Duration::from_millis(1)));
    let server = Fixture::with(model, |engine, _| {
        engine.profile = Profile::Strict;
        engine.stall_auto = true;
    });
    server
        .chat(&json!({"messages": user("hi"), "temperature": 0, "user": "ann"}))
        .await;
    server.idle_after(1).await;
    let page = server.get("/scheduler").await.json();
    assert_eq!(
        (&page["mode"], &page["profile"]),
        (&json!("mix"), &json!("strict"))
    );
    assert!(
        page["config"]
            .as_str()
            .unwrap()
            .contains("4 sessions of 512 tokens")
    );
    assert_eq!(page["block_tokens"], 16);
    check_cost(&page["cost"]);
    let stall = &page["stall"];
    assert_eq!(
        (&stall["asked_us"], &stall["auto"], &stall["in_force_us"]),
        (&json!(100_000), &json!(true), &json!(100_000))
    );
    assert_eq!(
        (&stall["kept_us"], &stall["limit"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(page["tenants"][0]["name"], "ann");
    assert_eq!(page["tenants"][0]["weight"], 1.0);
    assert_eq!(page["requests"]["finished"], 1);
    let steps = page["recent"].as_array().unwrap();
    let parts: Vec<&Value> = steps
        .iter()
        .flat_map(|step| step["prefill"].as_array().unwrap())
        .collect();
    let tokens: u64 = parts
        .iter()
        .map(|part| part["tokens"].as_u64().unwrap())
        .sum();
    assert_eq!(tokens, 21);
    assert_eq!(parts[0]["start"], 0);
    let last = parts.last().unwrap();
    assert_eq!((&last["id"], &last["last"]), (&json!(1), &json!(true)));
    // The prompt gives the first of Hello! and the end token.
    assert_eq!(steps.len(), parts.len() + 6);
    assert_eq!(
        (&steps[0]["decode"], &steps[0]["io"]),
        (&json!([]), &Value::Null)
    );
    for step in &steps[parts.len()..] {
        assert_eq!(step["decode"], json!([1]));
        assert_eq!(step["contended"], true);
        assert_eq!(step["budget_us"], 100_000);
    }
    assert_eq!(page["counts"]["steps"], steps.len());
    assert_eq!(page["counts"]["violations"]["model"].as_u64(), Some(0));
}

/// Every coefficient, and a step that takes time.
fn check_cost(cost: &Value) {
    for name in [
        "decode_us",
        "prefill_us",
        "mixed_us",
        "token_us",
        "attend_us",
        "context_us",
        "row_us",
    ] {
        assert!(cost[name].as_f64().unwrap() >= 0.0, "{name}");
    }
    assert!(cost["decode_us"].as_f64().unwrap() > 0.0);
    assert_eq!(cost["margin_permille"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_bound_that_cannot_be_kept_is_shown_with_its_reason() {
    let server = Fixture::new();
    let mut status = server.engine.status();
    status.scheduler.stall_kept = Some((130_000, StallLimit::Floor));
    let page = describe(&status);
    assert_eq!(page["stall"]["kept_us"], 130_000);
    assert_eq!(page["stall"]["limit"], "floor");
}

#[tokio::test]
async fn the_batch_profile_has_no_bound() {
    let server = Fixture::with(conversation(), |engine, _| engine.profile = Profile::Batch);
    let page = server.get("/scheduler").await.json();
    assert_eq!(page["kv_format"], "tokens");
    assert_eq!(page["stall"]["asked_us"], Value::Null);
    assert_eq!(page["stall"]["in_force_us"], Value::Null);
}
