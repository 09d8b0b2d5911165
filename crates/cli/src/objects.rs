//! The places that KV can be kept in: from the command line to a store.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use andante_engine::{DiskStore, Folder, Objects, Secret, Store, StoreConfig};
use andante_model::Model;
use anyhow::{Context, Result, bail};

use crate::args::KvDiskArgs;

/// A place for KV that is known to be there.
pub(crate) struct Place {
    objects: Arc<dyn Objects>,
    name: String,
    budget_bytes: u64,
    key: Option<[u8; 32]>,
}

/// The place that was asked for, made if need be.
pub(crate) fn place(args: &KvDiskArgs) -> Result<Option<Place>> {
    let Some((objects, name)) = objects(args)? else {
        return Ok(None);
    };
    Ok(Some(Place {
        objects,
        name,
        budget_bytes: args.kv_disk_space_mb.saturating_mul(1_000_000),
        key: key_file(args.kv_encrypt_key_file.as_deref())?,
    }))
}

fn objects(args: &KvDiskArgs) -> Result<Option<(Arc<dyn Objects>, String)>> {
    #[cfg(feature = "s3")]
    if let Some(url) = &args.kv_store {
        let bucket = crate::bucket::Bucket::open(url)
            .with_context(|| format!("--kv-store: cannot use {url}"))?;
        return Ok(Some((Arc::new(bucket), url.clone())));
    }
    let Some(dir) = &args.kv_disk_dir else {
        return Ok(None);
    };
    let folder = Folder::create(dir)
        .with_context(|| format!("--kv-disk-dir: cannot use {}", dir.display()))?;
    Ok(Some((Arc::new(folder), dir.display().to_string())))
}

impl Place {
    /// What it is encrypted with.
    pub(crate) fn key(&self) -> Option<[u8; 32]> {
        self.key
    }

    /// The store of a model's KV in this place.
    pub(crate) fn open(self, model: &dyn Model) -> Result<Box<dyn Store>> {
        let layout = model.kv_layout();
        let config = StoreConfig {
            identity: model.kv_identity(),
            block_tokens: layout.block_tokens,
            block_bytes: usize::try_from(layout.block_bytes).context("a block is too large")?,
            state_bytes: usize::try_from(layout.state_bytes).context("a state is too large")?,
            budget_bytes: self.budget_bytes,
            secret: self.key.as_ref().map(Secret::new),
        };
        let store = DiskStore::open(self.objects, config)
            .with_context(|| format!("cannot use the KV store {}", self.name))?;
        let stats = store.stats();
        tracing::info!(
            "KV store {}: {} blocks, {:.1} of {:.1} MB",
            self.name,
            stats.blocks,
            stats.used_bytes as f64 / 1e6,
            stats.budget_bytes as f64 / 1e6
        );
        Ok(Box::new(store))
    }
}

/// What the key in a file encrypts with.
pub(crate) fn secret(path: Option<&Path>) -> Result<Option<Secret>> {
    Ok(key_file(path)?.as_ref().map(Secret::new))
}

/// The key in a file: 32 bytes, or 64 hexadecimal digits and perhaps the end of a line.
fn key_file(path: Option<&Path>) -> Result<Option<[u8; 32]>> {
    let read = |path: &Path| -> Result<[u8; 32]> {
        let mut file = File::open(path)?;
        let others = file.metadata()?.mode() & 0o077;
        if others != 0 {
            bail!("others may read it; `chmod 600` makes it private");
        }
        let mut bytes = Vec::new();
        // One byte more than the longest, to tell that it is too long.
        file.by_ref().take(67).read_to_end(&mut bytes)?;
        key(&bytes).context("it holds neither 32 bytes nor 64 hexadecimal digits")
    };
    let named = |path: &Path| {
        read(path).with_context(|| format!("--kv-encrypt-key-file: cannot use {}", path.display()))
    };
    path.map(named).transpose()
}

fn key(bytes: &[u8]) -> Option<[u8; 32]> {
    if let Ok(key) = bytes.try_into() {
        return Some(key);
    }
    let text = std::str::from_utf8(bytes).ok()?.trim_end();
    let digits = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let byte = |index| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok();
    let mut key = [0; 32];
    for (index, slot) in key.iter_mut().enumerate() {
        *slot = digits.then(|| byte(index))??;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::key;

    #[test]
    fn keys_are_raw_or_hexadecimal() {
        let raw: Vec<u8> = (0..32).collect();
        let digits: String = raw.iter().map(|byte| format!("{byte:02x}")).collect();
        for form in [
            raw.clone(),
            digits.clone().into_bytes(),
            format!("{digits}\n").into_bytes(),
            format!("{}\r\n", digits.to_uppercase()).into_bytes(),
        ] {
            assert_eq!(key(&form).map(Vec::from), Some(raw.clone()), "{form:?}");
        }
        for wrong in [
            &raw[1..],
            &digits.as_bytes()[1..],
            digits.replace('f', "+").as_bytes(),
            format!("{digits}0").as_bytes(),
            b"",
        ] {
            assert_eq!(key(wrong), None, "{wrong:?}");
        }
    }
}
