//! The listener on real sockets: departures, shutdown, hostile heads.

mod wire;

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::*;
use crate::fixture::{Fixture, conversation, user};

struct Listening {
    fixture: Fixture,
    address: SocketAddr,
    phase: watch::Sender<Phase>,
    serving: JoinHandle<()>,
}

async fn listen(change: impl FnOnce(&mut ServerConfig)) -> Listening {
    // Slow enough that an answer is still running when something else happens.
    let model = conversation().on_forward(|_| std::thread::sleep(Duration::from_millis(1)));
    let fixture = Fixture::with(model, |engine, config| {
        engine.context = 4096;
        change(config);
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (phase, receiver) = watch::channel(Phase::Serve);
    let serving = tokio::spawn(serve(listener, fixture.server.clone(), receiver));
    Listening {
        fixture,
        address,
        phase,
        serving,
    }
}

impl Listening {
    /// Sends a chat request and reads until `until` has come.
    async fn chat(&self, body: &serde_json::Value, until: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let body = body.to_string();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        let mut seen = String::new();
        while !seen.contains(until) {
            let mut buffer = [0; 4096];
            let count = stream.read(&mut buffer).await.unwrap();
            assert!(count > 0, "ended with {seen}");
            seen += std::str::from_utf8(&buffer[..count]).unwrap();
        }
        stream
    }

    async fn until_running(&self, count: u32) {
        while self.fixture.engine.status().scheduler.resident != count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// What a connection that is cut off still says; a reset may take it away.
async fn last_words(mut stream: TcpStream) -> String {
    let mut words = Vec::new();
    let _ = stream.read_to_end(&mut words).await;
    String::from_utf8(words).unwrap()
}

async fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn a_closed_socket_frees_the_work_streamed_or_not() {
    let server = listen(|_| {}).await;
    let mut endless = json!({"messages": user("go on"), "ignore_eos": true, "stream": true});
    let streaming = server.chat(&endless, "\"content\":\"").await;
    drop(streaming);
    server.fixture.idle_after(1).await;
    assert_eq!(server.fixture.engine.status().cancelled, 1);
    endless["stream"] = json!(false);
    let whole = server.chat(&endless, "").await;
    server.until_running(1).await;
    drop(whole);
    server.fixture.idle_after(2).await;
    assert_eq!(server.fixture.engine.status().cancelled, 2);
}

#[tokio::test]
async fn draining_lets_a_running_answer_finish() {
    let server = listen(|_| {}).await;
    let body =
        json!({"messages": user("go on"), "ignore_eos": true, "stream": true, "max_tokens": 100});
    let running = server.chat(&body, "\"content\":\"").await;
    // The head of the stream comes before the request has its place; who still waits is refused.
    server.until_running(1).await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"HEAD /health HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(idle.read_u8().await.unwrap(), b'H');
    server.phase.send(Phase::Drain).unwrap();
    let text = rest(running).await;
    assert!(text.contains("\"finish_reason\":\"length\""), "{text}");
    assert!(text.contains("data: [DONE]\n\n"), "{text}");
    server.serving.await.unwrap();
    assert!(
        rest(idle).await.starts_with("TTP/1.1 200"),
        "it was open until then"
    );
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn stopping_and_lateness_end_a_running_answer_with_an_error_event() {
    for late in [false, true] {
        let server = listen(|config| {
            if late {
                config.drain_timeout = Duration::from_millis(10);
            }
        })
        .await;
        let body = json!({"messages": user("go on"), "ignore_eos": true, "stream": true});
        let running = server.chat(&body, "\"content\":\"").await;
        server
            .phase
            .send(if late { Phase::Drain } else { Phase::Stop })
            .unwrap();
        let text = rest(running).await;
        assert!(text.contains("\"type\":\"service_unavailable\""), "{text}");
        // The end of the body in chunks, not a cut connection.
        assert!(
            text.contains("data: [DONE]\n\n") && text.ends_with("0\r\n\r\n"),
            "{text}"
        );
        server.serving.await.unwrap();
    }
}

#[tokio::test]
async fn heads_that_are_too_large_or_too_slow_are_cut_off() {
    let server = listen(|config| config.head_timeout = Duration::from_millis(20)).await;
    let mut large = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "GET /health HTTP/1.1\r\nx: {}\r\n\r\n",
        "x".repeat(8 * MAX_HEAD_BYTES)
    );
    // It may be cut off before it has said all.
    let _ = large.write_all(head.as_bytes()).await;
    let words = last_words(large).await;
    assert!(
        words.is_empty() || words.starts_with("HTTP/1.1 431"),
        "{words}"
    );
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(b"GET /health HTTP/1.1\r\nhost")
        .await
        .unwrap();
    assert_eq!(rest(slow).await, "");
    let mut garbage = TcpStream::connect(server.address).await.unwrap();
    garbage
        .write_all(b"\x16\x03\x01 not http\r\n\r\n")
        .await
        .unwrap();
    let words = last_words(garbage).await;
    assert!(
        words.is_empty() || words.starts_with("HTTP/1.1 400"),
        "{words}"
    );
}

#[tokio::test]
async fn more_connections_than_allowed_wait_their_turn() {
    let server = listen(|config| config.max_connections = 1).await;
    let body = json!({"messages": user("go on"), "ignore_eos": true, "stream": true});
    let first = server.chat(&body, "\"content\":\"").await;
    let mut second = TcpStream::connect(server.address).await.unwrap();
    second
        .write_all(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    drop(first);
    assert!(rest(second).await.starts_with("HTTP/1.1 200"));
}
