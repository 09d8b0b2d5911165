//! The figures of a simulation: steps around the longest gap, all gaps, first tokens.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::world::Run;
use crate::plot::{self, Block, Lane, Points, Scale, Span, Timeline, Titles, Values};

/// Time on both sides of the longest gap's start that the timeline shows, µs.
const WINDOW_US: (u64, u64) = (500_000, 2_500_000);

/// Most dots of one policy.
const DOTS: usize = 1500;

/// Writes `steps.svg`, `gaps.svg` and `ttft.svg` into a folder.
pub(super) fn write(folder: &Path, runs: &[(String, Run)], bound_us: u64) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (name, svg) in [
        ("steps.svg", plot::timeline(&steps(runs, bound_us))?),
        ("gaps.svg", gaps(runs)?),
        ("ttft.svg", ttft(runs)?),
    ] {
        let path = folder.join(name);
        fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The steps of all runs while the worst of them had its longest gap. A block's height is its step's time; the dashed line
/// is the bound on gaps.
fn steps(runs: &[(String, Run)], bound_us: u64) -> Timeline {
    let worst = runs
        .iter()
        .max_by_key(|(_, run)| run.longest_gap.1 - run.longest_gap.0);
    let start_us = worst.map_or(0, |(_, run)| run.longest_gap.0);
    let window = start_us.saturating_sub(WINDOW_US.0)..start_us.saturating_add(WINDOW_US.1);
    let full_us = 2 * bound_us.max(1);
    let lane = |(name, run): &(String, Run)| {
        let first = run
            .steps
            .partition_point(|step| step.start_us + step.elapsed_us <= window.start);
        let shown = run.steps[first..]
            .iter()
            .take_while(|step| step.start_us < window.end);
        let blocks = shown.map(|step| Block {
            start_s: seconds(step.start_us.max(window.start)),
            end_s: seconds((step.start_us + step.elapsed_us).min(window.end)),
            kind: match (step.rows, step.prefill) {
                (_, 0) => 0,
                (0, _) => 2,
                _ => 1,
            },
            height: step.elapsed_us as f64 / full_us as f64,
        });
        let (from, to) = run.longest_gap;
        let visible = from >= window.start && from < window.end && to > from;
        let span = visible.then(|| Span {
            start_s: seconds(from),
            end_s: seconds(to.min(window.end)),
            text: format!("longest gap {:.1} ms", (to - from) as f64 / 1000.0),
        });
        Lane {
            name: name.clone(),
            blocks: blocks.collect(),
            bound: Some(bound_us as f64 / full_us as f64),
            spans: span.into_iter().collect(),
        }
    };
    Timeline {
        heading: format!(
            "Steps around the longest gap (height: step time, dashed: {} ms)",
            bound_us / 1000
        ),
        kinds: ["answers", "answers and prompts", "prompts"]
            .map(str::to_owned)
            .into(),
        lanes: runs.iter().map(lane).collect(),
        marks: Vec::new(),
    }
}

fn gaps(runs: &[(String, Run)]) -> Result<String> {
    let titles = Titles {
        heading: "Longest gap of each request",
        x: "longest time between two tokens, ms",
        y: "part of the requests",
    };
    let series: Vec<Values> = runs
        .iter()
        .map(|(name, run)| Values {
            name: name.clone(),
            values: run
                .requests
                .iter()
                .filter(|request| request.tokens > 1)
                .map(|request| request.max_gap_us as f64 / 1000.0)
                .collect(),
        })
        .collect();
    plot::cdf(titles, Scale::Log, &series)
}

fn ttft(runs: &[(String, Run)]) -> Result<String> {
    let titles = Titles {
        heading: "Time to first token",
        x: "prompt, tokens",
        y: "time to first token, s",
    };
    let series: Vec<Points> = runs
        .iter()
        .map(|(name, run)| {
            let stride = run.requests.len().div_ceil(DOTS).max(1);
            let answered = run.requests.iter().step_by(stride);
            let point = |prompt: u32, ttft_us: u64| (f64::from(prompt), seconds(ttft_us));
            Points {
                name: name.clone(),
                points: answered
                    .filter_map(|request| Some(point(request.prompt, request.ttft_us?)))
                    .collect(),
            }
        })
        .collect();
    plot::scatter(titles, Scale::Log, Scale::Log, &series)
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}
