//! The gate of each key: its meter, the clock that this goes by, and a pass for every request that is let in.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::limits::{Breach, Limits, Meter};

/// Where the requests of a key come in. Clones are the same gate.
#[derive(Clone)]
pub(crate) struct Gate {
    meter: Arc<Mutex<Meter>>,
    opened: Instant,
}

impl Gate {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            meter: Arc::new(Mutex::new(Meter::new(limits))),
            opened: Instant::now(),
        }
    }

    /// Lets a request in, as far as the limits allow.
    pub(crate) fn enter(&self) -> Result<Pass, Breach> {
        self.meter().enter(self.now_s())?;
        Ok(Pass(Some(self.clone())))
    }

    fn now_s(&self) -> u64 {
        self.opened.elapsed().as_secs()
    }

    fn meter(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request's place, which is given back when this is dropped. The default is that of a request without a key.
#[derive(Default)]
pub(crate) struct Pass(Option<Gate>);

impl Pass {
    /// Counts tokens that the request takes.
    pub(crate) fn charge(&self, tokens: u32) {
        if let Some(gate) = &self.0 {
            gate.meter().charge(tokens, gate.now_s());
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(gate) = &self.0 {
            gate.meter().leave();
        }
    }
}

#[cfg(test)]
mod tests;
