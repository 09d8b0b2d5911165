//! A server for tests that answers as its script says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use serde_json::Value;

/// A request as the script sees it.
pub(super) struct Request {
    pub(super) path: String,
    pub(super) headers: Vec<String>,
    pub(super) body: Value,
}

/// Where a script writes its answer; every method says whether the client is still there.
pub(super) struct Reply(TcpStream);

/// Starts a server; gives its address. Every connection has its own thread and carries one request.
pub(super) fn serve(script: impl Fn(&Request, &mut Reply) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let script = Arc::new(script);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, script) = (stream.unwrap(), Arc::clone(&script));
            thread::spawn(move || {
                let Some(request) = read(&stream) else { return };
                let mut reply = Reply(stream);
                if request.path == "/v1/models" {
                    reply.whole("200 OK", "{\"data\":[{\"id\":\"scripted\"}]}");
                } else {
                    script(&request, &mut reply);
                }
            });
        }
    });
    format!("http://{address}")
}

impl Request {
    /// Tokens of a prompt given as ids.
    pub(super) fn prompt_tokens(&self) -> usize {
        self.body["prompt"].as_array().map_or(0, Vec::len)
    }

    pub(super) fn max_tokens(&self) -> u64 {
        self.body["max_tokens"].as_u64().unwrap()
    }
}

impl Reply {
    pub(super) fn whole(&mut self, status: &str, body: &str) {
        let length = body.len();
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
        self.write(&(head + body));
    }

    /// The head of a chunked stream of events.
    pub(super) fn open(&mut self) -> bool {
        self.write("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    }

    pub(super) fn chunk(&mut self, bytes: &str) -> bool {
        self.write(&format!("{:x}\r\n{bytes}\r\n", bytes.len()))
    }

    pub(super) fn token(&mut self) -> bool {
        self.chunk(
            "data: {\"choices\":[{\"index\":0,\"text\":\" word\",\"finish_reason\":null}]}\n\n",
        )
    }

    /// The end of an answer of `completion` tokens to a prompt of `prompt`.
    pub(super) fn finish(&mut self, prompt: usize, completion: u64) -> bool {
        self.chunk(
            "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n",
        );
        let usage = format!("{{\"prompt_tokens\":{prompt},\"completion_tokens\":{completion}}}");
        self.chunk(&format!(
            "data: {{\"choices\":[],\"usage\":{usage}}}\n\ndata: [DONE]\n\n"
        ));
        self.write("0\r\n\r\n")
    }

    /// A whole answer at once.
    pub(super) fn answer(&mut self, request: &Request) {
        self.open();
        for _ in 0..request.max_tokens() {
            self.token();
        }
        self.finish(request.prompt_tokens(), request.max_tokens());
    }

    fn write(&mut self, text: &str) -> bool {
        self.0.write_all(text.as_bytes()).is_ok()
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut headers: Vec<String> = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim_end().is_empty() {
            break;
        }
        headers.push(line.trim_end().to_ascii_lowercase());
    }
    let path = headers.first()?.split(' ').nth(1)?.to_owned();
    let length = headers
        .iter()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    Some(Request {
        path,
        headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    })
}
