//! What has happened in the last minutes, put together from a server's moments. Times are µs of its engine's clock.

use std::collections::{BTreeMap, VecDeque};

use serde::Deserialize;

/// What is remembered.
const HORIZON_US: u64 = 120_000_000;

/// Over which time rates are measured.
const RATE_US: u64 = 3_000_000;

/// A step that took longer than this, in thousandths of what was expected, was disturbed by something outside.
const DISTURBED_PERMILLE: u64 = 1500;

/// An event of `/timeline/events`.
#[derive(Debug, Deserialize)]
pub(super) struct Moments {
    pub(super) moments: Vec<Moment>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Moment {
    Arrived {
        at_us: u64,
        id: u64,
        tenant: String,
        prompt_tokens: u64,
    },
    Admitted {
        id: u64,
    },
    Started {
        at_us: u64,
        id: u64,
        cached_tokens: u64,
    },
    Step(Step),
    Parked {
        at_us: u64,
        id: u64,
    },
    Unparked {
        at_us: u64,
        id: u64,
    },
    Ended {
        at_us: u64,
        id: u64,
        how: String,
    },
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Step {
    pub(super) started_us: u64,
    pub(super) actual_us: u64,
    pub(super) predicted_us: u64,
    pub(super) budget_us: Option<u64>,
    pub(super) io_us: u64,
    pub(super) contended: bool,
    pub(super) decode: Vec<u64>,
    pub(super) prefill: Vec<Range>,
    pub(super) rows: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Range {
    pub(super) id: u64,
    pub(super) start: u64,
    pub(super) tokens: u64,
    pub(super) last: bool,
}

/// What the server says of itself every second.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct State {
    pub(super) now_us: u64,
    pub(super) profile: String,
    pub(super) stall: Stall,
    pub(super) counts: Counts,
    pub(super) blocks: Blocks,
    pub(super) requests: Requests,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Stall {
    pub(super) in_force_us: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Counts {
    pub(super) queued: u64,
    pub(super) prefilling: u64,
    pub(super) active: u64,
    pub(super) parked: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Blocks {
    pub(super) total: u64,
    pub(super) used: u64,
    pub(super) cached: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Requests {
    pub(super) finished: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
    pub(super) refused: u64,
}

/// A sequence.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    pub(super) tenant: String,
    pub(super) arrived_us: u64,
    pub(super) admitted: bool,
    pub(super) prompt_tokens: u64,
    /// Of the prompt, found or computed.
    pub(super) processed: u64,
    pub(super) tokens: u64,
    pub(super) first_us: Option<u64>,
    last_us: Option<u64>,
    parked_us: Option<u64>,
    pub(super) longest_gap_us: u64,
    pub(super) ended: Option<(u64, String)>,
}

/// The longest gap between two tokens of an answer, and why it was that long.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Gap {
    pub(super) us: u64,
    pub(super) id: u64,
    pub(super) at_us: u64,
    pub(super) cause: Cause,
}

/// What made a gap long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cause {
    /// The prompt of this sequence, so many tokens of it.
    Prompt {
        id: u64,
        tokens: u64,
    },
    Io,
    /// It took far longer than expected: other programs, or a wrong cost model.
    Disturbance,
    Answers,
}

/// Tokens a second, and shares of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) decode: f64,
    pub(super) prefill: f64,
    pub(super) steps: f64,
    /// Of the time in which steps ran.
    pub(super) busy: f64,
    /// Real over expected time of those steps.
    pub(super) error: Option<f64>,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Picture {
    pub(super) state: State,
    pub(super) lanes: BTreeMap<u64, Lane>,
    pub(super) steps: VecDeque<Step>,
    pub(super) now_us: u64,
    pub(super) gap: Option<Gap>,
}

impl Picture {
    pub(super) fn set(&mut self, state: State) {
        self.now_us = self.now_us.max(state.now_us);
        self.state = state;
        self.forget();
    }

    pub(super) fn add(&mut self, moments: Moments) {
        for moment in moments.moments {
            match moment {
                Moment::Arrived {
                    at_us,
                    id,
                    tenant,
                    prompt_tokens,
                } => {
                    let lane = Lane {
                        tenant,
                        arrived_us: at_us,
                        prompt_tokens,
                        ..Lane::default()
                    };
                    self.lanes.insert(id, lane);
                }
                Moment::Step(step) => self.step(step),
                Moment::Admitted { id } => self.with(id, |lane| lane.admitted = true),
                Moment::Started {
                    at_us,
                    id,
                    cached_tokens,
                } => self.with(id, |lane| {
                    lane.admitted = true;
                    lane.processed = cached_tokens;
                    lane.arrived_us = lane.arrived_us.min(at_us);
                }),
                Moment::Parked { at_us, id } => self.with(id, |lane| lane.parked_us = Some(at_us)),
                Moment::Unparked { at_us, id } => self.with(id, |lane| {
                    // Who did not read did not wait.
                    let away = lane
                        .parked_us
                        .take()
                        .map_or(0, |since| at_us.saturating_sub(since));
                    lane.last_us = lane.last_us.map(|last| last + away);
                }),
                Moment::Ended { at_us, id, how } => {
                    self.with(id, |lane| lane.ended = Some((at_us, how)));
                }
            }
        }
    }

    fn with(&mut self, id: u64, change: impl FnOnce(&mut Lane)) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            change(lane);
        }
    }

    fn step(&mut self, step: Step) {
        let end = step.started_us + step.actual_us;
        self.now_us = self.now_us.max(end);
        for range in &step.prefill {
            let lane = self.lanes.entry(range.id).or_default();
            lane.processed = range.start + range.tokens;
            lane.prompt_tokens = lane.prompt_tokens.max(lane.processed);
            if range.last {
                lane.token(end);
            }
        }
        let cause = cause(&step);
        for &id in &step.decode {
            let lane = self.lanes.entry(id).or_default();
            let Some(us) = lane.token(end) else { continue };
            let is_longest = self.gap.as_ref().is_none_or(|gap| us > gap.us);
            if is_longest {
                self.gap = Some(Gap {
                    us,
                    id,
                    at_us: end,
                    cause,
                });
            }
        }
        self.steps.push_back(step);
    }

    /// Drops what is older than the horizon.
    fn forget(&mut self) {
        let since = self.now_us.saturating_sub(HORIZON_US);
        while self
            .steps
            .front()
            .is_some_and(|step| step.started_us < since)
        {
            self.steps.pop_front();
        }
        self.lanes
            .retain(|_, lane| lane.ended.as_ref().is_none_or(|(at_us, _)| *at_us >= since));
        if self.gap.as_ref().is_some_and(|gap| gap.at_us < since) {
            self.gap = None;
        }
    }

    /// Of the last seconds.
    pub(super) fn rates(&self) -> Rates {
        let since = self.now_us.saturating_sub(RATE_US);
        let recent = self
            .steps
            .iter()
            .rev()
            .take_while(|step| step.started_us >= since);
        let (mut rates, mut actual, mut predicted) = (Rates::default(), 0, 0);
        for step in recent {
            rates.steps += 1.0;
            rates.decode +=
                step.rows as f64 + step.prefill.iter().filter(|range| range.last).count() as f64;
            rates.prefill += step.prefill.iter().map(|range| range.tokens).sum::<u64>() as f64;
            actual += step.actual_us;
            predicted += step.predicted_us;
        }
        let seconds = self.now_us.clamp(1, RATE_US) as f64 / 1e6;
        rates.busy = (actual as f64 / 1e6 / seconds).min(1.0);
        rates.error = (predicted > 0).then(|| actual as f64 / predicted as f64);
        for rate in [&mut rates.steps, &mut rates.decode, &mut rates.prefill] {
            *rate /= seconds;
        }
        rates
    }
}

impl Lane {
    /// A token came; how long after the one before it.
    fn token(&mut self, at_us: u64) -> Option<u64> {
        self.tokens += 1;
        self.first_us.get_or_insert(at_us);
        let gap = self
            .last_us
            .replace(at_us)
            .map(|last| at_us.saturating_sub(last));
        self.longest_gap_us = self.longest_gap_us.max(gap.unwrap_or_default());
        gap
    }

    /// What it does, in a word.
    pub(super) fn doing(&self) -> &str {
        match &self.ended {
            Some((_, how)) => how,
            None if self.parked_us.is_some() => "unread",
            None if self.first_us.is_some() => "writing",
            None if self.admitted => "reading",
            None => "queued",
        }
    }
}

/// What took most of a step's time.
fn cause(step: &Step) -> Cause {
    if step.actual_us * 1000 > step.predicted_us * DISTURBED_PERMILLE && step.predicted_us > 0 {
        return Cause::Disturbance;
    }
    if step.io_us * 2 > step.actual_us {
        return Cause::Io;
    }
    let largest = step.prefill.iter().max_by_key(|range| range.tokens);
    largest.map_or(Cause::Answers, |range| Cause::Prompt {
        id: range.id,
        tokens: range.tokens,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two answers and a prompt that comes between: steps of 5 ms, one of 90.
    pub(in super::super) fn example() -> Picture {
        let moments = serde_json::json!({"missed": false, "moments": [
            {"kind": "arrived", "at_us": 0, "id": 1, "tenant": "aa", "priority": "normal", "prompt_tokens": 10, "stored_tokens": 0, "max_new": 9, "cache": true},
            {"kind": "admitted", "at_us": 10, "id": 1},
            {"kind": "started", "at_us": 20, "id": 1, "cached_tokens": 4},
            step(1000, 5000, &[], &[(1, 4, 6, true)]),
            step(6000, 5000, &[1], &[]),
            {"kind": "arrived", "at_us": 11_000, "id": 2, "tenant": "bb", "priority": "low", "prompt_tokens": 100, "stored_tokens": 0, "max_new": 9, "cache": true},
            {"kind": "admitted", "at_us": 11_000, "id": 2},
            step(11_000, 90_000, &[1], &[(2, 0, 80, false)]),
            step(101_000, 20_000, &[1], &[(2, 80, 20, true)]),
            {"kind": "ended", "at_us": 121_000, "id": 1, "how": "stop", "cached_tokens": 4, "tokens": 4},
        ]});
        let mut picture = Picture::default();
        picture.add(serde_json::from_value(moments).expect("as the server writes them"));
        picture
    }

    fn step(
        start: u64,
        us: u64,
        decode: &[u64],
        prefill: &[(u64, u64, u64, bool)],
    ) -> serde_json::Value {
        let ranges = prefill.iter().map(|&(id, start, tokens, last)| {
            serde_json::json!({"id": id, "start": start, "tokens": tokens, "last": last})
        });
        serde_json::json!({
            "kind": "step", "step_no": 1, "started_us": start, "predicted_us": us, "actual_us": us, "io_us": 0, "budget_us": 100_000,
            "contended": !decode.is_empty(), "floor_limited": false, "decode": decode, "prefill": ranges.collect::<Vec<_>>(), "io": null,
            "rows": decode.len(), "queued": 0, "resident": 2, "blocks_used": 3, "blocks_cached": 1,
        })
    }

    #[test]
    fn the_longest_gap_has_its_cause() {
        let picture = example();
        let gap = picture.gap.clone().expect("a gap");
        assert_eq!(
            gap,
            Gap {
                us: 90_000,
                id: 1,
                at_us: 101_000,
                cause: Cause::Prompt { id: 2, tokens: 80 }
            }
        );
        let (answer, prompt) = (&picture.lanes[&1], &picture.lanes[&2]);
        assert_eq!(
            (answer.tokens, answer.longest_gap_us, answer.doing()),
            (4, 90_000, "stop")
        );
        assert_eq!(
            (prompt.tokens, prompt.processed, prompt.doing()),
            (1, 100, "writing")
        );
    }

    #[test]
    fn rates_are_of_the_last_seconds() {
        let rates = example().rates();
        // Five tokens and 106 of prompts in 0.121 s.
        assert!((rates.decode - 5.0 / 0.121).abs() < 1e-6, "{rates:?}");
        assert!((rates.prefill - 106.0 / 0.121).abs() < 1e-6);
        assert!((rates.busy - 120.0 / 121.0).abs() < 1e-6);
        assert_eq!(rates.error, Some(1.0));
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let mut picture = example();
        picture.set(State {
            now_us: HORIZON_US + 130_000,
            ..State::default()
        });
        assert!(picture.steps.is_empty() && picture.gap.is_none());
        assert_eq!(
            picture.lanes.keys().copied().collect::<Vec<_>>(),
            [2],
            "it has not ended"
        );
    }

    #[test]
    fn who_does_not_read_does_not_wait() {
        let mut picture = example();
        let moments = serde_json::json!({"missed": false, "moments": [
            {"kind": "parked", "at_us": 121_000, "id": 2},
            {"kind": "unparked", "at_us": 900_000, "id": 2},
            step(900_000, 5000, &[2], &[]),
        ]});
        picture.add(serde_json::from_value(moments).expect("valid"));
        assert_eq!(picture.lanes[&2].longest_gap_us, 5000);
    }
}
