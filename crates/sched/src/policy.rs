//! The policy: decode rows first, then as many prompt tokens as the time budget allows.
//!
//! The stall-free mixed step of Sarathi-Serve (arXiv 2403.02310) with a budget in time instead of tokens; where a backend
//! cannot mix, prefill turns and decode turns alternate. Loading KV is prefill work; saving it takes what time is left.
//! Pure: sees counts and costs, remembers four values.

use crate::config::{Config, Mode};
use crate::cost::{Fixed, Regime, Shape, fixed};
use crate::estimate::Estimate;

/// A prompt that may be given tokens in this step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    /// The caller's name for it.
    pub(crate) slot: u32,
    /// Rank of its flow: less comes first, equal is the same flow.
    pub(crate) turn: (u64, u64, usize),
    /// Tokens computed.
    pub(crate) start: u32,
    /// Tokens still to compute; of one that loads, when it has loaded.
    pub(crate) remaining: u32,
    /// Most tokens of it in one range: the range must end where a checkpoint is due. `u32::MAX` where none is.
    pub(crate) stretch: u32,
    /// Blocks to load before anything is computed.
    pub(crate) loadable: u32,
    /// Candidate that is computing its next block already: it waits for that one and lends it its rank. Its own index
    /// if there is none.
    pub(crate) leader: usize,
}

/// What the policy decides about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    /// Prompts in arrival order.
    pub(crate) prompts: &'a [Candidate],
    /// Ready decoders.
    pub(crate) ready: Shape,
    /// Ready and busy decoders.
    pub(crate) active: u32,
    /// What things cost.
    pub(crate) estimate: &'a Estimate,
    /// There is KV to save, and no I/O unit is outstanding.
    pub(crate) may_save: bool,
}

/// A decision; its prompt ranges are in [`Policy::parts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing can run.
    Idle,
    /// Give busy decoders a moment to become ready.
    Wait,
    /// Run a step.
    Step {
        /// All ready decoders run.
        decode: bool,
        /// The prompt range is the smallest allowed one, taken because the budget had no room for it.
        forced: bool,
    },
}

/// Blocks that a step moves before its forward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Io {
    /// For a prompt: an index into [`View::prompts`], and at least one block.
    Load { prompt: usize, blocks: u32 },
    /// At most so many, at least one.
    Save { blocks: u32 },
}

/// Tokens given to a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// Index into [`View::prompts`].
    pub(crate) prompt: usize,
    /// At least 1.
    pub(crate) tokens: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct Policy {
    mode: Mode,
    t_stall_us: i64,
    t_idle_us: i64,
    most_contended: u32,
    oldest_permille: u32,
    row_granule: u32,
    share_permille: Option<u32>,
    may_wait: bool,
    save_blocks: u32,
    /// A wait for a busy decoder is allowed: at most one per step boundary.
    reservation: bool,
    /// The last step was a prefill turn; the next one belongs to the ready decoders.
    decode_owed: bool,
    /// Time that prefill may still take from the decoders, when it has a share.
    credit: Fixed,
    /// Time that saving may take from the decoders.
    save_credit: Fixed,
    parts: Vec<Part>,
    io: Option<Io>,
    /// What is left of the step's budget.
    spare: Fixed,
    /// Scratch: prompts, shortest first.
    order: Vec<usize>,
}

impl Policy {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            mode: config.mode,
            t_stall_us: budget(config.t_stall_us),
            t_idle_us: budget(config.t_idle_us),
            most_contended: config.q_max_contended.max(1),
            oldest_permille: config.oldest_permille.min(1000),
            row_granule: config.row_granule.max(1),
            share_permille: config.prefill_share_permille.map(|share| share.min(999)),
            may_wait: config.wait_us > 0,
            save_blocks: config.save_blocks,
            reservation: false,
            decode_owed: false,
            credit: 0,
            save_credit: 0,
            io: None,
            spare: 0,
            // One for each prompt; never grows.
            parts: Vec::with_capacity(config.slots as usize),
            order: Vec::with_capacity(config.slots as usize),
        }
    }

    /// The prompt ranges of the last decision, in order of arrival.
    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// What the last decision moves.
    pub(crate) fn io(&self) -> Option<Io> {
        self.io
    }

    /// Changes T_stall, µs.
    pub(crate) fn set_stall(&mut self, t_stall_us: u64) {
        self.t_stall_us = budget(t_stall_us);
    }

    /// Budget of a step, µs.
    pub(crate) fn budget_us(&self, contended: bool) -> i64 {
        if contended {
            self.t_stall_us
        } else {
            self.t_idle_us
        }
    }

    pub(crate) fn decide(&mut self, view: View<'_>) -> Turn {
        self.parts.clear();
        self.io = None;
        self.spare = 0;
        let mut turn = self.turn(view);
        if view.may_save && self.io.is_none() {
            turn = self.save(view, turn);
        }
        self.parts.sort_unstable_by_key(|part| part.prompt);
        turn
    }

    /// Saves in the time that is left. Decoders lose at most a fifth of theirs to it: what a save takes, four times as much
    /// has been decoded before. With nothing else to do, one block at least is saved.
    fn save(&mut self, view: View<'_>, turn: Turn) -> Turn {
        let estimate = view.estimate.save();
        let room = match turn {
            Turn::Idle if view.active == 0 => fixed(self.t_idle_us).max(estimate.units(1)),
            Turn::Idle | Turn::Wait => return turn,
            Turn::Step { .. } if view.active == 0 => self.spare,
            Turn::Step { decode, .. } => {
                if decode {
                    let earned = fixed(view.estimate.model().step_us(view.ready)) / 4;
                    let most = fixed(self.t_stall_us).max(estimate.units(1));
                    self.save_credit = self.save_credit.saturating_add(earned).min(most);
                }
                self.spare.min(self.save_credit)
            }
        };
        let blocks = estimate.blocks_within(room, self.save_blocks);
        if blocks == 0 {
            return turn;
        }
        if view.active > 0 {
            self.save_credit = (self.save_credit - estimate.units(blocks)).max(0);
        }
        self.io = Some(Io::Save { blocks });
        match turn {
            Turn::Idle => Turn::Step {
                decode: false,
                forced: false,
            },
            step => step,
        }
    }

    fn turn(&mut self, view: View<'_>) -> Turn {
        if view.prompts.is_empty() && view.ready.rows == 0 {
            return Turn::Idle;
        }
        if self.may_wait && self.reservation && view.ready.rows < view.active {
            self.reservation = false;
            return Turn::Wait;
        }
        self.reservation = true;
        if view.prompts.is_empty() || view.active == 0 {
            // The contention is over: no debt is carried, no credit hoarded.
            self.credit = 0;
        }
        if view.prompts.is_empty() {
            let decode_us = view.estimate.model().step_us(view.ready);
            self.spare = fixed(view.estimate.planned(Regime::Decode, self.t_stall_us) - decode_us);
            return Turn::Step {
                decode: true,
                forced: false,
            };
        }
        match self.mode {
            Mode::Mix if view.ready.rows > 0 => self.mixed_step(view),
            Mode::HandOff if view.ready.rows > 0 && (self.decode_owed || self.credit < 0) => {
                self.decode_owed = false;
                self.credit = self
                    .credit
                    .saturating_add(self.earned(view.estimate.model().step_us(view.ready)));
                Turn::Step {
                    decode: true,
                    forced: false,
                }
            }
            _ => self.prefill_turn(view),
        }
    }

    /// All ready decoders and what prefill fits beside them.
    fn mixed_step(&mut self, view: View<'_>) -> Turn {
        let model = view.estimate.model();
        let decode_us = model.step_us(view.ready);
        let base_us = model.regime_us(Regime::Mixed, view.ready);
        let stall = fixed(self.t_stall_us);
        let mut room = fixed(view.estimate.planned(Regime::Mixed, self.t_stall_us) - base_us);
        if self.share_permille.is_some() {
            self.credit = self.credit.saturating_add(self.earned(decode_us));
            if self.credit < stall {
                room = room.min(self.credit.saturating_sub(fixed(base_us - decode_us)));
            }
        }
        self.allocate(view, Regime::Mixed, room);
        let forced = self.below_floor(view, Regime::Mixed);
        if forced {
            self.force_floor(view, Regime::Mixed);
            let needed = self
                .parts_cost(view)
                .saturating_add(fixed(base_us - decode_us));
            if self.share_permille.is_some() && self.credit < needed {
                self.parts.clear();
                self.io = None;
                return Turn::Step {
                    decode: true,
                    forced: false,
                };
            }
        }
        if self.share_permille.is_some() {
            let step_us = model.regime_us(Regime::Mixed, self.shape(view, view.ready));
            let cost = fixed(step_us - decode_us).saturating_add(self.load_cost(view));
            self.credit = self.credit.saturating_sub(cost).clamp(-stall, stall);
        }
        Turn::Step {
            decode: true,
            forced,
        }
    }

    /// Prompts alone: nobody is decoding, no decoder is ready, or the backend cannot mix and it is prefill's turn.
    fn prefill_turn(&mut self, view: View<'_>) -> Turn {
        let contended = view.active > 0;
        let model = view.estimate.model();
        let planned_us = view
            .estimate
            .planned(Regime::Prefill, self.budget_us(contended));
        let base_us = model.regime_us(Regime::Prefill, Shape::default());
        self.allocate(view, Regime::Prefill, fixed(planned_us - base_us));
        let forced = if contended {
            self.below_floor(view, Regime::Prefill)
        } else {
            self.parts.is_empty() && self.io.is_none()
        };
        if forced {
            self.force_floor(view, Regime::Prefill);
        }
        if contended {
            self.decode_owed = true;
            if self.share_permille.is_some() {
                let shape = self.shape(view, Shape::default());
                let pass_us = if shape.tokens > 0 {
                    model.step_us(shape)
                } else {
                    0
                };
                let cost = fixed(pass_us).saturating_add(self.load_cost(view));
                let most = fixed(self.t_stall_us.max(self.floor_step_us(view)));
                self.credit = (self.credit - cost).max(-most);
            }
        }
        Turn::Step {
            decode: false,
            forced,
        }
    }

    /// What of the prompts fits `room`, in whole granules of rows.
    fn allocate(&mut self, view: View<'_>, regime: Regime, room: Fixed) {
        self.share(view, regime, room);
        self.round(view, regime);
    }

    /// Shares `room` between the shortest prompt and the oldest of the flow whose turn it is, then gives what they leave to
    /// the rest, flow by flow and shortest first.
    fn share(&mut self, view: View<'_>, regime: Regime, room: Fixed) {
        self.spare = room;
        if room <= 0 {
            return;
        }
        let kept = self.kept_for_saving(view, regime, room);
        let room = room - kept;
        let (short, old) = (shortest(view.prompts), oldest(view.prompts));
        let most = self.most_tokens(view, regime);
        let mut left = Left { room, tokens: most };
        if short != old {
            let part = 1000 - self.oldest_permille;
            let share = i128::from(room) * i128::from(part) / 1000;
            let tokens = u64::from(most) * u64::from(part) / 1000;
            // Both are parts of values of the same types.
            self.give(
                view,
                short,
                Left {
                    room: share as Fixed,
                    tokens: tokens as u32,
                },
                &mut left,
            );
        }
        self.give(view, old, left, &mut left);
        self.spare = left.room + kept;
        if left.room < view.estimate.model().range(0, 1) {
            return;
        }
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend((0..view.prompts.len()).filter(|&index| view.prompts[index].leader == index));
        order.sort_unstable_by_key(|&index| short_first(view.prompts, index));
        for &prompt in &order {
            if left.room <= 0 || left.tokens == 0 {
                break;
            }
            self.give(view, prompt, left, &mut left);
        }
        self.spare = left.room + kept;
        self.order = order;
    }

    /// Takes the tokens back that would make a part of a [`Config::row_granule`], where the step has several whole ones and
    /// does more in its time without: from the largest range that does not end its prompt.
    fn round(&mut self, view: View<'_>, regime: Regime) {
        const FEW: u32 = 4;
        let ready = match regime {
            Regime::Mixed => view.ready,
            Regime::Prefill | Regime::Decode => Shape::default(),
        };
        // A step's tokens are counted in 32 bits.
        let tokens: u32 = self.parts.iter().map(|part| part.tokens).sum();
        let rows = tokens.saturating_add(ready.rows);
        let excess = rows % self.row_granule;
        if excess == 0 || rows < FEW * self.row_granule {
            return;
        }
        let model = view.estimate.model();
        let step_us = model.regime_us(regime, self.shape(view, ready));
        let goes_on = |part: &&mut Part| part.tokens < view.prompts[part.prompt].remaining;
        let floor = self.floor(view, regime).tokens;
        let parts = self.parts.iter_mut().filter(goes_on);
        let Some(part) = parts.max_by_key(|part| part.tokens) else {
            return;
        };
        if part.tokens <= excess || tokens - excess < floor {
            return;
        }
        let end = view.prompts[part.prompt].start + part.tokens - excess;
        let gained = model.range(end, excess);
        // The costs are of rows in whole granules; the rows that are lacking cost as much as if they were there.
        let lacking = i128::from(model.token) * i128::from(self.row_granule - excess);
        let now = i128::from(fixed(step_us)) + lacking;
        let then = i128::from(fixed(step_us) - gained);
        if i128::from(tokens - excess) * now > i128::from(tokens) * then {
            part.tokens -= excess;
            self.spare += gained;
        }
    }

    /// What of `room` prompts leave for saving, so that they do not push out of memory what was never saved: a sixteenth
    /// while nobody decodes, else what saving may take from the decoders, a quarter at most. Nothing where the smallest piece
    /// of a prompt would not fit any more, or where a prompt loads: there is one unit in a step.
    fn kept_for_saving(&self, view: View<'_>, regime: Regime, room: Fixed) -> Fixed {
        if !view.may_save || view.prompts.iter().any(|prompt| prompt.loadable > 0) {
            return 0;
        }
        let most = if view.active > 0 {
            self.save_credit.min(room / 4)
        } else {
            room / 16
        };
        let save = view.estimate.save();
        let blocks = save.blocks_within(most, self.save_blocks);
        if blocks == 0 {
            return 0;
        }
        let kept = save.units(blocks);
        let floor = self.floor(view, regime);
        let start = view.prompts[floor.prompt].start;
        if room - kept < view.estimate.model().range(start, floor.tokens) {
            return 0;
        }
        kept
    }

    /// Gives `prompt` as many more tokens, or blocks to load, as fit `limit`, and takes them from `left`.
    fn give(&mut self, view: View<'_>, prompt: usize, limit: Left, left: &mut Left) {
        let candidate = view.prompts[prompt];
        if candidate.loadable > 0 {
            if self.io.is_some() {
                return;
            }
            let load = view.estimate.load();
            let blocks = load.blocks_within(limit.room, candidate.loadable);
            if blocks > 0 {
                self.io = Some(Io::Load { prompt, blocks });
                left.room -= load.units(blocks);
            }
            return;
        }
        let model = view.estimate.model();
        let given = self.parts.iter().position(|part| part.prompt == prompt);
        let had = given.map_or(0, |index| self.parts[index].tokens);
        let start = candidate.start + had;
        let tokens = model.tokens_within(
            limit.room,
            start,
            limit
                .tokens
                .min(candidate.remaining.min(candidate.stretch) - had),
        );
        if tokens == 0 {
            return;
        }
        match given {
            Some(index) => self.parts[index].tokens += tokens,
            None => self.parts.push(Part { prompt, tokens }),
        }
        left.room -= model.range(start, tokens);
        left.tokens -= tokens;
    }

    /// Whether the parts are crumbs: together fewer tokens than the smallest allowed range.
    fn below_floor(&self, view: View<'_>, regime: Regime) -> bool {
        let tokens: u32 = self.parts.iter().map(|part| part.tokens).sum();
        self.io.is_none() && tokens < self.floor(view, regime).tokens
    }

    /// The smallest range worth a step, for the shortest prompt.
    fn floor(&self, view: View<'_>, regime: Regime) -> Part {
        let prompt = shortest(view.prompts);
        let tokens = view
            .estimate
            .floor_tokens(regime)
            .min(self.most_tokens(view, regime));
        Part {
            prompt,
            tokens: tokens
                .min(view.prompts[prompt].remaining)
                .min(view.prompts[prompt].stretch),
        }
    }

    fn most_tokens(&self, view: View<'_>, regime: Regime) -> u32 {
        let limit = if view.active > 0 {
            self.most_contended
        } else {
            u32::MAX
        };
        view.estimate.most_tokens(regime).min(limit)
    }

    fn force_floor(&mut self, view: View<'_>, regime: Regime) {
        self.parts.clear();
        self.spare = 0;
        let floor = self.floor(view, regime);
        if view.prompts[floor.prompt].loadable > 0 {
            self.io = Some(Io::Load {
                prompt: floor.prompt,
                blocks: 1,
            });
        } else {
            self.parts.push(floor);
        }
    }

    /// ΔT of the load, if there is one.
    fn load_cost(&self, view: View<'_>) -> Fixed {
        match self.io {
            Some(Io::Load { blocks, .. }) => view.estimate.load().units(blocks),
            Some(Io::Save { .. }) | None => 0,
        }
    }

    /// ΔT of the parts and the load.
    fn parts_cost(&self, view: View<'_>) -> Fixed {
        let cost = |part: &Part| {
            view.estimate
                .model()
                .range(view.prompts[part.prompt].start, part.tokens)
        };
        self.parts.iter().map(cost).sum::<Fixed>() + self.load_cost(view)
    }

    fn floor_step_us(&self, view: View<'_>) -> i64 {
        let floor = self.floor(view, Regime::Prefill);
        let mut shape = Shape::default();
        shape.add_range(view.prompts[floor.prompt].start, floor.tokens);
        view.estimate.model().step_us(shape)
    }

    /// `shape` and the parts.
    fn shape(&self, view: View<'_>, mut shape: Shape) -> Shape {
        for part in &self.parts {
            shape.add_range(view.prompts[part.prompt].start, part.tokens);
        }
        shape
    }

    /// Credit earned by a decode step of `us`.
    fn earned(&self, us: i64) -> Fixed {
        let share = i128::from(self.share_permille.unwrap_or(0));
        let earned = i128::from(fixed(us)) * share / (1000 - share);
        i64::try_from(earned).unwrap_or(Fixed::MAX)
    }
}

/// What of a step's budget is not given away yet.
#[derive(Debug, Clone, Copy)]
struct Left {
    room: Fixed,
    tokens: u32,
}

/// Order of the prompts: flow by flow, then the one with the least left to compute, then the earlier.
fn short_first(prompts: &[Candidate], index: usize) -> ((u64, u64, usize), u32, usize) {
    let prompt = prompts[index];
    (prompt.turn, prompt.remaining, index)
}

/// The first in that order, or the one that it waits for.
fn shortest(prompts: &[Candidate]) -> usize {
    let shortest = (0..prompts.len()).min_by_key(|&index| short_first(prompts, index));
    prompts[shortest.expect("there is a prompt")].leader
}

/// The earliest prompt of the flow whose turn it is, or the one that it waits for.
fn oldest(prompts: &[Candidate]) -> usize {
    let oldest = (0..prompts.len()).min_by_key(|&index| (prompts[index].turn, index));
    prompts[oldest.expect("there is a prompt")].leader
}

/// Budgets above an hour are an hour and more: far from overflow in fixed point.
fn budget(us: u64) -> i64 {
    i64::from(u32::try_from(us).unwrap_or(u32::MAX))
}

#[cfg(test)]
impl Policy {
    /// What it remembers.
    pub(crate) fn key(&self) -> Vec<u64> {
        vec![
            u64::from(self.reservation),
            u64::from(self.decode_owed),
            self.credit.cast_unsigned(),
            self.save_credit.cast_unsigned(),
        ]
    }
}

#[cfg(test)]
mod tests;
