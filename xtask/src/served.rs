//! A server of our own as a child process, and requests to it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

/// A process; killed when dropped.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // SIGKILL.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A server; killed when dropped.
pub(crate) struct Server {
    _process: Running,
    pub(crate) address: String,
    /// From its start to the line that says where it listens.
    pub(crate) start: Duration,
}

impl Server {
    /// Starts `andante serve` on a free port with these further arguments and variables.
    pub(crate) fn start(
        program: &Path,
        args: &[&OsStr],
        variables: &[(&str, &str)],
    ) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .args(["serve", "--port", "0"])
            .args(args)
            .envs(variables.iter().copied())
            .stderr(Stdio::null());
        Self::of(command)
    }

    /// Starts a program whose first line says where it listens.
    pub(crate) fn of(mut command: Command) -> Result<Self> {
        let since = Instant::now();
        let mut process = command
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the server")?;
        let mut line = String::new();
        let output = process.stdout.take().context("it has an output")?;
        BufReader::new(output).read_line(&mut line)?;
        let address = line
            .trim_end()
            .rsplit_once("http://")
            .context("the server does not say where it listens")?
            .1
            .to_owned();
        Ok(Self {
            _process: Running(process),
            address,
            start: since.elapsed(),
        })
    }
}

/// The whole answer to a request.
pub(crate) fn ask(address: &str, path: &str, body: &Value) -> Result<Value> {
    let (_, body) = post(address, path, "", body)?;
    Ok(serde_json::from_str(&body)?)
}

/// The status and the body of the answer to a request with these further header lines.
pub(crate) fn post(
    address: &str,
    path: &str,
    headers: &str,
    body: &Value,
) -> Result<(u16, String)> {
    read(send(address, path, headers, body)?)
}

/// The body at a path.
pub(crate) fn get(address: &str, path: &str) -> Result<String> {
    Ok(read(open(address, path)?)?.1)
}

/// Asks for what is at a path.
pub(crate) fn open(address: &str, path: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n")?;
    Ok(stream)
}

fn read(mut stream: TcpStream) -> Result<(u16, String)> {
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    let status = head.split(' ').nth(1).context("no status")?;
    Ok((status.parse()?, body.to_owned()))
}

/// The text of a streamed chat answer, and how long its first piece took.
pub(crate) fn first_token(address: &str, body: &Value) -> Result<(String, Duration)> {
    let since = Instant::now();
    let stream = BufReader::new(send(address, "/v1/chat/completions", "", body)?);
    let (mut text, mut first) = (String::new(), None);
    for line in stream.lines() {
        let line = line?;
        let Some(data) = line.strip_prefix("data: {") else {
            continue;
        };
        let event: Value = serde_json::from_str(&format!("{{{data}"))?;
        if let Some(piece) = event["choices"][0]["delta"]["content"].as_str()
            && !piece.is_empty()
        {
            first.get_or_insert_with(|| since.elapsed());
            text += piece;
        }
    }
    Ok((text, first.context("the answer is empty")?))
}

fn send(address: &str, path: &str, headers: &str, body: &Value) -> Result<TcpStream> {
    let body = body.to_string();
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "POST {path} HTTP/1.0\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    )?;
    Ok(stream)
}
