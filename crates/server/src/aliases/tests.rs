//! The names of a DeepSeek V4 over every API: listed, found, and each with its own habit of thinking.

use serde_json::{Value, json};

use super::of;
use crate::fixture::{Fixture, conversation, says_after, user};

/// A model that answers "Hello!" to "hi", and "Short." where its template was told not to think.
fn server(architecture: &str) -> Fixture {
    let model = says_after(conversation(), "hi", "no thoughts\n", "Short.");
    Fixture::with(model.architecture(architecture), |_, _| {})
}

fn ids(list: &Value, key: &str, id: &str) -> Vec<String> {
    let models = list[key].as_array().expect("a list");
    let name = |model: &Value| model[id].as_str().expect("a name").to_owned();
    models.iter().map(name).collect()
}

#[tokio::test]
async fn a_deepseek_v4_is_listed_under_the_names_that_its_clients_use() {
    let expected = [
        "fake-1",
        "deepseek-v4-flash",
        "deepseek-chat",
        "deepseek-reasoner",
    ];
    let server = server("deepseek4");
    let list = server.get("/v1/models").await.json();
    assert_eq!(ids(&list, "data", "id"), expected);
    assert_eq!(list["first_id"], "fake-1");
    assert_eq!(list["last_id"], "deepseek-reasoner");
    assert_eq!(list["data"][1]["top_provider"]["context_length"], 512);
    let tags = server.get("/api/tags").await.json();
    assert_eq!(ids(&tags, "models", "name"), expected);
    for name in expected {
        let model = server.get(&format!("/v1/models/{name}")).await.json();
        assert_eq!(model["id"], name);
        let pull = json!({"model": name, "stream": false});
        assert_eq!(server.post("/api/pull", &pull).await.status, 200, "{name}");
    }
    server.get("/v1/models/deepseek-v5").await.error(404);
}

#[tokio::test]
async fn others_go_by_their_own_name_alone() {
    let server = server("llama");
    let list = server.get("/v1/models").await.json();
    assert_eq!(ids(&list, "data", "id"), ["fake-1"]);
    server.get("/v1/models/deepseek-chat").await.error(404);
    let body = json!({"model": "deepseek-chat", "messages": user("hi"), "temperature": 0});
    assert_eq!(said(&server.chat(&body).await.json()), "Hello!");
    assert!(of("llama").is_empty());
}

/// The text of an answer in any API's form.
fn said(answer: &Value) -> &str {
    [
        "/choices/0/message/content",
        "/output/0/content/0/text",
        "/content/0/text",
        "/message/content",
    ]
    .iter()
    .find_map(|place| answer.pointer(place))
    .and_then(Value::as_str)
    .unwrap_or_else(|| panic!("no text in {answer}"))
}

/// The requests of all APIs that say hi.
fn greetings(model: &str) -> [(&'static str, Value); 4] {
    let messages = user("hi");
    [
        (
            "/v1/chat/completions",
            json!({"model": model, "messages": messages, "temperature": 0}),
        ),
        (
            "/v1/responses",
            json!({"model": model, "input": "hi", "temperature": 0}),
        ),
        (
            "/v1/messages",
            json!({"model": model, "messages": messages, "temperature": 0, "max_tokens": 50}),
        ),
        (
            "/api/chat",
            json!({"model": model, "messages": messages, "options": {"temperature": 0}, "stream": false}),
        ),
    ]
}

#[tokio::test]
async fn a_name_decides_on_thinking_over_every_api() {
    let server = server("deepseek4");
    for (name, expected) in [
        ("deepseek-v4-flash", "Hello!"),
        ("deepseek-chat", "Short."),
        ("deepseek-reasoner", "Hello!"),
    ] {
        for (path, body) in greetings(name) {
            let answer = server.post(path, &body).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            let answer = answer.json();
            assert_eq!(said(&answer), expected, "{path}, {name}");
            assert_eq!(answer["model"], name, "{path}");
        }
    }
}

#[tokio::test]
async fn a_request_that_says_so_itself_is_believed() {
    let server = server("deepseek4");
    let (on, off) = ("Hello!", "Short.");
    for (name, key, value, expected) in [
        ("deepseek-chat", "thinking", json!({"type": "enabled"}), on),
        ("deepseek-chat", "enable_thinking", json!(true), on),
        ("deepseek-chat", "think", json!(true), on),
        (
            "deepseek-chat",
            "chat_template_kwargs",
            json!({"thinking": true}),
            on,
        ),
        (
            "deepseek-reasoner",
            "thinking",
            json!({"type": "disabled"}),
            off,
        ),
        ("deepseek-reasoner", "think", json!(false), off),
        ("deepseek-reasoner", "reasoning_effort", json!("none"), off),
        // How hard to think is no wish to think.
        ("deepseek-chat", "reasoning_effort", json!("high"), off),
        ("deepseek-chat", "think", json!("high"), off),
    ] {
        let [(path, mut body), ..] = greetings(name);
        body[key] = value;
        let answer = server.post(path, &body).await.json();
        assert_eq!(said(&answer), expected, "{name} with {key}");
    }
    let [_, _, (path, mut body), _] = greetings("deepseek-reasoner");
    body["thinking"] = json!({"type": "disabled"});
    assert_eq!(said(&server.post(path, &body).await.json()), off);
}
