//! One moment, and how it stands in the ring: a word with its kind and its length, then its fields.

use andante_sched::{Prefill, Priority, SeqId};

use super::{PAGE, next_at};
use crate::status::{IoRecord, StepRecord};

/// Something that happened to a request, or a step. Times are µs of the engine's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moment {
    /// A request has come into the queue.
    Arrived {
        /// When the engine took it in.
        at_us: u64,
        /// The sequence that it becomes.
        id: SeqId,
        /// Whom it is served for, by a number that tells tenants apart and nothing about them: see
        /// [`EngineHandle::pseudonym`](crate::EngineHandle::pseudonym).
        tenant: u32,
        /// How urgent it is.
        priority: Priority,
        /// Tokens of its prompt.
        prompt_tokens: u32,
        /// How many of those can be loaded from the store.
        stored_tokens: u32,
        /// Most tokens of its answer.
        max_new: u32,
        /// Whether it may take over what others have computed.
        cache: bool,
    },
    /// A sequence has left the queue for a place among those that are computed.
    Admitted {
        /// When.
        at_us: u64,
        /// Which.
        id: SeqId,
    },
    /// The first step that works on a sequence has been planned.
    Started {
        /// When the step began.
        at_us: u64,
        /// Which.
        id: SeqId,
        /// Tokens of its prompt that were found in memory.
        cached_tokens: u32,
    },
    /// A step is over.
    Step(StepMoment),
    /// A sequence waits for its client to read.
    Parked {
        /// Since when.
        at_us: u64,
        /// Which.
        id: SeqId,
    },
    /// Its client has read.
    Unparked {
        /// When.
        at_us: u64,
        /// Which.
        id: SeqId,
    },
    /// A request has ended.
    Ended {
        /// When.
        at_us: u64,
        /// Which.
        id: SeqId,
        /// How.
        how: Ending,
        /// Tokens of its prompt that did not have to be computed.
        cached_tokens: u32,
        /// Tokens generated.
        tokens: u32,
    },
}

/// A step, and what waited when it was over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepMoment {
    /// The step. Of very many sequences only the first are listed.
    pub record: StepRecord,
    /// Sequences that generated, listed or not.
    pub rows: u32,
    /// Requests that waited for a place.
    pub queued: u32,
    /// Sequences that held KV memory.
    pub resident: u32,
    /// KV blocks that they held.
    pub blocks_used: u32,
    /// KV blocks that nobody held and the prefix cache kept.
    pub blocks_cached: u32,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The model ended the answer, or a stop string did.
    Stop,
    /// The answer reached its most tokens.
    Length,
    /// Its client went away.
    Cancelled,
    /// It failed.
    Failed,
}

impl Ending {
    const ALL: [Self; 4] = [Self::Stop, Self::Length, Self::Cancelled, Self::Failed];
}

/// Words of a step without its lists.
const STEP_WORDS: usize = 12;
/// Most sequences of a step that are listed, so that it fits a page.
const MOST_ROWS: usize = 512;
const MOST_RANGES: usize = (PAGE as usize - STEP_WORDS - MOST_ROWS) / 2;

impl Moment {
    /// Writes it.
    pub(super) fn put(&self, out: &mut Vec<u64>) {
        out.push(0);
        let kind = match *self {
            Self::Arrived {
                at_us,
                id,
                tenant,
                priority,
                prompt_tokens,
                stored_tokens,
                max_new,
                cache,
            } => {
                let flags = u64::from(cache) << 8 | priority as u64;
                out.extend([at_us, id, pair(tenant, prompt_tokens)]);
                out.extend([pair(stored_tokens, max_new), flags]);
                1
            }
            Self::Admitted { at_us, id } => {
                out.extend([at_us, id]);
                2
            }
            Self::Started {
                at_us,
                id,
                cached_tokens,
            } => {
                out.extend([at_us, id, cached_tokens.into()]);
                3
            }
            Self::Step(ref step) => {
                step.put(out);
                4
            }
            Self::Parked { at_us, id } => {
                out.extend([at_us, id]);
                5
            }
            Self::Unparked { at_us, id } => {
                out.extend([at_us, id]);
                6
            }
            Self::Ended {
                at_us,
                id,
                how,
                cached_tokens,
                tokens,
            } => {
                out.extend([at_us, id, how as u64, pair(cached_tokens, tokens)]);
                7
            }
        };
        out[0] = (out.len() as u64) << 8 | kind;
    }

    /// Reads one; `None` if these are the words of none.
    fn take(kind: u64, words: &[u64]) -> Option<Self> {
        let mut words = words.iter().copied();
        let mut next = || words.next();
        Some(match kind {
            1 => {
                let (at_us, id) = (next()?, next()?);
                let (tenant, prompt_tokens) = halves(next()?);
                let (stored_tokens, max_new) = halves(next()?);
                let flags = next()?;
                Self::Arrived {
                    at_us,
                    id,
                    tenant,
                    priority: *Priority::ALL.get((flags & 0xff) as usize)?,
                    prompt_tokens,
                    stored_tokens,
                    max_new,
                    cache: flags >> 8 != 0,
                }
            }
            2 => Self::Admitted {
                at_us: next()?,
                id: next()?,
            },
            3 => Self::Started {
                at_us: next()?,
                id: next()?,
                cached_tokens: halves(next()?).1,
            },
            4 => Self::Step(StepMoment::take(&mut words)?),
            5 => Self::Parked {
                at_us: next()?,
                id: next()?,
            },
            6 => Self::Unparked {
                at_us: next()?,
                id: next()?,
            },
            7 => {
                let (at_us, id) = (next()?, next()?);
                let how = *Ending::ALL.get(next()? as usize)?;
                let (cached_tokens, tokens) = halves(next()?);
                Self::Ended {
                    at_us,
                    id,
                    how,
                    cached_tokens,
                    tokens,
                }
            }
            _ => return None,
        })
    }
}

impl StepMoment {
    fn put(&self, out: &mut Vec<u64>) {
        let record = &self.record;
        let decode = &record.decode[..record.decode.len().min(MOST_ROWS)];
        let prefill = &record.prefill[..record.prefill.len().min(MOST_RANGES)];
        let (io, moved, whose) = match record.io {
            None => (0, 0, 0),
            Some(IoRecord::Load { id, blocks }) => (1, blocks, id),
            Some(IoRecord::Save { blocks }) => (2, blocks, 0),
        };
        let flags = u32::from(record.contended) | u32::from(record.floor_limited) << 1 | io << 2;
        out.extend([record.step_no, record.started_us, record.predicted_us]);
        out.extend([record.budget_us, record.actual_us, record.io_us]);
        out.extend([pair(flags, moved), whose]);
        out.push(pair(self.queued, self.resident));
        out.push(pair(self.blocks_used, self.blocks_cached));
        // Lists are short.
        out.push(pair(self.rows, decode.len() as u32));
        out.extend(decode);
        for part in prefill {
            out.extend([
                part.id << 1 | u64::from(part.last),
                pair(part.start, part.tokens),
            ]);
        }
    }

    fn take(words: &mut impl Iterator<Item = u64>) -> Option<Self> {
        let mut next = || words.next();
        let mut step = Self::default();
        let record = &mut step.record;
        record.step_no = next()?;
        record.started_us = next()?;
        record.predicted_us = next()?;
        record.budget_us = next()?;
        record.actual_us = next()?;
        record.io_us = next()?;
        let (flags, blocks) = halves(next()?);
        let id = next()?;
        record.contended = flags & 1 != 0;
        record.floor_limited = flags & 2 != 0;
        record.io = match flags >> 2 {
            1 => Some(IoRecord::Load { id, blocks }),
            2 => Some(IoRecord::Save { blocks }),
            _ => None,
        };
        (step.queued, step.resident) = halves(next()?);
        (step.blocks_used, step.blocks_cached) = halves(next()?);
        let (rows, listed) = halves(next()?);
        step.rows = rows;
        for _ in 0..listed {
            record.decode.push(next()?);
        }
        while let Some(id) = next() {
            let (start, tokens) = halves(next()?);
            record.prefill.push(Prefill {
                id: id >> 1,
                start,
                tokens,
                last: id & 1 != 0,
            });
        }
        Some(step)
    }
}

/// Reads all that is in words of the ring that begin at position `start`.
pub(super) fn take_all(words: &[u64], start: u64, moments: &mut Vec<Moment>) {
    let mut position = start;
    while let Some(index) = next_at(words, start, &mut position) {
        let (kind, length) = (words[index] & 0xff, words[index] >> 8);
        let end = index + length as usize;
        let Some(fields) = words.get(index + 1..end) else {
            debug_assert!(false, "a moment is written as a whole");
            return;
        };
        moments.extend(Moment::take(kind, fields));
        position += length;
    }
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(word: u64) -> (u32, u32) {
    // Each is the half that it is cut to.
    ((word >> 32) as u32, word as u32)
}
