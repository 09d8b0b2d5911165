//! One answer of the model, thoughts, words and a call, in the words of every API.

use serde_json::{Value, json};

use crate::fixture::{Fixture, conversation, says, user};

const ANSWER: &str = "<think>Let me see.</think>I will.<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"x\"}}\n</tool_call>";

/// The template here does not repeat thoughts; what else was said, it does.
const CALL: &str =
    "I will.<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\":  \"x\"}}\n</tool_call>";

fn server() -> Fixture {
    let model = says(conversation(), "do it", ANSWER);
    Fixture::with(says(model, "go", CALL), |_, _| {})
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"path": {"type": "string"}}})
}

#[tokio::test]
async fn as_a_message() {
    let server = server();
    let body = json!({
        "model": "m", "max_tokens": 200, "temperature": 0, "thinking": {"type": "adaptive"},
        "tools": [{"name": "read", "input_schema": schema()}],
        "messages": [{"role": "user", "content": "do it"}],
    });
    let message = server.post("/v1/messages", &body).await.json();
    let content = &message["content"];
    assert_eq!(content[0]["thinking"], "Let me see.", "{message}");
    assert_eq!(content[1]["text"], "I will.");
    assert_eq!(
        json!([content[2]["name"], content[2]["input"]]),
        json!(["read", {"path": "x"}])
    );
    assert_eq!(message["stop_reason"], "tool_use");
    assert!(content[2]["id"].as_str().unwrap().starts_with("toolu_"));
    // The next turn finds all of this one.
    let mut go = body.clone();
    go["messages"][0]["content"] = json!("go");
    let message = server.post("/v1/messages", &go).await.json();
    let content = &message["content"];
    let turn = message["usage"]["input_tokens"].as_u64().unwrap()
        + message["usage"]["cache_read_input_tokens"]
            .as_u64()
            .unwrap()
        + message["usage"]["output_tokens"].as_u64().unwrap();
    let mut next = body;
    next["messages"] = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": content[1]["id"], "content": "y"}]},
    ]);
    let usage = server.post("/v1/messages", &next).await.json()["usage"].clone();
    let cached = usage["cache_read_input_tokens"].as_u64().unwrap();
    assert!(
        cached + 32 >= turn,
        "of {turn} tokens {cached} were found: {usage}"
    );
}

#[tokio::test]
async fn as_a_response() {
    let server = server();
    let body = json!({
        "model": "m", "max_output_tokens": 200, "temperature": 0, "input": "do it",
        "tools": [{"type": "function", "name": "read", "parameters": schema()}],
    });
    let response = server.post("/v1/responses", &body).await.json();
    let output = &response["output"];
    assert_eq!(output[0]["summary"][0]["text"], "Let me see.", "{response}");
    assert_eq!(output[1]["content"][0]["text"], "I will.");
    let arguments: Value = serde_json::from_str(output[2]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(
        json!([output[2]["type"], output[2]["name"], arguments]),
        json!(["function_call", "read", {"path": "x"}])
    );
    let mut go = body.clone();
    go["input"] = json!("go");
    let response = server.post("/v1/responses", &go).await.json();
    let output = &response["output"];
    let turn = response["usage"]["total_tokens"].as_u64().unwrap();
    let mut next = body;
    next["previous_response_id"] = response["id"].clone();
    next["input"] =
        json!([{"type": "function_call_output", "call_id": output[1]["call_id"], "output": "y"}]);
    let usage = server.post("/v1/responses", &next).await.json()["usage"].clone();
    let cached = usage["input_tokens_details"]["cached_tokens"]
        .as_u64()
        .unwrap();
    assert!(
        cached + 32 >= turn,
        "of {turn} tokens {cached} were found: {usage}"
    );
}

#[tokio::test]
async fn as_ollama_says_it() {
    let server = server();
    let body = json!({
        "model": "m", "stream": false, "options": {"temperature": 0}, "messages": user("do it"),
        "tools": [{"type": "function", "function": {"name": "read", "parameters": schema()}}],
    });
    let answer = server.post("/api/chat", &body).await.json();
    let message = &answer["message"];
    assert_eq!(
        json!([message["thinking"], message["content"]]),
        json!(["Let me see.", "I will."]),
        "{answer}"
    );
    assert_eq!(
        message["tool_calls"][0]["function"]["arguments"],
        json!({"path": "x"})
    );
}
