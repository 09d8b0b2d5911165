//! Requests byte by byte, as RFC 9112 has them and as attackers do: what a request is must never be in doubt.

use super::*;

/// A body that is answered with one token.
const BODY: &str = r#"{"messages":[{"role":"user","content":"hi"}],"max_tokens":1}"#;

fn chunked(body: &str) -> String {
    let (first, second) = body.split_at(7);
    format!(
        "{:x};name=value\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\nx-trailer: 1\r\n\r\n",
        first.len(),
        second.len()
    )
}

fn post(headers: &str, body: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n{body}"
    )
}

impl Listening {
    /// Everything that comes back for these bytes.
    async fn exchange(&self, bytes: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // It may be cut off before it has said all.
        let _ = stream.write_all(bytes.as_bytes()).await;
        last_words(stream).await
    }
}

/// The statuses of the responses in `words`.
fn statuses(words: &str) -> Vec<&str> {
    let lines = words.split("HTTP/1.1 ").skip(1);
    lines.map(|line| &line[..3]).collect()
}

/// What is sent, and the status of the one answer to it.
type Case = (&'static str, String, &'static str);

/// Where a body ends.
fn lengths() -> Vec<Case> {
    let length = BODY.len();
    vec![
        (
            "plain",
            post(&format!("content-length: {length}\r\n"), BODY),
            "200",
        ),
        (
            "the same length twice",
            post(
                &format!("content-length: {length}\r\ncontent-length: {length}\r\n"),
                BODY,
            ),
            "200",
        ),
        (
            "two lengths",
            post(
                &format!("content-length: {length}\r\ncontent-length: 5\r\n"),
                BODY,
            ),
            "400",
        ),
        (
            "a list of lengths",
            post(&format!("content-length: {length}, 5\r\n"), BODY),
            "400",
        ),
        (
            "a length with a sign",
            post(&format!("content-length: +{length}\r\n"), BODY),
            "400",
        ),
        (
            "a negative length",
            post("content-length: -1\r\n", BODY),
            "400",
        ),
        (
            "chunks",
            post("transfer-encoding: chunked\r\n", &chunked(BODY)),
            "200",
        ),
        (
            "a coding under which chunks end nothing",
            post("transfer-encoding: chunked, gzip\r\n", &chunked(BODY)),
            "400",
        ),
        (
            "a chunk of no length",
            post("transfer-encoding: chunked\r\n", "zz\r\n{}\r\n0\r\n\r\n"),
            "400",
        ),
    ]
}

/// How a head is written.
fn heads() -> Vec<Case> {
    let length = BODY.len();
    vec![
        (
            "a space before the colon",
            post(&format!("content-length : {length}\r\n"), BODY),
            "400",
        ),
        (
            "a folded header",
            post(&format!("x: a\r\n b\r\ncontent-length: {length}\r\n"), BODY),
            "400",
        ),
        (
            "a null in a header",
            post(&format!("x: a\0b\r\ncontent-length: {length}\r\n"), BODY),
            "400",
        ),
        (
            "no such version",
            "GET /health HTTP/3.7\r\nhost: x\r\n\r\n".into(),
            "400",
        ),
        (
            "no method",
            " /health HTTP/1.1\r\nhost: x\r\n\r\n".into(),
            "400",
        ),
        (
            "the whole address",
            "GET http://x/health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".into(),
            "200",
        ),
        (
            "no host",
            "GET /health HTTP/1.1\r\nconnection: close\r\n\r\n".into(),
            "200",
        ),
        (
            "an empty line first",
            "\r\nGET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".into(),
            "200",
        ),
        (
            "bare line feeds",
            "GET /health HTTP/1.1\nhost: x\nconnection: close\n\n".into(),
            "200",
        ),
    ]
}

#[tokio::test]
async fn one_request_has_one_reading_or_none() {
    let server = listen(|_| {}).await;
    let mut wrong = Vec::new();
    for (name, bytes, expected) in lengths().into_iter().chain(heads()) {
        let words = server.exchange(&bytes).await;
        if statuses(&words) != [expected] {
            wrong.push(format!(
                "{name}: {:?} and not {expected:?}: {words}",
                statuses(&words)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn a_length_beside_chunks_does_not_smuggle_a_second_request() {
    let server = listen(|_| {}).await;
    let hidden = "GET /version HTTP/1.1\r\nhost: x\r\n\r\n";
    let bytes = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n\
         {:x}\r\n{BODY}\r\n0\r\n\r\n{hidden}",
        BODY.len()
    );
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let words = last_words(stream).await;
    // The chunks count, or nothing does: the length alone never.
    assert!(!words.contains("not valid JSON"), "{words}");
}

#[tokio::test]
async fn requests_in_a_row_are_answered_in_order() {
    let server = listen(|_| {}).await;
    let bytes = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{BODY}\
         GET /version HTTP/1.1\r\nhost: x\r\n\r\n\
         GET /nothing HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        BODY.len()
    );
    let words = server.exchange(&bytes).await;
    assert_eq!(statuses(&words), ["200", "200", "404"], "{words}");
    assert!(
        words.find("chat.completion") < words.find("\"version\""),
        "{words}"
    );
}

#[tokio::test]
async fn a_body_is_asked_for_when_the_client_waits_to_be_asked() {
    let server = listen(|_| {}).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = post(
        &format!("content-length: {}\r\nexpect: 100-continue\r\n", BODY.len()),
        "",
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut asked = [0; 25];
    stream.read_exact(&mut asked).await.unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(BODY.as_bytes()).await.unwrap();
    assert_eq!(statuses(&last_words(stream).await), ["200"]);
    // One that is too large is refused before it is sent.
    let large = post(
        "content-length: 99999999999\r\nexpect: 100-continue\r\n",
        "",
    );
    let words = server.exchange(&large).await;
    assert_eq!(statuses(&words), ["413"], "{words}");
}

#[tokio::test]
async fn a_head_request_has_the_head_alone() {
    let server = listen(|_| {}).await;
    for path in ["/", "/api/hello", "/health", "/v1/models"] {
        let words = server
            .exchange(&format!(
                "HEAD {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
            ))
            .await;
        assert!(
            words.starts_with("HTTP/1.1 200") && words.ends_with("\r\n\r\n"),
            "{words}"
        );
        assert_eq!(words.matches("\r\n\r\n").count(), 1, "{words}");
    }
}

#[tokio::test]
async fn who_closes_one_half_has_gone() {
    let server = listen(|_| {}).await;
    let body = json!({"messages": user("go on"), "ignore_eos": true, "stream": true});
    let mut stream = server.chat(&body, "\"content\":\"").await;
    stream.shutdown().await.unwrap();
    server.fixture.idle_after(1).await;
    assert_eq!(server.fixture.engine.status().cancelled, 1);
}
