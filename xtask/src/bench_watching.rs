//! `cargo xtask bench-watching`: what it costs a server to be watched, by turns with and without: a reader of the timeline as the page
//! is one, `andante top`, and a scrape of the metrics each second.
//!
//! The watchers run on the same machine. What they compute themselves takes time from the server where no core is left for
//! them, so that `--threads` should leave one: what remains is what the server does for them.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;

use crate::andante;
use crate::served::{self, Running, Server};

/// Tokens of each answer.
const TOKENS: usize = 256;

struct Options {
    rounds: usize,
    sessions: usize,
    threads: usize,
}

#[expect(clippy::print_stdout, reason = "a command-line tool talks to its user")]
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    let options = Options::parse(args)?;
    let program = andante::build(root)?;
    let (sessions, threads) = (options.sessions.to_string(), options.threads.to_string());
    let args = [
        "--sessions",
        &sessions,
        "--ctx",
        "1024",
        "--threads",
        &threads,
    ];
    let server = Server::start(&program, &args.map(AsRef::as_ref), &[])?;
    // Unmeasured: the server learns what its steps take.
    generate(&server.address, options.sessions)?;
    let mut ratios = Vec::new();
    println!("tokens/s of {sessions} answers at once, {threads} threads\n");
    println!("| round | alone | watched | ratio |\n| ---: | ---: | ---: | ---: |");
    for round in 0..options.rounds {
        // Each comes first in half of the rounds.
        let (mut alone, mut watched) = (0.0, 0.0);
        for turn in [round % 2 == 0, round % 2 != 0] {
            if turn {
                alone = generate(&server.address, options.sessions)?;
            } else {
                let watchers = Watchers::attach(&program, &server.address)?;
                watched = generate(&server.address, options.sessions)?;
                watchers.leave()?;
            }
        }
        println!(
            "| {} | {alone:.1} | {watched:.1} | {:.4} |",
            round + 1,
            watched / alone
        );
        ratios.push(watched / alone);
    }
    ratios.sort_by(f64::total_cmp);
    println!("\nmedian of the ratios: {:.4}", ratios[ratios.len() / 2]);
    Ok(())
}

impl Options {
    fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self {
            rounds: 11,
            sessions: 16,
            threads: 1,
        };
        for pair in args.chunks(2) {
            let [name, value] = pair else {
                bail!("{} needs a number", pair[0]);
            };
            let value = value.parse().with_context(|| name.clone())?;
            match name.as_str() {
                "--rounds" => options.rounds = value,
                "--sessions" => options.sessions = value,
                "--threads" => options.threads = value,
                _ => bail!("{name} is not known: --rounds N, --sessions N, --threads N"),
            }
        }
        ensure!(options.rounds > 0, "--rounds: at least one");
        Ok(options)
    }
}

/// Tokens per second of so many answers at once.
fn generate(address: &str, sessions: usize) -> Result<f64> {
    let since = Instant::now();
    let clients: Vec<_> = (0..sessions)
        .map(|number| {
            let address = address.to_owned();
            thread::spawn(move || {
                let body = json!({
                    "prompt": format!("{number}"), "max_tokens": TOKENS, "ignore_eos": true, "temperature": 0,
                });
                served::ask(&address, "/v1/completions", &body)
            })
        })
        .collect();
    let mut tokens = 0;
    for client in clients {
        let answer = client.join().expect("no panic")?;
        let count = answer["usage"]["completion_tokens"].as_u64();
        tokens += count.with_context(|| format!("no answer but {answer}"))?;
    }
    ensure!(tokens == (sessions * TOKENS) as u64, "{tokens} tokens");
    Ok(tokens as f64 / since.elapsed().as_secs_f64())
}

/// Everybody who watches.
struct Watchers {
    _top: Running,
    leaving: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<usize>>>,
}

impl Watchers {
    fn attach(program: &Path, address: &str) -> Result<Self> {
        let top = Command::new(program)
            .arg("top")
            .arg(format!("http://{address}"))
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start andante top")?;
        let leaving = Arc::new(AtomicBool::new(false));
        let (page, scraper) = (address.to_owned(), address.to_owned());
        let (page_leaves, scraper_leaves) = (Arc::clone(&leaving), Arc::clone(&leaving));
        let threads = vec![
            thread::spawn(move || follow(&page, &page_leaves)),
            thread::spawn(move || scrape(&scraper, &scraper_leaves)),
        ];
        Ok(Self {
            _top: Running(top),
            leaving,
            threads,
        })
    }

    /// An error if one of them has seen nothing.
    fn leave(self) -> Result<()> {
        self.leaving.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let seen = thread.join().expect("no panic")?;
            ensure!(seen > 0, "a watcher has seen nothing");
        }
        Ok(())
    }
}

/// Reads the timeline as it comes; its bytes.
fn follow(address: &str, leaving: &AtomicBool) -> Result<usize> {
    let mut stream = served::open(address, "/timeline/events")?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    let (mut bytes, mut buffer) = (0, [0; 1 << 16]);
    while !leaving.load(Ordering::Relaxed) {
        // Nothing new in that time, or some of it.
        bytes += stream.read(&mut buffer).unwrap_or(0);
    }
    Ok(bytes)
}

/// Reads the metrics each second; their bytes.
fn scrape(address: &str, leaving: &AtomicBool) -> Result<usize> {
    let mut bytes = 0;
    while !leaving.load(Ordering::Relaxed) {
        bytes += served::get(address, "/metrics")?.len();
        thread::sleep(Duration::from_secs(1));
    }
    Ok(bytes)
}
