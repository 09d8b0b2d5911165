//! Time as integer microseconds, behind a trait so that tests and simulations run in virtual time.

use std::time::Instant;

/// Microseconds since some fixed start. Never goes back.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now_us(&self) -> u64;
}

/// The machine's monotonic clock, counted from its creation.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl SystemClock {
    /// Starts at zero.
    #[must_use]
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_us(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros())
            .expect("a process does not run for 500,000 years")
    }
}
