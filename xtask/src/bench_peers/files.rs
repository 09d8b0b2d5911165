//! The model files that everyone is measured with: two that people use, fetched, and large ones of random weights, made.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{andante, peers};

/// Every file, by the name that chooses it.
pub(super) const NAMES: [&str; 8] = [
    "smollm2",
    "gemma3",
    "llama-1b-q4_0",
    "llama-1b-q4_k",
    "llama-1b-q8_0",
    "llama-1b-bf16",
    "moe-small-q4_k",
    DEEPSEEK4,
];

/// Its mix of types and its shape are a script's own.
pub(crate) const DEEPSEEK4: &str = "deepseek4-q2";

/// A file that is there.
pub(crate) struct ModelFile {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

impl ModelFile {
    /// Fetches or makes the file, unless that was done before.
    pub(crate) fn prepare(name: &str, root: &Path, andante: &Path, python: &Path) -> Result<Self> {
        let path = match name.rsplit_once('-') {
            _ if name == DEEPSEEK4 => random(root, python, name, "make_random_deepseek4.py", &[])?,
            Some((shape, kind)) => {
                let options = ["--shape", shape, "--type", kind];
                random(root, python, name, "make_random_model.py", &options)?
            }
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

fn random(
    root: &Path,
    python: &Path,
    name: &str,
    script: &str,
    options: &[&str],
) -> Result<PathBuf> {
    let folder = root.join("target/peers/models");
    let path = folder.join(format!("{name}.gguf"));
    if !path.is_file() {
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        // Half a file would be taken for a whole one the next time.
        let unfinished = path.with_extension("unfinished");
        peers::run(
            Command::new(python)
                .arg(root.join("scripts").join(script))
                .arg(&unfinished)
                .args(options),
        )?;
        fs::rename(&unfinished, &path)?;
    }
    Ok(path)
}
