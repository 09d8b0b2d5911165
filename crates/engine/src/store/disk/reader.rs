//! The threads that read, each every so many-th of the objects asked for, up to the first that is of no use.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::time::Instant;

use super::writer::WriteJob;
use crate::store::block::{self, Block, Reject};
use crate::store::key::ObjectName;
use crate::store::secret;
use crate::store::state::{Shared, StoreConfig, Trouble};

/// Threads that read at once: one waits for the disk while the other checks what has come.
const READERS: usize = 2;

/// So much is read ahead of the engine's thread.
const AHEAD_BYTES: usize = 64 << 20;

/// The threads that read.
pub(super) struct Readers(Vec<Sender<LoadJob>>);

/// The blocks of a load, as they come.
pub(super) struct Results(Vec<Receiver<Loaded>>);

/// Objects to read, in order.
struct LoadJob {
    asked: Vec<Asked>,
    /// Goes with the job: that it is gone tells the engine's thread that nothing more comes.
    results: SyncSender<Loaded>,
}

/// A block to read.
pub(super) struct Asked {
    pub(super) name: ObjectName,
    pub(super) tokens: Vec<u32>,
    /// Of its KV, or running state.
    pub(super) bytes: usize,
}

/// A block that was read and believed.
pub(super) struct Loaded {
    pub(super) kv: Vec<u8>,
    /// What that took, in µs, of the time in which each reader brings one.
    pub(super) beside_us: u64,
}

impl Readers {
    pub(super) fn start(shared: &Arc<Shared>, writes: &Sender<WriteJob>) -> io::Result<Self> {
        let start = |number| {
            let (sender, jobs) = channel();
            let (shared, writes) = (Arc::clone(shared), writes.clone());
            std::thread::Builder::new()
                .name(format!("kv-read-{number}"))
                .spawn(move || {
                    let mut object = Vec::new();
                    for job in jobs {
                        load(&shared, &writes, job, &mut object);
                    }
                })?;
            Ok(sender)
        };
        (0..READERS).map(start).collect::<io::Result<_>>().map(Self)
    }

    /// Begins to read these blocks. Block `k` comes from reader `k % READERS`.
    pub(super) fn load(&self, asked: Vec<Asked>, config: &StoreConfig) -> Results {
        let ahead = AHEAD_BYTES / READERS / config.block_bytes.max(1) + 1;
        let mut shares: Vec<Vec<Asked>> = self.0.iter().map(|_| Vec::new()).collect();
        for (block, asked) in asked.into_iter().enumerate() {
            shares[block % READERS].push(asked);
        }
        let begin = |(reader, asked): (&Sender<LoadJob>, Vec<Asked>)| {
            let (results, receiver) = sync_channel(ahead);
            // Without the reader, the results end at once.
            _ = reader.send(LoadJob { asked, results });
            receiver
        };
        Results(self.0.iter().zip(shares).map(begin).collect())
    }
}

impl Results {
    /// The block of this number: not yet here, or never to come.
    pub(super) fn take(&self, block: u32) -> Result<Loaded, TryRecvError> {
        self.0[block as usize % READERS].try_recv()
    }

    /// Whether all readers are done with it; what they have brought is thrown away.
    pub(super) fn have_ended(&self) -> bool {
        self.0.iter().all(|results| {
            results.try_iter().for_each(drop);
            results
                .try_recv()
                .is_err_and(|error| error == TryRecvError::Disconnected)
        })
    }
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
        let beside_us = since.elapsed().as_micros() / READERS as u128;
        let beside_us = u64::try_from(beside_us).unwrap_or(u64::MAX);
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
    let mut kv = shared.buffer(asked.bytes);
    let decoded = secret::open(shared.config.secret.as_ref(), object)
        .and_then(|plain| block::decode(plain, &block, &mut kv));
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
            // What others have encrypted may be of use to them.
            Err(if reject == Reject::Sealed {
                Miss::Unreadable
            } else {
                Miss::Useless
            })
        }
    }
}
