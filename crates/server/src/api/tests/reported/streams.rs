//! Streams that wait, fail, or lose their reader.

use std::pin::Pin;
use std::sync::mpsc;
use std::time::Duration;

use axum::body::BodyDataStream;
use futures_core::Stream as _;
use serde_json::{Value, json};

use super::{model, with};
use crate::ServerConfig;
use crate::fixture::Fixture;
use crate::fixture::dialogue::Api;
use crate::fixture::written::named;

/// Every route that streams, and a request that says `text`; the answer may be as long as the context.
fn streams(text: &str) -> Vec<(&'static str, Value)> {
    let mut streams: Vec<_> = Api::ALL
        .iter()
        .map(|api| (api.path(), api.ask(text, 4000)))
        .collect();
    let prompt =
        json!({"model": "m", "prompt": text, "temperature": 0, "options": {"temperature": 0}});
    streams.push(("/v1/completions", prompt.clone()));
    streams.push(("/api/generate", prompt));
    let stream = json!({"stream": true});
    streams
        .into_iter()
        .map(|(path, body)| (path, with(body, &stream)))
        .collect()
}

/// Answers without a reader stand still, long before their end.
fn parking() -> Fixture {
    Fixture::with(model(), |engine, _| {
        engine.context = 4096;
        engine.ring_events = 4;
    })
}

async fn frame(body: &mut BodyDataStream) -> String {
    let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_next(cx)).await;
    let frame = frame.expect("a frame").expect("no errors");
    String::from_utf8(frame.to_vec()).expect("whole characters")
}

#[tokio::test]
async fn signs_of_life_have_each_apis_own_form() {
    let usual = ServerConfig::new("m").keep_alive.as_secs();
    assert!((1..=15).contains(&usual), "clients wait for 300 s");
    let (go, gate) = mpsc::channel::<()>();
    let model = model().on_forward(move |_| gate.recv().unwrap_or(()));
    let server = Fixture::with(model, |engine, config| {
        engine.sessions = 8;
        config.keep_alive = Duration::from_millis(5);
    });
    for (path, body) in streams("hi") {
        let response = server.open(path, &body).await;
        let mut body = response.into_body().into_data_stream();
        frame(&mut body).await;
        let sign = frame(&mut body).await;
        match path {
            // Codex counts events alone, and comments are none.
            "/v1/responses" => {
                let event = &named(&sign)[0];
                assert_eq!(event["type"], "response.in_progress");
                assert_eq!(event["sequence_number"], 2);
            }
            "/v1/messages" => assert_eq!(sign, "event: ping\ndata: {\"type\":\"ping\"}\n\n"),
            // A chunk without choices would break those who read the first of them.
            "/v1/chat/completions" | "/v1/completions" => assert_eq!(sign, ": keep-alive\n\n"),
            // Every line is JSON to its readers.
            _ => {
                let line: Value = serde_json::from_str(&sign).expect("JSON");
                assert_eq!(line["done"], false);
                assert_eq!(
                    line["message"]["content"]
                        .as_str()
                        .or(line["response"].as_str()),
                    Some("")
                );
            }
        }
    }
    drop(go);
}

/// The last that a failed stream says.
fn assert_failed(path: &str, text: &str) {
    match path {
        "/v1/responses" => {
            let events = named(text);
            let last = events.last().expect("events");
            assert_eq!(last["type"], "response.failed", "{text}");
            let response = &last["response"];
            assert!(response["error"]["code"].is_string() && response["usage"].is_object());
        }
        "/v1/messages" => {
            let events = named(text);
            let last = events.last().expect("events");
            assert_eq!(last["type"], "error", "{text}");
            assert!(last["error"]["type"].is_string());
        }
        "/v1/chat/completions" | "/v1/completions" => {
            let frames: Vec<&str> = text.split_terminator("\n\n").collect();
            let [.., error, done] = frames[..] else {
                panic!("{text}")
            };
            assert!(error.starts_with("data: {\"error\":{"), "{text}");
            assert_eq!(done, "data: [DONE]", "{text}");
        }
        _ => {
            let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
            assert!(last["error"].is_string(), "{text}");
        }
    }
}

#[tokio::test]
async fn a_failure_is_the_last_event_of_every_stream() {
    let server = Fixture::with(model().poison(u32::from(b'#')), |_, _| {});
    for (path, body) in streams("#") {
        let reply = server.post(path, &body).await;
        assert_eq!(reply.status, 200, "{path}");
        assert_failed(path, &reply.text);
        let whole = with(body, &json!({"stream": false}));
        assert_eq!(server.post(path, &whole).await.status, 500, "{path}");
    }
}

#[tokio::test]
async fn an_end_of_the_server_is_the_last_event_of_every_stream() {
    for (path, body) in streams("go on") {
        let server = parking();
        let response = server.open(path, &body).await;
        let mut stream = response.into_body().into_data_stream();
        let mut text = frame(&mut stream).await;
        text += &frame(&mut stream).await;
        server.engine.shutdown(andante_engine::Shutdown::Now);
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)).await
        {
            text += std::str::from_utf8(&frame.expect("no errors")).expect("whole characters");
        }
        assert_failed(path, &text);
    }
}

#[tokio::test]
async fn readers_that_go_free_their_work_in_every_api() {
    let server = parking();
    for (gone, (path, body)) in (1..).zip(streams("go on")) {
        let mut body = server
            .open(path, &body)
            .await
            .into_body()
            .into_data_stream();
        frame(&mut body).await;
        drop(body);
        server.idle_after(gone).await;
        assert_eq!(server.engine.status().cancelled, gone, "{path}");
    }
}

#[tokio::test]
async fn one_that_leaves_the_queue_disturbs_nobody() {
    let server = Fixture::with(model(), |engine, _| {
        engine.sessions = 1;
        engine.ring_events = 4;
    });
    let alone = Api::Chat
        .say(&server, &Api::Chat.ask("hi", 200), true)
        .await;
    let body = with(Api::Chat.ask("hi", 200), &json!({"stream": true}));
    let running = server.open(Api::Chat.path(), &body).await;
    for (path, body) in streams("go on") {
        drop(server.open(path, &body).await);
    }
    let mut running = running.into_body().into_data_stream();
    let mut text = String::new();
    while !text.ends_with("data: [DONE]\n\n") {
        text += &frame(&mut running).await;
    }
    let said: String = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: ")?.parse::<Value>().ok())
        .filter_map(|chunk| Some(chunk["choices"][0]["delta"]["content"].as_str()?.to_owned()))
        .collect();
    assert_eq!(said, alone.text);
    server.idle_after(8).await;
    let status = server.engine.status();
    assert_eq!((status.finished, status.cancelled), (2, 6));
}
