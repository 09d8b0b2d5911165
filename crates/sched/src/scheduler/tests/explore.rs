//! Exhaustive exploration: every order of arrivals, readiness and cancels on a tiny domain, breadth first, so that a broken
//! invariant comes with a shortest counterexample. Known-bad policies are negative controls.

mod bad;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt::{self, Debug, Formatter};

use self::bad::{Bad, Baseline};
use super::super::Scheduler;
use crate::config::{Config, Mode};
use crate::cost::{CostModel, IoCost, Shape, micros};
use crate::sequence::Phase;
use crate::step::{
    Admission, CompleteError, IoKind, IoUnit, Outcome, Plan, Prefill, SeqId, Step, TenantId,
};

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
    fn add(&mut self, id: SeqId, domain: &Domain);
    fn cancel(&mut self, id: SeqId);
    /// Its client reads no more, or reads again.
    fn park(&mut self, _: SeqId, _: bool) {}
    /// An I/O unit is done, as far as it was.
    fn io_done(&mut self, _: u64, _: u32) {}
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
    fn add(&mut self, id: SeqId, domain: &Domain) {
        let index = id as usize;
        let admission = Admission {
            cache: self.config.blocks < 64,
            tenant: domain.tenants[index],
            stored: domain.stored[index],
            ..Admission::new(id, &domain.prompts[index], domain.answers[index])
        };
        Scheduler::add(self, admission).expect("room in the queue");
    }

    fn park(&mut self, id: SeqId, parked: bool) {
        assert!(if parked {
            Scheduler::park(self, id)
        } else {
            Scheduler::unpark(self, id)
        });
    }

    fn io_done(&mut self, unit_no: u64, blocks: u32) {
        assert!(!Scheduler::io_done(self, unit_no + 1, blocks, 1), "I8");
        assert!(Scheduler::io_done(self, unit_no, blocks, 1));
        assert!(!Scheduler::io_done(self, unit_no, blocks, 1), "I8");
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
        let elapsed = step_us(step).cast_unsigned();
        if Scheduler::complete(self, no - 1, 1, &outcomes) != late {
            return Err("I8 a late completion was taken");
        }
        let ended = Scheduler::complete(self, no, elapsed, &outcomes)
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
        key.extend(self.blocks.unsaved_keys());
        key.push(u64::from(self.outstanding.is_some()));
        for sequence in self.residents.iter() {
            key.extend([
                sequence.id,
                u64::from(sequence.computed),
                u64::from(sequence.phase == Phase::Ready),
                u64::from(sequence.loading),
                u64::from(sequence.loadable(self.config.block_tokens)),
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
    tenants: Vec<TenantId>,
    /// Leading prompt tokens that the store has.
    stored: Vec<u32>,
    /// Clients may stop reading and read again.
    parks: bool,
    /// At most so many requests are cancelled.
    cancels: u32,
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
    /// Block-long prefixes that some step has computed or loaded, and those that ended in the middle of a block.
    computed: BTreeSet<Vec<u32>>,
    parked: u32,
    cancelled: u32,
    /// The unit that did not end with its step.
    late: Option<IoUnit>,
    /// By tenant, what it was charged (1/1000 µs) and whether its prompts waited; the explorer's own account.
    charged: BTreeMap<TenantId, (i64, bool)>,
    clock: i64,
}

/// What the environment does around one plan; sets are bit masks.
#[derive(Clone, Copy)]
struct Events {
    arrive: u32,
    ready: u32,
    /// Parks a client's sequence, or wakes it.
    park: Option<usize>,
    cancel: Option<usize>,
    cancel_in_flight: Option<usize>,
    /// What becomes of the I/O unit that is under way.
    io: IoEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IoEnd {
    Done,
    /// One block fewer than asked.
    Short,
    Late,
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
            "park {:?}, cancel {:?}, in flight {:?}, I/O {:?}",
            self.park, self.cancel, self.cancel_in_flight, self.io
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
        parked: 0,
        cancelled: 0,
        late: None,
        charged: BTreeMap::new(),
        clock: 0,
    };
    let mut seen = HashMap::from([(start.key(), 0)]);
    let mut history: Vec<Option<(usize, Events)>> = vec![None];
    let mut broken = HashMap::new();
    let mut queue = VecDeque::from([(0, start)]);
    while let Some((index, world)) = queue.pop_front() {
        assert!(seen.len() < 200_000, "the domain is not tiny");
        for events in world.choices(domain) {
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
    (u32, u32, Option<IoKind>),
    Vec<(TenantId, i64, bool)>,
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
            (
                self.parked,
                self.cancelled,
                self.late.as_ref().map(|unit| unit.kind.clone()),
            ),
            self.accounts(),
        )
    }

    /// Levels above the clock; of no account where there is one tenant.
    fn accounts(&self) -> Vec<(TenantId, i64, bool)> {
        let accounts = self.charged.iter().filter(|_| self.charged.len() > 1);
        accounts
            .map(|(&tenant, &(charged, waited))| (tenant, (charged - self.clock).max(0), waited))
            .collect()
    }

    fn choices(&self, domain: &Domain) -> Vec<Events> {
        let mask = |test: fn(&Life) -> bool| {
            self.lives
                .iter()
                .enumerate()
                .filter(|(_, life)| test(life))
                .fold(0, |mask, (i, _)| mask | 1 << i)
        };
        let coming = mask(|life| *life == Life::Coming);
        let busy = mask(|life| matches!(life, Life::Decode { ready: false, .. }));
        let decoding = mask(|life| matches!(life, Life::Decode { .. }));
        let live = mask(|life| !matches!(life, Life::Coming | Life::Gone));
        let none = |arrive, ready| Events {
            arrive,
            ready,
            park: None,
            cancel: None,
            cancel_in_flight: None,
            io: IoEnd::Done,
        };
        let may_cancel = self.cancelled < domain.cancels;
        let mut choices = Vec::new();
        for arrive in subsets(coming) {
            for ready in subsets(busy) {
                let none = none(arrive, ready);
                choices.push(none);
                for i in members(live).filter(|_| may_cancel) {
                    let cancel = Some(i);
                    choices.push(Events { cancel, ..none });
                }
                for i in members(live | arrive).filter(|_| may_cancel) {
                    let cancel_in_flight = Some(i);
                    choices.push(Events {
                        cancel_in_flight,
                        ..none
                    });
                }
                // A client stops reading when it was told something.
                for i in members(decoding).filter(|_| domain.parks) {
                    let park = Some(i);
                    choices.push(Events { park, ..none });
                }
            }
        }
        if domain.stored.iter().any(|&stored| stored > 0) {
            let ends = [IoEnd::Short, IoEnd::Late];
            let with = |events: Events| ends.map(|io| Events { io, ..events });
            choices.extend(choices.clone().into_iter().flat_map(with));
        }
        choices
    }

    /// Events, a plan, its checks, its completion.
    fn step(&mut self, events: Events, domain: &Domain) -> Result<(), &'static str> {
        for i in members(events.arrive) {
            self.lives[i] = Life::Prefill { computed: 0 };
            self.system.add(i as SeqId, domain);
        }
        if let Some(i) = events.park {
            self.parked ^= 1 << i;
            self.unserved[i] = 0;
            self.passed_over &= !(1 << i);
            self.system.park(i as SeqId, self.parked & 1 << i != 0);
        }
        for i in members(events.ready) {
            if let Life::Decode { ready, .. } = &mut self.lives[i] {
                *ready = true;
                self.system.ready(i as SeqId);
            }
        }
        if let Some(i) = events.cancel {
            self.system.cancel(i as SeqId);
            self.cancelled += 1;
            self.remove(i);
        }
        if let Some(unit) = self.late.take() {
            self.end_io(unit, events.io, domain);
        }
        self.begin_accounts(domain);
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
            self.cancelled += 1;
        }
        if let Some(unit) = plan.io.clone() {
            self.end_io(unit, events.io, domain);
        }
        if !is_empty(&plan) {
            self.system.complete(&plan)?;
        }
        self.charge(&plan, domain);
        self.advance(&plan, domain);
        if let Some(i) = events.cancel_in_flight {
            self.remove(i);
        }
        // Whoever is being loaded stays until that is over.
        let loading = self.loading();
        let gone = |&i: &usize| self.lives[i] == Life::Gone && loading != Some(i);
        if (0..self.lives.len())
            .filter(gone)
            .any(|i| self.system.alive(i as SeqId))
        {
            return Err("I6 a sequence outlives its end");
        }
        Ok(())
    }

    /// The sequence whose load is late.
    fn loading(&self) -> Option<usize> {
        match self.late.as_ref()?.kind {
            IoKind::Load { id, .. } => Some(id as usize),
            IoKind::Save { .. } => None,
        }
    }

    fn end_io(&mut self, unit: IoUnit, end: IoEnd, domain: &Domain) {
        let (load, asked) = match &unit.kind {
            IoKind::Load {
                id,
                start_block,
                blocks,
            } => (Some((*id as usize, *start_block)), *blocks),
            IoKind::Save { blocks } => (None, blocks.len() as u32),
        };
        let done = match end {
            IoEnd::Done => asked,
            IoEnd::Short => asked - 1,
            IoEnd::Late => {
                self.late = Some(unit);
                return;
            }
        };
        self.system.io_done(unit.unit_no, done);
        let Some((i, start_block)) = load else {
            return;
        };
        // As the system was told.
        self.add_charge(domain.tenants[i], 1000);
        let end = (start_block + done) * domain.block_tokens;
        // Also for others, when its own client is gone.
        self.note_computed(i, end, domain);
        if let Life::Prefill { computed } = &mut self.lives[i] {
            *computed = end;
        }
    }

    fn note_computed(&mut self, i: usize, end: u32, domain: &Domain) {
        for k in 1..=end / domain.block_tokens {
            self.computed
                .insert(domain.prompts[i][..(k * domain.block_tokens) as usize].to_vec());
        }
        self.computed
            .insert(domain.prompts[i][..end as usize].to_vec());
    }

    /// Who begins to wait starts level with those that did.
    fn begin_accounts(&mut self, domain: &Domain) {
        let mut waiting = BTreeSet::new();
        for i in 0..self.lives.len() {
            let prompt = matches!(self.lives[i], Life::Prefill { .. });
            if prompt && self.parked & 1 << i == 0 {
                waiting.insert(domain.tenants[i]);
                self.charged.entry(domain.tenants[i]).or_default();
            }
        }
        let mut least = None;
        for (tenant, (charged, waited)) in &mut self.charged {
            let waits = waiting.contains(tenant);
            if waits && !*waited {
                *charged = (*charged).max(self.clock);
            }
            *waited = waits;
            if waits {
                least = Some(least.map_or(*charged, |least: i64| least.min(*charged)));
            }
        }
        self.clock = self.clock.max(least.unwrap_or(self.clock));
    }

    fn add_charge(&mut self, tenant: TenantId, time: i64) {
        self.charged.entry(tenant).or_default().0 += time;
    }

    /// The decode rows share the intercept of a decode step, the ranges what there is beside it.
    fn charge(&mut self, plan: &Step, domain: &Domain) {
        let (rows, ranges) = (plan.decode.len() as i64, plan.prefill.len() as i64);
        for &id in &plan.decode {
            self.add_charge(domain.tenants[id as usize], 2000 / rows + 1000);
        }
        let intercept = if rows > 0 { 1000 } else { 2000 };
        for range in &plan.prefill {
            let cost = intercept / ranges + 1000 * i64::from(range.tokens);
            self.add_charge(domain.tenants[range.id as usize], cost);
        }
    }

    /// I7: no tenant is given prompt tokens while another that was charged less has a prompt that could run and gets none.
    fn check_tenants(&self, plan: &Step, domain: &Domain) -> Result<(), &'static str> {
        let mut given: BTreeSet<TenantId> = BTreeSet::new();
        for range in &plan.prefill {
            given.insert(domain.tenants[range.id as usize]);
        }
        let io = plan.io.as_ref().or(self.late.as_ref());
        let has_load = |i: usize| domain.stored[i] > 0 && io.is_some();
        for i in 0..self.lives.len() {
            let tenant = domain.tenants[i];
            let runnable = matches!(self.lives[i], Life::Prefill { .. })
                && self.parked & 1 << i == 0
                && self.system.resident(i as SeqId)
                && !has_load(i);
            if !runnable || given.contains(&tenant) {
                continue;
            }
            let mine = self.charged[&tenant].0;
            // A tenth of a µs is rounding.
            if given.iter().any(|other| self.charged[other].0 > mine + 100) {
                return Err("I7 a tenant that was served less is passed over");
            }
        }
        Ok(())
    }

    fn remove(&mut self, i: usize) {
        self.parked &= !(1 << i);
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
        let reads = |i: usize| self.parked & 1 << i == 0;
        let loading = self.loading();
        let waits_for_io =
            |i: usize| loading == Some(i) || self.late.is_some() && domain.stored[i] > 0;
        let prompts = |i: &usize| {
            resident[*i]
                && reads(*i)
                && !waits_for_io(*i)
                && matches!(self.lives[*i], Life::Prefill { .. })
        };
        let ready =
            |i: &usize| reads(*i) && matches!(self.lives[*i], Life::Decode { ready: true, .. });
        let all = 0..self.lives.len();
        let prefilling = all.clone().any(|i| prompts(&i));
        let ready: Vec<usize> = all.clone().filter(ready).collect();
        let ready_mask = ready.iter().fold(0, |mask, i| mask | 1 << i);
        let active = all
            .clone()
            .any(|i| reads(i) && matches!(self.lives[i], Life::Decode { .. }));

        self.check_members(plan, &ready, domain)?;
        self.check_tenants(plan, domain)?;
        if is_empty(plan) && (prefilling || !ready.is_empty()) {
            return Err("I5 idle with runnable work");
        }
        let prompts_only = plan.decode.is_empty() && !is_empty(plan);
        if domain.mixes && prompts_only && !ready.is_empty() {
            return Err("I1 a step of prompts only while a decoder is ready");
        }
        if prompts_only && self.passed_over & ready_mask != 0 {
            return Err("I1 two steps of prompts only over the same ready decoder");
        }
        self.passed_over = if prompts_only { ready_mask } else { 0 };
        if active && step_us(plan) + io_us(plan) > self.limit_us(domain, ready.len()) {
            return Err("I2 a step longer than the stall bound");
        }
        let loads = matches!(
            plan.io,
            Some(IoUnit {
                kind: IoKind::Load { .. },
                ..
            })
        );
        self.without_prefill = if prefilling && plan.prefill.is_empty() && !loads {
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

    /// Whoever is in the plan may be, and what it does is possible.
    fn check_members(
        &self,
        plan: &Step,
        ready: &[usize],
        domain: &Domain,
    ) -> Result<(), &'static str> {
        for &id in &plan.decode {
            if !ready.contains(&(id as usize)) {
                return Err("I6 a sequence that cannot decode is in the plan");
            }
        }
        for range in &plan.prefill {
            let parked = self.parked & 1 << range.id != 0;
            if self.loading() == Some(range.id as usize) || parked {
                return Err("I6 a sequence that cannot prefill is in the plan");
            }
            self.check_range(*range, domain)?;
        }
        if plan.io.is_some() && self.late.is_some() {
            return Err("two I/O units at once");
        }
        if !domain.mixes && !plan.decode.is_empty() && !plan.prefill.is_empty() {
            return Err("a mixed step on a backend that cannot mix");
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
        let boundary =
            range.start == computed || self.computed.contains(&prompt[..range.start as usize]);
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
            self.note_computed(i, end, domain);
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

fn is_empty(plan: &Step) -> bool {
    plan.decode.is_empty() && plan.prefill.is_empty() && plan.io.is_none()
}

/// Load and save units cost 1 µs and 1 µs a block.
const IO: IoCost = IoCost {
    unit: micros(1),
    block: micros(1),
};

/// Expected time of the I/O unit.
fn io_us(plan: &Step) -> i64 {
    match plan.io.as_ref().map(|unit| &unit.kind) {
        None => 0,
        Some(IoKind::Load { blocks, .. }) => 1 + i64::from(*blocks),
        Some(IoKind::Save { blocks }) => 1 + blocks.len() as i64,
    }
}

/// Expected time of the forward pass.
fn step_us(plan: &Step) -> i64 {
    if plan.decode.is_empty() && plan.prefill.is_empty() {
        return 0;
    }
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
        tenants: vec![0; 4],
        stored: vec![0; 4],
        parks: false,
        cancels: u32::MAX,
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
        load_cost: IO,
        save_cost: IO,
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

/// Four sequences of two tenants in three slots, one client that leaves, clients that stop reading.
fn tenants(mixes: bool, patience: u32) -> (Domain, Scheduler) {
    let domain = Domain {
        prompts: vec![vec![1; 4], vec![2; 2], vec![3; 3], vec![4; 1]],
        answers: vec![2, 1, 2, 1],
        tenants: vec![7, 7, 9, 9],
        parks: true,
        cancels: 1,
        ..domain(mixes, patience)
    };
    let config = Config {
        slots: 3,
        ..scheduler(mixes, (!mixes).then_some(500), 0).config
    };
    (domain, Scheduler::new(config))
}

#[test]
fn tenants_and_parked_clients_keep_the_invariants() {
    let (domain, system) = tenants(true, 4);
    holds("mix, tenants, parks", system, &domain);
    let (domain, system) = tenants(false, 9);
    holds("hand-off, share ½, tenants, parks", system, &domain);
}

/// A prompt of which the store has a part, one that shares blocks with it and one that does not; units that fail or are
/// late, full blocks that are saved, a client that leaves.
fn store(mixes: bool, patience: u32) -> (Domain, Scheduler) {
    let domain = Domain {
        prompts: vec![vec![1; 5], vec![1, 1, 1, 2], vec![3; 3]],
        answers: vec![1, 2, 2],
        tenants: vec![7, 9, 9],
        stored: vec![4, 0, 0],
        cancels: 1,
        block_tokens: 2,
        ..domain(mixes, patience)
    };
    let config = Config {
        slots: 2,
        blocks: 8,
        block_tokens: 2,
        save_blocks: u32::MAX,
        ..scheduler(mixes, (!mixes).then_some(500), 0).config
    };
    (domain, Scheduler::new(config))
}

#[test]
fn loads_and_saves_keep_the_invariants() {
    let (domain, system) = store(true, 4);
    holds("mix, store", system, &domain);
    let (domain, system) = store(false, 9);
    holds("hand-off, share ½, store", system, &domain);
}

/// A scheduler that takes two tenants for one.
#[derive(Debug, Clone)]
struct OneTenant(Scheduler);

impl System for OneTenant {
    fn add(&mut self, id: SeqId, domain: &Domain) {
        let tenants = vec![0; domain.tenants.len()];
        let domain = Domain {
            tenants,
            ..domain.clone()
        };
        System::add(&mut self.0, id, &domain);
    }

    fn cancel(&mut self, id: SeqId) {
        System::cancel(&mut self.0, id);
    }

    fn ready(&mut self, id: SeqId) {
        System::ready(&mut self.0, id);
    }

    fn plan(&mut self) -> Option<Step> {
        System::plan(&mut self.0)
    }

    fn complete(&mut self, step: &Step) -> Result<(), &'static str> {
        System::complete(&mut self.0, step)
    }

    fn resident(&self, id: SeqId) -> bool {
        self.0.resident(id)
    }

    fn alive(&self, id: SeqId) -> bool {
        self.0.alive(id)
    }

    fn key(&self) -> Vec<u64> {
        self.0.key()
    }
}

#[test]
fn tenants_treated_as_one_are_caught() {
    let domain = Domain {
        prompts: vec![vec![1; 7], vec![2; 6], vec![3; 6]],
        tenants: vec![1, 1, 2],
        cancels: 0,
        ..domain(true, 3)
    };
    holds("mix, two tenants", scheduler(true, None, 0), &domain);
    let report = explore(OneTenant(scheduler(true, None, 0)), &domain);
    assert!(
        report
            .broken
            .contains_key("I7 a tenant that was served less is passed over")
    );
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
