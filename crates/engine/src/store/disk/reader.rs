//! The thread that reads: objects in the order in which they were asked for, up to the first that is of no use.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Instant;

use super::writer::WriteJob;
use crate::store::block::{self, Block};
use crate::store::key::ObjectName;
use crate::store::state::{Shared, StoreConfig, Trouble};

/// So much is read ahead of the engine's thread.
const AHEAD_BYTES: usize = 64 << 20;

/// Objects to read.
pub(super) struct LoadJob {
    asked: Vec<Asked>,
    /// Goes with the job: that it is gone tells the engine's thread that nothing more comes.
    results: SyncSender<Loaded>,
}

/// A block to read.
pub(super) struct Asked {
    pub(super) name: ObjectName,
    pub(super) tokens: Vec<u32>,
}

/// A block that was read and believed.
pub(super) struct Loaded {
    pub(super) kv: Vec<u8>,
    /// What that took, in µs.
    pub(super) beside_us: u64,
}

impl LoadJob {
    pub(super) fn new(asked: Vec<Asked>, config: &StoreConfig) -> (Self, Receiver<Loaded>) {
        let (results, receiver) = sync_channel(AHEAD_BYTES / config.block_bytes.max(1) + 1);
        (Self { asked, results }, receiver)
    }
}

pub(super) fn start(shared: Arc<Shared>, writes: Sender<WriteJob>) -> io::Result<Sender<LoadJob>> {
    let (sender, jobs) = channel();
    std::thread::Builder::new()
        .name("kv-read".into())
        .spawn(move || {
            let mut object = Vec::new();
            for job in jobs {
                load(&shared, &writes, job, &mut object);
            }
        })?;
    Ok(sender)
}

fn load(shared: &Shared, writes: &Sender<WriteJob>, job: LoadJob, object: &mut Vec<u8>) {
    for asked in job.asked {
        let since = Instant::now();
        let kv = match read(shared, &asked, object) {
            Ok(kv) => kv,
            Err(Miss::Unreadable) => return,
            Err(Miss::Useless) => {
                // Out of the way before others ask for it. Without a writer the program ends.
                _ = writes.send(WriteJob::Discard(asked.name.key));
                return;
            }
        };
        let beside_us = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        if job.results.send(Loaded { kv, beside_us }).is_err() {
            // It was given up.
            return;
        }
    }
}

/// Why a block did not come.
enum Miss {
    /// It may be there another time.
    Unreadable,
    /// It is gone, or not what it should be.
    Useless,
}

fn read(shared: &Shared, asked: &Asked, object: &mut Vec<u8>) -> Result<Vec<u8>, Miss> {
    let ObjectName { key, parent, depth } = asked.name;
    if let Err(error) = shared.objects.get(&asked.name, object) {
        let mut state = shared.state();
        state.stats.unreadable += 1;
        if error.kind() == io::ErrorKind::NotFound {
            return Err(Miss::Useless);
        }
        state.tell(Trouble::Reading, || {
            tracing::warn!("KV store: reading failed ({error}); prompts are computed instead");
        });
        return Err(Miss::Unreadable);
    }
    let block = Block {
        identity: &shared.config.identity,
        key,
        parent,
        depth,
        tokens: &asked.tokens,
    };
    let mut kv = shared.buffer();
    let decoded = block::decode(object, &block, &mut kv);
    let mut state = shared.state();
    match decoded {
        Ok(()) => {
            state.index.hit(&key);
            state.stats.loaded_blocks += 1;
            state.stats.read_bytes += object.len() as u64;
            Ok(kv)
        }
        Err(reject) => {
            state.count(reject);
            Err(Miss::Useless)
        }
    }
}
