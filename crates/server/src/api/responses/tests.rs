//! The Responses API: what is read, what is written and in which order, what is kept.

mod reading;

use std::sync::mpsc;
use std::time::Duration;

use andante_engine::{FinishReason, Timings, Usage};
use andante_text::Part;
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::*;
use crate::answer::Totals;
use crate::fixture::written::{named, streamed, types, whole};
use crate::fixture::{Fixture, Reply, conversation as model, says_after};

const PATH: &str = "/v1/responses";

fn ask(input: impl Into<Value>) -> Value {
    json!({"model": "m", "max_output_tokens": 20, "temperature": 0, "input": input.into()})
}

/// The named events of a stream, numbered.
fn numbered(text: &str) -> Vec<Value> {
    let events = named(text);
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
    }
    events
}

fn parts() -> Vec<Part> {
    let call = |id: &str, name: &str| Part::Call {
        id: id.into(),
        name: name.into(),
    };
    vec![
        Part::Reasoning("Let me ".into()),
        Part::Reasoning("see.".into()),
        Part::Text("Three ".into()),
        Part::Text("calls:".into()),
        call("call_a1", "read"),
        Part::Arguments("{\"path\":".into()),
        Part::Arguments("\"x\"}".into()),
        call("call_b2", "apply_patch"),
        Part::Arguments("{\"input\": \"*** Be".into()),
        Part::Arguments("gin\\n\"}".into()),
        call("call_c3", "close"),
    ]
}

fn tools() -> Value {
    let schema = json!({"type": "object"});
    json!([
        {"type": "function", "name": "read", "parameters": schema},
        {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"x\""}},
        {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "close", "parameters": schema}]},
        {"type": "web_search"},
    ])
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

/// An encoder for a request with these further fields.
fn encoder(server: &Fixture, change: &Value) -> ResponseEncoder {
    let mut body = ask("hi");
    body["tools"] = tools();
    body["include"] = json!(["reasoning.encrypted_content"]);
    body.as_object_mut()
        .unwrap()
        .extend(change.as_object().unwrap().clone());
    let job = decode(
        &server.server,
        &Field::body(&body).unwrap(),
        Tenant::default(),
    );
    job.unwrap_or_else(|error| panic!("{error}")).encoder
}

fn stream(encoder: &mut ResponseEncoder, parts: Vec<Part>, reason: FinishReason) -> Vec<Value> {
    numbered(&streamed(encoder, USAGE, parts, (reason, totals())))
}

const STOP: FinishReason = FinishReason::Stop { sequence: None };

/// A value with what differs from run to run replaced, equal things by equal names.
fn redacted(value: &Value, ids: &mut Vec<String>) -> Value {
    match value {
        Value::String(text) => {
            let prefixes = ["resp_", "msg_", "rs_", "fc_", "ctc_", "item_"];
            let Some(prefix) = prefixes.iter().find(|prefix| text.starts_with(**prefix)) else {
                return value.clone();
            };
            let place = ids.iter().position(|id| id == text).unwrap_or_else(|| {
                ids.push(text.clone());
                ids.len() - 1
            });
            format!("{prefix}{place}").into()
        }
        Value::Array(items) => items.iter().map(|item| redacted(item, ids)).collect(),
        Value::Object(entries) => {
            let entry = |(key, value): (&String, &Value)| {
                let value = match key.as_str() {
                    "created_at" | "completed_at" if value.is_number() => json!(0),
                    "encrypted_content" => json!("[sealed]"),
                    // Shown once is enough.
                    "tools" => json!("[tools]"),
                    _ => redacted(value, ids),
                };
                (key.clone(), value)
            };
            entries.iter().map(entry).collect()
        }
        other => other.clone(),
    }
}

#[tokio::test]
async fn the_events_of_a_stream_in_full() {
    let server = Fixture::new();
    let events = stream(&mut encoder(&server, &json!({})), parts(), STOP);
    let mut ids = Vec::new();
    let lines = events
        .iter()
        .map(|event| redacted(event, &mut ids).to_string());
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
}

#[tokio::test]
async fn streamed_items_are_those_of_the_final_response_and_of_a_whole_one() {
    let server = Fixture::new();
    let events = stream(&mut encoder(&server, &json!({})), parts(), STOP);
    let done: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "response.output_item.done")
        .map(|event| &event["item"])
        .collect();
    let last = &events.last().unwrap()["response"];
    assert_eq!(json!(done), last["output"]);
    assert_eq!(last["status"], "completed");
    assert_eq!(last["usage"]["input_tokens_details"]["cached_tokens"], 60);
    let sealed = done[0]["encrypted_content"].as_str().unwrap();
    assert_eq!(
        server.engine.open_reasoning(sealed).as_deref(),
        Some("Let me see.")
    );

    let mut encoder = encoder(&server, &json!({}));
    let response = whole(&mut encoder, parts(), (STOP, totals()));
    assert_eq!(
        redacted(&response, &mut Vec::new()),
        redacted(last, &mut Vec::new())
    );
}

#[tokio::test]
async fn calls_come_back_as_what_was_offered() {
    let server = Fixture::new();
    let events = stream(&mut encoder(&server, &json!({})), parts(), STOP);
    let output = &events.last().unwrap()["response"]["output"];
    let pick = |index: usize, keys: &[&str]| -> Value {
        keys.iter().map(|key| output[index][key].clone()).collect()
    };
    assert_eq!(
        pick(2, &["type", "call_id", "name", "arguments", "namespace"]),
        json!(["function_call", "call_a1", "read", "{\"path\":\"x\"}", null])
    );
    assert_eq!(
        pick(3, &["type", "call_id", "name", "input"]),
        json!(["custom_tool_call", "call_b2", "apply_patch", "*** Begin\n"])
    );
    assert_eq!(
        pick(4, &["type", "name", "namespace", "arguments"]),
        json!(["function_call", "close", "agents", "{}"])
    );
}

#[tokio::test]
async fn a_call_of_one_of_two_tools_of_one_name_says_whose_it_is() {
    let server = Fixture::new();
    let close = json!({"type": "function", "name": "close"});
    let namespace = |name: &str| json!({"type": "namespace", "name": name, "tools": [close]});
    let change = json!({"tools": [namespace("files"), namespace("agents")]});
    let call = Part::Call {
        id: "call_1".into(),
        name: "agents__close".into(),
    };
    let events = stream(&mut encoder(&server, &change), vec![call], STOP);
    let item = &events.last().unwrap()["response"]["output"][0];
    let named = json!([item["type"], item["name"], item["namespace"]]);
    assert_eq!(named, json!(["function_call", "close", "agents"]));
}

#[tokio::test]
async fn a_limit_leaves_the_response_and_its_last_item_incomplete() {
    let server = Fixture::new();
    let events = stream(
        &mut encoder(&server, &json!({})),
        parts()[..4].to_vec(),
        FinishReason::Length,
    );
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.incomplete");
    let response = &last["response"];
    assert_eq!(
        response["incomplete_details"]["reason"],
        "max_output_tokens"
    );
    assert_eq!(response["output"][1]["status"], "incomplete");
    assert!(response["usage"].is_object());
}

#[tokio::test]
async fn an_answer_streamed_and_whole() {
    let server = Fixture::new();
    let mut body = ask("hi");
    let whole = server.post(PATH, &body).await;
    assert_eq!(whole.status, 200, "{}", whole.text);
    let whole = whole.json();
    assert_eq!(whole["output"][0]["content"][0]["text"], "Hello!");
    assert_eq!(
        json!([whole["status"], whole["object"]]),
        json!(["completed", "response"])
    );
    body["stream"] = json!(true);
    let reply = server.post(PATH, &body).await;
    assert_eq!(reply.headers["content-type"], "text/event-stream");
    let events = numbered(&reply.text);
    let types = types(&events);
    assert_eq!(
        types[..3],
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added"
        ]
    );
    assert_eq!(
        types[types.len() - 2..],
        ["response.output_item.done", "response.completed"]
    );
    let text: String = events
        .iter()
        .filter_map(|event| event["delta"].as_str())
        .collect();
    assert_eq!(text, "Hello!");
    let usage = &events.last().unwrap()["response"]["usage"];
    assert_eq!(usage["total_tokens"], whole["usage"]["total_tokens"]);
}

#[tokio::test]
async fn a_request_that_waits_repeats_that_it_is_in_progress_and_a_failure_is_told() {
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
    let events = numbered(&reply.text);
    assert_eq!(
        types(&events)[..3],
        [
            "response.created",
            "response.in_progress",
            "response.in_progress"
        ]
    );
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.failed");
    let response = &last["response"];
    assert_eq!(
        json!([response["status"], response["error"]["code"]]),
        json!(["failed", "server_error"])
    );
    assert!(response["usage"].is_object());
}

#[tokio::test]
async fn an_empty_input_is_answered() {
    let server = Fixture::new();
    for input in [json!(""), json!([])] {
        let body = json!({"model": "m", "input": input, "max_output_tokens": 1});
        assert_eq!(server.post(PATH, &body).await.status, 200);
    }
}

#[tokio::test]
async fn the_requests_fields_come_back() {
    let server = Fixture::new();
    let mut body = ask("hi");
    let given = json!({
        "instructions": "Be brief.", "metadata": {"a": "b"}, "store": false, "tool_choice": "none", "tools": tools(),
        "parallel_tool_calls": false, "prompt_cache_key": "k", "top_p": 0.5, "reasoning": {"effort": "low"},
    });
    body.as_object_mut()
        .unwrap()
        .extend(given.as_object().unwrap().clone());
    body["text"] = json!({"verbosity": "low"});
    let response = server.post(PATH, &body).await.json();
    for (key, value) in given.as_object().unwrap() {
        if !["reasoning", "tools"].contains(&key.as_str()) {
            assert_eq!(&response[key], value, "{key}");
        }
    }
    let read = json!({"type": "function", "name": "read", "parameters": {"type": "object"}, "description": null, "strict": null});
    assert_eq!(response["tools"][0], read);
    assert_eq!(response["tools"][3], json!({"type": "web_search"}));
    assert_eq!(
        response["reasoning"],
        json!({"effort": "low", "summary": null})
    );
    assert_eq!(
        response["text"],
        json!({"format": {"type": "text"}, "verbosity": "low"})
    );
    assert_eq!(response["max_output_tokens"], 20);
}

#[tokio::test]
async fn refusals_have_the_envelope() {
    let server = Fixture::new();
    for (change, status, code, words) in [
        (
            json!({"model": null}),
            400,
            Value::Null,
            "`model`: required",
        ),
        (
            json!({"background": true}),
            400,
            Value::Null,
            "`background`",
        ),
        (
            json!({"previous_response_id": "resp_x"}),
            400,
            json!("previous_response_not_found"),
            "'resp_x' not found",
        ),
        (
            json!({"input": "x".repeat(600)}),
            400,
            json!("context_length_exceeded"),
            "maximum context length is 512",
        ),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}]}),
            400,
            Value::Null,
            "`input[0].content[0].type`: image input is not supported",
        ),
        (
            json!({"tools": [{"type": "custom", "name": "t", "format": {
                "type": "grammar", "syntax": "regex", "definition": "(?=x)",
            }}]}),
            400,
            Value::Null,
            "look-around",
        ),
        (
            json!({"input": [{"type": "item_reference", "id": "msg_x"}]}),
            404,
            Value::Null,
            "Item with id 'msg_x'",
        ),
    ] {
        let mut body = ask("hi");
        body.as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        let error = server.post(PATH, &body).await.error(status);
        assert_eq!(error["code"], code, "{error}");
        assert!(
            error["message"].as_str().unwrap().contains(words),
            "{error}"
        );
    }
}

#[tokio::test]
async fn unknown_items_are_skipped_with_a_warning() {
    let server = Fixture::new();
    let input = json!([
        {"type": "hologram", "x": 1},
        {"type": "web_search_call", "id": "ws_1"},
        {"type": "item_reference", "id": "rs_gone"},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    ]);
    let reply = server.post(PATH, &ask(input)).await;
    assert_eq!(reply.json()["output"][0]["content"][0]["text"], "Hello!");
    let warning = reply.headers["warning"].to_str().unwrap();
    assert_eq!(
        warning,
        "199 andante \"items of unknown types were skipped: hologram web_search_call item_reference\""
    );
}

async fn delete(server: &Fixture, path: &str) -> Reply {
    server
        .call(Request::delete(path).body(Body::empty()).unwrap())
        .await
}

#[tokio::test]
async fn a_response_is_kept_and_goes_on() {
    let server = Fixture::new();
    let first = server.post(PATH, &ask("hi")).await.json();
    let id = first["id"].as_str().unwrap();
    let path = format!("{PATH}/{id}");
    assert_eq!(server.get(&path).await.json(), first);
    let mut next = ask("smile");
    next["previous_response_id"] = json!(id);
    let second = server.post(PATH, &next).await.json();
    assert_eq!(second["output"][0]["content"][0]["text"], "a🙂b");
    assert_eq!(second["previous_response_id"], id);
    let path = format!("{PATH}/{}/input_items", second["id"].as_str().unwrap());
    let list = server.get(&format!("{path}?order=asc")).await.json();
    let told: Vec<&Value> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["content"][0]["text"])
        .collect();
    assert_eq!(told, ["hi", "Hello!", "smile"]);
    assert_eq!(list["data"][1]["id"], first["output"][0]["id"]);
    let list = server.get(&format!("{path}?limit=1")).await.json();
    assert_eq!(
        json!([list["data"][0]["content"][0]["text"], list["has_more"]]),
        json!(["smile", true])
    );
    let after = list["last_id"].as_str().unwrap();
    let list = server
        .get(&format!("{path}?after={after}&limit=9"))
        .await
        .json();
    assert_eq!(
        json!([list["data"][0]["content"][0]["text"], list["has_more"]]),
        json!(["Hello!", false])
    );
    server.get(&format!("{path}?limit=0")).await.error(400);
    // A stored item can be named.
    let named = json!([{"type": "item_reference", "id": first["output"][0]["id"]}, {"role": "user", "content": "hi"}]);
    let third = server.post(PATH, &ask(named)).await;
    assert_eq!(third.status, 200, "{}", third.text);
}

#[tokio::test]
async fn a_response_is_forgotten_when_told_to_or_never_kept() {
    let server = Fixture::new();
    let first = server.post(PATH, &ask("hi")).await.json();
    let path = format!("{PATH}/{}", first["id"].as_str().unwrap());
    let refused = server
        .post(&format!("{path}/cancel"), &json!({}))
        .await
        .error(400);
    assert!(
        refused["message"].as_str().unwrap().contains("background"),
        "{refused}"
    );
    assert_eq!(delete(&server, &path).await.json()["deleted"], true);
    assert_eq!(
        server.get(&path).await.error(404)["type"],
        "not_found_error"
    );
    delete(&server, &path).await.error(404);
    let mut body = ask("hi");
    body["store"] = json!(false);
    let unkept = server.post(PATH, &body).await.json();
    server
        .get(&format!("{PATH}/{}", unkept["id"].as_str().unwrap()))
        .await
        .error(404);
}

#[tokio::test]
async fn others_do_not_find_it() {
    let server = Fixture::new();
    let with_key =
        |key: &str, request: axum::http::request::Builder| request.header("x-api-key", key);
    let post = with_key("ann", Request::post(PATH))
        .body(Body::from(ask("hi").to_string()))
        .unwrap();
    let response = server.call(post).await.json();
    let path = format!("{PATH}/{}", response["id"].as_str().unwrap());
    let get = |key: &str| {
        with_key(key, Request::get(&path))
            .body(Body::empty())
            .unwrap()
    };
    assert_eq!(server.call(get("ann")).await.status, 200);
    server.call(get("bob")).await.error(404);
    server.get(&path).await.error(404);
}

#[tokio::test]
async fn the_oldest_responses_make_room() {
    let store = ResponseStore::default();
    let stored = |number: usize, text: &str| store::Stored {
        response: json!({"id": format!("resp_{number}"), "output": [{"id": format!("msg_{number}"), "text": text}]}),
        input: Vec::new(),
        owner: Tenant::default(),
    };
    for number in 0..=crate::config::MAX_STORED_RESPONSES {
        store.insert(stored(number, ""));
    }
    assert!(store.get("resp_0", &Tenant::default()).is_none());
    assert!(store.get("resp_1", &Tenant::default()).is_some());
    let large = "x".repeat(crate::config::MAX_STORED_BYTES / 2);
    for number in 0..2 {
        store.insert(stored(10_000 + number, &large));
    }
    assert!(store.get("resp_1", &Tenant::default()).is_none());
    assert!(store.get("resp_10000", &Tenant::default()).is_none());
    assert!(
        store
            .items(&HashSet::from(["msg_10001"]), &Tenant::default())
            .contains_key("msg_10001")
    );
}

#[tokio::test]
async fn tokens_are_counted() {
    let server = Fixture::new();
    let count = async |input: &str| {
        let reply = server
            .post(
                &format!("{PATH}/input_tokens"),
                &json!({"model": "m", "input": input}),
            )
            .await;
        let reply = reply.json();
        assert_eq!(reply["object"], "response.input_tokens");
        reply["input_tokens"].as_u64().unwrap()
    };
    assert_eq!(count("12345678").await, count("123").await + 5);
}

#[tokio::test]
async fn a_conversation_becomes_a_sealed_summary() {
    let model = says_after(model(), SUMMARISE, "no thoughts\n", "Launch: Tuesday.");
    let server = Fixture::with(model, |engine, _| engine.context = 4096);
    let compact = format!("{PATH}/compact");
    let mut body = json!({"model": "m", "temperature": 0, "input": "We launch on Tuesday."});
    // What the client wants of answers is not asked of the summary.
    body["text"] = json!({"format": {"type": "json_object"}});
    body["stop"] = json!(":");
    let reply = server.post(&compact, &body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let compacted = reply.json();
    assert_eq!(compacted["object"], "response.compaction");
    let item = &compacted["output"][0];
    let summary = server
        .engine
        .open_reasoning(item["encrypted_content"].as_str().unwrap())
        .unwrap();
    assert_eq!(summary, "Launch: Tuesday.");
    // It goes on from there.
    let next = json!({"model": "m", "max_output_tokens": 2, "input": [item, {"role": "user", "content": "And then?"}]});
    assert_eq!(server.post(PATH, &next).await.status, 200);
    // Half a summary would lose the other half for good.
    body["max_output_tokens"] = json!(5);
    let error = server.post(&compact, &body).await.error(400);
    assert!(error["message"].as_str().unwrap().contains("was cut"));
    for wrong in [json!({"background": true}), json!({"model": null})] {
        let mut body = body.clone();
        body.as_object_mut()
            .unwrap()
            .extend(wrong.as_object().unwrap().clone());
        server.post(&compact, &body).await.error(400);
        if wrong["background"] == true {
            server
                .post(&format!("{PATH}/input_tokens"), &body)
                .await
                .error(400);
        }
    }
}

#[tokio::test]
async fn a_short_request_does_not_become_a_long_one() {
    let server = Fixture::new();
    let input = json!([{"role": "user", "id": "msg_long", "content": "abc".repeat(20)}]);
    assert_eq!(server.post(PATH, &ask(input)).await.status, 200);
    let reference = json!({"type": "item_reference", "id": "msg_long"});
    let once = server.post(PATH, &ask(json!([reference]))).await;
    assert_eq!(once.status, 200, "{}", once.text);
    let twice = server
        .post(PATH, &ask(json!([reference, reference])))
        .await
        .error(400);
    assert_eq!(twice["param"], "input[1].id");
}

#[tokio::test]
async fn a_response_belongs_to_its_tenant() {
    let server = Fixture::with(model(), |_, config| {
        config.api_keys = crate::ApiKey::parse_lines("ann:sk-1\nann:sk-2\nbob:sk-3").expect("keys");
        config.tenant_from = vec![crate::TenantSource::Header, crate::TenantSource::Key];
    });
    let request = |request: axum::http::request::Builder, key: &str, tenant: Option<&str>| {
        let request = request.header("x-api-key", key);
        match tenant {
            Some(tenant) => request.header("x-tenant", tenant),
            None => request,
        }
    };
    let create = async |key: &str, tenant: Option<&str>| {
        let body = Body::from(ask("hi").to_string());
        let request = request(Request::post(PATH), key, tenant).body(body);
        let response = server.call(request.unwrap()).await.json();
        format!("{PATH}/{}", response["id"].as_str().unwrap())
    };
    let status = async |path: &str, key: &str, tenant: Option<&str>| {
        let request = request(Request::get(path), key, tenant).body(Body::empty());
        server.call(request.unwrap()).await.status.as_u16()
    };
    // Both of her keys are hers.
    let of_ann = create("sk-1", None).await;
    assert_eq!(status(&of_ann, "sk-2", None).await, 200);
    assert_eq!(status(&of_ann, "sk-3", None).await, 404);
    assert_eq!(status(&of_ann, "sk-1", Some("team")).await, 404);
    // One key of many tenants shows none what is another's.
    let of_team = create("sk-3", Some("team")).await;
    assert_eq!(status(&of_team, "sk-3", Some("team")).await, 200);
    assert_eq!(status(&of_team, "sk-3", Some("other")).await, 404);
}

#[tokio::test]
async fn what_cannot_be_kept_to_is_refused() {
    let server = Fixture::new();
    for (change, param) in [
        (
            json!({"tool_choice": {"type": "web_search"}}),
            "tool_choice.type",
        ),
        (json!({"top_logprobs": 3}), "top_logprobs"),
        (
            json!({"include": ["message.output_text.logprobs"]}),
            "include[0]",
        ),
        (
            json!({"text": {"format": {"type": "json_object"}}, "guided_regex": "a"}),
            "text.format.schema",
        ),
    ] {
        let mut body = ask("hi");
        body.as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        let error = server.post(PATH, &body).await.error(400);
        assert_eq!(error["param"], param, "{error}");
    }
    for (tier, told) in [
        (json!({"service_tier": "flex"}), "flex"),
        (json!({"service_tier": "priority"}), "priority"),
        (json!({"service_tier": "auto"}), "default"),
        (json!({"priority": "low"}), "flex"),
    ] {
        let mut body = ask("hi");
        body.as_object_mut()
            .unwrap()
            .extend(tier.as_object().unwrap().clone());
        assert_eq!(server.post(PATH, &body).await.json()["service_tier"], told);
    }
}
