//! Repository chores: `cargo xtask ci` is the one test command, for people and for CI.
#![forbid(unsafe_code)]

mod andante;
mod bench_depth;
mod bench_peers;
mod bench_stalls;
mod bench_watching;
mod callgrind;
mod ci;
mod clients;
mod docs;
mod kill_store;
mod mutants;
mod package;
mod page;
mod peers;
mod restart_store;
mod served;
mod shared_store;
mod soak;
mod tidy;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <command>

  ci      format, clippy, tidy, all tests, clients, mutants, loom, docs: what must pass before a change lands
  tidy    only the repository's own rules
  mutants takes each safeguard of the scheduler away and asks that its test fails
  callgrind [--record]
          counts the instructions of the main kernels under valgrind and compares with the counts that are kept
  soak [LOGS]
          random event logs of the scheduler, a million unless told otherwise
  kill-store [--runs N]
          kills a server on one KV folder at random instants, 1,000 times unless told otherwise: no answer may be wrong,
          the folder never over its budget, no start longer than two seconds
  restart-store
          kills the server of a conversation of 7,000 tokens and starts it again: the same answers as without that, and on
          a server that knows nothing, and first tokens within 1.2 times
  clients [--real | --agents | --llama-server]
          installs the SDKs that people call such servers with, and runs their programs in scripts/clients against a
          server whose model follows a script, and schemathesis against its OpenAPI document; with --real, other programs
          against a real model; with --agents, installs coding agents and has them do a task; with --llama-server, runs
          llama.cpp's own tests of its server
  page [NAME…]
          drives the page in Chromium (Debian's package) against real servers: chat, schedule, hostile answers, keys,
          accessibility; of the modules in scripts/page that are named, or all that check something
  watch   has Prometheus (Debian's package) scrape a server and answer the dashboard's questions, a collector of OpenTelemetry's spans
          take its requests, and reads its trace of whole sessions
  docs    makes docs/metrics.md anew from the code
  shared-store
          two servers share their KV through an S3-compatible server from a Python package, which then goes away
  package [--check]
          makes a Debian package in target/package; with --check installs it into a folder, starts its server, asks it and
          removes it
  dist [--check]
          makes an archive, its checksums and a bill of materials in target/dist; with --check makes them twice and compares
  bench-peers [--rounds N] [--threads N,N] [--files NAME,NAME] [--quick] [--busy] [--python PATH]
          installs llama.cpp and ik_llama.cpp, measures both and andante by turns on the same files, writes the
          ratios into docs/performance.md; --quick measures little and writes nothing; --busy measures what
          generation loses to another process on one of the cores; --python takes one that has the packages
  bench-depth [--threads N] [--python PATH]
          time of a generated token by the tokens before it, on the random DeepSeek V4, and its figure for the documentation
  bench-stalls [--rounds N] [--sessions N] [--threads N] [--long TOKENS]
          builds llama-server and andante, probes both by turns, prints the ratios that are to hold
  bench-watching [--rounds N] [--sessions N] [--threads N]
          generation with and without a reader of the timeline, `andante top` and a scrape each second, by turns
";

#[expect(clippy::print_stderr, reason = "a command-line tool talks to its user")]
fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.first().map(String::as_str) {
        Some("ci") => ci::run(&root()),
        Some("tidy") => tidy::run(&root()),
        Some("mutants") => mutants::run(&root()),
        Some("soak") => soak::run(&root(), args.get(1).map(String::as_str)),
        Some("callgrind") => {
            callgrind::run(&root(), args.get(1).is_some_and(|arg| arg == "--record"))
        }
        Some("kill-store") => kill_store::run(&root(), &args[1..]),
        Some("restart-store") => restart_store::run(&root(), &args[1..]),
        Some("clients") => clients::run(&root(), &args[1..]),
        Some("page") => page::run(&root(), &args[1..]),
        Some("watch") => watch::run(&root()),
        Some("docs") => docs::run(&root()),
        Some("shared-store") => shared_store::run(&root(), &args[1..]),
        Some("package") => package::package(&root(), &args[1..]),
        Some("dist") => package::dist(&root(), &args[1..]),
        Some("bench-peers") => bench_peers::run(&root(), &args[1..]),
        Some("bench-depth") => bench_depth::run(&root(), &args[1..]),
        Some("bench-stalls") => bench_stalls::run(&root(), &args[1..]),
        Some("bench-watching") => bench_watching::run(&root(), &args[1..]),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's root folder, whatever folder the command was started in.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies below the root")
        .to_path_buf()
}
