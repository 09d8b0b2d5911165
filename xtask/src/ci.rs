//! `cargo xtask ci`: every check, in the order in which a mistake is cheapest to find.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// What is tested beside the usual program: what packages have.
pub(crate) const FEATURES: &str = "andante-cli/otlp";

/// Runs all checks from `root`; the first failure ends the run.
pub(crate) fn run(root: &Path) -> Result<()> {
    step("tidy", || crate::tidy::run(root))?;
    cargo(root, "format", &["fmt", "--all", "--check"], &[])?;
    // As anybody builds it, and with all that is tested.
    for features in ["", FEATURES] {
        let mut clippy = vec!["clippy", "--workspace", "--all-targets", "--locked"];
        clippy.extend(["--features", features, "--", "-D", "warnings"]);
        cargo(root, "clippy", &clippy, &[])?;
    }
    let tests = ["test", "--workspace", "--features", FEATURES, "--locked"];
    cargo(root, "tests", &tests, &[])?;
    step("clients", || crate::clients::run(root, &[]))?;
    step("clients on a real model", || {
        crate::clients::run(root, &["--real".to_owned()])
    })?;
    step("watch", || crate::watch::run(root))?;
    step("page", || crate::page::run(root, &[]))?;
    // Once more by itself: how many states there are is a result.
    cargo(
        root,
        "exploration",
        &[
            "test",
            "--locked",
            "-p",
            "andante-sched",
            "--lib",
            "explore",
            "--",
            "--nocapture",
        ],
        &[],
    )?;
    step("mutants", || crate::mutants::run(root))?;
    if crate::callgrind::is_available() {
        step("callgrind", || crate::callgrind::run(root, false))?;
    }
    if crate::package::can_check() {
        step("package", || {
            crate::package::package(root, &["--check".to_owned()])
        })?;
    }
    let target = root.join("target/loom");
    cargo(
        root,
        "loom",
        &["test", "--locked", "-p", "andante-engine", "--lib", "loom"],
        &[
            ("RUSTFLAGS", "--cfg loom"),
            // Another flag for every crate: a folder of its own, so that nothing else is built again.
            ("CARGO_TARGET_DIR", &target.to_string_lossy()),
        ],
    )?;
    cargo(
        root,
        "docs",
        &["doc", "--workspace", "--no-deps", "--locked"],
        &[("RUSTDOCFLAGS", "-D warnings")],
    )
}

fn cargo(root: &Path, name: &str, args: &[&str], envs: &[(&str, &str)]) -> Result<()> {
    step(name, || {
        let status = Command::new(env!("CARGO"))
            .args(args)
            .envs(envs.iter().copied())
            .current_dir(root)
            .status()
            .with_context(|| format!("cannot start cargo {}", args[0]))?;
        if !status.success() {
            bail!("cargo {} failed ({status})", args.join(" "));
        }
        Ok(())
    })
}

#[expect(clippy::print_stderr, reason = "a command-line tool talks to its user")]
fn step(name: &str, check: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("== {name}");
    let start = Instant::now();
    check().with_context(|| format!("{name} failed"))?;
    eprintln!("== {name}: passed in {:.0?}", start.elapsed());
    Ok(())
}
