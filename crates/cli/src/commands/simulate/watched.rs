//! A watched run: what `GET /timeline` says that happened, as it answers or as the page's schedule keeps it.
//!
//! It has no tokens in it, so that it can be shown to anybody. Nothing can be repeated from it bit for bit, as from a log, and what prompts
//! shared is not known: who simulates its requests computes all of their prompts.

use std::collections::BTreeMap;

use andante_sched::{Priority, SeqId, TenantId};
use serde::Deserialize;
use thiserror::Error;

use super::cost::Coefficients;
use super::world::{Ran, Run};
use crate::trace::{MAX_TOKENS, Prompt, Request};

/// Latest time, µs: some centuries, so that sums of a few do not overflow.
const MAX_US: u64 = 1 << 53;

/// Whether a text is meant to be a timeline: no trace has such a word in it.
pub(super) fn is_one(text: &str) -> bool {
    text.trim_start().starts_with('{') && text.contains("\"moments\"")
}

/// A timeline that was read.
#[derive(Debug)]
pub(super) struct Watched {
    /// What happened. Of requests that had come before, only the steps are known.
    pub(super) run: Run,
    /// The requests that got an answer.
    pub(super) requests: Vec<Request>,
    /// What the server had fitted.
    pub(super) cost: Option<Coefficients>,
    /// Tokens of all prompts, and those that did not have to be computed.
    pub(super) prompt_tokens: u64,
    pub(super) cached_tokens: u64,
    /// Moments are lost.
    pub(super) missed: bool,
}

/// Why it is none.
#[derive(Debug, Error)]
pub(super) enum Fault {
    #[error("not what GET /timeline answers: {0}")]
    Json(#[from] serde_json::Error),
    #[error("sequence {0} arrives twice")]
    Twice(SeqId),
    #[error("sequence {0} arrives before the one that stands before it")]
    Order(SeqId),
    #[error("the prompt of sequence {id} has {tokens} tokens")]
    Prompt { id: SeqId, tokens: u32 },
    #[error("{0} µs is no time of an engine's clock")]
    Time(u64),
}

#[derive(Deserialize)]
struct Document {
    moments: Vec<Moment>,
    #[serde(default)]
    missed: bool,
    cost: Option<Coefficients>,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Moment {
    Arrived(Arrival),
    Started {
        id: SeqId,
        cached_tokens: u32,
    },
    Step(StepDone),
    Ended {
        id: SeqId,
        cached_tokens: u32,
        tokens: u32,
    },
    // These change no figure.
    Admitted {},
    Parked {},
    Unparked {
        id: SeqId,
        at_us: u64,
    },
}

#[derive(Deserialize)]
struct Arrival {
    at_us: u64,
    id: SeqId,
    tenant: String,
    priority: Urgency,
    prompt_tokens: u32,
}

#[derive(Deserialize)]
struct StepDone {
    started_us: u64,
    actual_us: u64,
    rows: u32,
    decode: Vec<SeqId>,
    prefill: Vec<Part>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Urgency {
    Low,
    Normal,
    High,
}

#[derive(Deserialize)]
struct Part {
    id: SeqId,
    tokens: u32,
    last: bool,
}

pub(super) fn read(text: &str) -> Result<Watched, Fault> {
    let document: Document = serde_json::from_str(text)?;
    let mut history = History::default();
    for moment in document.moments {
        history.note(moment)?;
    }
    let (cost, missed) = (document.cost, document.missed);
    Ok(history.end(cost, missed))
}

/// What is known while moments are read. Times count from the first.
#[derive(Default)]
struct History {
    run: Run,
    requests: Vec<Request>,
    places: BTreeMap<SeqId, usize>,
    /// Tenants are told apart by pseudonyms; here they get numbers in the order in which they came.
    tenants: BTreeMap<String, TenantId>,
    start_us: Option<u64>,
}

impl History {
    fn note(&mut self, moment: Moment) -> Result<(), Fault> {
        match moment {
            Moment::Arrived(arrival) => self.arrive(arrival)?,
            Moment::Started { id, cached_tokens } => self.found(id, cached_tokens),
            Moment::Step(step) => self.step(&step)?,
            Moment::Ended {
                id,
                cached_tokens,
                tokens,
            } => {
                // What came from the store counts only now.
                self.found(id, cached_tokens);
                // An embedding is no answer.
                if let Some(&place) = self.places.get(&id)
                    && tokens == 0
                {
                    self.requests[place].answer = 0;
                }
            }
            Moment::Unparked { id, at_us } => {
                let now_us = self.since_start(at_us)?;
                if let Some(&place) = self.places.get(&id) {
                    self.run.resume(place, now_us);
                }
            }
            Moment::Admitted {} | Moment::Parked {} => {}
        }
        Ok(())
    }

    fn arrive(&mut self, arrival: Arrival) -> Result<(), Fault> {
        let (id, tokens) = (arrival.id, arrival.prompt_tokens);
        if !(1..MAX_TOKENS).contains(&tokens) {
            return Err(Fault::Prompt { id, tokens });
        }
        let arrival_us = self.since_start(arrival.at_us)?;
        if let Some(last) = self.requests.last()
            && last.arrival_us > arrival_us
        {
            return Err(Fault::Order(id));
        }
        if self.places.insert(id, self.requests.len()).is_some() {
            return Err(Fault::Twice(id));
        }
        let next = self.tenants.len() as TenantId;
        self.run.arrive(arrival_us, tokens);
        self.requests.push(Request {
            arrival_us,
            prompt: Prompt::Length(tokens),
            answer: 0,
            tenant: *self.tenants.entry(arrival.tenant).or_insert(next),
            priority: match arrival.priority {
                Urgency::Low => Priority::Low,
                Urgency::Normal => Priority::Normal,
                Urgency::High => Priority::High,
            },
        });
        Ok(())
    }

    fn found(&mut self, id: SeqId, cached_tokens: u32) {
        if let Some(&place) = self.places.get(&id) {
            self.run.requests[place].cached = Some(cached_tokens);
        }
    }

    fn step(&mut self, step: &StepDone) -> Result<(), Fault> {
        let start_us = self.since_start(step.started_us)?;
        let end_us = start_us + time(step.actual_us)?;
        self.run.steps.push(Ran {
            start_us,
            elapsed_us: step.actual_us,
            rows: step.rows,
            prefill: step
                .prefill
                .iter()
                .fold(0, |sum, part| part.tokens.saturating_add(sum)),
        });
        let ended = step.prefill.iter().filter(|part| part.last);
        for id in step.decode.iter().copied().chain(ended.map(|part| part.id)) {
            self.token(id, end_us);
        }
        self.run.end_us = end_us.max(self.run.end_us);
        Ok(())
    }

    fn since_start(&mut self, us: u64) -> Result<u64, Fault> {
        let us = time(us)?;
        Ok(us.saturating_sub(*self.start_us.get_or_insert(us)))
    }

    fn token(&mut self, id: SeqId, at_us: u64) {
        if let Some(&place) = self.places.get(&id) {
            self.run.emit(place, at_us);
            self.requests[place].answer += 1;
        }
    }

    fn end(mut self, cost: Option<Coefficients>, missed: bool) -> Watched {
        self.requests.retain(|request| request.answer > 0);
        let served = || self.run.requests.iter();
        Watched {
            prompt_tokens: served().map(|request| u64::from(request.prompt)).sum(),
            cached_tokens: served()
                .map(|request| u64::from(request.cached.unwrap_or(0)))
                .sum(),
            run: self.run,
            requests: self.requests,
            cost,
            missed,
        }
    }
}

fn time(us: u64) -> Result<u64, Fault> {
    (us < MAX_US).then_some(us).ok_or(Fault::Time(us))
}

#[cfg(test)]
mod tests;
