//! Rounds of the stall scenario as a table, as JSON and as a figure.

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::metrics::{Window, median};
use super::stall::{Measures, Role, Round};
use crate::plot::{self, Block, Lane, Span, Timeline};

/// A line of the table: the key of its median in JSON, its name, its value in a round.
type Row = (&'static str, &'static str, fn(&Measures) -> Option<f64>);

const ROWS: [Row; 17] = [
    ("calm_gap_ms", "calm token gap ms", |m| Some(m.calm_gap_ms)),
    ("longest_gap_ms", "longest gap ms", |m| {
        Some(m.longest_gap_ms)
    }),
    (
        "mildest_longest_gap_ms",
        "longest gap of the best-off answer ms",
        |m| m.longest_gap_by_victim_ms.iter().copied().reduce(f64::min),
    ),
    ("contended_gap_p50_ms", "contended gap p50 ms", |m| {
        Some(m.contended_gap_p50_ms)
    }),
    ("contended_gap_p99_ms", "contended gap p99 ms", |m| {
        Some(m.contended_gap_p99_ms)
    }),
    (
        "fewest_tokens",
        "tokens of the worst-off answer meanwhile",
        |m| m.tokens_by_victim.iter().min().map(|tokens| *tokens as f64),
    ),
    ("stall_ratio", "stall ratio", |m| Some(m.stall_ratio)),
    ("decode_retention", "decode retention", |m| {
        Some(m.decode_retention)
    }),
    ("newcomer_steps", "newcomer: steps to first token", |m| {
        Some(m.newcomer_steps as f64)
    }),
    ("newcomer_first_byte_ms", "newcomer: first byte ms", |m| {
        Some(m.newcomer_first_byte_ms)
    }),
    ("newcomer_ttft_ms", "newcomer: first token ms", |m| {
        Some(m.newcomer_ttft_ms)
    }),
    ("long_ttft_s", "long prompt: first token s", |m| {
        Some(m.long_ttft_s)
    }),
    ("alone_ttft_s", "long prompt alone: first token s", |m| {
        m.alone_ttft_s
    }),
    ("long_slowdown", "long prompt: slowdown", |m| {
        m.long_slowdown
    }),
    (
        "contended_tokens_per_s",
        "tokens/s until the long prompt's first token",
        |m| Some(m.contended_tokens_per_s),
    ),
    ("work_tokens_per_s", "tokens/s over the whole work", |m| {
        Some(m.work_tokens_per_s)
    }),
    ("work_s", "whole work s", |m| Some(m.work_s)),
];

/// One column per round and one of medians.
pub(super) fn table(rounds: &[Measures]) -> String {
    let mut text = "| measure |".to_owned();
    for number in 1..=rounds.len() {
        let _ = write!(text, " round {number} |");
    }
    text += " median |\n| --- |";
    text += &" ---: |".repeat(rounds.len() + 1);
    text.push('\n');
    for (_, name, value) in ROWS {
        let values: Vec<f64> = rounds.iter().filter_map(value).collect();
        if values.is_empty() {
            continue;
        }
        let _ = write!(text, "| {name} |");
        for value in values.iter().chain([&median(&values)]) {
            let _ = write!(text, " {value:.2} |");
        }
        text.push('\n');
    }
    text
}

/// All rounds and the medians of what the table shows.
pub(super) fn json(rounds: &[Measures]) -> Value {
    let medians: Map<String, Value> = ROWS
        .iter()
        .filter_map(|(key, _, value)| {
            let values: Vec<f64> = rounds.iter().filter_map(value).collect();
            (!values.is_empty()).then(|| ((*key).to_owned(), median(&values).into()))
        })
        .collect();
    json!({"rounds": rounds, "median": medians})
}

/// What the reader of gaps must know, if the server gathers tokens into events.
pub(super) fn coalesced(round: &Round) -> Option<String> {
    let complete = round.answers().filter(|(_, answer)| !answer.stopped);
    let (mut tokens, mut events) = (0, 0);
    for (_, answer) in complete {
        tokens += answer.usage.map_or(0, |usage| usage.completion);
        events += answer.tokens.len() as u64;
    }
    (tokens * 2 > events * 3).then(|| {
        format!("the server counts {tokens} tokens in {events} events: gaps and counts are those of events")
    })
}

/// When every token came, with the longest contended gap of each answer.
pub(super) fn figure(heading: &str, round: &Round) -> Result<String> {
    let victims = round.victims.iter().map(|answer| answer.sent);
    let start = victims.min().unwrap_or(round.long.sent);
    let shown = round.answers().filter(|(role, _)| *role != Role::Alone);
    let lanes = shown.map(|(role, answer)| lane(role, answer, start, &round.long));
    plot::timeline(&Timeline {
        heading: heading.to_owned(),
        kinds: vec!["token".to_owned(), "waiting for the first token".to_owned()],
        lanes: lanes.collect(),
        marks: vec![(
            (round.long.sent - start).as_secs_f64(),
            "long prompt".to_owned(),
        )],
    })
}

fn lane(role: Role, answer: &Answer, start: Instant, long: &Answer) -> Lane {
    let second = |at: Instant| at.saturating_duration_since(start).as_secs_f64();
    let block = |from, to, kind, height| Block {
        start_s: second(from),
        end_s: second(to),
        kind,
        height,
    };
    let first = answer.first().unwrap_or(answer.ended);
    let mut blocks = vec![block(answer.sent, first, 1, 0.5)];
    blocks.extend(answer.tokens.iter().map(|at| block(*at, *at, 0, 1.0)));
    let window = Window {
        start: long.sent,
        end: long.first().unwrap_or(long.ended),
    };
    let spans = match role {
        Role::Victim(_) => widest(&answer.tokens, window),
        _ => None,
    };
    Lane {
        name: role.to_string(),
        blocks,
        bound: None,
        spans: spans
            .into_iter()
            .map(|(from, to)| Span {
                start_s: second(from),
                end_s: second(to),
                text: format!("{:.0} ms", (to - from).as_secs_f64() * 1000.0),
            })
            .collect(),
    }
}

/// The ends of the longest gap that touches the window.
fn widest(tokens: &[Instant], window: Window) -> Option<(Instant, Instant)> {
    let pairs = tokens.windows(2).map(|pair| (pair[0], pair[1]));
    pairs
        .filter(|(from, to)| *to >= window.start && *from <= window.end)
        .max_by_key(|(from, to)| *to - *from)
}

#[cfg(test)]
mod tests;
