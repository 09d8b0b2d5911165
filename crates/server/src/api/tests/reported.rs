//! What users of other local servers have reported, over every API that it concerns, streamed and whole. `docs/clients.md` lists
//! the cases and the tests of them all.

mod refusals;
mod streams;

use andante_engine::fake::FakeModel;
use serde_json::{Value, json};

use crate::fixture::dialogue::{Api, Called, Said};
use crate::fixture::{Fixture, conversation, says};

const READ: &str = r#"<tool_call>{"name": "read", "arguments": {"n":  1}}</tool_call>"#;
const NOW: &str = r#"<tool_call>{"name": "now", "arguments": {}}</tool_call>"#;

/// It answers `look` with thinking, text and two calls.
fn model() -> FakeModel {
    let answer = format!("<think>\nHm.\n</think>\n\nI look.\n{READ}{NOW}");
    let model = says(conversation(), "look", &answer);
    let model = says(model, "call", READ);
    let model = says(model, "late", "Well.\n<think>\nHm.\n</think>\n\nYes.");
    let model = says(model, "seen", "<think>\nSo.\n</think>\n\nDone.");
    let smiles =
        r#"<think>😀</think>b🙂<tool_call>{"name": "read", "arguments": {"c": "😃"}}</tool_call>"#;
    says(model, "smiles", smiles)
}

fn server() -> Fixture {
    Fixture::with(model(), |engine, _| engine.context = 4096)
}

fn with(mut body: Value, more: &Value) -> Value {
    let fields = more.as_object().expect("fields").clone();
    body.as_object_mut().expect("fields").extend(fields);
    body
}

/// What is read back, less ids, history and what the cache held.
fn essence(said: &Said) -> (&str, &str, Vec<(&str, String)>, &str, u64, u64) {
    (
        &said.thinking,
        &said.text,
        said.called(),
        &said.end,
        said.prompt_tokens,
        said.output_tokens,
    )
}

#[tokio::test]
async fn an_answer_is_the_same_streamed_and_whole() {
    let server = server();
    let calls = [("read", r#"{"n":1}"#.to_owned()), ("now", "{}".to_owned())];
    for api in Api::ALL {
        for (ask, thinking, text, calls, end) in [
            ("hi", "", "Hello!", &calls[..0], "stop"),
            ("look", "Hm.", "I look.", &calls[..], "calls"),
            ("call", "", "", &calls[..1], "calls"),
            ("late", "Hm.", "Well.Yes.", &calls[..0], "stop"),
        ] {
            let body = api.ask_with_tools(ask, 200);
            let streamed = api.say(&server, &body, true).await;
            let whole = api.say(&server, &body, false).await;
            assert_eq!(essence(&streamed), essence(&whole), "{api:?}: {ask}");
            assert_eq!(streamed.text.replace('\n', ""), text, "{api:?}: {ask}");
            let rest = (&*streamed.thinking, streamed.called(), &*streamed.end);
            assert_eq!(rest, (thinking, calls.to_vec(), end), "{api:?}: {ask}");
        }
    }
}

#[tokio::test]
async fn a_call_that_the_limit_cuts_ends_by_length_in_every_api() {
    let server = server();
    for api in Api::ALL {
        for stream in [true, false] {
            let said = api
                .say(&server, &api.ask_with_tools("call", 49), stream)
                .await;
            let ends = (said.end.as_str(), said.calls.len(), said.output_tokens);
            assert_eq!(ends, ("length", 1, 49), "{api:?}, {stream}");
        }
    }
}

#[tokio::test]
async fn a_forced_call_ends_as_a_call_streamed_and_whole() {
    let server = server();
    for (api, choice) in [
        (Api::Chat, json!("required")),
        (
            Api::Chat,
            json!({"type": "function", "function": {"name": "now"}}),
        ),
        (Api::Responses, json!("required")),
        (Api::Messages, json!({"type": "any"})),
    ] {
        let mut body = api.ask_with_tools("hi", 200);
        body["tool_choice"] = choice;
        match api {
            Api::Messages => body["tool_choice"]["disable_parallel_tool_use"] = json!(true),
            _ => body["parallel_tool_calls"] = json!(false),
        }
        // Nothing but the brackets, so that the call ends.
        for tool in body["tools"].as_array_mut().expect("tools") {
            let none = json!({"type": "object", "properties": {}, "additionalProperties": false});
            match api {
                Api::Messages => tool["input_schema"] = none,
                Api::Responses => tool["parameters"] = none,
                _ => tool["function"]["parameters"] = none,
            }
        }
        for stream in [true, false] {
            let said = api.say(&server, &body, stream).await;
            assert!(!said.calls.is_empty() && said.text.is_empty(), "{said:?}");
            assert_eq!(said.end, "calls", "{api:?}, {stream}");
        }
    }
}

/// `said` and results of its calls, behind what was asked.
fn go_on(api: Api, body: &mut Value, said: &Said, results: &[&str]) {
    let turns = api.turns(body);
    turns.extend(said.history.clone());
    let results = said.calls.iter().zip(results);
    turns.extend(results.map(|(call, text)| api.result(call, text)));
}

#[tokio::test]
async fn what_was_answered_can_be_asked_again_and_is_found() {
    for api in Api::ALL {
        for stream in [true, false] {
            let server = server();
            let mut body = api.ask_with_tools("look", 200);
            let first = api.say(&server, &body, stream).await;
            go_on(api, &mut body, &first, &["x", "seen"]);
            let second = api.say(&server, &body, stream).await;
            assert_eq!((&*second.thinking, &*second.text), ("So.", "Done."));
            go_on(api, &mut body, &second, &[]);
            api.turns(&mut body)
                .push(json!({"role": "user", "content": "hi"}));
            let third = api.say(&server, &body, stream).await;
            assert_eq!(third.text, "Hello!");
            if api == Api::Ollama {
                continue; // It does not tell what was found.
            }
            for (before, after) in [(&first, &second), (&second, &third)] {
                // The last token was sampled, but nothing was computed from it.
                let computed = before.prompt_tokens + before.output_tokens - 1;
                assert!(
                    after.cached_tokens >= computed / 16 * 16,
                    "{api:?}: of {computed} tokens {} were found",
                    after.cached_tokens
                );
            }
        }
    }
}

/// What a client that keeps no reasoning sends back.
fn without_thinking(api: Api, said: &Said) -> Said {
    let mut said = said.clone();
    said.history.retain(|item| item["type"] != "reasoning");
    for item in &mut said.history {
        if api == Api::Messages {
            let blocks = item["content"].as_array_mut().expect("blocks");
            blocks.retain(|block| block["type"] != "thinking");
        }
        if let Some(message) = item.as_object_mut() {
            message.remove("reasoning_content");
            message.remove("thinking");
        }
    }
    said
}

#[tokio::test]
async fn a_client_that_keeps_no_reasoning_loses_no_more_than_that() {
    for api in [Api::Chat, Api::Responses, Api::Messages] {
        let server = server();
        let mut body = api.ask_with_tools("look", 200);
        let first = api.say(&server, &body, true).await;
        go_on(
            api,
            &mut body,
            &without_thinking(api, &first),
            &["x", "seen"],
        );
        let second = api.say(&server, &body, true).await;
        // Calls are known by their ids: their reasoning comes back.
        let computed = first.prompt_tokens + first.output_tokens - 1;
        assert!(
            second.cached_tokens >= computed / 16 * 16,
            "{api:?}: {second:?}"
        );
        // A text is known by itself; what was thought before it is left out, and all before that is found.
        go_on(api, &mut body, &without_thinking(api, &second), &[]);
        api.turns(&mut body)
            .push(json!({"role": "user", "content": "hi"}));
        let third = api.say(&server, &body, true).await;
        assert_eq!(third.text, "Hello!");
        assert!(
            third.cached_tokens >= second.prompt_tokens / 16 * 16 - 16,
            "{api:?}: {third:?}"
        );
    }
}

#[tokio::test]
async fn tools_of_kinds_that_nobody_here_knows_are_left_out() {
    let server = server();
    for api in Api::ALL {
        let mut body = api.ask_with_tools("look", 200);
        let expected = api.say(&server, &body, false).await;
        let others = match api {
            Api::Messages => [
                json!({"type": "web_search_20250305", "name": "web_search", "max_uses": 5}),
                json!({"type": "computer_99990101", "name": "hand"}),
            ],
            _ => [
                json!({"type": "web_search", "external_web_access": false, "search_content_types": ["text"]}),
                json!({"type": "tool_search", "execution": "client", "parameters": {}}),
            ],
        };
        let tools = body["tools"].as_array_mut().expect("tools");
        let [first, last] = others;
        tools.insert(0, first);
        tools.push(last);
        for stream in [true, false] {
            let said = api.say(&server, &body, stream).await;
            assert_eq!(essence(&said), essence(&expected), "{api:?}, {stream}");
        }
    }
}

#[tokio::test]
async fn tools_need_nothing_but_a_name() {
    // The template here raises an error where a tool has no description.
    let server = server();
    for api in Api::ALL {
        let mut body = api.ask_with_tools("look", 200);
        let expected = api.say(&server, &body, false).await;
        for tool in body["tools"].as_array_mut().expect("tools") {
            let fields = json!({"description": null, "parameters": null, "input_schema": null, "strict": null});
            match tool.get_mut("function") {
                Some(function) => *function = with(function.clone(), &fields),
                None => *tool = with(tool.clone(), &fields),
            }
        }
        let said = api.say(&server, &body, true).await;
        assert_eq!(essence(&said), essence(&expected), "{api:?}");
    }
}

#[tokio::test]
async fn arguments_that_were_no_json_are_text_in_the_next_prompt() {
    let server = server();
    for api in Api::ALL {
        let call = Called {
            id: "call_x".into(),
            name: "read".into(),
            arguments: "{\"".into(),
        };
        let function = json!({"name": "read", "arguments": call.arguments});
        let turn = match api {
            Api::Responses => {
                json!({"type": "function_call", "call_id": call.id, "name": "read", "arguments": call.arguments})
            }
            Api::Messages => json!({"role": "assistant", "content": [
                {"type": "tool_use", "id": call.id, "name": "read", "input": call.arguments},
            ]}),
            _ => {
                json!({"role": "assistant", "content": null, "tool_calls": [{"id": call.id, "type": "function", "function": function}]})
            }
        };
        let mut body = api.ask_with_tools("go", 200);
        let result = api.result(&call, "seen");
        api.turns(&mut body).extend([turn, result]);
        for stream in [true, false] {
            assert_eq!(
                api.say(&server, &body, stream).await.text,
                "Done.",
                "{api:?}"
            );
        }
    }
}

#[tokio::test]
async fn calls_and_results_without_ids_belong_together_by_their_order() {
    let server = server();
    let call = |name: &str, id: Value| json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}});
    let tokens = async |ids: [Value; 2]| {
        let mut body = Api::Chat.ask_with_tools("go", 200);
        let calls: Vec<Value> = ["read", "now"]
            .iter()
            .zip(&ids)
            .map(|(name, id)| call(name, id.clone()))
            .collect();
        let results = ids.iter().zip(["x", "seen"]);
        let turns = Api::Chat.turns(&mut body);
        turns.push(json!({"role": "assistant", "content": null, "tool_calls": calls}));
        turns.extend(
            results.map(|(id, text)| json!({"role": "tool", "tool_call_id": id, "content": text})),
        );
        let said = Api::Chat.say(&server, &body, true).await;
        assert_eq!(said.text, "Done.", "{ids:?}");
        said.prompt_tokens
    };
    let given = tokens([json!("call_1"), json!("call_2")]).await;
    assert_eq!(tokens([Value::Null, Value::Null]).await, given);
    assert_eq!(tokens([json!("call_1"), Value::Null]).await, given);
}

#[tokio::test]
async fn every_answer_and_every_call_has_an_id_of_its_own_in_every_api() {
    let server = server();
    let mut ids = std::collections::HashSet::new();
    for api in Api::ALL {
        for stream in [true, false, true] {
            let said = api
                .say(&server, &api.ask_with_tools("look", 200), stream)
                .await;
            assert!(ids.insert(said.id) || api == Api::Ollama, "{api:?}");
            for call in said.calls {
                assert!(ids.insert(call.id), "{api:?}");
            }
            for item in said.history.iter().filter(|_| api == Api::Responses) {
                assert!(ids.insert(item["id"].to_string()), "{item}");
            }
        }
    }
}

#[tokio::test]
async fn a_character_over_several_tokens_is_never_cut() {
    let server = server();
    for api in Api::ALL {
        for stream in [true, false] {
            let said = api
                .say(&server, &api.ask_with_tools("smiles", 200), stream)
                .await;
            let (thinking, text) = (said.thinking.as_str(), said.text.as_str());
            assert_eq!((thinking, text), ("😀", "b🙂"), "{api:?}, {stream}");
            assert_eq!(said.called(), [("read", r#"{"c":"😃"}"#.to_owned())]);
        }
    }
}

#[tokio::test]
async fn a_header_with_the_clients_version_costs_nothing() {
    let server = server();
    let mut cached = Vec::new();
    for version in ["2.1.332.d60", "2.1.332.e71"] {
        let billing =
            format!("x-anthropic-billing-header: cc_version={version}; cc_entrypoint=cli;");
        let mut body = Api::Messages.ask("hi", 20);
        body["system"] = json!([
            {"type": "text", "text": billing},
            {"type": "text", "text": "Be brief. ".repeat(20)},
        ]);
        let said = Api::Messages.say(&server, &body, true).await;
        assert_eq!(said.text, "Hello!");
        cached.push((said.prompt_tokens, said.cached_tokens));
    }
    let [(first, 0), (second, cached)] = cached[..] else {
        panic!("{cached:?}")
    };
    assert!(
        first == second && cached >= (first - 1) / 16 * 16,
        "{cached} of {first}"
    );
}

#[tokio::test]
async fn instructions_anywhere_are_taken() {
    let server = server();
    for api in Api::ALL {
        let mut body = api.ask("a", 20);
        let late = json!({"role": "system", "content": "Be brief."});
        let turns = api.turns(&mut body);
        turns.extend([
            json!({"role": "assistant", "content": "b"}),
            json!({"role": "user", "content": "c"}),
            late,
            json!({"role": "user", "content": "hi"}),
        ]);
        for stream in [true, false] {
            assert_eq!(
                api.say(&server, &body, stream).await.text,
                "Hello!",
                "{api:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_limit_beyond_the_context_is_cut_to_it() {
    let server = Fixture::with(model(), |engine, _| engine.context = 256);
    for api in Api::ALL {
        for stream in [true, false] {
            let said = api.say(&server, &api.ask("hi", 128_000), stream).await;
            assert_eq!((&*said.text, &*said.end), ("Hello!", "stop"), "{api:?}");
            // It would go on for ever.
            let said = api.say(&server, &api.ask("go on", 32_000), stream).await;
            let tokens = said.prompt_tokens + said.output_tokens;
            assert_eq!((&*said.end, tokens), ("length", 256), "{api:?}");
        }
    }
}

#[tokio::test]
async fn fields_that_nobody_here_knows_are_passed_over() {
    let server = server();
    let common = json!({"never_heard_of": [{}], "metadata": {"user_id": "{\"device_id\":\"d\"}"}, "service_tier": "auto"});
    let responses = json!({
        "store": false, "prompt_cache_key": "k", "client_metadata": {"a": "b"}, "parallel_tool_calls": true, "tool_choice": "auto",
        "reasoning": {"effort": "high", "summary": "auto", "context": "all"}, "text": {"verbosity": "low"}, "truncation": "disabled",
        "max_tool_calls": 3, "safety_identifier": "s", "top_logprobs": 0, "stream_options": {"include_obfuscation": false},
        "user": "u", "prompt_cache_retention": "24h", "background": false,
    });
    let messages = json!({
        "thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, "container": null, "mcp_servers": [],
        "inference_geo": "us", "top_k": 1, "speed": "fast", "cache_control": {"type": "ephemeral"},
    });
    let ollama = json!({"keep_alive": "5m", "think": true, "truncate": true, "shift": true, "logprobs": false});
    for (api, more) in [
        (Api::Responses, responses),
        (Api::Messages, messages),
        (Api::Ollama, ollama),
    ] {
        let body = with(with(api.ask("hi", 20), &common), &more);
        for stream in [true, false] {
            assert_eq!(
                api.say(&server, &body, stream).await.text,
                "Hello!",
                "{api:?}"
            );
        }
    }
    let mut request = crate::fixture::post(
        "/v1/messages?beta=true",
        Api::Messages.ask("hi", 20).to_string(),
    );
    let betas = "claude-code-20250219,interleaved-thinking-2025-05-14,never-heard-of-2999-01-01";
    request
        .headers_mut()
        .insert("anthropic-beta", betas.parse().unwrap());
    request
        .headers_mut()
        .insert("anthropic-version", "2023-06-01".parse().unwrap());
    assert_eq!(server.call(request).await.status, 200);
}

#[tokio::test]
async fn tokens_are_counted_beside_a_full_server_and_as_many_as_are_computed() {
    let server = Fixture::with(model(), |engine, _| {
        engine.context = 4096;
        engine.sessions = 1;
        engine.max_queue = 0;
    });
    let body = Api::Messages.ask_with_tools("look", 200);
    let said = Api::Messages.say(&server, &body, true).await;
    let endless = with(Api::Messages.ask("go on", 4000), &json!({"stream": true}));
    let running = server.open(Api::Messages.path(), &endless).await;
    for _ in 0..27 {
        let path = "/v1/messages/count_tokens?beta=true";
        let counted = server.post(path, &body).await.json();
        assert_eq!(counted["input_tokens"], said.prompt_tokens);
    }
    drop(running);
}
