//! What all routes have in common: refusals in the envelope, limits, discovery, and what mutated requests do.

mod captures;
mod dialects;
mod isolation;
mod mutations;
mod reported;

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::Request;
use serde_json::{Value, json};

use crate::fixture::{Fixture, conversation, post, user};

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn models_are_listed_with_the_hints_that_clients_look_for() {
    let server = Fixture::new();
    let list = server.get("/v1/models").await.json();
    let model = &list["data"][0];
    assert_eq!(
        (&list["object"], &model["id"], &model["object"]),
        (&json!("list"), &json!("fake-1"), &json!("model"))
    );
    for (hint, value) in [
        ("/meta/n_ctx", json!(512)),
        ("/meta/n_ctx_train", json!(4096)),
        ("/max_model_len", json!(512)),
        ("/context_length", json!(512)),
        ("/status/value", json!("loaded")),
        ("/architecture/input_modalities", json!(["text"])),
    ] {
        assert_eq!(model.pointer(hint), Some(&value), "{hint}");
    }
    assert_eq!(server.get("/models/fake-1").await.json(), *model);
    // An id that is no text is nobody's, in the API's own form.
    server.get("/v1/models/%ff").await.error(404);
    server.get("/v1/responses/%ff").await.error(404);
    server.get("/v1/responses/%ff/input_items").await.error(404);
    let error = server.get("/v1/models/some/other").await.error(404);
    assert_eq!(
        (&error["code"], &error["type"]),
        (&json!("model_not_found"), &json!("not_found_error"))
    );
}

#[tokio::test]
async fn health_follows_the_engine() {
    let server = Fixture::new();
    for path in [
        "/health",
        "/health/ready",
        "/health/live",
        "/v1/health/live",
    ] {
        let expected = json!({"status": "ok", "live": true, "ready": true});
        assert_eq!(server.get(path).await.json(), expected, "{path}");
    }
    assert!(server.get("/version").await.json()["version"].is_string());
    server.engine.shutdown(andante_engine::Shutdown::Now);
    let reply = server.get("/v1/health").await;
    reply.error(503);
    let reply = server
        .chat(&json!({"messages": user("hi"), "stream": true}))
        .await;
    reply.error(503);
    assert!(reply.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn unknown_routes_and_methods_have_the_envelope() {
    let server = Fixture::new();
    assert_eq!(
        server.get("/v1/nothing").await.error(404)["type"],
        "not_found_error"
    );
    let reply = server.get(CHAT).await;
    reply.error(405);
    assert_eq!(reply.headers["allow"], "POST");
    let delete = Request::delete("/v1/models").body(Body::empty()).unwrap();
    server.call(delete).await.error(405);
}

#[tokio::test]
async fn a_request_keeps_the_id_that_it_came_with() {
    let server = Fixture::new();
    let with_id = |id: &str| {
        let request = Request::get("/v1/nothing").header("x-request-id", id);
        request.body(Body::empty()).unwrap()
    };
    let reply = server.call(with_id("trace-7")).await;
    assert_eq!(reply.headers["x-request-id"], "trace-7");
    for unfit in ["", "two words", &"x".repeat(200)] {
        let reply = server.call(with_id(unfit)).await;
        let id = reply.headers["x-request-id"].to_str().unwrap();
        assert!(id.starts_with("req_"), "{id}");
    }
    let first = server.get("/health").await.headers["x-request-id"].clone();
    assert_ne!(first, server.get("/health").await.headers["x-request-id"]);
}

#[tokio::test]
async fn the_paths_answer_without_v1_and_whatever_the_content_type() {
    let server = Fixture::new();
    let body = json!({"messages": user("hi"), "max_tokens": 1}).to_string();
    for path in [CHAT, "/chat/completions"] {
        let request = Request::post(path)
            .header("content-type", "text/plain")
            .body(Body::from(body.clone()))
            .unwrap();
        assert_eq!(server.call(request).await.status, 200);
    }
    let reply = server
        .post("/completions", &json!({"prompt": "x", "max_tokens": 1}))
        .await;
    assert_eq!(reply.status, 200);
    let zipped = Request::post(CHAT)
        .header("content-encoding", "gzip")
        .body(Body::from(body))
        .unwrap();
    server.call(zipped).await.error(415);
}

#[tokio::test]
async fn broken_json_is_refused_with_its_place() {
    let server = Fixture::new();
    let error = server
        .call(post(CHAT, "{\n  \"messages\": [}"))
        .await
        .error(400);
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("line 2 column 16"),
        "{error}"
    );
    let nested = format!("{{\"messages\": {}", "[".repeat(1_000_000));
    let error = server.call(post(CHAT, nested)).await.error(400);
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("recursion limit"),
        "{error}"
    );
    for body in [
        "",
        "[]",
        "\"x\"",
        "nul",
        "\u{feff}{}",
        "{\"messages\": \"\\ud800\"}",
        "{\"seed\": 1e999}",
    ] {
        server.call(post(CHAT, body)).await.error(400);
    }
    server
        .call(post(CHAT, vec![0xff, 0xfe, b'{', b'}']))
        .await
        .error(400);
}

#[tokio::test]
async fn the_last_of_equal_keys_counts() {
    let server = Fixture::new();
    let body =
        r#"{"messages": 5, "temperature": 0, "messages": [{"role": "user", "content": "hi"}]}"#;
    let reply = server.call(post(CHAT, body)).await;
    assert_eq!(reply.json()["choices"][0]["message"]["content"], "Hello!");
}

#[tokio::test]
async fn a_body_that_is_too_large_or_too_slow_is_refused() {
    let server = Fixture::with(conversation(), |_, config| {
        config.body_limit_bytes = 1000;
        config.body_timeout = Duration::from_millis(20);
    });
    let body = json!({"messages": user(&"x".repeat(1000))});
    assert_eq!(
        server.chat(&body).await.error(413)["code"],
        "request_too_large"
    );
    let chunks = Body::from_stream(Chunks(3));
    server.call(post(CHAT, chunks)).await.error(413);
    let never = Body::from_stream(Chunks(1));
    server.call(post(CHAT, never)).await.error(408);
}

/// A body of unknown length: so many chunks of 500 bytes, and a rest that never comes.
struct Chunks(usize);

impl futures_core::Stream for Chunks {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.0.checked_sub(1) {
            Some(left) => {
                self.0 = left;
                Poll::Ready(Some(Ok(Bytes::from_static(&[b' '; 500]))))
            }
            None => Poll::Pending,
        }
    }
}

#[tokio::test]
async fn a_prompt_that_does_not_fit_is_refused_before_the_status_line() {
    let server = Fixture::new();
    for stream in [true, false] {
        let reply = server
            .chat(&json!({"messages": user(&"x".repeat(600)), "stream": stream}))
            .await;
        let error = reply.error(400);
        assert_eq!(error["code"], "context_length_exceeded");
        assert_eq!(error["n_ctx"], 512);
        // <|im_start|>user\n … <|im_end|>\n<|im_start|>assistant\n
        assert_eq!(error["n_prompt_tokens"], 600 + 6 + 2 + 11);
    }
}

#[tokio::test]
async fn a_full_queue_refuses_before_the_status_line() {
    let server = Fixture::with(conversation(), |engine, _| {
        engine.sessions = 1;
        engine.max_queue = 1;
    });
    let endless = json!({"messages": user("go on"), "stream": true, "ignore_eos": true});
    let running = server.open(CHAT, &endless).await;
    let waiting = server.open(CHAT, &endless).await;
    for stream in [true, false] {
        let reply = server
            .chat(&json!({"messages": user("hi"), "stream": stream}))
            .await;
        let error = reply.error(429);
        assert_eq!(
            (&error["type"], &error["code"]),
            (&json!("rate_limit_error"), &json!("rate_limit_exceeded"))
        );
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("Please try again in "), "{message}");
        assert!(
            reply.headers["retry-after"]
                .to_str()
                .unwrap()
                .parse::<u32>()
                .unwrap()
                >= 1
        );
    }
    // Two choices are admitted together or not at all.
    drop(waiting);
    let two = json!({"messages": user("hi"), "n": 2, "temperature": 0});
    server.chat(&two).await.error(429);
    // The places of those who left are free at once: a retry does not wait behind its own ghost.
    drop(running);
    assert_eq!(server.chat(&two).await.status, 200);
}

#[tokio::test]
async fn more_choices_than_there_are_places_are_refused_as_such() {
    let server = Fixture::with(conversation(), |engine, _| {
        engine.sessions = 1;
        engine.max_queue = 2;
    });
    let body = json!({"messages": user("hi"), "n": 4});
    let error = server.chat(&body).await.error(400);
    assert_eq!(error["param"], "n");
    assert!(
        error["message"].as_str().unwrap().contains("room for 3"),
        "{error}"
    );
    let body = json!({"prompt": ["a", "b"], "n": 2, "max_tokens": 1});
    server.post("/v1/completions", &body).await.error(400);
    let body = json!({"messages": user("hi"), "n": 3, "max_tokens": 1});
    assert_eq!(server.chat(&body).await.status, 200);
}

#[tokio::test]
async fn f24_timeouts_come_as_a_status_or_as_the_last_event_of_a_stream() {
    let server = Fixture::with(conversation(), |engine, _| {
        engine.sessions = 1;
        engine.queue_timeout_s = Some(1);
        engine.ring_events = 4;
    });
    // It fills its ring, is parked, and holds the only place.
    let endless = json!({"messages": user("go on"), "stream": true, "ignore_eos": true});
    let running = server.open(CHAT, &endless).await;
    while server.engine.status().scheduler.parked == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let whole = json!({"messages": user("hi")});
    let streamed = json!({"messages": user("hi"), "stream": true});
    let (whole, streamed) = tokio::join!(server.chat(&whole), server.chat(&streamed));
    assert_eq!(whole.error(429)["code"], "rate_limit_exceeded");
    assert!(whole.headers.contains_key("retry-after"));
    assert_eq!(streamed.status, 200);
    let events = streamed.events();
    let [.., error, done] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(error["error"]["type"], "rate_limit_error");
    assert_eq!(done, "[DONE]");
    drop(running);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f23_a_request_that_is_long_in_the_making_holds_no_place() {
    let server = Fixture::with(conversation(), |engine, config| {
        engine.sessions = 1;
        engine.max_queue = 0;
        config.max_preparing = 2;
    });
    let slow = server.server.clone();
    let (started, preparing) = tokio::sync::oneshot::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let making = tokio::spawn(async move {
        slow.prepare(move |_| {
            started.send(()).expect("the test waits");
            released.recv().expect("the test lets it go");
            Ok(())
        })
        .await
    });
    preparing.await.expect("it begins");
    let stats = server.engine.status().scheduler;
    assert_eq!((stats.queued, stats.resident), (0, 0));
    // The only place of this server is free for whoever is ready.
    let body = json!({"messages": user("hi"), "temperature": 0});
    assert_eq!(server.chat(&body).await.status, 200);
    release.send(()).expect("it waits");
    making.await.expect("no panic").expect("prepared");
}

#[tokio::test]
async fn pages_of_this_machine_may_call_and_others_may_not_read() {
    let server = Fixture::new();
    for (origin, allowed) in [
        ("http://localhost:3000", true),
        ("http://127.0.0.1", true),
        ("http://[::1]:8080", true),
        ("https://example.com", false),
        ("http://localhost.example.com", false),
        ("null", false),
    ] {
        let request = Request::options(CHAT)
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header(
                "access-control-request-headers",
                "content-type, x-stainless-lang",
            )
            .body(Body::empty())
            .unwrap();
        let reply = server.call(request).await;
        assert_eq!(
            reply.headers.get("access-control-allow-origin").is_some(),
            allowed,
            "{origin}"
        );
        assert_eq!(reply.status, 200);
    }
}

#[tokio::test]
async fn every_answer_has_an_id_of_its_own() {
    let server = Fixture::new();
    let body = json!({"messages": user("hi"), "max_tokens": 1});
    let mut ids = std::collections::HashSet::new();
    for _ in 0..10 {
        let reply = server.chat(&body).await;
        assert!(
            reply.json()["id"]
                .as_str()
                .unwrap()
                .starts_with("chatcmpl-")
        );
        assert!(ids.insert(reply.json()["id"].to_string()));
        assert!(ids.insert(format!("{:?}", reply.headers["x-request-id"])));
    }
    let refused: Value = server.post(CHAT, &json!({})).await.error(400);
    assert_eq!(refused["param"], "messages");
}
