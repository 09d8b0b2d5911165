//! The HTTP APIs.
//!
//! Knows wire formats: it decodes a request, has the engine prepare and run it, and encodes the events that come back,
//! streamed or whole. Does not know how tokens are made, scheduled or cached.
//!
//! | module | |
//! |---|---|
//! | `http` | connections, their limits, shutdown |
//! | `loading` | what is answered before there is a model |
//! | `listener` | TCP, TLS, UNIX sockets |
//! | `keys` | API keys: who may ask |
//! | `limits` | how much may be asked with a key |
//! | `gate` | who is let in within these limits, by the clock |
//! | `api` | the routes and one module per API: wire types, `decode`, `encode` |
//! | `page` | the page for browsers: the files of `web/` |
//! | `aliases` | names of the model that clients of other servers use |
//! | `answer` | the choices of one request as one sequence of events |
//! | `caller` | whom a request is served for, and how urgent it is |
//! | `sse` | that sequence as a body of server-sent events, or of lines |
//! | `json` | fields that name themselves when they are wrong |
//! | `error` | every refusal, and each API's envelope for it |
//! | `config` | settings and fixed limits |
//! | `observe` | what is told of a request when it has ended, for tracing |
//! | `server` | what the handlers share, and what surrounds each of them |
#![forbid(unsafe_code)]

mod aliases;
mod answer;
mod api;
mod caller;
mod config;
mod error;
#[cfg(test)]
mod fixture;
mod gate;
mod http;
mod json;
mod keys;
mod limits;
mod listener;
mod loading;
mod observe;
mod page;
mod server;
mod sse;

pub use config::{FormatShare, ServerConfig, TenantSource};
pub use http::{Phase, serve, serve_loading};
pub use keys::{ApiKey, KeyError, KeyFileError};
pub use listener::{Listener, TlsError, TlsIdentity};
pub use loading::Loading;
pub use observe::{ErrorKind, Observed, ObservedChoice, ObservedError, Observer, Parameters};
pub use server::Server;
