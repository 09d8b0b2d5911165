//! Plan-for-plan agreement with the reference scheduler; `scripts/make_sched_fixtures.py` describes and makes the fixture.

use std::collections::BTreeMap;
use std::str::FromStr;

use andante_sched::{Admission, Config, CostModel, Mode, Outcome, Plan, Scheduler, Step};

const FIXTURE: &str = include_str!("fixtures/reference.txt");

#[derive(Debug, Clone, Copy)]
struct Request {
    id: u64,
    arrival_us: u64,
    prompt: u32,
    answer: u32,
}

#[derive(Debug)]
struct Scenario<'a> {
    name: &'a str,
    config: Config,
    tau_us: u64,
    requests: Vec<Request>,
    plans: Vec<&'a str>,
    done: Vec<&'a str>,
}

fn number<T: FromStr>(words: &mut std::str::Split<'_, char>) -> T {
    words
        .next()
        .and_then(|word| word.parse().ok())
        .expect("a number")
}

fn scenario(line: &str) -> Scenario<'_> {
    let mut words = line.split(' ');
    let name = words.next().unwrap();
    let mode = if words.next() == Some("mix") {
        Mode::Mix
    } else {
        Mode::HandOff
    };
    let slots = number(&mut words);
    let mut config = Config {
        mode,
        t_stall_us: number(&mut words),
        t_idle_us: number(&mut words),
        q_min: number(&mut words),
        q_max: u32::MAX,
        oldest_permille: number(&mut words),
        fixed_cost: true,
        ..Config::new(slots, 4096, 16)
    };
    config.prefill_share_permille = words.next().unwrap().parse().ok();
    config.wait_us = number(&mut words);
    Scenario {
        name,
        config,
        tau_us: number(&mut words),
        requests: Vec::new(),
        plans: Vec::new(),
        done: Vec::new(),
    }
}

fn cost(line: &str) -> CostModel {
    let words = &mut line.split(' ');
    CostModel {
        decode: number(words),
        prefill: number(words),
        mixed: number(words),
        token: number(words),
        attend: number(words),
        context: number(words),
        row: number(words),
    }
}

fn scenarios() -> Vec<Scenario<'static>> {
    let mut scenarios: Vec<Scenario<'static>> = Vec::new();
    for line in FIXTURE.lines() {
        let (kind, rest) = line.split_once(' ').expect("two words");
        if kind == "scenario" {
            scenarios.push(scenario(rest));
            continue;
        }
        let last = scenarios.last_mut().expect("a scenario first");
        let words = &mut rest.split(' ');
        match kind {
            "cost" => last.config.cost = cost(rest),
            "request" => last.requests.push(Request {
                id: number(words),
                arrival_us: number(words),
                prompt: number(words),
                answer: number(words),
            }),
            "plan" => {
                let (count, plan) = rest.split_once(" x ").unwrap_or(("1", rest));
                last.plans
                    .extend(std::iter::repeat_n(plan, count.parse().unwrap()));
            }
            _ => last.done.push(rest),
        }
    }
    scenarios
}

/// A plan as the fixture writes it.
fn written(step: &Step) -> String {
    let list = |items: Vec<String>| {
        if items.is_empty() {
            "-".to_owned()
        } else {
            items.join(",")
        }
    };
    let decode = step.decode.iter().map(ToString::to_string).collect();
    let ranges = step
        .prefill
        .iter()
        .map(|range| format!("{}:{}", range.id, range.tokens))
        .collect();
    format!("{} {}", list(decode), list(ranges))
}

/// The reference's simulation: a step takes as long as predicted, an emitted token takes τ to become ready.
struct Replay<'a> {
    scenario: &'a Scenario<'a>,
    scheduler: Scheduler,
    now: u64,
    arrived: usize,
    /// Unfinished sequences: when the newest token is ready.
    ready_at: BTreeMap<u64, u64>,
    first_token: BTreeMap<u64, u64>,
    end: BTreeMap<u64, u64>,
    plans: Vec<String>,
}

impl<'a> Replay<'a> {
    fn new(scenario: &'a Scenario<'a>) -> Self {
        Self {
            scenario,
            scheduler: Scheduler::new(scenario.config.clone()),
            now: 0,
            arrived: 0,
            ready_at: BTreeMap::new(),
            first_token: BTreeMap::new(),
            end: BTreeMap::new(),
            plans: Vec::new(),
        }
    }

    fn run(mut self) -> Self {
        loop {
            self.apply_events();
            let wait_until = match self.scheduler.plan(self.now) {
                Plan::Step(step) => {
                    let step = step.clone();
                    self.execute(&step);
                    continue;
                }
                Plan::Wait { until_us } => Some(until_us),
                Plan::Idle => None,
            };
            let later = self.ready_at.values().copied().filter(|&at| at > self.now);
            match wait_until {
                Some(until) => {
                    self.plans.push("wait".to_owned());
                    let within = later.clone().filter(|&at| at <= until).max();
                    self.now = within.or(later.min()).map_or(until, |at| at.min(until));
                }
                None => {
                    let arrival = self
                        .scenario
                        .requests
                        .get(self.arrived)
                        .map(|request| request.arrival_us);
                    let Some(next) = later.chain(arrival).min() else {
                        return self;
                    };
                    self.now = next;
                }
            }
        }
    }

    fn apply_events(&mut self) {
        while let Some(request) = self
            .scenario
            .requests
            .get(self.arrived)
            .filter(|r| r.arrival_us <= self.now)
        {
            let prompt = vec![0; request.prompt as usize];
            let admission = Admission {
                cache: false,
                ..Admission::new(request.id, &prompt, request.answer)
            };
            self.scheduler.add(admission).unwrap();
            self.arrived += 1;
        }
        for (&id, &at) in &self.ready_at {
            if at <= self.now {
                self.scheduler.ready(id);
            }
        }
    }

    fn execute(&mut self, step: &Step) {
        self.plans.push(written(step));
        let ends = step.prefill.iter().map(|range| (range.id, range.last));
        let rows: Vec<(u64, bool)> = step
            .decode
            .iter()
            .map(|&id| (id, true))
            .chain(ends)
            .collect();
        let outcomes: Vec<Outcome> = rows
            .iter()
            .map(|&(_, samples)| {
                if samples {
                    Outcome::Token(0)
                } else {
                    Outcome::Prefilled
                }
            })
            .collect();
        let elapsed = step.predicted_us.max(1);
        self.now += elapsed;
        let ended = self
            .scheduler
            .complete(step.step_no, elapsed, &outcomes)
            .unwrap()
            .to_vec();
        for (id, _) in rows.into_iter().filter(|&(_, samples)| samples) {
            self.first_token.entry(id).or_insert(self.now);
            if ended.contains(&id) {
                self.ready_at.remove(&id);
                self.end.insert(id, self.now);
                continue;
            }
            self.ready_at.insert(id, self.now + self.scenario.tau_us);
            if self.scenario.tau_us > 0 {
                assert!(self.scheduler.busy(id));
            }
        }
    }
}

#[test]
fn every_plan_is_the_references() {
    let scenarios = scenarios();
    assert!(scenarios.len() > 100);
    for scenario in &scenarios {
        let replay = Replay::new(scenario).run();
        for (index, (ours, reference)) in replay.plans.iter().zip(&scenario.plans).enumerate() {
            assert_eq!(
                ours, reference,
                "plan {index} of {} {:?}",
                scenario.name, scenario.config
            );
        }
        assert_eq!(
            replay.plans.len(),
            scenario.plans.len(),
            "{}",
            scenario.name
        );
        let done: Vec<String> = scenario
            .requests
            .iter()
            .map(|r| {
                format!(
                    "{} {} {}",
                    r.id,
                    replay.first_token[&r.id] - r.arrival_us,
                    replay.end[&r.id]
                )
            })
            .collect();
        assert_eq!(done, scenario.done, "{}", scenario.name);
    }
}
