//! A recorded run: what a scheduling log says that happened, checked by repeating it.

use std::collections::{BTreeMap, BTreeSet};

use andante_sched::{
    Admission, Entry, LogError, Outcome, Plan, Replayed, Scheduler, SeqId, Step, replay,
};

use super::world::{Ran, Run};
use crate::trace::{Prompt, Request};

/// A log that was repeated.
pub(super) struct Recorded {
    pub(super) replayed: Replayed,
    /// What happened. A request arrives with the first plan that knows of it; a token comes at the end of its step.
    pub(super) run: Run,
    /// The requests that got an answer.
    pub(super) requests: Vec<Request>,
}

/// Repeats a log; fails where a plan is not the recorded one.
pub(super) fn read(log: &[u8]) -> Result<Recorded, LogError> {
    let mut history = History::default();
    let replayed = replay(log, |entry, scheduler| history.note(entry, scheduler))?;
    Ok(history.end(replayed))
}

/// What is known while a log is read. Times count from the first plan.
#[derive(Default)]
struct History {
    run: Run,
    requests: Vec<Request>,
    places: BTreeMap<SeqId, usize>,
    /// Requests that the next plan will know of.
    new: Vec<usize>,
    start_us: Option<u64>,
    now_us: u64,
    /// The step in flight, and how long its I/O took.
    step: Option<Step>,
    io_us: u64,
    /// Sequences that wait for their token to be sampled.
    sampling: BTreeSet<SeqId>,
    cancelled: BTreeSet<SeqId>,
}

impl History {
    fn note(&mut self, entry: &Entry<'_>, scheduler: &Scheduler) {
        match *entry {
            Entry::Add(request) => self.add(&request, scheduler),
            Entry::Cancel(id) => drop(self.cancelled.insert(id)),
            Entry::Sampled { id, outcome } if self.sampling.remove(&id) => {
                self.outcome(id, outcome);
            }
            Entry::Plan { now_us, plan } => self.plan(now_us, plan),
            Entry::IoDone { elapsed_us, .. } if self.step.is_some() => self.io_us += elapsed_us,
            Entry::Complete {
                elapsed_us,
                outcomes,
                ..
            } if scheduler.in_flight().is_none() => self.complete(elapsed_us, outcomes),
            _ => {}
        }
    }

    fn add(&mut self, request: &Admission<'_>, scheduler: &Scheduler) {
        // A refused one is not there, or was there before.
        if scheduler.tokens(request.id).is_none() || self.places.contains_key(&request.id) {
            return;
        }
        let index = self.requests.len();
        self.places.insert(request.id, index);
        self.new.push(index);
        self.run.arrive(self.now_us, request.prompt.len() as u32);
        self.requests.push(Request {
            arrival_us: self.now_us,
            prompt: Prompt::Tokens(request.prompt.to_vec()),
            answer: 0,
            tenant: request.tenant,
            priority: request.priority,
        });
    }

    fn plan(&mut self, now_us: u64, plan: Plan<'_>) {
        let start_us = *self.start_us.get_or_insert(now_us);
        self.now_us = now_us.saturating_sub(start_us).max(self.now_us);
        for index in self.new.drain(..) {
            self.run.requests[index].arrival_us = self.now_us;
            self.requests[index].arrival_us = self.now_us;
        }
        if let Plan::Step(step) = plan {
            self.step = Some(step.clone());
            self.io_us = 0;
        }
    }

    fn complete(&mut self, elapsed_us: u64, outcomes: &[Outcome]) {
        let Some(step) = self.step.take() else {
            return;
        };
        let elapsed_us = elapsed_us + self.io_us;
        self.run.steps.push(Ran {
            start_us: self.now_us,
            elapsed_us,
            rows: step.decode.len() as u32,
            prefill: step.prefill.iter().map(|range| range.tokens).sum(),
        });
        self.now_us = self.now_us.saturating_add(elapsed_us);
        let ranges = step.prefill.iter().map(|range| range.id);
        for (id, &outcome) in step.decode.iter().copied().chain(ranges).zip(outcomes) {
            self.outcome(id, outcome);
        }
        self.run.end_us = self.now_us;
    }

    fn outcome(&mut self, id: SeqId, outcome: Outcome) {
        let Some(&index) = self.places.get(&id) else {
            return;
        };
        match outcome {
            Outcome::Token(_) if !self.cancelled.contains(&id) => {
                self.run.emit(index, self.now_us);
                self.requests[index].answer += 1;
            }
            Outcome::Sampling => drop(self.sampling.insert(id)),
            _ => {}
        }
    }

    fn end(mut self, replayed: Replayed) -> Recorded {
        self.requests.retain(|request| request.answer > 0);
        Recorded {
            replayed,
            run: self.run,
            requests: self.requests,
        }
    }
}

#[cfg(test)]
mod tests;
