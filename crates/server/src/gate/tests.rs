//! Limits of keys over the routes: who is refused, in which words, and who gives back what.

use std::pin::Pin;

use andante_engine::fake::FakeModel;
use axum::body::{Body, BodyDataStream, to_bytes};
use axum::http::Request;
use axum::response::Response;
use futures_core::Stream as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::ApiKey;
use crate::fixture::dialogue::Api;
use crate::fixture::{Fixture, Reply, conversation, post, user};

const CHAT: &str = "/v1/chat/completions";

/// A server with these keys.
fn server(keys: &str) -> Fixture {
    of_model(conversation(), keys)
}

fn of_model(model: FakeModel, keys: &str) -> Fixture {
    let keys = ApiKey::parse_lines(keys).expect("keys");
    Fixture::with(model, |_, config| config.api_keys = keys)
}

fn with_key(mut request: Request<Body>, key: &str) -> Request<Body> {
    let value = key.parse().expect("a header's value");
    request.headers_mut().insert("x-api-key", value);
    request
}

fn request(path: &str, body: &Value, key: &str) -> Request<Body> {
    with_key(post(path, body.to_string()), key)
}

async fn chat(server: &Fixture, key: &str) -> Reply {
    let body = json!({"messages": user("hi"), "temperature": 0});
    server.call(request(CHAT, &body, key)).await
}

/// The response to a request for an answer without an end, as soon as it has a head.
async fn endless(server: &Fixture, key: &str) -> Response {
    let body = json!({"messages": user("go on"), "stream": true, "ignore_eos": true});
    let router = server.server.router();
    let response = router.oneshot(request(CHAT, &body, key)).await;
    response.expect("the router never fails")
}

async fn frame(body: &mut BodyDataStream) -> Option<String> {
    let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_next(cx)).await?;
    let frame = frame.expect("no errors");
    Some(String::from_utf8(frame.to_vec()).expect("text"))
}

fn retry_after_s(reply: &Reply) -> u32 {
    let seconds = reply.headers["retry-after"].to_str().expect("ASCII");
    seconds.parse().expect("a number")
}

#[tokio::test]
async fn a_limit_is_told_before_the_status_line_in_every_apis_words() {
    for api in Api::ALL {
        for stream in [true, false] {
            let server = server("sk-p parallel=1\nsk-r rpm=1\nsk-t tpm=1");
            let mut body = api.ask("hi", 20);
            body["stream"] = stream.into();
            let ask = async |key| server.call(request(api.path(), &body, key)).await;
            let running = endless(&server, "sk-p").await;
            assert_eq!(ask("sk-r").await.status, 200, "{api:?}");
            assert_eq!(ask("sk-t").await.status, 200, "{api:?}");
            for (key, limit) in [
                ("sk-p", "this key's requests at once are limited to 1"),
                ("sk-r", "this key's requests a minute are limited to 1"),
                ("sk-t", "this key's tokens a minute are limited to 1"),
            ] {
                let reply = ask(key).await;
                assert_eq!(reply.status, 429, "{api:?}, {limit}");
                let wait_s = retry_after_s(&reply);
                // Within a minute there is room, unless it depends on others.
                assert!(wait_s >= 1 && (key == "sk-p" || wait_s <= 60), "{wait_s}");
                let message =
                    format!("Rate limit reached: {limit}. Please try again in {wait_s}s.");
                let error = reply.json()["error"].clone();
                match api {
                    Api::Ollama => assert_eq!(error, message),
                    Api::Messages => {
                        let expected = json!({"type": "rate_limit_error", "message": message});
                        assert_eq!(error, expected);
                    }
                    Api::Chat | Api::Responses => {
                        assert_eq!(error["message"], message);
                        let words = [&error["type"], &error["code"]];
                        assert_eq!(words, ["rate_limit_error", "rate_limit_exceeded"]);
                    }
                }
            }
            drop(running);
        }
    }
}

#[tokio::test]
async fn what_the_model_does_not_answer_is_not_limited() {
    let server = server("sk-1 parallel=1 rpm=1 tpm=1");
    let running = endless(&server, "sk-1").await;
    let messages = json!({"model": "m", "messages": user("hi"), "max_tokens": 1});
    let input = json!({"model": "m", "input": "hi"});
    for (path, body, status) in [
        (CHAT, &messages, 429),
        ("/v1/completions", &json!({"prompt": "hi"}), 429),
        ("/v1/embeddings", &input, 429),
        ("/v1/responses/compact", &input, 429),
        ("/api/generate", &json!({"model": "m", "prompt": "hi"}), 429),
        ("/v1/messages/count_tokens", &messages, 200),
        ("/v1/chat/completions/input_tokens", &messages, 200),
        ("/v1/responses/input_tokens", &input, 200),
        ("/tokenize", &json!({"content": "hi"}), 200),
    ] {
        let reply = server.call(request(path, body, "sk-1")).await;
        assert_eq!(reply.status, status, "{path}: {}", reply.text);
    }
    for path in ["/v1/models", "/health", "/metrics", "/scheduler"] {
        let get = Request::get(path).body(Body::empty()).expect("a request");
        let reply = server.call(with_key(get, "sk-1")).await;
        assert_eq!(reply.status, 200, "{path}");
    }
    drop(running);
}

#[tokio::test]
async fn each_key_has_its_own_limits() {
    let server = server("ann:sk-1 rpm=1\nann:sk-2 rpm=2\nbob:sk-3");
    for (key, answered) in [("sk-1", 1), ("sk-2", 2), ("sk-3", 5)] {
        for asked in 0..5 {
            let status = if asked < answered { 200 } else { 429 };
            assert_eq!(chat(&server, key).await.status, status, "{key}, {asked}");
        }
    }
}

#[tokio::test]
async fn whoever_ends_leaves_or_is_refused_gives_the_place_back() {
    let server = server("sk-1 parallel=1");
    for _ in 0..2 {
        assert_eq!(chat(&server, "sk-1").await.status, 200);
        // Refused for what it asks.
        let nothing = request(CHAT, &json!({}), "sk-1");
        assert_eq!(server.call(nothing).await.status, 400);
        let long = json!({"messages": user(&"x".repeat(600))});
        assert_eq!(server.call(request(CHAT, &long, "sk-1")).await.status, 400);
        // Left before its end.
        let running = endless(&server, "sk-1").await;
        assert_eq!(chat(&server, "sk-1").await.status, 429);
        drop(running);
    }
    // Read to its end, by a client that keeps the connection.
    let body = json!({"messages": user("hi"), "temperature": 0, "stream": true});
    let router = server.server.router();
    let response = router.oneshot(request(CHAT, &body, "sk-1")).await;
    let mut body = response.expect("an answer").into_body().into_data_stream();
    while !frame(&mut body).await.expect("an end").contains("[DONE]") {}
    assert_eq!(chat(&server, "sk-1").await.status, 200);
    drop(body);
    assert_eq!(chat(&server, "sk-1").await.status, 200);
}

#[tokio::test]
async fn an_answer_that_fails_gives_the_place_back() {
    let server = of_model(conversation().poison(u32::from(b'#')), "sk-1 parallel=1");
    let mut body = json!({"messages": user("#")});
    assert_eq!(server.call(request(CHAT, &body, "sk-1")).await.status, 500);
    body["stream"] = json!(true);
    let router = server.server.router();
    let response = router.oneshot(request(CHAT, &body, "sk-1")).await;
    let mut body = response.expect("an answer").into_body().into_data_stream();
    while !frame(&mut body).await.expect("an error").contains("error") {}
    assert_eq!(chat(&server, "sk-1").await.status, 200);
    drop(body);
}

#[tokio::test]
async fn tokens_of_prompts_and_answers_count_once() {
    // 21 of the prompt, and 7 of each answer with its end.
    for (n, taken) in [(1, 28), (2, 35)] {
        let server = server(&format!("sk-1 tpm={taken}\nsk-2 tpm={}", taken + 1));
        let body = json!({"messages": user("hi"), "temperature": 0, "n": n});
        for key in ["sk-1", "sk-2"] {
            let reply = server.call(request(CHAT, &body, key)).await;
            assert_eq!(reply.json()["usage"]["total_tokens"], taken);
        }
        assert_eq!(chat(&server, "sk-1").await.status, 429);
        // One token is left, and whatever the request takes is given; its prompt is counted though it is in the cache.
        assert_eq!(chat(&server, "sk-2").await.status, 200);
        assert_eq!(chat(&server, "sk-2").await.status, 429);
    }
}

#[tokio::test]
async fn tokens_of_an_answer_that_was_left_count_as_far_as_it_was_read() {
    // The prompt has 24.
    let server = server("sk-1 tpm=24\nsk-2 tpm=27\nsk-3 tpm=100000");
    let unread = endless(&server, "sk-1").await;
    drop(unread);
    assert_eq!(chat(&server, "sk-1").await.status, 429);
    for (key, status) in [("sk-2", 429), ("sk-3", 200)] {
        let mut body = endless(&server, key).await.into_body().into_data_stream();
        let mut pieces = 0;
        while pieces < 3 {
            let frame = frame(&mut body).await.expect("no end");
            pieces += frame.matches(r#""delta":{"content":"#).count();
        }
        drop(body);
        assert_eq!(chat(&server, key).await.status, status, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_holds_for_all_that_ask_at_once() {
    let server = server("sk-1 rpm=3");
    let body = json!({"messages": user("hi"), "temperature": 0, "max_tokens": 1}).to_string();
    let asking: Vec<_> = (0..10)
        .map(|_| {
            let request = with_key(post(CHAT, body.clone()), "sk-1");
            tokio::spawn(server.server.router().oneshot(request))
        })
        .collect();
    let mut answered = 0;
    for response in asking {
        let response = response.await.expect("no panic").expect("a response");
        answered += usize::from(response.status() == 200);
        to_bytes(response.into_body(), usize::MAX)
            .await
            .expect("a body");
    }
    assert_eq!(answered, 3);
}
