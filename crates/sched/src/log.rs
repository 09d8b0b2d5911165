//! The scheduling log: every call of a scheduler and every plan it gave, so that a run can be repeated bit for bit.
//!
//! # Format
//! Integers are LEB128 varints (7 bits a byte, low bits first, the top bit set on all but the last); signed ones are
//! zigzag-coded first. A flag is a byte, 0 or 1; an optional value is a flag and the value; a list is its count and its
//! items. Nothing is aligned.
//!
//! ```text
//! file    "ANDSCHED", a version byte (4), the configuration, a check, then entries
//! config  slots blocks block_tokens max_queue t_stall_us stall_auto t_idle_us q_min q_max q_max_contended
//!         row_granule efficiency_permille oldest_permille prefill_share_permille? wait_us mode
//!         tenant_slots [tenant weight]* checkpoints checkpoint_blocks save_blocks load_cost save_cost cost fixed_cost
//!         mode: 0 mix, 1 hand-off; load_cost, save_cost: unit block; cost: decode prefill mixed token attend context row
//!         (2⁻²⁰ µs, signed)
//! check   4 bytes, little-endian: 32-bit FNV-1a of all bytes before it
//! entry   a byte that names it, and its fields:
//!    1  add       id max_new cache tenant priority stored salt warm [token]*  priority: 0 low, 1 normal, 2 high
//!    2  cancel    id
//!    3  park      id
//!    4  unpark    id
//!    5  busy      id
//!    6  ready     id
//!    7  sampled   id outcome
//!    8  idle      time, check
//!    9  wait      time, until_us, check
//!   10  step      time, step, check
//!   11  complete  step_no elapsed_us [outcome]*
//!   12  io_done   unit_no done_blocks elapsed_us
//! time    µs since the time of the entry before that has one (the first: since 0), modulo 2⁶⁴
//! outcome 0 prefilled, 1 sampling, 2 finish, 3 failed, 4 + t: token t
//! step    step_no [id]* [id start tokens last]* io? states predicted_us budget_us contended floor_limited
//! states  [from to]* load? [from to]*
//! io      unit_no, 0 (load) id start_block blocks  or  1 (save) [block]*
//! ```
//!
//! Entries 8 to 10 are what `plan` gave; all others are calls with their arguments. The prompts are in the log as token
//! ids, so it is as private as they are. A crash may cut the end off: whatever is whole is still of use.

mod codec;

use std::collections::BTreeMap;

use thiserror::Error;

use crate::config::Config;
use crate::cost::Fixed;
use crate::scheduler::Scheduler;
use crate::step::{Admission, Outcome, Plan, SeqId, Step};
use codec::{Fault, Input, Value, fnv1a};

/// The first bytes of every log, before the version.
pub const LOG_MAGIC: [u8; 8] = *b"ANDSCHED";

const VERSION: u8 = 4;

/// Most tokens of KV memory, and most tokens of live sequences, that a log may ask a replay to make room for: 2²⁸ tokens
/// are a gibibyte of token ids.
const MAX_TOKENS: u64 = 1 << 28;

/// Most slots that a log may ask for.
const MAX_SLOTS: u32 = 1 << 16;

/// One call of a scheduler, or a plan that it gave.
#[derive(Debug, Clone, Copy)]
pub enum Entry<'a> {
    /// [`Scheduler::add`], accepted or not.
    Add(Admission<'a>),
    /// [`Scheduler::cancel`].
    Cancel(SeqId),
    /// [`Scheduler::park`].
    Park(SeqId),
    /// [`Scheduler::unpark`].
    Unpark(SeqId),
    /// [`Scheduler::busy`].
    Busy(SeqId),
    /// [`Scheduler::ready`].
    Ready(SeqId),
    /// [`Scheduler::sampled`].
    Sampled {
        /// Whose token was awaited.
        id: SeqId,
        /// What it was.
        outcome: Outcome,
    },
    /// [`Scheduler::plan`] and what it gave.
    Plan {
        /// The time it was given, µs.
        now_us: u64,
        /// The plan.
        plan: Plan<'a>,
    },
    /// [`Scheduler::complete`], accepted or not.
    Complete {
        /// The step named.
        step_no: u64,
        /// Its time, µs.
        elapsed_us: u64,
        /// What became of its rows and ranges.
        outcomes: &'a [Outcome],
    },
    /// [`Scheduler::io_done`].
    IoDone {
        /// The unit named.
        unit_no: u64,
        /// Blocks that were moved.
        done_blocks: u32,
        /// Its time, µs.
        elapsed_us: u64,
    },
}

/// A plan that owns its step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Planned {
    /// [`Plan::Step`].
    Step(Box<Step>),
    /// [`Plan::Wait`].
    Wait {
        /// Latest time to plan again, µs.
        until_us: u64,
    },
    /// [`Plan::Idle`].
    Idle,
}

impl From<Plan<'_>> for Planned {
    fn from(plan: Plan<'_>) -> Self {
        match plan {
            Plan::Step(step) => Self::Step(Box::new(step.clone())),
            Plan::Wait { until_us } => Self::Wait { until_us },
            Plan::Idle => Self::Idle,
        }
    }
}

/// Why a log cannot be replayed to its end. Offsets are in bytes from the log's start.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LogError {
    /// It does not begin like one.
    #[error("this is not a scheduling log")]
    NotALog,
    /// It was written by another release.
    #[error("version {found} of the scheduling log is not known, only {VERSION}")]
    Version {
        /// The version byte.
        found: u8,
    },
    /// Not even the configuration is whole.
    #[error("the log ends within its head")]
    NoHead,
    /// These bytes were never written so.
    #[error("the log is damaged near byte {offset}")]
    Damaged {
        /// Start of the damaged entry, or the end of a run of entries of which one is damaged.
        offset: usize,
    },
    /// Its numbers would need more memory than a replay may use.
    #[error("the log asks for too much memory near byte {offset}")]
    TooLarge {
        /// Start of the entry that does.
        offset: usize,
    },
    /// This scheduler decides otherwise than the one that wrote the log.
    #[error(
        "at byte {offset} ({now_us} µs) the log has another plan\n recorded: {recorded:?}\n replayed: {replayed:?}"
    )]
    Differs {
        /// Start of the plan's entry.
        offset: usize,
        /// The time it was planned, µs.
        now_us: u64,
        /// The plan in the log.
        recorded: Planned,
        /// The plan now.
        replayed: Planned,
    },
}

/// What a replay went through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Entries in all.
    pub entries: u64,
    /// Plans compared and found equal.
    pub plans: u64,
    /// Those of them that were steps.
    pub steps: u64,
    /// Bytes at the end that are no whole entry: the log was cut off.
    pub cut_bytes: usize,
}

/// Writes a log into memory, from where its owner takes it.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    bytes: Vec<u8>,
    /// Bytes of `bytes` that are in `check`.
    checked: usize,
    check: u32,
    now_us: u64,
}

impl Recorder {
    pub(crate) fn new(config: &Config) -> Self {
        let mut recorder = Self {
            bytes: LOG_MAGIC.to_vec(),
            checked: 0,
            check: fnv1a::START,
            now_us: 0,
        };
        recorder.bytes.push(VERSION);
        config.put(&mut recorder.bytes);
        recorder.seal();
        recorder
    }

    pub(crate) fn note(&mut self, entry: Entry<'_>) {
        let out = &mut self.bytes;
        match entry {
            Entry::Add(request) => {
                out.push(1);
                request.id.put(out);
                request.max_new.put(out);
                request.cache.put(out);
                request.tenant.put(out);
                request.priority.put(out);
                request.stored.put(out);
                request.salt.put(out);
                request.warm.put(out);
                codec::put_list(request.prompt, out);
            }
            Entry::Cancel(id) => put_id(2, id, out),
            Entry::Park(id) => put_id(3, id, out),
            Entry::Unpark(id) => put_id(4, id, out),
            Entry::Busy(id) => put_id(5, id, out),
            Entry::Ready(id) => put_id(6, id, out),
            Entry::Sampled { id, outcome } => {
                put_id(7, id, out);
                outcome.put(out);
            }
            Entry::Plan { now_us, plan } => self.note_plan(now_us, plan),
            Entry::Complete {
                step_no,
                elapsed_us,
                outcomes,
            } => {
                put_id(11, step_no, out);
                elapsed_us.put(out);
                codec::put_list(outcomes, out);
            }
            Entry::IoDone {
                unit_no,
                done_blocks,
                elapsed_us,
            } => {
                put_id(12, unit_no, out);
                done_blocks.put(out);
                elapsed_us.put(out);
            }
        }
    }

    /// Moves what has been written since the last time to the end of `log`.
    pub(crate) fn take(&mut self, log: &mut Vec<u8>) {
        self.digest();
        log.append(&mut self.bytes);
        self.checked = 0;
    }

    fn note_plan(&mut self, now_us: u64, plan: Plan<'_>) {
        let out = &mut self.bytes;
        let since = now_us.wrapping_sub(std::mem::replace(&mut self.now_us, now_us));
        match plan {
            Plan::Idle => put_id(8, since, out),
            Plan::Wait { until_us } => {
                put_id(9, since, out);
                until_us.put(out);
            }
            Plan::Step(step) => {
                put_id(10, since, out);
                step.put(out);
            }
        }
        self.seal();
    }

    fn digest(&mut self) {
        self.check = fnv1a::digest(self.check, &self.bytes[self.checked..]);
        self.checked = self.bytes.len();
    }

    fn seal(&mut self) {
        self.digest();
        self.bytes.extend_from_slice(&self.check.to_le_bytes());
    }
}

fn put_id(name: u8, value: u64, out: &mut Vec<u8>) {
    out.push(name);
    value.put(out);
}

/// Reads a log entry by entry.
#[derive(Debug)]
struct Reader<'a> {
    input: Input<'a>,
    /// Bytes of the input that are in `check`.
    checked: usize,
    check: u32,
    now_us: u64,
    /// What the entry read last points to.
    prompt: Vec<u32>,
    outcomes: Vec<Outcome>,
    step: Step,
}

impl<'a> Reader<'a> {
    /// Reads the head.
    fn new(log: &'a [u8]) -> Result<(Self, Config), LogError> {
        let Some(rest) = log.strip_prefix(&LOG_MAGIC[..]) else {
            return Err(LogError::NotALog);
        };
        match rest.first() {
            Some(&VERSION) => {}
            Some(&found) => return Err(LogError::Version { found }),
            None => return Err(LogError::NoHead),
        }
        let mut reader = Self {
            input: Input::new(log, LOG_MAGIC.len() + 1),
            checked: 0,
            check: fnv1a::START,
            now_us: 0,
            prompt: Vec::new(),
            outcomes: Vec::new(),
            step: Step::default(),
        };
        let head = |fault| match fault {
            Fault::Ended => LogError::NoHead,
            Fault::Wrong => LogError::Damaged { offset: 0 },
        };
        let config = Config::get(&mut reader.input).map_err(head)?;
        reader.verify().map_err(head)?;
        check_config(&config)?;
        Ok((reader, config))
    }

    fn next(&mut self) -> Result<Entry<'_>, Fault> {
        let input = &mut self.input;
        Ok(match input.byte()? {
            1 => {
                let (id, max_new, cache) = (u64::get(input)?, u32::get(input)?, bool::get(input)?);
                let (tenant, priority) = (u64::get(input)?, Value::get(input)?);
                let (stored, salt) = (u32::get(input)?, u64::get(input)?);
                let warm = bool::get(input)?;
                self.prompt = Vec::get(input)?;
                Entry::Add(Admission {
                    cache,
                    tenant,
                    priority,
                    stored,
                    salt,
                    warm,
                    ..Admission::new(id, &self.prompt, max_new)
                })
            }
            2 => Entry::Cancel(u64::get(input)?),
            3 => Entry::Park(u64::get(input)?),
            4 => Entry::Unpark(u64::get(input)?),
            5 => Entry::Busy(u64::get(input)?),
            6 => Entry::Ready(u64::get(input)?),
            7 => Entry::Sampled {
                id: u64::get(input)?,
                outcome: Value::get(input)?,
            },
            name @ 8..=10 => return self.plan(name),
            11 => {
                let (step_no, elapsed_us) = (u64::get(input)?, elapsed(input)?);
                self.outcomes = Vec::get(input)?;
                Entry::Complete {
                    step_no,
                    elapsed_us,
                    outcomes: &self.outcomes,
                }
            }
            12 => Entry::IoDone {
                unit_no: u64::get(input)?,
                done_blocks: u32::get(input)?,
                elapsed_us: elapsed(input)?,
            },
            _ => return Err(Fault::Wrong),
        })
    }

    fn plan(&mut self, name: u8) -> Result<Entry<'_>, Fault> {
        self.now_us = self.now_us.wrapping_add(u64::get(&mut self.input)?);
        let now_us = self.now_us;
        let until_us = if name == 9 {
            u64::get(&mut self.input)?
        } else {
            0
        };
        if name == 10 {
            self.step = Step::get(&mut self.input)?;
        }
        self.verify()?;
        let plan = match name {
            8 => Plan::Idle,
            9 => Plan::Wait { until_us },
            _ => Plan::Step(&self.step),
        };
        Ok(Entry::Plan { now_us, plan })
    }

    /// Reads a check and compares it with the bytes before it.
    fn verify(&mut self) -> Result<(), Fault> {
        let before = self.input.since(self.checked);
        self.check = fnv1a::digest(self.check, before);
        self.checked = self.input.offset();
        let mut written = [0; 4];
        for byte in &mut written {
            *byte = self.input.byte()?;
        }
        if u32::from_le_bytes(written) == self.check {
            Ok(())
        } else {
            Err(Fault::Wrong)
        }
    }
}

/// What a coefficient of a cost model can be: up to 18 minutes for one of anything.
const COSTS: std::ops::Range<Fixed> = 0..1 << 50;

/// Longest step that a log may claim, µs: twelve days.
const MAX_ELAPSED_US: u64 = 1 << 40;

fn elapsed(input: &mut Input<'_>) -> Result<u64, Fault> {
    u64::get(input).and_then(|elapsed_us| {
        if elapsed_us <= MAX_ELAPSED_US {
            Ok(elapsed_us)
        } else {
            Err(Fault::Wrong)
        }
    })
}

/// A scheduler can be made from it, with bounded memory.
fn check_config(config: &Config) -> Result<(), LogError> {
    if config.slots == 0 || config.blocks == 0 || config.block_tokens == 0 {
        return Err(LogError::Damaged { offset: 0 });
    }
    let io = [config.load_cost, config.save_cost];
    let io = io.iter().flat_map(|cost| [cost.unit, cost.block]);
    if config
        .cost
        .coefficients()
        .into_iter()
        .chain(io)
        .any(|cost| !COSTS.contains(&cost))
    {
        return Err(LogError::Damaged { offset: 0 });
    }
    let tokens = u64::from(config.blocks) * u64::from(config.block_tokens);
    if tokens > MAX_TOKENS
        || config.slots > MAX_SLOTS
        || config.checkpoints > config.blocks.saturating_add(MAX_SLOTS)
    {
        return Err(LogError::TooLarge { offset: 0 });
    }
    // Each resident may fill one in a step, and a load one more.
    let states = config.checkpoints == 0 || config.checkpoints > config.slots + 1;
    if !states || config.checkpoint_blocks == 0 {
        return Err(LogError::Damaged { offset: 0 });
    }
    Ok(())
}

/// Makes the recorded scheduler again, repeats every call, and compares every plan with the recorded one.
///
/// `see` gets each entry after it was applied, with the scheduler as it then is. A log that is cut off is replayed as far
/// as it is whole; [`Replayed::cut_bytes`] says so.
pub fn replay(
    log: &[u8],
    mut see: impl FnMut(&Entry<'_>, &Scheduler),
) -> Result<Replayed, LogError> {
    let (mut reader, config) = Reader::new(log)?;
    let mut scheduler = Scheduler::new(config);
    let mut replayed = Replayed::default();
    let mut room = Room::default();
    while !reader.input.is_empty() {
        let offset = reader.input.offset();
        let entry = match reader.next() {
            Ok(entry) => entry,
            Err(Fault::Ended) => {
                replayed.cut_bytes = log.len() - offset;
                break;
            }
            Err(Fault::Wrong) => return Err(LogError::Damaged { offset }),
        };
        if let Entry::Add(request) = entry
            && !room.take(&request, &scheduler)
        {
            return Err(LogError::TooLarge { offset });
        }
        apply(&mut scheduler, &entry, offset)?;
        replayed.entries += 1;
        if let Entry::Plan { plan, .. } = entry {
            replayed.plans += 1;
            replayed.steps += u64::from(matches!(plan, Plan::Step(_)));
        }
        see(&entry, &scheduler);
    }
    Ok(replayed)
}

fn apply(scheduler: &mut Scheduler, entry: &Entry<'_>, offset: usize) -> Result<(), LogError> {
    // Calls that were refused are in the log too, and are refused again.
    match *entry {
        Entry::Add(request) => drop(scheduler.add(request)),
        Entry::Cancel(id) => drop(scheduler.cancel(id)),
        Entry::Park(id) => drop(scheduler.park(id)),
        Entry::Unpark(id) => drop(scheduler.unpark(id)),
        Entry::Busy(id) => drop(scheduler.busy(id)),
        Entry::Ready(id) => drop(scheduler.ready(id)),
        Entry::Sampled { id, outcome } => drop(scheduler.sampled(id, outcome)),
        Entry::Complete {
            step_no,
            elapsed_us,
            outcomes,
        } => drop(scheduler.complete(step_no, elapsed_us, outcomes)),
        Entry::IoDone {
            unit_no,
            done_blocks,
            elapsed_us,
        } => drop(scheduler.io_done(unit_no, done_blocks, elapsed_us)),
        Entry::Plan { now_us, plan } => {
            // Nobody plans while a step is in flight.
            if scheduler.in_flight().is_some() {
                return Err(LogError::Damaged { offset });
            }
            let replayed = scheduler.plan(now_us);
            if replayed != plan {
                return Err(LogError::Differs {
                    offset,
                    now_us,
                    recorded: plan.into(),
                    replayed: replayed.into(),
                });
            }
        }
    }
    Ok(())
}

/// The tokens that live sequences have room for.
#[derive(Default)]
struct Room {
    live: BTreeMap<SeqId, u64>,
    tokens: u64,
}

impl Room {
    /// False if a replay must not hold that much.
    fn take(&mut self, request: &Admission<'_>, scheduler: &Scheduler) -> bool {
        let tokens = request.prompt.len() as u64 + u64::from(request.max_new);
        if self.tokens + tokens > MAX_TOKENS {
            self.live.retain(|&id, _| scheduler.tokens(id).is_some());
            self.tokens = self.live.values().sum();
        }
        // What does not fit the blocks, or has a live one's id, is refused before it takes any memory.
        let most =
            u64::from(scheduler.config().blocks) * u64::from(scheduler.config().block_tokens);
        if tokens > most || scheduler.tokens(request.id).is_some() {
            return true;
        }
        self.tokens += tokens;
        self.tokens -= self.live.insert(request.id, tokens).unwrap_or(0);
        self.tokens <= MAX_TOKENS
    }
}

impl Scheduler {
    /// Begins to record this run, or ends it. [`take_log`](Self::take_log) fetches what was recorded.
    ///
    /// # Panics
    /// If recording begins when the run has begun: a replay must start from nothing, as the run did.
    pub fn record(&mut self, on: bool) {
        assert!(!on || self.is_new(), "a run is recorded from its start");
        self.log = on.then(|| Box::new(Recorder::new(self.config())));
    }

    /// Moves what was recorded since the last time to the end of `log`; the pieces in order are a log.
    pub fn take_log(&mut self, log: &mut Vec<u8>) {
        if let Some(recorder) = &mut self.log {
            recorder.take(log);
        }
    }

    /// Records a call, if calls are recorded.
    pub(crate) fn note(&mut self, entry: Entry<'_>) {
        if let Some(recorder) = &mut self.log {
            recorder.note(entry);
        }
    }
}

#[cfg(test)]
mod tests;
