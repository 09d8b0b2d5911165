//! Options of the engine.

use std::collections::BTreeMap;
use std::path::PathBuf;

use andante_model::{KvLayout, ModelInfo, Pooling};
use andante_sched::{Config, Mode, Profile, TenantId};

use crate::error::EngineError;
use crate::transcript::TranscriptConfig;

/// How much the engine holds and how it shares its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// How the hidden states of a text become its embedding, instead of what the model file says (or else the last).
    pub pooling: Option<Pooling>,
    /// Sequences of a whole context that memory is reserved for at load.
    pub sessions: u32,
    /// Sequences that are computed at once; 0 means as many as `sessions`. More of them than sessions share the memory,
    /// as short ones can; each is still admitted only when all that it may need is free.
    pub max_active: u32,
    /// Tokens of one sequence, prompt and answer together. Never more than the model was trained for.
    pub context: u32,
    /// The most tokens of an answer whose request does not say; `None` is what the context holds.
    pub answer_tokens: Option<u32>,
    /// The most tokens of reasoning in an answer whose request does not say; `None` is no bound.
    pub reasoning_tokens: Option<u32>,
    /// Tokens of further KV memory, for prefixes that no running sequence uses.
    pub cache_tokens: u32,
    /// Which promise yields when not all can be kept.
    pub profile: Profile,
    /// The longest that a running answer may wait for other work, in milliseconds.
    pub max_stall_ms: u32,
    /// Whether four decode steps take the place of `max_stall_ms` on a machine where one takes more than 25 ms.
    pub stall_auto: bool,
    /// The longest step when no answer is running, in milliseconds: how long an arrival or a cancel may wait.
    pub max_idle_step_ms: u32,
    /// The most prompt tokens in one step.
    pub prefill_chunk: u32,
    /// The most prompt tokens in one step while answers are running; `None` leaves it to `max_stall_ms`.
    pub mixed_prefill_tokens: Option<u32>,
    /// The fewest prompt tokens worth a step while answers are running.
    pub min_prefill_chunk: u32,
    /// Whether one pass may compute prompts and answers, or they take turns.
    pub mode: Mode,
    /// The share of contended time kept for running answers, in thousandths; 0 leaves it to `max_stall_ms` alone. `None` is
    /// 0 when steps are mixed, and a half when they take turns.
    pub decode_share_permille: Option<u32>,
    /// The most sequences of one tenant that are computed at once; `None` leaves it all places.
    pub tenant_sessions: Option<u32>,
    /// Weights of tenants, in thousandths; the others weigh 1000.
    pub tenant_weights: BTreeMap<TenantId, u32>,
    /// Requests that may wait beyond those that run.
    pub max_queue: u32,
    /// Events that a reader may be behind before its sequence is parked.
    pub ring_events: usize,
    /// Seconds from a request's arrival within which it must be admitted. `None`, the default, lets it wait for as long as
    /// its client does: how long is too long depends on the prompts before it, which take minutes on a small machine.
    pub queue_timeout_s: Option<u32>,
    /// Seconds from a request's admission to its first token. Time in the queue is not part of it. `None` by default, for
    /// the same reason.
    pub first_token_timeout_s: Option<u32>,
    /// Seconds that a sequence may stay parked before it fails, so that a stuck client does not hold a place for ever.
    pub reader_timeout_s: u32,
    /// The file that the scheduling log is written to, if it is to be recorded. The prompts are in it.
    pub record: Option<PathBuf>,
    /// Where whole sessions are written to for bug reports, if they are.
    pub transcript: Option<TranscriptConfig>,
    /// What handles of reasoning are sealed with ([`crate::EngineHandle::seal_reasoning`]). Without one it is drawn at the start,
    /// and handles of an earlier run are not recognised.
    pub secret: Option<[u8; 32]>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            sessions: 4,
            max_active: 0,
            pooling: None,
            context: 8192,
            answer_tokens: None,
            reasoning_tokens: None,
            cache_tokens: 0,
            profile: Profile::Interactive,
            max_stall_ms: 100,
            stall_auto: false,
            max_idle_step_ms: 500,
            prefill_chunk: 2048,
            mixed_prefill_tokens: None,
            min_prefill_chunk: 16,
            mode: Mode::Mix,
            decode_share_permille: None,
            tenant_sessions: None,
            tenant_weights: BTreeMap::new(),
            max_queue: 64,
            ring_events: 256,
            queue_timeout_s: None,
            first_token_timeout_s: None,
            reader_timeout_s: 300,
            record: None,
            transcript: None,
            secret: None,
        }
    }
}

impl EngineConfig {
    /// Counts of which there must be one at least.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        let counts = [
            ("sessions", self.sessions),
            ("context", self.context),
            ("max_stall_ms", self.max_stall_ms),
            ("max_idle_step_ms", self.max_idle_step_ms),
            ("prefill_chunk", self.prefill_chunk),
            ("min_prefill_chunk", self.min_prefill_chunk),
            ("tenant_sessions", self.tenant_sessions.unwrap_or(1)),
            ("answer_tokens", self.answer_tokens.unwrap_or(1)),
            (
                "mixed_prefill_tokens",
                self.mixed_prefill_tokens.unwrap_or(1),
            ),
        ];
        match counts.into_iter().find(|&(_, count)| count == 0) {
            Some((name, _)) => Err(EngineError::Config {
                name,
                rule: "must be at least 1",
            }),
            None => Ok(()),
        }
    }

    pub(crate) fn pooling_of(&self, info: &ModelInfo) -> Pooling {
        self.pooling.or(info.pooling).unwrap_or(Pooling::Last)
    }

    /// Tokens of one sequence of a model that was trained for `trained` tokens.
    pub(crate) fn context_of(&self, trained: u32) -> u32 {
        if trained == 0 {
            self.context
        } else {
            self.context.min(trained)
        }
    }

    /// Sequences that are computed at once.
    pub(crate) fn active(&self) -> u32 {
        if self.max_active == 0 {
            self.sessions
        } else {
            self.max_active
        }
    }

    /// Requests that run and wait, at most.
    pub(crate) fn max_inside(&self) -> u32 {
        self.active().saturating_add(self.max_queue)
    }

    /// What the scheduler is told: a place and the blocks of a whole context for every session.
    pub(crate) fn scheduler(
        &self,
        info: &ModelInfo,
        layout: KvLayout,
    ) -> Result<Config, EngineError> {
        let block_tokens = layout.block_tokens;
        let blocks = |tokens: u32| u64::from(tokens.div_ceil(block_tokens));
        let blocks = u64::from(self.sessions) * blocks(self.context_of(info.context))
            + blocks(self.cache_tokens);
        // Slot numbers are `u32` too.
        let slots = blocks * u64::from(block_tokens);
        if u32::try_from(slots).is_err() {
            return Err(EngineError::Config {
                name: "sessions",
                rule: "times context must be below 2^32 tokens",
            });
        }
        let usual = Config::new(
            self.active(),
            u32::try_from(blocks).expect("fewer than slots"),
            block_tokens,
        )
        .with_mode(self.mode);
        let contended = self.mixed_prefill_tokens.unwrap_or(u32::MAX);
        let config = Config {
            max_queue: self.max_inside(),
            t_stall_us: u64::from(self.max_stall_ms) * 1000,
            stall_auto: self.stall_auto,
            t_idle_us: u64::from(self.max_idle_step_ms) * 1000,
            q_min: self
                .min_prefill_chunk
                .min(self.prefill_chunk)
                .min(contended),
            q_max: self.prefill_chunk,
            row_granule: info.row_granule,
            tenant_slots: self.tenant_sessions.unwrap_or(u32::MAX),
            tenant_weights: self.tenant_weights.clone(),
            ..usual
        };
        let mut config = config.with_profile(self.profile);
        // What was asked for by itself stands above what the profile usually means.
        if let Some(share) = self.decode_share_permille {
            config = config.with_decode_share(share);
        }
        if let Some(tokens) = self.mixed_prefill_tokens {
            config.q_max_contended = tokens;
        }
        if layout.state_bytes > 0 {
            // So far apart that those of a sequence take what its blocks take, and a few more for those that come and go.
            let blocks = layout.state_bytes.div_ceil(layout.block_bytes.max(1));
            config.checkpoint_blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
            config.checkpoints = config.blocks / config.checkpoint_blocks + 2 * config.slots + 2;
        }
        Ok(config)
    }
}

/// States that a model keeps room for: one for each sequence that is computed, and the checkpoints.
pub(crate) fn running_states(config: &Config) -> u32 {
    match config.checkpoints {
        0 => 0,
        checkpoints => config.slots + checkpoints,
    }
}
