//! Our own program, as a user would build and use it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::peers;

/// The program, built now.
pub(crate) fn build(root: &Path) -> Result<PathBuf> {
    build_with(root, &[])
}

/// The program, built now with these further arguments to cargo.
pub(crate) fn build_with(root: &Path, args: &[&str]) -> Result<PathBuf> {
    peers::run(
        Command::new(env!("CARGO"))
            .args(["build", "--release", "--locked", "--package", "andante-cli"])
            .args(args)
            .current_dir(root),
    )?;
    Ok(root.join("target/release/andante"))
}

/// The path of a model that it knows by name, fetched if need be.
pub(crate) fn pull(andante: &Path, name: &str) -> Result<PathBuf> {
    let pulled = Command::new(andante)
        .args(["pull", name])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start andante pull")?;
    if !pulled.status.success() {
        bail!("andante pull {name} failed ({})", pulled.status);
    }
    Ok(String::from_utf8(pulled.stdout)?.trim().into())
}
