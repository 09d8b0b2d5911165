//! The scheduler's face: events in, plans out, completions in.

mod collect;
mod io;
mod launch;

use std::collections::BTreeMap;

use self::io::{Outstanding, worth_loading};
use crate::blocks::Blocks;
use crate::config::Config;
use crate::cost::{Regime, Shape};
use crate::estimate::Estimate;
use crate::log::{Entry, Recorder};
use crate::map::PrefixMap;
use crate::policy::{Candidate, Policy, Turn, View};
use crate::queue::Queue;
use crate::residents::{Residents, Slot};
use crate::sequence::{Phase, Sequence};
use crate::stats::{BlockStats, Counts, Stats, TenantStats};
use crate::step::{AddError, Admission, CompleteError, Outcome, Plan, SeqId, StateCopy, Step};
use crate::tenants::Tenants;

/// Decides what runs next.
///
/// One owner calls [`plan`](Self::plan), runs the step, calls [`complete`](Self::complete), and tells events in between.
/// Every sequence is queued, then resident in a slot with its blocks reserved, then gone.
#[derive(Debug, Clone)]
pub struct Scheduler {
    config: Config,
    policy: Policy,
    estimate: Estimate,
    queue: Queue,
    tenants: Tenants,
    residents: Residents,
    /// Live ids: queued (`None`) or resident.
    places: BTreeMap<SeqId, Option<Slot>>,
    blocks: Blocks,
    /// Sum of the residents' needs.
    reserved: u32,
    arrivals: u64,
    step: Step,
    in_flight: bool,
    /// Slots of the step's decode rows, then of its prompt ranges.
    rows: Vec<Slot>,
    shape: Shape,
    io_units: u64,
    /// The unit that is under way: in the step in flight, or late.
    outstanding: Option<Outstanding>,
    /// Measured time of the I/O unit of the step in flight, µs.
    io_us: u64,
    /// Scratch.
    prompts: Vec<Candidate>,
    keys: Vec<Option<u64>>,
    ended: Vec<SeqId>,
    warmed: Vec<Slot>,
    /// States that residents go on from, to be copied with the next step.
    restores: Vec<StateCopy>,
    counts: Counts,
    /// Writes down every call; most runs have none.
    pub(crate) log: Option<Box<Recorder>>,
}

/// A decode step of one row that takes longer makes a machine slow: answers come at less than 40 tokens a second.
const SLOW_DECODE_US: u64 = 25_000;

impl Scheduler {
    /// # Panics
    /// If there are no slots, no blocks or no tokens in a block, or too few checkpoints for one step.
    pub fn new(config: Config) -> Self {
        assert!(
            config.slots > 0 && config.blocks > 0 && config.block_tokens > 0,
            "empty configuration"
        );
        assert!(
            config.checkpoints == 0 || config.checkpoints > config.slots + 1,
            "a step may fill a checkpoint for each of its sequences, and a load one more"
        );
        let slots = config.slots as usize;
        Self {
            policy: Policy::new(&config),
            estimate: Estimate::new(&config),
            queue: Queue::default(),
            tenants: Tenants::new(&config),
            residents: Residents::new(config.slots),
            places: BTreeMap::new(),
            blocks: Blocks::new(&config),
            reserved: 0,
            arrivals: 0,
            step: Step {
                decode: Vec::with_capacity(slots),
                prefill: Vec::with_capacity(slots),
                ..Step::default()
            },
            in_flight: false,
            rows: Vec::with_capacity(slots),
            shape: Shape::default(),
            io_units: 0,
            outstanding: None,
            io_us: 0,
            prompts: Vec::with_capacity(slots),
            keys: Vec::with_capacity(slots),
            ended: Vec::with_capacity(slots),
            warmed: Vec::with_capacity(slots),
            restores: Vec::new(),
            counts: Counts::default(),
            log: None,
            config,
        }
    }

    /// The configuration it was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes a request into the queue. May be called while a step is in flight.
    pub fn add(&mut self, request: Admission<'_>) -> Result<(), AddError> {
        self.note(Entry::Add(request));
        let tokens = request.prompt.len() as u64 + u64::from(request.max_new);
        let needed = tokens.div_ceil(u64::from(self.config.block_tokens));
        if request.prompt.is_empty() {
            return Err(AddError::EmptyPrompt);
        }
        if request.max_new == 0 {
            return Err(AddError::NoTokens);
        }
        if needed > u64::from(self.config.blocks) {
            return Err(AddError::TooLong {
                needed,
                blocks: self.config.blocks,
            });
        }
        if self.places.contains_key(&request.id) {
            return Err(AddError::DuplicateId { id: request.id });
        }
        if self.queue.len() >= self.config.max_queue {
            return Err(AddError::QueueFull {
                queued: self.queue.len(),
            });
        }
        let sequence = Sequence::new(&request, self.arrivals, self.config.block_tokens);
        self.arrivals += 1;
        let uncached =
            sequence.prompt - sequence.cached_prefix(&self.blocks, self.config.block_tokens);
        self.places.insert(request.id, None);
        self.tenants.arrive(sequence.flow);
        self.queue.push(sequence, uncached);
        Ok(())
    }

    /// Ends a sequence. It is in no later plan; its blocks are free at once or, when a row of it is in flight or its KV is
    /// being loaded, as soon as that is done. False if there is no such sequence (any more).
    pub fn cancel(&mut self, id: SeqId) -> bool {
        self.note(Entry::Cancel(id));
        let Some(&place) = self.places.get(&id) else {
            return false;
        };
        let Some(slot) = place else {
            if let Some(sequence) = self.queue.remove(id) {
                self.tenants.leave_queue(sequence.flow);
            }
            self.places.remove(&id);
            return true;
        };
        let sequence = self.residents.get_mut(slot);
        if sequence.in_step || sequence.loading {
            return !std::mem::replace(&mut sequence.draining, true);
        }
        self.end(slot);
        true
    }

    /// Takes a resident sequence out of the plans because its client does not read; it keeps its blocks.
    pub fn park(&mut self, id: SeqId) -> bool {
        self.note(Entry::Park(id));
        self.live_mut(id)
            .is_some_and(|sequence| !std::mem::replace(&mut sequence.parked, true))
    }

    /// Takes a parked sequence back into the plans.
    pub fn unpark(&mut self, id: SeqId) -> bool {
        self.note(Entry::Unpark(id));
        self.live_mut(id)
            .is_some_and(|sequence| std::mem::replace(&mut sequence.parked, false))
    }

    /// A ready decoder cannot run for a moment (its grammar mask is late, its token travels).
    pub fn busy(&mut self, id: SeqId) -> bool {
        self.note(Entry::Busy(id));
        self.change_phase(id, Phase::Ready, Phase::Busy { sampling: false })
    }

    /// Ends [`busy`](Self::busy).
    pub fn ready(&mut self, id: SeqId) -> bool {
        self.note(Entry::Ready(id));
        self.change_phase(id, Phase::Busy { sampling: false }, Phase::Ready)
    }

    /// Brings the outcome that [`Outcome::Sampling`] announced: a token, the end or a failure. False if none is awaited.
    pub fn sampled(&mut self, id: SeqId, outcome: Outcome) -> bool {
        self.note(Entry::Sampled { id, outcome });
        let awaited = |sequence: &&mut Sequence| sequence.phase == Phase::Busy { sampling: true };
        if self.live_mut(id).filter(awaited).is_none() || !outcome.is_sampled() {
            return false;
        }
        if let Some(&Some(slot)) = self.places.get(&id)
            && self.settle_outcome(slot, outcome)
        {
            self.end(slot);
        }
        true
    }

    /// Decides what runs next.
    ///
    /// # Panics
    /// If a step is in flight.
    pub fn plan(&mut self, now_us: u64) -> Plan<'_> {
        assert!(!self.in_flight, "one step at a time");
        let prompts = self
            .residents
            .iter()
            .filter(|sequence| sequence.is_prompt());
        let waiting = prompts.chain(self.queue.iter());
        self.tenants
            .update_waiting(waiting.map(|sequence| sequence.flow));
        self.admit();
        let ready = self.survey();
        let active = self.residents.active();
        self.policy.set_stall(self.stall_us());
        let view = View {
            prompts: &self.prompts,
            ready,
            active,
            estimate: &self.estimate,
            may_save: self.outstanding.is_none() && self.blocks.has_unsaved(),
        };
        let plan = match self.policy.decide(view) {
            Turn::Idle => Plan::Idle,
            Turn::Wait => Plan::Wait {
                until_us: now_us.saturating_add(self.config.wait_us),
            },
            Turn::Step { decode, forced } => {
                self.launch(decode, forced, active > 0);
                Plan::Step(&self.step)
            }
        };
        if let Some(log) = &mut self.log {
            log.note(Entry::Plan { now_us, plan });
        }
        plan
    }

    /// Nothing has been asked of it yet.
    pub(crate) fn is_new(&self) -> bool {
        self.arrivals == 0 && self.step.step_no == 0
    }

    /// The step in flight, if any.
    pub fn in_flight(&self) -> Option<&Step> {
        self.in_flight.then_some(&self.step)
    }

    /// Takes in what a step computed: `outcomes` has one entry for each decode row, then one for each prompt range.
    /// Outcomes of cancelled sequences are ignored. Gives the sequences that ended with this step.
    pub fn complete(
        &mut self,
        step_no: u64,
        elapsed_us: u64,
        outcomes: &[Outcome],
    ) -> Result<&[SeqId], CompleteError> {
        self.note(Entry::Complete {
            step_no,
            elapsed_us,
            outcomes,
        });
        self.check(step_no, outcomes)?;
        self.in_flight = false;
        self.learn(elapsed_us);
        self.ended.clear();
        let decodes = self.step.decode.len();
        for (row, &outcome) in outcomes.iter().enumerate() {
            let slot = self.rows[row];
            let tokens = if row < decodes {
                1
            } else {
                let range = self.step.prefill[row - decodes];
                if range.last && outcome != Outcome::Failed {
                    self.count_missed(slot);
                }
                range.tokens
            };
            if self.finish_row(slot, tokens, outcome) {
                self.ended.push(self.residents.get(slot).id);
                self.end(slot);
            }
        }
        Ok(&self.ended)
    }

    /// Prompt and generated tokens of a live sequence.
    pub fn tokens(&self, id: SeqId) -> Option<&[u32]> {
        self.sequence(id).map(|sequence| &sequence.tokens[..])
    }

    /// What a live sequence's blocks are salted with.
    pub fn salt(&self, id: SeqId) -> Option<u64> {
        self.sequence(id).map(|sequence| sequence.salt)
    }

    /// Whether a sequence has left the queue and lives.
    pub fn is_resident(&self, id: SeqId) -> bool {
        matches!(self.places.get(&id), Some(Some(_)))
    }

    /// KV blocks of a resident sequence, enough for every row that the step in flight has of it.
    pub fn block_table(&self, id: SeqId) -> Option<&[u32]> {
        self.sequence(id).map(|sequence| &sequence.blocks[..])
    }

    /// The block before an indexed block, if there is one, and the tokens it holds; `None` for a block without content.
    pub fn block_content(&self, block: u32) -> Option<(Option<u32>, &[u32])> {
        self.blocks.content(block)
    }

    /// The running state of a resident sequence, if the model has such states.
    pub fn running_state(&self, id: SeqId) -> Option<u32> {
        self.blocks.checkpoints.as_ref()?;
        *self.places.get(&id)?
    }

    /// The checkpoint of running state at the end of an indexed block, if there is one to be saved with it.
    pub fn block_state(&self, block: u32) -> Option<u32> {
        self.blocks.lasting_state(block)
    }

    /// The salt of the sequences that an indexed block belongs to.
    pub fn block_salt(&self, block: u32) -> u64 {
        self.blocks.salt(block)
    }

    /// Which prefixes memory holds, in at most `most` runs of blocks. Takes time and memory for every block.
    pub fn prefix_map(&self, most: usize) -> PrefixMap {
        PrefixMap::new(&self.blocks, most)
    }

    /// Whether there is a full block that the store was not offered yet.
    pub fn has_unsaved(&mut self) -> bool {
        self.blocks.has_unsaved()
    }

    /// The tenants' accounts, in the order of their ids.
    pub fn tenants(&self) -> impl Iterator<Item = TenantStats> {
        self.tenants.stats()
    }

    /// Prompt tokens of a live sequence that did not have to be computed.
    pub fn cached_tokens(&self, id: SeqId) -> Option<u32> {
        self.sequence(id).map(|sequence| sequence.cached)
    }

    /// Expected time until a slot is free, µs: what all unfinished prompts cost, and the shortest answer under way.
    pub fn drain_estimate_us(&self) -> u64 {
        let model = self.estimate.model();
        let range = |sequence: &Sequence| {
            model.range(sequence.computed, sequence.remaining()) >> crate::FRACTION_BITS
        };
        let prompts: i64 = self
            .residents
            .iter()
            .chain(self.queue.iter())
            .map(range)
            .sum();
        let left = self
            .residents
            .iter()
            .map(|sequence| sequence.max_new - sequence.generated())
            .min();
        let step = model.step_us(self.decode_shape()).max(0);
        u64::try_from(prompts.saturating_add(step.saturating_mul(i64::from(left.unwrap_or(0)))))
            .unwrap_or(0)
    }

    /// A snapshot for status pages.
    pub fn stats(&self) -> Stats {
        let (blocks, counts) = (&self.blocks, &self.counts);
        Stats {
            queued: self.queue.len(),
            resident: self.residents.len(),
            prefilling: self
                .residents
                .count(|sequence| sequence.phase == Phase::Prefill),
            active: self.residents.active(),
            parked: self.residents.count(|sequence| sequence.parked),
            blocks: BlockStats {
                total: blocks.total(),
                used: blocks.total() - blocks.cached() - blocks.free(),
                cached: blocks.cached(),
                free: blocks.free(),
                reserved: self.reserved,
            },
            prefill_tokens: counts.prefill_tokens,
            cached_tokens: counts.cached_tokens,
            decode_tokens: counts.decode_tokens,
            steps: counts.steps,
            predicted_us: counts.predicted_us,
            actual_us: counts.actual_us,
            violations: counts.violations,
            disturbances: counts.disturbances,
            failed: counts.failed,
            cost: *self.estimate.model(),
            stall_us: self.stall_us(),
            stall_kept: counts.stall_kept,
            loaded_tokens: counts.loaded_tokens,
            saved_blocks: counts.saved_blocks,
            io_failures: counts.io_failures,
            margin_permille: self.estimate.margins(),
            times: counts.times,
            missed: counts.missed,
        }
    }

    /// Gives free slots to queued sequences whose blocks can be reserved.
    fn admit(&mut self) {
        let block_tokens = self.config.block_tokens;
        while let Some(slot) = self.residents.vacant() {
            let unreserved = self.config.blocks - self.reserved;
            let fits = |sequence: &Sequence| sequence.needed_blocks(block_tokens) <= unreserved;
            let Some(mut sequence) = self.queue.next(&mut self.tenants, fits) else {
                return;
            };
            sequence.miss = sequence.missing(&self.blocks, block_tokens);
            self.reserved += sequence.needed_blocks(block_tokens);
            self.places.insert(sequence.id, Some(slot));
            self.residents.insert(slot, sequence);
        }
    }

    /// Lists the prompts that could run, after they took over what others have computed; gives the ready decoders.
    fn survey(&mut self) -> Shape {
        let block_tokens = self.config.block_tokens;
        self.prompts.clear();
        self.keys.clear();
        for rank in 0.. {
            let Some(slot) = self.residents.by_rank(rank) else {
                break;
            };
            let sequence = self.residents.get_mut(slot);
            if !sequence.is_prompt() || sequence.loading {
                continue;
            }
            let cached = sequence.cached;
            sequence.adopt(&mut self.blocks, block_tokens);
            self.counts.cached_tokens += u64::from(sequence.cached - cached);
            if let Some(from) = sequence.take_restore() {
                self.restores.push(StateCopy { from, to: slot });
            }
            let loadable = worth_loading(sequence, &self.estimate, block_tokens);
            let left = sequence.remaining() - u32::from(sequence.warm);
            if sequence.warm && loadable == 0 && (left == 0 || left >= block_tokens) {
                self.warmed.push(slot);
                continue;
            }
            if loadable > 0 && self.outstanding.is_some() {
                continue;
            }
            let index = self.prompts.len();
            let flow = |prompt: &Candidate| self.residents.get(prompt.slot).flow;
            let sequence = self.residents.get(slot);
            let first = self.prompts.iter().position(|p| flow(p) == sequence.flow);
            let (tenant, class) = self.tenants.rank(sequence.flow);
            let stretch = sequence.stretch(&self.config);
            self.keys.push(sequence.next_key(block_tokens, stretch));
            self.prompts.push(Candidate {
                slot,
                turn: (tenant, class, first.unwrap_or(index)),
                start: sequence.computed,
                remaining: left - loadable * block_tokens,
                stretch: stretch.unwrap_or(u32::MAX),
                loadable,
                leader: index,
            });
        }
        while let Some(slot) = self.warmed.pop() {
            self.end(slot);
        }
        self.find_leaders();
        self.decode_shape()
    }

    /// T_stall in force, µs: what was asked, or four decode steps of a slow machine.
    fn stall_us(&self) -> u64 {
        let asked = self.config.t_stall_us;
        if !self.config.stall_auto || !self.estimate.is_learnt(Regime::Decode) {
            return asked;
        }
        let row = Shape {
            rows: 1,
            ..Shape::default()
        };
        // Costs are not negative.
        let step_us = self.estimate.model().step_us(row) as u64;
        if step_us > SLOW_DECODE_US {
            asked.max(4 * step_us)
        } else {
            asked
        }
    }

    /// Of the prompts that need the same block next, the one that is furthest in it computes it, and those at its start
    /// wait: equal prompts are computed once.
    fn find_leaders(&mut self) {
        for index in 0..self.prompts.len() {
            let Some(key) = self.keys[index] else {
                continue;
            };
            if !self.prompts[index]
                .start
                .is_multiple_of(self.config.block_tokens)
            {
                continue;
            }
            let rivals = (0..self.prompts.len()).filter(|&other| self.keys[other] == Some(key));
            // The earliest of those with the highest start.
            let leader = rivals.rev().max_by_key(|&other| self.prompts[other].start);
            self.prompts[index].leader = leader.unwrap_or(index);
        }
    }

    /// Removes a resident sequence and gives back its blocks.
    fn end(&mut self, slot: Slot) {
        let mut sequence = self.residents.remove(slot);
        self.reserved -= sequence.needed_blocks(self.config.block_tokens);
        self.tenants.leave(sequence.flow);
        sequence.release(&mut self.blocks, self.config.block_tokens);
        self.places.remove(&sequence.id);
    }

    fn change_phase(&mut self, id: SeqId, from: Phase, to: Phase) -> bool {
        let Some(sequence) = self
            .live_mut(id)
            .filter(|sequence| sequence.phase == from && !sequence.in_step)
        else {
            return false;
        };
        sequence.phase = to;
        true
    }

    fn decode_shape(&self) -> Shape {
        let mut shape = Shape::default();
        for sequence in self
            .residents
            .iter()
            .filter(|sequence| sequence.runs_next())
        {
            shape.rows += 1;
            shape.context += sequence.tokens.len() as u64;
        }
        shape
    }

    /// A resident sequence that is not about to end.
    fn live_mut(&mut self, id: SeqId) -> Option<&mut Sequence> {
        let slot = (*self.places.get(&id)?)?;
        Some(self.residents.get_mut(slot)).filter(|sequence| !sequence.draining)
    }

    fn sequence(&self, id: SeqId) -> Option<&Sequence> {
        match *self.places.get(&id)? {
            Some(slot) => Some(self.residents.get(slot)),
            None => self.queue.iter().find(|sequence| sequence.id == id),
        }
    }
}

impl Outcome {
    /// Whether it can end the wait for a token.
    fn is_sampled(self) -> bool {
        matches!(self, Self::Token(_) | Self::Finish | Self::Failed)
    }
}

#[cfg(test)]
impl Scheduler {
    /// Every block is accounted for.
    pub(crate) fn check_blocks(&self) {
        let tables: Vec<&[u32]> = self
            .residents
            .iter()
            .map(|sequence| &sequence.blocks[..])
            .collect();
        self.blocks.check(&tables);
        if let Some(checkpoints) = &self.blocks.checkpoints {
            let load = self.outstanding.is_some_and(|unit| unit.state.is_some());
            let keeping = self.residents.count(Sequence::is_keeping);
            let on_the_way = keeping as usize + usize::from(load);
            checkpoints.check(self.config.checkpoints, on_the_way);
            let indexed = |block| self.blocks.content(block).is_some();
            assert!(
                checkpoints.blocks().all(indexed),
                "a checkpoint outlives its block"
            );
        }
        let needs = self
            .residents
            .iter()
            .map(|sequence| sequence.needed_blocks(self.config.block_tokens));
        assert_eq!(self.reserved, needs.sum::<u32>());
        assert!(self.reserved <= self.config.blocks);
        let distinct: std::collections::BTreeSet<u32> =
            tables.into_iter().flatten().copied().collect();
        assert!(distinct.len() <= self.reserved as usize);
    }
}

#[cfg(test)]
mod tests;
