//! A streamed request with as little work as possible while it runs: the probe shares the server's cores, and its own
//! work would show as the server's. Bytes and times are kept, and understood after the round.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use ureq::Agent;
use ureq::http::header;

use super::sse::{Body, EventCount};

/// A thread only waits for its socket; TLS needs some room.
const STACK_BYTES: usize = 256 << 10;

/// How often another thread looks at what has come.
const GLANCE: Duration = Duration::from_millis(5);

/// What is the same for all requests to a server.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    /// Scheme, host and port, without a slash at the end.
    pub(super) base: String,
    pub(super) path: &'static str,
    pub(super) key: Option<String>,
}

/// What a request gave: its bytes, not yet understood.
#[derive(Debug)]
pub(super) struct Recording {
    /// Just before the connection was opened.
    pub(super) sent: Instant,
    pub(super) ended: Instant,
    /// None when no status line came.
    pub(super) status: Option<u16>,
    /// What the server asked to wait before the next try.
    pub(super) retry_after_s: Option<u64>,
    pub(super) body: Body,
    /// Why the connection or its body broke off, unless the probe itself ended it.
    pub(super) broken: Option<String>,
    /// The probe ended it.
    pub(super) stopped: bool,
}

/// A request that a thread is reading the answer of.
#[derive(Debug)]
pub(super) struct Running {
    thread: JoinHandle<Recording>,
    line: Line,
}

/// Connections of one client, which another thread can watch and end.
#[derive(Clone, Debug)]
pub(super) struct Line {
    agent: Agent,
    live: Arc<Live>,
}

#[derive(Debug, Default)]
struct Live {
    events: AtomicUsize,
    stopped: AtomicBool,
}

impl Endpoint {
    /// Starts a thread that sends `body` and records the answer.
    pub(super) fn start(&self, body: String, tenant: Option<String>) -> Result<Running> {
        let line = Line::new();
        let (endpoint, reading) = (self.clone(), line.clone());
        let thread = thread::Builder::new()
            .name("probe-stream".into())
            .stack_size(STACK_BYTES)
            .spawn(move || endpoint.record(&reading, &body, tenant.as_deref()))
            .context("cannot start a thread")?;
        Ok(Running { thread, line })
    }

    /// A JSON document of the server.
    pub(super) fn get(&self, line: &Line, path: &str) -> Result<Value> {
        let mut request = line.agent.get(format!("{}{path}", self.base));
        if let Some(key) = &self.key {
            request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        }
        let mut answer = request
            .call()
            .with_context(|| format!("cannot reach {}", self.base))?;
        if !answer.status().is_success() {
            bail!("{path} answers {}", answer.status());
        }
        let text = answer.body_mut().read_to_string()?;
        serde_json::from_str(&text).with_context(|| format!("{path} is not JSON"))
    }

    /// Sends `body` and records the answer, in this thread.
    pub(super) fn record(&self, line: &Line, body: &str, tenant: Option<&str>) -> Recording {
        let mut request = line
            .agent
            .post(format!("{}{}", self.base, self.path))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "text/event-stream");
        if let Some(key) = &self.key {
            request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        }
        if let Some(tenant) = tenant {
            request = request.header("x-tenant", tenant);
        }
        let sent = Instant::now();
        let mut recording = Recording {
            sent,
            ended: sent,
            status: None,
            retry_after_s: None,
            body: Body::default(),
            broken: None,
            stopped: false,
        };
        match request.send(body) {
            Ok(answer) => {
                recording.status = Some(answer.status().as_u16());
                let retry_after = answer.headers().get(header::RETRY_AFTER);
                recording.retry_after_s = retry_after
                    .and_then(|value| value.to_str().ok())
                    .and_then(|seconds| seconds.parse().ok());
                recording.read(answer.into_body().into_reader(), &line.live);
            }
            Err(error) => recording.broken = Some(error.to_string()),
        }
        recording.ended = Instant::now();
        recording.stopped = line.is_stopped();
        if recording.stopped {
            recording.broken = None;
        }
        recording
    }
}

impl Recording {
    /// The hot loop: the time first, then two copies and a count.
    fn read(&mut self, mut body: impl Read, live: &Live) {
        let mut buffer = vec![0; 16 << 10];
        let mut count = EventCount::default();
        loop {
            match body.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => {
                    let now = Instant::now();
                    self.body.push(now, &buffer[..length]);
                    let events = count.add(&buffer[..length]);
                    live.events.fetch_add(events, Ordering::Release);
                }
                Err(error) => {
                    self.broken = Some(error.to_string());
                    return;
                }
            }
        }
    }
}

impl Line {
    /// Without a proxy, since what stands between is not what is measured; and with a new connection for every request,
    /// since an old one may be closed by the server at any time.
    pub(super) fn new() -> Self {
        let config = Agent::config_builder()
            .proxy(None)
            .max_idle_connections(0)
            .http_status_as_error(false)
            .user_agent(concat!("andante-probe/", env!("CARGO_PKG_VERSION")));
        Self {
            agent: config.build().into(),
            live: Arc::default(),
        }
    }

    /// Ends all connections, now and later, which cancels the requests.
    pub(super) fn stop(&self) {
        self.live.stopped.store(true, Ordering::Release);
        self.agent.clone().shutdown();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.live.stopped.load(Ordering::Acquire)
    }
}

impl Running {
    /// Events so far; comments count as events here.
    pub(super) fn events(&self) -> usize {
        self.line.live.events.load(Ordering::Acquire)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until the answer has ended or `events` events are there; false when that is not so by `deadline`.
    pub(super) fn wait_for(&self, events: usize, deadline: Instant) -> bool {
        while self.events() < events && !self.has_ended() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(GLANCE);
        }
        true
    }

    /// The whole answer; what there is of it at `deadline`.
    pub(super) fn finish(self, deadline: Instant) -> Recording {
        self.wait_for(usize::MAX, deadline);
        self.stop()
    }

    /// Ends the connection, which cancels the request, and gives what has come.
    pub(super) fn stop(self) -> Recording {
        if !self.has_ended() {
            self.line.stop();
        }
        self.thread
            .join()
            .expect("reading an answer does not panic")
    }
}

#[cfg(test)]
mod tests;
