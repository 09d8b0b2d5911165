//! A server that runs somewhere, as the commands ask it that talk to one or watch one.

use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use ureq::http::header;
use ureq::{Agent, Body, http};

/// The default address of `serve`.
pub(crate) const USUAL: &str = "http://127.0.0.1:8000";

/// How long a server that is there takes to accept a connection.
const PATIENCE: Duration = Duration::from_secs(2);

/// A server and the key for it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    agent: Agent,
    base: String,
    key: Option<String>,
}

impl Peer {
    /// The server at `url`, as people write it: with or without `/v1`.
    pub(crate) fn new(url: &str, key: Option<String>) -> Self {
        let base = url.trim_end_matches('/').trim_end_matches("/v1").to_owned();
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(PATIENCE))
            // A server takes a request in, or refuses it, at once; bodies may take long.
            .timeout_recv_response(Some(10 * PATIENCE))
            .build()
            .new_agent();
        Self { agent, base, key }
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// The body at `path`, as it comes.
    pub(crate) fn get(&self, path: &str) -> Result<impl Read + use<>> {
        let mut request = self.agent.get(format!("{}{path}", self.base));
        if let Some(key) = &self.key {
            request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        }
        self.body(request.call())
    }

    /// The JSON document at `path`.
    pub(crate) fn json(&self, path: &str) -> Result<Value> {
        let document = serde_json::from_reader(BufReader::new(self.get(path)?));
        document.with_context(|| format!("{}{path} is not JSON", self.base))
    }

    /// The answer to `body`, as it comes.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<impl Read + use<>> {
        let mut request = self
            .agent
            .post(format!("{}{path}", self.base))
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        }
        self.body(request.send(body.to_string()))
    }

    /// The body of an answer; an error with the server's own words where it has refused.
    fn body(&self, answer: Result<http::Response<Body>, ureq::Error>) -> Result<impl Read + use<>> {
        let answer = answer.with_context(|| format!("no server answers at {}", self.base))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer.into_body().into_reader());
        }
        let text = answer.into_body().read_to_string().unwrap_or_default();
        let json: Value = serde_json::from_str(&text).unwrap_or_default();
        match json["error"]["message"].as_str() {
            Some(message) => bail!("{message}"),
            None => bail!("{} answers {status}", self.base),
        }
    }
}

/// An event of a stream of server-sent events, by its name (`message` where it has none) and its data.
#[derive(Debug, PartialEq)]
pub(crate) struct ServerEvent {
    pub(crate) name: String,
    pub(crate) data: String,
}

/// The events of a stream as they come. An error is a connection that broke. Format: WHATWG HTML, "Server-sent events", §9.2.6;
/// identifiers and waits for reconnection are not for us.
pub(crate) fn events(stream: impl Read) -> impl Iterator<Item = std::io::Result<ServerEvent>> {
    let mut lines = BufReader::new(stream).lines();
    std::iter::from_fn(move || {
        let (mut name, mut data) = (String::new(), None::<String>);
        loop {
            let line = match lines.next()? {
                Ok(line) => line,
                Err(error) => return Some(Err(error)),
            };
            if line.is_empty() {
                if let Some(data) = data.take() {
                    let name = if name.is_empty() {
                        "message".to_owned()
                    } else {
                        name
                    };
                    return Some(Ok(ServerEvent { name, data }));
                }
                name.clear();
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match (field, &mut data) {
                ("event", _) => value.clone_into(&mut name),
                ("data", Some(data)) => {
                    data.push('\n');
                    data.push_str(value);
                }
                ("data", None) => data = Some(value.to_owned()),
                _ => {}
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_names_and_data() {
        let stream = ": comment\n\nevent: state\r\ndata: {\"a\":\r\ndata:1}\r\n\r\nevent: lost\n\ndata\n\ndata: cut";
        let events: Vec<_> = events(stream.as_bytes())
            .map(|event| event.expect("read"))
            .collect();
        let event = |name: &str, data: &str| ServerEvent {
            name: name.into(),
            data: data.into(),
        };
        assert_eq!(
            events,
            [event("state", "{\"a\":\n1}"), event("message", "")]
        );
    }

    #[test]
    fn an_address_may_end_as_people_write_it() {
        for url in [
            "http://h:1",
            "http://h:1/",
            "http://h:1/v1",
            "http://h:1/v1/",
        ] {
            assert_eq!(Peer::new(url, None).base(), "http://h:1");
        }
    }
}
