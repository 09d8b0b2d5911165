//! What the engine's thread and the store's own threads share.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use std::collections::BTreeMap;

use super::block::Reject;
use super::index::{Index, charged};
use super::key::{Key, Naming, ObjectName};
use super::objects::{Held, Listing, Objects};
use super::said::{LOGS, Log};
use super::secret::Secret;
use crate::sync::{Condvar, Mutex, MutexGuard, lock};

/// How long nothing is saved after a failure to write.
const PAUSE: Duration = Duration::from_secs(30);

/// What a store is for.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// The model: see [`Model::kv_identity`](andante_model::Model::kv_identity).
    pub identity: [u8; 32],
    /// Tokens of a block.
    pub block_tokens: u32,
    /// Bytes of a block in memory.
    pub block_bytes: usize,
    /// Bytes of a sequence's running state; 0 for a model that has none.
    pub state_bytes: usize,
    /// Most bytes of all objects, each rounded up to 4 KiB.
    pub budget_bytes: u64,
    /// What objects are encrypted with, if they are.
    pub secret: Option<Secret>,
}

/// What a store has done since its start, and what it holds. The running state behind a block counts as a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Blocks that came from it.
    pub loaded_blocks: u64,
    /// Whole blocks of prompts that it did not have when they were asked for.
    pub absent: u64,
    /// Objects that were damaged or cut off.
    pub damaged: u64,
    /// Objects that held something else than their name says, or are encrypted with another key.
    pub foreign: u64,
    /// Objects that could not be read, or were gone.
    pub unreadable: u64,
    /// Blocks written to it.
    pub saved_blocks: u64,
    /// Blocks that need not be written: it had them.
    pub deduplicated: u64,
    /// Blocks that could not be written.
    pub unsaved: u64,
    /// Blocks given up for others.
    pub evicted: u64,
    /// Bytes of the objects read.
    pub read_bytes: u64,
    /// Bytes of the objects written.
    pub written_bytes: u64,
    /// Now: blocks that it has.
    pub blocks: u64,
    /// Now: bytes that they take, with what is kept beside them.
    pub used_bytes: u64,
    /// Most bytes that they may take.
    pub budget_bytes: u64,
}

pub(super) struct Shared {
    pub(super) objects: Arc<dyn Objects>,
    pub(super) config: StoreConfig,
    pub(super) naming: Naming,
    /// The names of this model's logs.
    pub(super) logs: [Key; LOGS],
    state: Mutex<State>,
    /// Something staged has been written or given up.
    pub(super) settled: Condvar,
    /// Buffers for the KV of one block each.
    spare: Mutex<Vec<Vec<u8>>>,
}

pub(super) struct State {
    pub(super) index: Index,
    /// Copied, not yet written.
    pub(super) staged: HashSet<Key>,
    /// What they take.
    pub(super) staged_bytes: usize,
    /// Logs and their bytes, of other models and keys too.
    pub(super) logs: BTreeMap<Key, u64>,
    /// What is known of this model's own.
    pub(super) own_logs: [Log; LOGS],
    /// Times that the writer was told that there is something to log, and has not looked yet.
    pub(super) to_log: u32,
    pub(super) stats: StoreStats,
    /// Nothing is saved before: writing has failed.
    paused_until: Option<Instant>,
    told: BTreeSet<Trouble>,
}

/// What can be wrong with the place; said once each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    Reading,
    Full,
    Denied,
    Gone,
    Writing,
}

impl Shared {
    pub(super) fn new(objects: Arc<dyn Objects>, config: StoreConfig) -> Self {
        let naming = Naming::new(&config.identity, config.secret.as_ref().map(Secret::names));
        let root = naming.root(0);
        Self {
            objects,
            logs: [root, naming.child(&root, &[])],
            naming,
            state: Mutex::new(State {
                index: Index::new(config.block_tokens),
                staged: HashSet::new(),
                staged_bytes: 0,
                logs: BTreeMap::new(),
                own_logs: Default::default(),
                to_log: 0,
                stats: StoreStats {
                    budget_bytes: config.budget_bytes,
                    ..StoreStats::default()
                },
                paused_until: None,
                told: BTreeSet::new(),
            }),
            config,
            settled: Condvar::new(),
            spare: Mutex::new(Vec::new()),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// A buffer of this size; what is in it is left over.
    pub(super) fn buffer(&self, bytes: usize) -> Vec<u8> {
        if bytes != self.config.block_bytes {
            return vec![0; bytes];
        }
        let spare = lock(&self.spare).pop();
        spare.unwrap_or_else(|| vec![0; bytes])
    }

    /// Takes a buffer back. A few of a block's size are kept: new ones cost page faults.
    pub(super) fn give_back(&self, buffer: Vec<u8>) {
        let mut spare = lock(&self.spare);
        if spare.len() < 64 && buffer.len() == self.config.block_bytes {
            spare.push(buffer);
        }
    }

    /// Brings the index up to date after another store's changes.
    pub(super) fn renew(&self) -> io::Result<()> {
        let orphans = self.look()?;
        for orphan in &orphans {
            self.objects.delete(orphan)?;
        }
        Ok(())
    }

    /// As [`renew`](Self::renew), without changing anything; gives what no chain leads to.
    pub(super) fn look(&self) -> io::Result<Vec<ObjectName>> {
        let Listing { objects, logs } = self.objects.list()?;
        let known = self.state().index.clone();
        let (index, orphans) = known.renewed(objects);
        let logs: BTreeMap<Key, u64> = logs.into_iter().collect();
        let mut state = self.state();
        for (log, name) in self.logs.iter().enumerate() {
            if state.logs.get(name) != logs.get(name) {
                state.own_logs[log].forget();
            }
        }
        state.index = index;
        state.logs = logs;
        Ok(orphans)
    }

    /// Gives up blocks until `bytes` more fit the budget, though not `kept`, and after them logs, though none of this
    /// model's own while it is within its share; whether they do. Under the lock.
    pub(super) fn make_room(&self, bytes: u64, kept: &Key) -> io::Result<bool> {
        if bytes > self.config.budget_bytes {
            return Ok(false);
        }
        let share = self.log_share();
        loop {
            let (victim, log) = {
                let state = self.state();
                if state.used_bytes() + bytes <= self.config.budget_bytes {
                    return Ok(true);
                }
                let mut logs = state.logs.iter();
                let log = logs.find(|&(log, &bytes)| !self.logs.contains(log) || bytes > share);
                (state.index.victim(kept), log.map(|(log, _)| *log))
            };
            let Some(victim) = victim else {
                let Some(log) = log else {
                    return Ok(false);
                };
                self.objects.delete_log(&log)?;
                self.state().logs.remove(&log);
                continue;
            };
            self.objects.delete(&victim)?;
            let mut state = self.state();
            state.index.evict(&victim.key);
            state.stats.evicted += 1;
        }
    }

    /// Adds an object, if it has its place and there is room. Under the lock.
    pub(super) fn put(&self, name: &ObjectName, object: &[u8]) -> io::Result<()> {
        if !self.state().index.takes(name) {
            return Ok(());
        }
        let bytes = object.len() as u64;
        if !self.make_room(charged(bytes), &name.parent)? {
            return Ok(());
        }
        self.objects.put(name, object)?;
        let mut state = self.state();
        state.index.insert(name, bytes);
        state.stats.saved_blocks += 1;
        state.stats.written_bytes += bytes;
        Ok(())
    }

    /// Removes an object that is of no use, and all that continue it.
    pub(super) fn discard(&self, key: &Key) -> io::Result<()> {
        let held = Held::take(&*self.objects)?;
        if held.changed {
            self.renew()?;
        }
        self.remove(key)
    }

    /// As [`discard`](Self::discard), under the lock.
    pub(super) fn remove(&self, key: &Key) -> io::Result<()> {
        let names = self.state().index.subtree(key);
        for name in names {
            self.objects.delete(&name)?;
            self.state().index.remove(&name.key);
        }
        Ok(())
    }
}

impl State {
    pub(super) fn stats(&self) -> StoreStats {
        StoreStats {
            blocks: self.index.len() as u64,
            used_bytes: self.used_bytes(),
            ..self.stats
        }
    }

    /// What objects and logs take.
    fn used_bytes(&self) -> u64 {
        let logs: u64 = self.logs.values().map(|&bytes| charged(bytes)).sum();
        self.index.used_bytes() + logs
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused_until
            .is_some_and(|until| Instant::now() < until)
    }

    /// Counts an object that is not what it should be.
    pub(super) fn count(&mut self, reject: Reject) {
        match reject {
            Reject::Damaged => self.stats.damaged += 1,
            Reject::Foreign | Reject::Sealed => self.stats.foreign += 1,
        }
    }

    /// Writing, deleting or listing has failed: says so once and leaves it alone for a while.
    pub(super) fn pause(&mut self, error: &io::Error) {
        self.paused_until = Some(Instant::now() + PAUSE);
        let trouble = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Trouble::Full,
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => Trouble::Denied,
            io::ErrorKind::NotFound => Trouble::Gone,
            _ => Trouble::Writing,
        };
        if trouble == Trouble::Gone {
            self.index.clear();
            self.logs.clear();
        }
        let what = match trouble {
            Trouble::Full => "its disk is full",
            Trouble::Denied => "it may not be written",
            Trouble::Gone => "it is gone",
            _ => "writing failed",
        };
        self.tell(trouble, || {
            tracing::warn!(
                "KV store: {what} ({error}); what cannot be saved will be computed again"
            );
        });
    }

    /// Lets it be written again at once.
    #[cfg(test)]
    pub(super) fn resume(&mut self) {
        self.paused_until = None;
    }

    /// Says something once.
    pub(super) fn tell(&mut self, trouble: Trouble, say: impl FnOnce()) {
        if self.told.insert(trouble) {
            say();
        }
    }
}
