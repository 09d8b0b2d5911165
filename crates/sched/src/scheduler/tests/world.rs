//! The scheduler in virtual time: a machine with its own idea of costs, clients that come, go and stop reading.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Scheduler;
use crate::config::{Config, Mode};
use crate::cost::{CostModel, FRACTION_BITS, IoCost, Shape};
use crate::sequence::{Phase, Sequence};
use crate::step::{Admission, IoKind, IoUnit, Outcome, Plan, Priority, SeqId, Step, TenantId};

#[derive(Debug, Clone)]
pub(super) enum Event {
    Arrive(Arrival),
    Cancel(SeqId),
    Park(SeqId),
    Unpark(SeqId),
    /// Its next row fails.
    Fail(SeqId),
    /// Async sampling brings its token.
    Sampled(SeqId),
    /// The store brings what it was late with.
    IoDone {
        unit: IoUnit,
        done: u32,
    },
}

/// A request.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrival {
    pub(super) id: SeqId,
    pub(super) prompt: Vec<u32>,
    pub(super) answer: u32,
    pub(super) cache: bool,
    pub(super) tenant: TenantId,
    pub(super) priority: Priority,
    pub(super) stored: u32,
}

/// What the machine really does.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub(super) cost: CostModel,
    /// Largest deviation of a step's time, permille.
    pub(super) noise_permille: u64,
    /// One step in so many takes ten times as long; 0: never.
    pub(super) spike_every: u64,
    /// Time from a step's end to its tokens, µs.
    pub(super) tau_us: u64,
    /// What the store costs, for loads and for saves.
    pub(super) io: IoCost,
    /// One I/O unit in so many fails half-way; 0: never.
    pub(super) io_fails_every: u64,
    /// One I/O unit in so many ends long after its step; 0: never.
    pub(super) io_late_every: u64,
    pub(super) seed: u64,
}

impl Machine {
    pub(super) fn exact(cost: CostModel) -> Self {
        Self {
            cost,
            noise_permille: 0,
            spike_every: 0,
            tau_us: 0,
            io: IoCost::default(),
            io_fails_every: 0,
            io_late_every: 0,
            seed: 1,
        }
    }

    /// Whether what happens every so often happens now.
    fn happens(&mut self, every: u64) -> bool {
        every > 0 && self.random().is_multiple_of(every)
    }

    fn elapsed_us(&mut self, shape: Shape) -> u64 {
        let exact = self.pass_us(shape).max(1);
        let spike = if self.happens(self.spike_every) {
            10
        } else {
            1
        };
        let noise = 1000 - self.noise_permille + self.random() % (2 * self.noise_permille + 1);
        (exact * noise / 1000).max(1) * spike
    }

    /// What a forward pass takes; one without rows is none.
    fn pass_us(&self, shape: Shape) -> u64 {
        if shape == Shape::default() {
            return 0;
        }
        self.cost.step_us(shape).cast_unsigned()
    }

    fn io_us(&self, unit: &IoUnit) -> u64 {
        (self.io.units(blocks_of(unit)) >> FRACTION_BITS).cast_unsigned()
    }

    /// xorshift64*
    fn random(&mut self) -> u64 {
        self.seed ^= self.seed >> 12;
        self.seed ^= self.seed << 25;
        self.seed ^= self.seed >> 27;
        self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33
    }
}

/// A step that has run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ran {
    pub(super) start_us: u64,
    pub(super) elapsed_us: u64,
    /// What it would take without noise and spikes.
    pub(super) true_us: u64,
    pub(super) ready: u32,
    pub(super) prompts: u32,
    pub(super) step: Step,
}

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) scheduler: Scheduler,
    pub(super) machine: Machine,
    pub(super) now: u64,
    /// Not yet happened, by time and order.
    events: BTreeMap<(u64, u64), Event>,
    event_count: u64,
    pub(super) arrived: BTreeMap<SeqId, u64>,
    pub(super) tokens: BTreeMap<SeqId, Vec<u64>>,
    pub(super) ended: BTreeMap<SeqId, u64>,
    failing: BTreeSet<SeqId>,
    pub(super) log: Vec<Ran>,
    pub(super) refused: Vec<SeqId>,
    pub(super) waits: u64,
    /// What every KV slot holds: the digest of the tokens up to its own. Empty: not looked at.
    kv: Vec<u64>,
}

impl World {
    pub(super) fn new(config: Config, machine: Machine) -> Self {
        Self {
            scheduler: Scheduler::new(config),
            machine,
            now: 0,
            events: BTreeMap::new(),
            event_count: 0,
            arrived: BTreeMap::new(),
            tokens: BTreeMap::new(),
            ended: BTreeMap::new(),
            failing: BTreeSet::new(),
            log: Vec::new(),
            refused: Vec::new(),
            waits: 0,
            kv: Vec::new(),
        }
    }

    /// Checks what every row finds in KV memory.
    pub(super) fn with_kv(mut self) -> Self {
        let config = &self.scheduler.config;
        self.kv = vec![0; config.blocks as usize * config.block_tokens as usize];
        self
    }

    pub(super) fn at(&mut self, time_us: u64, event: Event) {
        self.event_count += 1;
        self.events.insert((time_us, self.event_count), event);
    }

    /// A prompt of `len` tokens that shares nothing with others.
    pub(super) fn arrive(&mut self, time_us: u64, id: SeqId, len: u32, answer: u32) {
        let arrival = Arrival {
            id,
            prompt: vec![id as u32; len as usize],
            answer,
            ..Arrival::default()
        };
        self.at(time_us, Event::Arrive(arrival));
    }

    /// Runs until nothing is left to do.
    pub(super) fn run(&mut self) {
        self.run_until(u64::MAX);
    }

    pub(super) fn run_until(&mut self, end_us: u64) {
        while self.now < end_us {
            assert!(self.log.len() < 100_000, "it does not end");
            self.apply_events();
            // Large pools take long to check.
            if self.scheduler.config.blocks < 1000 || self.log.len().is_multiple_of(200) {
                self.scheduler.check_blocks();
            }
            let plan = match self.scheduler.plan(self.now) {
                Plan::Step(step) => Ok(step.clone()),
                Plan::Wait { until_us } => Err(Some(until_us)),
                Plan::Idle => Err(None),
            };
            let event = self.events.keys().next().map(|&(time, _)| time);
            match (plan, event) {
                (Ok(step), _) => self.execute(step),
                (Err(Some(until)), event) => {
                    self.waits += 1;
                    self.now = event.unwrap_or(until).min(until);
                }
                (Err(None), Some(event)) => {
                    assert_eq!(self.runnable(), (0, 0), "I5 idle with runnable work");
                    self.now = event;
                }
                (Err(None), None) => {
                    assert_eq!(self.runnable(), (0, 0), "I5 idle with runnable work");
                    return;
                }
            }
        }
    }

    /// Ready decoders and prompts that could run.
    fn runnable(&self) -> (u32, u32) {
        let waits_for_io = |sequence: &Sequence| {
            sequence.loading
                || self.scheduler.outstanding.is_some()
                    && sequence.loadable(self.scheduler.config.block_tokens) > 0
        };
        let residents = || {
            self.scheduler.residents.iter().filter(|sequence| {
                !sequence.parked && !sequence.draining && !waits_for_io(sequence)
            })
        };
        let count = |phase| {
            residents()
                .filter(|sequence| sequence.phase == phase)
                .count() as u32
        };
        (count(Phase::Ready), count(Phase::Prefill))
    }

    fn apply_events(&mut self) {
        while let Some(entry) = self
            .events
            .first_entry()
            .filter(|entry| entry.key().0 <= self.now)
        {
            let event = entry.remove();
            self.apply(event);
        }
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Arrive(arrival) => {
                let Arrival { id, answer, .. } = arrival;
                let added = self.scheduler.add(Admission {
                    cache: arrival.cache,
                    tenant: arrival.tenant,
                    priority: arrival.priority,
                    stored: arrival.stored,
                    ..Admission::new(id, &arrival.prompt, answer)
                });
                match added {
                    Ok(()) => assert!(self.arrived.insert(id, self.now).is_none()),
                    Err(_) => self.refused.push(id),
                }
            }
            Event::Cancel(id) => {
                if self.scheduler.cancel(id) {
                    self.ended.insert(id, self.now);
                }
            }
            Event::Park(id) => drop(self.scheduler.park(id)),
            Event::Unpark(id) => drop(self.scheduler.unpark(id)),
            Event::Fail(id) => drop(self.failing.insert(id)),
            Event::IoDone { unit, done } => self.end_io(&unit, done, 1),
            Event::Sampled(id) => {
                if self.scheduler.sampled(id, Outcome::Token(id as u32)) {
                    self.emit(id, !self.scheduler.places.contains_key(&id));
                }
            }
        }
    }

    fn emit(&mut self, id: SeqId, ended: bool) {
        self.tokens.entry(id).or_default().push(self.now);
        if ended {
            assert!(self.ended.insert(id, self.now).is_none(), "{id} ends twice");
        }
    }

    /// What the step costs depends on; its sequences live and have blocks.
    fn shape(&self, step: &Step) -> Shape {
        let mut shape = Shape {
            rows: step.decode.len() as u32,
            ..Shape::default()
        };
        for &id in &step.decode {
            assert!(!self.ended.contains_key(&id), "I6 {id} has ended");
            let tokens = self
                .scheduler
                .tokens(id)
                .expect("planned sequences live")
                .len();
            shape.context += tokens as u64;
            let blocks = self
                .scheduler
                .block_table(id)
                .expect("planned sequences live")
                .len();
            assert!(blocks >= tokens.div_ceil(self.scheduler.config.block_tokens as usize));
        }
        for range in &step.prefill {
            assert!(
                !self.ended.contains_key(&range.id),
                "I6 {} has ended",
                range.id
            );
            shape.add_range(range.start, range.tokens);
        }
        shape
    }

    fn execute(&mut self, step: Step) {
        let shape = self.shape(&step);
        let (ready, prompts) = self.runnable();
        let mut elapsed_us = if shape == Shape::default() {
            0
        } else {
            self.machine.elapsed_us(shape)
        };
        let mut true_us = self.machine.pass_us(shape);
        let pass_us = elapsed_us;
        let start_us = self.now;
        if let Some(unit) = &step.io {
            let io_us = self.machine.io_us(unit);
            elapsed_us += io_us;
            true_us += io_us;
        }
        self.now += elapsed_us;
        self.cancel_in_flight();
        if let Some(unit) = &step.io {
            self.run_io(unit);
        }
        let outcomes = self.outcomes(&step);
        self.touch_kv(&step, &outcomes);
        assert!(
            self.scheduler
                .complete(step.step_no + 1, 1, &outcomes)
                .is_err(),
            "I8"
        );
        let ended = self
            .scheduler
            .complete(step.step_no, pass_us, &outcomes)
            .expect("in flight")
            .to_vec();
        assert!(
            self.scheduler.complete(step.step_no, 1, &outcomes).is_err(),
            "I8"
        );
        let ids = step
            .decode
            .iter()
            .copied()
            .chain(step.prefill.iter().map(|range| range.id));
        for (id, outcome) in ids.zip(outcomes) {
            let cancelled = self.ended.contains_key(&id);
            assert!(
                !cancelled || ended.contains(&id),
                "I6 {id} outlives the step"
            );
            match outcome {
                _ if cancelled => {}
                Outcome::Token(_) => self.emit(id, ended.contains(&id)),
                Outcome::Sampling => self.at(self.now + self.machine.tau_us, Event::Sampled(id)),
                Outcome::Failed => assert!(self.ended.insert(id, self.now).is_none()),
                Outcome::Prefilled | Outcome::Finish => {}
            }
        }
        self.log.push(Ran {
            start_us,
            elapsed_us,
            true_us,
            ready,
            prompts,
            step,
        });
    }

    /// Runs the I/O unit of a step: it is done, fails half-way or is late.
    fn run_io(&mut self, unit: &IoUnit) {
        if let IoKind::Save { blocks } = &unit.kind {
            self.check_saved(blocks);
        }
        let asked = blocks_of(unit);
        let done = if self.machine.happens(self.machine.io_fails_every) {
            (self.machine.random() % u64::from(asked)) as u32
        } else {
            asked
        };
        if self.machine.happens(self.machine.io_late_every) {
            let unit = unit.clone();
            let after = 1 + self.machine.random() % 500;
            self.at(self.now + after, Event::IoDone { unit, done });
        } else {
            self.end_io(unit, done, self.machine.io_us(unit));
        }
    }

    /// What is loaded is the right KV.
    fn end_io(&mut self, unit: &IoUnit, done: u32, elapsed_us: u64) {
        let block_tokens = self.scheduler.config.block_tokens as usize;
        if let IoKind::Load {
            id, start_block, ..
        } = unit.kind
            && !self.kv.is_empty()
        {
            let tokens = self.scheduler.tokens(id).expect("its blocks are kept");
            let table = self.scheduler.block_table(id).expect("its blocks are kept");
            let digests = digests(tokens);
            let start = start_block as usize * block_tokens;
            for position in start..start + done as usize * block_tokens {
                let block = table[position / block_tokens] as usize;
                self.kv[block * block_tokens + position % block_tokens] = digests[position];
            }
        }
        assert!(!self.scheduler.io_done(unit.unit_no + 1, done, 1), "I8");
        assert!(self.scheduler.io_done(unit.unit_no, done, elapsed_us));
        assert!(!self.scheduler.io_done(unit.unit_no, done, 1), "I8");
    }

    /// What goes to the store under a name has the content of that name.
    fn check_saved(&self, blocks: &[u32]) {
        let block_tokens = self.scheduler.config.block_tokens as usize;
        for &block in blocks.iter().filter(|_| !self.kv.is_empty()) {
            let mut tokens = Vec::new();
            let mut next = Some(block);
            while let Some(block) = next {
                let (parent, content) = self.scheduler.block_content(block).expect("indexed");
                tokens.splice(0..0, content.iter().copied());
                next = parent;
            }
            let held = block as usize * block_tokens;
            assert_eq!(
                self.kv[held..held + block_tokens],
                digests(&tokens)[tokens.len() - block_tokens..]
            );
        }
    }

    /// Every row reads the KV of all tokens before it and writes its own.
    fn touch_kv(&mut self, step: &Step, outcomes: &[Outcome]) {
        if self.kv.is_empty() {
            return;
        }
        let last = |id| {
            self.scheduler
                .tokens(id)
                .expect("planned sequences live")
                .len()
                - 1
        };
        let decode = step.decode.iter().map(|&id| (id, last(id), last(id) + 1));
        let prefill = step
            .prefill
            .iter()
            .map(|r| (r.id, r.start as usize, (r.start + r.tokens) as usize));
        for ((id, start, end), outcome) in decode.chain(prefill).zip(outcomes) {
            let tokens = &self.scheduler.tokens(id).expect("planned sequences live")[..end];
            let table = self
                .scheduler
                .block_table(id)
                .expect("planned sequences live");
            let block_tokens = self.scheduler.config.block_tokens as usize;
            for (position, digest) in digests(tokens).into_iter().enumerate() {
                let slot = &mut self.kv[table[position / block_tokens] as usize * block_tokens
                    + position % block_tokens];
                if position < start {
                    assert_eq!(*slot, digest, "{id} reads another's KV at {position}");
                } else if *outcome != Outcome::Failed {
                    *slot = digest;
                }
            }
        }
    }

    /// Cancels reach the scheduler while the step runs, everything else after it.
    fn cancel_in_flight(&mut self) {
        let arrived =
            |event: &Event| matches!(event, Event::Cancel(id) if self.arrived.contains_key(id));
        let due = self
            .events
            .range(..=(self.now, 0))
            .filter(|(_, event)| arrived(event));
        for key in due.map(|(&key, _)| key).collect::<Vec<_>>() {
            let event = self.events.remove(&key).expect("just seen");
            self.apply(event);
        }
    }

    fn outcomes(&mut self, step: &Step) -> Vec<Outcome> {
        let token = |id: SeqId| match self.machine.tau_us {
            0 => Outcome::Token(id as u32),
            _ => Outcome::Sampling,
        };
        let decode = step.decode.iter().map(|&id| (id, token(id)));
        let prefill = step.prefill.iter().map(|range| {
            (
                range.id,
                if range.last {
                    token(range.id)
                } else {
                    Outcome::Prefilled
                },
            )
        });
        let rows: Vec<_> = decode.chain(prefill).collect();
        rows.into_iter()
            .map(|(id, outcome)| {
                if self.failing.remove(&id) {
                    Outcome::Failed
                } else {
                    outcome
                }
            })
            .collect()
    }

    /// Longest time between two tokens of a sequence, µs.
    pub(super) fn max_gap(&self, id: SeqId) -> u64 {
        self.tokens[&id]
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .max()
            .unwrap_or(0)
    }

    /// Time to first token, µs.
    pub(super) fn ttft(&self, id: SeqId) -> u64 {
        self.tokens[&id][0] - self.arrived[&id]
    }

    /// Steps that started after `id` arrived, up to the one that gave its first token.
    pub(super) fn steps_to_first_token(&self, id: SeqId) -> usize {
        let (from, to) = (self.arrived[&id], self.tokens[&id][0]);
        self.log
            .iter()
            .filter(|ran| ran.start_us >= from && ran.start_us < to)
            .count()
    }

    /// What holds after any run, whatever the costs.
    pub(super) fn check_log(&self) {
        let config = &self.scheduler.config;
        let mut passed_over = false;
        let mut without_prefill = 0;
        for ran in &self.log {
            let step = &ran.step;
            assert!(
                !step.decode.is_empty() || !step.prefill.is_empty() || step.io.is_some(),
                "F16 an empty step"
            );
            let prompts_only = step.decode.is_empty();
            match config.mode {
                Mode::Mix => assert!(!prompts_only || ran.ready == 0, "I1"),
                Mode::HandOff => assert!(
                    prompts_only || step.prefill.is_empty(),
                    "a hand-off backend cannot mix"
                ),
            }
            let passes = prompts_only && ran.ready > 0;
            assert!(
                !(passes && passed_over),
                "I1 the ready decoders are passed over twice"
            );
            passed_over = passes;
            assert_eq!(
                step.decode.len(),
                if prompts_only { 0 } else { ran.ready as usize },
                "all ready decoders run"
            );
            without_prefill = if !progresses(step) && ran.prompts > 0 {
                without_prefill + 1
            } else {
                0
            };
            if config.prefill_share_permille.is_none() {
                assert!(without_prefill <= 1, "I3");
            }
            let tokens: u32 = step.prefill.iter().map(|range| range.tokens).sum();
            assert!(tokens <= config.q_max);
        }
    }
}

/// Whether a step brings a prompt on.
pub(super) fn progresses(step: &Step) -> bool {
    let loads = |unit: &IoUnit| matches!(unit.kind, IoKind::Load { .. });
    !step.prefill.is_empty() || step.io.as_ref().is_some_and(loads)
}

fn blocks_of(unit: &IoUnit) -> u32 {
    match &unit.kind {
        IoKind::Load { blocks, .. } => *blocks,
        IoKind::Save { blocks } => blocks.len() as u32,
    }
}

/// What the KV of each token depends on: the tokens up to its own.
fn digests(tokens: &[u32]) -> Vec<u64> {
    let next = |digest: &mut u64, &token: &u32| {
        *digest = (*digest ^ u64::from(token) ^ 0xabcd)
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .rotate_left(23);
        Some(*digest)
    };
    tokens.iter().scan(1, next).collect()
}
