//! What the engine is doing and has done, as of its last step: copied out under a mutex, so that who looks costs it nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use andante_sched::{Mode, Prefill, Profile, Scheduler, SeqId, Stats, TenantStats};

use crate::config::{EngineConfig, running_states};
use crate::error::Failure;
use crate::handle::Health;
use crate::store::StoreStats;

/// A snapshot of the engine. Counts since start where not said otherwise.
#[derive(Debug, Clone)]
pub struct Status {
    /// Whether it works.
    pub health: Health,
    /// One line with the configuration of engine and scheduler.
    pub config: String,
    /// How steps are made up.
    pub mode: Mode,
    /// Which promise yields when not all can be kept.
    pub profile: Profile,
    /// The stall bound that was asked for, in µs; `None` where there is none. What is in force is
    /// [`Stats::stall_us`], what can be kept [`Stats::stall_kept`].
    pub stall_asked_us: Option<u64>,
    /// Whether a slow machine may lengthen it.
    pub stall_auto: bool,
    /// Tokens of one KV block.
    pub block_tokens: u32,
    /// Bytes of one, over all layers.
    pub block_bytes: u64,
    /// Running states that there is room for; 0 where the model has none.
    pub running_states: u32,
    /// The scheduler's own figures: queue, running sequences, blocks, steps, costs.
    pub scheduler: Stats,
    /// The tenants' accounts, at most a tenth of a second old.
    pub tenants: Vec<TenantStatus>,
    /// Requests that ended with an answer.
    pub finished: u64,
    /// Requests that ended without one, those without a client excepted.
    pub failed: u64,
    /// Why those failed.
    pub failures: BTreeMap<Failure, u64>,
    /// Requests whose client went away.
    pub cancelled: u64,
    /// Requests refused because the queue was full.
    pub refused: u64,
    /// Prompt tokens of the requests that have started.
    pub prompt_tokens: u64,
    /// How many of those came from the prefix cache or the store.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Tokens that were chosen under a constraint.
    pub masks: u64,
    /// Time spent on finding out which tokens constraints allow, beside the model, in µs.
    pub mask_us: u64,
    /// How much of that the engine waited for, in µs.
    pub mask_wait_us: u64,
    /// The store's figures, if there is one.
    pub store: Option<StoreStats>,
    /// Durations of steps.
    pub step_time: Histogram,
    /// From submission to first token, for the requests that got one.
    pub first_token_time: Histogram,
    /// The longest gap between two tokens of an answer, for the requests that ended with an answer of at least two. The
    /// time that its reader did not read is not part of it.
    pub longest_gap: Histogram,
    /// The last steps, oldest first.
    pub recent: VecDeque<Arc<StepRecord>>,
}

impl Status {
    /// Steps kept in [`Self::recent`].
    const RECENT: usize = 64;

    pub(crate) fn new(
        config: &EngineConfig,
        context: u32,
        scheduler: &Scheduler,
        block_bytes: u64,
    ) -> Self {
        let sched = scheduler.config();
        Self {
            health: Health::Ready,
            config: format!(
                "{:?} profile, {} sessions of {context} tokens, {sched}",
                config.profile, config.sessions
            ),
            mode: config.mode,
            profile: config.profile,
            stall_asked_us: Some(sched.t_stall_us).filter(|&us| us != u64::MAX),
            stall_auto: sched.stall_auto,
            block_tokens: sched.block_tokens,
            block_bytes,
            running_states: running_states(sched),
            scheduler: scheduler.stats(),
            tenants: Vec::new(),
            finished: 0,
            failed: 0,
            failures: BTreeMap::new(),
            cancelled: 0,
            refused: 0,
            prompt_tokens: 0,
            cached_tokens: 0,
            generated_tokens: 0,
            masks: 0,
            mask_us: 0,
            mask_wait_us: 0,
            store: None,
            step_time: Histogram::default(),
            first_token_time: Histogram::default(),
            longest_gap: Histogram::default(),
            recent: VecDeque::with_capacity(Self::RECENT),
        }
    }

    pub(crate) fn count_failure(&mut self, failure: Failure) {
        self.failed += 1;
        *self.failures.entry(failure).or_default() += 1;
    }

    /// Takes a step, and gives the memory of one that is forgotten for the next.
    pub(crate) fn remember(&mut self, step: &mut StepRecord) {
        self.step_time.add(step.actual_us);
        let full = self.recent.len() == Self::RECENT;
        let oldest = full.then(|| self.recent.pop_front()).flatten();
        let mut place = oldest.unwrap_or_default();
        // Whoever looks at a forgotten step keeps it.
        std::mem::swap(Arc::make_mut(&mut place), step);
        self.recent.push_back(place);
    }
}

/// A tenant's account under its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantStatus {
    /// The name to show.
    pub name: Arc<str>,
    /// What it has and had.
    pub stats: TenantStats,
}

/// One step, planned and measured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepRecord {
    /// Counted from 1.
    pub step_no: u64,
    /// When it began, in µs of the engine's clock.
    pub started_us: u64,
    /// What it was expected to take, I/O included.
    pub predicted_us: u64,
    /// The bound it was planned for.
    pub budget_us: u64,
    /// What it took, I/O and sampling included.
    pub actual_us: u64,
    /// The part of it that loading or saving KV took.
    pub io_us: u64,
    /// Whether an answer was running.
    pub contended: bool,
    /// Whether the smallest prompt piece broke the bound.
    pub floor_limited: bool,
    /// Sequences that generated.
    pub decode: Vec<SeqId>,
    /// Parts of prompts that were computed.
    pub prefill: Vec<Prefill>,
    /// KV that was moved.
    pub io: Option<IoRecord>,
}

impl StepRecord {
    /// Prompt tokens computed.
    #[must_use]
    pub fn prefill_tokens(&self) -> u64 {
        self.prefill.iter().map(|part| u64::from(part.tokens)).sum()
    }
}

/// The I/O unit of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoRecord {
    /// Blocks of a sequence's prompt came from the store.
    Load {
        /// Whose.
        id: SeqId,
        /// How many.
        blocks: u32,
    },
    /// Blocks went to the store.
    Save {
        /// How many.
        blocks: u32,
    },
}

/// Durations, counted by size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Histogram {
    counts: [u64; Histogram::BOUNDS_US.len() + 1],
    sum_us: u64,
}

impl Histogram {
    /// Upper bounds of the buckets in µs, the bound itself included; one more bucket holds what is longer.
    pub const BOUNDS_US: [u64; 17] = [
        1_000,
        2_000,
        5_000,
        10_000,
        20_000,
        50_000,
        75_000,
        100_000,
        150_000,
        200_000,
        500_000,
        1_000_000,
        2_000_000,
        5_000_000,
        10_000_000,
        30_000_000,
        120_000_000,
    ];

    pub(crate) fn add(&mut self, us: u64) {
        let bucket = Self::BOUNDS_US.partition_point(|&bound| bound < us);
        self.counts[bucket] += 1;
        self.sum_us += us;
    }

    /// Durations in each bucket, not summed up.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// All of them together, in µs.
    #[must_use]
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }
}
