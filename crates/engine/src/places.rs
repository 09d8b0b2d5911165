//! The places inside the engine: a bound on the requests that run and wait, held by a counter and not by an estimate, so an
//! idle engine refuses nobody.

use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, Ordering};

/// So many requests may be inside at once. Clones count together.
#[derive(Debug, Clone)]
pub(crate) struct Places(Arc<Counter>);

#[derive(Debug)]
struct Counter {
    taken: AtomicU32,
    most: u32,
}

impl Places {
    pub(crate) fn new(most: u32) -> Self {
        Self(Arc::new(Counter {
            taken: AtomicU32::new(0),
            most,
        }))
    }

    /// Places in all.
    pub(crate) fn most(&self) -> u32 {
        self.0.most
    }

    /// Takes a place, if one is free.
    pub(crate) fn take(&self) -> Option<Permit> {
        let more = |taken: u32| (taken < self.0.most).then_some(taken + 1);
        self.0
            .taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .ok()?;
        Some(Permit(Arc::clone(&self.0)))
    }
}

/// A place, given back when the request has ended or its client has left, whichever is first.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Counter>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}
