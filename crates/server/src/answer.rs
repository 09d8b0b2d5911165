//! The choices of one HTTP request, merged into one sequence of events; the same for a streamed and a whole answer.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use andante_engine::{
    Delta, EngineHandle, Event, EventStream, FinishReason, PromptProgress, Timings, TokenLogprob,
    Usage,
};
use andante_text::Part;
use futures_core::Stream;

use crate::error::ApiError;
use crate::gate::Pass;
use crate::observe::Observation;

/// Running choices. Dropping it cancels those that have not ended.
pub(crate) struct Answer {
    /// `None` once a choice has finished.
    streams: Vec<Option<EventStream>>,
    engine: EngineHandle,
    /// Choices made from each prompt: their shared prompt counts once.
    choices_per_prompt: usize,
    totals: Totals,
    /// The request's place among those of its key, given back at the end.
    pass: Pass,
    /// Tokens of each choice that were charged to it.
    charged: Vec<u32>,
    /// Who is to hear how it went.
    observation: Option<Observation>,
    /// Whose turn it is, so that a talkative choice keeps no other one waiting.
    turn: usize,
}

/// What happened, and to which choice.
pub(crate) enum Progress {
    /// A choice's prompt has come so far.
    Prompt(usize, PromptProgress),
    /// With the tokens of its prompt.
    Started(usize, Usage),
    Delta(usize, Delta),
    Embedding(usize, Vec<f32>),
    Finished(usize, FinishReason),
    /// All choices have finished: the last event, unless `Failed` is.
    Ended(Totals),
    /// One choice failed, so the answer did: the last event.
    Failed(ApiError),
}

/// What an answer took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    /// The tokens of all choices; those of a prompt that several share count once.
    pub(crate) usage: Usage,
    /// Where the time of the choice that ended last went.
    pub(crate) timings: Timings,
}

/// A whole choice.
pub(crate) struct Choice {
    pub(crate) parts: Vec<Part>,
    pub(crate) logprobs: Vec<TokenLogprob>,
    /// Empty unless it was asked for.
    pub(crate) embedding: Vec<f32>,
    pub(crate) reason: FinishReason,
}

impl Choice {
    /// All the text for the user.
    pub(crate) fn text(&self) -> String {
        let text = |part: &Part| match part {
            Part::Text(text) => Some(text.clone()),
            _ => None,
        };
        self.parts.iter().filter_map(text).collect()
    }
}

impl Answer {
    pub(crate) fn new(
        engine: EngineHandle,
        streams: Vec<EventStream>,
        choices_per_prompt: usize,
        pass: Pass,
    ) -> Self {
        Self {
            engine,
            pass,
            charged: vec![0; streams.len()],
            streams: streams.into_iter().map(Some).collect(),
            choices_per_prompt,
            totals: Totals::default(),
            observation: None,
            turn: 0,
        }
    }

    /// Has it tell how it went.
    pub(crate) fn observe(&mut self, observation: Option<Observation>) {
        self.observation = observation;
    }

    /// The next event. Not to be called after `Ended` or `Failed`.
    pub(crate) fn poll_progress(&mut self, cx: &mut Context<'_>) -> Poll<Progress> {
        let count = self.streams.len();
        let mut running = false;
        for offset in 0..count {
            let choice = (self.turn + offset) % count;
            let Some(stream) = &mut self.streams[choice] else {
                continue;
            };
            running = true;
            if let Poll::Ready(event) = Pin::new(stream).poll_next(cx) {
                self.turn = choice + 1;
                return Poll::Ready(self.advance(choice, event));
            }
        }
        if running {
            Poll::Pending
        } else {
            // Before the end is told: whoever has read it may ask again.
            self.pass = Pass::default();
            if let Some(observation) = self.observation.take() {
                observation.complete();
            }
            Poll::Ready(Progress::Ended(self.totals))
        }
    }

    /// Collects the whole answer.
    pub(crate) async fn collect(mut self) -> Result<(Vec<Choice>, Totals), ApiError> {
        let mut choices: Vec<Choice> = (0..self.streams.len())
            .map(|_| Choice {
                parts: Vec::new(),
                logprobs: Vec::new(),
                embedding: Vec::new(),
                reason: FinishReason::Length,
            })
            .collect();
        loop {
            match poll_fn(|cx| self.poll_progress(cx)).await {
                Progress::Prompt(..) | Progress::Started(..) => {}
                Progress::Delta(choice, delta) => {
                    let choice = &mut choices[choice];
                    for part in delta.parts {
                        part.append_to(&mut choice.parts);
                    }
                    choice.logprobs.extend(delta.logprobs);
                }
                Progress::Embedding(choice, embedding) => choices[choice].embedding = embedding,
                Progress::Finished(choice, reason) => choices[choice].reason = reason,
                Progress::Ended(totals) => return Ok((choices, totals)),
                Progress::Failed(error) => return Err(error),
            }
        }
    }

    fn advance(&mut self, choice: usize, event: Option<Event>) -> Progress {
        match event {
            Some(Event::Progress(progress)) => Progress::Prompt(choice, progress),
            Some(Event::Started {
                prompt_tokens,
                cached_tokens,
            }) => {
                let prompt = Usage {
                    prompt_tokens,
                    cached_tokens,
                    ..Usage::default()
                };
                Progress::Started(choice, prompt)
            }
            Some(Event::Token(delta)) => {
                self.charge(choice, 1);
                Progress::Delta(choice, delta)
            }
            Some(Event::Embedding(embedding)) => Progress::Embedding(choice, embedding),
            Some(Event::Finished {
                reason,
                usage,
                timings,
            }) => {
                self.streams[choice] = None;
                self.totals.timings = timings;
                if let Some(observation) = &mut self.observation {
                    observation.choice(&reason, usage, timings);
                }
                self.count(choice, usage);
                let rest = usage.completion_tokens.saturating_sub(self.charged[choice]);
                self.charge(choice, rest);
                Progress::Finished(choice, reason)
            }
            Some(Event::Failed(failure)) => self.fail(ApiError::failed(failure, &self.engine)),
            None => self.fail(ApiError::EngineStopped),
        }
    }

    /// Charges tokens when they are told: one for a piece, which has at least that, and the rest at the end. An answer that is
    /// left before has been paid for as far as it was read.
    fn charge(&mut self, choice: usize, tokens: u32) {
        self.pass.charge(tokens);
        self.charged[choice] += tokens;
    }

    /// One choice failed: nobody will read the others.
    fn fail(&mut self, error: ApiError) -> Progress {
        self.streams.clear();
        self.pass = Pass::default();
        if let Some(observation) = self.observation.take() {
            observation.failed(&error);
        }
        Progress::Failed(error)
    }

    fn count(&mut self, choice: usize, usage: Usage) {
        let total = &mut self.totals.usage;
        total.completion_tokens += usage.completion_tokens;
        total.reasoning_tokens += usage.reasoning_tokens;
        if choice.is_multiple_of(self.choices_per_prompt) {
            total.prompt_tokens += usage.prompt_tokens;
            total.cached_tokens += usage.cached_tokens;
        }
    }
}
