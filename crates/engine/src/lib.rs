//! The thread that owns model and scheduler.
//!
//! Knows: how a request becomes tokens, steps, samples and events, and when. Does not know: wire formats and HTTP
//! (`andante-server`), which sequence runs next (`andante-sched`), what a forward pass computes (`andante-model`), how text
//! and tokens relate (`andante-text`).
#![forbid(unsafe_code)]

mod batch;
mod clock;
mod config;
mod constraints;
mod engine;
mod error;
mod event;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod generation;
mod handle;
mod histogram;
mod log;
mod mailbox;
mod places;
mod pool;
mod preload;
mod progress;
mod recording;
mod request;
mod sampler;
mod sampling;
mod seal;
mod spellings;
mod status;
mod store;
mod sync;
mod tenant;
mod thinking;
mod timeline;
mod transcript;
mod turns;

pub use andante_model::{ModelInfo, Pooling};
pub use andante_sched::{
    CostModel, FRACTION_BITS, Missed, Mode, Prefill, PrefixMap, PrefixRun, Priority, Profile,
    SeqId, StallLimit, Stats as SchedulerStats, TenantId, TenantStats, Times,
};

pub use clock::{Clock, SystemClock};
pub use config::EngineConfig;
pub use engine::{Engine, EngineThread, Progress, spawn, spawn_with_store};
pub use error::{EngineError, Failure, RequestError, SubmitError};
pub use event::{Delta, Event, EventStream, FinishReason, Timings, TokenLogprob, TokenText, Usage};
pub use handle::{EngineHandle, Health, TextStack};
pub use histogram::Histogram;
pub use log::TARGET as REQUEST_LOG;
pub use mailbox::Shutdown;
pub use progress::PromptProgress;
pub use request::{PromptInput, Request};
pub use sampling::{Constrained, Sampling};
pub use status::{IoRecord, Latencies, Status, StepKind, StepRecord, TenantStatus};
pub use store::{
    DiskStore, Folder, Holdings, Key, Listed, Listing, ObjectInfo, ObjectName, Objects, Reject,
    Remembered, Secret, Span, Store, StoreConfig, StoreStats, Transfer, inspect, prune, verify,
};
pub use tenant::Tenant;
pub use timeline::{Ending, Moment, StepMoment, TimelineReader};
pub use transcript::TranscriptConfig;
