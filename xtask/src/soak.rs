//! `cargo xtask soak [LOGS]`: random event logs in virtual time until no doubt is left.
//!
//! A log that breaks an invariant is shrunk, printed, and kept under `crates/sched/proptest-regressions`, where every later
//! test run tries it first: commit it with the fix.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Logs for each property when the caller names no number.
const LOGS: u64 = 1_000_000;

/// The properties that hold for any log; each runs on a thread of its own.
const PROPERTIES: [&str; 2] = [
    "random::any_log_keeps_the_invariants",
    "random::exact_costs_keep_the_stall_bound",
];

/// Tries `logs` random logs on every property.
pub(crate) fn run(root: &Path, logs: Option<&str>) -> Result<()> {
    let logs = match logs {
        None => LOGS,
        Some(text) => text.parse().context("the number of logs")?,
    };
    let status = Command::new(env!("CARGO"))
        .args([
            "test",
            "--release",
            "--locked",
            "-p",
            "andante-sched",
            "--lib",
            "--",
        ])
        .args(PROPERTIES)
        .env("PROPTEST_CASES", logs.to_string())
        .current_dir(root)
        .status()
        .context("cannot start cargo test")?;
    if !status.success() {
        bail!("a log breaks an invariant: see above");
    }
    Ok(())
}
