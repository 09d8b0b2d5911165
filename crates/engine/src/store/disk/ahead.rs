//! Reading ahead after a start: whoever talked last probably goes on, and shall not notice that there was a restart.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::store::block;
use crate::store::key::{Key, ObjectName};
use crate::store::secret;
use crate::store::state::Shared;
use crate::sync::{Mutex, lock};

/// Most bytes that are read ahead.
const MOST_BYTES: usize = 512 << 20;

/// How long they are kept for somebody to ask.
const KEPT: Duration = Duration::from_secs(60);

/// Blocks read ahead.
#[derive(Default)]
pub(super) struct Ahead {
    blocks: Mutex<FxHashMap<Key, Read>>,
    /// Somebody has asked: who reads for nobody yet makes way.
    stopped: AtomicBool,
}

/// A block that is known to be what its name says.
struct Read {
    tokens: Vec<u32>,
    kv: Vec<u8>,
}

impl Ahead {
    /// Begins to read what was used last, on a thread of its own.
    pub(super) fn start(self: &Arc<Self>, shared: &Arc<Shared>) -> io::Result<()> {
        let root = shared.naming.root(0);
        let most = MOST_BYTES / shared.config.block_bytes.max(1);
        let names = shared.state().index.latest(&root, most);
        let (ahead, shared) = (Arc::clone(self), Arc::clone(shared));
        std::thread::Builder::new()
            .name("kv-ahead".into())
            .spawn(move || {
                let mut object = Vec::new();
                for name in names {
                    if ahead.stopped.load(Ordering::Relaxed) {
                        break;
                    }
                    let Some(block) = read(&shared, &name, &mut object) else {
                        continue;
                    };
                    lock(&ahead.blocks).insert(name.key, block);
                }
                drop(shared);
                std::thread::sleep(KEPT);
                lock(&ahead.blocks).clear();
            })?;
        Ok(())
    }

    /// Ends the reading.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// The KV of a block, if it was read ahead and has these tokens.
    pub(super) fn take(&self, key: &Key, tokens: &[u32]) -> Option<Vec<u8>> {
        let read = lock(&self.blocks).remove(key)?;
        (read.tokens == tokens).then_some(read.kv)
    }
}

/// What is wrong with an object is for those to find who ask for it.
fn read(shared: &Shared, name: &ObjectName, object: &mut Vec<u8>) -> Option<Read> {
    shared.objects.get(name, object).ok()?;
    let bytes = object.len() as u64;
    let plain = secret::open(shared.config.secret.as_ref(), object).ok()?;
    let tokens = block::info(plain).ok()?.tokens;
    let block = block::Block {
        identity: &shared.config.identity,
        key: name.key,
        parent: name.parent,
        depth: name.depth,
        tokens: &tokens,
    };
    let mut kv = vec![0; shared.config.block_bytes];
    block::decode(plain, &block, &mut kv).ok()?;
    shared.state().stats.read_bytes += bytes;
    // The name is a hash of the tokens.
    (shared.naming.child(&name.parent, &tokens) == name.key).then_some(Read { tokens, kv })
}
