//! A collector that says which spans it has been sent.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::{ANSWERS, CALLER, TRACE, free_port, until};
use crate::peers;
use crate::served::Running;

const ROTEL: &[&str] = &["rotel==0.0.1a15"];

/// The collector; killed when dropped.
pub(super) struct Collector {
    _process: Running,
    pub(super) address: String,
    /// What it says.
    output: PathBuf,
}

impl Collector {
    pub(super) fn start(folder: &Path) -> Result<Self> {
        let programs = peers::environment(&folder.join("venv"), ROTEL)?;
        let asked = Command::new(programs.join("python"))
            .args(["-c", "import rotel; print(rotel.__path__[0])"])
            .output()?;
        let package = String::from_utf8(asked.stdout)?;
        let program = Path::new(package.trim()).join("rotel-agent");
        let output = folder.join("spans.txt");
        let file = File::create(&output)?;
        let (http, grpc) = (free_port()?, free_port()?);
        let process = Command::new(&program)
            .arg("start")
            .args(["--otlp-http-endpoint", &format!("127.0.0.1:{http}")])
            .args(["--otlp-grpc-endpoint", &format!("127.0.0.1:{grpc}")])
            .args(["--exporter", "blackhole"])
            .args(["--debug-log", "traces"])
            .args(["--debug-log-verbosity", "detailed"])
            .stdout(file.try_clone()?)
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self {
            _process: Running(process),
            address: format!("http://127.0.0.1:{http}"),
            output,
        })
    }

    /// Every answer's spans have come, in the caller's trace.
    pub(super) fn check(&self) -> Result<()> {
        let answers = 2 * ANSWERS;
        // An answer's own span and its three phases; the refused request has but its own.
        let spans = 4 * answers + 1;
        let text = until("every span has come", || {
            let text = fs::read_to_string(&self.output)?;
            let count = text.matches("Trace ID").count();
            Ok((count >= spans).then_some(text))
        })?;
        for (said, count) in [
            (format!("Trace ID       : {TRACE}"), spans),
            (format!("Parent ID      : {CALLER}"), answers + 1),
            ("Kind           : SPAN_KIND_SERVER".into(), answers + 1),
            ("Name           : queue".into(), answers),
            ("Name           : prefill".into(), answers),
            ("Name           : decode".into(), answers),
            ("-> gen_ai.provider.name: Str(andante)".into(), answers + 1),
            ("-> gen_ai.usage.output_tokens: Int(".into(), answers),
            ("-> http.response.status_code: Int(200)".into(), answers),
            ("-> http.response.status_code: Int(400)".into(), 1),
            ("-> error.type: Str(400)".into(), 1),
        ] {
            let found = text.matches(&said).count();
            ensure!(
                found == count,
                "`{said}` {found} times, not {count}:\n{text}"
            );
        }
        Ok(())
    }
}
