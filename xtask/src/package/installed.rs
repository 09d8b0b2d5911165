//! The Debian package in a folder that stands for a system: installed by dpkg, started as its service would, asked, removed.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::peers;
use crate::served::{self, Server};

/// What must be there for people.
const FILES: [&str; 8] = [
    "usr/bin/andante",
    "usr/lib/systemd/system/andante.service",
    "etc/andante/andante.toml",
    "usr/share/man/man1/andante.1.gz",
    "usr/share/man/man1/andante-serve.1.gz",
    "usr/share/bash-completion/completions/andante",
    "usr/share/zsh/vendor-completions/_andante",
    "usr/share/fish/vendor_completions.d/andante.fish",
];

/// Installs `package` below `target`, checks it and removes it.
pub(super) fn check(root: &Path, package: &Path) -> Result<()> {
    let system = root.join("target/installed");
    if system.exists() {
        fs::remove_dir_all(&system)?;
    }
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates"] {
        fs::create_dir_all(system.join(folder))?;
    }
    fs::write(system.join("var/lib/dpkg/status"), "")?;
    dpkg(&system, &["--install".as_ref(), package.as_os_str()])?;
    for file in FILES {
        ensure!(system.join(file).exists(), "the package has no {file}");
    }
    let server = start(&system)?;
    peers::run(
        Command::new(system.join("usr/bin/andante"))
            .args(["health", &format!("http://{}", server.address)]),
    )?;
    let question =
        json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "temperature": 0});
    let answer = served::ask(&server.address, "/v1/chat/completions", &question)?;
    let tokens = answer["usage"]["completion_tokens"].as_u64();
    ensure!(
        tokens.is_some_and(|tokens| (1..=4).contains(&tokens)),
        "no answer: {answer}"
    );
    drop(server);
    dpkg(&system, &["--purge".as_ref(), "andante".as_ref()])?;
    for file in FILES {
        ensure!(!system.join(file).exists(), "{file} is left behind");
    }
    Ok(fs::remove_dir_all(&system)?)
}

/// Starts the server by the service's settings, but with its state in this system's folders.
fn start(system: &Path) -> Result<Server> {
    let settings = system.join("etc/andante/andante.toml");
    let text = fs::read_to_string(&settings)?;
    let state = system.join("var/lib/andante");
    let moved = text.replace("/var/lib/andante", &state.to_string_lossy());
    ensure!(
        moved != text,
        "the service's settings do not name its state folder"
    );
    let settings = system.join("settings.toml");
    fs::write(&settings, moved)?;
    let args = ["--config".as_ref(), settings.as_os_str()];
    Server::start(&system.join("usr/bin/andante"), &args, &[])
}

fn dpkg(system: &Path, args: &[&std::ffi::OsStr]) -> Result<()> {
    peers::run(
        Command::new("dpkg")
            .arg(format!("--root={}", system.display()))
            // No other packages are there, nobody need be root, and scripts run outside of the folder.
            .args([
                "--force-depends",
                "--force-not-root",
                "--force-script-chrootless",
            ])
            .arg(format!("--log={}", system.join("dpkg.log").display()))
            .args(args),
    )
}
