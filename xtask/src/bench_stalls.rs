//! `cargo xtask bench-stalls`: the stall probe on Andante and on llama-server, and on Andante with fixed prompt chunks;
//! the same model, threads and room, one server after the other, round after round.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{andante, peers};

/// What may be chosen on the command line.
struct Options {
    rounds: usize,
    sessions: usize,
    threads: usize,
    long: usize,
}

/// Tokens that a session may hold.
const CONTEXT: usize = 8192;

/// The fixed chunks of which the best is compared with.
const CHUNKS: [usize; 3] = [512, 1024, 2048];

/// A server to measure.
struct Contestant {
    name: String,
    program: PathBuf,
    args: Vec<String>,
}

/// A running server; ended when dropped.
struct Server {
    process: Child,
    port: u16,
}

/// A measure of the probe's report: its key, its name.
const MEASURES: [(&str, &str); 10] = [
    ("calm_gap_ms", "calm token gap ms"),
    ("longest_gap_ms", "longest gap ms"),
    ("contended_gap_p99_ms", "contended gap p99 ms"),
    ("fewest_tokens", "tokens of the worst-off answer meanwhile"),
    ("newcomer_ttft_ms", "newcomer: first token ms"),
    ("long_ttft_s", "long prompt: first token s"),
    ("alone_ttft_s", "long prompt alone: first token s"),
    ("long_slowdown", "long prompt: slowdown"),
    (
        "contended_tokens_per_s",
        "tokens/s until the long prompt's first token",
    ),
    ("work_tokens_per_s", "tokens/s over the whole work"),
];

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool talks to its user"
)]
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    let options = Options::parse(args)?;
    let llama_server = peers::llama_server(root)?;
    let andante = andante::build(root)?;
    let contestants = contestants(
        &options,
        &andante,
        &llama_server,
        &andante::pull(&andante, "smollm2")?.to_string_lossy(),
    );
    let mut results = vec![Vec::new(); contestants.len()];
    for round in 1..=options.rounds {
        for (contestant, results) in contestants.iter().zip(&mut results) {
            eprintln!("round {round} of {}: {}", options.rounds, contestant.name);
            let server = contestant.start(&root.join("target/peers"))?;
            results.push(probe(&andante, server.port, options.long)?);
        }
    }
    println!("{}", table(&contestants, &results));
    let (text, all_hold) = gates(&results);
    println!("{text}");
    if !all_hold {
        bail!("not every gate holds");
    }
    Ok(())
}

impl Options {
    fn parse(args: &[String]) -> Result<Self> {
        let threads = thread::available_parallelism().map_or(2, usize::from);
        let mut options = Self {
            rounds: 3,
            sessions: 3,
            threads,
            long: 5000,
        };
        for pair in args.chunks(2) {
            let [name, value] = pair else {
                bail!("{} wants a number", pair[0]);
            };
            let number = value
                .parse()
                .ok()
                .filter(|number| *number > 0)
                .with_context(|| format!("{name} {value}: not a number above 0"))?;
            match name.as_str() {
                "--rounds" => options.rounds = number,
                "--sessions" => options.sessions = number,
                "--threads" => options.threads = number,
                "--long" => options.long = number,
                _ => bail!("{name} is not known: --rounds, --sessions, --threads, --long"),
            }
        }
        Ok(options)
    }
}

/// Andante as it is, llama-server, and Andante with each fixed chunk.
fn contestants(
    options: &Options,
    andante: &Path,
    llama_server: &Path,
    model: &str,
) -> Vec<Contestant> {
    let (threads, sessions) = (options.threads, options.sessions);
    let split = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let ours = |name: String, more: &str| Contestant {
        name,
        program: andante.to_owned(),
        args: split(format!(
            "serve --threads {threads} --sessions {sessions} --max-active {} --ctx {CONTEXT}{more} --model",
            sessions + 1
        )),
    };
    let theirs = Contestant {
        name: "llama-server".into(),
        program: llama_server.to_owned(),
        args: split(format!(
            "--threads {threads} --threads-batch {threads} --parallel {sessions} --ctx-size {} --host 127.0.0.1 --model",
            sessions * CONTEXT
        )),
    };
    let mut all = vec![ours("andante".into(), ""), theirs];
    all.extend(CHUNKS.map(|chunk| {
        let fixed = format!(" --max-stall-ms 600000 --mixed-prefill-quantum {chunk}");
        ours(format!("andante, chunks of {chunk}"), &fixed)
    }));
    for contestant in &mut all {
        contestant.args.push(model.to_owned());
    }
    all
}

impl Contestant {
    /// Starts the server on a free port and waits until it is ready. What it says goes into a file in `logs`.
    fn start(&self, logs: &Path) -> Result<Server> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port();
        let path = logs.join(format!("{}.log", self.name.replace([' ', ','], "-")));
        let log =
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let process = Command::new(&self.program)
            .args(&self.args)
            .args(["--port", &port.to_string()])
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        let mut server = Server { process, port };
        let deadline = Instant::now() + Duration::from_mins(2);
        while !healthy(port) {
            let ended = server.process.try_wait()?;
            if ended.is_some() || Instant::now() > deadline {
                bail!("{} did not get ready, see {}", self.name, path.display());
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether `GET /health` answers 200; both servers have it.
fn healthy(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream
            .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// One round of the probe: the measures by their keys.
fn probe(andante: &Path, port: u16, long: usize) -> Result<Value> {
    let output = Command::new(andante)
        .args([
            "probe",
            &format!("http://127.0.0.1:{port}"),
            "--json",
            "--alone",
        ])
        .args(["--long", &long.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start andante probe")?;
    if !output.status.success() {
        bail!("the probe measured nothing");
    }
    let mut report: Value =
        serde_json::from_slice(&output.stdout).context("the probe's report is not JSON")?;
    Ok(report["median"].take())
}

fn table(contestants: &[Contestant], results: &[Vec<Value>]) -> String {
    let mut text = "| medians |".to_owned();
    for contestant in contestants {
        let _ = write!(text, " {} |", contestant.name);
    }
    text += "\n| --- |";
    text += &" ---: |".repeat(contestants.len());
    for (key, name) in MEASURES {
        let _ = write!(text, "\n| {name} |");
        for results in results {
            let _ = write!(text, " {:.2} |", median(results, key));
        }
    }
    text + "\n"
}

/// A ratio that is to hold: its name, the least that it may be.
const GATES: [(&str, f64); 3] = [
    ("longest gap, llama-server's over ours", 100.0),
    ("newcomer's first token, llama-server's over ours", 10.0),
    (
        "tokens/s over the whole work, ours over the best fixed chunk's",
        0.97,
    ),
];

/// The ratios of the medians and of every round, and whether the former hold.
fn gates(results: &[Vec<Value>]) -> (String, bool) {
    let rounds = results.iter().map(Vec::len).min().unwrap_or(0);
    let by_round: Vec<_> = (0..rounds)
        .map(|round| ratios(results, round..round + 1))
        .collect();
    let overall = ratios(results, 0..rounds);
    let mut text =
        "| ratio | of medians | at least | | by round |\n| --- | ---: | ---: | --- | --- |\n"
            .to_owned();
    let mut all_hold = true;
    for (index, (name, least)) in GATES.into_iter().enumerate() {
        let holds = overall[index] >= least;
        let verdict = if holds { "holds" } else { "missed" };
        let _ = write!(
            text,
            "| {name} | {:.3} | {least} | {verdict} |",
            overall[index]
        );
        for ratios in &by_round {
            let _ = write!(text, " {:.3}", ratios[index]);
        }
        text += " |\n";
        all_hold &= holds;
    }
    (text, all_hold)
}

/// The ratios of the gates over the medians of some rounds: ours come first, then llama-server's, then the fixed chunks'.
fn ratios(results: &[Vec<Value>], rounds: Range<usize>) -> [f64; 3] {
    let of = |contestant: usize, key| median(&results[contestant][rounds.clone()], key);
    let over = |key| of(1, key) / of(0, key);
    let fixed = (2..results.len()).map(|contestant| of(contestant, "work_tokens_per_s"));
    [
        over("longest_gap_ms"),
        over("newcomer_ttft_ms"),
        of(0, "work_tokens_per_s") / fixed.fold(0.0, f64::max),
    ]
}

/// The median over rounds; not a number where it was not measured.
fn median(rounds: &[Value], key: &str) -> f64 {
    let mut values: Vec<f64> = rounds
        .iter()
        .filter_map(|round| round[key].as_f64())
        .collect();
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => f64::NAN,
        (length, middle) if length % 2 == 1 => values[middle],
        (_, middle) => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests;
