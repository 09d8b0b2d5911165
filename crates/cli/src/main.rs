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
mod log;
mod models;
mod notify;
mod objects;
#[cfg(feature = "otlp")]
mod otlp;
mod output;
mod peer;
mod plot;
mod progress;
mod report;
mod session;
mod settings;
mod statistics;
mod trace;
mod watchdog;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, ConfigCommand};
use settings::Settings;

/// What the program was called with. Under the name of ds4-server it does what that does, by the same flags.
fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let name = arguments.first().map(Path::new).and_then(Path::file_name);
    if name == Some(OsStr::new("ds4-server")) {
        arguments.insert(1, "serve".into());
    }
    arguments
}

#[expect(
    clippy::print_stderr,
    reason = "a command-line tool tells its user what went wrong"
)]
fn main() -> ExitCode {
    let result =
        settings::gather(arguments(), std::env::vars_os()).and_then(|settings| run(&settings));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = format!("{error:#}");
            eprintln!("andante: {}", output::visible(&text, output::OF_TEXT));
            ExitCode::FAILURE
        }
    }
}

fn run(settings: &Settings) -> anyhow::Result<()> {
    match Cli::parse_from(&settings.arguments).command {
        Command::Config(ConfigCommand::Check(_)) => {
            commands::config::check(&settings.arguments, &settings.origins)
        }
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
        Command::Chat(args) => commands::chat::run(&args),
        Command::Top(args) => commands::top::run(&args),
        Command::Health(args) => commands::health::run(&args),
        Command::Completions(args) => commands::manual::completions(&args),
        Command::Manual(args) => commands::manual::pages(&args),
        Command::Serve(args) => commands::serve::run(&args),
    }
}
