//! What a run amounts to.
//!
//! Max gap of a request: its longest time between two tokens; one number per request, since pooled percentiles hide a stall
//! that is rarer than they look. Goodput: the part of the requests whose first token and whose longest gap both kept their
//! bound. Percentiles are of nearest rank: the smallest value that at least so many values do not exceed.

use serde::Serialize;

use super::reuse::Reuse;
use super::world::{Run, Served};
use crate::statistics::{LENGTHS, percentile};

/// The bounds of a request that is served well.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slo {
    pub(crate) ttft_us: u64,
    pub(crate) gap_us: u64,
}

/// The figures of one run. Times are `None` where nothing was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) policy: String,
    pub(crate) requests: usize,
    /// Requests whose first token never came.
    pub(crate) unanswered: usize,
    pub(crate) max_gap_ms: Option<f64>,
    pub(crate) gap_p99_ms: Option<f64>,
    pub(crate) request_max_gap_p50_ms: Option<f64>,
    pub(crate) request_max_gap_p99_ms: Option<f64>,
    pub(crate) ttft: Ttft,
    /// By prompt length: at most 1,024, 4,096, 16,384 tokens, and more.
    pub(crate) ttft_by_length: [Ttft; 4],
    pub(crate) goodput_percent: f64,
    pub(crate) tokens_per_s: f64,
    pub(crate) end_s: f64,
    pub(crate) steps: usize,
    /// Prompt tokens that were taken over, where prompts may.
    pub(crate) reuse: Option<Reused>,
}

/// Prompt tokens of all requests together that were not computed, and that need not have been: see [`super::reuse`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Reused {
    pub(crate) prompt_tokens: u64,
    pub(crate) cached_tokens: u64,
    pub(crate) unlimited_tokens: u64,
    pub(crate) lru_tokens: u64,
}

impl Reused {
    pub(crate) fn new(run: &Run, bounds: &Reuse) -> Self {
        let all = |tokens: fn(&Served) -> u32| {
            let tokens = run
                .requests
                .iter()
                .map(|request| u64::from(tokens(request)));
            tokens.sum()
        };
        Self {
            prompt_tokens: all(|request| request.prompt),
            cached_tokens: all(|request| request.cached.unwrap_or(0)),
            unlimited_tokens: bounds.unlimited,
            lru_tokens: bounds.least_recently_used,
        }
    }

    /// For people.
    pub(crate) fn line(&self, policy: &str) -> String {
        let percent = |tokens: u64| 100.0 * tokens as f64 / self.prompt_tokens.max(1) as f64;
        format!(
            "{policy}: {:.2} % of {} prompt tokens were taken over from earlier prompts; one after the other, {:.2} % could be with \
             unlimited memory, and {:.2} % with this memory and the least recently used dropped first\n",
            percent(self.cached_tokens),
            self.prompt_tokens,
            percent(self.unlimited_tokens),
            percent(self.lru_tokens),
        )
    }
}

/// Time to first token of some requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Ttft {
    pub(crate) requests: usize,
    pub(crate) p50_s: Option<f64>,
    pub(crate) p99_s: Option<f64>,
}

impl Summary {
    pub(crate) fn new(policy: &str, run: &Run, slo: Slo) -> Self {
        let gaps = sorted(run.gaps_us.iter().copied());
        let answers = || run.requests.iter().filter(|request| request.tokens > 1);
        let longest = sorted(answers().map(|request| request.max_gap_us));
        let good = run.requests.iter().filter(|request| {
            request
                .ttft_us
                .is_some_and(|ttft_us| ttft_us <= slo.ttft_us)
                && request.max_gap_us <= slo.gap_us
        });
        let tokens: f64 = run
            .requests
            .iter()
            .map(|request| f64::from(request.tokens))
            .sum();
        let end_s = run.end_us as f64 / 1e6;
        let mut from = 0;
        Self {
            policy: policy.to_owned(),
            requests: run.requests.len(),
            unanswered: run
                .requests
                .iter()
                .filter(|request| request.ttft_us.is_none())
                .count(),
            max_gap_ms: ms(gaps.last().copied()),
            gap_p99_ms: ms(percentile(&gaps, 99)),
            request_max_gap_p50_ms: ms(percentile(&longest, 50)),
            request_max_gap_p99_ms: ms(percentile(&longest, 99)),
            ttft: ttft(run, 0, u32::MAX),
            ttft_by_length: LENGTHS
                .map(|to| ttft(run, std::mem::replace(&mut from, to.saturating_add(1)), to)),
            goodput_percent: 100.0 * good.count() as f64 / run.requests.len().max(1) as f64,
            tokens_per_s: if end_s > 0.0 { tokens / end_s } else { 0.0 },
            end_s,
            steps: run.steps.len(),
            reuse: None,
        }
    }
}

/// Of the prompts of `from` to `to` tokens.
fn ttft(run: &Run, from: u32, to: u32) -> Ttft {
    let class = run
        .requests
        .iter()
        .filter(|request| (from..=to).contains(&request.prompt));
    let times = sorted(class.filter_map(|request| request.ttft_us));
    let seconds = |percent| percentile(&times, percent).map(|us| us as f64 / 1e6);
    Ttft {
        requests: times.len(),
        p50_s: seconds(50),
        p99_s: seconds(99),
    }
}

fn sorted(values: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values
}

fn ms(us: Option<u64>) -> Option<f64> {
    us.map(|us| us as f64 / 1000.0)
}

/// The table of several runs, one line each.
pub(crate) fn table(summaries: &[Summary]) -> String {
    let width = summaries
        .iter()
        .map(|summary| summary.policy.len())
        .max()
        .unwrap_or(0)
        .max(6);
    let mut text = format!(
        "{:width$} | {:^19} | {:^15} | {:^67} | {:>6} {:>8} {:>8}\n\
         {:width$} | {:>9} {:>9} | {:>7} {:>7} | {:^13} {:^13} {:^13} {:^13} {:^11} | {:>6} {:>8} {:>8}\n",
        "",
        "gap, ms",
        "max gap/request",
        "TTFT p50/p99, s",
        "good",
        "tokens",
        "end",
        "policy",
        "max",
        "p99",
        "p50",
        "p99",
        "all",
        "<=1k",
        "<=4k",
        "<=16k",
        "more",
        "%",
        "per s",
        "s",
    );
    for summary in summaries {
        let [a, b, c, d] = summary.ttft_by_length.map(both);
        text += &format!(
            "{:width$} | {:>9} {:>9} | {:>7} {:>7} | {:>13} {:>13} {:>13} {:>13} {:>11} | {:>6.1} {:>8.1} {:>8.1}\n",
            summary.policy,
            shown(summary.max_gap_ms),
            shown(summary.gap_p99_ms),
            shown(summary.request_max_gap_p50_ms),
            shown(summary.request_max_gap_p99_ms),
            both(summary.ttft),
            a,
            b,
            c,
            d,
            summary.goodput_percent,
            summary.tokens_per_s,
            summary.end_s,
        );
    }
    text
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

fn both(ttft: Ttft) -> String {
    match (ttft.p50_s, ttft.p99_s) {
        (Some(p50), Some(p99)) => format!("{p50:.2}/{p99:.2}"),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests;
