//! Ollama's API: lines, durations, and what is asked about the model.

use andante_engine::{FinishReason, Timings, Usage};
use andante_text::Part;
use serde_json::json;

use super::*;
use crate::answer::Totals;
use crate::fixture::written::{streamed, whole};
use crate::fixture::{Fixture, Reply, conversation};

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn ask(text: &str) -> Value {
    json!({"model": "m", "options": {"temperature": 0, "num_predict": 20}, "messages": [{"role": "user", "content": text}]})
}

#[tokio::test]
async fn a_chat_streamed_and_whole() {
    let server = Fixture::new();
    let reply = server.post("/api/chat", &ask("hi")).await;
    assert_eq!(reply.headers["content-type"], "application/x-ndjson");
    let lines = lines(&reply.text);
    let text: String = lines
        .iter()
        .map(|line| line["message"]["content"].as_str().unwrap())
        .collect();
    assert_eq!(text, "Hello!");
    let (last, others) = lines.split_last().unwrap();
    assert!(others.iter().all(|line| line["done"] == false));
    assert_eq!(
        json!([last["done"], last["done_reason"], last["eval_count"]]),
        json!([true, "stop", 7])
    );
    assert!(last["total_duration"].as_u64().unwrap() >= last["eval_duration"].as_u64().unwrap());
    let mut body = ask("hi");
    body["stream"] = json!(false);
    let whole = server.post("/api/chat", &body).await.json();
    assert_eq!(
        whole["message"],
        json!({"role": "assistant", "content": "Hello!"})
    );
    assert_eq!(whole["prompt_eval_count"], last["prompt_eval_count"]);
    body["options"]["num_predict"] = json!(2);
    let cut = server.post("/api/chat", &body).await.json();
    assert_eq!(
        json!([cut["message"]["content"], cut["done_reason"]]),
        json!(["He", "length"])
    );
}

#[tokio::test]
async fn a_text_goes_through_the_template_unless_it_is_raw() {
    let server = Fixture::new();
    let generate = async |change: Value| -> Reply {
        let mut body = json!({"model": "m", "stream": false, "options": {"temperature": 0}});
        body.as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        server.post("/api/generate", &body).await
    };
    assert_eq!(
        generate(json!({"prompt": "hi"})).await.json()["response"],
        "Hello!"
    );
    assert_eq!(
        generate(json!({"prompt": "one two", "raw": true}))
            .await
            .json()["response"],
        " three"
    );
    let load = generate(json!({})).await.json();
    assert_eq!(
        json!([load["done"], load["done_reason"], load["response"]]),
        json!([true, "load", ""])
    );
    let refused = generate(json!({"prompt": "x", "images": ["AAAA"]})).await;
    assert_eq!(refused.status, 400);
    assert_eq!(
        refused.json()["error"],
        "`images`: images are not supported; this model reads text"
    );
}

#[tokio::test]
async fn thinking_and_calls_have_fields_of_their_own() {
    let parts = vec![
        Part::Reasoning("hm".into()),
        Part::Text("Now.".into()),
        Part::Call {
            id: "call_1".into(),
            name: "f".into(),
        },
        Part::Arguments("{\"a\":".into()),
        Part::Arguments("1}".into()),
    ];
    let mut encoder = OllamaEncoder::new(Kind::Chat, "m", false);
    let stop = || FinishReason::Stop { sequence: None };
    let totals = Totals {
        usage: Usage::default(),
        timings: Timings {
            queued_us: 1,
            prefill_us: 2,
            decode_us: 3,
            ..Timings::default()
        },
    };
    let text = streamed(
        &mut encoder,
        Usage::default(),
        parts.clone(),
        (stop(), totals),
    );
    let lines = lines(&text);
    let call =
        json!([{"id": "call_1", "function": {"index": 0, "name": "f", "arguments": {"a": 1}}}]);
    assert_eq!(lines.len(), 5, "{text}");
    assert_eq!(
        lines[0]["message"],
        json!({"role": "assistant", "content": ""})
    );
    assert_eq!(lines[1]["message"]["thinking"], "hm");
    assert_eq!(lines[2]["message"]["content"], "Now.");
    assert_eq!(lines[3]["message"]["tool_calls"], call);
    assert_eq!(
        json!([lines[4]["total_duration"], lines[4]["prompt_eval_duration"]]),
        json!([6000, 2000])
    );

    let mut encoder = OllamaEncoder::new(Kind::Chat, "m", false);
    let whole = whole(&mut encoder, parts, (stop(), totals));
    let message =
        json!({"role": "assistant", "content": "Now.", "thinking": "hm", "tool_calls": call});
    assert_eq!(whole["message"], message);
}

#[tokio::test]
async fn failures_are_a_line() {
    let server = Fixture::with(conversation().poison(u32::from(b'#')), |_, _| {});
    let reply = server.post("/api/chat", &ask("#")).await;
    let last = lines(&reply.text).pop().unwrap();
    assert!(last["error"].is_string(), "{last}");
    let refused = server.post("/api/chat", &ask(&"x".repeat(600))).await;
    assert_eq!(refused.status, 400);
    assert!(
        refused.json()["error"]
            .as_str()
            .unwrap()
            .contains("maximum context length")
    );
}

#[test]
fn a_form_of_the_answer_can_be_asked_for() {
    let schema = json!({"type": "object"});
    for (format, expected) in [
        (json!(""), None),
        (json!("json"), Some(Constraint::JsonObject)),
        (
            schema.clone(),
            Some(Constraint::JsonSchema {
                schema,
                strict: false,
            }),
        ),
    ] {
        let body = json!({"format": format, "options": {"top_k": 3}});
        let sampling = sampling(&Field::body(&body).unwrap()).unwrap();
        assert_eq!(sampling.constraint.map(|asked| asked.constraint), expected);
        assert_eq!(sampling.top_k, 3);
    }
    sampling(&Field::body(&json!({"format": "xml"})).unwrap()).unwrap_err();
}

#[test]
fn history_is_read() {
    let message = json!({
        "role": "assistant", "content": "", "thinking": "hm",
        "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}],
    });
    let message = read_message(&Field::body(&message).unwrap()).unwrap();
    assert_eq!(
        (message.content, message.reasoning.as_deref()),
        (None, Some("hm"))
    );
    assert_eq!(message.tool_calls[0].arguments, "{\"a\":1}");
    let result = json!({"role": "tool", "tool_name": "f", "content": "one"});
    let result = read_message(&Field::body(&result).unwrap()).unwrap();
    assert_eq!(
        (result.name.as_deref(), result.content.as_deref()),
        (Some("f"), Some("one"))
    );
}

#[tokio::test]
async fn the_model_is_listed_shown_and_there() {
    let server = Fixture::new();
    let tags = server.get("/api/tags").await.json();
    assert_eq!(tags["models"][0]["name"], "fake-1");
    assert_eq!(
        server.get("/api/ps").await.json()["models"][0]["context_length"],
        512
    );
    assert_eq!(server.get("/api/version").await.json()["version"], "0.13.4");
    let show = server
        .post("/api/show", &json!({"model": "fake-1"}))
        .await
        .json();
    let architecture = show["model_info"]["general.architecture"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        show["model_info"][format!("{architecture}.context_length")],
        512
    );
    assert_eq!(
        show["capabilities"],
        json!(["completion", "tools", "thinking"])
    );
    let pull = server
        .post(
            "/api/pull",
            &json!({"model": "fake-1:latest", "stream": true}),
        )
        .await;
    assert_eq!(lines(&pull.text), [json!({"status": "success"})]);
    assert_eq!(
        server
            .post("/api/pull", &json!({"model": "other"}))
            .await
            .status,
        404
    );
    assert_eq!(model::parameter_size(134_515_008), "134.5M");
    assert_eq!(model::parameter_size(7_240_000_000), "7.2B");
}
