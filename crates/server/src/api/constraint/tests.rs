//! Every field that asks for a form gets it, over both APIs, streamed or not; what cannot be had is refused by name.

use serde_json::{Value, json};

use crate::fixture::{Fixture, user};

fn with(mut body: Value, more: &Value) -> Value {
    let members = more.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(members);
    body
}

fn chat(more: &Value) -> Value {
    let body = json!({ "messages": user("go"), "temperature": 0, "max_tokens": 60 });
    with(body, more)
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": { "a": { "enum": ["x"] }, "b": { "type": "boolean" } },
        "required": ["a", "b"],
        "additionalProperties": false,
    })
}

/// The answer's text in JSON, its blanks taken away.
fn compact(text: &str) -> String {
    let value: Value = serde_json::from_str(text).expect(text);
    value.to_string()
}

fn is_schemas(text: &str) -> bool {
    [r#"{"a":"x","b":true}"#, r#"{"a":"x","b":false}"#].contains(&compact(text).as_str())
}

#[tokio::test]
async fn every_field_is_understood() {
    let fixture = Fixture::new();
    let schemas = [
        json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema(), "strict": true}}}),
        json!({"response_format": {"type": "json_schema", "schema": schema()}}),
        json!({"response_format": {"type": "json_object", "schema": schema()}}),
        json!({"json_schema": schema(), "grammar": ""}),
        json!({"guided_json": schema()}),
        json!({"guided_json": schema().to_string()}),
        json!({"structured_outputs": {"json": schema()}, "response_format": {"type": "text"}}),
    ];
    for more in schemas {
        let reply = fixture.chat(&chat(&more)).await.json();
        let choice = &reply["choices"][0];
        assert!(
            is_schemas(choice["message"]["content"].as_str().expect("text")),
            "{more}: {reply}"
        );
        assert_eq!(choice["finish_reason"], "stop");
    }
    let texts = [
        json!({"grammar": "root ::= \"ab\" [c]"}),
        json!({"grammar": "start: \"ab\" /c/"}),
        json!({"grammar": "%llguidance {}\nstart: \"abc\" | \"::=\" \"x\""}),
        json!({"guided_regex": "abc"}),
        json!({"guided_choice": ["abc"]}),
        json!({"guided_grammar": "root ::= \"abc\""}),
        json!({"structured_outputs": {"regex": "ab[c]"}}),
        json!({"structured_outputs": {"choice": ["abc"], "json_object": false}}),
        json!({"structured_outputs": {"grammar": "start: \"abc\""}}),
    ];
    for more in &texts {
        let reply = fixture.chat(&chat(more)).await.json();
        assert_eq!(
            reply["choices"][0]["message"]["content"], "abc",
            "{more}: {reply}"
        );
        let body = with(json!({"prompt": "go", "temperature": 0}), more);
        let reply = fixture.post("/v1/completions", &body).await.json();
        assert_eq!(reply["choices"][0]["text"], "abc", "{more}: {reply}");
    }
    for more in [
        json!({"response_format": {"type": "json_object"}}),
        json!({"guided_json_object": true}),
        json!({"structured_outputs": {"json_object": true}}),
    ] {
        let reply = fixture.chat(&chat(&more)).await.json();
        let text = reply["choices"][0]["message"]["content"]
            .as_str()
            .expect("text")
            .to_owned();
        assert!(text.starts_with('{'), "{more}: {text}");
    }
}

#[tokio::test]
async fn a_stream_and_several_choices_have_the_form() {
    let fixture = Fixture::new();
    let more = json!({"response_format": {"type": "json_schema", "json_schema": {"schema": schema()}}, "n": 3, "temperature": 1});
    let reply = fixture.chat(&chat(&more)).await.json();
    let choices = reply["choices"].as_array().expect("choices");
    assert_eq!(choices.len(), 3);
    for choice in choices {
        assert!(
            is_schemas(choice["message"]["content"].as_str().expect("text")),
            "{choice}"
        );
    }
    let reply = fixture
        .chat(&with(chat(&more), &json!({"stream": true, "n": 1})))
        .await;
    let text: String = reply
        .events()
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert!(is_schemas(&text), "{}", reply.text);
}

async fn refuses(cases: impl IntoIterator<Item = (Value, &'static str, &'static str)>) {
    let fixture = Fixture::new();
    for (more, param, words) in cases {
        let error = fixture.chat(&chat(&more)).await.error(400);
        assert_eq!(error["param"], param, "{more}: {error}");
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains(words), "{more}: {error}");
    }
}

#[tokio::test]
async fn a_format_that_cannot_be_had_is_refused_by_name() {
    let unique = json!({"properties": {"a": {"type": "array", "uniqueItems": true}}});
    refuses([
        (
            json!({"response_format": "json"}),
            "response_format",
            "an object",
        ),
        (
            json!({"response_format": {"type": "xml"}}),
            "response_format.type",
            "`xml`",
        ),
        (
            json!({"response_format": {"type": "json_schema"}}),
            "response_format.json_schema.schema",
            "required",
        ),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"schema": unique, "strict": true}}}),
            "response_format.json_schema.schema",
            "(in `#/properties/a`)",
        ),
    ])
    .await;
}

#[tokio::test]
async fn what_other_servers_take_is_refused_by_name_where_it_cannot_be_had() {
    refuses([
        (json!({"json_schema": 3}), "json_schema", "a JSON schema"),
        (
            json!({"json_schema": {"type": "strong"}}),
            "json_schema",
            "strong",
        ),
        (json!({"guided_json": "{"}), "guided_json", "no JSON"),
        (json!({"guided_regex": "("}), "guided_regex", "guided_regex"),
        (
            json!({"guided_choice": []}),
            "guided_choice",
            "nothing to choose",
        ),
        (
            json!({"guided_choice": [1]}),
            "guided_choice[0]",
            "a string",
        ),
        (
            json!({"grammar": "root ::= missing"}),
            "grammar",
            "`missing`",
        ),
        (json!({"grammar": "start: missing"}), "grammar", "missing"),
        (
            json!({"grammar": "start: \"a\"", "grammar_lazy": true}),
            "grammar_lazy",
            "not supported",
        ),
        (
            json!({"structured_outputs": []}),
            "structured_outputs",
            "an object",
        ),
        (
            json!({"structured_outputs": {"structural_tag": {}}}),
            "structured_outputs.structural_tag",
            "not supported",
        ),
        (
            json!({"guided_regex": "a", "grammar": "start: \"a\""}),
            "guided_regex",
            "`grammar` already",
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_schema_that_is_not_strict_is_followed_as_far_as_it_can_be() {
    let fixture = Fixture::new();
    let loose = json!({"response_format": {"type": "json_schema", "json_schema": {"schema": {
        "type": "array", "items": {"enum": [1]}, "minItems": 1, "maxItems": 1, "uniqueItems": true,
    }}}});
    let reply = fixture.chat(&chat(&loose)).await.json();
    assert_eq!(
        compact(
            reply["choices"][0]["message"]["content"]
                .as_str()
                .expect("text")
        ),
        "[1]"
    );
}

#[tokio::test]
async fn a_dead_end_is_the_requests_fault() {
    let fixture = Fixture::new();
    let more = json!({"guided_choice": ["abc"], "logit_bias": [[98, false]]});
    let error = fixture.chat(&chat(&more)).await.error(400);
    assert!(
        error["message"]
            .as_str()
            .expect("a message")
            .contains("no token"),
        "{error}"
    );
    let reply = fixture
        .chat(&with(chat(&more), &json!({"stream": true})))
        .await;
    let events = reply.events();
    assert_eq!(
        events[events.len() - 2]["error"]["type"],
        "invalid_request_error",
        "{}",
        reply.text
    );
}

#[tokio::test]
async fn the_other_apis_ask_in_their_own_way() {
    let fixture = Fixture::new();
    let format = json!({ "type": "json_schema", "name": "n", "schema": schema() });
    let body =
        json!({ "model": "m", "input": "go", "temperature": 0, "text": { "format": format } });
    let reply = fixture.post("/v1/responses", &body).await.json();
    let text = reply["output"][0]["content"][0]["text"]
        .as_str()
        .expect("text");
    assert!(is_schemas(text), "{reply}");
    for more in [
        json!({ "output_config": { "format": format } }),
        json!({ "output_format": format }),
    ] {
        let body =
            json!({ "model": "m", "max_tokens": 60, "messages": user("go"), "temperature": 0 });
        let reply = fixture
            .post("/v1/messages", &with(body, &more))
            .await
            .json();
        let text = reply["content"][0]["text"].as_str().expect("text");
        assert!(is_schemas(text), "{reply}");
    }
    let broken = json!({ "type": "json_schema", "name": "n", "schema": { "type": "strong" } });
    let body = json!({ "model": "m", "input": "go", "text": { "format": broken } });
    let error = fixture.post("/v1/responses", &body).await.error(400);
    assert_eq!(error["param"], "text.format.schema");
}

fn tools() -> Value {
    let tool = |name: &str, parameters: Value| json!({ "type": "function", "function": { "name": name, "strict": true, "parameters": parameters } });
    let nothing = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    json!([tool("look", schema()), tool("wait", nothing)])
}

/// Name and arguments, which must be those of one of the tools.
fn is_call(name: &Value, arguments: &Value) -> bool {
    let arguments = arguments.as_str().expect("JSON text");
    match name.as_str() {
        Some("look") => is_schemas(arguments),
        Some("wait") => compact(arguments) == "{}",
        _ => false,
    }
}

#[tokio::test]
async fn a_forced_call_is_made_whatever_the_model_would_say() {
    let fixture = Fixture::new();
    for seed in 0..5 {
        let more = json!({
            "tools": tools(), "tool_choice": "required", "parallel_tool_calls": false,
            "temperature": 1.5, "seed": seed, "max_tokens": 200,
        });
        let reply = fixture.chat(&chat(&more)).await.json();
        let choice = &reply["choices"][0];
        let calls = choice["message"]["tool_calls"].as_array().expect("calls");
        assert_eq!(
            (calls.len(), &choice["finish_reason"]),
            (1, &json!("tool_calls")),
            "{reply}"
        );
        let function = &calls[0]["function"];
        assert!(
            is_call(&function["name"], &function["arguments"]),
            "{reply}"
        );
    }
    let named = json!({
        "tools": tools(), "tool_choice": { "type": "function", "function": { "name": "wait" } },
        "max_tokens": 200, "stream": true,
    });
    let reply = fixture.chat(&chat(&named)).await;
    let events = reply.events();
    let calls = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["tool_calls"].get(0));
    let (mut name, mut arguments) = (String::new(), String::new());
    for call in calls {
        name += call["function"]["name"].as_str().unwrap_or_default();
        arguments += call["function"]["arguments"].as_str().unwrap_or_default();
    }
    assert!(
        is_call(&json!(name), &json!(arguments)) && name == "wait",
        "{}",
        reply.text
    );
}

#[tokio::test]
async fn calls_are_forced_in_every_api() {
    let fixture = Fixture::new();
    let (mut flat, mut anthropic) = (Vec::new(), Vec::new());
    for tool in tools().as_array().expect("tools") {
        let function = &tool["function"];
        flat.push(with(json!({ "type": "function" }), function));
        anthropic.push(json!({ "name": function["name"], "input_schema": function["parameters"] }));
    }
    let body = json!({
        "model": "m", "input": "go", "temperature": 0, "max_output_tokens": 200,
        "tools": flat, "tool_choice": "required", "parallel_tool_calls": false,
    });
    let reply = fixture.post("/v1/responses", &body).await.json();
    let call = &reply["output"][0];
    assert_eq!(call["type"], "function_call", "{reply}");
    assert!(is_call(&call["name"], &call["arguments"]), "{reply}");
    let body = json!({
        "model": "m", "messages": user("go"), "temperature": 0, "max_tokens": 200,
        "tools": anthropic, "tool_choice": { "type": "any", "disable_parallel_tool_use": true },
    });
    let reply = fixture.post("/v1/messages", &body).await.json();
    assert_eq!(reply["stop_reason"], "tool_use", "{reply}");
    let call = &reply["content"][0];
    assert!(
        is_call(&call["name"], &json!(call["input"].to_string())),
        "{reply}"
    );
}

#[tokio::test]
async fn a_form_of_the_text_leaves_calls_possible() {
    let fixture = Fixture::new();
    let format = json!({ "type": "json_schema", "json_schema": { "schema": schema() } });
    for seed in 0..8 {
        let more = json!({
            "tools": tools(), "response_format": format, "parallel_tool_calls": false,
            "temperature": 1.5, "seed": seed, "max_tokens": 200,
        });
        let reply = fixture.chat(&chat(&more)).await.json();
        let message = &reply["choices"][0]["message"];
        match message["tool_calls"].get(0) {
            Some(call) => {
                let function = &call["function"];
                assert!(
                    is_call(&function["name"], &function["arguments"]),
                    "{reply}"
                );
            }
            None => assert!(
                is_schemas(message["content"].as_str().expect("text")),
                "{reply}"
            ),
        }
    }
}
