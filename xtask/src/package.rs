//! `cargo xtask package` and `cargo xtask dist`: what is installed elsewhere.
//!
//! The Debian package holds the program, its pages, completions and a service. The archive holds the same files for other systems, beside
//! checksums and a bill of materials, and comes out the same to the byte wherever the same sources are built by the same compiler.

mod archive;
mod installed;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::ci::FEATURES;
use crate::peers;

/// What makes Debian packages of Rust programs.
const CARGO_DEB: (&str, &str) = ("cargo-deb", "3.8.0");

/// What lists the crates that a program is made of.
const CYCLONEDX: (&str, &str) = ("cargo-cyclonedx", "0.5.9");

/// Most that the service may be exposed, by `systemd-analyze security`, in tenths.
const MAX_EXPOSURE: u32 = 20;

/// Builds the package; with `--check` installs it into a folder of its own, starts what it holds, asks, and removes it.
pub(crate) fn package(root: &Path, args: &[String]) -> Result<()> {
    let check = match args {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => bail!("the only argument is --check"),
    };
    let package = build(root)?;
    if check {
        check_service(root)?;
        installed::check(root, &package)?;
    }
    say(&package)
}

/// Builds the archive and all that is published beside it; with `--check` twice, comparing.
pub(crate) fn dist(root: &Path, args: &[String]) -> Result<()> {
    match args {
        [] => archive::build(root, "dist"),
        [flag] if flag == "--check" => archive::check(root),
        _ => bail!("the only argument is --check"),
    }
}

/// Whether this machine has what the check needs.
pub(crate) fn can_check() -> bool {
    let there = |program: &str| {
        let asked = Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        asked.is_ok_and(|status| status.success())
    };
    there("dpkg") && there("systemd-analyze")
}

fn build(root: &Path) -> Result<PathBuf> {
    let program = crate::andante::build_with(root, &["--features", FEATURES])?;
    extras(root, &program)?;
    let tool = tool(root, CARGO_DEB)?;
    let folder = root.join("target/package");
    peers::run(
        Command::new(tool)
            .args([
                "--package",
                "andante-cli",
                "--no-build",
                "--locked",
                "--output",
            ])
            .arg(&folder)
            .current_dir(root),
    )?;
    let mut packages = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "deb") {
            packages.push(path);
        }
    }
    ensure!(
        packages.len() == 1,
        "{} packages in {}",
        packages.len(),
        folder.display()
    );
    packages.pop().context("no package")
}

/// Writes the manual's pages and completions where the package's description expects them.
fn extras(root: &Path, program: &Path) -> Result<()> {
    let folder = root.join("target/package");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    peers::run(Command::new(program).arg("manual").arg(folder.join("man")))?;
    for shell in ["bash", "zsh", "fish"] {
        let script = Command::new(program)
            .args(["completions", shell])
            .output()?;
        ensure!(script.status.success(), "no completions for {shell}");
        fs::write(folder.join(format!("andante.{shell}")), script.stdout)?;
    }
    Ok(())
}

/// A program of crates.io, installed into `target/tools` once.
fn tool(root: &Path, (name, version): (&str, &str)) -> Result<PathBuf> {
    let folder = root.join("target/tools");
    let path = folder.join("bin").join(name);
    let known = Command::new(&path).arg("--version").output();
    if known.is_ok_and(|answer| String::from_utf8_lossy(&answer.stdout).contains(version)) {
        return Ok(path);
    }
    peers::run(
        Command::new(env!("CARGO"))
            .args([
                "install",
                "--locked",
                "--quiet",
                "--version",
                version,
                name,
                "--root",
            ])
            .arg(&folder)
            // Where it is built is kept, so that another version is quickly there.
            .env("CARGO_TARGET_DIR", root.join("target/tools/build")),
    )?;
    Ok(path)
}

/// The service must be well-formed and locked up.
fn check_service(root: &Path) -> Result<()> {
    let answer = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager"])
        .arg(format!("--threshold={MAX_EXPOSURE}"))
        .arg(root.join("deploy/andante.service"))
        .output()?;
    ensure!(
        answer.status.success(),
        "deploy/andante.service: {}{}",
        String::from_utf8_lossy(&answer.stdout),
        String::from_utf8_lossy(&answer.stderr)
    );
    Ok(())
}

#[expect(
    clippy::print_stdout,
    reason = "the path of what was made is the result"
)]
fn say(path: &Path) -> Result<()> {
    println!("{}", path.display());
    Ok(())
}
