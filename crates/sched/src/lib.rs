//! The pure scheduler: which rows run in the next forward pass, and where their KV lives.
//!
//! Knows: sequences, their tokens and states, KV blocks and which prefixes they hold, what steps cost, the policy.
//! Does not know: a clock, models, text, clients. Time comes in as integer microseconds; the same calls give the same
//! plans.

#![forbid(unsafe_code)]

mod blocks;
mod checkpoints;
mod config;
mod cost;
mod estimate;
mod log;
mod map;
mod policy;
mod prefix;
mod queue;
mod residents;
mod scheduler;
mod sequence;
mod stateful;
mod stats;
mod step;
mod tenants;

pub use config::{Config, Mode, Profile};
pub use cost::{CostModel, FRACTION_BITS, Fixed, IoCost, Shape, micros, nanos};
pub use log::{Entry, LOG_MAGIC, LogError, Planned, Replayed, replay};
pub use map::{PrefixMap, PrefixRun};
pub use scheduler::Scheduler;
pub use stats::{BlockStats, Missed, StallLimit, Stats, TenantStats, Times, Violations};
pub use step::{
    AddError, Admission, CompleteError, IoKind, IoUnit, Outcome, Plan, Prefill, Priority, SeqId,
    StateCopy, StateMoves, Step, TenantId,
};
