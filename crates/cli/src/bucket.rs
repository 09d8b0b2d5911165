//! Objects in an S3-compatible bucket, which several servers share.
//!
//! There is no lock: objects never change, so it does not matter who writes one, and a removed one is a miss. Each server lists
//! the bucket again every minute and keeps it within its own budget by what it saw then, so together they can be over it by
//! what the others have written in a minute. A log is a folder of records, since nothing can be added to an object.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use andante_engine::{Key, Listed, Listing, ObjectName, Objects};
use anyhow::{Context, Result};
use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{ClientConfigKey, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig};
use tokio::runtime::Runtime;

/// How long a listing is believed.
const LISTED: Duration = Duration::from_secs(60);
/// How long one operation may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Records of a log that are read at once.
const AT_ONCE: usize = 16;
/// What a log's folder ends with.
const LOG: &str = ".said";

/// See the module.
pub(crate) struct Bucket {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    runtime: Runtime,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    listed: Option<Instant>,
    /// Records of each log, in the order in which they came, and their bytes.
    logs: BTreeMap<Key, BTreeMap<Path, u64>>,
    records: u64,
}

impl Bucket {
    /// The bucket and prefix of `s3://bucket/prefix`; who may use it, and where it is, say the variables `AWS_*`.
    pub(crate) fn open(url: &str) -> Result<Self> {
        // One implementation of TLS in the whole program; that there is one already is as good.
        _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let timeout = |key, limit: Duration| (AmazonS3ConfigKey::Client(key), format!("{limit:?}"));
        let (whole, connect) = (
            timeout(ClientConfigKey::Timeout, TIMEOUT),
            timeout(ClientConfigKey::ConnectTimeout, TIMEOUT / 2),
        );
        let retry = RetryConfig {
            max_retries: 2,
            retry_timeout: TIMEOUT,
            ..RetryConfig::default()
        };
        let store = AmazonS3Builder::from_env()
            // One by one: client options as a whole would replace what the variables say, plain HTTP for one.
            .with_config(whole.0, whole.1)
            .with_config(connect.0, connect.1)
            .with_retry(retry)
            .with_url(url)
            .build()
            .context(
                "give s3://bucket or s3://bucket/prefix, and AWS_* variables that lead there",
            )?;
        let path = url.strip_prefix("s3://").unwrap_or(url);
        let (_, prefix) = path.split_once('/').unwrap_or((path, ""));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("kv-bucket")
            .enable_all()
            .build()?;
        Ok(Self {
            store: Arc::new(store),
            prefix: Path::parse(prefix.trim_end_matches('/'))?,
            runtime,
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn object(&self, name: &ObjectName) -> Path {
        self.prefix.clone().join(name.to_string())
    }

    fn log(&self, log: &Key) -> Path {
        self.prefix.clone().join(format!("{log}{LOG}"))
    }

    fn all_below(&self, folder: &Path) -> io::Result<Vec<ObjectMeta>> {
        let list = self.store.list(Some(folder));
        self.runtime.block_on(list.try_collect()).map_err(to_io)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let put = self.store.put(path, bytes.to_vec().into());
        self.runtime.block_on(put).map(|_| ()).map_err(to_io)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match self.runtime.block_on(self.store.delete(path)) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(to_io(error)),
        }
    }

    /// A name for a record that stands behind all that are there.
    fn next_record(&self, log: &Key) -> Path {
        let mut state = self.state();
        state.records += 1;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let us = since.unwrap_or_default().as_micros();
        let name = format!("{us:020}-{:08}-{:08}", std::process::id(), state.records);
        self.log(log).join(name)
    }

    /// What of a listing lies in the prefix itself, or in one of its logs.
    fn sort(&self, found: Vec<ObjectMeta>) -> Listing {
        let mut listing = Listing::default();
        let mut logs: BTreeMap<Key, BTreeMap<Path, u64>> = BTreeMap::new();
        for meta in found {
            let Some(parts) = meta.location.prefix_match(&self.prefix) else {
                continue;
            };
            let parts: Vec<_> = parts.collect();
            let modified = meta.last_modified.timestamp();
            match &parts[..] {
                [name] => listing
                    .objects
                    .extend(ObjectName::parse(name.as_ref()).map(|name| Listed {
                        name,
                        bytes: meta.size,
                        modified_s: modified.try_into().unwrap_or(0),
                    })),
                [log, _] => {
                    if let Some(log) = log.as_ref().strip_suffix(LOG).and_then(Key::parse) {
                        logs.entry(log)
                            .or_default()
                            .insert(meta.location.clone(), meta.size);
                    }
                }
                _ => {}
            }
        }
        let total = |records: &BTreeMap<Path, u64>| records.values().sum();
        listing.logs = logs
            .iter()
            .map(|(log, records)| (*log, total(records)))
            .collect();
        self.state().logs = logs;
        listing
    }
}

impl Objects for Bucket {
    fn lock(&self) -> io::Result<bool> {
        let listed = self.state().listed;
        Ok(listed.is_none_or(|listed| listed.elapsed() > LISTED))
    }

    fn unlock(&self) {}

    fn list(&self) -> io::Result<Listing> {
        let found = self.all_below(&self.prefix)?;
        self.state().listed = Some(Instant::now());
        Ok(self.sort(found))
    }

    fn get(&self, name: &ObjectName, into: &mut Vec<u8>) -> io::Result<()> {
        into.clear();
        let path = self.object(name);
        let read = async { self.store.get(&path).await?.bytes().await };
        into.extend_from_slice(&self.runtime.block_on(read).map_err(to_io)?);
        Ok(())
    }

    fn put(&self, name: &ObjectName, bytes: &[u8]) -> io::Result<()> {
        self.write(&self.object(name), bytes)
    }

    fn delete(&self, name: &ObjectName) -> io::Result<()> {
        self.remove(&self.object(name))
    }

    fn read_log(&self, log: &Key) -> io::Result<Vec<Vec<u8>>> {
        let found = self.all_below(&self.log(log))?;
        let records: BTreeMap<Path, u64> = found
            .into_iter()
            .map(|meta| (meta.location, meta.size))
            .collect();
        let read = futures_util::stream::iter(records.keys())
            .map(|path| async { self.store.get(path).await?.bytes().await })
            .buffered(AT_ONCE)
            .try_collect::<Vec<_>>();
        let read = self.runtime.block_on(read).map_err(to_io)?;
        self.state().logs.insert(*log, records);
        Ok(read.into_iter().map(Vec::from).collect())
    }

    fn append(&self, log: &Key, record: &[u8]) -> io::Result<u64> {
        let path = self.next_record(log);
        self.write(&path, record)?;
        let mut state = self.state();
        let records = state.logs.entry(*log).or_default();
        records.insert(path, record.len() as u64);
        Ok(records.values().sum())
    }

    fn replace_log(&self, log: &Key, record: &[u8]) -> io::Result<u64> {
        // What others add meanwhile stays.
        let old = self.state().logs.remove(log).unwrap_or_default();
        let bytes = self.append(log, record)?;
        old.keys().try_for_each(|path| self.remove(path))?;
        Ok(bytes)
    }

    fn delete_log(&self, log: &Key) -> io::Result<()> {
        let old = self.state().logs.remove(log).unwrap_or_default();
        old.keys().try_for_each(|path| self.remove(path))
    }
}

fn to_io(error: object_store::Error) -> io::Error {
    let kind = match &error {
        object_store::Error::NotFound { .. } => io::ErrorKind::NotFound,
        object_store::Error::PermissionDenied { .. }
        | object_store::Error::Unauthenticated { .. } => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
