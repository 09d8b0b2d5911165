//! Tool calls and reasoning in chat completions: their shapes on the wire, and what requests may say of them.

use serde_json::{Value, json};

use crate::fixture::{Fixture, conversation, says, user};

const ANSWER: &str = "<think>\nHm.\n</think>\n\nI look.\n<tool_call>{\"name\": \"read\", \"arguments\": {\"n\":  1}}</tool_call>\
    <tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
const ONE_CALL: &str = "<tool_call>{\"name\": \"read\", \"arguments\": {\"n\":  1}}</tool_call>";

fn server() -> Fixture {
    let model = says(conversation(), "look", ANSWER);
    let model = says(model, "call", ONE_CALL);
    let model = says(model, "seen", "Done.");
    Fixture::with(model, |engine, _| engine.context = 4096)
}

fn tools() -> Value {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
    json!([tool("read"), {"type": "web_search"}, tool("now")])
}

fn body(text: &str) -> Value {
    json!({"messages": user(text), "tools": tools(), "temperature": 0})
}

/// The ids replaced by their order.
fn without_ids(text: &str, calls: &[&Value]) -> String {
    let ids = calls.iter().filter_map(|call| call["id"].as_str());
    ids.enumerate().fold(text.to_owned(), |text, (index, id)| {
        assert!(id.len() == 29 && id.starts_with("call_"), "{id}");
        text.replace(id, &format!("[id {index}]"))
    })
}

#[tokio::test]
async fn a_stream_of_calls() {
    let server = server();
    let mut request = body("look");
    request["stream"] = json!(true);
    let reply = server.chat(&request).await;
    let events = reply.events();
    let mut deltas = Vec::new();
    for event in events.iter().filter(|event| event.is_object()) {
        let choice = &event["choices"][0];
        if let Some(reason) = choice["finish_reason"].as_str() {
            assert_eq!(choice["delta"], json!({}));
            assert_eq!(reason, "tool_calls");
        } else {
            deltas.push(choice["delta"].clone());
        }
    }
    assert_eq!(events[events.len() - 1], "[DONE]");
    assert_eq!(
        deltas.remove(0),
        json!({"role": "assistant", "content": ""})
    );
    // Neighbours of one kind belong together.
    let mut kinds: Vec<(&str, String)> = Vec::new();
    let mut ids = Vec::new();
    for delta in &deltas {
        let object = delta.as_object().expect("an object");
        assert_eq!(object.len(), 1, "one thing at a time: {delta}");
        let (kind, text) = match object.iter().next().expect("one") {
            (kind, Value::String(text)) => (kind.as_str(), text.clone()),
            (kind, calls) => {
                let call = &calls[0];
                if call["id"].is_string() {
                    assert_eq!(call["type"], "function");
                    assert_eq!(call["function"]["arguments"], "");
                    ids.push(call);
                } else {
                    assert_eq!(call.as_object().unwrap().len(), 2);
                }
                let name = call["function"]["name"].as_str().unwrap_or_default();
                let arguments = call["function"]["arguments"].as_str().expect("a string");
                (kind.as_str(), format!("{}{name}{arguments}", call["index"]))
            }
        };
        match kinds.last_mut() {
            Some((last, all)) if *last == kind && kind != "tool_calls" => *all += &text,
            _ => kinds.push((kind, text)),
        }
    }
    assert_eq!(kinds[0], ("reasoning_content", "Hm.".into()));
    assert_eq!(kinds[1], ("content", "I look.".into()));
    assert_eq!(kinds[2], ("tool_calls", "0read".into()));
    let of = |index: &str| -> String {
        let pieces = kinds[3..]
            .iter()
            .filter_map(|(_, text)| text.strip_prefix(index));
        pieces.collect()
    };
    assert_eq!(
        (of("0").as_str(), of("1").as_str()),
        ("{\"n\":  1}", "now{}")
    );
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0]["id"], ids[1]["id"]);
}

#[tokio::test]
async fn a_whole_answer_with_calls() {
    let server = server();
    let reply = server.chat(&body("look")).await.json();
    let choice = &reply["choices"][0];
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    let message = without_ids(
        &choice["message"].to_string(),
        &calls.iter().collect::<Vec<_>>(),
    );
    let want = json!({"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [
        {"id": "[id 0]", "type": "function", "function": {"name": "read", "arguments": "{\"n\":  1}"}},
        {"id": "[id 1]", "type": "function", "function": {"name": "now", "arguments": "{}"}},
    ], "refusal": null, "annotations": []});
    assert_eq!(message.parse::<Value>().unwrap(), want);
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert!(
        reply["usage"]["completion_tokens_details"]["reasoning_tokens"]
            .as_u64()
            .unwrap()
            > 3
    );
    // Nothing but a call: no content. Nothing at all: some.
    let reply = server.chat(&body("call")).await.json();
    assert_eq!(reply["choices"][0]["message"]["content"], Value::Null);
    let mut short = body("hi");
    short["stop"] = json!("H");
    let reply = server.chat(&short).await.json();
    assert_eq!(reply["choices"][0]["message"]["content"], "");
}

#[tokio::test]
async fn a_call_that_the_limit_cuts_ends_by_length() {
    let server = server();
    let mut request = body("call");
    request["max_tokens"] = json!(49);
    let choice = server.chat(&request).await.json()["choices"][0].clone();
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(
        choice["message"]["tool_calls"][0]["function"]["arguments"],
        "{\"n\":  1"
    );
    request["stream"] = json!(true);
    let reply = server.chat(&request).await;
    assert!(reply.text.contains("\"finish_reason\":\"length\""));
}

#[tokio::test]
async fn the_next_turn_repeats_the_call_as_it_was_sampled() {
    let server = server();
    let mut request = body("call");
    let first = server.chat(&request).await.json();
    let mut message = first["choices"][0]["message"].clone();
    message["tool_calls"][0]["function"]["arguments"] = json!("{\"n\":1}");
    let id = message["tool_calls"][0]["id"].clone();
    let messages = request["messages"].as_array_mut().unwrap();
    messages.push(message);
    messages.push(json!({"role": "tool", "tool_call_id": id, "content": "seen"}));
    let second = server.chat(&request).await.json();
    assert_eq!(second["choices"][0]["message"]["content"], "Done.");
    let usage = &first["usage"];
    let computed =
        usage["prompt_tokens"].as_u64().unwrap() + usage["completion_tokens"].as_u64().unwrap() - 1;
    let cached = &second["usage"]["prompt_tokens_details"]["cached_tokens"];
    assert!((computed / 16 * 16..=computed).contains(&cached.as_u64().unwrap()));
}

#[tokio::test]
async fn which_tools_may_be_called() {
    let server = server();
    let prompt_tokens = |reply: &Value| reply["usage"]["prompt_tokens"].as_u64().unwrap();
    let with = server.chat(&body("call")).await.json();
    // None: the call is text, and the prompt holds no tools.
    let mut none = body("call");
    none["tool_choice"] = json!("none");
    let reply = server.chat(&none).await.json();
    assert_eq!(reply["choices"][0]["message"]["content"], ONE_CALL);
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    assert!(prompt_tokens(&reply) < prompt_tokens(&with));
    // The former names of the same things.
    let functions = json!([{"name": "read", "parameters": {"type": "object"}}, {"name": "now", "description": "what time it is"}]);
    let former = json!({"messages": user("call"), "functions": functions, "function_call": "auto", "temperature": 0});
    let reply = server.chat(&former).await.json();
    assert_eq!(
        reply["choices"][0]["message"]["tool_calls"][0]["function"]["name"],
        "read"
    );
    assert_eq!(prompt_tokens(&reply), prompt_tokens(&with));
    // A list of those allowed.
    let mut allowed = body("call");
    allowed["tool_choice"] = json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto",
        "tools": [{"type": "function", "function": {"name": "now"}}]}});
    let reply = server.chat(&allowed).await.json();
    assert!(prompt_tokens(&reply) < prompt_tokens(&with));
    for choice in [
        json!({"type": "function", "function": {"name": "other"}}),
        json!("perhaps"),
    ] {
        let mut wrong = body("call");
        wrong["tool_choice"] = choice;
        assert_eq!(server.chat(&wrong).await.error(400)["param"], "tool_choice");
    }
}

#[tokio::test]
async fn whether_to_think_is_said_in_many_ways() {
    let server = server();
    let mut seen = Vec::new();
    for fields in [
        json!({}),
        json!({"enable_thinking": true}),
        json!({"reasoning_effort": "low"}),
        json!({"reasoning": {"effort": "high"}}),
        json!({"thinking": {"type": "enabled", "budget_tokens": 1000}}),
        json!({"enable_thinking": false}),
        json!({"reasoning_effort": "none"}),
        json!({"reasoning": {"enabled": false}}),
        json!({"thinking": {"type": "disabled"}}),
        json!({"chat_template_kwargs": {"enable_thinking": false}}),
    ] {
        let mut request = json!({"messages": user("hi"), "max_tokens": 1});
        request
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let reply = server.chat(&request).await.json();
        seen.push(reply["usage"]["prompt_tokens"].as_u64().unwrap());
    }
    // The template adds `no thoughts` and a line break.
    let on = seen[0];
    assert_eq!(seen, [[on; 5], [on + 12; 5]].concat());
}

#[tokio::test]
async fn a_budget_ends_thinking() {
    let model = says(conversation(), "think", "<think>One two three four.");
    let server = Fixture::with(model, |engine, _| engine.context = 4096);
    for (field, value) in [
        ("thinking_budget", json!(10)),
        ("thinking", json!({"type": "enabled", "budget_tokens": 10})),
        ("reasoning", json!({"max_tokens": 10})),
    ] {
        let mut request = json!({"messages": user("think"), "temperature": 0, "max_tokens": 40});
        request[field] = value;
        let message = server.chat(&request).await.json()["choices"][0]["message"].clone();
        // The byte with which the opening tag is complete is the first of the ten.
        assert_eq!(message["reasoning_content"], "One two t", "{field}");
        assert!(!message["content"].as_str().unwrap().is_empty());
    }
}
