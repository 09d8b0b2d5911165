//! What the engine is doing and has done, as of its last step: copied out under a mutex, so that who looks costs it nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use andante_sched::{Mode, Prefill, Profile, Scheduler, SeqId, Stats, TenantStats};

use crate::config::{EngineConfig, running_states};
use crate::error::Failure;
use crate::handle::Health;
use crate::histogram::Histogram;
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
    /// How many of those ended because they had as many tokens as they might, or the context was full.
    pub cut: u64,
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
    /// Durations of steps, by [`StepKind`].
    pub step_time: [Histogram; 4],
    /// What steps took over what they were expected to take, in thousandths.
    pub step_ratio: Histogram,
    /// What requests waited for, and how large they were.
    pub latencies: Latencies,
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
            cut: 0,
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
            step_time: [Histogram::new(&Histogram::DURATIONS_US); 4],
            step_ratio: Histogram::new(&Histogram::RATIOS_PERMILLE),
            latencies: Latencies::new(),
            recent: VecDeque::with_capacity(Self::RECENT),
        }
    }

    pub(crate) fn count_failure(&mut self, failure: Failure) {
        self.failed += 1;
        *self.failures.entry(failure).or_default() += 1;
    }

    /// Takes a step, and gives the memory of one that is forgotten for the next.
    pub(crate) fn remember(&mut self, step: &mut StepRecord) {
        self.step_time[step.kind() as usize].add(step.actual_us);
        let permille = step.actual_us.saturating_mul(1000);
        if let Some(permille) = permille.checked_div(step.predicted_us) {
            self.step_ratio.add(permille);
        }
        let full = self.recent.len() == Self::RECENT;
        let oldest = full.then(|| self.recent.pop_front()).flatten();
        let mut place = oldest.unwrap_or_default();
        // Whoever looks at a forgotten step keeps it.
        std::mem::swap(Arc::make_mut(&mut place), step);
        self.recent.push_back(place);
    }
}

/// What requests waited for, in µs, and how large they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latencies {
    /// From submission to the first token, for the requests that got one: the sum of the following four.
    pub first_token: Histogram,
    /// From submission to a slot.
    pub queue: Histogram,
    /// While KV of the prompt was being loaded.
    pub load: Histogram,
    /// In steps that computed a part of the prompt.
    pub prefill: Histogram,
    /// In a slot, while others were served.
    pub wait: Histogram,
    /// Between two tokens of an answer. The time that its reader did not read is not part of it.
    pub gap: Histogram,
    /// The longest of these, for the requests that ended with an answer of at least two tokens.
    pub longest_gap: Histogram,
    /// From submission to the end of an answer.
    pub whole: Histogram,
    /// Tokens of the prompts of the requests that ended with an answer.
    pub prompt_tokens: Histogram,
    /// Tokens of these answers.
    pub answer_tokens: Histogram,
}

impl Latencies {
    fn new() -> Self {
        const WAITS: Histogram = Histogram::new(&Histogram::WAITS_US);
        const GAPS: Histogram = Histogram::new(&Histogram::DURATIONS_US);
        const TOKENS: Histogram = Histogram::new(&Histogram::TOKENS);
        Self {
            first_token: WAITS,
            queue: WAITS,
            load: WAITS,
            prefill: WAITS,
            wait: WAITS,
            gap: GAPS,
            longest_gap: GAPS,
            whole: WAITS,
            prompt_tokens: TOKENS,
            answer_tokens: TOKENS,
        }
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
    /// What it computed.
    #[must_use]
    pub fn kind(&self) -> StepKind {
        match (self.decode.is_empty(), self.prefill.is_empty()) {
            (false, true) => StepKind::Decode,
            (true, false) => StepKind::Prefill,
            (false, false) => StepKind::Mixed,
            (true, true) => StepKind::Io,
        }
    }

    /// Prompt tokens computed.
    #[must_use]
    pub fn prefill_tokens(&self) -> u64 {
        self.prefill.iter().map(|part| u64::from(part.tokens)).sum()
    }
}

/// What a step computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// Rows of answers.
    Decode,
    /// Parts of prompts.
    Prefill,
    /// Both.
    Mixed,
    /// Nothing: it moved KV.
    Io,
}

impl StepKind {
    /// All, in the order of [`Status::step_time`].
    pub const ALL: [Self; 4] = [Self::Decode, Self::Prefill, Self::Mixed, Self::Io];
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
