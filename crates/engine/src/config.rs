//! Options of the engine.

/// How much the engine holds and how it shares its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// Sequences that run at once; room for all of them is reserved at load.
    pub sessions: u32,
    /// Tokens of one sequence, prompt and answer together. Never more than the model was trained for.
    pub context: u32,
    /// Tokens of further KV memory, for prefixes that no running sequence uses.
    pub cache_tokens: u32,
    /// The longest that a running answer may wait for other work, in milliseconds.
    pub max_stall_ms: u32,
    /// The longest step when no answer is running, in milliseconds: how long an arrival or a cancel may wait.
    pub max_idle_step_ms: u32,
    /// The most prompt tokens in one step.
    pub prefill_chunk: u32,
    /// The fewest prompt tokens worth a step while answers are running.
    pub min_prefill_chunk: u32,
    /// The backend cannot compute prompts and answers in one pass: they take turns.
    pub hand_off: bool,
    /// The share of contended time kept for running answers, in thousandths; `None` leaves it to `max_stall_ms` alone.
    pub decode_share_permille: Option<u32>,
    /// Requests that may wait beyond those that run.
    pub max_queue: u32,
    /// Events that a reader may be behind before its sequence is parked.
    pub ring_events: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            sessions: 4,
            context: 8192,
            cache_tokens: 0,
            max_stall_ms: 100,
            max_idle_step_ms: 500,
            prefill_chunk: 2048,
            min_prefill_chunk: 32,
            hand_off: false,
            decode_share_permille: None,
            max_queue: 64,
            ring_events: 256,
        }
    }
}
