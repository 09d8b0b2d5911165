//! A server process and a small HTTP client for it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// `andante serve` on a free port; killed when dropped.
pub(crate) struct Server {
    process: Child,
    address: String,
}

/// A streamed answer, taken apart.
#[derive(Debug, Default)]
pub(crate) struct Sse {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) finish_reason: Option<String>,
    pub(crate) usage: Value,
    pub(crate) done: bool,
    /// When each piece of text came.
    pub(crate) times: Vec<Instant>,
}

impl Server {
    pub(crate) fn start(flags: &[&str]) -> Self {
        Self::start_logging(flags, Stdio::inherit())
    }

    /// [`Self::start`], with its log elsewhere.
    pub(crate) fn start_logging(flags: &[&str], log: impl Into<Stdio>) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_andante"))
            .args(["serve", "--port", "0", "--threads", "2"])
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.as_mut().unwrap());
        let address = output
            .lines()
            .find_map(|line| Some(line.unwrap().rsplit_once("http://")?.1.to_owned()))
            .expect("the server prints its address");
        Self { process, address }
    }

    /// Its base address.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// One request, one JSON answer.
    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let mut reader = self.send(path, body);
        let status = read_head(&mut reader);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        (
            status,
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")),
        )
    }

    /// One request, all its events.
    pub(crate) fn stream(&self, path: &str, body: &Value) -> Sse {
        let mut answer = Sse::default();
        self.events(path, body, |event| answer.take(event));
        answer
    }

    /// One request, all its events; `then` runs as soon as the first has come.
    pub(crate) fn stream_and(&self, path: &str, body: &Value, then: impl FnOnce()) -> Sse {
        let (mut answer, mut then) = (Sse::default(), Some(then));
        self.events(path, body, |event| {
            if let Some(then) = then.take() {
                then();
            }
            answer.take(event)
        });
        answer
    }

    /// One request, broken off after so many events.
    pub(crate) fn stream_and_leave(&self, path: &str, body: &Value, events: usize) {
        let mut seen = 0;
        self.events(path, body, |_| {
            seen += 1;
            seen < events
        });
    }

    fn events(&self, path: &str, body: &Value, mut take: impl FnMut(&str) -> bool) {
        let mut reader = self.send(path, body);
        assert_eq!(read_head(&mut reader), 200);
        let mut line = String::new();
        while reader.read_line(&mut line).unwrap() > 0 {
            if let Some(event) = line.trim_end().strip_prefix("data: ")
                && !take(event)
            {
                return;
            }
            line.clear();
        }
    }

    fn send(&self, path: &str, body: &Value) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(300)))
            .unwrap();
        let body = body.to_string();
        // HTTP/1.0 asks for a body that is neither chunked nor kept alive.
        let head = format!(
            "POST {path} HTTP/1.0\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        BufReader::new(stream)
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let id = self.process.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &id])
                .status()
                .unwrap()
                .success()
        );
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Sse {
    fn take(&mut self, event: &str) -> bool {
        if event == "[DONE]" {
            self.done = true;
            return false;
        }
        let event: Value = serde_json::from_str(event).unwrap();
        assert!(event.get("error").is_none(), "{event}");
        if event["usage"].is_object() {
            self.usage = event["usage"].clone();
        }
        let choice = &event["choices"][0];
        let piece = choice["delta"]["content"]
            .as_str()
            .or(choice["text"].as_str())
            .unwrap_or("");
        if !piece.is_empty() {
            self.text += piece;
            self.times.push(Instant::now());
        }
        self.reasoning += choice["delta"]["reasoning_content"].as_str().unwrap_or("");
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.finish_reason = Some(reason.to_owned());
        }
        true
    }
}

fn read_head(reader: &mut impl BufRead) -> u16 {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap().parse().unwrap();
    while line.trim_end() != "" {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    status
}
