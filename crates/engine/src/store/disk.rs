//! The store behind `--kv-disk-dir`: the engine's thread copies blocks, threads of the store's own do everything else.
//!
//! Two threads read, so that a load never waits behind a save; one writes, and is the only one that changes objects.

mod holdings;
mod reader;
mod writer;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, TryRecvError};
use std::time::{Duration, Instant};

use andante_model::Model;

pub use self::holdings::Holdings;
use self::reader::{Asked, Readers, Results};
use self::writer::{Staged, WriteJob};
use super::key::ObjectName;
use super::objects::{Held, Objects};
use super::said::Remembered;
use super::state::{Shared, StoreConfig, StoreStats};
use super::{COPY_BYTES, Span, Store, Transfer};

/// So much may be copied and not yet written before saving is held up.
const STAGED_BYTES: usize = 64 << 20;
/// While a load waits, saving is not held up before this.
const MOST_STAGED_BYTES: usize = 256 << 20;

/// A [`Store`] of immutable objects.
pub struct DiskStore {
    shared: Arc<Shared>,
    readers: Readers,
    writes: Sender<WriteJob>,
    pending: Option<Pending>,
    /// The load that was given up, while it is not known to have ended.
    given_up: Option<Results>,
    /// A request waits for blocks that are here.
    wanted: bool,
    remembered: Option<Remembered>,
}

enum Pending {
    Load {
        results: Results,
        blocks: Vec<u32>,
        /// Where the running state behind the last of them goes, if it comes too.
        state: Option<u32>,
        /// Objects that have come.
        done: u32,
        beside_us: u64,
    },
    Save {
        blocks: u32,
    },
}

impl DiskStore {
    /// Takes in what is there, brings it down to the budget, and starts its threads. Objects that cannot be changed are
    /// only read, with a warning.
    ///
    /// # Errors
    /// When the objects cannot even be listed, or there are no threads to be had.
    pub fn open(objects: Arc<dyn Objects>, config: StoreConfig) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(objects, config));
        match Held::take(&*shared.objects) {
            Ok(_held) => {
                shared.renew()?;
                shared.make_room(0, &shared.naming.root(0))?;
            }
            Err(error) => {
                shared.look()?;
                shared.state().pause(&error);
            }
        }
        let writes = writer::start(Arc::clone(&shared))?;
        let readers = Readers::start(&shared, &writes)?;
        Ok(Self {
            shared,
            readers,
            writes,
            pending: None,
            given_up: None,
            wanted: false,
            remembered: None,
        })
    }

    /// The names of a sequence's whole blocks.
    fn names<'a>(
        &self,
        salt: u64,
        tokens: &'a [u32],
    ) -> impl Iterator<Item = (ObjectName, &'a [u32])> {
        let block_tokens = self.shared.config.block_tokens as usize;
        let naming = self.shared.naming;
        let mut parent = naming.root(salt);
        tokens
            .chunks_exact(block_tokens)
            .zip(0..)
            .map(move |(tokens, depth)| {
                let key = naming.child(&parent, tokens);
                let name = ObjectName { key, parent, depth };
                parent = key;
                (name, tokens)
            })
    }

    /// The name of the running state behind a block: an object without tokens that continues it.
    fn state_name(&self, block: &ObjectName) -> ObjectName {
        ObjectName {
            key: self.shared.naming.child(&block.key, &[]),
            parent: block.key,
            depth: block.depth + 1,
        }
    }

    /// Copies something to be written, unless it is there or on its way.
    fn stage(&self, name: ObjectName, tokens: &[u32], bytes: usize) -> Option<Staged> {
        let mut state = self.shared.state();
        if state.index.contains(&name.key) || !state.staged.insert(name.key) {
            state.stats.deduplicated += 1;
            return None;
        }
        state.staged_bytes += bytes;
        drop(state);
        Some(Staged {
            name,
            tokens: tokens.to_vec(),
            kv: self.shared.buffer(bytes),
        })
    }

    /// Whether a reading thread still hangs in a load that was given up.
    fn hangs(&mut self) -> bool {
        self.given_up.take_if(|results| results.have_ended());
        self.given_up.is_some()
    }

    /// Bytes that are copied and not yet written.
    fn staged_bytes(&self) -> usize {
        self.shared.state().staged_bytes
    }
}

impl Store for DiskStore {
    fn lookup(&mut self, salt: u64, prompt: &[u32]) -> u32 {
        if self.hangs() {
            return 0;
        }
        let names = self.names(salt, prompt);
        let mut state = self.shared.state();
        let (mut asked, mut whole, mut found) = (0, 0, 0);
        for (name, _) in names {
            asked += 1;
            if whole + 1 == asked && state.index.touch(&name.key) {
                whole += 1;
                if !self.is_stateful() || state.index.touch(&self.state_name(&name).key) {
                    found = whole;
                }
            }
        }
        state.stats.absent += u64::from(asked - found);
        drop(state);
        self.wanted = found > 0;
        found * self.shared.config.block_tokens
    }

    fn holds(&mut self, salt: u64, tokens: &[u32]) -> u32 {
        let names = self.names(salt, tokens);
        let state = self.shared.state();
        let held = names.take_while(|(name, _)| {
            state.index.contains(&name.key) || state.staged.contains(&name.key)
        });
        let blocks = u32::try_from(held.count()).expect("a sequence fits the context");
        blocks * self.shared.config.block_tokens
    }

    fn resumable(&mut self, salt: u64, tokens: &[u32]) -> u32 {
        if !self.is_stateful() {
            return self.holds(salt, tokens);
        }
        let state = self.shared.state();
        let names = self.names(salt, tokens);
        let held = names.take_while(|(name, _)| state.index.contains(&name.key));
        let with_state = held.filter(|(name, _)| state.index.contains(&self.state_name(name).key));
        let last = with_state.last();
        last.map_or(0, |(name, _)| {
            (name.depth + 1) * self.shared.config.block_tokens
        })
    }

    fn load(&mut self, span: &Span<'_>, model: &mut dyn Model) -> Transfer {
        self.wanted = false;
        if self.hangs() {
            return Transfer::done(0);
        }
        let names = self.names(span.salt, span.tokens);
        let names = names.skip(span.first_block as usize);
        let asked = names.map(|(name, tokens)| Asked {
            name,
            tokens: tokens.to_vec(),
            bytes: self.shared.config.block_bytes,
        });
        let mut asked: Vec<Asked> = asked.collect();
        let state = span.states.last().copied().flatten();
        if state.is_some() {
            let block = asked.last().expect("a load has blocks");
            asked.push(Asked {
                name: self.state_name(&block.name),
                tokens: Vec::new(),
                bytes: self.shared.config.state_bytes,
            });
        }
        let results = self.readers.load(asked, &self.shared.config);
        self.pending = Some(Pending::Load {
            results,
            blocks: span.blocks.to_vec(),
            state,
            done: 0,
            beside_us: 0,
        });
        self.poll(model, COPY_BYTES)
    }

    fn save(&mut self, spans: &[Span<'_>], model: &dyn Model) -> Transfer {
        let asked: usize = spans.iter().map(|span| span.blocks.len()).sum();
        let asked = u32::try_from(asked).expect("block numbers are u32");
        if self.shared.state().is_paused() || self.staged_bytes() > MOST_STAGED_BYTES {
            self.shared.state().stats.unsaved += u64::from(asked);
            return Transfer::done(asked);
        }
        let mut job = Vec::new();
        for span in spans {
            let names = self.names(span.salt, span.tokens);
            let names = names.skip(span.first_block as usize);
            let states = span.states.iter().copied().chain(std::iter::repeat(None));
            for (((name, tokens), &block), state) in names.zip(span.blocks).zip(states) {
                let (block_bytes, state_bytes) = (
                    self.shared.config.block_bytes,
                    self.shared.config.state_bytes,
                );
                if let Some(mut staged) = self.stage(name, tokens, block_bytes) {
                    model.read_block(block, &mut staged.kv);
                    job.push(staged);
                }
                if let Some(state) = state
                    && let Some(mut staged) = self.stage(self.state_name(&name), &[], state_bytes)
                {
                    model.read_state(state, &mut staged.kv);
                    job.push(staged);
                }
            }
        }
        if !job.is_empty() && self.writes.send(WriteJob::Save(job)).is_err() {
            return Transfer::done(0);
        }
        self.pending = Some(Pending::Save { blocks: asked });
        self.settle_save(asked)
    }

    fn poll(&mut self, model: &mut dyn Model, most_bytes: usize) -> Transfer {
        let Some(Pending::Load {
            results,
            blocks,
            state,
            done,
            beside_us,
        }) = &mut self.pending
        else {
            let Some(Pending::Save { blocks }) = self.pending else {
                panic!("a transfer is pending");
            };
            return self.settle_save(blocks);
        };
        let mut copied = 0;
        let asked = blocks.len() + usize::from(state.is_some());
        while (*done as usize) < asked {
            match results.take(*done) {
                Ok(loaded) => {
                    match (blocks.get(*done as usize), *state) {
                        (Some(&block), _) => model.write_block(block, &loaded.kv),
                        (None, Some(state)) => model.write_state(state, &loaded.kv),
                        (None, None) => unreachable!("nothing else was asked for"),
                    }
                    *done += 1;
                    *beside_us += loaded.beside_us;
                    copied += loaded.kv.len();
                    self.shared.give_back(loaded.kv);
                    if copied >= most_bytes && (*done as usize) < asked {
                        return Transfer::Pending;
                    }
                }
                Err(TryRecvError::Empty) => return Transfer::Pending,
                Err(TryRecvError::Disconnected) => break,
            }
        }
        // The last block counts with the state behind it alone.
        let whole = *done as usize == asked;
        let come = (*done as usize).min(blocks.len() - usize::from(!whole));
        let over = Transfer::Done {
            blocks: u32::try_from(come).expect("block numbers are u32"),
            beside_us: *beside_us,
        };
        self.pending = None;
        over
    }

    fn abandon(&mut self) {
        if let Some(Pending::Load { results, .. }) = self.pending.take() {
            self.given_up = Some(results);
        }
    }

    fn flush(&mut self, most: Duration) {
        let until = Instant::now() + most;
        let mut state = self.shared.state();
        while !state.staged.is_empty() || state.to_log > 0 {
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                tracing::warn!(
                    "KV store: {} blocks could not be saved in time",
                    state.staged.len()
                );
                return;
            };
            let woken = self.shared.settled.wait_timeout(state, left);
            state = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    fn stats(&self) -> StoreStats {
        self.shared.state().stats()
    }

    fn holdings(&self) -> Option<Holdings> {
        Some(Holdings::new(Arc::clone(&self.shared)))
    }

    fn share(&mut self, remembered: &Remembered) {
        if let Err(error) = self.shared.read_said(remembered) {
            tracing::warn!("KV store: what was said cannot be read ({error})");
        }
        self.remembered = Some(remembered.clone());
    }

    fn said(&mut self) {
        if let Some(remembered) = &self.remembered {
            self.shared.state().to_log += 1;
            // Without the writer the program ends.
            _ = self.writes.send(WriteJob::Said(remembered.clone()));
        }
    }
}

impl DiskStore {
    /// Whether the model has running state.
    fn is_stateful(&self) -> bool {
        self.shared.config.state_bytes > 0
    }

    /// A save is over once it is copied, unless too much waits to be written.
    fn settle_save(&mut self, blocks: u32) -> Transfer {
        let most = if self.wanted {
            MOST_STAGED_BYTES
        } else {
            STAGED_BYTES
        };
        if self.staged_bytes() > most {
            return Transfer::Pending;
        }
        self.pending = None;
        Transfer::done(blocks)
    }
}

#[cfg(test)]
mod tests;
