//! `cargo xtask kill-store`: a server on one KV folder, killed with SIGKILL at random instants under load, over and over.
//!
//! After every death the folder must be within its budget, the next start must be quick, and every answer must be that of a
//! server without a store.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::served::{self, Server};
use crate::{andante, peers};

/// Kills, unless the caller wants another number.
const RUNS: u64 = 1000;
/// Room for less than half of the KV of the prompts, 20 MB, so that there is always something to give up.
const BUDGET_MB: u64 = 8;
/// Requests at once.
const CLIENTS: u64 = 3;
/// A life is at most this long after its start.
const LIFE: Duration = Duration::from_millis(1500);
/// The longest start that is good.
const START: Duration = Duration::from_secs(2);

/// What has been seen over all runs.
#[derive(Default)]
struct Seen {
    answers: AtomicU64,
    wrong: AtomicU64,
    cached_tokens: AtomicU64,
    prompt_tokens: AtomicU64,
}

#[expect(clippy::print_stdout, reason = "a command-line tool talks to its user")]
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    let runs = match args {
        [] => RUNS,
        [flag, runs] if flag == "--runs" => runs.parse().context("the number of runs")?,
        _ => bail!("kill-store [--runs N]"),
    };
    let program = andante::build(root)?;
    let model = andante::pull(&program, "smollm2")?;
    let folder = root.join("target/kill-store");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let prompts: Vec<String> = (0..12).map(prompt).collect();
    let cold = start(&program, &model, None)?;
    let expected: Result<Vec<String>> = prompts
        .iter()
        .map(|prompt| Ok(ask(&cold.address, prompt)?.0))
        .collect();
    let expected = expected.context("the server without a store fails")?;
    drop(cold);
    let (seen, mut longest_start, mut most_bytes) = (Seen::default(), Duration::ZERO, 0);
    for number in 0..runs {
        let server = start(&program, &model, Some(&folder))?;
        longest_start = longest_start.max(server.start);
        live(server, number, &prompts, &expected, &seen);
        let bytes = size(&folder)?;
        most_bytes = most_bytes.max(bytes);
        if bytes > BUDGET_MB * 1_000_000 {
            bail!("after death {number} the folder takes {bytes} bytes");
        }
        if seen.wrong.load(Ordering::Relaxed) > 0 {
            bail!("an answer before death {number} is wrong");
        }
        if number % 50 == 49 {
            println!("{} deaths, {}", number + 1, seen.text());
        }
    }
    peers::run(Command::new(&program).args(["kv", "verify"]).arg(&folder))?;
    println!(
        "{runs} deaths, {}; longest start {} ms, at most {:.1} of {BUDGET_MB} MB",
        seen.text(),
        longest_start.as_millis(),
        most_bytes as f64 / 1e6
    );
    if longest_start > START {
        bail!("a start took longer than {} s", START.as_secs());
    }
    Ok(())
}

/// Asks from several threads until the server is killed.
fn live(server: Server, number: u64, prompts: &[String], expected: &[String], seen: &Seen) {
    let mut random = Random(number + 1);
    let life = LIFE.mul_f64(random.next() as f64 / u64::MAX as f64);
    let address = server.address.clone();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (address, mut random) = (&address, Random(number * CLIENTS + client + 1_000_000));
            scope.spawn(move || {
                loop {
                    let index = (random.next() % prompts.len() as u64) as usize;
                    // An error is the server's death.
                    let Ok((text, usage)) = ask(address, &prompts[index]) else {
                        return;
                    };
                    let count = |value: &Value| value.as_u64().unwrap_or(0);
                    let cached = count(&usage["prompt_tokens_details"]["cached_tokens"]);
                    seen.answers.fetch_add(1, Ordering::Relaxed);
                    seen.cached_tokens.fetch_add(cached, Ordering::Relaxed);
                    seen.prompt_tokens
                        .fetch_add(count(&usage["prompt_tokens"]), Ordering::Relaxed);
                    if text != expected[index] {
                        seen.wrong.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        thread::sleep(life);
        drop(server);
    });
}

impl Seen {
    fn text(&self) -> String {
        format!(
            "{} answers, {} wrong, {} of {} prompt tokens cached",
            self.answers.load(Ordering::Relaxed),
            self.wrong.load(Ordering::Relaxed),
            self.cached_tokens.load(Ordering::Relaxed),
            self.prompt_tokens.load(Ordering::Relaxed)
        )
    }
}

/// A server with room for two sessions, killed when dropped.
fn start(program: &Path, model: &Path, folder: Option<&Path>) -> Result<Server> {
    let budget = BUDGET_MB.to_string();
    let plain = ["--sessions", "2", "--ctx", "2048", "--model"].map(OsStr::new);
    let mut args = plain.to_vec();
    args.push(model.as_os_str());
    if let Some(folder) = folder {
        args.extend([OsStr::new("--kv-disk-dir"), folder.as_os_str()]);
        args.extend(["--kv-disk-space-mb", &budget].map(OsStr::new));
    }
    Server::start(program, &args, &[])
}

/// The answer to a prompt, and what it has used.
fn ask(address: &str, prompt: &str) -> Result<(String, Value)> {
    let body = json!({"prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": true});
    let mut answer = served::ask(address, "/v1/completions", &body)?;
    let text = answer["choices"][0]["text"].as_str().context("no text")?;
    Ok((text.to_owned(), answer["usage"].take()))
}

/// Prompts of up to some hundred tokens; four begin alike in every group of three.
fn prompt(number: u64) -> String {
    let mut words = Random(number % 3 + 1);
    let mut text = String::new();
    for _ in 0..60 + 40 * (number / 3) {
        text += [
            "river ", "stone ", "cloud ", "garden ", "winter ", "mirror ",
        ][(words.next() % 6) as usize];
    }
    text + &format!("number {number} is")
}

/// What the folder takes, every file rounded up to 4 KiB.
fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() != "lock" {
            bytes += entry.metadata()?.len().next_multiple_of(4096);
        }
    }
    Ok(bytes)
}

/// The finaliser of SplitMix64 over a counter: the same deaths in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}
