//! The model files that everyone is measured with: two that people use, fetched, and large ones of random weights, made.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{andante, peers};

/// Every file, by the name that chooses it.
pub(super) const NAMES: [&str; 7] = [
    "smollm2",
    "gemma3",
    "llama-1b-q4_0",
    "llama-1b-q4_k",
    "llama-1b-q8_0",
    "llama-1b-bf16",
    "moe-small-q4_k",
];

/// A file that is there.
pub(super) struct ModelFile {
    pub(super) name: String,
    pub(super) path: PathBuf,
}

impl ModelFile {
    /// Fetches or makes the file, unless that was done before.
    pub(super) fn prepare(name: &str, root: &Path, andante: &Path, python: &Path) -> Result<Self> {
        let path = match name.rsplit_once('-') {
            Some((shape, kind)) => random(root, python, shape, kind)?,
            None => andante::pull(andante, name)?,
        };
        let name = match name {
            "smollm2" => "SmolLM2 135M Q4_1".to_owned(),
            "gemma3" => "Gemma 3 270M Q4_K_M".to_owned(),
            other => other.to_owned(),
        };
        Ok(Self { name, path })
    }
}

fn random(root: &Path, python: &Path, shape: &str, kind: &str) -> Result<PathBuf> {
    let folder = root.join("target/peers/models");
    let path = folder.join(format!("{shape}-{kind}.gguf"));
    if !path.is_file() {
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        // Half a file would be taken for a whole one the next time.
        let unfinished = path.with_extension("unfinished");
        peers::run(
            Command::new(python)
                .arg(root.join("scripts/make_random_model.py"))
                .arg(&unfinished)
                .args(["--shape", shape, "--type", kind]),
        )?;
        fs::rename(&unfinished, &path)?;
    }
    Ok(path)
}
