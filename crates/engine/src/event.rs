//! What a client sees of its request: events, through a bounded ring that never makes the engine wait.
//!
//! The engine holds the [`EventSink`], the client the [`EventStream`]. A push never blocks: when it fills the ring it says
//! so and the engine parks the sequence; the reader that brings the ring back to half wakes it up. A dropped stream cancels
//! its request, a dropped sink that has not said how the request ended says [`Failure::EngineStopped`]. So every stream ends
//! in exactly one [`Event::Finished`] or [`Event::Failed`], whatever becomes of the engine.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll, Waker};

use andante_text::Part;

use crate::error::Failure;
use crate::mailbox::{Command, Mailbox};
use crate::places::Permit;
use crate::progress::PromptProgress;
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, lock};

/// One thing that happened to a request, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A part of the prompt is computed, for a request that [asks](crate::Request::with_progress) to be told.
    Progress(PromptProgress),
    /// The prompt is computed; the first token follows.
    Started {
        /// Tokens of the prompt.
        prompt_tokens: u32,
        /// How many of them came from the prefix cache.
        cached_tokens: u32,
    },
    /// A piece of the answer.
    Token(Delta),
    /// What an embedding was asked for: `[hidden]` numbers, of no particular length as a vector.
    Embedding(Vec<f32>),
    /// The answer is complete.
    Finished {
        /// Why it ended.
        reason: FinishReason,
        /// What it took in tokens.
        usage: Usage,
        /// What it took in time.
        timings: Timings,
    },
    /// There will be no (more) answer.
    Failed(Failure),
}

impl Event {
    /// Whether this is the last event of its stream.
    #[must_use]
    pub fn is_end(&self) -> bool {
        matches!(self, Self::Finished { .. } | Self::Failed(_))
    }
}

/// A piece of the answer: whole characters, possibly of several tokens or (with log-probabilities) of none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Delta {
    /// What the answer goes on with; what might still become a stop string is held back.
    pub parts: Vec<Part>,
    /// One entry for each token of the parts, when the request asked for them.
    pub logprobs: Vec<TokenLogprob>,
}

impl Delta {
    /// The pieces of text for the user.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }
}

/// The log-probability of a chosen token under the model's distribution, before penalties, filters and temperature.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprob {
    /// The token chosen.
    pub token: TokenText,
    /// The most likely tokens at this place, most likely first; as many as the request asked for.
    pub top: Vec<TokenText>,
}

/// A token with its bytes and natural log-probability.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenText {
    /// The id.
    pub id: u32,
    /// Its bytes, not always whole UTF-8.
    pub bytes: Vec<u8>,
    /// Its natural log-probability.
    pub logprob: f32,
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it, or it reached one of the stop strings.
    Stop {
        /// The stop string reached, if it was one.
        sequence: Option<String>,
    },
    /// `max_tokens` or the context was reached.
    Length,
}

/// The tokens of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens of the prompt, those from the cache included.
    pub prompt_tokens: u32,
    /// Prompt tokens that came from the prefix cache.
    pub cached_tokens: u32,
    /// Tokens generated, an end-of-generation token included.
    pub completion_tokens: u32,
    /// How many of them were reasoning.
    pub reasoning_tokens: u32,
}

/// Where the time of one request went, in microseconds; the time to first token is `queued_us + prefill_us`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timings {
    /// From submission to the start of the first step that worked on it.
    pub queued_us: u64,
    /// From there to the first token.
    pub prefill_us: u64,
    /// The part of `prefill_us` in which KV of the prompt was being loaded.
    pub load_us: u64,
    /// The part of `prefill_us` in which others were served.
    pub wait_us: u64,
    /// From the first token to the last.
    pub decode_us: u64,
}

impl Timings {
    /// Tokens per second after the first token; 0 when there were none.
    #[must_use]
    pub fn decode_rate(&self, completion_tokens: u32) -> f64 {
        if self.decode_us == 0 {
            return 0.0;
        }
        f64::from(completion_tokens.saturating_sub(1)) * 1e6 / self.decode_us as f64
    }
}

/// The client's end: blocking, polling or as a [`futures_core::Stream`]. Dropping it cancels the request.
#[derive(Debug)]
pub struct EventStream {
    ring: Arc<Ring>,
    id: u64,
    mailbox: Mailbox,
}

impl EventStream {
    /// Waits for the next event; `None` after the last one.
    pub fn recv_blocking(&mut self) -> Option<Event> {
        let mut state = self.ring.lock();
        loop {
            if let Some(event) = state.events.pop_front() {
                self.release(state);
                return Some(event);
            }
            if state.ended {
                return None;
            }
            state = self
                .ring
                .readable
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next event if there is one now.
    pub fn try_recv(&mut self) -> Option<Event> {
        let mut state = self.ring.lock();
        let event = state.events.pop_front()?;
        self.release(state);
        Some(event)
    }

    /// Whether the last event has been taken.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let state = self.ring.lock();
        state.ended && state.events.is_empty()
    }

    /// Events waiting to be read.
    #[cfg(test)]
    pub(crate) fn ring_len(&self) -> usize {
        self.ring.lock().events.len()
    }

    /// Wakes a sequence that was parked for a full ring once half of it is free.
    fn release(&self, mut state: MutexGuard<'_, State>) {
        if state.parked && state.events.len() <= self.ring.capacity / 2 {
            state.parked = false;
            drop(state);
            self.mailbox.send(Command::Unpark(self.id));
        }
    }
}

impl futures_core::Stream for EventStream {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut state = self.ring.lock();
        if let Some(event) = state.events.pop_front() {
            self.release(state);
            return Poll::Ready(Some(event));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        let mut state = self.ring.lock();
        state.closed = true;
        let running = !state.ended;
        let permit = state.permit.take();
        drop(state);
        if running {
            self.mailbox.send(Command::Cancel(self.id));
        }
        // Whoever takes this place next comes after the cancel in the mailbox: nobody queues behind a ghost.
        drop(permit);
    }
}

/// The engine's end.
#[derive(Debug)]
pub(crate) struct EventSink {
    ring: Arc<Ring>,
    ended: bool,
}

/// What a push found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// There is room for more.
    Room,
    /// The ring is full now: push nothing but the end until [`Command::Unpark`].
    Full,
    /// Nobody reads any more.
    Closed,
}

impl EventSink {
    /// Adds an event, without waiting. The event that fills the ring is still delivered, and so is the end of a full one.
    pub(crate) fn push(&mut self, event: Event) -> Pushed {
        debug_assert!(!self.ended, "an event after the end of its stream");
        let mut state = self.ring.lock();
        if state.closed {
            return Pushed::Closed;
        }
        if event.is_end() {
            self.ended = true;
            state.ended = true;
            // Before the client hears of the end, so that its next request finds the place free.
            state.permit = None;
        }
        match (&event, state.events.back_mut()) {
            // Whoever has not read the last one has no use for it any more.
            (Event::Progress(_), Some(last @ Event::Progress(_))) => *last = event,
            _ => state.events.push_back(event),
        }
        let full = !self.ended && state.events.len() >= self.ring.capacity;
        state.parked = full;
        let waker = state.waker.take();
        drop(state);
        self.ring.readable.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
        if full { Pushed::Full } else { Pushed::Room }
    }
}

impl Drop for EventSink {
    fn drop(&mut self) {
        if !self.ended {
            self.push(Event::Failed(Failure::EngineStopped));
        }
    }
}

/// A ring for request `id` that is full at `capacity` events (at least 1) and holds the request's place.
pub(crate) fn ring(
    id: u64,
    capacity: usize,
    mailbox: Mailbox,
    permit: Permit,
) -> (EventSink, EventStream) {
    let ring = Arc::new(Ring {
        state: Mutex::new(State {
            // Grows with what is waiting: most readers keep up and never hold more than a few events.
            events: VecDeque::new(),
            ended: false,
            closed: false,
            parked: false,
            waker: None,
            permit: Some(permit),
        }),
        readable: Condvar::new(),
        capacity: capacity.max(1),
    });
    (
        EventSink {
            ring: Arc::clone(&ring),
            ended: false,
        },
        EventStream { ring, id, mailbox },
    )
}

#[derive(Debug)]
struct Ring {
    state: Mutex<State>,
    readable: Condvar,
    capacity: usize,
}

#[derive(Debug)]
struct State {
    events: VecDeque<Event>,
    /// The last event is in `events` or has been taken.
    ended: bool,
    /// The stream is gone.
    closed: bool,
    /// The sink found the ring full and the reader has not made room since.
    parked: bool,
    waker: Option<Waker>,
    /// Until the end, or until the stream is gone.
    permit: Option<Permit>,
}

impl Ring {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
