//! Exhaustive exploration: every order of arrivals, readiness and cancels on a tiny domain, breadth first, so that a broken
//! invariant comes with a shortest counterexample. Known-bad policies are negative controls.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt::{self, Debug, Formatter};

use super::super::Scheduler;
use crate::config::{Config, Mode};
use crate::cost::{CostModel, Shape, micros};
use crate::sequence::Phase;
use crate::step::{Admission, CompleteError, Outcome, Plan, Prefill, SeqId, Step};

const COST: CostModel = CostModel {
    decode: micros(2),
    prefill: micros(2),
    mixed: micros(3),
    token: micros(1),
    attend: 0,
    context: 0,
    row: micros(1),
};

/// What is explored: the scheduler or a bad one.
trait System: Clone {
    fn add(&mut self, id: SeqId, prompt: &[u32], answer: u32);
    fn cancel(&mut self, id: SeqId);
    fn ready(&mut self, id: SeqId);
    /// `None`: wait.
    fn plan(&mut self) -> Option<Step>;
    /// Every row succeeds; the decoders are busy afterwards. Says what is wrong with the system itself.
    fn complete(&mut self, step: &Step) -> Result<(), &'static str>;
    fn resident(&self, id: SeqId) -> bool;
    fn alive(&self, id: SeqId) -> bool;
    /// What decides about its future, beside the sequences' progress.
    fn key(&self) -> Vec<u64>;
}

impl System for Scheduler {
    fn add(&mut self, id: SeqId, prompt: &[u32], answer: u32) {
        let cache = self.config.blocks < 64;
        Scheduler::add(
            self,
            Admission {
                cache,
                ..Admission::new(id, prompt, answer)
            },
        )
        .expect("room in the queue");
    }

    fn cancel(&mut self, id: SeqId) {
        assert!(Scheduler::cancel(self, id));
    }

    fn ready(&mut self, id: SeqId) {
        assert!(Scheduler::ready(self, id));
    }

    fn plan(&mut self) -> Option<Step> {
        match Scheduler::plan(self, 0) {
            Plan::Step(step) => Some(step.clone()),
            Plan::Wait { .. } => None,
            Plan::Idle => Some(Step::default()),
        }
    }

    fn complete(&mut self, step: &Step) -> Result<(), &'static str> {
        let outcomes = outcomes(step);
        let no = step.step_no;
        let late = Err(CompleteError::NotInFlight { step_no: no - 1 });
        if Scheduler::complete(self, no - 1, 1, &outcomes) != late {
            return Err("I8 a late completion was taken");
        }
        let ended = Scheduler::complete(self, no, 1, &outcomes)
            .expect("the step in flight")
            .to_vec();
        if Scheduler::complete(self, no, 1, &outcomes).is_ok() {
            return Err("I8 a completion was taken twice");
        }
        for id in step.decode.iter().chain(
            step.prefill
                .iter()
                .filter(|range| range.last)
                .map(|range| &range.id),
        ) {
            assert_ne!(self.busy(*id), ended.contains(id));
        }
        self.check_blocks();
        Ok(())
    }

    fn resident(&self, id: SeqId) -> bool {
        self.places[&id].is_some()
    }

    fn alive(&self, id: SeqId) -> bool {
        self.places.contains_key(&id)
    }

    fn key(&self) -> Vec<u64> {
        let mut key = self.policy.key();
        key.extend(self.blocks.cached_keys());
        key.extend(self.tenants.key());
        for sequence in self.residents.iter() {
            key.extend([
                sequence.id,
                u64::from(sequence.computed),
                u64::from(sequence.phase == Phase::Ready),
            ]);
        }
        key
    }
}

fn outcomes(step: &Step) -> Vec<Outcome> {
    let decode = step.decode.iter().map(|_| Outcome::Token(9));
    decode
        .chain(step.prefill.iter().map(|r| {
            if r.last {
                Outcome::Token(9)
            } else {
                Outcome::Prefilled
            }
        }))
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bad {
    /// Prompts whenever there are any.
    PrefillFirst,
    /// Decoders whenever one is ready.
    DecodeFirst,
    /// Decoders and a fixed number of tokens, whatever they cost.
    MixedFixed,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    id: SeqId,
    prompt: u32,
    answer: u32,
    computed: u32,
    generated: u32,
    ready: bool,
}

/// A scheduler with a bad policy: first come first served, a fixed chunk.
#[derive(Debug, Clone)]
struct Baseline {
    policy: Bad,
    chunk: u32,
    rows: Vec<Row>,
}

impl System for Baseline {
    fn add(&mut self, id: SeqId, prompt: &[u32], answer: u32) {
        let prompt = u32::try_from(prompt.len()).unwrap();
        self.rows.push(Row {
            id,
            prompt,
            answer,
            computed: 0,
            generated: 0,
            ready: true,
        });
    }

    fn cancel(&mut self, id: SeqId) {
        self.rows.retain(|row| row.id != id);
    }

    fn ready(&mut self, id: SeqId) {
        self.rows.iter_mut().find(|row| row.id == id).unwrap().ready = true;
    }

    fn plan(&mut self) -> Option<Step> {
        let decode: Vec<SeqId> = self
            .rows
            .iter()
            .filter(|r| r.generated > 0 && r.ready)
            .map(|r| r.id)
            .collect();
        let mut left = self.chunk;
        if self.policy == Bad::MixedFixed {
            left -= u32::try_from(decode.len()).unwrap();
        }
        let mut prefill = Vec::new();
        for row in self.rows.iter().filter(|row| row.generated == 0) {
            let tokens = left.min(row.prompt - row.computed);
            if tokens > 0 {
                let last = row.computed + tokens == row.prompt;
                prefill.push(Prefill {
                    id: row.id,
                    start: row.computed,
                    tokens,
                    last,
                });
            }
            left -= tokens;
        }
        let (decode, prefill) = match self.policy {
            Bad::PrefillFirst if !prefill.is_empty() => (Vec::new(), prefill),
            Bad::DecodeFirst if !decode.is_empty() => (decode, Vec::new()),
            _ => (decode, prefill),
        };
        Some(Step {
            decode,
            prefill,
            ..Step::default()
        })
    }

    fn complete(&mut self, step: &Step) -> Result<(), &'static str> {
        for row in &mut self.rows {
            let range = step.prefill.iter().find(|range| range.id == row.id);
            row.computed += range.map_or(0, |range| range.tokens);
            if step.decode.contains(&row.id) || range.is_some_and(|range| range.last) {
                row.generated += 1;
                row.ready = false;
            }
        }
        self.rows.retain(|row| row.generated < row.answer);
        Ok(())
    }

    fn resident(&self, _: SeqId) -> bool {
        true
    }

    fn alive(&self, id: SeqId) -> bool {
        self.rows.iter().any(|row| row.id == id)
    }

    fn key(&self) -> Vec<u64> {
        self.rows.iter().map(|row| row.id).collect()
    }
}

/// The explorer's own idea of a sequence, against which plans are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Life {
    Coming,
    Prefill { computed: u32 },
    Decode { generated: u32, ready: bool },
    Gone,
}

/// The tiny domain.
#[derive(Debug, Clone)]
struct Domain {
    prompts: Vec<Vec<u32>>,
    answers: Vec<u32>,
    mixes: bool,
    /// K: most steps that a prompt, or a ready decoder, may wait for progress.
    patience: u32,
    t_stall: i64,
    q_min: u32,
    block_tokens: u32,
}

#[derive(Debug, Clone)]
struct World<S> {
    system: S,
    lives: Vec<Life>,
    waited_twice: bool,
    /// Decoders that were ready during the last step, if that held prompts only.
    passed_over: u32,
    without_prefill: u32,
    unserved: Vec<u32>,
    /// Block-long prefixes that some step has computed.
    computed: BTreeSet<Vec<u32>>,
}

/// What the environment does around one plan; sets are bit masks.
#[derive(Clone, Copy)]
struct Events {
    arrive: u32,
    ready: u32,
    cancel: Option<usize>,
    cancel_in_flight: Option<usize>,
}

impl Debug for Events {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let list = |mask| members(mask).collect::<Vec<_>>();
        write!(
            f,
            "arrive {:?}, ready {:?}, ",
            list(self.arrive),
            list(self.ready)
        )?;
        write!(
            f,
            "cancel {:?}, in flight {:?}",
            self.cancel, self.cancel_in_flight
        )
    }
}

#[derive(Debug)]
struct Report {
    states: usize,
    /// Broken invariant and the events that lead there.
    broken: HashMap<&'static str, Vec<Events>>,
}

fn explore<S: System>(system: S, domain: &Domain) -> Report {
    let n = domain.prompts.len();
    let start = World {
        system,
        lives: vec![Life::Coming; n],
        waited_twice: false,
        passed_over: 0,
        without_prefill: 0,
        unserved: vec![0; n],
        computed: BTreeSet::new(),
    };
    let mut seen = HashMap::from([(start.key(), 0)]);
    let mut history: Vec<Option<(usize, Events)>> = vec![None];
    let mut broken = HashMap::new();
    let mut queue = VecDeque::from([(0, start)]);
    while let Some((index, world)) = queue.pop_front() {
        for events in world.choices() {
            let mut next = world.clone();
            if let Err(invariant) = next.step(events, domain) {
                broken
                    .entry(invariant)
                    .or_insert_with(|| path(&history, index, events));
                continue;
            }
            let id = history.len();
            if *seen.entry(next.key()).or_insert(id) == id {
                history.push(Some((index, events)));
                queue.push_back((id, next));
            }
        }
    }
    Report {
        states: seen.len(),
        broken,
    }
}

fn path(history: &[Option<(usize, Events)>], mut index: usize, last: Events) -> Vec<Events> {
    let mut path = vec![last];
    while let Some((before, events)) = history[index] {
        path.push(events);
        index = before;
    }
    path.reverse();
    path
}

type Key = (
    Vec<Life>,
    Vec<u64>,
    (bool, u32, u32),
    Vec<u32>,
    BTreeSet<Vec<u32>>,
);

impl<S: System> World<S> {
    fn key(&self) -> Key {
        let recent = (self.waited_twice, self.passed_over, self.without_prefill);
        (
            self.lives.clone(),
            self.system.key(),
            recent,
            self.unserved.clone(),
            self.computed.clone(),
        )
    }

    fn choices(&self) -> Vec<Events> {
        let mask = |test: fn(&Life) -> bool| {
            self.lives
                .iter()
                .enumerate()
                .filter(|(_, life)| test(life))
                .fold(0, |mask, (i, _)| mask | 1 << i)
        };
        let coming = mask(|life| *life == Life::Coming);
        let busy = mask(|life| matches!(life, Life::Decode { ready: false, .. }));
        let live = mask(|life| !matches!(life, Life::Coming | Life::Gone));
        let mut choices = Vec::new();
        for arrive in subsets(coming) {
            for ready in subsets(busy) {
                choices.push(Events {
                    arrive,
                    ready,
                    cancel: None,
                    cancel_in_flight: None,
                });
                for i in members(live) {
                    choices.push(Events {
                        arrive,
                        ready,
                        cancel: Some(i),
                        cancel_in_flight: None,
                    });
                }
                for i in members(live | arrive) {
                    choices.push(Events {
                        arrive,
                        ready,
                        cancel: None,
                        cancel_in_flight: Some(i),
                    });
                }
            }
        }
        choices
    }

    /// Events, a plan, its checks, its completion.
    fn step(&mut self, events: Events, domain: &Domain) -> Result<(), &'static str> {
        for i in members(events.arrive) {
            self.lives[i] = Life::Prefill { computed: 0 };
            self.system
                .add(i as SeqId, &domain.prompts[i], domain.answers[i]);
        }
        for i in members(events.ready) {
            if let Life::Decode { ready, .. } = &mut self.lives[i] {
                *ready = true;
                self.system.ready(i as SeqId);
            }
        }
        if let Some(i) = events.cancel {
            self.system.cancel(i as SeqId);
            self.remove(i);
        }
        let Some(plan) = self.system.plan() else {
            let repeated = std::mem::replace(&mut self.waited_twice, true);
            return if repeated {
                Err("I5 two waits in a row")
            } else {
                Ok(())
            };
        };
        self.waited_twice = false;
        self.check(&plan, domain)?;
        if let Some(i) = events.cancel_in_flight {
            self.system.cancel(i as SeqId);
        }
        if !plan.decode.is_empty() || !plan.prefill.is_empty() {
            self.system.complete(&plan)?;
        }
        self.advance(&plan, domain);
        if let Some(i) = events.cancel_in_flight {
            self.remove(i);
        }
        let gone = |&i: &usize| self.lives[i] == Life::Gone;
        if (0..self.lives.len())
            .filter(gone)
            .any(|i| self.system.alive(i as SeqId))
        {
            return Err("I6 a sequence outlives its end");
        }
        Ok(())
    }

    fn remove(&mut self, i: usize) {
        self.lives[i] = Life::Gone;
        self.unserved[i] = 0;
        self.passed_over &= !(1 << i);
    }

    fn check(&mut self, plan: &Step, domain: &Domain) -> Result<(), &'static str> {
        let resident: Vec<bool> = (0..self.lives.len())
            .map(|i| {
                !matches!(self.lives[i], Life::Coming | Life::Gone)
                    && self.system.resident(i as SeqId)
            })
            .collect();
        let prompts = |i: &usize| resident[*i] && matches!(self.lives[*i], Life::Prefill { .. });
        let ready = |i: &usize| matches!(self.lives[*i], Life::Decode { ready: true, .. });
        let all = 0..self.lives.len();
        let prefilling = all.clone().any(|i| prompts(&i));
        let ready: Vec<usize> = all.clone().filter(ready).collect();
        let ready_mask = ready.iter().fold(0, |mask, i| mask | 1 << i);
        let active = all
            .clone()
            .any(|i| matches!(self.lives[i], Life::Decode { .. }));

        for &id in &plan.decode {
            if !ready.contains(&(id as usize)) {
                return Err("I6 a sequence that cannot decode is in the plan");
            }
        }
        for range in &plan.prefill {
            self.check_range(*range, domain)?;
        }
        if plan.decode.is_empty() && plan.prefill.is_empty() && (prefilling || !ready.is_empty()) {
            return Err("I5 idle with runnable work");
        }
        if !domain.mixes && !plan.decode.is_empty() && !plan.prefill.is_empty() {
            return Err("a mixed step on a backend that cannot mix");
        }
        let prompts_only = plan.decode.is_empty() && !plan.prefill.is_empty();
        if domain.mixes && prompts_only && !ready.is_empty() {
            return Err("I1 a step of prompts only while a decoder is ready");
        }
        if prompts_only && self.passed_over & ready_mask != 0 {
            return Err("I1 two steps of prompts only over the same ready decoder");
        }
        self.passed_over = if prompts_only { ready_mask } else { 0 };
        if active && step_us(plan) > self.limit_us(domain, ready.len()) {
            return Err("I2 a step longer than the stall bound");
        }
        self.without_prefill = if prefilling && plan.prefill.is_empty() {
            self.without_prefill + 1
        } else {
            0
        };
        if self.without_prefill > domain.patience {
            return Err("I3 no prefill progress");
        }
        for i in all {
            let passed = ready.contains(&i) && !plan.decode.contains(&(i as SeqId));
            self.unserved[i] = if passed { self.unserved[i] + 1 } else { 0 };
            if self.unserved[i] > domain.patience {
                return Err("I2 a ready decoder is not served");
            }
        }
        Ok(())
    }

    /// A range continues its prompt, after blocks that were computed before.
    fn check_range(&self, range: Prefill, domain: &Domain) -> Result<(), &'static str> {
        let i = range.id as usize;
        let Life::Prefill { computed } = self.lives[i] else {
            return Err("I6 a sequence that cannot prefill is in the plan");
        };
        let prompt = &domain.prompts[i];
        let end = range.start + range.tokens;
        if range.tokens == 0
            || end as usize > prompt.len()
            || range.last != (end as usize == prompt.len())
        {
            return Err("a range is not part of its prompt");
        }
        let adopted =
            (computed / domain.block_tokens + 1..=range.start / domain.block_tokens).all(|k| {
                self.computed
                    .contains(&prompt[..(k * domain.block_tokens) as usize])
            });
        let boundary = range.start == computed || range.start.is_multiple_of(domain.block_tokens);
        if range.start < computed || !adopted || !boundary {
            return Err("a range does not continue what is computed");
        }
        Ok(())
    }

    /// I2: T_stall, or what the decoders or the smallest allowed range need.
    fn limit_us(&self, domain: &Domain, ready: usize) -> i64 {
        let floor = |(i, life): (usize, &Life)| match life {
            Life::Prefill { computed } => {
                domain.q_min.min(domain.prompts[i].len() as u32 - computed)
            }
            _ => 0,
        };
        let rows = Shape {
            rows: ready as u32,
            ..Shape::default()
        };
        let decode = if ready == 0 { 0 } else { COST.step_us(rows) };
        let floor = self.lives.iter().enumerate().map(floor).max().unwrap_or(0);
        domain
            .t_stall
            .max(if domain.mixes { decode } else { 0 } + 3 + i64::from(floor))
            .max(decode)
    }

    fn advance(&mut self, plan: &Step, domain: &Domain) {
        for &id in &plan.decode {
            if let Life::Decode { generated, .. } = self.lives[id as usize] {
                self.emit(id as usize, generated + 1, domain);
            }
        }
        for range in &plan.prefill {
            let i = range.id as usize;
            let end = range.start + range.tokens;
            for k in 1..=end / domain.block_tokens {
                self.computed
                    .insert(domain.prompts[i][..(k * domain.block_tokens) as usize].to_vec());
            }
            self.lives[i] = Life::Prefill { computed: end };
            if range.last {
                self.emit(i, 1, domain);
            }
        }
    }

    fn emit(&mut self, i: usize, generated: u32, domain: &Domain) {
        self.lives[i] = Life::Decode {
            generated,
            ready: false,
        };
        if generated >= domain.answers[i] {
            self.remove(i);
        }
    }
}

fn step_us(plan: &Step) -> i64 {
    let mut shape = Shape {
        rows: plan.decode.len() as u32,
        ..Shape::default()
    };
    for range in &plan.prefill {
        shape.add_range(range.start, range.tokens);
    }
    COST.step_us(shape)
}

fn subsets(mask: u32) -> impl Iterator<Item = u32> {
    (0..=mask).filter(move |subset| subset & !mask == 0)
}

fn members(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |i| mask & 1 << i != 0)
}

fn domain(mixes: bool, patience: u32) -> Domain {
    Domain {
        prompts: vec![vec![1; 7], vec![2; 3], vec![3; 5]],
        answers: vec![3, 3, 2],
        mixes,
        patience,
        t_stall: 7,
        q_min: 2,
        // Never a whole one: what these domains are about is time.
        block_tokens: 64,
    }
}

fn scheduler(mixes: bool, share: Option<u32>, wait_us: u64) -> Scheduler {
    Scheduler::new(Config {
        t_stall_us: 7,
        t_idle_us: 12,
        q_min: 2,
        q_max: 8,
        prefill_share_permille: share,
        wait_us,
        mode: if mixes { Mode::Mix } else { Mode::HandOff },
        cost: COST,
        fixed_cost: true,
        ..Config::new(8, 64, 64)
    })
}

#[expect(clippy::print_stdout, reason = "the number of states is a result")]
fn holds<S: System>(name: &str, system: S, domain: &Domain) {
    let report = explore(system, domain);
    println!("{name}: {} states", report.states);
    assert!(report.broken.is_empty(), "{name}: {:#?}", report.broken);
    assert!(report.states > 100);
}

#[expect(clippy::print_stdout, reason = "the number of states is a result")]
fn breaks(policy: Bad, chunk: u32, mixes: bool, invariant: &str) {
    let report = explore(
        Baseline {
            policy,
            chunk,
            rows: Vec::new(),
        },
        &domain(mixes, 3),
    );
    println!("{policy:?}: {} states, {:#?}", report.states, report.broken);
    assert!(
        report.broken.contains_key(invariant),
        "{policy:?} was not caught"
    );
}

#[test]
fn mixing_keeps_the_invariants() {
    holds("mix", scheduler(true, None, 0), &domain(true, 3));
}

#[test]
fn mixing_with_a_prefill_share_keeps_the_invariants() {
    holds(
        "mix, share ½",
        scheduler(true, Some(500), 0),
        &domain(true, 6),
    );
}

#[test]
fn mixing_with_waits_keeps_the_invariants() {
    holds("mix, w", scheduler(true, None, 1), &domain(true, 3));
}

#[test]
fn hand_off_keeps_the_invariants() {
    holds("hand-off", scheduler(false, None, 0), &domain(false, 3));
    holds(
        "hand-off, share ½",
        scheduler(false, Some(500), 0),
        &domain(false, 8),
    );
}

#[test]
fn hand_off_with_waits_keeps_the_invariants() {
    holds(
        "hand-off, share ½, w",
        scheduler(false, Some(500), 1),
        &domain(false, 8),
    );
}

#[test]
fn four_sequences_keep_the_invariants() {
    let domain = Domain {
        prompts: vec![vec![1; 7], vec![2; 3], vec![3; 5], vec![4; 2]],
        answers: vec![3, 2, 2, 2],
        ..domain(true, 6)
    };
    holds(
        "mix, share ½, 4 sequences",
        scheduler(true, Some(500), 0),
        &domain,
    );
}

/// Two slots, blocks for two sequences, and prompts that share blocks: admission, adoption and eviction.
#[test]
fn shared_blocks_keep_the_invariants() {
    let domain = Domain {
        prompts: vec![
            vec![1, 1, 2, 2, 3, 3, 3],
            vec![1, 1, 2, 2, 3, 3, 3],
            vec![1, 1, 4],
            vec![5; 6],
        ],
        answers: vec![2, 2, 3, 1],
        block_tokens: 2,
        ..domain(true, 3)
    };
    let tight = |config: Config| Config {
        slots: 2,
        blocks: 10,
        block_tokens: 2,
        t_idle_us: 5,
        ..config
    };
    holds(
        "mix, shared blocks",
        Scheduler::new(tight(scheduler(true, None, 0).config)),
        &domain,
    );
    let domain = Domain {
        mixes: false,
        patience: 8,
        ..domain
    };
    let hand_off = Scheduler::new(tight(scheduler(false, Some(500), 0).config));
    holds("hand-off, share ½, shared blocks", hand_off, &domain);
}

#[test]
fn prefill_first_is_caught() {
    breaks(
        Bad::PrefillFirst,
        2,
        false,
        "I1 two steps of prompts only over the same ready decoder",
    );
}

#[test]
fn decode_first_is_caught() {
    breaks(Bad::DecodeFirst, 2, false, "I3 no prefill progress");
}

#[test]
fn a_fixed_chunk_is_caught() {
    breaks(
        Bad::MixedFixed,
        8,
        true,
        "I2 a step longer than the stall bound",
    );
}
