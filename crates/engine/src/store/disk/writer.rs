//! The thread that packs and writes, and removes what is of no use.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use crate::store::block::{self, Block};
use crate::store::key::{Key, ObjectName};
use crate::store::objects::Held;
use crate::store::said::Remembered;
use crate::store::secret;
use crate::store::state::Shared;

pub(super) enum WriteJob {
    Save(Vec<Staged>),
    /// There is something to log.
    Said(Remembered),
    /// This object is of no use.
    Discard(Key),
    /// Say so when it is its turn.
    #[cfg(test)]
    Answer(Sender<()>),
}

/// A block to write, or the running state behind one, which has no tokens.
pub(super) struct Staged {
    pub(super) name: ObjectName,
    pub(super) tokens: Vec<u32>,
    pub(super) kv: Vec<u8>,
}

pub(super) fn start(shared: Arc<Shared>) -> io::Result<Sender<WriteJob>> {
    let (sender, jobs) = channel();
    std::thread::Builder::new()
        .name("kv-write".into())
        .spawn(move || {
            for job in jobs {
                match job {
                    WriteJob::Save(staged) => save(&shared, staged),
                    WriteJob::Said(remembered) => said(&shared, &remembered),
                    #[cfg(test)]
                    WriteJob::Answer(sender) => sender.send(()).expect("somebody waits"),
                    WriteJob::Discard(key) => {
                        if let Err(error) = shared.discard(&key) {
                            shared.state().pause(&error);
                        }
                    }
                }
            }
        })?;
    Ok(sender)
}

fn save(shared: &Shared, staged: Vec<Staged>) {
    let paused = shared.state().is_paused();
    let bytes: usize = staged.iter().map(|staged| staged.kv.len()).sum();
    // Packed before others are kept from the folder.
    let mut packed = Vec::with_capacity(staged.len());
    for Staged { name, tokens, kv } in staged {
        let mut object = Vec::new();
        if !paused {
            let block = Block {
                identity: &shared.config.identity,
                key: name.key,
                parent: name.parent,
                depth: name.depth,
                tokens: &tokens,
            };
            block::encode(&block, &kv, &mut object);
            object = secret::seal(shared.config.secret.as_ref(), object);
        }
        shared.give_back(kv);
        packed.push((name, object));
    }
    let written = if paused { Ok(()) } else { put(shared, &packed) };
    let mut state = shared.state();
    if let Err(error) = written {
        state.pause(&error);
    }
    state.staged_bytes -= bytes;
    for (name, _) in &packed {
        state.staged.remove(&name.key);
        state.stats.unsaved += u64::from(!state.index.contains(&name.key));
    }
    shared.settled.notify_all();
}

fn put(shared: &Shared, packed: &[(ObjectName, Vec<u8>)]) -> io::Result<()> {
    let held = Held::take(&*shared.objects)?;
    if held.changed {
        shared.renew()?;
    }
    packed
        .iter()
        .try_for_each(|(name, object)| shared.put(name, object))
}

/// Logs what was said, unless writing has just failed: then it is logged with what is said later.
fn said(shared: &Shared, remembered: &Remembered) {
    let paused = shared.state().is_paused();
    let written = if paused {
        Ok(())
    } else {
        shared.write_said(remembered)
    };
    let mut state = shared.state();
    if let Err(error) = written {
        state.pause(&error);
    }
    state.to_log -= 1;
    shared.settled.notify_all();
}
