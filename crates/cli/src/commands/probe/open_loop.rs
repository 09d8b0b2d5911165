//! Requests at the times of a trace, whether earlier ones are done or not: what a server does under a load that does not
//! wait for it. Lengths and times are the trace's; the prompts are random, so that nothing is cached.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use super::answer::Answer;
use super::metrics::{Window, gaps_ms, longest, percentile};
use super::target::Target;
use crate::args::SloArgs;
use crate::plot::{self, Points, Scale, Titles};
use crate::statistics::LENGTHS;
use crate::trace::Request;

/// A request sent later than this after its time counts as late.
const LATE_MS: f64 = 20.0;

/// Part of the requests that may be late; with more of them, the load was not the trace's.
const MOST_LATE: f64 = 0.05;

/// A request of the trace and what became of it.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) prompt: u32,
    pub(super) due: Instant,
    pub(super) answer: Answer,
}

/// What a group of requests of similar length waited.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Wait {
    /// Longest prompt of the group; none for the last.
    pub(super) up_to: Option<u32>,
    pub(super) requests: usize,
    pub(super) ttft_p50_s: f64,
    pub(super) ttft_p90_s: f64,
    pub(super) ttft_p99_s: f64,
}

/// The whole run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Load {
    pub(super) requests: usize,
    pub(super) answered: usize,
    /// Had not ended when the run was given up.
    pub(super) unfinished: usize,
    /// Why requests failed, and how many did so.
    pub(super) failures: BTreeMap<String, usize>,
    pub(super) late: usize,
    pub(super) latest_ms: f64,
    pub(super) seconds: f64,
    pub(super) waits: Vec<Wait>,
    /// Over all gaps of all answers.
    pub(super) gap_p50_ms: f64,
    pub(super) gap_p99_ms: f64,
    /// Over answers, of each one's longest gap.
    pub(super) longest_gap_p50_ms: f64,
    pub(super) longest_gap_p99_ms: f64,
    pub(super) longest_gap_ms: f64,
    /// Answers whose first token and longest gap were both good, of all requests sent.
    pub(super) good: usize,
    pub(super) goodput_per_s: f64,
    pub(super) generated_tokens_per_s: f64,
    pub(super) prompt_tokens_per_s: f64,
}

/// Sends everything at its time and waits for the answers, at most `timeout` after the last request.
pub(super) fn run(
    target: &mut Target,
    requests: &[Request],
    timeout: Duration,
) -> Result<Vec<Sent>> {
    let first_us = requests.first().map_or(0, |request| request.arrival_us);
    // Some time to make the first prompts.
    let start = Instant::now() + Duration::from_millis(100);
    let mut running = Vec::new();
    for request in requests {
        let due = start + Duration::from_micros(request.arrival_us - first_us);
        let body = target.body(request.prompt.len(), request.answer);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        running.push((
            request.prompt.len(),
            due,
            target.endpoint.start(body, None)?,
        ));
    }
    let deadline = Instant::now() + timeout;
    let recordings: Vec<_> = running
        .into_iter()
        .map(|(prompt, due, running)| (prompt, due, running.finish(deadline)))
        .collect();
    let understood = recordings.iter().map(|(prompt, due, recording)| Sent {
        prompt: *prompt,
        due: *due,
        answer: Answer::of(recording),
    });
    Ok(understood.collect())
}

impl Load {
    pub(super) fn of(sent: &[Sent], slo: SloArgs) -> Self {
        let complete = |sent: &&Sent| sent.answer.failure.is_none() && !sent.answer.stopped;
        let answered: Vec<_> = sent.iter().filter(complete).collect();
        let mut failures = BTreeMap::new();
        for failure in sent.iter().filter_map(|sent| sent.answer.failure.clone()) {
            *failures.entry(failure).or_insert(0) += 1;
        }
        let late: Vec<_> = sent.iter().map(Sent::late_ms).collect();
        let gaps: Vec<_> = answered.iter().map(|sent| sent.gaps_ms()).collect();
        let stalls: Vec<_> = gaps.iter().map(|gaps| longest(gaps)).collect();
        let good = answered.iter().zip(&stalls).filter(|(sent, stall)| {
            let ttft_ms = sent.answer.ttft_s().map(|seconds| seconds * 1000.0);
            ttft_ms.is_some_and(|ms| ms <= f64::from(slo.slo_ttft_ms))
                && **stall <= f64::from(slo.slo_gap_ms)
        });
        let good = good.count();
        let start = sent.iter().map(|sent| sent.due).min();
        let end = sent.iter().map(|sent| sent.answer.ended).max();
        let seconds = start
            .zip(end)
            .map_or(0.0, |(start, end)| (end - start).as_secs_f64());
        let pooled = gaps.concat();
        let prompts: f64 = answered.iter().map(|sent| f64::from(sent.prompt)).sum();
        let generated: usize = answered.iter().map(|sent| sent.answer.tokens.len()).sum();
        Self {
            requests: sent.len(),
            answered: answered.len(),
            unfinished: sent.iter().filter(|sent| sent.answer.stopped).count(),
            failures,
            late: late.iter().filter(|late| **late > LATE_MS).count(),
            latest_ms: longest(&late),
            seconds,
            waits: waits(&answered),
            gap_p50_ms: percentile(&pooled, 50),
            gap_p99_ms: percentile(&pooled, 99),
            longest_gap_p50_ms: percentile(&stalls, 50),
            longest_gap_p99_ms: percentile(&stalls, 99),
            longest_gap_ms: longest(&stalls),
            good,
            goodput_per_s: good as f64 / seconds,
            generated_tokens_per_s: generated as f64 / seconds,
            prompt_tokens_per_s: prompts / seconds,
        }
    }

    /// Why the run says nothing about this load.
    pub(super) fn void(&self) -> Option<String> {
        if self.answered == 0 {
            return Some("no request was answered".to_owned());
        }
        (self.late as f64 > MOST_LATE * self.requests as f64).then(|| {
            format!(
                "{} of {} requests were sent late: the probe did not keep up",
                self.late, self.requests
            )
        })
    }

    pub(super) fn table(&self, slo: SloArgs) -> String {
        let mut text = format!(
            "{} requests in {:.1} s: {} answered, {} unfinished, {} failed; {} sent over {LATE_MS} ms late (latest {:.1} ms)\n\n\
             | prompt tokens | answered | first token p50 s | p90 s | p99 s |\n| --- | ---: | ---: | ---: | ---: |\n",
            self.requests,
            self.seconds,
            self.answered,
            self.unfinished,
            self.failures.values().sum::<usize>(),
            self.late,
            self.latest_ms
        );
        for wait in &self.waits {
            let name = wait
                .up_to
                .map_or("longer".to_owned(), |most| format!("up to {most}"));
            let _ = writeln!(
                text,
                "| {name} | {} | {:.2} | {:.2} | {:.2} |",
                wait.requests, wait.ttft_p50_s, wait.ttft_p90_s, wait.ttft_p99_s
            );
        }
        let _ = writeln!(
            text,
            "\nAll gaps: p50 {:.1}, p99 {:.1} ms. Longest gap of an answer: p50 {:.1}, p99 {:.1}, most {:.1} ms.\n\
             Good (first token within {} ms, no gap over {} ms): {} of {} requests, {:.2} a second.\n\
             Tokens a second: {:.1} of prompts, {:.1} generated.",
            self.gap_p50_ms,
            self.gap_p99_ms,
            self.longest_gap_p50_ms,
            self.longest_gap_p99_ms,
            self.longest_gap_ms,
            slo.slo_ttft_ms,
            slo.slo_gap_ms,
            self.good,
            self.requests,
            self.goodput_per_s,
            self.prompt_tokens_per_s,
            self.generated_tokens_per_s
        );
        for (failure, count) in &self.failures {
            let _ = writeln!(text, "{count} × {failure}");
        }
        text
    }
}

impl Sent {
    fn late_ms(&self) -> f64 {
        self.answer
            .sent
            .saturating_duration_since(self.due)
            .as_secs_f64()
            * 1000.0
    }

    fn gaps_ms(&self) -> Vec<f64> {
        let (start, end) = (self.answer.sent, self.answer.ended);
        gaps_ms(&self.answer.tokens, Window { start, end })
    }
}

/// Waiting times by prompt length; groups without an answer are left out.
fn waits(answered: &[&Sent]) -> Vec<Wait> {
    let group = |sent: &Sent| LENGTHS.partition_point(|most| *most < sent.prompt);
    let groups = LENGTHS.iter().enumerate().map(|(index, &most)| {
        let members = answered.iter().filter(|sent| group(sent) == index);
        let ttft_s: Vec<_> = members.filter_map(|sent| sent.answer.ttft_s()).collect();
        Wait {
            up_to: (most < u32::MAX).then_some(most),
            requests: ttft_s.len(),
            ttft_p50_s: percentile(&ttft_s, 50),
            ttft_p90_s: percentile(&ttft_s, 90),
            ttft_p99_s: percentile(&ttft_s, 99),
        }
    });
    groups.filter(|wait| wait.requests > 0).collect()
}

/// Waiting time against prompt length.
pub(super) fn figure(sent: &[Sent]) -> Result<String> {
    let points = sent
        .iter()
        .filter_map(|sent| Some((f64::from(sent.prompt), sent.answer.ttft_s()?)));
    let titles = Titles {
        heading: "waiting for the first token",
        x: "prompt, tokens",
        y: "first token, s",
    };
    let series = Points {
        name: "requests".to_owned(),
        points: points.collect(),
    };
    plot::scatter(titles, Scale::Log, Scale::Log, &[series])
}

#[cfg(test)]
mod tests;
