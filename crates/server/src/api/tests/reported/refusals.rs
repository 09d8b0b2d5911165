//! What is refused: before the status line, in words that make clients do the right thing.

use std::time::Duration;

use serde_json::{Value, json};

use super::{model, with};
use crate::fixture::dialogue::Api;
use crate::fixture::written::named;
use crate::fixture::{Fixture, Reply};

fn message(api: Api, reply: &Reply) -> String {
    let error = reply.json()["error"].clone();
    let message = if api == Api::Ollama {
        &error
    } else {
        &error["message"]
    };
    message.as_str().expect("a message").to_owned()
}

#[tokio::test]
async fn a_prompt_beyond_the_context_is_refused_in_every_apis_words() {
    let server = Fixture::with(model(), |_, _| {});
    for api in Api::ALL {
        for stream in [true, false] {
            let body = with(api.ask(&"x".repeat(600), 20), &json!({"stream": stream}));
            let reply = server.post(api.path(), &body).await;
            assert_eq!(reply.status, 400, "{api:?}");
            let sentence = match api {
                Api::Messages => "prompt is too long: 619 tokens > 512 maximum",
                _ => {
                    "This model's maximum context length is 512 tokens. However, your messages resulted in 619 tokens. \
                     Please reduce the length of the messages."
                }
            };
            assert_eq!(message(api, &reply), sentence);
            if [Api::Chat, Api::Responses].contains(&api) {
                assert_eq!(reply.error(400)["code"], "context_length_exceeded");
            }
        }
    }
    let text = "x".repeat(600);
    for (path, body) in [
        ("/v1/completions", json!({"prompt": text, "stream": true})),
        ("/v1/embeddings", json!({"model": "m", "input": text})),
    ] {
        let error = server.post(path, &body).await.error(400);
        assert_eq!(error["code"], "context_length_exceeded", "{path}");
    }
    let generate = json!({"model": "m", "prompt": text});
    assert_eq!(server.post("/api/generate", &generate).await.status, 400);
}

#[tokio::test]
async fn a_full_queue_is_told_before_the_status_line_with_when_to_come_back() {
    let server = Fixture::with(model(), |engine, _| {
        engine.sessions = 1;
        engine.max_queue = 0;
        engine.ring_events = 4;
    });
    let endless = with(Api::Chat.ask("go on", 400), &json!({"stream": true}));
    let running = server.open(Api::Chat.path(), &endless).await;
    for api in Api::ALL {
        for stream in [true, false] {
            let body = with(api.ask("hi", 20), &json!({"stream": stream}));
            let reply = server.post(api.path(), &body).await;
            assert_eq!(reply.status, 429, "{api:?}");
            let seconds: u32 = reply.headers["retry-after"]
                .to_str()
                .unwrap()
                .parse()
                .unwrap();
            let words = format!("Please try again in {seconds}s.");
            assert!(
                seconds >= 1 && message(api, &reply).ends_with(&words),
                "{}",
                reply.text
            );
        }
    }
    drop(running);
}

#[tokio::test]
async fn who_has_waited_too_long_in_a_stream_is_told_when_to_come_back() {
    let server = Fixture::with(model(), |engine, _| {
        engine.sessions = 1;
        engine.queue_timeout_s = Some(1);
        engine.ring_events = 4;
    });
    let endless = with(Api::Chat.ask("go on", 400), &json!({"stream": true}));
    let running = server.open(Api::Chat.path(), &endless).await;
    while server.engine.status().scheduler.parked == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let ask = |api: Api| with(api.ask("hi", 20), &json!({"stream": true}));
    let (responses, messages) = (ask(Api::Responses), ask(Api::Messages));
    let (responses, messages) = tokio::join!(
        server.post(Api::Responses.path(), &responses),
        server.post(Api::Messages.path(), &messages),
    );
    let last = |reply: &Reply| named(&reply.text).pop().expect("events");
    let error = last(&responses)["response"]["error"].clone();
    assert_eq!(error["code"], "rate_limit_exceeded", "{error}");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("Please try again in ")
    );
    assert_eq!(last(&messages)["error"]["type"], "rate_limit_error");
    drop(running);
}

/// Words by which agents take an error for one that passes, and send the request again.
const PASSES: [&str; 12] = [
    "overloaded",
    "rate limit",
    "rate_limit",
    "too many requests",
    "server error",
    "server_error",
    "internal error",
    "service unavailable",
    "service_unavailable",
    "timeout",
    "timed out",
    "terminated",
];

#[tokio::test]
async fn what_would_fail_again_has_no_word_that_makes_clients_try_again() {
    let server = Fixture::with(model(), |_, _| {});
    let mut replies = Vec::new();
    for api in Api::ALL {
        for change in [
            json!({"messages": 5, "input": 5}),
            json!({"messages": [{"role": "critic", "content": "x"}], "input": [{"role": "critic", "content": "x"}]}),
            json!({"messages": [{"role": "user", "content": "x".repeat(600)}], "input": "x".repeat(600)}),
            json!({"stream": "perhaps"}),
            json!({"tools": 5}),
        ] {
            let body = with(api.ask("hi", 20), &change);
            replies.push(server.post(api.path(), &body).await);
        }
    }
    for path in ["/v1/models/other", "/v1/nothing", "/v1/responses/resp_1"] {
        replies.push(server.get(path).await);
    }
    for reply in replies {
        let status = reply.status.as_u16();
        assert!([400, 404].contains(&status), "{status}: {}", reply.text);
        let text = reply.text.to_lowercase();
        let word = PASSES.iter().find(|word| text.contains(**word));
        assert_eq!(word, None, "{}", reply.text);
    }
}

#[tokio::test]
async fn what_does_not_exist_is_not_the_servers_error() {
    let server = Fixture::with(model(), |_, _| {});
    for (path, kind) in [
        ("/v1/models/other", "not_found_error"),
        ("/v1/nothing", "not_found_error"),
        ("/v1/responses/resp_1", "not_found_error"),
    ] {
        let error: Value = server.get(path).await.error(404);
        assert_eq!(error["type"], kind, "{path}");
    }
}
