//! Tenants that keep a server busy: does each get its share while all of them have work waiting?
//!
//! Every client sends its next request as soon as the last one is answered; the first tenant has many times as many
//! clients. Only the time in which every tenant has a request without a first token counts, since a tenant that asks for
//! less than its share is treated fairly with less.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use super::answer::Answer;
use super::client::{Endpoint, Line, Recording};
use super::metrics::{Window, jain, percentile};
use super::target::Target;
use crate::args::TenantArgs;
use crate::plot::{self, Points, Scale, Titles};

/// Client-side weights of a computed and of a generated token, as in VTC (Sheng et al., "Fairness in Serving Large
/// Language Models", 2024): what providers charge for them.
const PROMPT_WEIGHT: f64 = 1.0;
const GENERATED_WEIGHT: f64 = 2.0;

/// Parts of the run that are left out at its beginning and at its end.
const WARM_UP: f64 = 0.2;
const TAIL: f64 = 0.1;

/// How often the server is asked for its own account.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);

/// Part of a stretch of time in which all tenants must have waited for it to count.
const BACKLOGGED: f64 = 0.9;

/// Longest pause after a refusal.
const MOST_PAUSE: Duration = Duration::from_secs(1);

/// What was asked and answered.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) span: Window,
    /// Tokens of each prompt.
    pub(super) prompt: u32,
    /// By tenant.
    pub(super) answers: Vec<Vec<Answer>>,
    /// The server's account of each tenant's service in seconds, at several times; empty if it keeps none.
    pub(super) samples: Vec<(Instant, Vec<f64>)>,
}

/// What one tenant got.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Tenant {
    pub(super) name: String,
    /// Requests answered in the whole run.
    pub(super) answered: usize,
    /// Requests refused for lack of room.
    pub(super) refused: usize,
    pub(super) ttft_p50_s: f64,
    /// While all tenants were backlogged:
    pub(super) prompt_tokens: u64,
    pub(super) generated_tokens: u64,
    /// Tokens, a generated one counting twice.
    pub(super) weighted_tokens: f64,
    /// The server's own account.
    pub(super) service_s: Option<f64>,
}

/// The tenants side by side.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Shares {
    pub(super) tenants: Vec<Tenant>,
    /// How long all tenants were backlogged, and the measured part of the run.
    pub(super) backlogged_s: f64,
    pub(super) measured_s: f64,
    pub(super) jain_tokens: f64,
    pub(super) jain_service: Option<f64>,
    /// Largest difference between two tenants, as a part of the mean.
    pub(super) spread: f64,
}

pub(super) fn name(tenant: usize) -> String {
    format!("tenant-{tenant}")
}

/// Runs all clients for the time asked for.
pub(super) fn run(target: &mut Target, args: &TenantArgs) -> Result<Run> {
    let tenants = args.tenants.unwrap_or(3) as usize;
    let endpoint = target.endpoint.clone();
    let target = Mutex::new(target);
    let clients: Vec<_> = (0..tenants)
        .flat_map(|tenant| {
            let factor = if tenant == 0 { args.hog } else { 1 };
            (0..args.clients * factor).map(move |_| (tenant, Line::new()))
        })
        .collect();
    let start = Instant::now();
    let end = start + Duration::from_secs(args.seconds);
    let (recordings, samples) = thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter()
            .map(|(tenant, line)| {
                let (target, endpoint) = (&target, &endpoint);
                scope.spawn(move || client(target, endpoint, line, *tenant, args))
            })
            .collect();
        let samples = sample(&endpoint, tenants, end);
        for (_, line) in &clients {
            line.stop();
        }
        let recordings: Vec<Vec<Recording>> = threads
            .into_iter()
            .map(|thread| thread.join().expect("a client does not panic"))
            .collect();
        (recordings, samples)
    });
    let mut answers = vec![Vec::new(); tenants];
    for ((tenant, _), recordings) in clients.iter().zip(&recordings) {
        answers[*tenant].extend(recordings.iter().map(Answer::of));
    }
    let seconds = args.seconds as f64;
    Ok(Run {
        span: Window {
            start: start + Duration::from_secs_f64(seconds * WARM_UP),
            end: start + Duration::from_secs_f64(seconds * (1.0 - TAIL)),
        },
        prompt: args.prompt,
        answers,
        samples,
    })
}

/// One request after the other until the line is ended.
fn client(
    target: &Mutex<&mut Target>,
    endpoint: &Endpoint,
    line: &Line,
    tenant: usize,
    args: &TenantArgs,
) -> Vec<Recording> {
    let (mut recordings, name) = (Vec::new(), name(tenant));
    while !line.is_stopped() {
        let body = target
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .body(args.prompt, args.answer);
        let recording = endpoint.record(line, &body, Some(&name));
        if recording.status != Some(200) && !line.is_stopped() {
            let asked = recording.retry_after_s.map(Duration::from_secs);
            thread::sleep(asked.unwrap_or(MOST_PAUSE).min(MOST_PAUSE));
        }
        recordings.push(recording);
    }
    recordings
}

/// Waits until `end`; meanwhile keeps what the server says of its tenants, if it says anything.
fn sample(endpoint: &Endpoint, tenants: usize, end: Instant) -> Vec<(Instant, Vec<f64>)> {
    let (line, mut samples) = (Line::new(), Vec::new());
    let mut tells = true;
    while Instant::now() < end {
        if tells {
            match endpoint.get(&line, "/scheduler") {
                Ok(state) => samples.push((Instant::now(), services(&state, tenants))),
                Err(_) => tells = false,
            }
        }
        thread::sleep(SAMPLE_EVERY.min(end.saturating_duration_since(Instant::now())));
    }
    samples
}

/// Service of each of our tenants in seconds; one that the server does not know has had none.
fn services(state: &Value, tenants: usize) -> Vec<f64> {
    let listed = state["tenants"].as_array().map_or(&[][..], Vec::as_slice);
    let service = |tenant: usize| {
        let name = name(tenant);
        let found = listed.iter().find(|entry| entry["name"] == name.as_str());
        found
            .and_then(|entry| entry["service_us"].as_f64())
            .unwrap_or(0.0)
            / 1e6
    };
    (0..tenants).map(service).collect()
}

impl Run {
    /// What each tenant got while all were backlogged, or why that says nothing.
    pub(super) fn shares(&self) -> Result<Shares, String> {
        let backlog = self.backlog();
        let backlogged_s: f64 = backlog.iter().map(Window::seconds).sum();
        let measured_s = self.span.seconds();
        for (tenant, answers) in self.answers.iter().enumerate() {
            let broken = answers
                .iter()
                .find(|answer| answer.failure.is_some() && !refused(answer));
            if let Some(failure) = broken.and_then(|answer| answer.failure.as_ref()) {
                return Err(format!("a request of {} failed: {failure}", name(tenant)));
            }
        }
        if backlogged_s < measured_s / 2.0 {
            let part = 100.0 * backlogged_s / measured_s;
            return Err(format!(
                "all tenants were backlogged in only {part:.0} % of the time (more --clients)"
            ));
        }
        let service = self.service(&backlog);
        let tenants: Vec<_> = (0..self.answers.len())
            .map(|tenant| Tenant {
                service_s: service.as_ref().map(|service| service[tenant]),
                ..self.tenant(tenant, &backlog)
            })
            .collect();
        let tokens: Vec<_> = tenants
            .iter()
            .map(|tenant| tenant.weighted_tokens)
            .collect();
        let shares = service.as_ref().unwrap_or(&tokens);
        let most = shares.iter().copied().fold(0.0, f64::max);
        let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
        Ok(Shares {
            backlogged_s,
            measured_s,
            jain_tokens: jain(&tokens),
            jain_service: service.as_deref().map(jain),
            spread: (most - least) * shares.len() as f64 / shares.iter().sum::<f64>(),
            tenants,
        })
    }

    /// The parts of the measured time in which every tenant had a request without a first token.
    fn backlog(&self) -> Vec<Window> {
        let mut common = vec![self.span];
        for answers in &self.answers {
            let waits = answers
                .iter()
                .filter(|answer| !refused(answer))
                .map(|answer| Window {
                    start: answer.sent,
                    end: answer.first().unwrap_or(answer.ended),
                });
            common = intersection(&common, &union(waits.collect()));
        }
        common
    }

    fn tenant(&self, tenant: usize, backlog: &[Window]) -> Tenant {
        let answers = &self.answers[tenant];
        let counts = |at: &Instant| backlog.iter().any(|window| window.holds(*at));
        let answered = answers
            .iter()
            .filter(|answer| answer.failure.is_none() && !answer.stopped);
        let begun = answers
            .iter()
            .filter(|answer| answer.first().is_some_and(|first| counts(&first)));
        let prompt_tokens = begun.clone().count() as u64 * u64::from(self.prompt);
        let generated_tokens = answers
            .iter()
            .flat_map(|answer| &answer.tokens)
            .filter(|at| counts(at))
            .count() as u64;
        let waits: Vec<f64> = begun.filter_map(Answer::ttft_s).collect();
        Tenant {
            name: name(tenant),
            answered: answered.count(),
            refused: answers.iter().filter(|answer| refused(answer)).count(),
            ttft_p50_s: percentile(&waits, 50),
            prompt_tokens,
            generated_tokens,
            weighted_tokens: PROMPT_WEIGHT * prompt_tokens as f64
                + GENERATED_WEIGHT * generated_tokens as f64,
            service_s: None,
        }
    }

    /// The server's account, summed over the stretches between samples in which all tenants were backlogged.
    fn service(&self, backlog: &[Window]) -> Option<Vec<f64>> {
        let mut sums = vec![0.0; self.answers.len()];
        for pair in self.samples.windows(2) {
            let stretch = Window {
                start: pair[0].0,
                end: pair[1].0,
            };
            let common = intersection(&[stretch], backlog);
            let waited: f64 = common.iter().map(Window::seconds).sum();
            if waited >= BACKLOGGED * stretch.seconds() {
                for (sum, (before, after)) in sums.iter_mut().zip(pair[0].1.iter().zip(&pair[1].1))
                {
                    *sum += after - before;
                }
            }
        }
        sums.iter().any(|sum| *sum > 0.0).then_some(sums)
    }
}

impl Shares {
    pub(super) fn table(&self) -> String {
        let mut text = "| tenant | answered | refused | first token p50 s | prompt tokens | generated tokens | weighted tokens | \
                        service s |\n| --- |"
            .to_owned();
        text += &" ---: |".repeat(7);
        for tenant in &self.tenants {
            let service = tenant
                .service_s
                .map_or("-".to_owned(), |service| format!("{service:.2}"));
            let _ = write!(
                text,
                "\n| {} | {} | {} | {:.2} | {} | {} | {:.0} | {service} |",
                tenant.name,
                tenant.answered,
                tenant.refused,
                tenant.ttft_p50_s,
                tenant.prompt_tokens,
                tenant.generated_tokens,
                tenant.weighted_tokens,
            );
        }
        let _ = write!(
            text,
            "\n\nAll tenants had requests waiting in {:.1} of {:.1} s. Jain index of weighted tokens {:.4}",
            self.backlogged_s, self.measured_s, self.jain_tokens
        );
        if let Some(jain) = self.jain_service {
            let _ = write!(text, ", of the server's own service time {jain:.4}");
        }
        let _ = writeln!(
            text,
            ". Largest difference {:.1} % of the mean.",
            100.0 * self.spread
        );
        text
    }
}

/// Weighted tokens of each tenant over time.
pub(super) fn figure(run: &Run) -> Result<String> {
    let sent = run.answers.iter().flatten().map(|answer| answer.sent).min();
    let lines = run.answers.iter().enumerate().map(|(tenant, answers)| {
        let prompts = answers
            .iter()
            .filter_map(Answer::first)
            .map(|at| (at, PROMPT_WEIGHT * f64::from(run.prompt)));
        let tokens = answers
            .iter()
            .flat_map(|answer| &answer.tokens)
            .map(|at| (*at, GENERATED_WEIGHT));
        let mut events: Vec<_> = prompts.chain(tokens).collect();
        events.sort_by_key(|(at, _)| *at);
        let mut sum = 0.0;
        let point = |(at, weight): (Instant, f64)| {
            sum += weight;
            ((at - sent.unwrap_or(at)).as_secs_f64(), sum)
        };
        Points {
            name: name(tenant),
            points: events.into_iter().map(point).collect(),
        }
    });
    let titles = Titles {
        heading: "what each tenant has had",
        x: "time, s",
        y: "weighted tokens",
    };
    plot::scatter(
        titles,
        Scale::Linear,
        Scale::Linear,
        &lines.collect::<Vec<_>>(),
    )
}

/// Turned away for lack of room: the client's own pause follows, nothing is wrong.
fn refused(answer: &Answer) -> bool {
    matches!(answer.status, Some(429 | 503))
}

/// The same time without overlaps, in order.
fn union(mut windows: Vec<Window>) -> Vec<Window> {
    windows.sort_by_key(|window| window.start);
    let mut merged: Vec<Window> = Vec::new();
    for window in windows {
        match merged.last_mut() {
            Some(last) if window.start <= last.end => last.end = last.end.max(window.end),
            _ => merged.push(window),
        }
    }
    merged
}

/// The time that is in both; each in order and without overlaps.
fn intersection(left: &[Window], right: &[Window]) -> Vec<Window> {
    let pairs = left.iter().flat_map(|a| right.iter().map(move |b| (a, b)));
    pairs
        .map(|(a, b)| Window {
            start: a.start.max(b.start),
            end: a.end.min(b.end),
        })
        .filter(|window| window.start < window.end)
        .collect()
}

#[cfg(test)]
mod tests;
