//! The way into the engine thread: many senders, one inbox, emptied only between steps.
//!
//! A queue under a mutex with one condition variable. A command is in the queue before its sender goes on, so what one
//! thread sends in an order arrives in that order; and the engine looks at the queue under the same mutex before it sleeps,
//! so no command is slept through.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::mpsc::Sender;
use std::time::Duration;

use andante_sched::PrefixMap;

use crate::event::EventSink;
use crate::request::Request;
use crate::store::Holdings;
use crate::sync::{Arc, Condvar, Mutex, lock};

/// What the engine can be asked from outside.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve this request.
    Submit(Box<Submission>),
    /// The client is gone: forget the request.
    Cancel(u64),
    /// The client has made room in its ring.
    Unpark(u64),
    /// Say which prefixes memory holds, and who knows which of them the store has.
    Map(Sender<(PrefixMap, Option<Holdings>)>),
    /// End, now or when the running requests are done.
    Shutdown(Shutdown),
}

/// A request on its way in.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) id: u64,
    pub(crate) request: Request,
    pub(crate) sink: EventSink,
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

#[derive(Debug)]
struct Post {
    state: Mutex<PostState>,
    arrived: Condvar,
}

#[derive(Debug)]
struct PostState {
    commands: VecDeque<Command>,
    /// Mailboxes that exist.
    senders: usize,
    /// The engine still reads.
    open: bool,
}

/// The sending side. The engine holds none, so it learns when the last handle and the last stream are gone.
#[derive(Debug)]
pub(crate) struct Mailbox(Arc<Post>);

impl Mailbox {
    /// Whether the command reached an engine that still runs. One that does not arrive is dropped, and its sink says so.
    pub(crate) fn send(&self, command: Command) -> bool {
        let mut state = lock(&self.0.state);
        if !state.open {
            drop(state);
            drop(command);
            return false;
        }
        state.commands.push_back(command);
        drop(state);
        self.0.arrived.notify_one();
        true
    }
}

impl Clone for Mailbox {
    fn clone(&self) -> Self {
        lock(&self.0.state).senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.senders -= 1;
        let last = state.senders == 0;
        drop(state);
        if last {
            self.0.arrived.notify_one();
        }
    }
}

/// The engine's side.
#[derive(Debug)]
pub(crate) struct Inbox(Arc<Post>);

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
        lock(&self.0.state).commands.pop_front()
    }

    /// Waits for a command, at most `timeout`.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> Woken {
        let mut state = lock(&self.0.state);
        loop {
            if !state.commands.is_empty() {
                return Woken::Ready;
            }
            if state.senders == 0 {
                return Woken::Abandoned;
            }
            let arrived = &self.0.arrived;
            state = match timeout {
                None => arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(timeout) => {
                    // A wake-up without cause costs the engine one look at its work.
                    drop(arrived.wait_timeout(state, timeout));
                    return Woken::Ready;
                }
            };
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.open = false;
        let commands = std::mem::take(&mut state.commands);
        drop(state);
        // Their sinks tell the clients, which may then ask this mailbox again.
        drop(commands);
    }
}

/// A mailbox and its inbox.
pub(crate) fn mailbox() -> (Mailbox, Inbox) {
    let post = Arc::new(Post {
        state: Mutex::new(PostState {
            commands: VecDeque::new(),
            senders: 1,
            open: true,
        }),
        arrived: Condvar::new(),
    });
    (Mailbox(Arc::clone(&post)), Inbox(post))
}
