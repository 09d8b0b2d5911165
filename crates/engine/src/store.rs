//! KV of prompts outside the model's memory: what the engine asks of a store, and the one transfer under way.
//!
//! Nothing is loaded or saved unless the scheduler has planned it: a unit runs on the engine thread, in its step, before the
//! forward pass. A store that is late costs no step: it is asked again before each of the following ones.

mod block;
mod disk;
mod folder;
mod index;
mod key;
mod objects;
mod said;
mod secret;
mod state;
mod upkeep;

use std::time::Duration;

use andante_model::Model;
use andante_sched::{IoKind, IoUnit, Scheduler};

use crate::clock::Clock;

pub use block::{ObjectInfo, Reject, inspect};
pub use disk::{DiskStore, Holdings};
pub use folder::Folder;
pub use key::{Key, ObjectName};
pub use objects::{Listed, Listing, Objects};
pub(crate) use said::Kept;
pub use said::Remembered;
pub use secret::Secret;
pub use state::{StoreConfig, StoreStats};
pub use upkeep::{prune, verify};

/// Keeps the KV blocks of prompts: on disk, in another process, on another machine.
///
/// All calls come from the engine thread, between forward passes; `model` is always the same.
pub trait Store: Send {
    /// How many of the first tokens of `prompt` it can load, whole blocks from the beginning, with the running state behind them where
    /// the model has one. Answered from memory: the
    /// engine asks for every request, between two steps.
    fn lookup(&mut self, salt: u64, prompt: &[u32]) -> u32;

    /// How many of the first tokens of a sequence need not be saved: it has their blocks, or is about to.
    fn holds(&mut self, salt: u64, tokens: &[u32]) -> u32;

    /// How many of the first tokens of a sequence [`lookup`](Self::lookup) would say, when nobody waits for them yet.
    fn resumable(&mut self, salt: u64, tokens: &[u32]) -> u32 {
        self.holds(salt, tokens)
    }

    /// Starts to fill blocks of the model's memory.
    fn load(&mut self, span: &Span<'_>, model: &mut dyn Model) -> Transfer;

    /// Copies blocks out of the model's memory before it returns; what it does with the copy may take longer.
    fn save(&mut self, spans: &[Span<'_>], model: &dyn Model) -> Transfer;

    /// What has become of the transfer that was pending. Copies about `most_bytes` at most.
    fn poll(&mut self, model: &mut dyn Model, most_bytes: usize) -> Transfer;

    /// Gives the pending transfer up. When this returns, the store touches none of its blocks any more.
    fn abandon(&mut self);

    /// Waits until everything saved is where it will stay, for as long as this at most.
    fn flush(&mut self, most: Duration);

    /// What it has done, and what it holds.
    fn stats(&self) -> StoreStats;

    /// What tells which prefixes it holds, if it can.
    fn holdings(&self) -> Option<Holdings> {
        None
    }

    /// Adds what it knows of what was said before, and goes on to keep it. Before the first request.
    fn share(&mut self, _remembered: &Remembered) {}

    /// There is something in it that the store does not know.
    fn said(&mut self) {}
}

/// Consecutive blocks of one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span<'a> {
    /// What only sequences of the same salt share.
    pub salt: u64,
    /// The sequence from its beginning to the end of the last block: what names the blocks' content.
    pub tokens: &'a [u32],
    /// Where the first of `blocks` stands in the sequence, in blocks.
    pub first_block: u32,
    /// Blocks of the model's memory.
    pub blocks: &'a [u32],
    /// For each of them the checkpoint of running state behind it that goes with it, if any does. Of a load, only the last block has
    /// one, and has come only when that has. Empty for a model without running state.
    pub states: &'a [Option<u32>],
}

/// How far a load or a save has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// It is over, after so many blocks, from the first: fewer than asked for mean that the store failed there.
    Done {
        /// Blocks whose content is where it should be.
        blocks: u32,
        /// What the store's own threads have spent on it, in µs.
        beside_us: u64,
    },
    /// Not yet.
    Pending,
}

impl Transfer {
    /// Over, and all the work was done in the call.
    #[must_use]
    pub fn done(blocks: u32) -> Self {
        Self::Done {
            blocks,
            beside_us: 0,
        }
    }
}

/// How long a store may be late before its transfer is given up, in µs.
pub(crate) const LATE_US: u64 = 5_000_000;
/// Most bytes that a load copies into memory at once: a part of its step, or between two steps.
pub(crate) const COPY_BYTES: usize = 32 << 20;
/// As much between two steps while answers run, which no step's budget counts: two milliseconds or so.
const BUSY_BYTES: usize = 8 << 20;
/// How often a late store is asked while there is nothing else to do, in µs.
pub(crate) const POLL_US: u64 = 1000;

/// A store and the unit that it is working on.
pub(crate) struct Stores {
    store: Box<dyn Store>,
    late: Option<Late>,
    /// It has been said that it is slow.
    told_slow: bool,
}

/// A unit that did not end in its step.
#[derive(Debug, Clone, Copy)]
struct Late {
    unit_no: u64,
    load: bool,
    since_us: u64,
    /// Time that the engine thread has spent on it so far.
    spent_us: u64,
}

impl Stores {
    pub(crate) fn new(store: Box<dyn Store>) -> Self {
        Self {
            store,
            late: None,
            told_slow: false,
        }
    }

    pub(crate) fn lookup(&mut self, salt: u64, prompt: &[u32]) -> u32 {
        self.store.lookup(salt, prompt)
    }

    pub(crate) fn resumable(&mut self, salt: u64, tokens: &[u32]) -> u32 {
        self.store.resumable(salt, tokens)
    }

    pub(crate) fn flush(&mut self, most: Duration) {
        self.store.flush(most);
    }

    pub(crate) fn stats(&self) -> StoreStats {
        self.store.stats()
    }

    pub(crate) fn holdings(&self) -> Option<Holdings> {
        self.store.holdings()
    }

    pub(crate) fn share(&mut self, remembered: &Remembered) {
        self.store.share(remembered);
    }

    pub(crate) fn said(&mut self) {
        self.store.said();
    }

    /// Whether a unit is under way beyond its step.
    pub(crate) fn is_late(&self) -> bool {
        self.late.is_some()
    }

    /// Runs a unit of the step in flight and tells the scheduler when it is over already. Gives the time it took, in µs.
    pub(crate) fn run(
        &mut self,
        unit: &IoUnit,
        scheduler: &mut Scheduler,
        model: &mut dyn Model,
        clock: &dyn Clock,
    ) -> u64 {
        let since_us = clock.now_us();
        let transfer = match &unit.kind {
            IoKind::Load {
                id,
                start_block,
                blocks,
            } => {
                let (first, end) = (*start_block as usize, (start_block + blocks) as usize);
                let tokens = scheduler.tokens(*id).expect("a planned sequence lives");
                let table = scheduler
                    .block_table(*id)
                    .expect("a planned sequence has blocks");
                let state = scheduler.in_flight().and_then(|step| step.states.load);
                let mut states = Vec::new();
                if state.is_some() {
                    states.resize(end - first, None);
                    states[end - first - 1] = state;
                }
                let span = Span {
                    states: &states,
                    salt: scheduler.salt(*id).expect("a planned sequence lives"),
                    tokens: &tokens[..end * scheduler.config().block_tokens as usize],
                    first_block: *start_block,
                    blocks: &table[first..end],
                };
                self.store.load(&span, model)
            }
            IoKind::Save { blocks } => {
                let runs = Runs::of(blocks, scheduler, &mut *self.store);
                self.store.save(&runs.spans(), model)
            }
        };
        let spent_us = clock.now_us().saturating_sub(since_us);
        match transfer {
            Transfer::Done { blocks, beside_us } => {
                scheduler.io_done(unit.unit_no, blocks, spent_us.saturating_add(beside_us));
            }
            Transfer::Pending => {
                self.late = Some(Late {
                    unit_no: unit.unit_no,
                    load: matches!(unit.kind, IoKind::Load { .. }),
                    since_us,
                    spent_us,
                });
            }
        }
        spent_us
    }

    /// Asks after a late unit, between two steps.
    pub(crate) fn poll(
        &mut self,
        scheduler: &mut Scheduler,
        model: &mut dyn Model,
        clock: &dyn Clock,
    ) {
        let Some(late) = &mut self.late else {
            return;
        };
        let before_us = clock.now_us();
        let busy = scheduler.stats().active > 0;
        let most_bytes = if busy { BUSY_BYTES } else { COPY_BYTES };
        let transfer = self.store.poll(model, most_bytes);
        let now_us = clock.now_us();
        late.spent_us += now_us.saturating_sub(before_us);
        let late = *late;
        match transfer {
            Transfer::Done { blocks, beside_us } => {
                self.late = None;
                let elapsed_us = late.spent_us.saturating_add(beside_us);
                scheduler.io_done(late.unit_no, blocks, elapsed_us);
            }
            Transfer::Pending if now_us.saturating_sub(late.since_us) >= LATE_US => {
                if !std::mem::replace(&mut self.told_slow, true) {
                    let seconds = LATE_US / 1_000_000;
                    let rest = if late.load {
                        "prompts are"
                    } else {
                        "what it misses will be"
                    };
                    tracing::warn!("KV store: no answer for {seconds} s; {rest} computed instead");
                }
                self.abandon(scheduler);
            }
            Transfer::Pending => {}
        }
    }

    /// Gives a late load up.
    pub(crate) fn abandon_load(&mut self, scheduler: &mut Scheduler) {
        if self.late.is_some_and(|late| late.load) {
            self.abandon(scheduler);
        }
    }

    /// Gives a late unit up.
    pub(crate) fn abandon(&mut self, scheduler: &mut Scheduler) {
        if let Some(late) = self.late.take() {
            self.store.abandon();
            scheduler.io_done(late.unit_no, 0, late.spent_us);
        }
    }
}

/// The blocks of a save, in runs that follow each other in a sequence.
///
/// A block is of use in the store only if all before it are there. Those that it has lost, or never got, are still in memory
/// and are saved again first, as many more as were planned at most.
struct Runs(Vec<Run>);

struct Run {
    salt: u64,
    tokens: Vec<u32>,
    blocks: Vec<u32>,
    states: Vec<Option<u32>>,
    block_tokens: usize,
}

impl Runs {
    fn of(blocks: &[u32], scheduler: &Scheduler, store: &mut dyn Store) -> Self {
        let mut more = blocks.len();
        let block_tokens = scheduler.config().block_tokens as usize;
        let mut runs: Vec<Run> = Vec::new();
        for &block in blocks {
            let (before, tokens) = scheduler
                .block_content(block)
                .expect("a block to save is indexed");
            let last = runs
                .last_mut()
                .filter(|run| run.blocks.last() == before.as_ref());
            if let Some(run) = last {
                run.tokens.extend_from_slice(tokens);
                run.blocks.push(block);
            } else {
                let (mut tokens, mut table) = sequence_to(block, scheduler);
                let parents = table.len() - 1;
                let salt = scheduler.block_salt(block);
                let held =
                    store.holds(salt, &tokens[..parents * block_tokens]) as usize / block_tokens;
                let missing = (parents - held).min(more);
                more -= missing;
                table.truncate(held + missing + 1);
                tokens.truncate(table.len() * block_tokens);
                runs.push(Run {
                    salt,
                    tokens,
                    blocks: table.split_off(held),
                    states: Vec::new(),
                    block_tokens,
                });
            }
        }
        if scheduler.config().checkpoints > 0 {
            for run in &mut runs {
                let states = run.blocks.iter().map(|&block| scheduler.block_state(block));
                run.states = states.collect();
            }
        }
        Self(runs)
    }

    fn spans(&self) -> Vec<Span<'_>> {
        self.0.iter().map(Run::span).collect()
    }
}

impl Run {
    fn span(&self) -> Span<'_> {
        let first = self.tokens.len() / self.block_tokens - self.blocks.len();
        Span {
            salt: self.salt,
            tokens: &self.tokens,
            first_block: u32::try_from(first).expect("a sequence fits the blocks"),
            blocks: &self.blocks,
            states: &self.states,
        }
    }
}

/// The tokens from the beginning of a sequence to the end of an indexed block, and the blocks that hold them.
fn sequence_to(block: u32, scheduler: &Scheduler) -> (Vec<u32>, Vec<u32>) {
    let (mut parts, mut blocks) = (Vec::new(), Vec::new());
    let mut next = Some(block);
    while let Some(block) = next {
        let (before, tokens) = scheduler
            .block_content(block)
            .expect("what an indexed block continues is indexed");
        parts.push(tokens);
        blocks.push(block);
        next = before;
    }
    blocks.reverse();
    (parts.into_iter().rev().flatten().copied().collect(), blocks)
}
