//! What `serve` says before the first request: what runs, with which memory, and how it was told to.

use std::fmt;
use std::time::Duration;

/// A server that is about to listen.
pub(super) struct Startup<'a> {
    pub(super) name: &'a str,
    pub(super) load_time: Duration,
    pub(super) memory: Memory<'a>,
    pub(super) address: &'a str,
}

/// What its sequences take.
#[derive(Clone, Copy)]
pub(super) struct Memory<'a> {
    pub(super) sessions: u32,
    pub(super) context: u32,
    pub(super) blocks: u64,
    pub(super) block_bytes: u64,
    pub(super) block_tokens: u64,
    /// What keys and values are kept in.
    pub(super) format: &'a str,
    /// Running states, and the bytes of one.
    pub(super) states: u64,
    pub(super) state_bytes: u64,
}

impl fmt::Display for Startup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "serving {}, loaded in {:.2} s, {}, on {}",
            self.name,
            self.load_time.as_secs_f64(),
            self.memory,
            self.address
        )
    }
}

impl fmt::Display for Memory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest of a format says how it is computed with.
        let format = self.format.split([',', '(']).next().unwrap_or_default();
        write!(
            f,
            "KV of {} sessions of {} tokens in {} MiB ({}, {:.1} KiB a token; what they leave free keeps prefixes)",
            self.sessions,
            self.context,
            mib(self.blocks * self.block_bytes),
            format.trim_end(),
            self.block_bytes as f64 / self.block_tokens as f64 / 1024.0,
        )?;
        if self.states > 0 {
            write!(
                f,
                ", {} running states of {:.1} MiB in {} MiB",
                self.states,
                self.state_bytes as f64 / f64::from(1 << 20),
                mib(self.states * self.state_bytes),
            )?;
        }
        Ok(())
    }
}

fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

#[cfg(test)]
mod tests;
