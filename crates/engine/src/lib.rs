//! The thread that owns model and scheduler.
//!
//! Knows: how a request becomes tokens, steps, samples and events, and when. Does not know: wire formats and HTTP
//! (`andante-server`), which sequence runs next (`andante-sched`), what a forward pass computes (`andante-model`), how text
//! and tokens relate (`andante-text`).
#![forbid(unsafe_code)]

mod clock;
mod config;
mod error;
mod event;
mod handle;
mod mailbox;
mod request;
mod sampling;

pub use clock::{Clock, SystemClock};
pub use config::EngineConfig;
pub use error::{Failure, RequestError, SubmitError};
pub use event::{Delta, Event, EventStream, FinishReason, Timings, TokenLogprob, TokenText, Usage};
pub use handle::{EngineHandle, Health, Status};
pub use mailbox::Shutdown;
pub use request::{PromptInput, Request};
pub use sampling::Sampling;
