//! What a collector of metrics reads.

use andante_engine::StoreStats;
use serde_json::json;

use super::render;
use crate::fixture::{Fixture, conversation, user};

/// The value of a line that begins with `name`, which says all of its labels.
fn value(page: &str, name: &str) -> f64 {
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let line = line.unwrap_or_else(|| panic!("no {name} in {page}"));
    line.parse().expect("a number")
}

#[tokio::test]
async fn metrics_count_requests_tokens_and_steps() {
    let server = Fixture::with(conversation(), |engine, _| {
        engine.sessions = 1;
        engine.max_queue = 0;
    });
    let body = json!({"messages": user("hi"), "temperature": 0, "user": "a \"quoted\" one"});
    server.chat(&body).await;
    let endless = json!({"messages": user("go on"), "stream": true, "ignore_eos": true});
    let running = server.open("/v1/chat/completions", &endless).await;
    server.chat(&body).await.error(429);
    drop(running);
    server.idle_after(2).await;
    let reply = server.get("/metrics").await;
    assert_eq!(
        reply.headers["content-type"],
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    let page = reply.text;
    assert!(page.ends_with("# EOF\n"));
    assert_eq!(value(&page, "andante_ready"), 1.0);
    for (outcome, count) in [("finished", 1.0), ("cancelled", 1.0), ("refused", 1.0)] {
        let name = format!("andante_requests_total{{outcome=\"{outcome}\"}}");
        assert_eq!(value(&page, &name), count, "{outcome}");
    }
    // Hello! and the end token; the first comes from the prompt's pass.
    assert!(value(&page, "andante_tokens_total{kind=\"decode\"}") >= 6.0);
    // <|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n and the other prompt, less what they share.
    assert!(value(&page, "andante_tokens_total{kind=\"prefill\"}") >= 21.0);
    let steps = value(&page, "andante_step_seconds_count");
    assert!(steps >= 7.0);
    assert_eq!(
        value(&page, "andante_step_seconds_bucket{le=\"+Inf\"}"),
        steps
    );
    assert!(value(&page, "andante_first_token_seconds_count") >= 1.0);
    assert_eq!(value(&page, "andante_longest_gap_seconds_count"), 1.0);
    assert_eq!(value(&page, "andante_stall_bound_asked_seconds"), 0.1);
    assert_eq!(
        value(&page, "andante_stall_violations_total{cause=\"decode\"}"),
        0.0
    );
    let blocks = ["used", "cached", "free"];
    let blocks =
        blocks.map(|state| value(&page, &format!("andante_kv_blocks{{state=\"{state}\"}}")));
    assert_eq!(blocks.iter().sum::<f64>(), 512.0 / 16.0);
    assert_eq!(blocks[0], 0.0);
    let tenant = "{tenant=\"a \\\"quoted\\\" one\"}";
    assert!(
        value(
            &page,
            &format!("andante_tenant_service_seconds_total{tenant}")
        ) >= 0.0
    );
    assert_eq!(
        value(&page, &format!("andante_tenant_resident{tenant}")),
        0.0
    );
}

#[tokio::test]
async fn a_store_has_its_counters_and_an_engine_without_one_has_not() {
    let server = Fixture::with(conversation(), |_, _| {});
    let mut status = server.engine.status();
    assert!(!render(&status).contains("kv_store"));
    status.store = Some(StoreStats {
        loaded_blocks: 1,
        absent: 2,
        damaged: 3,
        foreign: 4,
        unreadable: 5,
        saved_blocks: 6,
        deduplicated: 7,
        unsaved: 8,
        evicted: 9,
        read_bytes: 10,
        written_bytes: 11,
        blocks: 12,
        used_bytes: 13,
        budget_bytes: 14,
    });
    let page = render(&status);
    for (name, label, expected) in [
        ("blocks", "event=\"loaded\"", 1.0),
        ("misses", "reason=\"absent\"", 2.0),
        ("misses", "reason=\"damaged\"", 3.0),
        ("misses", "reason=\"foreign\"", 4.0),
        ("misses", "reason=\"unreadable\"", 5.0),
        ("blocks", "event=\"saved\"", 6.0),
        ("blocks", "event=\"deduplicated\"", 7.0),
        ("blocks", "event=\"unsaved\"", 8.0),
        ("blocks", "event=\"evicted\"", 9.0),
        ("moved_bytes", "direction=\"read\"", 10.0),
        ("moved_bytes", "direction=\"written\"", 11.0),
    ] {
        let name = format!("andante_kv_store_{name}_total{{{label}}}");
        assert_eq!(value(&page, &name), expected, "{name}");
    }
    assert_eq!(value(&page, "andante_kv_store_held_blocks"), 12.0);
    assert_eq!(value(&page, "andante_kv_store_used_bytes"), 13.0);
    assert_eq!(value(&page, "andante_kv_store_budget_bytes"), 14.0);
}
