//! One request inside the engine: its sampler, its text and its client.

use std::sync::Arc;

use andante_model::Pooling;
use andante_sched::{CostModel, Outcome};
use andante_text::{Opening, Output, OutputStream, Part, Tokenizer, Turn};

use crate::config::EngineConfig;
use crate::constraints::{Guide, Masks, failure};
use crate::error::Failure;
use crate::event::{
    Delta, Event, EventSink, FinishReason, Pushed, Timings, TokenLogprob, TokenText, Usage,
};
use crate::handle::Shared;
use crate::log::RequestLog;
use crate::mailbox::Submission;
use crate::pool::Pool;
use crate::progress::PromptProgress;
use crate::sampler::{Logprobs, Sampled, Sampler, Scratch, Unusable};
use crate::seal;
use crate::spellings::{Spellings, Spelt};
use crate::status::{Latencies, Status};
use crate::thinking::Thinking;
use crate::timeline::{Ending, Moment};
use crate::transcript::Transcript;
use crate::turns::Turns;

/// What a generation has said at the end of a step.
#[derive(Debug)]
pub(crate) enum Said {
    /// It goes on; this is what the last push found.
    Running(Pushed),
    /// It ends, and this is still to be said.
    Ended(Result<FinishReason, Failure>),
}

/// How long a request may take to get on, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// From arrival to admission.
    pub(crate) queue_us: Option<u64>,
    /// From admission to the first token.
    pub(crate) first_token_us: Option<u64>,
    /// From a full ring to a reader that makes room.
    pub(crate) reader_us: u64,
}

impl Timeouts {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        let us = |seconds: u32| u64::from(seconds) * 1_000_000;
        Self {
            queue_us: config.queue_timeout_s.map(us),
            first_token_us: config.first_token_timeout_s.map(us),
            reader_us: us(config.reader_timeout_s),
        }
    }
}

/// A request from its arrival to its end.
#[derive(Debug)]
pub(crate) struct Generation {
    id: u64,
    log: RequestLog,
    sampler: Sampler,
    /// Follows the form that was asked for.
    guide: Option<Guide>,
    output: OutputStream,
    thinking: Thinking,
    stop: Vec<String>,
    max_new: u32,
    /// Its tokens, for later prompts that begin with the same words, if it is to be remembered.
    spelt: Option<Spelt>,
    spellings: Arc<Spellings>,
    /// Where the answer is kept for later prompts, how it is read, and what has been read of it.
    record: Option<Record>,
    usage: Usage,
    submitted_us: u64,
    /// When it got a slot and memory.
    admitted_us: Option<u64>,
    /// When the first step that works on it began.
    started_us: Option<u64>,
    /// Since when its KV is being loaded.
    loading_since_us: Option<u64>,
    /// For how long its KV was being loaded.
    load_us: u64,
    /// What the steps took that computed its prompt.
    service_us: u64,
    first_token_us: u64,
    /// When its last token was chosen, or its reader made room again.
    last_token_us: u64,
    longest_gap_us: u64,
    /// Prompt tokens that are computed, or found, when the step in flight is over.
    computed: u32,
    /// Its client wants to hear of that.
    reports_progress: bool,
    /// When its reader stopped reading.
    parked_us: Option<u64>,
    /// Entries whose text is held back.
    logprobs: Vec<TokenLogprob>,
    /// What makes an embedding, if that is what was asked for.
    pool: Option<Pool>,
    /// What this step has to say; pushed when the step is over.
    delta: Option<Delta>,
    /// How this step ends it, if it does.
    end: Option<Result<FinishReason, Failure>>,
    sink: EventSink,
    /// Where all of it is written to.
    transcript: Option<Transcript>,
}

/// What is needed to keep an answer as it was sampled.
#[derive(Debug)]
struct Record {
    turns: Arc<Turns>,
    opening: Opening,
    parts: Vec<Part>,
}

impl Generation {
    /// `masks` are for a request with a constraint: its first mask is found out while it waits and its prompt is computed.
    pub(crate) fn new(
        submission: Submission,
        ends: &[u32],
        shared: &Shared,
        masks: impl FnOnce() -> Masks,
    ) -> Self {
        let Submission {
            id,
            request,
            sink,
            submitted_us,
        } = submission;
        let output = OutputStream::new(request.sampling.stop.clone());
        let (output, thinking) = match &request.opening {
            Some(opening) => {
                let thinking = Thinking::new(request.sampling.reasoning_budget, opening);
                (output.with_parser(opening.parser()), thinking)
            }
            None => (output, Thinking::default()),
        };
        let opening = request.opening.clone();
        let record = opening.filter(|_| request.sampling.cache_prompt);
        let remembered = request.sampling.cache_prompt && request.pooling.is_none();
        Self {
            id,
            log: RequestLog::new(id, &request),
            sampler: Sampler::new(&request, ends),
            guide: request
                .constraint
                .as_ref()
                .map(|form| Guide::new(form, &masks())),
            output,
            thinking,
            max_new: request.max_new,
            spelt: remembered.then(|| Spelt {
                salt: request.salt,
                prompt: Arc::clone(&request.prompt),
                answer: Vec::new(),
            }),
            spellings: Arc::clone(&shared.spellings),
            record: record.map(|opening| Record {
                turns: Arc::clone(&shared.turns),
                opening,
                parts: Vec::new(),
            }),
            usage: Usage {
                prompt_tokens: request.prompt_tokens(),
                ..Usage::default()
            },
            stop: request.sampling.stop,
            submitted_us,
            admitted_us: None,
            started_us: None,
            loading_since_us: None,
            load_us: 0,
            service_us: 0,
            first_token_us: 0,
            last_token_us: 0,
            longest_gap_us: 0,
            computed: 0,
            reports_progress: request.reports_progress,
            parked_us: None,
            logprobs: Vec::new(),
            pool: request.pooling.map(Pool::new),
            delta: None,
            end: None,
            sink,
            transcript: None,
        }
    }

    /// Has all that it says written down.
    pub(crate) fn transcribe(&mut self, transcript: Option<&Transcript>) {
        self.transcript = transcript.cloned();
    }

    fn transcribe_token(&self, token: u32, tokenizer: &Tokenizer, completed: &[Part]) {
        if let Some(transcript) = &self.transcript {
            transcript.token(self.id, token, tokenizer.piece(token), completed);
        }
    }

    fn transcribe_end(&self, outcome: &str) {
        if let Some(transcript) = &self.transcript {
            let usage = self.usage;
            let tokens = (usage.prompt_tokens, usage.completion_tokens);
            transcript.end(self.id, outcome, tokens);
        }
    }

    /// Whether a step has worked on it.
    pub(crate) fn has_started(&self) -> bool {
        self.started_us.is_some()
    }

    /// Notes that a step which began at `now_us` works on it, and how much of its prompt came from the cache.
    pub(crate) fn start(&mut self, now_us: u64, cached_tokens: u32) {
        self.started_us.get_or_insert(now_us);
        self.usage.cached_tokens = cached_tokens;
    }

    /// Notes how much of its prompt there is after the step in flight.
    pub(crate) fn compute(&mut self, tokens: u32) {
        self.computed = tokens;
    }

    /// Tells the log how far its prompt is: a step that begins at `now_us` goes on at token `done`.
    pub(crate) fn note_prompt(&mut self, now_us: u64, done: u32) {
        let started_us = self.started_us.unwrap_or(now_us);
        let queued_us = started_us.saturating_sub(self.submitted_us);
        let times = (now_us, started_us, queued_us);
        self.log.prompt(self.usage, done, times);
    }

    /// Notes that a load of its KV has begun.
    pub(crate) fn begin_load(&mut self, now_us: u64) {
        self.loading_since_us = Some(now_us);
    }

    /// Notes that it is over.
    pub(crate) fn end_load(&mut self, now_us: u64) {
        if let Some(since_us) = self.loading_since_us.take() {
            self.load_us += now_us.saturating_sub(since_us);
        }
    }

    /// Notes that a step computed a part of its prompt.
    pub(crate) fn serve(&mut self, step_us: u64) {
        self.service_us += step_us;
    }

    /// How long it had a slot while others were served, at its first token.
    fn wait_us(&self, since_us: u64) -> u64 {
        self.first_token_us
            .saturating_sub(since_us)
            .saturating_sub(self.load_us)
            .saturating_sub(self.service_us)
    }

    /// How its hidden states become one, if it is to be an embedding.
    pub(crate) fn pooling(&self) -> Option<Pooling> {
        self.pool.as_ref().map(Pool::pooling)
    }

    /// Takes the hidden states of a part of its prompt, with the `last` of them all.
    pub(crate) fn pool<'a>(&mut self, states: impl Iterator<Item = &'a [f32]>, last: bool) {
        let Some(pool) = &mut self.pool else {
            return;
        };
        states.for_each(|state| pool.add(state));
        if last {
            self.end = Some(match pool.finish() {
                true => Ok(FinishReason::Stop { sequence: None }),
                false => Err(Failure::NonFiniteLogits),
            });
        }
    }

    /// What a step has done for an embedding.
    pub(crate) fn pooled(&self) -> Outcome {
        match &self.end {
            None => Outcome::Prefilled,
            Some(Ok(_)) => Outcome::Finish,
            Some(Err(_)) => Outcome::Failed,
        }
    }

    /// Adds what the step that ended at `now_us` brought to the engine's counters.
    pub(crate) fn count(&mut self, now_us: u64, status: &mut Status) {
        if let Some(guide) = &mut self.guide {
            let time = guide.take_time();
            status.masks += time.masks;
            status.mask_us += time.mask_us;
            status.mask_wait_us += time.wait_us;
        }
        if let Some(Err(failure)) = self.end {
            status.count_failure(failure);
            return;
        }
        if self.pool.is_some() {
            self.first_token_us = now_us;
            self.count_prompt(status);
            self.count_end(now_us, status);
            return;
        }
        status.generated_tokens += 1;
        if self.is_first_token() {
            self.first_token_us = now_us;
            self.count_prompt(status);
            self.count_first_token(&mut status.latencies);
            if let Some(transcript) = &self.transcript {
                transcript.found(self.id, now_us, self.usage.cached_tokens, self.load_us);
            }
        } else {
            let gap_us = now_us.saturating_sub(self.last_token_us);
            status.latencies.gap.add(gap_us);
            self.longest_gap_us = self.longest_gap_us.max(gap_us);
        }
        self.last_token_us = now_us;
        if self.end.is_some() {
            if !self.is_first_token() {
                status.latencies.longest_gap.add(self.longest_gap_us);
            }
            self.count_end(now_us, status);
        }
    }

    /// Where the time to its first token went.
    fn count_first_token(&self, latencies: &mut Latencies) {
        let admitted_us = self.admitted_us.unwrap_or(self.submitted_us);
        let since = |us: u64| us.saturating_sub(self.submitted_us);
        latencies.first_token.add(since(self.first_token_us));
        latencies.queue.add(since(admitted_us));
        latencies.load.add(self.load_us);
        latencies.prefill.add(self.service_us);
        latencies.wait.add(self.wait_us(admitted_us));
    }

    fn count_end(&self, now_us: u64, status: &mut Status) {
        status.finished += 1;
        status.cut += u64::from(self.end == Some(Ok(FinishReason::Length)));
        let latencies = &mut status.latencies;
        latencies
            .whole
            .add(now_us.saturating_sub(self.submitted_us));
        latencies.prompt_tokens.add(self.usage.prompt_tokens.into());
        latencies
            .answer_tokens
            .add(self.usage.completion_tokens.into());
    }

    fn count_prompt(&self, status: &mut Status) {
        status.prompt_tokens += u64::from(self.usage.prompt_tokens);
        status.cached_tokens += u64::from(self.usage.cached_tokens);
    }

    /// Chooses the next token from `row`, `[vocab]` logits, and turns it into parts of the answer.
    pub(crate) fn advance(
        &mut self,
        row: &[f32],
        tokenizer: &Tokenizer,
        scratch: &mut Scratch,
    ) -> Outcome {
        let (Sampled { token, logprobs }, complete) = match self.choose(row, tokenizer, scratch) {
            Ok(chosen) => chosen,
            Err(failure) => {
                self.end = Some(Err(failure));
                return Outcome::Failed;
            }
        };
        self.usage.completion_tokens += 1;
        if tokenizer.is_end(token) {
            self.transcribe_token(token, tokenizer, &[]);
            return self.close(FinishReason::Stop { sequence: None });
        }
        if let Some(spelt) = &mut self.spelt {
            spelt.answer.push(token);
        }
        self.logprobs
            .extend(logprobs.map(|logprobs| with_bytes(token, &logprobs, tokenizer)));
        let output = self.read(token, tokenizer);
        self.transcribe_token(token, tokenizer, &output.parts);
        self.say(output.parts);
        if let Some(stop) = output.stopped {
            // Tokens that lie within the stop string alone are no part of the answer.
            self.logprobs.clear();
            return self.close(FinishReason::Stop {
                sequence: Some(self.stop[stop].clone()),
            });
        }
        if complete {
            return self.close(FinishReason::Stop { sequence: None });
        }
        if self.usage.completion_tokens == self.max_new {
            return self.close(FinishReason::Length);
        }
        Outcome::Token(token)
    }

    /// The next token: sampled, or one that closes the reasoning. Also whether the answer is complete with it, since its form
    /// allows no more.
    fn choose(
        &mut self,
        row: &[f32],
        tokenizer: &Tokenizer,
        scratch: &mut Scratch,
    ) -> Result<(Sampled, bool), Failure> {
        let forced = |token| Sampled {
            token,
            logprobs: None,
        };
        let whole = self.guide.as_ref().is_some_and(Guide::is_whole);
        if let Some(token) = self.thinking.forced() {
            if whole && let Some(guide) = &mut self.guide {
                let mut matcher = guide.next()?;
                matcher.accept(token).map_err(|error| failure(&error))?;
                guide.go_on(matcher);
            }
            return Ok((forced(token), false));
        }
        // Where the form is not that of all, it is that of text for the user.
        if whole || (self.guide.is_some() && self.output.takes_text()) {
            return self.choose_guided(row, tokenizer, scratch);
        }
        let sampled = if self.thinking.owes_text() {
            // The sampler takes finite logits only.
            let mut row = row.to_vec();
            let ids = 0..u32::try_from(row.len()).expect("ids are 32 bits wide");
            for (logit, id) in row.iter_mut().zip(ids) {
                if tokenizer.is_end(id) {
                    *logit = f32::MIN / 2.0;
                }
            }
            self.sampler.sample(&row, None, scratch)
        } else {
            self.sampler.sample(row, None, scratch)
        };
        let sampled = sampled.map_err(|_| Failure::NonFiniteLogits)?;
        if tokenizer.is_end(sampled.token)
            && self.output.is_reasoning()
            && let Some(token) = self.thinking.ended()
        {
            return Ok((forced(token), false));
        }
        Ok((sampled, false))
    }

    /// Chooses a token that the form allows, and asks for those that may follow.
    fn choose_guided(
        &mut self,
        row: &[f32],
        tokenizer: &Tokenizer,
        scratch: &mut Scratch,
    ) -> Result<(Sampled, bool), Failure> {
        let whole = self.guide.as_ref().is_some_and(Guide::is_whole);
        if !whole && let Some(open) = self.thinking.take_chance() {
            // Before it says anything the model may begin to think, which the form does not tell.
            let free = self.sampler.sample(row, None, scratch);
            let free = free.map_err(|_| Failure::NonFiniteLogits)?;
            if free.token == open {
                return Ok((free, false));
            }
        }
        let Some(guide) = &mut self.guide else {
            return Err(Failure::DeadEnd);
        };
        let mut matcher = guide.next()?;
        let sampled = self.sampler.sample(row, Some(matcher.mask()), scratch);
        let sampled = sampled.map_err(|unusable| match unusable {
            Unusable::NotFinite => Failure::NonFiniteLogits,
            Unusable::NoneAllowed => Failure::DeadEnd,
        })?;
        let mut complete = tokenizer.is_end(sampled.token);
        if !complete {
            matcher
                .accept(sampled.token)
                .map_err(|error| failure(&error))?;
            complete = matcher.is_stopped();
        }
        if !complete {
            guide.go_on(matcher);
        }
        Ok((sampled, complete))
    }

    /// Reads a token of the answer.
    fn read(&mut self, token: u32, tokenizer: &Tokenizer) -> Output {
        let was_reasoning = self.output.is_reasoning();
        let output = if tokenizer.is_control(token) {
            self.output.push_control(token)
        } else {
            self.output.push(tokenizer.piece(token))
        };
        let is_reasoning = self.output.is_reasoning();
        self.usage.reasoning_tokens += u32::from(was_reasoning || is_reasoning);
        if is_reasoning && self.output.is_between_characters() {
            self.thinking.check_budget(self.usage.reasoning_tokens);
        }
        output
    }

    /// Adds to what this step has to say.
    fn say(&mut self, mut parts: Vec<Part>) {
        if parts.is_empty() {
            return;
        }
        for part in &mut parts {
            if let Part::Call { id, .. } = part {
                *id = call_id();
            }
            if let Some(record) = &mut self.record {
                part.clone().append_to(&mut record.parts);
            }
        }
        let delta = self.delta.get_or_insert_default();
        if delta.parts.is_empty() {
            delta.parts = parts;
        } else {
            parts
                .into_iter()
                .for_each(|part| part.append_to(&mut delta.parts));
        }
        delta.logprobs.append(&mut self.logprobs);
    }

    /// Releases what was held back.
    fn close(&mut self, reason: FinishReason) -> Outcome {
        let rest = self.output.finish();
        if let Some(transcript) = &self.transcript {
            transcript.rest(self.id, &rest);
        }
        self.say(rest);
        if !self.logprobs.is_empty() {
            let delta = self.delta.get_or_insert_default();
            delta.logprobs.append(&mut self.logprobs);
        }
        self.end = Some(Ok(reason));
        Outcome::Finish
    }

    /// Whether the token that the last step chose is its first one.
    fn is_first_token(&self) -> bool {
        self.usage.completion_tokens == 1
    }

    /// Pushes what the step brought, except for the end.
    pub(crate) fn emit(&mut self) -> Said {
        let mut pushed = Pushed::Room;
        if !matches!(self.end, Some(Err(_))) {
            if self.is_first_token() {
                let Usage {
                    prompt_tokens,
                    cached_tokens,
                    ..
                } = self.usage;
                pushed = self.sink.push(Event::Started {
                    prompt_tokens,
                    cached_tokens,
                });
            }
            if let Some(delta) = self.delta.take() {
                pushed = self.sink.push(Event::Token(delta));
            }
            if let Some(pool) = self.pool.take_if(|_| self.end.is_some()) {
                pushed = self.sink.push(Event::Embedding(pool.into_embedding()));
            }
        }
        match self.end.take() {
            Some(end) => Said::Ended(end),
            None => Said::Running(pushed),
        }
    }

    /// Tells the client how far its prompt has come, if it asked for that. True when nobody reads any more.
    pub(crate) fn emit_progress(&mut self, cost: &CostModel, now_us: u64) -> bool {
        let (Some(started_us), true) = (self.started_us, self.reports_progress) else {
            return false;
        };
        let elapsed_us = now_us.saturating_sub(started_us);
        let progress = PromptProgress::new(self.usage, self.computed, elapsed_us, cost);
        self.sink.push(Event::Progress(progress)) == Pushed::Closed
    }

    /// How it ended, for whoever watches.
    pub(crate) fn ended(&self, how: Ending, at_us: u64) -> Moment {
        Moment::Ended {
            at_us,
            id: self.id,
            how,
            cached_tokens: self.usage.cached_tokens,
            tokens: self.usage.completion_tokens,
        }
    }

    /// Whether it waits in the queue.
    pub(crate) fn is_queued(&self) -> bool {
        self.admitted_us.is_none()
    }

    /// Notes that it has left the queue.
    pub(crate) fn admit(&mut self, now_us: u64) {
        self.admitted_us = Some(now_us);
    }

    /// When it fails if nothing happens before, and with what. One clock runs at a time: the queue's, then the first
    /// token's, then the reader's.
    pub(crate) fn due(&self, timeouts: &Timeouts) -> Option<(u64, Failure)> {
        let (since, timeout, failure) = match (self.admitted_us, self.parked_us) {
            (_, Some(parked)) => (parked, Some(timeouts.reader_us), Failure::ReaderTimeout),
            (None, None) => (self.submitted_us, timeouts.queue_us, Failure::QueueTimeout),
            (Some(admitted), None) if self.usage.completion_tokens == 0 => (
                admitted,
                timeouts.first_token_us,
                Failure::FirstTokenTimeout,
            ),
            _ => return None,
        };
        Some((since.saturating_add(timeout?), failure))
    }

    /// Notes that its reader has let the ring fill up.
    pub(crate) fn park(&mut self, now_us: u64) {
        self.parked_us = Some(now_us);
    }

    /// Notes that its reader has made room at `now_us`.
    pub(crate) fn unpark(&mut self, now_us: u64) {
        self.parked_us = None;
        self.last_token_us = now_us;
    }

    /// Ends it with an answer.
    pub(crate) fn finish(mut self, reason: FinishReason, tokenizer: &Tokenizer, now_us: u64) {
        let started_us = self.started_us.unwrap_or(now_us);
        let timings = Timings {
            queued_us: started_us.saturating_sub(self.submitted_us),
            prefill_us: self.first_token_us.saturating_sub(started_us),
            load_us: self.load_us,
            wait_us: self.wait_us(started_us),
            decode_us: now_us.saturating_sub(self.first_token_us),
        };
        // What a stop string cut off was said, but not to the client.
        if !matches!(reason, FinishReason::Stop { sequence: Some(_) }) {
            self.keep(tokenizer);
        }
        let usage = self.usage;
        self.transcribe_end(match &reason {
            FinishReason::Stop { sequence: None } => "end of answer",
            FinishReason::Stop { sequence: Some(_) } => "stop string",
            FinishReason::Length => "length",
        });
        self.log.finished(usage, timings, &reason);
        let end = Event::Finished {
            reason,
            usage,
            timings,
        };
        self.conclude(end);
    }

    /// Keeps the answer for prompts that repeat it, before the client can ask again.
    fn keep(&mut self, tokenizer: &Tokenizer) {
        let (Some(record), Some(spelt)) = (self.record.take(), &self.spelt) else {
            return;
        };
        let turn = Turn::new(&record.opening, &spelt.answer, tokenizer, &record.parts);
        if let Some(turn) = turn {
            record.turns.note(spelt.salt, turn);
        }
    }

    /// Ends it without an answer.
    pub(crate) fn fail(self, failure: Failure) {
        self.transcribe_end(&failure.to_string());
        self.log.failed(self.usage, failure);
        self.conclude(Event::Failed(failure));
    }

    /// Forgets it: the client is gone.
    pub(crate) fn cancel(mut self) {
        self.remember();
        self.transcribe_end("cancelled");
        self.log.left(self.usage);
    }

    fn conclude(mut self, end: Event) {
        // Before the client can ask again.
        self.remember();
        self.sink.push(end);
    }

    fn remember(&mut self) {
        if let Some(spelt) = self.spelt.take() {
            self.spellings.note(spelt);
        }
    }
}

/// An id that nobody can guess: whoever knows it was given it with the answer.
fn call_id() -> String {
    let random = seal::random::<12>();
    let digits = random.iter().map(|byte| format!("{byte:02x}"));
    format!("call_{}", digits.collect::<String>())
}

fn with_bytes(token: u32, logprobs: &Logprobs, tokenizer: &Tokenizer) -> TokenLogprob {
    let text = |id, logprob| TokenText {
        id,
        bytes: tokenizer.piece(id).to_vec(),
        logprob,
    };
    TokenLogprob {
        token: text(token, logprobs.chosen),
        top: logprobs
            .top
            .iter()
            .map(|&(id, logprob)| text(id, logprob))
            .collect(),
    }
}
