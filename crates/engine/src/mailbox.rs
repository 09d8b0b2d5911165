//! The way into the engine thread: many senders, one inbox, emptied only between steps.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::event::EventSink;
use crate::handle::Permit;
use crate::request::Request;

/// What the engine can be asked from outside.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve this request.
    Submit(Submission),
    /// The client is gone: forget the request.
    Cancel(u64),
    /// The client has made room in its ring.
    Unpark(u64),
    /// End, now or when the running requests are done.
    Shutdown(Shutdown),
}

/// A request on its way in.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) id: u64,
    pub(crate) request: Request,
    pub(crate) sink: EventSink,
    pub(crate) permit: Permit,
    pub(crate) submitted_us: u64,
}

/// How to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// Requests that have begun may finish within `timeout`; those that wait fail with
    /// [`crate::Failure::ShuttingDown`], and so do the ones that are late.
    Drain {
        /// Counted from when the engine reads this.
        timeout: Duration,
    },
    /// Every request fails with [`crate::Failure::ShuttingDown`] after the step in flight.
    Now,
}

/// The sending side. The engine holds none, so it learns when the last handle and the last stream are gone.
#[derive(Debug, Clone)]
pub(crate) struct Mailbox(Sender<Command>);

impl Mailbox {
    /// Whether the command reached an engine that still runs. One that does not arrive is dropped, and its sink says so.
    pub(crate) fn send(&self, command: Command) -> bool {
        self.0.send(command).is_ok()
    }
}

/// The engine's side.
#[derive(Debug)]
pub(crate) struct Inbox {
    receiver: Receiver<Command>,
    /// What a wait received; it is applied with the rest, between steps.
    waiting: VecDeque<Command>,
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// There is a command to apply, or the time has come.
    Ready,
    /// Nobody is left who could send anything.
    Abandoned,
}

impl Inbox {
    /// The next command that has arrived.
    pub(crate) fn next(&mut self) -> Option<Command> {
        self.waiting
            .pop_front()
            .or_else(|| self.receiver.try_recv().ok())
    }

    /// Waits for a command, at most `timeout`.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> Woken {
        if !self.waiting.is_empty() {
            return Woken::Ready;
        }
        let received = match timeout {
            Some(timeout) => self.receiver.recv_timeout(timeout),
            None => self
                .receiver
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
        };
        match received {
            Ok(command) => self.waiting.push_back(command),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Woken::Abandoned,
        }
        Woken::Ready
    }
}

/// A mailbox and its inbox.
pub(crate) fn mailbox() -> (Mailbox, Inbox) {
    let (sender, receiver) = channel();
    (
        Mailbox(sender),
        Inbox {
            receiver,
            waiting: VecDeque::new(),
        },
    )
}
