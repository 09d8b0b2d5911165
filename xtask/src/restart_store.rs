//! `cargo xtask restart-store`: a long conversation whose server is killed and started again in between, beside one whose
//! server is not.
//!
//! Every answer must be the same on both, and on a server that has never heard of the conversation; the first token after a
//! restart must come nearly as soon as without one.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::served::{Server, ask, first_token};
use crate::{andante, peers};

/// Turns of the conversation: together some 7,000 tokens.
const TURNS: u64 = 50;
/// Tokens of an answer.
const ANSWER: u64 = 45;
/// The turns after which the server is restarted, and how often.
const RESTARTS: [u64; 3] = [9, 24, 49];
const TRIALS: u64 = 5;
/// How long clients take to come back.
const PAUSE: Duration = Duration::from_secs(1);
/// How much longer a first token may take after a restart.
const MOST: f64 = 1.2;

/// The program, its model, and where its servers keep their KV.
struct Setup {
    program: PathBuf,
    model: PathBuf,
    folders: PathBuf,
}

#[expect(clippy::print_stdout, reason = "a command-line tool talks to its user")]
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    if !args.is_empty() {
        bail!("restart-store takes no arguments");
    }
    let program = andante::build(root)?;
    let setup = Setup {
        model: andante::pull(&program, "smollm2")?,
        program,
        folders: root.join("target/restart-store"),
    };
    if setup.folders.exists() {
        fs::remove_dir_all(&setup.folders)?;
    }
    let (steady, cold) = (setup.start(Some("steady"))?, setup.start(None)?);
    let mut restarted = setup.start(Some("restarted"))?;
    let (mut messages, mut worst) = (Vec::new(), 0.0_f64);
    for turn in 0..TURNS {
        messages.push(user(turn, 0));
        let answer = chat(&steady, &messages)?;
        if chat(&restarted, &messages)? != answer {
            bail!("turn {turn}: the server that was restarted answers otherwise");
        }
        messages.push(json!({"role": "assistant", "content": answer}));
        if !RESTARTS.contains(&turn) {
            continue;
        }
        let mut times = Vec::new();
        for trial in 1..=TRIALS {
            drop(restarted);
            restarted = setup.start(Some("restarted"))?;
            thread::sleep(PAUSE);
            messages.push(user(turn, trial));
            let body = body(&messages);
            let (expected, steady_time) = first_token(&steady.address, &body)?;
            let (text, time) = first_token(&restarted.address, &body)?;
            if text != expected {
                bail!("turn {turn}: another answer after a restart");
            }
            if chat(&cold, &messages)? != expected {
                bail!("turn {turn}: another answer on a server without a store");
            }
            messages.pop();
            times.push((steady_time, time));
        }
        let (steady_time, time) = (median(&times, |t| t.0), median(&times, |t| t.1));
        let ratio = time.as_secs_f64() / steady_time.as_secs_f64();
        worst = worst.max(ratio);
        println!(
            "after {} tokens: first token {:.0} ms without a restart, {:.0} ms with one: {ratio:.2}",
            tokens(&cold, &messages)?,
            steady_time.as_secs_f64() * 1e3,
            time.as_secs_f64() * 1e3,
        );
    }
    drop((steady, restarted));
    let folder = setup.folders.join("restarted");
    peers::run(
        std::process::Command::new(&setup.program)
            .args(["kv", "verify"])
            .arg(folder),
    )?;
    if worst > MOST {
        bail!("a first token took {worst:.2} times as long after a restart");
    }
    Ok(())
}

impl Setup {
    fn start(&self, folder: Option<&str>) -> Result<Server> {
        let folder = folder.map(|name| self.folders.join(name));
        let plain = ["--sessions", "1", "--ctx", "8192", "--model"].map(OsStr::new);
        let mut args = plain.to_vec();
        args.push(self.model.as_os_str());
        if let Some(folder) = &folder {
            args.extend([OsStr::new("--kv-disk-dir"), folder.as_os_str()]);
        }
        Server::start(&self.program, &args, &[])
    }
}

fn body(messages: &[Value]) -> Value {
    json!({
        "messages": messages,
        "max_tokens": ANSWER,
        "temperature": 0,
        "stream": true,
    })
}

fn chat(server: &Server, messages: &[Value]) -> Result<String> {
    Ok(first_token(&server.address, &body(messages))?.0)
}

/// The tokens of a prompt.
fn tokens(server: &Server, messages: &[Value]) -> Result<u64> {
    let body = json!({"messages": messages, "max_tokens": 1});
    let answer = ask(&server.address, "/v1/chat/completions", &body)?;
    let tokens = &answer["usage"]["prompt_tokens"];
    tokens.as_u64().context("the answer says how many tokens")
}

/// A question of some 90 tokens. Answers are greedy and end by themselves, so that they are spelt as the tokenizer does it: else a
/// server that has never heard of them would get other prompts.
fn user(turn: u64, variant: u64) -> Value {
    const THINGS: [&str; 7] = [
        "river", "stone", "cloud", "garden", "winter", "mirror", "harbour",
    ];
    let thing = |step: u64| THINGS[((turn * step + variant) % 7) as usize];
    let content = format!(
        "Question {turn}.{variant}: my brother says that the {} near our house is older than the {} in the valley, and that \
         nobody remembers who built the {}. Please tell me in simple words what you think about it, and why a {} matters. By the way, I have {} of them, and number {turn} is my favourite; what \
         would you do with so many, and would you keep them?",
        thing(1),
        thing(2),
        thing(3),
        thing(5),
        3 * turn + 2
    );
    json!({"role": "user", "content": content})
}

fn median(
    times: &[(Duration, Duration)],
    of: impl Fn(&(Duration, Duration)) -> Duration,
) -> Duration {
    let mut times: Vec<Duration> = times.iter().map(of).collect();
    times.sort();
    times[times.len() / 2]
}
