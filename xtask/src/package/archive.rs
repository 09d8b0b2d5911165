//! The archive that is published, its checksums and its bill of materials.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use cargo_metadata::MetadataCommand;

use super::{CYCLONEDX, extras, tool};
use crate::ci::FEATURES;
use crate::peers;

/// What goes into the archive beside the program, its pages and completions.
const DOCUMENTS: [&str; 4] = [
    "README.md",
    "LICENSE",
    "deploy/andante.service",
    "deploy/andante.toml",
];

/// Builds in `target/<folder>` and puts the results there.
pub(super) fn build(root: &Path, folder: &str) -> Result<()> {
    let out = root.join("target").join(folder);
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    let program = program(root, &out)?;
    let name = format!(
        "andante-{}-{}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    );
    let tree = out.join(&name);
    fs::create_dir_all(&tree)?;
    fs::copy(&program, tree.join("andante"))?;
    for document in DOCUMENTS {
        let path = root.join(document);
        let file = path.file_name().context("a file")?;
        fs::copy(&path, tree.join(file))?;
    }
    extras(root, &program)?;
    peers::run(
        Command::new("cp")
            .arg("-r")
            .arg(root.join("target/package/."))
            .arg(&tree),
    )?;
    let archive = out.join(format!("{name}.tar.gz"));
    pack(&out, &name, &archive, &committed(root)?)?;
    materials(root, &out, &name)?;
    fs::remove_dir_all(&tree)?;
    let sums = Command::new("sh")
        .args([
            "-c",
            "sha256sum -- *.tar.gz *.json > SHA256SUMS && cat SHA256SUMS",
        ])
        .current_dir(&out)
        .status()?;
    ensure!(sums.success(), "cannot write checksums");
    Ok(())
}

/// Builds twice, in different folders, and compares.
pub(super) fn check(root: &Path) -> Result<()> {
    build(root, "dist")?;
    build(root, "dist-again")?;
    let sums =
        |folder: &str| fs::read_to_string(root.join("target").join(folder).join("SHA256SUMS"));
    ensure!(
        sums("dist")? == sums("dist-again")?,
        "two builds of the same sources differ"
    );
    fs::remove_dir_all(root.join("target/dist-again"))?;
    Ok(())
}

/// The program without this machine's paths in it.
fn program(root: &Path, out: &Path) -> Result<PathBuf> {
    let target = out.join("build");
    let home = cargo_home(root)?;
    let flags = format!(
        "--remap-path-prefix={}=/andante --remap-path-prefix={home}=/cargo -C strip=symbols",
        root.display()
    );
    peers::run(
        Command::new(env!("CARGO"))
            .args(["build", "--release", "--locked", "--package", "andante-cli"])
            .args(["--features", FEATURES])
            .env("RUSTFLAGS", flags)
            .env("CARGO_TARGET_DIR", &target)
            .current_dir(root),
    )?;
    let program = out.join("andante");
    fs::copy(target.join("release/andante"), &program)?;
    fs::remove_dir_all(&target)?;
    Ok(program)
}

/// Where cargo keeps the sources of crates, which programs would name in their messages.
fn cargo_home(root: &Path) -> Result<String> {
    let metadata = MetadataCommand::new().current_dir(root).exec()?;
    let paths = metadata
        .packages
        .iter()
        .map(|package| package.manifest_path.as_str());
    let mut homes = paths.filter_map(|path| Some(path.split_once("/registry/src/")?.0.to_owned()));
    homes.next().context("no crate comes from a registry")
}

/// When the sources were committed, in seconds since 1970: the age of every file in the archive.
fn committed(root: &Path) -> Result<String> {
    let asked = Command::new("git")
        .args(["log", "-1", "--format=%ct"])
        .current_dir(root)
        .output()?;
    ensure!(
        asked.status.success(),
        "the archive's age is that of the last commit, and there is no git"
    );
    Ok(String::from_utf8(asked.stdout)?.trim().to_owned())
}

fn pack(out: &Path, name: &str, archive: &Path, seconds: &str) -> Result<()> {
    let file = fs::File::create(archive)?;
    let packed = Command::new("tar")
        .args([
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "--mode=u=rwX,go=rX",
            "--format=ustar",
        ])
        .arg(format!("--mtime=@{seconds}"))
        // Without the time and the name that gzip would add.
        .args(["--use-compress-program=gzip -9 -n", "--create", name])
        .current_dir(out)
        .stdout(file)
        .status()?;
    ensure!(packed.success(), "tar failed");
    Ok(())
}

/// A CycloneDX list of the crates in the program.
fn materials(root: &Path, out: &Path, name: &str) -> Result<()> {
    let tool = tool(root, CYCLONEDX)?;
    peers::run(
        Command::new(tool)
            .args([
                "cyclonedx",
                "--format",
                "json",
                "--features",
                FEATURES,
                "--describe",
                "binaries",
                "--manifest-path",
            ])
            .arg(root.join("crates/cli/Cargo.toml"))
            .env("SOURCE_DATE_EPOCH", committed(root)?)
            .current_dir(root),
    )?;
    let written = root.join("crates/cli/andante_bin.cdx.json");
    fs::rename(written, out.join(format!("{name}.cdx.json")))
        .context("no bill of materials was written")
}
