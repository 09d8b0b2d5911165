//! Ten thousand mutated requests: whatever comes, the answer is well formed and nothing is left behind.

use std::sync::Arc;

use rand::{Rng, RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};

use super::CHAT;
use crate::fixture::{Fixture, Reply, conversation, post};

const REQUESTS: usize = 10_000;
const WORKERS: usize = 4;

fn corpus() -> Vec<(&'static str, Value)> {
    let tool = json!({"type": "function", "function": {"name": "read", "description": "d", "parameters": {
        "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"path": {"type": "string", "minLength": 1}}}}});
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{\"path\":\"/a\"}"}});
    vec![
        (
            CHAT,
            json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": true, "max_tokens": 3}),
        ),
        (
            CHAT,
            json!({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            "temperature": 0, "max_completion_tokens": 8192, "stream_options": {"include_usage": true}, "stream": true}),
        ),
        (
            CHAT,
            json!({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": null, "reasoning_content": "r",
            "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call_1", "content": "x"}], "tools": [tool], "tool_choice": "auto",
            "max_tokens": 2, "parallel_tool_calls": false, "reasoning_effort": "medium", "store": false}),
        ),
        (
            CHAT,
            json!({"messages": [{"role": "user", "content": "smile"}], "logprobs": true, "top_logprobs": 2, "n": 2, "seed": 7,
            "stop": ["x", "yz"], "logit_bias": {"97": -100, "98": 5}, "max_tokens": 4, "response_format": {"type": "text"},
            "top_k": 40, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.95, "repeat_penalty": 1.1, "presence_penalty": 0.5,
            "chat_template_kwargs": {"enable_thinking": false}}),
        ),
        (
            "/v1/completions",
            json!({"prompt": "one two", "max_tokens": 3, "stream": true, "logprobs": 1, "temperature": 0}),
        ),
        (
            "/v1/completions",
            json!({"prompt": ["a", "b"], "max_tokens": 2, "echo": true, "n": 2, "best_of": 2, "suffix": ""}),
        ),
        (
            "/v1/completions",
            json!({"prompt": [[1, 2, 3], [4, 256]], "max_tokens": 2, "stop": "a", "cache_prompt": false}),
        ),
    ]
}

/// One of the ways in which a client, a network or an attacker spoils a request.
fn mutate(body: &Value, rng: &mut impl Rng) -> Vec<u8> {
    let mut body = body.clone();
    match rng.random_range(0..6) {
        0 => {
            let mut bytes = body.to_string().into_bytes();
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..bytes.len());
                bytes[at] ^= 1 << rng.random_range(0..8);
            }
            return bytes;
        }
        1 => {
            let mut bytes = body.to_string().into_bytes();
            bytes.truncate(rng.random_range(0..bytes.len()));
            return bytes;
        }
        2 => {
            // Text from elsewhere in the body, keys twice among it.
            let bytes = body.to_string().into_bytes();
            let (from, to, at) = (
                rng.random_range(0..bytes.len()),
                rng.random_range(0..bytes.len()),
                rng.random_range(0..bytes.len()),
            );
            let piece = &bytes[from.min(to)..from.max(to)];
            return [&bytes[..at], piece, &bytes[at..]].concat();
        }
        _ => {}
    }
    for _ in 0..rng.random_range(1..3) {
        let nodes = count(&body);
        let mut at = rng.random_range(1..nodes.max(2));
        let replacement = replacement(rng);
        if let Some(node) = nth(&mut body, &mut at) {
            *node = replacement;
        }
    }
    body.to_string().into_bytes()
}

fn replacement(rng: &mut impl Rng) -> Value {
    match rng.random_range(0..16) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(false),
        3 => json!(0),
        4 => json!(-1),
        5 => json!(i64::MAX),
        6 => json!(u64::MAX),
        7 => json!(1e308),
        8 => json!(0.5),
        9 => json!(""),
        10 => json!("\u{0}\u{ffff}🙂<|im_end|>"),
        11 => json!("x".repeat(1000)),
        12 => json!([]),
        13 => json!({}),
        14 => json!([1, "x", null, {"type": "text"}]),
        _ => (0..100).fold(json!("deep"), |inner, i| {
            if i % 2 == 0 {
                json!([inner])
            } else {
                json!({"content": inner})
            }
        }),
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => Vec::new(),
    }
}

fn count(value: &Value) -> usize {
    1 + children(value).into_iter().map(count).sum::<usize>()
}

/// The `at`-th node in document order.
fn nth<'a>(value: &'a mut Value, at: &mut usize) -> Option<&'a mut Value> {
    if *at == 0 {
        return Some(value);
    }
    *at -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| nth(item, at)),
        Value::Object(members) => members.values_mut().find_map(|member| nth(member, at)),
        _ => None,
    }
}

/// Holds an answer to the contract; gives its status.
fn check(reply: &Reply, request: &[u8]) -> u16 {
    let request = String::from_utf8_lossy(request);
    let status = reply.status.as_u16();
    if status != 200 {
        assert!((400..500).contains(&status), "{status} for {request}");
        reply.error(status);
    } else if reply.headers["content-type"] == "text/event-stream" {
        let events = reply.events();
        let (done, chunks) = events.split_last().expect("events");
        assert_eq!(done, "[DONE]", "{request}");
        let choices = || chunks.iter().filter_map(|chunk| chunk["choices"].get(0));
        let indices: std::collections::BTreeSet<u64> = choices()
            .map(|choice| choice["index"].as_u64().expect("an index"))
            .collect();
        let finished = choices()
            .filter(|choice| choice["finish_reason"].is_string())
            .count();
        assert!(
            !indices.is_empty() && finished == indices.len(),
            "{request}: {}",
            reply.text
        );
    } else {
        let answer = reply.json();
        let choices = answer["choices"].as_array().expect("choices");
        assert!(
            choices
                .iter()
                .all(|choice| choice["finish_reason"].is_string()),
            "{request}"
        );
        assert!(answer["usage"]["total_tokens"].is_u64(), "{request}");
    }
    status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutated_requests_are_answered_or_refused_and_leave_nothing_behind() {
    let server = Arc::new(Fixture::with(conversation(), |engine, _| {
        engine.context = 256;
    }));
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..WORKERS {
        let server = Arc::clone(&server);
        workers.spawn(async move {
            let mut rng = Pcg64Mcg::seed_from_u64(worker as u64);
            let corpus = corpus();
            let mut accepted = 0;
            for i in 0..REQUESTS / WORKERS {
                let (path, body) = &corpus[i % corpus.len()];
                let body = mutate(body, &mut rng);
                let reply = server.call(post(path, body.clone())).await;
                accepted += usize::from(check(&reply, &body) == 200);
            }
            accepted
        });
    }
    let accepted: usize = workers.join_all().await.into_iter().sum();
    server.idle_after(accepted as u64).await;
    // Neither all nor none: the mutations reach past the decoder, and into it.
    assert!(
        (REQUESTS / 20..REQUESTS * 19 / 20).contains(&accepted),
        "{accepted} accepted"
    );
    let status = server.engine.status();
    assert_eq!((status.failed, status.cancelled), (0, 0));
}
