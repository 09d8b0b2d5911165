//! What a collector of metrics reads.

use serde_json::json;

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
