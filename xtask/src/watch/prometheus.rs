//! Prometheus with the configuration that is deployed.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::{free_port, until};
use crate::peers;
use crate::served::{self, Running};

/// Prometheus; killed when dropped.
pub(super) struct Prometheus {
    _process: Running,
    address: String,
}

/// What is in `deploy/` is what its own tools want.
pub(super) fn check_files(root: &Path) -> Result<()> {
    for args in [
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
    ] {
        let command = &mut Command::new("promtool");
        peers::run(command.args(args).current_dir(root.join("deploy")))
            .context("Debian's package prometheus has it")?;
    }
    Ok(())
}

impl Prometheus {
    /// Scrapes the server at `target` every second.
    pub(super) fn start(root: &Path, folder: &Path, target: &str) -> Result<Self> {
        let deployed = fs::read_to_string(root.join("deploy/prometheus.yml"))?;
        let rules = root.join("deploy/alerts.yml");
        let config = deployed
            .replace("127.0.0.1:8000", target)
            .replace("scrape_interval: 5s", "scrape_interval: 1s")
            .replace("alerts.yml", &rules.to_string_lossy());
        let path = folder.join("prometheus.yml");
        fs::write(&path, config)?;
        let data = folder.join("prometheus");
        if data.exists() {
            fs::remove_dir_all(&data)?;
        }
        let address = format!("127.0.0.1:{}", free_port()?);
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", path.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=error")
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start prometheus; Debian's package has that name")?;
        Ok(Self {
            _process: Running(process),
            address,
        })
    }

    /// What it knows to this question; nothing while it does not answer yet.
    fn query(&self, question: &str) -> Result<Option<Vec<Value>>> {
        let path = format!("/api/v1/query?query={}", escape(question));
        let Ok(answer) = served::get(&self.address, &path) else {
            return Ok(None);
        };
        let Ok(answer) = serde_json::from_str::<Value>(&answer) else {
            return Ok(None);
        };
        if answer["status"] != "success" {
            bail!("`{question}`: {answer}");
        }
        Ok(answer["data"]["result"].as_array().cloned())
    }

    /// Until something answers the question.
    pub(super) fn wait(&self, question: &str) -> Result<Vec<Value>> {
        until(question, || {
            let found = self.query(question)?.unwrap_or_default();
            Ok((!found.is_empty()).then_some(found))
        })
    }

    /// It has counted these answers, and can answer what the dashboard asks.
    pub(super) fn check(&self, root: &Path, target: &str, answers: usize) -> Result<()> {
        check_format(target)?;
        let ended = "sum(andante_requests_total{outcome=~\"stop|length\"})";
        self.wait(&format!("{ended} == {answers}"))?;
        self.wait("sum(andante_http_refusals_total{status=\"400\"}) == 1")?;
        let tokens = "sum(andante_tokens_total{kind=~\"decode|cached\"}) > 0";
        self.wait(tokens)?;
        let dashboard = fs::read_to_string(root.join("deploy/grafana.json"))?;
        let dashboard: Value = serde_json::from_str(&dashboard)?;
        let panels = dashboard["panels"].as_array().context("no panels")?;
        let targets = panels
            .iter()
            .filter_map(|panel| panel["targets"].as_array());
        let mut questions = 0;
        for target in targets.flatten() {
            let question = target["expr"].as_str().context("a panel asks nothing")?;
            let question = question
                .replace("$instance", ".*")
                .replace("$__rate_interval", "1m");
            // Without a store there is nothing to say of it, nor of violations where there are none.
            let may_be_silent = ["andante_kv_store", "_violations_", "_refusals_"]
                .iter()
                .any(|name| question.contains(name));
            // A rate has an answer from the second scrape on.
            if may_be_silent {
                self.query(&question)?;
            } else {
                self.wait(&question)?;
            }
            questions += 1;
        }
        ensure!(questions > 30, "a dashboard of {questions} questions");
        Ok(())
    }
}

/// `promtool check metrics` has nothing to say of the server's answer.
fn check_format(target: &str) -> Result<()> {
    let metrics = served::get(target, "/metrics")?;
    let mut tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot start promtool")?;
    let mut input = tool.stdin.take().context("it has an input")?;
    input.write_all(metrics.as_bytes())?;
    drop(input);
    let status = tool.wait()?;
    ensure!(status.success(), "promtool check metrics ({status})");
    Ok(())
}

/// For the query of an address.
fn escape(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
