//! What happens between steps: what clients ask for, what has taken too long, and the wish to end.

use std::sync::Arc;

use andante_sched::{AddError, Admission, SeqId};

use super::{Ending, Engine};
use crate::constraints::Masks;
use crate::error::Failure;
use crate::generation::Generation;
use crate::handle::Health;
use crate::mailbox::{Command, Shutdown, Submission};
use crate::store::Stores;
use crate::timeline::{Ending as Ended, Moment};

/// Runs of a map of the prefixes.
const MOST_RUNS: usize = 512;

impl Engine {
    /// Applies what has arrived since the last step.
    pub(super) fn apply(&mut self) {
        if let Some(store) = &mut self.store {
            store.poll(&mut self.scheduler, &mut *self.model, &*self.shared.clock);
            let next_id = || self.shared.next_id();
            self.preload.go_on(&mut self.scheduler, store, next_id);
            if !store.is_late() {
                self.end_load();
            }
        }
        while let Some(command) = self.inbox.next() {
            match command {
                Command::Submit(submission) => self.admit(*submission),
                Command::Cancel(id) => self.cancel(id),
                Command::Unpark(id) => {
                    if let Some(generation) = self.generations.get_mut(&id) {
                        let at_us = self.shared.clock.now_us();
                        generation.unpark(at_us);
                        self.scheduler.unpark(id);
                        self.timeline.add(&Moment::Unparked { at_us, id });
                    }
                }
                Command::Map(answer) => {
                    let holdings = self.store.as_ref().and_then(Stores::holdings);
                    // Whoever has gone needs none.
                    let _ = answer.send((self.scheduler.prefix_map(MOST_RUNS), holdings));
                }
                Command::Shutdown(how) => self.begin_to_end(how),
            }
        }
        self.expire();
    }

    fn admit(&mut self, submission: Submission) {
        self.preload.stop(&mut self.scheduler);
        let id = submission.id;
        let request = &submission.request;
        let cache = request.sampling.cache_prompt;
        // The prompt's last token is always computed.
        let before_last = &request.prompt[..request.prompt.len() - 1];
        let stored = match &mut self.store {
            Some(store) if cache => store.lookup(request.salt, before_last),
            _ => 0,
        };
        let admission = Admission {
            cache,
            tenant: request.tenant.id(),
            priority: request.priority,
            stored,
            salt: request.salt,
            ..Admission::new(id, &request.prompt, request.max_new)
        };
        if let Some((transcript, _)) = &self.transcript {
            let tokenizer = &self.shared.text.tokenizer;
            transcript.request(&submission, admission.stored, tokenizer);
        }
        let known = self.scheduler.tenants().map(|account| account.tenant);
        self.names.remember(&request.tenant, known);
        let refused = if self.ending.is_some() {
            Some(Failure::ShuttingDown)
        } else {
            match self.scheduler.add(admission) {
                Ok(()) => None,
                Err(AddError::TooLong { .. }) => Some(Failure::TooLong),
                Err(error) => panic!("a prepared request with a permit is refused: {error}"),
            }
        };
        if refused.is_none() {
            self.timeline.add(&Moment::Arrived {
                at_us: submission.submitted_us,
                id,
                tenant: self.shared.pseudonym(admission.tenant),
                priority: admission.priority,
                prompt_tokens: request.prompt_tokens(),
                stored_tokens: stored,
                max_new: request.max_new,
                cache,
            });
        }
        let clock = &self.shared.clock;
        let masks = || {
            let masks = self
                .masks
                .get_or_insert_with(|| Masks::spawn(Arc::clone(clock)));
            masks.clone()
        };
        let mut generation = Generation::new(submission, &self.ends, &self.shared, masks);
        generation.transcribe(self.transcript.as_ref().map(|(transcript, _)| transcript));
        match refused {
            None => _ = self.generations.insert(id, generation),
            Some(failure) => {
                self.shared.status().count_failure(failure);
                generation.fail(failure);
            }
        }
    }

    /// Forgets a request whose client is gone.
    pub(super) fn cancel(&mut self, id: SeqId) {
        if let Some(generation) = self.generations.remove(&id) {
            self.scheduler.cancel(id);
            self.shared.status().cancelled += 1;
            let now_us = self.shared.clock.now_us();
            let ended = generation.ended(Ended::Cancelled, now_us);
            self.timeline.add(&ended);
            generation.cancel();
        }
    }

    fn begin_to_end(&mut self, how: Shutdown) {
        self.shared.set_health(Health::Draining);
        self.preload.stop(&mut self.scheduler);
        let now_us = self.shared.clock.now_us();
        let Shutdown::Drain { timeout } = how else {
            self.ending = Some(Ending {
                deadline_us: now_us,
            });
            return;
        };
        let timeout_us = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        self.ending = Some(Ending {
            deadline_us: now_us.saturating_add(timeout_us),
        });
        self.fail_where(|generation| (!generation.has_started()).then_some(Failure::ShuttingDown));
    }

    /// Ends what has taken too long, and everything when the time to drain is over.
    fn expire(&mut self) {
        let now_us = self.shared.clock.now_us();
        if self
            .ending
            .is_some_and(|ending| ending.deadline_us <= now_us)
        {
            self.fail_all(Failure::ShuttingDown);
        }
        let timeouts = self.timeouts;
        self.fail_where(|generation| {
            let (due_us, failure) = generation.due(&timeouts)?;
            (due_us <= now_us).then_some(failure)
        });
    }

    pub(super) fn fail_all(&mut self, failure: Failure) {
        self.fail_where(|_| Some(failure));
    }

    /// Fails the requests for which `why` has a reason. Not while a step is in flight, unless it was the last.
    fn fail_where(&mut self, why: impl Fn(&Generation) -> Option<Failure>) {
        let mut failed = Vec::new();
        for (&id, generation) in &self.generations {
            failed.extend(why(generation).map(|failure| (id, failure)));
        }
        if failed.is_empty() {
            return;
        }
        for &(id, failure) in &failed {
            self.shared.status().count_failure(failure);
            self.scheduler.cancel(id);
        }
        let now_us = self.shared.clock.now_us();
        for (id, failure) in failed {
            let generation = self.generations.remove(&id).expect("it was just found");
            self.timeline.add(&generation.ended(Ended::Failed, now_us));
            generation.fail(failure);
        }
    }
}
