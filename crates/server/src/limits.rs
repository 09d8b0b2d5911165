//! What may be asked with a key: requests at once, requests a minute, tokens a minute. Pure accounting: the time is passed in.
//!
//! A minute is the last sixty seconds, told apart by whole seconds, so that what is kept does not grow with what is asked.
//! Nothing is saved up and nothing is owed: what was counted a minute ago is forgotten.

use std::fmt;
use std::num::NonZeroU32;

/// The most that may be asked with a key; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Requests under way at once.
    pub(crate) parallel: Option<NonZeroU32>,
    /// Requests let in within a minute.
    pub(crate) requests: Option<NonZeroU32>,
    /// Tokens of prompts and answers within a minute.
    pub(crate) tokens: Option<NonZeroU32>,
}

/// What was asked with a key. Seconds count from any moment, the same at every call.
#[derive(Debug)]
pub(crate) struct Meter {
    limits: Limits,
    running: u32,
    requests: Minute,
    tokens: Minute,
}

/// The limit that stands against a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Breach {
    pub(crate) limit: Limit,
    /// Seconds until there is room, if the time alone makes some.
    pub(crate) wait_s: Option<u32>,
}

/// A limit, as it is told to whom it stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Parallel(NonZeroU32),
    Requests(NonZeroU32),
    Tokens(NonZeroU32),
}

impl Meter {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            running: 0,
            requests: Minute::default(),
            tokens: Minute::default(),
        }
    }

    /// Lets a request in, or says what stands against it; then nothing is counted. One is let in as long as the minute has a
    /// token left: how many it takes is known only when it has ended.
    pub(crate) fn enter(&mut self, now_s: u64) -> Result<(), Breach> {
        let Limits {
            parallel,
            requests,
            tokens,
        } = self.limits;
        let breaches = [
            requests.map(|most| (Limit::Requests(most), self.requests.wait_s(most, now_s))),
            tokens.map(|most| (Limit::Tokens(most), self.tokens.wait_s(most, now_s))),
        ];
        let longest = breaches.into_iter().flatten().max_by_key(|breach| breach.1);
        if let Some((limit, wait_s)) = longest.filter(|breach| breach.1 > 0) {
            let wait_s = Some(wait_s);
            return Err(Breach { limit, wait_s });
        }
        if let Some(most) = parallel.filter(|most| self.running >= most.get()) {
            let limit = Limit::Parallel(most);
            return Err(Breach {
                limit,
                wait_s: None,
            });
        }
        self.running += 1;
        self.requests.add(1, now_s);
        Ok(())
    }

    /// Counts tokens of a request that was let in.
    pub(crate) fn charge(&mut self, tokens: u32, now_s: u64) {
        self.tokens.add(tokens, now_s);
    }

    /// Gives back the place of a request that was let in.
    pub(crate) fn leave(&mut self) {
        self.running -= 1;
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parallel(most) => write!(f, "this key's requests at once are limited to {most}"),
            Self::Requests(most) => write!(f, "this key's requests a minute are limited to {most}"),
            Self::Tokens(most) => write!(f, "this key's tokens a minute are limited to {most}"),
        }
    }
}

const MINUTE_S: usize = 60;

/// What was counted in each of the last sixty seconds.
#[derive(Debug)]
struct Minute {
    /// That of second `s` is at `s % 60`.
    counts: [u64; MINUTE_S],
    newest_s: u64,
}

impl Default for Minute {
    fn default() -> Self {
        Self {
            counts: [0; MINUTE_S],
            newest_s: 0,
        }
    }
}

impl Minute {
    fn add(&mut self, count: u32, now_s: u64) {
        self.advance(now_s);
        *self.at(0) += u64::from(count);
    }

    /// Seconds until less than `most` is counted: 0 where there is room now.
    fn wait_s(&mut self, most: NonZeroU32, now_s: u64) -> u32 {
        self.advance(now_s);
        let mut counted: u64 = self.counts.iter().sum();
        let mut wait_s = 0;
        // After a minute nothing is left, which is less than any limit.
        while counted >= u64::from(most.get()) {
            wait_s += 1;
            counted -= *self.at(wait_s);
        }
        wait_s
    }

    /// Forgets what is a minute old by now.
    fn advance(&mut self, now_s: u64) {
        let passed = now_s.saturating_sub(self.newest_s);
        for second in 1..=passed.min(MINUTE_S as u64) {
            // Sixty in a row are all, wherever they begin.
            *self.at(u32::try_from(second).expect("at most sixty")) = 0;
        }
        self.newest_s += passed;
    }

    /// The place of the second that is so many after the newest. Until it comes, what was counted a minute before it is there.
    fn at(&mut self, seconds: u32) -> &mut u64 {
        let place = (self.newest_s + u64::from(seconds)) % MINUTE_S as u64;
        &mut self.counts[usize::try_from(place).expect("less than sixty")]
    }
}

#[cfg(test)]
mod tests;
