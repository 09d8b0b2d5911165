//! Chat completions: shapes of streams and whole answers, and every field that is refused by name.

mod calls;

use serde_json::{Value, json};

use crate::fixture::{Fixture, conversation, user};

#[tokio::test]
async fn a_stream_in_full() {
    let server = Fixture::new();
    let body = json!({"model": "any", "messages": user("hi"), "stream": true, "temperature": 0});
    let reply = server.chat(&body).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.headers["content-type"], "text/event-stream");
    assert_eq!(reply.headers["cache-control"], "no-cache");
    assert!(
        reply.headers["x-request-id"]
            .to_str()
            .unwrap()
            .starts_with("req_")
    );
    insta::assert_snapshot!(reply.redacted());
}

#[tokio::test]
async fn a_prompts_tokens_are_counted_without_an_answer() {
    let server = Fixture::new();
    let body = json!({"messages": user("hi"), "max_tokens": 1});
    let counted = server
        .post("/v1/chat/completions/input_tokens", &body)
        .await
        .json();
    let answer = server.chat(&body).await.json();
    assert_eq!(counted["input_tokens"], answer["usage"]["prompt_tokens"]);
}

#[tokio::test]
async fn a_stream_with_usage_and_logprobs_and_two_choices() {
    let server = Fixture::new();
    let body = json!({
        "messages": user("smile"), "stream": true, "stream_options": {"include_usage": true}, "temperature": 0,
        "max_completion_tokens": 4, "logprobs": true, "top_logprobs": 1, "n": 2,
    });
    let reply = server.chat(&body).await;
    let events = reply.events();
    for choice in 0..2 {
        let chunks: Vec<Value> = events
            .iter()
            .filter(|event| event["choices"][0]["index"] == choice)
            .map(|event| event["choices"][0].clone())
            .collect();
        let text: String = chunks
            .iter()
            .filter_map(|chunk| chunk["delta"]["content"].as_str())
            .collect();
        // Three of the four bytes of the smile: not a whole character.
        assert_eq!(text, "a\u{fffd}");
        assert_eq!(
            chunks[0]["delta"],
            json!({"role": "assistant", "content": ""})
        );
        let last = &chunks[chunks.len() - 1];
        assert_eq!(
            (&last["delta"], &last["finish_reason"]),
            (&json!({}), &json!("length"))
        );
        let tokens: Vec<&Value> = chunks
            .iter()
            .filter_map(|chunk| chunk["logprobs"]["content"].as_array())
            .flatten()
            .collect();
        assert_eq!(tokens.len(), 4);
        assert_eq!(tokens[0]["bytes"], json!([97]));
        assert_eq!(tokens[0]["top_logprobs"][0]["token"], "a");
        assert!(tokens[0]["logprob"].as_f64().unwrap() < 0.0);
    }
    let count = events.len();
    assert_eq!(events[count - 1], "[DONE]");
    assert_eq!(events[count - 2]["choices"], json!([]));
    assert_eq!(events[count - 2]["usage"]["completion_tokens"], 8);
    assert!(
        events[..count - 2]
            .iter()
            .all(|event| event.get("usage").is_none())
    );
    let same = |field: &str| {
        events[..count - 1]
            .iter()
            .all(|event| event[field] == events[0][field])
    };
    assert!(same("id") && same("created") && same("model") && same("object"));
}

#[tokio::test]
async fn a_whole_answer_in_full() {
    let server = Fixture::new();
    let body = json!({"model": "any", "messages": user("hi"), "temperature": 0, "n": 2, "seed": 1});
    let reply = server.chat(&body).await;
    assert_eq!(reply.status, 200);
    insta::assert_snapshot!(reply.redacted());
}

#[tokio::test]
async fn the_second_turn_finds_the_first_in_the_cache() {
    let server = Fixture::new();
    let mut body =
        json!({"messages": user("tell me something long enough to fill blocks"), "max_tokens": 2});
    let first = server.chat(&body).await.json();
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    // The same conversation in the other spelling.
    body["messages"][0]["content"] =
        json!([{"type": "text", "text": body["messages"][0]["content"]}]);
    let second = server.chat(&body).await.json();
    assert_eq!(
        second["usage"]["prompt_tokens"],
        first["usage"]["prompt_tokens"]
    );
    assert!(
        second["usage"]["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap()
            >= 16
    );
    body["cache_prompt"] = json!(false);
    let third = server.chat(&body).await.json();
    assert_eq!(third["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

#[tokio::test]
async fn stops_end_an_answer_and_are_not_part_of_it() {
    let server = Fixture::new();
    for stop in [json!("lo"), json!(["never", "lo"])] {
        let body = json!({"messages": user("hi"), "temperature": 0, "stop": stop});
        let choice = server.chat(&body).await.json()["choices"][0].clone();
        assert_eq!(
            (&choice["message"]["content"], &choice["finish_reason"]),
            (&json!("Hel"), &json!("stop"))
        );
    }
}

#[tokio::test]
async fn tools_and_template_arguments_reach_the_template() {
    let server = Fixture::new();
    let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
    let tokens = async |extra: Value| {
        let mut body = json!({"messages": user("hi"), "max_tokens": 1});
        body.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        let reply = server.chat(&body).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.json()["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    let plain = tokens(json!({})).await;
    // <|im_start|>tools\nabc\n<|im_end|>\n
    assert_eq!(tokens(json!({"tools": [tool("abc")]})).await, plain + 13);
    assert_eq!(
        tokens(json!({"tools": [tool("abc")], "tool_choice": "auto"})).await,
        plain + 13
    );
    assert_eq!(
        tokens(json!({"tools": [tool("abc")], "tool_choice": "none"})).await,
        plain
    );
    assert_eq!(
        tokens(json!({"tools": [{"type": "web_search"}]})).await,
        plain
    );
    assert_eq!(tokens(json!({"tools": []})).await, plain);
    let unthinking = "no thoughts\n".len() as u64;
    for args in [
        json!({"chat_template_kwargs": {"enable_thinking": false}}),
        json!({"enable_thinking": false}),
        json!({"thinking": {"type": "disabled"}}),
    ] {
        assert_eq!(tokens(args).await, plain + unthinking);
    }
    // <|im_start|>assistant\n
    assert_eq!(
        tokens(json!({"add_generation_prompt": false})).await,
        plain - 11
    );
}

#[tokio::test]
async fn the_answer_repeats_the_name_that_was_asked_for() {
    let server = Fixture::new();
    let mut body = json!({"messages": user("hi"), "max_tokens": 1});
    assert_eq!(server.chat(&body).await.json()["model"], "fake-1");
    body["model"] = json!("gpt-4o");
    assert_eq!(server.chat(&body).await.json()["model"], "gpt-4o");
}

#[tokio::test]
async fn all_the_fields_that_sdks_send_are_accepted() {
    let server = Fixture::new();
    let body: Value = serde_json::from_str(
        r#"{
        "model": "m", "messages": [{"role": "developer", "content": "d", "name": "n"}, {"role": "user", "content": "hi"}],
        "audio": null, "frequency_penalty": -2, "function_call": "none", "logit_bias": {"97": 0}, "logprobs": true,
        "max_completion_tokens": 3, "max_tokens": 5, "metadata": {"a": "b"}, "modalities": ["text"], "n": 1,
        "parallel_tool_calls": true, "prediction": null, "presence_penalty": -2, "prompt_cache_key": "k",
        "prompt_cache_retention": "24h", "reasoning_effort": "low", "response_format": {"type": "text"},
        "safety_identifier": "s", "seed": -9007199254740991, "service_tier": "auto", "stop": "\n", "store": true,
        "stream": false, "stream_options": {"include_obfuscation": true, "include_usage": true}, "temperature": 1,
        "tool_choice": "none", "tools": [{"type": "function", "function": {"name": "f", "strict": true}}],
        "top_logprobs": 0, "top_p": 1, "user": "u", "verbosity": "low", "web_search_options": {}, "top_k": -1,
        "min_p": 0.1, "typical_p": 0.9, "repeat_penalty": 1.1, "repeat_last_n": -1, "ignore_eos": true, "n_predict": 9,
        "timings_per_token": true, "never_heard_of": [{}]
    }"#,
    )
    .unwrap();
    let reply = server.chat(&body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(reply.json()["usage"]["completion_tokens"], 3);
}

#[expect(clippy::too_many_lines, reason = "a table")]
#[tokio::test]
async fn what_is_wrong_or_cannot_be_had_is_refused_by_name() {
    let server = Fixture::new();
    for (field, value, param) in [
        ("messages", Value::Null, "messages"),
        (
            "messages",
            json!([{"role": "user", "content": [{"type": "image_url"}]}]),
            "messages[0].content[0].type",
        ),
        ("model", json!(1), "model"),
        ("stream", json!("true"), "stream"),
        ("stream_options", json!(true), "stream_options"),
        (
            "stream_options",
            json!({"include_usage": 1}),
            "stream_options.include_usage",
        ),
        ("n", json!(0), "n"),
        ("n", json!(1000), "n"),
        ("best_of", json!(2), "best_of"),
        ("temperature", json!("hot"), "temperature"),
        ("temperature", json!(-1), "temperature"),
        ("temperature", json!(1e39), "temperature"),
        ("top_p", json!(1.5), "top_p"),
        ("min_p", json!(-0.1), "min_p"),
        ("top_k", json!(1.5), "top_k"),
        ("max_tokens", json!(0), "max_tokens"),
        ("max_completion_tokens", json!(-2), "max_completion_tokens"),
        ("repeat_penalty", json!(0), "repetition_penalty"),
        ("seed", json!("x"), "seed"),
        ("stop", json!(7), "stop"),
        ("stop", json!([7]), "stop[0]"),
        ("stop", json!(vec!["x"; 17]), "stop"),
        ("logit_bias", json!({"hello": 1}), "logit_bias"),
        ("logit_bias", json!({"97": "x"}), "logit_bias.97"),
        ("logit_bias", json!({"300": 1}), "logit_bias"),
        ("logit_bias", json!([[97]]), "logit_bias[0]"),
        ("logprobs", json!(3), "logprobs"),
        ("top_logprobs", json!(3), "top_logprobs"),
        ("tools", json!({}), "tools"),
        ("tools", json!([{"type": "function"}]), "tools[0].function"),
        ("tool_choice", json!("required"), "tool_choice"),
        (
            "tool_choice",
            json!({"type": "function", "function": {"name": "f"}}),
            "tool_choice",
        ),
        ("tool_choice", json!(1), "tool_choice"),
        (
            "functions",
            json!([{"parameters": {}}]),
            "functions[0].name",
        ),
        (
            "response_format",
            json!({"type": "xml"}),
            "response_format.type",
        ),
        (
            "response_format",
            json!({"type": "json_schema", "json_schema": {}}),
            "response_format.json_schema.schema",
        ),
        ("response_format", json!("json"), "response_format"),
        ("grammar", json!("root ::= a"), "grammar"),
        ("guided_choice", json!([]), "guided_choice"),
        ("modalities", json!(["text", "audio"]), "modalities[1]"),
        ("chat_template_kwargs", json!([]), "chat_template_kwargs"),
        ("enable_thinking", json!("no"), "enable_thinking"),
        (
            "continue_final_message",
            json!(true),
            "continue_final_message",
        ),
    ] {
        let mut body = json!({"messages": user("hi"), "max_tokens": 1});
        body[field] = value.clone();
        if field == "max_completion_tokens" {
            body["max_tokens"] = Value::Null;
        }
        let error = server.chat(&body).await.error(400);
        assert_eq!(error["param"], param, "{field}: {value} gives {error}");
        assert_eq!(error["type"], "invalid_request_error");
        assert!(
            error["message"].as_str().unwrap().contains(param),
            "{error}"
        );
    }
}

/// Bodies of the shapes that coding agents were seen to send.
#[tokio::test]
async fn the_shapes_of_known_clients_are_accepted() {
    let server = Fixture::with(conversation(), |engine, _| engine.context = 4096);
    let tool = json!({"type": "function", "function": {"name": "bash", "description": "run", "parameters": {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "properties": {"n": {"type": "number", "exclusiveMinimum": 0, "default": 1}}, "additionalProperties": false}}});
    let call = json!({"id": "call_a", "type": "function", "function": {"name": "bash", "arguments": "{\"n\":1}"}});
    let result = json!({"role": "tool", "tool_call_id": "call_a", "content": "ok"});
    for (client, body) in [
        (
            "OpenCode, title",
            json!({"model": "m", "max_tokens": 8192, "reasoning_effort": "low", "stream": true,
            "stream_options": {"include_usage": true},
            "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}),
        ),
        (
            "OpenCode, tools",
            json!({"model": "m", "max_tokens": 8192, "stream": true, "tools": [tool], "tool_choice": "auto",
            "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"},
                {"role": "assistant", "content": "", "reasoning_content": "r", "tool_calls": [call]}, result]}),
        ),
        (
            "pi",
            json!({"model": "m", "stream": true, "store": false, "max_completion_tokens": 8192, "reasoning_effort": "medium",
            "tools": [tool], "messages": [{"role": "developer", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "a"}]},
                {"role": "assistant", "content": null, "reasoning_text": "r", "tool_calls": [call]}, result]}),
        ),
        (
            "aider",
            json!({"model": "m", "stream": true, "temperature": 0, "messages": [{"role": "system", "content": "s"},
            {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]}),
        ),
        (
            "LangChain",
            json!({"model": "m", "stream": false, "messages": [{"role": "user", "content": "a", "name": null}]}),
        ),
    ] {
        let mut body = body;
        // Whatever they ask for, a short answer will do here.
        body["stop"] = json!(('a'..='z').map(String::from).take(16).collect::<Vec<_>>());
        let reply = server.chat(&body).await;
        assert_eq!(reply.status, 200, "{client}: {}", reply.text);
        assert!(
            reply.text.contains("\"finish_reason\":\"stop\""),
            "{client}: {}",
            reply.text
        );
    }
}

#[tokio::test]
async fn whoever_asks_is_told_how_far_the_prompt_has_come() {
    let server = Fixture::with(conversation(), |engine, _| engine.prefill_chunk = 16);
    let words = "word ".repeat(30);
    let mut body = json!({"messages": user(&words), "stream": true, "max_tokens": 2,
        "stream_options": {"include_usage": true}, "return_progress": true});
    let events = server.chat(&body).await.events();
    let told: Vec<&Value> = events
        .iter()
        .filter_map(|event| event.get("prompt_progress"))
        .collect();
    // Who reads late hears of the latest only, but of that.
    let last = told.last().expect("there is progress");
    assert_eq!((&last["total"], &last["cache"]), (&json!(169), &json!(0)));
    assert_eq!(last["processed"], 160);
    // A model whose tokens cost nothing leaves nothing to expect: the engine's tests have the values.
    assert!(last["time_ms"].is_u64() && last.get("remaining_ms").is_some());
    let processed: Vec<u64> = told
        .iter()
        .map(|progress| progress["processed"].as_u64().unwrap())
        .collect();
    assert!(processed.is_sorted());
    let timings = &events[events.len() - 2]["timings"];
    assert_eq!(
        (
            &timings["prompt_n"],
            &timings["cache_n"],
            &timings["predicted_n"]
        ),
        (&json!(169), &json!(0), &json!(2))
    );
    body["return_progress"] = json!(false);
    let reply = server.chat(&body).await;
    assert!(!reply.text.contains("prompt_progress") && !reply.text.contains("timings"));
}
