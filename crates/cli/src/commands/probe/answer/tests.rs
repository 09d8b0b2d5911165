//! Which events are tokens, and which answers are none.

use std::time::Instant;

use super::super::sse::Body;
use super::*;

fn answer(status: u16, text: &str) -> Answer {
    let now = Instant::now();
    let mut body = Body::default();
    body.push(now, text.as_bytes());
    Answer::of(&Recording {
        sent: now,
        ended: now,
        status: Some(status),
        retry_after_s: None,
        body,
        broken: None,
        stopped: false,
    })
}

fn stream(events: &[&str]) -> Answer {
    answer(
        200,
        &events
            .iter()
            .map(|event| format!("data: {event}\n\n"))
            .collect::<String>(),
    )
}

#[test]
fn text_completions_count_every_running_event() {
    let found = stream(&[
        r#"{"choices":[{"text":"a","finish_reason":null}]}"#,
        r#"{"choices":[{"text":"","finish_reason":null}]}"#,
        r#"{"choices":[{"text":"","finish_reason":"length"}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}"#,
        "[DONE]",
    ]);
    assert_eq!((found.tokens.len(), found.failure), (2, None));
    let usage = Usage {
        prompt: 9,
        completion: 2,
        cached: 4,
    };
    assert_eq!(found.usage, Some(usage));
}

#[test]
fn a_last_token_may_come_with_the_finish_reason() {
    let found = stream(&[r#"{"choices":[{"text":"a","finish_reason":"stop"}]}"#]);
    assert_eq!((found.tokens.len(), found.failure), (1, None));
}

#[test]
fn the_event_that_opens_a_chat_answer_is_no_token() {
    let found = stream(&[
        r#"{"choices":[{"delta":{"role":"assistant","content":null},"finish_reason":null}]}"#,
        r#"{"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
        r#"{"choices":[{"delta":{"reasoning_content":"hm"},"finish_reason":null}]}"#,
        r#"{"choices":[{"delta":{"content":"a"},"finish_reason":null}]}"#,
        r#"{"choices":[{"delta":{"content":""},"finish_reason":null}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0}]},"finish_reason":null}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":null}"#,
    ]);
    assert_eq!(
        (found.tokens.len(), found.failure, found.usage),
        (4, None, None)
    );
}

#[test]
fn what_is_no_answer_says_why() {
    let failure = |answer: Answer| answer.failure.unwrap_or_default();
    let refused = answer(
        429,
        r#"{"error":{"message":"the queue is full","type":"x"}}"#,
    );
    assert_eq!(failure(refused), "HTTP 429: the queue is full");
    assert_eq!(
        failure(answer(502, "<html>\nbad</html>")),
        "HTTP 502: <html> bad</html>"
    );
    assert_eq!(
        failure(stream(&["{oops"])),
        "an event that is not JSON: {oops"
    );
    assert_eq!(
        failure(stream(&[r#"{"error":{"message":"out of memory"}}"#])),
        "an error event: out of memory"
    );
    let cut = stream(&[r#"{"choices":[{"text":"a","finish_reason":null}]}"#]);
    assert_eq!(cut.tokens.len(), 1);
    assert_eq!(failure(cut), "the stream ended without a finish reason");
    assert_eq!(
        failure(answer(200, "")),
        "the stream ended without a finish reason"
    );
}
