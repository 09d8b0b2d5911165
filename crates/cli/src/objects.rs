//! The places that KV can be kept in: from the command line to a store.

use std::sync::Arc;

use andante_engine::{DiskStore, Folder, Objects, Store, StoreConfig};
use andante_model::Model;
use anyhow::{Context, Result};

use crate::args::KvDiskArgs;

/// A place for KV that is known to be there.
pub(crate) struct Place {
    objects: Arc<dyn Objects>,
    name: String,
    budget_bytes: u64,
}

/// The place that was asked for, made if need be.
pub(crate) fn place(args: &KvDiskArgs) -> Result<Option<Place>> {
    let Some(dir) = &args.kv_disk_dir else {
        return Ok(None);
    };
    let folder = Folder::create(dir)
        .with_context(|| format!("--kv-disk-dir: cannot use {}", dir.display()))?;
    Ok(Some(Place {
        objects: Arc::new(folder),
        name: dir.display().to_string(),
        budget_bytes: args.kv_disk_space_mb.saturating_mul(1_000_000),
    }))
}

impl Place {
    /// The store of a model's KV in this place.
    pub(crate) fn open(self, model: &dyn Model) -> Result<Box<dyn Store>> {
        let layout = model.kv_layout();
        let config = StoreConfig {
            identity: model.kv_identity(),
            block_tokens: layout.block_tokens,
            block_bytes: usize::try_from(layout.block_bytes).context("a block is too large")?,
            budget_bytes: self.budget_bytes,
        };
        let store = DiskStore::open(self.objects, config)
            .with_context(|| format!("cannot use the KV store {}", self.name))?;
        store.read_ahead().context("cannot read ahead")?;
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
