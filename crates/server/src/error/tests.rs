//! The envelope: what clients match is what they get.

use axum::body::to_bytes;
use serde_json::{Value, json};

use super::*;
use axum::http::HeaderMap;

async fn answer(error: ApiError) -> (u16, Option<String>, Value) {
    answer_as(Envelope::OpenAi, error).await
}

async fn answer_as(envelope: Envelope, error: ApiError) -> (u16, Option<String>, Value) {
    let response = error.response(envelope, "req_1");
    let retry = response.headers().get(header::RETRY_AFTER);
    let retry = retry.map(|seconds| seconds.to_str().unwrap().to_owned());
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, retry, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn a_prompt_that_is_too_long_has_openais_sentence_and_the_numbers() {
    let error = RequestError::ContextLength {
        prompt_tokens: 9000,
        context: 8192,
    };
    let expected = json!({ "error": {
        "message": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens. \
                    Please reduce the length of the messages.",
        "type": "invalid_request_error",
        "param": null,
        "code": "context_length_exceeded",
        "n_prompt_tokens": 9000,
        "n_ctx": 8192,
    }});
    assert_eq!(answer(error.into()).await, (400, None, expected));
}

#[tokio::test]
async fn a_full_queue_says_when_to_come_back() {
    let (status, retry, body) = answer(SubmitError::QueueFull { retry_after_s: 7 }.into()).await;
    assert_eq!((status, retry.as_deref()), (429, Some("7")));
    assert_eq!(body["error"]["type"], "rate_limit_error");
    assert_eq!(
        body["error"]["message"],
        "Rate limit reached: the queue is full. Please try again in 7s."
    );
}

#[tokio::test]
async fn statuses_and_types_tell_whose_fault_it_is() {
    let field = || ApiError::Field {
        path: "messages[2].content".into(),
        why: "is required".into(),
    };
    let path = || "/v1/nothing".to_owned();
    for (error, status, kind) in [
        (field(), 400, "invalid_request_error"),
        (
            ApiError::BodyTooLarge { limit: 1 },
            413,
            "invalid_request_error",
        ),
        (ApiError::BodyTimeout, 408, "invalid_request_error"),
        (ApiError::ContentEncoding, 415, "invalid_request_error"),
        (ApiError::NoRoute { path: path() }, 404, "not_found_error"),
        (
            ApiError::NoMethod {
                method: "PUT".into(),
                path: path(),
            },
            405,
            "invalid_request_error",
        ),
        (
            RequestError::EmptyPrompt.into(),
            400,
            "invalid_request_error",
        ),
        (SubmitError::ShuttingDown.into(), 503, "service_unavailable"),
        (
            ApiError::Failed(Failure::ShuttingDown),
            503,
            "service_unavailable",
        ),
        (ApiError::Failed(Failure::Model), 500, "server_error"),
        (ApiError::Panicked, 500, "server_error"),
    ] {
        check(error, status, kind).await;
    }
    assert_eq!(
        answer(field()).await.2["error"]["param"],
        "messages[2].content"
    );
}

#[tokio::test]
async fn a_server_that_is_busy_or_slow_says_so() {
    for (error, status, kind) in [
        (
            SubmitError::QueueFull { retry_after_s: 7 }.into(),
            429,
            "rate_limit_error",
        ),
        (
            ApiError::QueueTimeout {
                failure: Failure::QueueTimeout,
                retry_after_s: 7,
            },
            429,
            "rate_limit_error",
        ),
        (
            ApiError::Failed(Failure::FirstTokenTimeout),
            504,
            "timeout_error",
        ),
        (
            ApiError::TooManyChoices {
                choices: 9,
                room: 8,
            },
            400,
            "invalid_request_error",
        ),
    ] {
        check(error, status, kind).await;
    }
}

async fn check(error: ApiError, status: u16, kind: &str) {
    let message = error.to_string();
    let (got, retry, body) = answer(error).await;
    assert_eq!(got, status, "{message}");
    assert_eq!(retry.is_some(), [429, 503].contains(&status), "{message}");
    assert_eq!(body["error"]["type"], kind, "{message}");
    assert_eq!(body["error"]["message"], message);
}

#[tokio::test]
async fn the_messages_api_has_its_own_words() {
    let too_long = || RequestError::ContextLength {
        prompt_tokens: 9000,
        context: 8192,
    };
    let expected = json!({
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "prompt is too long: 9000 tokens > 8192 maximum",
        },
        "request_id": "req_1",
    });
    let answer = answer_as(Envelope::Anthropic, too_long().into()).await;
    assert_eq!(answer, (400, None, expected));
    for (error, status, kind, retry) in [
        (ApiError::NoKey, 401, "authentication_error", None),
        (
            ApiError::BodyTooLarge { limit: 1 },
            413,
            "request_too_large",
            None,
        ),
        (
            SubmitError::QueueFull { retry_after_s: 7 }.into(),
            429,
            "rate_limit_error",
            Some("7"),
        ),
        (SubmitError::Dead.into(), 529, "overloaded_error", Some("5")),
        (ApiError::Failed(Failure::Model), 500, "api_error", None),
        (
            ApiError::Failed(Failure::FirstTokenTimeout),
            504,
            "timeout_error",
            None,
        ),
    ] {
        let (got, after, body) = answer_as(Envelope::Anthropic, error).await;
        assert_eq!((got, after.as_deref()), (status, retry), "{kind}");
        assert_eq!(body["error"]["type"], kind);
    }
}

#[tokio::test]
async fn ollama_says_it_in_one_string() {
    let (status, _, body) = answer_as(Envelope::Ollama, ApiError::BodyCut).await;
    assert_eq!(
        (status, body),
        (400, json!({"error": "the request body ended early"}))
    );
}

#[test]
fn a_path_tells_whose_form_an_error_has() {
    let none = HeaderMap::new();
    for (path, envelope) in [
        ("/v1/messages", Envelope::Anthropic),
        ("/messages/count_tokens", Envelope::Anthropic),
        ("/v1/messagesque", Envelope::OpenAi),
        ("/api/chat", Envelope::Ollama),
        ("/v1/models", Envelope::OpenAi),
    ] {
        assert_eq!(Envelope::of(path, &none), envelope, "{path}");
    }
    let mut headers = HeaderMap::new();
    headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    assert_eq!(Envelope::of("/v1/models/x", &headers), Envelope::Anthropic);
}
