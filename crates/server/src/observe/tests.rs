//! What is told of requests that end well, badly, or not at all.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::{ErrorKind, Observed, Observer};
use crate::fixture::{Fixture, conversation, user};

/// A server, and what it has told.
fn observed() -> (Fixture, Arc<Mutex<Vec<Observed>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    // Slow enough to be seen at work.
    let model = conversation().on_forward(|_| std::thread::sleep(Duration::from_millis(1)));
    let server = Fixture::with(model, |engine, server| {
        engine.sessions = 1;
        engine.max_queue = 1;
        server.observer = Some(Observer::new(move |observed| {
            telling.lock().expect("no panic").push(observed);
        }));
    });
    (server, told)
}

fn chat(body: &Value) -> Request<Body> {
    Request::post("/v1/chat/completions")
        .header(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )
        .header("tracestate", "vendor=value")
        .header("x-request-id", "mine")
        .body(Body::from(body.to_string()))
        .expect("a request")
}

#[tokio::test]
async fn a_whole_and_a_streamed_answer_are_told_with_tokens_and_times() {
    let (server, told) = observed();
    for stream in [false, true] {
        let body = json!({
            "model": "asked-for", "messages": user("hi"), "max_tokens": 100, "temperature": 0, "stream": stream,
        });
        server.call(chat(&body)).await;
        let observed = told.lock().expect("no panic").pop().expect("it was told");
        assert!(told.lock().expect("no panic").is_empty(), "once");
        assert_eq!(observed.error, None);
        assert_eq!(observed.operation, "chat");
        assert_eq!(observed.model.as_deref(), Some("asked-for"));
        assert_eq!(observed.request_id, "mine");
        assert!(
            observed
                .traceparent
                .expect("one was sent")
                .starts_with("00-0af7")
        );
        assert_eq!(observed.tracestate.as_deref(), Some("vendor=value"));
        let parameters = observed.parameters;
        assert_eq!(
            (
                parameters.max_tokens,
                parameters.temperature,
                parameters.stream
            ),
            (Some(100), Some(0.0), stream)
        );
        let submitted = observed.submitted.expect("the engine had it");
        assert!(observed.began <= submitted && submitted <= observed.ended);
        let [choice] = &observed.choices[..] else {
            panic!("one answer");
        };
        // Hello! and the end.
        assert_eq!(choice.usage.completion_tokens, 7);
        assert!(choice.usage.prompt_tokens > 20);
        let timings = choice.timings;
        assert!(timings.load_us + timings.wait_us <= timings.prefill_us);
    }
}

#[tokio::test]
async fn several_answers_are_told_at_once() {
    let (server, told) = observed();
    let body = json!({"prompt": "one two", "n": 2, "temperature": 0});
    server.post("/v1/completions", &body).await;
    let observed = told.lock().expect("no panic").pop().expect("it was told");
    assert_eq!(observed.operation, "text_completion");
    assert_eq!(observed.choices.len(), 2);
}

#[tokio::test]
async fn refusals_are_told_and_questions_to_others_than_the_model_are_not() {
    let (server, told) = observed();
    server.get("/health").await;
    server.get("/v1/models").await;
    server.get("/nowhere").await;
    assert!(told.lock().expect("no panic").is_empty());
    server.chat(&json!({"messages": 1})).await.error(400);
    let observed = told.lock().expect("no panic").pop().expect("it was told");
    let error = observed.error.expect("it was refused");
    assert_eq!(error.kind, ErrorKind::Refused(400));
    assert!(error.message.contains("messages"), "{}", error.message);
    assert_eq!((observed.submitted, observed.choices.len()), (None, 0));
}

#[tokio::test]
async fn a_client_that_leaves_is_told_as_such() {
    let (server, told) = observed();
    let endless = json!({"messages": user("go on"), "stream": true, "ignore_eos": true});
    let running = server.open("/v1/chat/completions", &endless).await;
    assert!(told.lock().expect("no panic").is_empty());
    drop(running);
    let observed = told.lock().expect("no panic").pop().expect("it was told");
    let error = observed.error.expect("there is no answer");
    assert_eq!(error.kind, ErrorKind::Cancelled);
    assert!(observed.submitted.is_some());
}

#[tokio::test]
async fn an_answer_that_fails_is_told_with_the_reason() {
    let (server, told) = observed();
    let endless = json!({"messages": user("go on"), "ignore_eos": true});
    let ask = server.chat(&endless);
    let end = async {
        while server.engine.status().scheduler.active == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server.engine.shutdown(andante_engine::Shutdown::Now);
    };
    tokio::join!(ask, end);
    let observed = told.lock().expect("no panic").pop().expect("it was told");
    let error = observed.error.expect("it has failed");
    assert_eq!(error.kind, ErrorKind::Failed);
    assert_eq!(error.message, "the server is shutting down");
}
