//! The one owner of model and scheduler. A step is plan, launch, collect; what clients ask for is applied in between.

mod commands;
mod publish;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use andante_model::{Batch, Limits, Model, ModelError, Pooling};
use andante_sched::{
    Config, IoCost, IoKind, Outcome, Plan, Scheduler, SeqId, StateCopy, Step, micros,
};

use crate::batch;
use crate::clock::{Clock, SystemClock};
use crate::config::{EngineConfig, running_states};
use crate::constraints::Masks;
use crate::error::{EngineError, Failure};
use crate::event::{FinishReason, Pushed};
use crate::generation::{Generation, Said, Timeouts};
use crate::handle::{EngineHandle, Health, Shared, TextStack};
use crate::mailbox::{Inbox, Woken, mailbox};
use crate::preload::Preload;
use crate::recording::{self, Recording};
use crate::sampler::Scratch;
use crate::status::{IoRecord, StepRecord};
use crate::store::{self, Remembered, Store, Stores};
use crate::tenant::Names;
use crate::timeline::{self, Ending as Ended, Moment};
use crate::transcript::{self, Transcript};

/// Most bytes that one unit copies to be saved.
const SAVE_BYTES: u64 = 32 << 20;

/// What copying blocks is taken to cost before it is measured: some hundred kilobytes each.
const COPY_COST: IoCost = IoCost {
    unit: micros(200),
    block: micros(300),
};

/// How long an engine that ends may save what it has computed last, in µs.
const SAVE_AT_END_US: u64 = 5_000_000;

/// Serves requests, one step after the other. [`spawn`] gives it a thread; tests and simulations call [`Engine::step`].
pub struct Engine {
    model: Box<dyn Model>,
    scheduler: Scheduler,
    recording: Option<Recording>,
    transcript: Option<(Transcript, transcript::Writer)>,
    /// The model's end-of-generation tokens.
    ends: Vec<u32>,
    /// The thread that follows constraints, from the first of them on.
    masks: Option<Masks>,
    store: Option<Stores>,
    /// Whose KV is being loaded.
    loading: Option<SeqId>,
    preload: Preload,
    timeouts: Timeouts,
    names: Names,
    /// When the tenants' accounts were last published, in µs.
    tenants_us: Option<u64>,
    /// It has been said that the stall bound cannot be kept.
    told_stall: bool,
    shared: Arc<Shared>,
    timeline: timeline::Writer,
    inbox: Inbox,
    generations: BTreeMap<SeqId, Generation>,
    ending: Option<Ending>,
    /// When an engine that ends stops saving, in µs.
    saving_until_us: Option<u64>,
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
    /// The sequences that get a result, in order.
    sampled: Vec<SeqId>,
    /// Each sequence with its rows, and whether it gets a result.
    ranges: Vec<(SeqId, usize, bool)>,
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
        let scheduler = Scheduler::new(config.scheduler(&info, layout)?);
        model.reserve(Limits {
            blocks: scheduler.config().blocks,
            batch_tokens: scheduler.config().slots + scheduler.config().q_max,
            logit_rows: scheduler.config().slots,
            state_rows: match config.pooling_of(&info) {
                Pooling::Last => scheduler.config().slots,
                Pooling::Mean => scheduler.config().slots + scheduler.config().q_max,
            },
            running_states: running_states(scheduler.config()),
        })?;
        let vocab = u32::try_from(info.vocab).expect("token ids are u32");
        let ends = (0..vocab)
            .filter(|&token| text.tokenizer.is_end(token))
            .collect();
        let (mailbox, inbox) = mailbox();
        let shared = Arc::new(Shared::new(config, info, text, (&scheduler, layout), clock));
        tracing::info!("scheduler: {}", shared.status().config);
        let mut engine = Self {
            model,
            recording: None,
            transcript: None,
            scheduler,
            ends,
            masks: None,
            store: None,
            loading: None,
            preload: Preload::default(),
            timeouts: Timeouts::new(config),
            names: Names::default(),
            tenants_us: None,
            told_stall: false,
            timeline: timeline::Writer::new(Arc::clone(&shared.timeline)),
            shared: Arc::clone(&shared),
            inbox,
            generations: BTreeMap::new(),
            ending: None,
            saving_until_us: None,
            launched: Launched::default(),
            batch: Batch::default(),
            outcomes: Vec::new(),
            scratch: Scratch::default(),
        };
        if let Some(path) = &config.record {
            let fail = |error| EngineError::Record {
                path: path.clone(),
                error,
            };
            let file = recording::open(path).map_err(fail)?;
            engine = engine.record_to(file).map_err(fail)?;
        }
        if let Some(config) = &config.transcript {
            let fail = |error| EngineError::Record {
                path: config.path.clone(),
                error,
            };
            engine.transcribe_to(Transcript::open(config).map_err(fail)?);
        }
        Ok((engine, EngineHandle::new(shared, mailbox)))
    }

    /// Applies what has arrived and makes one forward pass, if there is anything to compute.
    ///
    /// # Errors
    /// When the model fails. Every request has failed with it, and the engine must not be used any more.
    pub fn step(&mut self) -> Result<Progress, EngineError> {
        self.apply();
        if self.ending.is_some() && self.generations.is_empty() && self.is_saved() {
            self.abandon_store();
            self.publish(true);
            return Ok(Progress::Ended);
        }
        if let Some(until_us) = self.plan() {
            self.publish(true);
            return Ok(Progress::Waiting { until_us });
        }
        let began_us = self.launched.record.started_us.max(1);
        self.shared.step_began_us.store(began_us, Ordering::Relaxed);
        let result = self.launch().and_then(|()| self.collect());
        self.shared.step_began_us.store(0, Ordering::Relaxed);
        match result {
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

    /// Has it save and load the KV of prompts. Before the first request.
    #[must_use]
    pub fn with_store(mut self, store: Box<dyn Store>) -> Self {
        let block_bytes = self.model.kv_layout().block_bytes.max(1);
        self.scheduler = Scheduler::new(Config {
            save_blocks: u32::try_from(SAVE_BYTES / block_bytes).map_or(u32::MAX, |n| n.max(1)),
            save_cost: COPY_COST,
            ..self.scheduler.config().clone()
        });
        if self.recording.is_some() {
            self.scheduler.record(true);
        }
        let mut store = Stores::new(store);
        store.share(&Remembered {
            spellings: Arc::clone(&self.shared.spellings),
            turns: Arc::clone(&self.shared.turns),
        });
        self.preload = Preload::new(&self.shared.spellings);
        self.store = Some(store);
        self
    }

    /// Writes the scheduling log to `output`, on a thread of its own. Before the first request.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn record_to(mut self, output: impl Write + Send + 'static) -> io::Result<Self> {
        self.recording = Some(Recording::new(&mut self.scheduler, output)?);
        Ok(self)
    }

    /// Writes whole sessions down.
    fn transcribe_to(&mut self, transcript: (Transcript, transcript::Writer)) {
        let config = self.shared.status().config.clone();
        transcript.0.begin(&self.shared.info, &config);
        self.transcript = Some(transcript);
    }

    /// Decides on the next step. `Some` when there is none, with the time at which there may be one.
    fn plan(&mut self) -> Option<Option<u64>> {
        let now_us = self.shared.clock.now_us();
        let planned = match self.scheduler.plan(now_us) {
            Plan::Step(step) => {
                record(&mut self.launched.record, step, now_us);
                None
            }
            Plan::Wait { until_us } => Some(Some(until_us)),
            Plan::Idle => Some(None),
        };
        self.note_admissions(now_us);
        let late = self.store.as_ref().is_some_and(Stores::is_late);
        let poll_us = late.then(|| now_us + store::POLL_US);
        planned.map(|until_us| {
            let preload_us = self.preload.is_due(&self.scheduler).then_some(now_us);
            let others = self.next_deadline_us().into_iter();
            let others = others.chain(poll_us).chain(preload_us);
            until_us.into_iter().chain(others).min()
        })
    }

    /// Starts the clock of those that have left the queue.
    fn note_admissions(&mut self, now_us: u64) {
        for (&id, generation) in &mut self.generations {
            if generation.is_queued() && self.scheduler.is_resident(id) {
                generation.admit(now_us);
                let at_us = now_us;
                self.timeline.add(&Moment::Admitted { at_us, id });
            }
        }
    }

    /// When something fails or ends if nothing happens before.
    fn next_deadline_us(&self) -> Option<u64> {
        let ending = self.ending.map(|ending| ending.deadline_us);
        let ending = self.saving_until_us.or(ending);
        let due = |generation: &Generation| Some(generation.due(&self.timeouts)?.0);
        self.generations
            .values()
            .filter_map(due)
            .chain(ending)
            .min()
    }

    /// Moves the planned KV, then hands the planned rows to the model.
    fn launch(&mut self) -> Result<(), ModelError> {
        let step = self.scheduler.in_flight().expect("a step has been planned");
        for &StateCopy { from, to } in &step.states.restore {
            self.model.copy_state(from, to);
        }
        self.run_io();
        let step = self.scheduler.in_flight().expect("a step has been planned");
        let pooling = |id| self.generations.get(&id)?.pooling();
        batch::flatten(
            step,
            (&self.scheduler, &pooling),
            &mut self.batch,
            &mut self.launched.sampled,
        );
        for part in &step.prefill {
            // What is brought into memory ahead has none.
            let Some(generation) = self.generations.get_mut(&part.id) else {
                continue;
            };
            let cached = self
                .scheduler
                .cached_tokens(part.id)
                .expect("a planned sequence lives");
            let at_us = self.launched.record.started_us;
            if !generation.has_started() {
                self.timeline.add(&Moment::Started {
                    at_us,
                    id: part.id,
                    cached_tokens: cached,
                });
            }
            generation.start(at_us, cached);
            generation.compute(part.start + part.tokens);
            generation.note_prompt(at_us, part.start);
        }
        if self.batch.is_empty() {
            // A step of I/O alone.
            return Ok(());
        }
        self.model.forward(&self.batch)
    }

    fn run_io(&mut self) {
        let step = self.scheduler.in_flight().expect("a step has been planned");
        let Some(unit) = step.io.clone() else {
            return;
        };
        if let IoKind::Load { id, .. } = unit.kind {
            // What is loaded ahead has none.
            if let Some(generation) = self.generations.get_mut(&id) {
                let at_us = self.launched.record.started_us;
                if !generation.has_started() {
                    let cached_tokens = self.scheduler.cached_tokens(id).unwrap_or(0);
                    self.timeline.add(&Moment::Started {
                        at_us,
                        id,
                        cached_tokens,
                    });
                }
                generation.start(at_us, 0);
                generation.begin_load(at_us);
            }
        }
        let store = self
            .store
            .as_mut()
            .expect("nothing is planned without a store");
        let io_us = store.run(
            &unit,
            &mut self.scheduler,
            &mut *self.model,
            &*self.shared.clock,
        );
        let late = store.is_late();
        self.launched.record.io_us = io_us;
        if let IoKind::Load { id, .. } = unit.kind {
            self.loading = Some(id);
            if !late {
                self.end_load();
            }
        }
    }

    /// The load that was under way is over.
    pub(super) fn end_load(&mut self) {
        let Some(id) = self.loading.take() else {
            return;
        };
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.end_load(self.shared.clock.now_us());
        }
    }

    /// Turns logits into tokens, tells the scheduler, tells the clients.
    fn collect(&mut self) -> Result<(), ModelError> {
        self.sample()?;
        let step = self.scheduler.in_flight().expect("a step is in flight");
        for &StateCopy { from, to } in &step.states.keep {
            self.model.copy_state(from, to);
        }
        let now_us = self.shared.clock.now_us();
        let record = &mut self.launched.record;
        record.actual_us = now_us.saturating_sub(record.started_us);
        for part in &record.prefill {
            if let Some(generation) = self.generations.get_mut(&part.id) {
                generation.serve(record.actual_us.saturating_sub(record.io_us));
            }
        }
        self.scheduler
            .complete(
                record.step_no,
                record.actual_us.saturating_sub(record.io_us),
                &self.outcomes,
            )
            .expect("the outcomes are those of the step in flight");
        self.publish_step(now_us);
        let sampled = std::mem::take(&mut self.launched.sampled);
        for &id in &sampled {
            self.tell(id, now_us);
        }
        self.launched.sampled = sampled;
        self.tell_progress(now_us);
        Ok(())
    }

    /// Tells those who asked for it how far their prompts have come.
    fn tell_progress(&mut self, now_us: u64) {
        let unended = |&(_, _, ended): &(SeqId, usize, bool)| !ended;
        if self.batch.is_empty() || !self.launched.ranges.iter().any(unended) {
            return;
        }
        let cost = self.scheduler.stats().cost;
        let ranges = std::mem::take(&mut self.launched.ranges);
        for &(id, _, ended) in &ranges {
            let generation = self.generations.get_mut(&id).filter(|_| !ended);
            if generation.is_some_and(|generation| generation.emit_progress(&cost, now_us)) {
                self.cancel(id);
            }
        }
        self.launched.ranges = ranges;
    }

    /// One outcome for each row and range of the step in flight.
    fn sample(&mut self) -> Result<(), ModelError> {
        self.outcomes.clear();
        if self.batch.is_empty() {
            return Ok(());
        }
        let step = self
            .scheduler
            .in_flight()
            .expect("a step has been launched");
        let decodes = step.decode.iter().map(|&id| (id, 1, true));
        let prompts = step
            .prefill
            .iter()
            .map(|part| (part.id, part.tokens as usize, part.last));
        let mut ranges = std::mem::take(&mut self.launched.ranges);
        ranges.clear();
        ranges.extend(decodes.chain(prompts));
        let pooling = |id| self.generations.get(id).and_then(Generation::pooling);
        if ranges.iter().any(|(id, _, _)| pooling(id).is_some()) {
            self.pool(&ranges)?;
        }
        let logits = self.model.logits()?;
        let mut row = 0;
        for &(id, _, last) in &ranges {
            // What is computed ahead belongs to nobody yet.
            let generation = self.generations.get_mut(&id);
            let outcome = match generation {
                Some(generation) if generation.pooling().is_some() => generation.pooled(),
                Some(generation) if last => {
                    row += 1;
                    generation.advance(
                        logits.row(row - 1),
                        &self.shared.text.tokenizer,
                        &mut self.scratch,
                    )
                }
                _ => Outcome::Prefilled,
            };
            self.outcomes.push(outcome);
        }
        self.launched.ranges = ranges;
        Ok(())
    }

    /// Hands the hidden states of the step in flight to those that make an embedding of them.
    fn pool(&mut self, ranges: &[(SeqId, usize, bool)]) -> Result<(), ModelError> {
        let states = self.model.states()?;
        let mut row = 0;
        for &(id, tokens, last) in ranges {
            let Some(generation) = self.generations.get_mut(&id) else {
                continue;
            };
            let count = match generation.pooling() {
                None => continue,
                Some(Pooling::Last) => usize::from(last),
                Some(Pooling::Mean) => tokens,
            };
            let states = (row..row + count).map(|row| states.row(row));
            generation.pool(states, last);
            row += count;
        }
        Ok(())
    }

    /// Tells a client what the step brought.
    fn tell(&mut self, id: SeqId, now_us: u64) {
        let generation = self
            .generations
            .get_mut(&id)
            .expect("a planned sequence has a generation");
        match generation.emit() {
            Said::Running(Pushed::Room) => {}
            Said::Running(Pushed::Full) => {
                generation.park(now_us);
                self.scheduler.park(id);
                let at_us = now_us;
                self.timeline.add(&Moment::Parked { at_us, id });
            }
            Said::Running(Pushed::Closed) => self.cancel(id),
            Said::Ended(end) => {
                let generation = self.generations.remove(&id).expect("it was found above");
                let how = match &end {
                    Ok(FinishReason::Stop { .. }) => Ended::Stop,
                    Ok(FinishReason::Length) => Ended::Length,
                    Err(_) => Ended::Failed,
                };
                self.timeline.add(&generation.ended(how, now_us));
                match end {
                    Ok(reason) => generation.finish(reason, &self.shared.text.tokenizer, now_us),
                    Err(failure) => generation.fail(failure),
                }
            }
        }
    }

    /// Whether there is nothing left to save, or no time. The time begins with the first call.
    fn is_saved(&mut self) -> bool {
        let now_us = self.shared.clock.now_us();
        self.tell_what_was_said();
        let Some(store) = &mut self.store else {
            return true;
        };
        let until_us = *self.saving_until_us.get_or_insert_with(|| {
            if self.scheduler.has_unsaved() {
                let seconds = SAVE_AT_END_US / 1_000_000;
                tracing::info!("saving KV that was computed last, for {seconds} s at most");
            }
            now_us + SAVE_AT_END_US
        });
        // Nobody waits for it any more.
        store.abandon_load(&mut self.scheduler);
        let Some(left_us) = until_us.checked_sub(now_us).filter(|&us| us > 0) else {
            return true;
        };
        if store.is_late() || self.scheduler.has_unsaved() {
            return false;
        }
        store.flush(Duration::from_micros(left_us));
        true
    }

    /// Lets the store keep what was said since the last time.
    fn tell_what_was_said(&mut self) {
        if let Some(store) = &mut self.store
            && self.shared.spellings.have_news()
        {
            store.said();
        }
    }

    fn abandon_store(&mut self) {
        if let Some(store) = &mut self.store {
            store.abandon(&mut self.scheduler);
        }
    }
}

/// Makes `record` that of a step that begins now.
fn record(record: &mut StepRecord, step: &Step, started_us: u64) {
    record.step_no = step.step_no;
    record.started_us = started_us;
    record.predicted_us = step.predicted_us;
    record.budget_us = step.budget_us;
    record.actual_us = 0;
    record.io_us = 0;
    record.contended = step.contended;
    record.floor_limited = step.floor_limited;
    record.decode.clone_from(&step.decode);
    record.prefill.clone_from(&step.prefill);
    record.io = step.io.as_ref().map(|unit| match &unit.kind {
        IoKind::Load { id, blocks, .. } => IoRecord::Load {
            id: *id,
            blocks: *blocks,
        },
        IoKind::Save { blocks } => IoRecord::Save {
            blocks: u32::try_from(blocks.len()).expect("block numbers are u32"),
        },
    });
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.abandon_store();
        if let Some(recording) = &mut self.recording {
            recording.finish(&mut self.scheduler);
        }
        if let Some((_, writer)) = &mut self.transcript {
            writer.finish();
        }
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
    spawn_with_store(model, text, config, None)
}

/// Starts an engine as [`spawn`] does, with a store that keeps the KV of prompts.
///
/// # Errors
/// Those of [`spawn`].
pub fn spawn_with_store(
    model: Box<dyn Model>,
    text: TextStack,
    config: &EngineConfig,
    store: Option<Box<dyn Store>>,
) -> Result<(EngineHandle, EngineThread), EngineError> {
    let (mut engine, handle) = Engine::new(model, text, config, Arc::new(SystemClock::new()))?;
    if let Some(store) = store {
        engine = engine.with_store(store);
    }
    let thread = std::thread::Builder::new()
        .name("engine".into())
        .spawn(move || engine.run());
    Ok((handle, EngineThread(thread.map_err(EngineError::Thread)?)))
}

#[cfg(test)]
pub(crate) mod tests;
