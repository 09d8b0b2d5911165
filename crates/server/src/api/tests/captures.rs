//! Requests as real clients were recorded sending them (`tests/data/captures.json`, reduced to their structure by
//! `scripts/reduce_captures.py`): each is answered by the API that it was sent to.

use serde_json::{Value, json};

use crate::api::responses::SUMMARISE;
use crate::fixture::{Fixture, Reply, conversation, says_after};

const CAPTURES: &str = include_str!("../../../tests/data/captures.json");

/// It asks for a model that is not here.
const ELSEWHERE: &str = "/api/pull";

fn captures() -> Vec<Value> {
    let captures: Vec<Value> = serde_json::from_str(CAPTURES).expect("JSON");
    captures
        .into_iter()
        .filter(|capture| capture["path"] != ELSEWHERE)
        .collect()
}

/// A server whose context holds a long request of one token a byte.
fn server() -> Fixture {
    const CONTEXT: u32 = 1 << 17;
    let model = conversation().context(CONTEXT);
    let model = says_after(model, SUMMARISE, "no thoughts\n", "All of it.");
    Fixture::with(model, |engine, _| {
        engine.context = CONTEXT;
    })
}

/// What a client needs to see at the end of a stream.
fn assert_ended(path: &str, reply: &Reply) {
    let end = if path.contains("messages") {
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
    } else if path.contains("responses") {
        return assert!(
            [
                "event: response.completed\n",
                "event: response.incomplete\n"
            ]
            .iter()
            .any(|event| reply.text.contains(event)),
            "{path}: {}",
            reply.text
        );
    } else {
        "data: [DONE]\n\n"
    };
    assert!(reply.text.ends_with(end), "{path}: {}", reply.text);
}

#[tokio::test]
async fn every_recorded_request_is_answered() {
    let server = server();
    let mut kept = Vec::new();
    for _ in 0..2 {
        let body = json!({"model": "m", "input": "x", "max_output_tokens": 1});
        let response = server.post("/v1/responses", &body).await.json();
        kept.push(response["output"][0]["id"].clone());
    }
    let mut refused = Vec::new();
    let mut answered = 0;
    for capture in captures() {
        let path = capture["path"].as_str().unwrap();
        let mut body = capture["body"].clone();
        for limit in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
            let is_usual = match limit {
                "max_output_tokens" => path.contains("responses"),
                "max_tokens" => !path.contains("responses"),
                _ => false,
            };
            if body.get(limit).is_some() || is_usual {
                body[limit] = json!(4);
            }
        }
        // What is named by an id is what this server made, not the one that was recorded.
        let items = body["input"].as_array_mut().into_iter().flatten();
        let references = items.filter(|item| item["type"] == "item_reference");
        for (reference, id) in references.zip(&kept) {
            reference["id"] = id.clone();
        }
        // A summary must come to its end.
        if path.ends_with("/compact") {
            body["max_output_tokens"] = json!(20);
            body["temperature"] = json!(0);
        }
        let reply = server.post(path, &body).await;
        if reply.status != 200 {
            refused.push(format!("{} {path}: {}", capture["client"], reply.text));
            continue;
        }
        if body["stream"] == true {
            assert_ended(path, &reply);
        }
        answered += 1;
    }
    assert!(
        refused.is_empty(),
        "{answered} answered, but not\n{}",
        refused.join("\n")
    );
}

/// Sessions of agents, each of which only ever adds to its conversation.
const SESSIONS: [&str; 14] = [
    "claude-code-2.1.332_messages",
    "claude-code-2.1.332_toolsearch",
    "codex-0.171.0_responses",
    "codex-0.171.0_responses_custom-tool-call",
    "codex-0.171.0_responses_known-slug-gpt-5.5",
    "codex-0.171.0_responses_summary_encrypted",
    "opencode-1.18.33_anthropic",
    "opencode-1.18.33_chat",
    "opencode-1.18.33_responses",
    "opencode-1.18.33_responses_summary",
    "pi-1.6.0_anthropic",
    "pi-1.6.0_chat",
    "pi-1.6.0_responses",
    "pi-1.6.0_responses_summary_encrypted",
];

/// Tokens of a prompt, and how many of them were there before.
fn prompt_tokens(reply: &Reply) -> (u64, u64) {
    let usage = &reply.json()["usage"];
    let count = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64);
    match count("/cache_read_input_tokens") {
        Some(cached) => (count("/input_tokens").unwrap() + cached, cached),
        None => (
            count("/input_tokens").or(count("/prompt_tokens")).unwrap(),
            count("/input_tokens_details/cached_tokens")
                .or(count("/prompt_tokens_details/cached_tokens"))
                .unwrap(),
        ),
    }
}

#[tokio::test]
async fn every_turn_of_an_agent_computes_only_what_is_new() {
    /// The opening of the answer, which gives way to what was answered, and what does not fill a block.
    const SLACK: u64 = 32;
    let mut turns = 0;
    for session in SESSIONS {
        let server = server();
        let mut before = 0;
        let has_tools = |capture: &Value| !capture["body"]["tools"].is_null();
        let requests = captures()
            .into_iter()
            .filter(|capture| capture["client"] == session);
        for capture in requests.filter(has_tools) {
            let mut body = capture["body"].clone();
            body["stream"] = json!(false);
            let path = capture["path"].as_str().unwrap();
            let limit = if path.contains("responses") {
                "max_output_tokens"
            } else {
                "max_tokens"
            };
            body[limit] = json!(1);
            let reply = server.post(path, &body).await;
            assert_eq!(reply.status, 200, "{session}: {}", reply.text);
            let (tokens, cached) = prompt_tokens(&reply);
            assert!(tokens > before, "{session} adds nothing");
            assert!(
                cached + SLACK >= before,
                "{session}: of {before} tokens {cached} were found"
            );
            turns += u64::from(before > 0);
            before = tokens;
        }
    }
    assert_eq!(turns, 29);
}
