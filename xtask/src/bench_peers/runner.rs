//! Who is measured, and how each is asked to do the same work.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::results::{FIRST_TOKEN, MEMORY, Sample};

/// Tests that one process runs.
pub(super) struct Group {
    pub(super) name: &'static str,
    work: Work,
}

enum Work {
    /// Prompt lengths, tokens to generate, batches, depth: options of `andante bench` and of the peers' driver.
    Speed([&'static str; 4]),
    Memory,
    FirstToken,
}

impl Group {
    pub(super) fn all(quick: bool) -> Vec<Self> {
        let speed = |name, arguments| Self {
            name,
            work: Work::Speed(arguments),
        };
        if quick {
            return vec![
                speed("prompt", ["512", "0", "1", "0"]),
                speed("generation", ["0", "32", "1,4", "0"]),
            ];
        }
        vec![
            speed("prompts", ["512,2048", "0", "1", "0"]),
            speed("generation", ["0", "64", "1,4,16", "0"]),
            speed("generation at depth 4096", ["0", "64", "1", "4096"]),
            Self {
                name: "memory",
                work: Work::Memory,
            },
            Self {
                name: "first token",
                work: Work::FirstToken,
            },
        ]
    }

    /// One token after the other, for one sequence.
    pub(super) fn generation() -> Self {
        Self {
            name: "generation",
            work: Work::Speed(["0", "64", "1", "0"]),
        }
    }
}

/// One program.
pub(super) struct Runner {
    pub(super) name: &'static str,
    kind: Kind,
}

enum Kind {
    Andante(PathBuf),
    Peer {
        python: PathBuf,
        driver: PathBuf,
        binding: &'static str,
        /// Options that this peer needs on this machine.
        extra: Vec<&'static str>,
    },
}

impl Runner {
    /// Andante, and the peers that can work with all of the `models`.
    pub(super) fn all(
        root: &Path,
        andante: &Path,
        python: &Path,
        models: &[&Path],
    ) -> Result<Vec<Self>> {
        let driver = root.join("scripts/bench_peer.py");
        let mut all = vec![Self {
            name: "andante",
            kind: Kind::Andante(andante.to_owned()),
        }];
        for (name, binding, extra) in [
            ("llama.cpp", "llama_cpp", vec![]),
            // Its AMX code faults on some virtual machines; the packages that this command builds leave it out.
            ("llama.cpp", "llama_cpp", vec!["--no-extra-buffers"]),
            ("ik_llama.cpp", "ik_llama_cpp", vec![]),
        ] {
            let peer = Self {
                name,
                kind: Kind::Peer {
                    python: python.to_owned(),
                    driver: driver.clone(),
                    binding,
                    extra,
                },
            };
            let is_new = all.iter().all(|other| other.name != name);
            if is_new && models.iter().all(|model| peer.memory(model, 2).is_ok()) {
                all.push(peer);
            }
        }
        if all.len() < 2 {
            bail!("no peer could be started by {}", python.display());
        }
        Ok(all)
    }

    /// How it is run, if not as it comes.
    pub(super) fn remark(&self) -> Option<String> {
        match &self.kind {
            Kind::Peer { extra, .. } if !extra.is_empty() => {
                Some(format!("{} ran with {}.", self.name, extra.join(" ")))
            }
            _ => None,
        }
    }

    pub(super) fn measure(
        &self,
        group: &Group,
        model: &Path,
        threads: usize,
    ) -> Result<Vec<Sample>> {
        match group.work {
            Work::Speed(arguments) => self.speed(arguments, model, threads),
            Work::Memory => Ok(vec![self.memory(model, threads)?]),
            Work::FirstToken => Ok(vec![self.first_token(model, threads)?]),
        }
    }

    fn speed(
        &self,
        [prompt, tokens, batch, depth]: [&str; 4],
        model: &Path,
        threads: usize,
    ) -> Result<Vec<Sample>> {
        let mut command = self.command("speed", model, threads);
        command.args([
            "-p", prompt, "-n", tokens, "-b", batch, "-d", depth, "-r", "1",
        ]);
        let lines = json_lines(&mut command)?;
        Ok(lines.iter().filter_map(Sample::of_speed).collect())
    }

    /// The peak of a process that loads, takes a prompt of 512 and generates 64 tokens, without the interpreter's own.
    fn memory(&self, model: &Path, threads: usize) -> Result<Sample> {
        let mut command = self.command("memory", model, threads);
        if matches!(self.kind, Kind::Andante(_)) {
            command.args([
                "--no-ceiling",
                "-p",
                "0",
                "-n",
                "64",
                "-d",
                "512",
                "-r",
                "1",
            ]);
        }
        let lines = json_lines(&mut command)?;
        let number = |key: &str| lines.iter().find_map(|line| line[key].as_f64());
        let peak = number("peak_bytes").context("it reports no peak memory")?;
        let bytes = peak - number("interpreter_bytes").unwrap_or(0.0);
        Ok(Sample::cost(MEMORY, bytes / f64::from(1 << 20)))
    }

    /// Andante from its start to the first byte of its answer; a peer from when its interpreter is ready.
    fn first_token(&self, model: &Path, threads: usize) -> Result<Sample> {
        let Kind::Andante(program) = &self.kind else {
            let lines = json_lines(&mut self.command("first-token", model, threads))?;
            let seconds = lines.iter().find_map(|line| line["seconds"].as_f64());
            return Ok(Sample::cost(
                FIRST_TOKEN,
                1000.0 * seconds.context("it reports no time")?,
            ));
        };
        let start = Instant::now();
        let mut process = Command::new(program)
            .args([
                "run",
                "--raw",
                "--temperature",
                "0",
                "-n",
                "1",
                "--ctx",
                "2048",
            ])
            .args([
                "--sessions",
                "1",
                "--threads",
                &threads.to_string(),
                "--model",
            ])
            .arg(model)
            .arg("hi")
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start andante run")?;
        let mut byte = [0];
        let mut answer = process.stdout.take().context("there is a pipe")?;
        answer.read_exact(&mut byte)?;
        let elapsed = start.elapsed();
        process.wait()?;
        Ok(Sample::cost(FIRST_TOKEN, 1000.0 * elapsed.as_secs_f64()))
    }

    fn command(&self, what: &str, model: &Path, threads: usize) -> Command {
        let threads = threads.to_string();
        match &self.kind {
            Kind::Andante(program) => {
                let mut command = Command::new(program);
                command.args(["bench", "--json", "--threads", &threads, "--model"]);
                command.arg(model);
                command
            }
            Kind::Peer {
                python,
                driver,
                binding,
                extra,
            } => {
                let mut command = Command::new(python);
                command.arg(driver).args([what, binding]).arg(model);
                command.args(["--threads", &threads]).args(extra);
                command
            }
        }
    }
}

fn json_lines(command: &mut Command) -> Result<Vec<Value>> {
    let output = command
        .stderr(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    // What a process measured before it died counts: a peer may have no way to do the last test.
    let lines: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    if lines.is_empty() {
        bail!("it measured nothing ({})", output.status);
    }
    Ok(lines)
}
