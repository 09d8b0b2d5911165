//! Streams as they run: silence, failure, departure, slowness.

use std::pin::Pin;
use std::sync::mpsc;
use std::time::Duration;

use andante_engine::Shutdown;
use axum::body::{BodyDataStream, Bytes};
use futures_core::Stream as _;
use serde_json::json;

use crate::fixture::{Fixture, conversation, user};

const CHAT: &str = "/v1/chat/completions";

/// The next frame of a streaming body.
async fn frame(body: &mut BodyDataStream) -> Option<Bytes> {
    std::future::poll_fn(|cx| Pin::new(&mut *body).poll_next(cx))
        .await
        .map(|frame| frame.expect("no errors"))
}

async fn rest(body: &mut BodyDataStream) -> String {
    let mut text = String::new();
    while let Some(frame) = frame(body).await {
        text.push_str(std::str::from_utf8(&frame).expect("whole characters"));
    }
    text
}

#[tokio::test]
async fn a_request_that_waits_has_its_head_and_comments() {
    let (go, gate) = mpsc::channel();
    let model = conversation().on_forward(move |_| gate.recv().unwrap_or(()));
    let server = Fixture::with(model, |_, config| {
        config.keep_alive = Duration::from_millis(5);
    });
    let response = server
        .open(
            CHAT,
            &json!({"messages": user("hi"), "stream": true, "temperature": 0}),
        )
        .await;
    assert_eq!(response.status(), 200);
    let mut body = response.into_body().into_data_stream();
    let first = frame(&mut body).await.unwrap();
    assert!(first.starts_with(b"data: {"), "{first:?}");
    for _ in 0..3 {
        assert_eq!(frame(&mut body).await.unwrap(), ": keep-alive\n\n");
    }
    drop(go);
    let rest = rest(&mut body).await;
    assert!(
        rest.contains("\"finish_reason\":\"stop\"") && rest.ends_with("data: [DONE]\n\n"),
        "{rest}"
    );
}

/// The model takes no step before the last line: whatever comes, comes without one.
#[tokio::test]
async fn every_stream_begins_before_its_prompt_is_computed() {
    let (go, gate) = mpsc::channel::<()>();
    let model = conversation().on_forward(move |_| gate.recv().unwrap_or(()));
    let server = Fixture::with(model, |_, config| {
        config.keep_alive = Duration::from_secs(3600);
    });
    let messages = user("hi");
    let chat = json!({"model": "m", "stream": true, "max_tokens": 2, "messages": messages});
    let prompt = json!({"model": "m", "stream": true, "max_tokens": 2, "prompt": "hi"});
    let mut forced = chat.clone();
    forced["tools"] = json!([{"type": "function", "function": {"name": "look"}}]);
    forced["tool_choice"] = json!("required");
    let mut bodies = Vec::new();
    for (path, body, begins) in [
        (CHAT, &chat, r#""delta":{"role":"assistant","content":""}"#),
        (
            CHAT,
            &forced,
            r#""delta":{"role":"assistant","content":null}"#,
        ),
        ("/v1/completions", &prompt, ": keep-alive\n\n"),
        ("/v1/messages", &chat, ": keep-alive\n\n"),
        (
            "/v1/responses",
            &json!({"model": "m", "stream": true, "input": "hi"}),
            "event: response.created\n",
        ),
        (
            "/api/chat",
            &chat,
            r#""message":{"role":"assistant","content":""}"#,
        ),
        ("/api/generate", &prompt, r#""response":"""#),
    ] {
        let response = server.open(path, body).await;
        assert_eq!(response.status(), 200, "{path}");
        let mut body = response.into_body().into_data_stream();
        let first = frame(&mut body).await.unwrap();
        let first = std::str::from_utf8(&first).unwrap();
        assert!(first.contains(begins), "{path}: {first}");
        bodies.push(body);
    }
    drop(go);
}

#[tokio::test]
async fn a_reader_that_goes_frees_its_work() {
    let server = Fixture::new();
    let endless = json!({"messages": user("go on"), "stream": true, "ignore_eos": true});
    let mut body = server
        .open(CHAT, &endless)
        .await
        .into_body()
        .into_data_stream();
    frame(&mut body).await.unwrap();
    drop(body);
    server.idle_after(1).await;
    assert_eq!(server.engine.status().cancelled, 1);
}

#[tokio::test]
async fn a_caller_of_a_whole_answer_that_goes_frees_its_work() {
    let (go, gate) = mpsc::channel();
    let model = conversation().on_forward(move |_| gate.recv().unwrap_or(()));
    let server = Fixture::with(model, |_, _| {});
    let endless = json!({"messages": user("go on"), "ignore_eos": true, "n": 2});
    let call = server.chat(&endless);
    // Long enough to be running; if it were not, there would be nothing to cancel and the count below would differ.
    tokio::select! {
        _ = call => panic!("an answer without a forward pass"),
        () = async {
            while server.engine.status().scheduler.resident == 0 {
                go.send(()).unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        } => {}
    }
    drop(go);
    server.idle_after(2).await;
    assert_eq!(server.engine.status().cancelled, 2);
}

#[tokio::test]
async fn a_slow_reader_is_parked_and_holds_nobody_up() {
    let server = Fixture::with(conversation(), |engine, _| engine.ring_events = 4);
    let long =
        json!({"messages": user("go on"), "stream": true, "ignore_eos": true, "max_tokens": 200});
    let mut slow = server
        .open(CHAT, &long)
        .await
        .into_body()
        .into_data_stream();
    while server.engine.status().scheduler.parked == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let quick = server
        .chat(&json!({"messages": user("hi"), "temperature": 0}))
        .await;
    assert_eq!(quick.json()["choices"][0]["message"]["content"], "Hello!");
    let text = rest(&mut slow).await;
    assert_eq!(
        text.matches("\"content\":\"").count(),
        201,
        "the role and every token"
    );
    assert!(text.ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn a_failure_ends_the_stream_with_an_error_event() {
    let server = Fixture::with(conversation().poison(u32::from(b'#')), |_, _| {});
    let mut body = json!({"messages": user("#"), "stream": true, "n": 2});
    let reply = server.chat(&body).await;
    let events = reply.events();
    assert_eq!(reply.status, 200);
    assert_eq!(events[events.len() - 2]["error"]["type"], "server_error");
    assert_eq!(events[events.len() - 1], "[DONE]");
    body["stream"] = json!(false);
    assert_eq!(server.chat(&body).await.error(500)["type"], "server_error");
    server.idle_after(4).await;
    assert_eq!(
        server
            .chat(&json!({"messages": user("hi"), "max_tokens": 1}))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_shutdown_ends_the_stream_with_an_error_event() {
    let server = Fixture::new();
    let endless = json!({"messages": user("go on"), "stream": true, "ignore_eos": true});
    let mut body = server
        .open(CHAT, &endless)
        .await
        .into_body()
        .into_data_stream();
    frame(&mut body).await.unwrap();
    server.engine.shutdown(Shutdown::Now);
    let rest = rest(&mut body).await;
    assert!(rest.contains("\"type\":\"service_unavailable\""), "{rest}");
    assert!(rest.ends_with("data: [DONE]\n\n"));
}
