//! The log lines of a request: one when its prompt begins, one now and then while a long one is computed, one at its end.
//!
//! They hold figures and the names of switches, nothing of what was asked or answered. Each is an event of [`TARGET`] whose message is
//! the whole line; its fields say the same to programs.

use std::fmt;
use std::sync::Arc;

use crate::error::Failure;
use crate::event::{FinishReason, Timings, Usage};
use crate::request::{Request, Traits};

/// The target of these events: who writes text needs their message alone, since the fields repeat it.
pub const TARGET: &str = "andante::request";

/// How often a prompt that is being computed is spoken of, in µs.
const PROGRESS_US: u64 = 5_000_000;

/// A request, for its lines.
#[derive(Debug)]
pub(crate) struct RequestLog {
    /// As its client knows it, or else its number.
    name: Arc<str>,
    kind: &'static str,
    traits: Traits,
    /// When it was last spoken of, in µs.
    told_us: Option<u64>,
}

/// Writes an event with what all of them say.
macro_rules! tell {
    ($level:ident, $log:ident, $event:literal, $usage:ident, $line:expr $(, $field:ident = $value:expr)*) => {
        tracing::$level!(
            target: TARGET,
            event = $event,
            request = &*$log.name,
            kind = $log.kind,
            tools = $log.traits.tools,
            thinking = $log.traits.thinking,
            form = $log.traits.form,
            prompt_tokens = $usage.prompt_tokens,
            cached_tokens = $usage.cached_tokens,
            completion_tokens = $usage.completion_tokens,
            $($field = $value,)*
            "{}",
            Line { log: $log, usage: $usage, what: $line }
        )
    };
}

impl RequestLog {
    pub(crate) fn new(id: u64, request: &Request) -> Self {
        let kind = match (request.pooling, &request.opening) {
            (Some(_), _) => "embedding",
            (None, Some(_)) => "chat",
            (None, None) => "text",
        };
        let name = request.name.clone();
        Self {
            name: name.unwrap_or_else(|| id.to_string().into()),
            kind,
            traits: request.traits,
            told_us: None,
        }
    }

    /// A step that begins at `now_us` goes on with the prompt at token `done`. The first one began at `started_us`, and before that
    /// the request waited for `queued_us`.
    pub(crate) fn prompt(
        &mut self,
        usage: Usage,
        done: u32,
        (now_us, started_us, queued_us): (u64, u64, u64),
    ) {
        let told_us = self.told_us;
        if told_us.is_some_and(|told_us| now_us.saturating_sub(told_us) < PROGRESS_US) {
            return;
        }
        self.told_us = Some(now_us);
        let log = &*self;
        if told_us.is_none() {
            let what = What::Begins { queued_us };
            tell!(
                info,
                log,
                "prompt",
                usage,
                what,
                queued_ms = queued_us / 1000
            );
            return;
        }
        let computed = done.saturating_sub(usage.cached_tokens);
        let per_s = per_second(computed, now_us.saturating_sub(started_us));
        let what = What::Computes { done, per_s };
        tell!(
            info,
            log,
            "prefill",
            usage,
            what,
            done_tokens = done,
            prefill_per_s = per_s
        );
    }

    /// It has its answer.
    pub(crate) fn finished(&self, usage: Usage, timings: Timings, reason: &FinishReason) {
        let log = self;
        let computed = usage.prompt_tokens.saturating_sub(usage.cached_tokens);
        let prefill_per_s = per_second(computed, timings.prefill_us);
        let decode_per_s = timings.decode_rate(usage.completion_tokens);
        let reason = match reason {
            FinishReason::Stop { sequence: None } => "stop",
            FinishReason::Stop { sequence: Some(_) } => "stop string",
            FinishReason::Length => "length",
        };
        let what = What::Ends {
            prefill_per_s,
            decode_per_s,
            reason,
        };
        tell!(
            info,
            log,
            "finished",
            usage,
            what,
            reasoning_tokens = usage.reasoning_tokens,
            queued_ms = timings.queued_us / 1000,
            prefill_ms = timings.prefill_us / 1000,
            decode_ms = timings.decode_us / 1000,
            prefill_per_s = prefill_per_s,
            decode_per_s = decode_per_s,
            reason = reason
        );
    }

    /// It ends without one.
    pub(crate) fn failed(&self, usage: Usage, failure: Failure) {
        let log = self;
        let what = What::Fails(failure);
        let reason = tracing::field::display(failure);
        tell!(warn, log, "failed", usage, what, reason = reason);
    }

    /// Its client is gone.
    pub(crate) fn left(&self, usage: Usage) {
        let log = self;
        tell!(info, log, "cancelled", usage, What::Leaves);
    }
}

/// Tokens a second; 0 in no time.
fn per_second(tokens: u32, us: u64) -> f64 {
    if us == 0 {
        return 0.0;
    }
    f64::from(tokens) * 1e6 / us as f64
}

/// What a line tells.
#[derive(Clone, Copy)]
enum What {
    Begins {
        queued_us: u64,
    },
    Computes {
        done: u32,
        per_s: f64,
    },
    Ends {
        prefill_per_s: f64,
        decode_per_s: f64,
        reason: &'static str,
    },
    Fails(Failure),
    Leaves,
}

/// A line, as in `req_1 chat: ctx 768..812 cached 768 new 44 | prefill 210 t/s | decode 35 t/s, 128 tokens | tools think | stop`.
struct Line<'a> {
    log: &'a RequestLog,
    usage: Usage,
    what: What,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Usage {
            prompt_tokens: prompt,
            cached_tokens: cached,
            completion_tokens: tokens,
            ..
        } = self.usage;
        let RequestLog { name, kind, .. } = self.log;
        let new = prompt.saturating_sub(cached);
        write!(f, "{name} {kind}: ctx {cached}..{prompt} ")?;
        match self.what {
            What::Begins { queued_us } => {
                write!(f, "cached {cached} new {new}")?;
                if queued_us >= 1_000_000 {
                    write!(f, " | queued {:.1} s", queued_us as f64 / 1e6)?;
                }
                write!(f, "{}", self.log.traits)
            }
            What::Computes { done, per_s } => {
                let left = prompt.saturating_sub(done);
                let percent = u64::from(done) * 100 / u64::from(prompt.max(1));
                write!(f, "at {done} ({percent} %) | prefill {} t/s", Rate(per_s))?;
                if per_s > 0.0 {
                    write!(f, ", {:.0} s left", f64::from(left) / per_s)?;
                }
                Ok(())
            }
            What::Ends {
                prefill_per_s,
                decode_per_s,
                reason,
            } => {
                write!(
                    f,
                    "cached {cached} new {new} | prefill {} t/s",
                    Rate(prefill_per_s)
                )?;
                if tokens > 0 {
                    write!(f, " | decode {} t/s, {tokens} tokens", Rate(decode_per_s))?;
                }
                write!(f, "{} | {reason}", self.log.traits)
            }
            What::Fails(failure) => {
                write!(
                    f,
                    "cached {cached} new {new} | {tokens} tokens | failed: {failure}"
                )
            }
            What::Leaves => {
                write!(
                    f,
                    "cached {cached} new {new} | {tokens} tokens | the client has gone"
                )
            }
        }
    }
}

/// Small rates with a decimal.
struct Rate(f64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = usize::from(self.0 < 10.0);
        write!(f, "{:.digits$}", self.0)
    }
}

impl fmt::Display for Traits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (self.tools, "tools"),
            (self.thinking, "think"),
            (self.form, "form"),
        ];
        let mut before = " | ";
        for (_, name) in names.into_iter().filter(|&(has, _)| has) {
            write!(f, "{before}{name}")?;
            before = " ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
