//! The Messages API: what is read, what is written, in which order.

use std::sync::mpsc;
use std::time::Duration;

use andante_engine::{FinishReason, Timings, Usage};
use andante_text::{Part, Role, ToolChoice};
use serde_json::{Value, json};

use super::*;
use crate::answer::Totals;
use crate::fixture::written::{named, streamed, types, whole};
use crate::fixture::{Fixture, Reply, conversation as model, says_after};

const PATH: &str = "/v1/messages";

fn ask(text: &str) -> Value {
    // The scripted model knows its lines after prompts that leave thinking on.
    json!({
        "model": "m", "max_tokens": 20, "temperature": 0, "thinking": {"type": "adaptive"},
        "messages": [{"role": "user", "content": text}],
    })
}

/// The named events of a stream; each name is checked against the data's type.
fn events(reply: &Reply) -> Vec<Value> {
    named(&reply.text)
}

fn parts() -> Vec<Part> {
    let call = |id: &str, name: &str| Part::Call {
        id: id.into(),
        name: name.into(),
    };
    vec![
        Part::Text("Well.".into()),
        Part::Reasoning("Let me ".into()),
        Part::Reasoning("see.".into()),
        Part::Text("Two ".into()),
        Part::Text("calls:".into()),
        call("call_a1", "read"),
        Part::Arguments("{\"path\":".into()),
        Part::Arguments("\"x\"}".into()),
        call("call_b2", "list"),
    ]
}

const USAGE: Usage = Usage {
    prompt_tokens: 100,
    cached_tokens: 60,
    completion_tokens: 30,
    reasoning_tokens: 5,
};

fn totals() -> Totals {
    Totals {
        usage: USAGE,
        timings: Timings::default(),
    }
}

/// What an encoder writes for an answer of `parts`.
fn stream(encoder: &mut MessageEncoder, parts: Vec<Part>, reason: FinishReason) -> Vec<Value> {
    let prompt = Usage {
        completion_tokens: 0,
        reasoning_tokens: 0,
        ..USAGE
    };
    named(&streamed(encoder, prompt, parts, (reason, totals())))
}

fn encoder(server: &Fixture, show_thinking: bool) -> MessageEncoder {
    MessageEncoder::new(&server.server, "m", "req_1".into(), show_thinking)
}

#[tokio::test]
async fn the_events_of_a_stream_in_full() {
    let server = Fixture::new();
    let stop = FinishReason::Stop { sequence: None };
    let mut events = stream(&mut encoder(&server, true), parts(), stop);
    assert!(
        events[0]["message"]["id"]
            .as_str()
            .unwrap()
            .starts_with("msg_")
    );
    events[0]["message"]["id"] = json!("[id]");
    for event in &mut events {
        if event["delta"]["type"] == "signature_delta" {
            let signature = event["delta"]["signature"].as_str().unwrap();
            let opened = server.engine.open_reasoning(signature);
            assert_eq!(opened.as_deref(), Some("Let me see."));
            event["delta"]["signature"] = json!("[signature]");
        }
    }
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[tokio::test]
async fn a_whole_message_in_full() {
    let server = Fixture::new();
    let stop = FinishReason::Stop { sequence: None };
    let mut message = whole(&mut encoder(&server, true), parts(), (stop, totals()));
    message["id"] = json!("[id]");
    message["content"][1]["signature"] = json!("[signature]");
    insta::assert_snapshot!(serde_json::to_string_pretty(&message).unwrap());
}

#[tokio::test]
async fn thinking_that_is_not_to_be_shown_comes_back_by_its_signature() {
    let server = Fixture::new();
    let thought = vec![Part::Reasoning("secret".into())];
    let events = stream(&mut encoder(&server, false), thought, FinishReason::Length);
    assert!(
        !events
            .iter()
            .any(|event| event.to_string().contains("secret"))
    );
    let signature = events
        .iter()
        .find_map(|event| event["delta"]["signature"].as_str());
    let block = json!({"type": "thinking", "thinking": "", "signature": signature.unwrap()});
    let foreign = json!({"type": "thinking", "thinking": "mine", "signature": "c2ln"});
    let chat = read(
        &server,
        &json!({"messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": [block]},
            {"role": "assistant", "content": [foreign]},
        ]}),
    );
    assert_eq!(chat.messages[1].reasoning.as_deref(), Some("secret"));
    assert_eq!(chat.messages[2].reasoning.as_deref(), Some("mine"));
}

#[tokio::test]
async fn why_it_stopped() {
    let server = Fixture::new();
    let stop = |sequence: Option<&str>| FinishReason::Stop {
        sequence: sequence.map(str::to_owned),
    };
    let text = || vec![Part::Text("x".into())];
    for (parts, reason, expected) in [
        (text(), stop(None), json!(["end_turn", null])),
        (text(), stop(Some("###")), json!(["stop_sequence", "###"])),
        (text(), FinishReason::Length, json!(["max_tokens", null])),
        (parts(), stop(None), json!(["tool_use", null])),
        // The last call may be cut.
        (parts(), FinishReason::Length, json!(["max_tokens", null])),
        (Vec::new(), stop(None), json!(["end_turn", null])),
    ] {
        let events = stream(&mut encoder(&server, true), parts, reason);
        let delta = &events[events.len() - 2]["delta"];
        assert_eq!(
            json!([delta["stop_reason"], delta["stop_sequence"]]),
            expected
        );
        assert_eq!(events.last().unwrap()["type"], "message_stop");
    }
}

#[tokio::test]
async fn arguments_that_are_no_object_are_kept() {
    let server = Fixture::new();
    for (arguments, input) in [
        ("", json!({})),
        ("{\"a\":1}", json!({"a": 1})),
        ("{\"a\":", json!({"arguments": "{\"a\":"})),
        ("[1]", json!({"arguments": "[1]"})),
    ] {
        let call = Part::Call {
            id: "call_1".into(),
            name: "f".into(),
        };
        let parts = vec![call, Part::Arguments(arguments.into())];
        let end = (FinishReason::Length, totals());
        let message = whole(&mut encoder(&server, true), parts, end);
        assert_eq!(message["content"][0]["input"], input);
        assert_eq!(message["content"][0]["id"], "toolu_1");
    }
}

#[tokio::test]
async fn an_answer_streamed_and_whole() {
    let server = Fixture::new();
    let mut body = ask("hi");
    let whole = server.post(PATH, &body).await;
    assert_eq!(whole.status, 200, "{}", whole.text);
    assert!(whole.headers.contains_key("request-id"));
    let whole = whole.json();
    assert_eq!(
        whole["content"],
        json!([{"type": "text", "text": "Hello!", "citations": null}])
    );
    assert_eq!(
        (&whole["stop_reason"], &whole["model"]),
        (&json!("end_turn"), &json!("m"))
    );
    body["stream"] = json!(true);
    let reply = server.post("/v1/messages?beta=true", &body).await;
    assert_eq!(reply.headers["content-type"], "text/event-stream");
    let events = events(&reply);
    let text: String = events
        .iter()
        .filter_map(|event| event["delta"]["text"].as_str())
        .collect();
    assert_eq!(text, "Hello!");
    let ends = types(&events);
    assert_eq!(ends[..2], ["message_start", "content_block_start"]);
    assert_eq!(
        ends[ends.len() - 3..],
        ["content_block_stop", "message_delta", "message_stop"]
    );
    // Both asked the same: what the first computed, the second found.
    let usage = &events[0]["message"]["usage"];
    let prompt = usage["input_tokens"].as_u64().unwrap()
        + usage["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(json!(prompt), json!(whole["usage"]["input_tokens"]));
    assert_eq!(
        events[events.len() - 2]["usage"]["output_tokens"],
        whole["usage"]["output_tokens"]
    );
}

#[tokio::test]
async fn stop_sequences_end_an_answer() {
    let server = Fixture::new();
    let mut body = ask("hi");
    body["stop_sequences"] = json!(["lo"]);
    let message = server.post(PATH, &body).await.json();
    assert_eq!(message["content"][0]["text"], "Hel");
    assert_eq!(
        json!([message["stop_reason"], message["stop_sequence"]]),
        json!(["stop_sequence", "lo"])
    );
}

#[tokio::test]
async fn a_request_that_waits_has_pings_and_a_failure_ends_it() {
    let (go, gate) = mpsc::channel();
    let model = model().on_forward(move |_| gate.recv().unwrap_or(()));
    let server = Fixture::with(model.poison(u32::from(b'#')), |_, config| {
        config.keep_alive = Duration::from_millis(5);
    });
    let mut body = ask("#");
    body["stream"] = json!(true);
    let waking = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(go);
    };
    let (reply, ()) = tokio::join!(server.post(PATH, &body), waking);
    let events = events(&reply);
    assert_eq!(events[0], json!({"type": "ping"}));
    let last = events.last().unwrap();
    assert_eq!(
        json!([last["type"], last["error"]["type"]]),
        json!(["error", "api_error"])
    );
    assert!(last["request_id"].as_str().unwrap().starts_with("req_"));
}

#[tokio::test]
async fn refusals_have_the_envelope() {
    let server = Fixture::new();
    for (change, status, kind, words) in [
        (
            json!({"messages": null}),
            400,
            "invalid_request_error",
            "`messages`: required",
        ),
        (
            json!({"temperature": "x"}),
            400,
            "invalid_request_error",
            "`temperature`",
        ),
        (
            json!({"max_tokens": 0}),
            400,
            "invalid_request_error",
            "`max_tokens`",
        ),
        (
            json!({"messages": [{"role": "user", "content": "x".repeat(600)}]}),
            400,
            "invalid_request_error",
            "prompt is too long: 6",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}),
            400,
            "invalid_request_error",
            "`messages[0].content[0].type`: image input is not supported",
        ),
        (
            json!({"messages": [{"role": "critic", "content": "x"}]}),
            400,
            "invalid_request_error",
            "Input should be 'user' or 'assistant'",
        ),
    ] {
        let mut body = ask("hi");
        body.as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        let reply = server.post(PATH, &body).await;
        let error = reply.json();
        assert_eq!(reply.status.as_u16(), status, "{error}");
        assert_eq!(
            json!([error["type"], error["error"]["type"]]),
            json!(["error", kind])
        );
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
        assert_eq!(
            error["request_id"],
            reply.headers["x-request-id"].to_str().unwrap()
        );
    }
    server.engine.shutdown(andante_engine::Shutdown::Now);
    let reply = server.post(PATH, &ask("hi")).await;
    assert_eq!(reply.status.as_u16(), 529);
    assert!(reply.headers.contains_key("retry-after"));
    assert_eq!(reply.json()["error"]["type"], "overloaded_error");
}

#[tokio::test]
async fn tokens_are_counted_without_a_place_and_beyond_the_context() {
    let server = Fixture::new();
    let count = async |body: &Value| {
        let reply = server
            .post("/v1/messages/count_tokens?beta=true", body)
            .await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.json()["input_tokens"].as_u64().unwrap()
    };
    let bare = json!({"model": "m", "messages": [{"role": "user", "content": "foo"}]});
    let short = count(&bare).await;
    let mut long = bare.clone();
    long["messages"][0]["content"] = json!("x".repeat(1003));
    assert_eq!(count(&long).await, short + 1000);
    let mut tools = bare;
    tools["tools"] = json!([{"name": "f", "input_schema": {"type": "object"}}]);
    assert!(count(&tools).await > short);
    let status = server.engine.status();
    assert_eq!(status.finished + status.failed + status.refused, 0);
}

fn read(server: &Fixture, body: &Value) -> ChatRequest {
    chat_request(&server.server, &Field::body(body).unwrap()).unwrap()
}

#[tokio::test]
async fn a_conversation_has_one_form_however_it_is_spelt() {
    let server = Fixture::new();
    let first = read(
        &server,
        &json!({
            "system": "Be brief.",
            "messages": [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "x"}},
                    {"type": "tool_use", "id": "toolu_2", "name": "list", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "one"},
                    {"type": "tool_result", "tool_use_id": "toolu_2", "content": "two"},
                ]},
            ],
        }),
    );
    let second = read(
        &server,
        &json!({
            "system": [
                {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.332.d60; cc_entrypoint=sdk-cli;"},
                {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
            ],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}}]},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "x"}},
                    {"type": "tool_use", "id": "toolu_2", "name": "list", "input": {}, "cache_control": {"type": "ephemeral"}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": "two"}], "is_error": false},
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "one", "is_error": false},
                ]},
            ],
        }),
    );
    assert_eq!(first, second);
    let roles: Vec<Role> = first.messages.iter().map(|message| message.role).collect();
    assert_eq!(
        roles,
        [
            Role::System,
            Role::User,
            Role::Assistant,
            Role::Tool,
            Role::Tool
        ]
    );
    let results = &first.messages[3..];
    assert_eq!(results[0].tool_call_id.as_deref(), Some("call_1"));
    assert_eq!(results[1].name.as_deref(), Some("list"));
    assert_eq!(first.messages[2].content, None);
}

#[tokio::test]
async fn loading_a_tool_leaves_the_prompt_before_it_as_it_was() {
    let server = Fixture::new();
    let tool = |name: &str, deferred: bool| {
        json!({
            "name": name, "description": "d", "input_schema": {"type": "object"}, "defer_loading": deferred,
        })
    };
    let search = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "ToolSearch", "input": {}}]},
    ]);
    let before = read(
        &server,
        &json!({
            "tools": [tool("Bash", false), tool("ToolSearch", false), tool("Placeholder", true)],
            "messages": search,
        }),
    );
    let mut messages = search;
    messages
        .as_array_mut()
        .unwrap()
        .push(json!({"role": "user", "content": [{
            "type": "tool_result", "tool_use_id": "toolu_1",
            "content": [{"type": "tool_reference", "tool_name": "Fetch"}],
        }]}));
    let after = read(
        &server,
        &json!({
            "tools": [tool("Bash", false), tool("Fetch", true), tool("ToolSearch", false), tool("Placeholder", true)],
            "messages": messages,
        }),
    );
    assert_eq!(before.tools, after.tools);
    assert_eq!(before.tools.len(), 2);
    assert_eq!(before.messages[..], after.messages[..2]);
    let loaded = after.messages[2].content.as_deref().unwrap();
    let expected = "{\"type\":\"function\",\"function\":{\"name\":\"Fetch\",\"description\":\"d\",\"parameters\":{\"type\":\"object\"}}}";
    assert_eq!(loaded, expected);
    let callable: Value = serde_json::from_str(expected).unwrap();
    assert_eq!(
        (&before.loaded_tools[..], &after.loaded_tools[..]),
        (&[][..], &[callable][..])
    );
    // Where the API itself would search, and there is nobody to do it, everything is loaded.
    let searching = read(
        &server,
        &json!({
            "tools": [{"type": "tool_search_tool_regex_20251119", "name": "s"}, tool("Fetch", true)],
            "messages": [],
        }),
    );
    assert_eq!(searching.tools.len(), 1);
}

#[tokio::test]
async fn choices_and_switches() {
    let server = Fixture::new();
    for (choice, expected, parallel) in [
        (json!(null), ToolChoice::Auto, true),
        (json!({"type": "auto"}), ToolChoice::Auto, true),
        (
            json!({"type": "any", "disable_parallel_tool_use": true}),
            ToolChoice::Required,
            false,
        ),
        (json!({"type": "none"}), ToolChoice::None, true),
        (
            json!({"type": "tool", "name": "f"}),
            ToolChoice::Named("f".into()),
            true,
        ),
    ] {
        let tools = json!([{"name": "f"}]);
        let chat = read(
            &server,
            &json!({"messages": [], "tools": tools, "tool_choice": choice}),
        );
        assert_eq!(
            (chat.tool_choice, chat.parallel_tool_calls),
            (expected, parallel)
        );
    }
    for (choice, words) in [
        (json!({"type": "any"}), "`tool_choice`: needs `tools`"),
        (
            json!({"type": "tool", "name": "f"}),
            "`f` is none of the request's tools",
        ),
    ] {
        let body = json!({"messages": [], "tool_choice": choice});
        let error = chat_request(&server.server, &Field::body(&body).unwrap()).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    let budget = json!({"thinking": {"type": "enabled", "budget_tokens": 1024}});
    let sampling = sampling(&Field::body(&budget).unwrap()).unwrap();
    assert_eq!(sampling.reasoning_budget, Some(1024));
    for (body, thinks, effort) in [
        (json!({}), false, json!(null)),
        (
            json!({"thinking": {"type": "disabled"}}),
            false,
            json!(null),
        ),
        (
            json!({"thinking": {"type": "enabled", "budget_tokens": 1024}}),
            true,
            json!(null),
        ),
        (
            json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}),
            true,
            json!("max"),
        ),
    ] {
        let mut body = body;
        body["messages"] = json!([]);
        let args = read(&server, &body).template_args;
        assert_eq!(args["enable_thinking"], json!(thinks));
        assert_eq!(
            args.get("reasoning_effort").cloned().unwrap_or_default(),
            effort
        );
    }
}

#[tokio::test]
async fn instructions_may_come_late_and_turns_may_be_empty() {
    let server = Fixture::new();
    let chat = read(
        &server,
        &json!({"messages": [
            {"role": "user", "content": "a"},
            {"role": "system", "content": [{"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]},
            {"role": "user", "content": []},
        ]}),
    );
    let messages: Vec<_> = chat
        .messages
        .iter()
        .map(|m| (m.role, m.content.as_deref()))
        .collect();
    let expected = [
        (Role::User, Some("a")),
        (Role::System, Some("b")),
        (Role::User, Some("")),
    ];
    assert_eq!(messages, expected);
    let mut body = ask("");
    body["messages"] = json!([]);
    assert_eq!(server.post(PATH, &body).await.status, 200);
}

#[tokio::test]
async fn an_answer_that_the_client_began_goes_on() {
    let model = says_after(model(), "hi", "He", "llo!");
    let server = Fixture::with(model, |_, _| {});
    let mut body = ask("hi");
    let begin = |text: &str| json!({"role": "assistant", "content": text});
    let content = json!([{"role": "user", "content": "hi"}, begin("He")]);
    body["messages"] = content.clone();
    let reply = server.post(PATH, &body).await.json();
    assert_eq!(reply["content"][0]["text"], "llo!");
    assert_eq!(reply["stop_reason"], "end_turn");
    // Counted as it is asked.
    let count = server.post("/v1/messages/count_tokens", &body).await.json();
    assert_eq!(count["input_tokens"], reply["usage"]["input_tokens"]);
    // An earlier answer of the same text is not taken for the end of this one.
    let again = server.post(PATH, &body).await.json();
    assert_eq!(again["content"], reply["content"]);
    // Ollama's clients expect the same, OpenAI's only where they say so.
    let ollama = json!({"model": "m", "stream": false, "messages": content, "options": {"temperature": 0, "num_predict": 9}});
    let reply = server.post("/api/chat", &ollama).await.json();
    assert_eq!(reply["message"]["content"], "llo!");
    let mut chat = json!({"messages": content, "temperature": 0, "max_tokens": 9});
    let said = |reply: Value| reply["choices"][0]["message"]["content"].clone();
    assert_ne!(said(server.chat(&chat).await.json()), "llo!");
    chat["continue_final_message"] = json!(true);
    assert_eq!(said(server.chat(&chat).await.json()), "llo!");
    chat["add_generation_prompt"] = json!(true);
    server.chat(&chat).await.error(400);
    chat["add_generation_prompt"] = json!(false);
    chat["messages"] = json!([{"role": "user", "content": "hi"}]);
    server.chat(&chat).await.error(400);
}

#[tokio::test]
async fn two_forms_at_once_are_refused() {
    let server = Fixture::new();
    let schema = json!({"type": "json_schema", "schema": {"type": "object"}});
    for more in [
        json!({"output_format": schema}),
        json!({"grammar": "start: \"a\""}),
    ] {
        let mut body = ask("hi");
        body["output_config"] = json!({"format": schema});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let reply = server.post(PATH, &body).await;
        assert_eq!(reply.status, 400, "{}", reply.text);
        assert!(
            reply.text.contains("already asks for a form"),
            "{}",
            reply.text
        );
    }
    let body = json!({"model": "m", "prompt": "hi", "format": "json", "options": {"grammar": "start: \"a\""}});
    assert_eq!(server.post("/api/generate", &body).await.status, 400);
}
