//! The stall scenario: answers are being generated, a long prompt arrives, and half a second later a short one.
//!
//! Whether the round shows anything depends on what overlapped. A round in which the answers ended before the long
//! prompt's first token, or the newcomer came after it, measured nothing and is void.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use thiserror::Error;

use super::answer::Answer;
use super::client::Running;
use super::metrics::{Window, gaps_ms, longest, mean, median, percentile, stall_ratio};
use super::prompt::join;
use super::target::Target;
use crate::args::StallArgs;

/// Tokens that each answer gets before the long prompt arrives: what calm is.
const CALM_TOKENS: usize = 40;

/// How long after the long prompt the newcomer follows.
const NEWCOMER_AFTER: Duration = Duration::from_millis(500);

/// Answer tokens of the long prompt and of the newcomer: their first ones are what counts.
const ANSWER: u32 = 4;

/// Events that a stream may carry beyond those with text (an opening one, comments): waited for on top.
const SLACK: usize = 4;

/// The answers of one round.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) alone: Option<Answer>,
    pub(super) victims: Vec<Answer>,
    pub(super) long: Answer,
    pub(super) short: Answer,
}

/// Why a round measured nothing.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum Void {
    #[error("{0} failed: {1}")]
    Failed(Role, String),
    #[error("{0} got no token in time")]
    NoToken(Role),
    #[error("{0} got only {1} tokens before the long prompt came, too few to say what calm is")]
    NotCalm(Role, usize),
    #[error(
        "{0} ended before the long prompt's first token: nothing overlapped (more --victim-tokens or a free place?)"
    )]
    Ended(Role),
    #[error("the newcomer was sent after the long prompt's first token (a longer --long)")]
    NewcomerLate,
    #[error("{cached} of {0}'s {prompt} prompt tokens came from a cache", cached = .1, prompt = .2)]
    Cached(Role, u64, u64),
    #[error(
        "the server knew {0} tokens of the {1} where the long prompt was to resume (more memory for its cache?)"
    )]
    Forgotten(u64, u64),
}

/// Who sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Alone,
    Victim(usize),
    Long,
    Newcomer,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Alone => f.write_str("the long prompt alone"),
            Self::Victim(index) => write!(f, "running answer {}", index + 1),
            Self::Long => f.write_str("the long prompt"),
            Self::Newcomer => f.write_str("the newcomer"),
        }
    }
}

/// What a round showed. Contended gaps are those that touch the time from the long prompt's sending to its first token.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Measures {
    /// Median gap of the running answers before the long prompt came.
    pub(super) calm_gap_ms: f64,
    pub(super) longest_gap_ms: f64,
    /// The longest contended gap of each running answer.
    pub(super) longest_gap_by_victim_ms: Vec<f64>,
    pub(super) contended_gap_p50_ms: f64,
    pub(super) contended_gap_p99_ms: f64,
    /// Tokens that each running answer got from the long prompt's sending to its first token.
    pub(super) tokens_by_victim: Vec<usize>,
    /// Part of the contended time spent waiting beyond twice the calm median gap; of the worst-off answer.
    pub(super) stall_ratio: f64,
    /// Calm mean gap over contended mean gap; of the worst-off answer.
    pub(super) decode_retention: f64,
    /// From the newcomer's sending to the first byte of its answer's body.
    pub(super) newcomer_first_byte_ms: f64,
    pub(super) newcomer_ttft_ms: f64,
    /// Tokens that a running answer got while the newcomer waited for its first: the steps it took, where every step
    /// carries all answers.
    pub(super) newcomer_steps: usize,
    pub(super) long_ttft_s: f64,
    pub(super) alone_ttft_s: Option<f64>,
    pub(super) long_slowdown: Option<f64>,
    /// Prompt and generated tokens per second from the long prompt's sending to its first token.
    pub(super) contended_tokens_per_s: f64,
    /// The same until every running answer has its --work tokens and both prompts are answered: equal work for all.
    pub(super) work_tokens_per_s: f64,
    /// How long that took.
    pub(super) work_s: f64,
}

/// One round on a server where nothing else runs.
pub(super) fn round(target: &mut Target, args: &StallArgs, timeout: Duration) -> Result<Round> {
    let deadline = Instant::now() + timeout;
    let alone = if args.alone {
        let answer = target.ask(args.long, ANSWER, None)?.finish(deadline);
        Some(Answer::of(&answer))
    } else {
        None
    };
    let beginning = (args.resume > 0).then(|| target.prompt(args.resume));
    if let Some(beginning) = &beginning {
        target
            .ask_cached(beginning.clone(), ANSWER)?
            .finish(deadline);
    }
    let mut victims = Vec::new();
    for _ in 0..args.victims {
        victims.push(target.ask(32, args.victim_tokens, None)?);
    }
    for victim in &victims {
        victim.wait_for(CALM_TOKENS + SLACK, deadline);
    }
    let long = match &beginning {
        Some(beginning) => {
            let whole = join(beginning, target.prompt(args.long));
            target.ask_cached(whole, ANSWER)?
        }
        None => target.ask(args.long, ANSWER, None)?,
    };
    let before: Vec<_> = victims.iter().map(Running::events).collect();
    std::thread::sleep(NEWCOMER_AFTER);
    let short = target.ask(args.short, ANSWER, None)?;
    let long = long.finish(deadline);
    let short = short.finish(deadline);
    for (victim, before) in victims.iter().zip(before) {
        // One more at least: only a token after the long prompt's first shows that the answer outlasted it.
        let worked = before + args.work as usize + SLACK;
        victim.wait_for(worked.max(victim.events() + 1), deadline);
    }
    let victims: Vec<_> = victims.into_iter().map(Running::stop).collect();
    Ok(Round {
        alone,
        victims: victims.iter().map(Answer::of).collect(),
        long: Answer::of(&long),
        short: Answer::of(&short),
    })
}

impl Round {
    /// Every request with its part in the round.
    pub(super) fn answers(&self) -> impl Iterator<Item = (Role, &Answer)> {
        let victims = self.victims.iter().enumerate();
        let alone = self.alone.iter().map(|answer| (Role::Alone, answer));
        alone
            .chain(victims.map(|(index, answer)| (Role::Victim(index), answer)))
            .chain([(Role::Long, &self.long), (Role::Newcomer, &self.short)])
    }

    /// The measures, if what had to overlap did.
    pub(super) fn measures(&self, args: &StallArgs) -> Result<Measures, Void> {
        let window = self.contended(args)?;
        let calm = |victim: &Answer| {
            let (start, end) = (victim.sent, self.long.sent);
            gaps_ms(&before(victim, end), Window { start, end })
        };
        let calm_gaps: Vec<_> = self.victims.iter().map(calm).collect();
        let gaps: Vec<_> = self
            .victims
            .iter()
            .map(|victim| gaps_ms(&victim.tokens, window))
            .collect();
        let pooled = gaps.concat();
        let worst = |value: &dyn Fn(&[f64], &[f64]) -> f64, pick: fn(f64, f64) -> f64| {
            let each = gaps
                .iter()
                .zip(&calm_gaps)
                .map(|(gaps, calm)| value(gaps, calm));
            each.reduce(pick).unwrap_or(0.0)
        };
        let work = self.work(args);
        let (long_ttft_s, newcomer_ttft_s) = (seconds(&self.long), seconds(&self.short));
        let alone_ttft_s = self.alone.as_ref().map(seconds);
        let waited = Window {
            start: self.short.sent,
            end: self.short.first().unwrap_or(self.short.sent),
        };
        Ok(Measures {
            calm_gap_ms: median(&calm_gaps.concat()),
            longest_gap_ms: longest(&pooled),
            longest_gap_by_victim_ms: gaps.iter().map(|gaps| longest(gaps)).collect(),
            contended_gap_p50_ms: percentile(&pooled, 50),
            contended_gap_p99_ms: percentile(&pooled, 99),
            tokens_by_victim: self
                .victims
                .iter()
                .map(|victim| within(victim, window))
                .collect(),
            stall_ratio: worst(&|gaps, calm| stall_ratio(gaps, median(calm)), f64::max),
            decode_retention: worst(&|gaps, calm| mean(calm) / mean(gaps), f64::min),
            newcomer_first_byte_ms: self
                .short
                .first_byte
                .map_or(f64::NAN, |at| (at - self.short.sent).as_secs_f64() * 1000.0),
            newcomer_ttft_ms: newcomer_ttft_s * 1000.0,
            newcomer_steps: self
                .victims
                .iter()
                .map(|victim| within(victim, waited))
                .max()
                .unwrap_or(0),
            long_ttft_s,
            alone_ttft_s,
            long_slowdown: alone_ttft_s.map(|alone| long_ttft_s / alone),
            contended_tokens_per_s: self.rate(window, args),
            work_tokens_per_s: self.rate(work, args),
            work_s: work.seconds(),
        })
    }

    /// From the long prompt's sending to its first token, when everything that had to happen by then did.
    fn contended(&self, args: &StallArgs) -> Result<Window, Void> {
        for (role, answer) in self.answers() {
            if let Some(failure) = &answer.failure {
                return Err(Void::Failed(role, failure.clone()));
            }
        }
        for (index, victim) in self.victims.iter().enumerate() {
            let calm = before(victim, self.long.sent).len();
            if calm < CALM_TOKENS / 2 {
                return Err(Void::NotCalm(Role::Victim(index), calm));
            }
        }
        for (role, answer) in self.answers() {
            if answer.tokens.is_empty() {
                return Err(Void::NoToken(role));
            }
        }
        let window = Window {
            start: self.long.sent,
            end: self.long.tokens[0],
        };
        for (index, victim) in self.victims.iter().enumerate() {
            if victim.last() <= Some(window.end) {
                return Err(Void::Ended(Role::Victim(index)));
            }
        }
        if self.short.sent >= window.end {
            return Err(Void::NewcomerLate);
        }
        let prompts = [(Role::Long, &self.long), (Role::Newcomer, &self.short)];
        let alone = self.alone.iter().map(|answer| (Role::Alone, answer));
        for (role, answer) in prompts.into_iter().chain(alone) {
            let Some(usage) = answer.usage else {
                continue;
            };
            let known = if role == Role::Long {
                u64::from(args.resume)
            } else {
                0
            };
            // Caches know whole blocks.
            if usage.cached * 10 < known * 9 {
                return Err(Void::Forgotten(usage.cached, known));
            }
            if usage.cached.saturating_sub(known) * 10 > usage.prompt.saturating_sub(known) {
                return Err(Void::Cached(role, usage.cached, usage.prompt));
            }
        }
        Ok(window)
    }

    /// From the long prompt's sending until both prompts are answered and each running answer has its `work` tokens, or
    /// ended.
    fn work(&self, args: &StallArgs) -> Window {
        let start = self.long.sent;
        let worked = |victim: &Answer| {
            let mut after = victim.tokens.iter().filter(|at| **at > start);
            after
                .nth(args.work.saturating_sub(1) as usize)
                .copied()
                .or(victim.last())
        };
        let ends = self.victims.iter().filter_map(worked);
        let prompts = [self.long.last(), self.short.last()].into_iter().flatten();
        Window {
            start,
            end: ends.chain(prompts).max().unwrap_or(start),
        }
    }

    /// Tokens per second in a window that begins with the long prompt: those generated in it, and the prompts whose first
    /// token came in it.
    fn rate(&self, window: Window, args: &StallArgs) -> f64 {
        let answers = self.victims.iter().chain([&self.long, &self.short]);
        let generated: usize = answers.map(|answer| within(answer, window)).sum();
        let prompts = [(&self.long, args.long), (&self.short, args.short)];
        let computed: u64 = prompts
            .iter()
            .filter(|(answer, _)| answer.first().is_some_and(|first| window.holds(first)))
            .map(|(answer, asked)| {
                answer.usage.map_or(u64::from(*asked), |usage| {
                    usage.prompt - usage.cached.min(usage.prompt)
                })
            })
            .sum();
        (generated as f64 + computed as f64) / window.seconds()
    }
}

fn before(answer: &Answer, end: Instant) -> Vec<Instant> {
    let tokens = answer.tokens.iter().copied();
    tokens.take_while(|at| *at < end).collect()
}

fn within(answer: &Answer, window: Window) -> usize {
    answer.tokens.iter().filter(|at| window.holds(**at)).count()
}

fn seconds(answer: &Answer) -> f64 {
    answer.ttft_s().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests;
