//! What the scheduler is told at start-up. All times are integer microseconds, all shares are permille.

use std::collections::BTreeMap;
use std::fmt;

use crate::cost::{CostModel, IoCost};
use crate::step::TenantId;

/// How a step may combine decode rows and prefill tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One forward pass holds all ready decode rows and as many prefill tokens as fit the time budget.
    Mix,
    /// The backend cannot mix (or mixing is slower than two passes): prefill turns and decode turns alternate, and a
    /// prefill turn always owes the next turn to the decoders.
    HandOff,
}

/// What a machine is for: which promise yields when not all can be kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Profile {
    /// Nobody stalls; where not even the smallest worthwhile prompt piece fits the bound, prompts still get it.
    #[default]
    Interactive,
    /// Throughput first: no stall bound, prompts run in their largest pieces.
    Batch,
    /// The stall bound comes first: prompts shrink to single tokens, however inefficient.
    Strict,
}

/// The scheduler's configuration. Build it with [`Config::new`] and change fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Most sequences resident at once (holding KV memory).
    pub slots: u32,
    /// KV blocks in total.
    pub blocks: u32,
    /// Tokens in one KV block.
    pub block_tokens: u32,
    /// Most requests waiting for a slot; one more is refused.
    pub max_queue: u32,
    /// T_stall, µs: budget of a step while somebody is decoding.
    pub t_stall_us: u64,
    /// On a machine whose decode step for one row takes more than 25 ms, T_stall is four such steps if that is more than
    /// `t_stall_us`.
    pub stall_auto: bool,
    /// T_idle, µs: budget of a step while nobody is decoding. Bounds how long a new arrival or a cancel waits.
    pub t_idle_us: u64,
    /// Fewest prefill tokens worth a chunk; granted even when they break the budget, so that prompts never starve.
    pub q_min: u32,
    /// Most prefill tokens in one step. A step has at most `slots + q_max` rows.
    pub q_max: u32,
    /// Most prefill tokens in one step while somebody is decoding, whatever the time budget allows. `u32::MAX`: no limit
    /// but `q_max`.
    pub q_max_contended: u32,
    /// Rows that the machine computes together: a step of more than a few times as many has a whole number of them where
    /// prompts go on after it, since a part costs nearly what a whole one does. 1: any number is as good.
    pub row_granule: u32,
    /// η, permille: a forced chunk is at least so long that this part of its time is spent per token rather than on
    /// the step's fixed cost. 0 leaves `q_min` as the only floor.
    pub efficiency_permille: u32,
    /// φ, permille: part of every prefill budget kept for the oldest prompt.
    pub oldest_permille: u32,
    /// σ, permille: prefill's share of the contended time; the decoders keep the rest. `None`: only `t_stall_us` limits
    /// prefill.
    pub prefill_share_permille: Option<u32>,
    /// w, µs: longest wait per step boundary for a decoder whose next token is still being sampled. 0: never wait.
    pub wait_us: u64,
    /// Whether one pass can hold both kinds of rows.
    pub mode: Mode,
    /// Most resident sequences of one tenant.
    pub tenant_slots: u32,
    /// Weights of tenants, permille; the others weigh 1000.
    pub tenant_weights: BTreeMap<TenantId, u32>,
    /// Checkpoints of running state that are kept at once: at least two more than `slots`, or 0 for a model without such state. They
    /// are numbered after the residents' own states, which have the numbers of the slots.
    pub checkpoints: u32,
    /// A prompt and an answer have a checkpoint after every so many blocks, beside those at their ends.
    pub checkpoint_blocks: u32,
    /// Most blocks in one save unit, for full blocks that the store lacks. 0: there is no store.
    pub save_blocks: u32,
    /// What a load unit costs.
    pub load_cost: IoCost,
    /// What a save unit costs.
    pub save_cost: IoCost,
    /// Cost model to start from; a guess is enough.
    pub cost: CostModel,
    /// Keep `cost` as it is instead of fitting it to measured steps (simulations).
    pub fixed_cost: bool,
}

impl Config {
    /// The defaults of an interactive server with room for `slots` sequences in `blocks` blocks.
    pub fn new(slots: u32, blocks: u32, block_tokens: u32) -> Self {
        Self {
            slots,
            blocks,
            block_tokens,
            max_queue: 256,
            t_stall_us: 100_000,
            stall_auto: false,
            t_idle_us: 500_000,
            q_min: 16,
            q_max: 2048,
            q_max_contended: u32::MAX,
            row_granule: 1,
            efficiency_permille: 0,
            oldest_permille: 250,
            prefill_share_permille: None,
            wait_us: 0,
            mode: Mode::Mix,
            tenant_slots: u32::MAX,
            tenant_weights: BTreeMap::new(),
            checkpoints: 0,
            checkpoint_blocks: 1,
            save_blocks: 0,
            load_cost: IoCost::default(),
            save_cost: IoCost::default(),
            cost: CostModel::default(),
            fixed_cost: false,
        }
    }

    /// Sets the mode with its usual prefill share: none where steps mix, half the time where turns alternate.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self.prefill_share_permille = match mode {
            Mode::Mix => None,
            Mode::HandOff => Some(500),
        };
        self
    }

    /// Sets what the profile means for the bounds; `Interactive` leaves them as they are.
    #[must_use]
    pub fn with_profile(mut self, profile: Profile) -> Self {
        match profile {
            Profile::Interactive => {}
            Profile::Batch => {
                self.t_stall_us = u64::MAX;
                self.prefill_share_permille = None;
                self.q_max_contended = u32::MAX;
            }
            Profile::Strict => {
                self.q_min = 1;
                self.efficiency_permille = 0;
            }
        }
        self
    }

    /// Sets the part of contended time kept for the decoders, permille; 0 leaves it to `t_stall_us` alone.
    #[must_use]
    pub fn with_decode_share(mut self, permille: u32) -> Self {
        self.prefill_share_permille = (permille > 0).then(|| 1000_u32.saturating_sub(permille));
        self
    }
}

/// The start-up line: every number that decides what a step looks like, with units.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Mix => "mix",
            Mode::HandOff => "hand-off",
        };
        write!(
            f,
            "{mode}, stall {}, idle {} ms, chunk {}..{} tokens, oldest {} %",
            Stall(self),
            self.t_idle_us / 1000,
            self.q_min,
            self.q_max,
            self.oldest_permille / 10,
        )?;
        if self.q_max_contended < self.q_max {
            write!(
                f,
                ", at most {} tokens beside answers",
                self.q_max_contended
            )?;
        }
        if self.row_granule > 1 {
            write!(f, ", rows by {}", self.row_granule)?;
        }
        match self.prefill_share_permille {
            Some(share) => write!(f, ", decode share {} %", (1000 - share.min(1000)) / 10)?,
            None => write!(f, ", decode share off")?,
        }
        write!(
            f,
            ", wait {} µs, {} slots, {} blocks of {} tokens, queue {}",
            self.wait_us, self.slots, self.blocks, self.block_tokens, self.max_queue
        )
    }
}

/// The stall bound of a configuration, for people.
struct Stall<'a>(&'a Config);

impl fmt::Display for Stall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.t_stall_us, self.0.stall_auto) {
            (u64::MAX, _) => write!(f, "unbounded"),
            (us, true) => write!(f, "{} ms or four decode steps", us / 1000),
            (us, false) => write!(f, "{} ms", us / 1000),
        }
    }
}
