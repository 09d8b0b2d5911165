//! What goes in and comes out between two steps: admissions, plans, outcomes and their errors.

use thiserror::Error;

/// A sequence's identity, chosen by the caller and never used twice: it is its own generation stamp.
pub type SeqId = u64;

/// Whom a sequence is served for: service is shared fairly between tenants.
pub type TenantId = u64;

/// A request for a place in the schedule.
#[derive(Debug, Clone, Copy)]
pub struct Admission<'a> {
    /// Never used before in this scheduler.
    pub id: SeqId,
    /// At least one token.
    pub prompt: &'a [u32],
    /// Most tokens to generate, at least 1.
    pub max_new: u32,
    /// Whether the sequence may read and feed the prefix index.
    pub cache: bool,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its weight among the tenant's own sequences.
    pub priority: Priority,
    /// Leading prompt tokens whose KV can be loaded from the store. Rounded down to whole blocks.
    pub stored: u32,
    /// Blocks are shared only between sequences of the same salt.
    pub salt: u64,
    /// The prompt less its last token comes into memory for others to find, and nothing is generated: what is stored is loaded,
    /// and then what is left is computed if that is less than a block. The sequence ends when that is done.
    pub warm: bool,
}

impl<'a> Admission<'a> {
    /// The default tenant's, with normal priority, through the prefix index, nothing stored, no salt.
    #[must_use]
    pub fn new(id: SeqId, prompt: &'a [u32], max_new: u32) -> Self {
        Self {
            id,
            prompt,
            max_new,
            cache: true,
            tenant: 0,
            priority: Priority::Normal,
            stored: 0,
            salt: 0,
            warm: false,
        }
    }
}

/// How a tenant weighs its own sequences against each other. A low one still progresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// A quarter of the normal weight.
    Low,
    /// The usual weight.
    #[default]
    Normal,
    /// Four times the normal weight.
    High,
}

impl Priority {
    /// All, lowest first.
    pub const ALL: [Self; 3] = [Self::Low, Self::Normal, Self::High];

    pub(crate) fn weight_permille(self) -> u32 {
        match self {
            Self::Low => 250,
            Self::Normal => 1000,
            Self::High => 4000,
        }
    }
}

/// One forward pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// Echoed by [`Scheduler::complete`](crate::Scheduler::complete).
    pub step_no: u64,
    /// Sequences that compute one row: their newest token, at position `tokens - 1`. In arrival order.
    pub decode: Vec<SeqId>,
    /// Prompt ranges, at most one per sequence.
    pub prefill: Vec<Prefill>,
    /// KV to load or to save before the forward pass.
    pub io: Option<IoUnit>,
    /// What to do with running states; nothing for a model that has none.
    pub states: StateMoves,
    /// Expected duration, µs.
    pub predicted_us: u64,
    /// The budget it was planned for, µs: T_stall or T_idle.
    pub budget_us: u64,
    /// Whether somebody was decoding (ready or busy) when it was planned.
    pub contended: bool,
    /// The smallest allowed chunk was taken although it was not expected to fit the budget.
    pub floor_limited: bool,
}

/// Copies of running states, by their numbers: residents' own and checkpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateMoves {
    /// Before everything else.
    pub restore: Vec<StateCopy>,
    /// The checkpoint that the step's load ends with: its last block counts as loaded only together with the state behind it.
    pub load: Option<u32>,
    /// After the forward pass, before its completion.
    pub keep: Vec<StateCopy>,
}

/// One state is to become what another one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateCopy {
    /// The one.
    pub from: u32,
    /// The other.
    pub to: u32,
}

/// A range of one prompt to compute in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefill {
    /// Whose prompt.
    pub id: SeqId,
    /// Position of the first token.
    pub start: u32,
    /// Number of tokens, at least 1.
    pub tokens: u32,
    /// The range ends the prompt: its last row's logits give the first generated token.
    pub last: bool,
}

/// KV blocks to move between memory and the store.
///
/// It belongs to its step, before the forward pass, and its time is part of the step's. At most one is outstanding. A store
/// may be late: until [`io_done`](crate::Scheduler::io_done) the owner of a load stays out of the plans and keeps its
/// blocks, even when it is cancelled, and no other unit is planned. What is saved must be copied before the step completes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoUnit {
    /// Echoed by [`Scheduler::io_done`](crate::Scheduler::io_done).
    pub unit_no: u64,
    /// What to move.
    pub kind: IoKind,
}

/// What an I/O unit moves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum IoKind {
    /// Blocks `start_block..start_block + blocks` of this sequence's block table come from the store.
    Load {
        /// Whose prompt.
        id: SeqId,
        /// Index into its block table.
        start_block: u32,
        /// At least 1.
        blocks: u32,
    },
    /// Indexed blocks go to the store. [`Scheduler::block_content`](crate::Scheduler::block_content) says what they hold.
    Save {
        /// Block numbers; at least one.
        blocks: Vec<u32>,
    },
}

/// What the engine shall do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan<'a> {
    /// Run this pass, then call [`Scheduler::complete`](crate::Scheduler::complete).
    Step(&'a Step),
    /// A decoder is about to become ready: plan again at `until_us`, or as soon as every active decoder is ready.
    Wait {
        /// Latest time to plan again, µs.
        until_us: u64,
    },
    /// Nothing can run until an event arrives (an admission, a ready, an unpark).
    Idle,
}

/// What became of one row or range of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A prompt range that does not end its prompt was computed.
    Prefilled,
    /// This token was generated; the sequence is ready for its next row (or finished, at `max_new` tokens).
    Token(u32),
    /// Computed, but the token is still being sampled elsewhere: [`Scheduler::sampled`](crate::Scheduler::sampled) brings it.
    Sampling,
    /// The sequence has ended: end-of-generation token, stop string or length.
    Finish,
    /// The row could not be computed; only this sequence fails.
    Failed,
}

/// Why a request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AddError {
    /// The queue is at its cap.
    #[error("{queued} requests are waiting already")]
    QueueFull {
        /// Requests waiting.
        queued: u32,
    },
    /// The sequence could not even run alone.
    #[error("needs {needed} KV blocks, there are {blocks}")]
    TooLong {
        /// Blocks for prompt and answer.
        needed: u64,
        /// Blocks in total.
        blocks: u32,
    },
    /// There is nothing to prefill.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// There is nothing to generate.
    #[error("no token may be generated")]
    NoTokens,
    /// The id belongs to a live sequence.
    #[error("sequence {id} exists already")]
    DuplicateId {
        /// The id in question.
        id: SeqId,
    },
}

/// Why a completion was rejected; the scheduler's state is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CompleteError {
    /// Late, duplicate or invented: this step is not in flight.
    #[error("step {step_no} is not in flight")]
    NotInFlight {
        /// The step number given.
        step_no: u64,
    },
    /// There is one outcome per decode row, then one per prefill range.
    #[error("{given} outcomes for {planned} rows")]
    OutcomeCount {
        /// Outcomes given.
        given: usize,
        /// Rows and ranges planned.
        planned: usize,
    },
    /// The outcome cannot belong to that row: a token from the middle of a prompt, or none from its end.
    #[error("outcome {index} does not fit its row")]
    WrongOutcome {
        /// Index into the outcomes.
        index: usize,
    },
}
