//! `cargo xtask watch`: what watches a server, beside a real one: Prometheus scrapes it and answers every question of the dashboard, a
//! collector of other people's takes its spans, and the trace of whole sessions is read.
//!
//! Prometheus is Debian's package; the collector is rotel, from PyPI.

mod collector;
mod prometheus;

use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::clients;
use crate::served::{self, Server};
use collector::Collector;
use prometheus::Prometheus;

/// The trace and the span that a caller says it is in.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// Answers that are asked for, of each kind.
const ANSWERS: usize = 3;

const PATH: &str = "/v1/chat/completions";

/// How long a watcher may take to see what has happened.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs every check.
pub(crate) fn run(root: &Path) -> Result<()> {
    let folder = root.join("target/watch");
    fs::create_dir_all(&folder).context("cannot make target/watch")?;
    prometheus::check_files(root)?;
    clients::build(root)?;
    clients::model(root)?;
    let collector = Collector::start(&folder)?;
    let trace = folder.join("trace.jsonl");
    let args = [
        "--otlp-endpoint".as_ref(),
        OsStr::new(&collector.address),
        "--trace".as_ref(),
        trace.as_os_str(),
    ];
    // Spans wait five seconds for company unless told otherwise.
    let hurry = [("OTEL_BSP_SCHEDULE_DELAY", "200")];
    let server = Server::start(&clients::program(root), &args, &hurry)?;
    let prometheus = Prometheus::start(root, &folder, &server.address)?;
    // Rates need a count before.
    prometheus.wait("up == 1")?;
    ask(&server.address)?;
    prometheus.check(root, &server.address, 2 * ANSWERS)?;
    collector.check()?;
    check_trace(&trace)
}

/// Chats, streams of them, and a request that is refused.
fn ask(address: &str) -> Result<()> {
    let caller = format!("traceparent: 00-{TRACE}-{CALLER}-01\r\n");
    for number in 0..ANSWERS {
        for stream in [false, true] {
            let body = json!({
                "messages": [{"role": "user", "content": format!("Say {number}")}],
                "temperature": 0, "max_tokens": 8, "stream": stream,
            });
            let (status, answer) = served::post(address, PATH, &caller, &body)?;
            ensure!(status == 200, "{status}: {answer}");
        }
    }
    let (status, answer) = served::post(address, PATH, &caller, &json!({"messages": 1}))?;
    ensure!(status == 400, "{status}: {answer}");
    Ok(())
}

/// The trace is whole and private.
fn check_trace(path: &Path) -> Result<()> {
    let mode = fs::metadata(path)?.permissions().mode();
    ensure!(mode & 0o077 == 0, "others may read the trace: {mode:o}");
    let text = until("the trace has every answer's end", || {
        let text = fs::read_to_string(path)?;
        let ends = text.matches("\"event\":\"end\"").count();
        Ok((ends == 2 * ANSWERS).then_some(text))
    })?;
    let lines: Vec<Value> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<serde_json::Result<_>>()
        .context("the trace is no JSON")?;
    let prompts = lines.iter().filter_map(|line| line["prompt"].as_str());
    let told = prompts.filter(|prompt| prompt.contains("Say 1")).count();
    ensure!(told == 2, "{told} of the two prompts are in the trace");
    Ok(())
}

/// Tries until there is something.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let since = Instant::now();
    loop {
        if let Some(found) = attempt()? {
            return Ok(found);
        }
        if since.elapsed() > PATIENCE {
            bail!("in vain waited that {what}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A port that nobody has taken.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
