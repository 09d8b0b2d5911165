//! Repository chores: `cargo xtask ci` is the one test command, for people and for CI.
#![forbid(unsafe_code)]

mod ci;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <command>

  ci      format, clippy, tidy, all tests, docs: what must pass before a change lands
  tidy    only the repository's own rules
";

#[expect(clippy::print_stderr, reason = "a command-line tool talks to its user")]
fn main() -> ExitCode {
    let command = std::env::args().nth(1);
    let result = match command.as_deref() {
        Some("ci") => ci::run(&root()),
        Some("tidy") => tidy::run(&root()),
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
