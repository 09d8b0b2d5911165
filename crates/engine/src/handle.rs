//! The engine from outside: prepare a request on the caller's thread, submit it, watch the engine.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::Clock;
use crate::error::SubmitError;
use crate::event::{self, EventStream};
use crate::mailbox::{Command, Mailbox, Shutdown, Submission};
use crate::request::Request;

/// A way to one engine; clones lead to the same one. The engine ends when the last handle and the last stream are gone.
#[derive(Clone)]
pub struct EngineHandle {
    shared: Arc<Shared>,
    mailbox: Mailbox,
}

impl EngineHandle {
    /// Hands a request to the engine. Never waits.
    ///
    /// # Errors
    /// [`SubmitError`] when the queue is full or the engine takes nothing new.
    pub fn submit(&self, request: Request) -> Result<EventStream, SubmitError> {
        match self.health() {
            Health::Ready => {}
            Health::Draining => return Err(SubmitError::ShuttingDown),
            Health::Stopped | Health::Failed => return Err(SubmitError::Dead),
        }
        let permit = Permit::take(&self.shared)?;
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let (sink, stream) = event::ring(id, self.shared.ring_events, self.mailbox.clone());
        let submitted_us = self.shared.clock.now_us();
        let submission = Submission {
            id,
            request,
            sink,
            permit,
            submitted_us,
        };
        if self.mailbox.send(Command::Submit(submission)) {
            Ok(stream)
        } else {
            Err(SubmitError::Dead)
        }
    }

    /// Whether the engine works.
    #[must_use]
    pub fn health(&self) -> Health {
        Health::from_code(self.shared.health.load(Ordering::Acquire))
    }

    /// Counters and configuration as of the last step.
    #[must_use]
    pub fn status(&self) -> Status {
        let mut status = self.shared.status().clone();
        status.health = self.health();
        status
    }

    /// Asks the engine to end. Requests submitted after this are refused.
    pub fn shutdown(&self, how: Shutdown) {
        self.shared.set_health(Health::Draining);
        self.mailbox.send(Command::Shutdown(how));
    }
}

/// Whether the engine works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It takes requests.
    Ready,
    /// It finishes what it has.
    Draining,
    /// It has ended as asked.
    Stopped,
    /// It has ended after a failure of the model, or a bug.
    Failed,
}

impl Health {
    fn from_code(code: u8) -> Self {
        [Self::Ready, Self::Draining, Self::Stopped, Self::Failed][usize::from(code)]
    }
}

/// What the engine is doing and has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Whether it works.
    pub health: Health,
    /// One line with the scheduler's configuration.
    pub config: String,
    /// Requests that hold a place.
    pub running: u32,
    /// Requests that wait for one.
    pub queued: u32,
    /// Forward passes so far.
    pub steps: u64,
    /// Requests that ended with an answer.
    pub finished: u64,
    /// Requests that ended without one.
    pub failed: u64,
    /// Requests whose client went away.
    pub cancelled: u64,
    /// Prompt tokens of the requests that have started.
    pub prompt_tokens: u64,
    /// How many of those came from the prefix cache.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// KV blocks that running sequences hold.
    pub blocks_used: u32,
    /// KV blocks in all; those not in use are prefix cache.
    pub blocks: u32,
}

/// What handle and engine share.
pub(crate) struct Shared {
    pub(crate) clock: Arc<dyn Clock>,
    /// The most requests inside at once: those that run and those that wait.
    pub(crate) max_inside: u32,
    pub(crate) ring_events: usize,
    inside: AtomicU32,
    next_id: AtomicU64,
    health: AtomicU8,
    /// The engine's estimate of when a place in the queue will be free, in seconds.
    pub(crate) retry_after_s: AtomicU32,
    status: Mutex<Status>,
}

impl Shared {
    pub(crate) fn set_health(&self, health: Health) {
        // Only towards the end: a late shutdown request must not hide a failure.
        self.health.fetch_max(health as u8, Ordering::AcqRel);
    }

    pub(crate) fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place inside the engine, given back when the request has ended.
pub(crate) struct Permit(Arc<Shared>);

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Permit")
    }
}

impl Permit {
    fn take(shared: &Arc<Shared>) -> Result<Self, SubmitError> {
        shared
            .inside
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |inside| {
                (inside < shared.max_inside).then_some(inside + 1)
            })
            .map_err(|_| SubmitError::QueueFull {
                retry_after_s: shared.retry_after_s.load(Ordering::Relaxed).max(1),
            })?;
        Ok(Self(Arc::clone(shared)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::AcqRel);
    }
}
