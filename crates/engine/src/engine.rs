//! The one owner of model and scheduler. A step is plan, launch, collect; what clients ask for is applied in between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use andante_model::{Batch, Limits, Model, ModelError};
use andante_sched::{AddError, Admission, Outcome, Plan, Scheduler, SeqId};

use crate::batch;
use crate::clock::{Clock, SystemClock};
use crate::config::EngineConfig;
use crate::error::{EngineError, Failure};
use crate::event::Pushed;
use crate::generation::{Generation, Said, Timeouts};
use crate::handle::{EngineHandle, Health, Shared, StepRecord, TextStack};
use crate::mailbox::{Command, Inbox, Shutdown, Submission, Woken, mailbox};
use crate::sampler::Scratch;

/// Serves requests, one step after the other. [`spawn`] gives it a thread; tests and simulations call [`Engine::step`].
pub struct Engine {
    model: Box<dyn Model>,
    scheduler: Scheduler,
    /// Any block boundary is a reusable prefix.
    reusable: bool,
    /// The model's end-of-generation tokens.
    ends: Vec<u32>,
    timeouts: Timeouts,
    shared: Arc<Shared>,
    inbox: Inbox,
    generations: BTreeMap<SeqId, Generation>,
    ending: Option<Ending>,
    launched: Launched,
    batch: Batch,
    outcomes: Vec<Outcome>,
    scratch: Scratch,
}

/// What a call of [`Engine::step`] came to.
#[derive(Debug)]
pub enum Progress {
    /// A forward pass was made.
    Stepped,
    /// There is nothing to do before a command arrives, or before this time (µs of the engine's clock).
    Waiting {
        /// The time, if there is one.
        until_us: Option<u64>,
    },
    /// It has ended as asked.
    Ended,
}

/// The engine has been asked to end.
#[derive(Debug, Clone, Copy)]
struct Ending {
    /// When the requests that still run fail, in µs.
    deadline_us: u64,
}

/// The step in flight.
#[derive(Debug, Default)]
struct Launched {
    step_no: u64,
    at_us: u64,
    /// The sequences whose logits come back, in order.
    sampled: Vec<SeqId>,
    record: StepRecord,
}

impl Engine {
    /// Reserves the memory for every sequence that `config` promises.
    ///
    /// # Errors
    /// When a count in `config` is 0, or the model cannot give the memory.
    pub fn new(
        mut model: Box<dyn Model>,
        text: TextStack,
        config: &EngineConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, EngineHandle), EngineError> {
        config.check()?;
        let info = model.info().clone();
        let layout = model.kv_layout();
        let scheduler = Scheduler::new(config.scheduler(info.context, layout.block_tokens)?);
        model.reserve(Limits {
            blocks: scheduler.config().blocks,
            batch_tokens: scheduler.config().slots + scheduler.config().q_max,
            logit_rows: scheduler.config().slots,
        })?;
        let vocab = u32::try_from(info.vocab).expect("token ids are u32");
        let ends = (0..vocab)
            .filter(|&token| text.tokenizer.is_end(token))
            .collect();
        let (mailbox, inbox) = mailbox();
        let shared = Arc::new(Shared::new(config, info, text, &scheduler, clock));
        tracing::info!("scheduler: {}", shared.status().config);
        let engine = Self {
            model,
            scheduler,
            reusable: layout.state_bytes == 0,
            ends,
            timeouts: Timeouts::new(config),
            shared: Arc::clone(&shared),
            inbox,
            generations: BTreeMap::new(),
            ending: None,
            launched: Launched::default(),
            batch: Batch::default(),
            outcomes: Vec::new(),
            scratch: Scratch::default(),
        };
        Ok((engine, EngineHandle::new(shared, mailbox)))
    }

    /// Applies what has arrived and makes one forward pass, if there is anything to compute.
    ///
    /// # Errors
    /// When the model fails. Every request has failed with it, and the engine must not be used any more.
    pub fn step(&mut self) -> Result<Progress, EngineError> {
        self.apply();
        if self.ending.is_some() && self.generations.is_empty() {
            return Ok(Progress::Ended);
        }
        if let Some(until_us) = self.plan() {
            self.publish();
            return Ok(Progress::Waiting { until_us });
        }
        match self.launch().and_then(|()| self.collect()) {
            Ok(()) => Ok(Progress::Stepped),
            Err(error) => {
                self.shared.set_health(Health::Failed);
                self.fail_all(Failure::Model);
                Err(error.into())
            }
        }
    }

    /// Serves until it is told to end, or until nobody is left who could ask for anything.
    ///
    /// # Errors
    /// When the model fails.
    pub fn run(mut self) -> Result<(), EngineError> {
        loop {
            match self.step()? {
                Progress::Stepped => {}
                Progress::Ended => return Ok(()),
                Progress::Waiting { until_us } => {
                    let now_us = self.shared.clock.now_us();
                    let timeout =
                        until_us.map(|until| Duration::from_micros(until.saturating_sub(now_us)));
                    if self.inbox.wait(timeout) == Woken::Abandoned {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Decides on the next step. `Some` when there is none, with the time at which there may be one.
    fn plan(&mut self) -> Option<Option<u64>> {
        let now_us = self.shared.clock.now_us();
        let planned = match self.scheduler.plan(now_us) {
            Plan::Step(step) => {
                self.launched.step_no = step.step_no;
                self.launched.at_us = now_us;
                self.launched.record = StepRecord {
                    predicted_us: step.predicted_us,
                    actual_us: 0,
                    decode_rows: step.decode.len(),
                    prefill_tokens: step.prefill.iter().map(|part| part.tokens as usize).sum(),
                };
                None
            }
            Plan::Wait { until_us } => Some(Some(until_us)),
            Plan::Idle => Some(None),
        };
        self.note_admissions(now_us);
        planned.map(|until_us| until_us.into_iter().chain(self.next_deadline_us()).min())
    }

    /// Starts the clock of those that have left the queue.
    fn note_admissions(&mut self, now_us: u64) {
        for (&id, generation) in &mut self.generations {
            if generation.is_queued() && self.scheduler.is_resident(id) {
                generation.admit(now_us);
            }
        }
    }

    /// When something fails or ends if nothing happens before.
    fn next_deadline_us(&self) -> Option<u64> {
        let ending = self.ending.map(|ending| ending.deadline_us);
        let due = |generation: &Generation| Some(generation.due(&self.timeouts)?.0);
        self.generations
            .values()
            .filter_map(due)
            .chain(ending)
            .min()
    }

    /// Hands the planned rows to the model.
    fn launch(&mut self) -> Result<(), ModelError> {
        let step = self.scheduler.in_flight().expect("a step has been planned");
        batch::flatten(
            step,
            &self.scheduler,
            &mut self.batch,
            &mut self.launched.sampled,
        );
        for part in &step.prefill {
            let generation = self
                .generations
                .get_mut(&part.id)
                .expect("a planned sequence has a generation");
            let cached = self
                .scheduler
                .cached_tokens(part.id)
                .expect("a planned sequence lives");
            generation.start(self.launched.at_us, cached);
        }
        self.model.forward(&self.batch)
    }

    /// Turns logits into tokens, tells the scheduler, tells the clients.
    fn collect(&mut self) -> Result<(), ModelError> {
        let logits = self.model.logits()?;
        let step = self
            .scheduler
            .in_flight()
            .expect("a step has been launched");
        let decodes = step.decode.iter().map(|&id| (id, true));
        let prompts = step.prefill.iter().map(|part| (part.id, part.last));
        let mut row = 0;
        self.outcomes.clear();
        for (id, samples) in decodes.chain(prompts) {
            let outcome = if samples {
                let generation = self
                    .generations
                    .get_mut(&id)
                    .expect("a planned sequence has a generation");
                row += 1;
                generation.advance(
                    logits.row(row - 1),
                    &self.shared.text.tokenizer,
                    &mut self.scratch,
                )
            } else {
                Outcome::Prefilled
            };
            self.outcomes.push(outcome);
        }
        let now_us = self.shared.clock.now_us();
        self.launched.record.actual_us = now_us.saturating_sub(self.launched.at_us);
        self.scheduler
            .complete(
                self.launched.step_no,
                self.launched.record.actual_us,
                &self.outcomes,
            )
            .expect("the outcomes are those of the step in flight");
        self.publish_step();
        let sampled = std::mem::take(&mut self.launched.sampled);
        for &id in &sampled {
            self.tell(id, now_us);
        }
        self.launched.sampled = sampled;
        Ok(())
    }

    /// Tells a client what the step brought.
    fn tell(&mut self, id: SeqId, now_us: u64) {
        let generation = self
            .generations
            .get_mut(&id)
            .expect("a planned sequence has a generation");
        match generation.emit(now_us) {
            Said::Running(Pushed::Room) => {}
            Said::Running(Pushed::Full) => {
                generation.park(now_us);
                self.scheduler.park(id);
            }
            Said::Running(Pushed::Closed) => self.cancel(id),
            Said::Ended(end) => {
                let generation = self.generations.remove(&id).expect("it was found above");
                match end {
                    Ok(reason) => generation.finish(reason, now_us),
                    Err(failure) => generation.fail(failure),
                }
            }
        }
    }

    /// Applies what has arrived since the last step.
    fn apply(&mut self) {
        while let Some(command) = self.inbox.next() {
            match command {
                Command::Submit(submission) => self.admit(submission),
                Command::Cancel(id) => self.cancel(id),
                Command::Unpark(id) => {
                    if let Some(generation) = self.generations.get_mut(&id) {
                        generation.unpark();
                        self.scheduler.unpark(id);
                    }
                }
                Command::Shutdown(how) => self.begin_to_end(how),
            }
        }
        self.expire();
    }

    fn admit(&mut self, submission: Submission) {
        let id = submission.id;
        let request = &submission.request;
        let admission = Admission {
            cache: self.reusable && request.sampling.cache_prompt,
            ..Admission::new(id, &request.prompt, request.max_new)
        };
        let refused = if self.ending.is_some() {
            Some(Failure::ShuttingDown)
        } else {
            match self.scheduler.add(admission) {
                Ok(()) => None,
                Err(AddError::TooLong { .. }) => Some(Failure::TooLong),
                Err(error) => panic!("a prepared request with a permit is refused: {error}"),
            }
        };
        let generation = Generation::new(submission, &self.ends);
        match refused {
            None => _ = self.generations.insert(id, generation),
            Some(failure) => {
                self.shared.status().failed += 1;
                generation.fail(failure);
            }
        }
    }

    /// Forgets a request whose client is gone.
    fn cancel(&mut self, id: SeqId) {
        if let Some(generation) = self.generations.remove(&id) {
            self.scheduler.cancel(id);
            self.shared.status().cancelled += 1;
            generation.cancel();
        }
    }

    fn begin_to_end(&mut self, how: Shutdown) {
        self.shared.set_health(Health::Draining);
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

    fn fail_all(&mut self, failure: Failure) {
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
        self.shared.status().failed += failed.len() as u64;
        for &(id, _) in &failed {
            self.scheduler.cancel(id);
        }
        for (id, failure) in failed {
            let generation = self.generations.remove(&id).expect("it was just found");
            generation.fail(failure);
        }
    }

    /// Makes the step's results visible in the status, before any client hears of them.
    fn publish_step(&mut self) {
        self.publish();
        let mut status = self.shared.status();
        for id in &self.launched.sampled {
            self.generations[id].count(&mut status);
        }
        status.remember(self.launched.record);
    }

    fn publish(&self) {
        let stats = self.scheduler.stats();
        let drain_s = self.scheduler.drain_estimate_us().div_ceil(1_000_000);
        self.shared.retry_after_s.store(
            u32::try_from(drain_s).unwrap_or(u32::MAX),
            Ordering::Relaxed,
        );
        self.shared.status().scheduler = stats;
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Before the fields go: whoever hears that the engine has stopped finds it stopped.
        self.shared.set_health(if std::thread::panicking() {
            Health::Failed
        } else {
            Health::Stopped
        });
    }
}

/// The thread of an engine.
#[derive(Debug)]
pub struct EngineThread(JoinHandle<Result<(), EngineError>>);

impl EngineThread {
    /// Waits for the engine to end.
    ///
    /// # Errors
    /// [`EngineError::Model`] after a failure of the model, [`EngineError::Panicked`] after a bug.
    pub fn join(self) -> Result<(), EngineError> {
        self.0.join().unwrap_or(Err(EngineError::Panicked))
    }
}

/// Starts an engine on a thread of its own, on the machine's clock.
///
/// # Errors
/// Those of [`Engine::new`], and when there is no thread to be had.
pub fn spawn(
    model: Box<dyn Model>,
    text: TextStack,
    config: &EngineConfig,
) -> Result<(EngineHandle, EngineThread), EngineError> {
    let (engine, handle) = Engine::new(model, text, config, Arc::new(SystemClock::new()))?;
    let thread = std::thread::Builder::new()
        .name("engine".into())
        .spawn(move || engine.run());
    Ok((handle, EngineThread(thread.map_err(EngineError::Thread)?)))
}

#[cfg(test)]
mod tests;
