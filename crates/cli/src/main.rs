//! The `andante` program: arguments to configuration, choice of backend, and the commands.
//!
//! Knows: the command line, the environment, files on this machine. Does not know: how anything is computed.
#![forbid(unsafe_code)]

mod access;
mod args;
mod backend;
#[cfg(feature = "s3")]
mod bucket;
mod commands;
mod footprint;
mod models;
mod objects;
mod output;
mod plot;
mod progress;
mod session;
mod statistics;
mod trace;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

#[expect(
    clippy::print_stderr,
    reason = "a command-line tool tells its user what went wrong"
)]
fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Pull(args) => commands::pull::run(&args),
        Command::Inspect(args) => commands::inspect::run(&args),
        Command::Logits(args) => commands::logits::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Perplexity(args) => commands::perplexity::run(&args),
        Command::Simulate(args) => commands::simulate::run(&args),
        Command::Kv(command) => commands::kv::run(&command),
        Command::Probe(args) => commands::probe::run(&args),
        Command::Quantize(args) => commands::quantize::run(&args),
        Command::Tokens(args) => commands::tokens::run(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("andante: {error:#}");
            ExitCode::FAILURE
        }
    }
}
