//! Options of `probe`.

use std::path::PathBuf;

use clap::Args;

use super::{LoadArgs, SloArgs};

/// Options of `probe`.
#[derive(Args, Debug)]
pub(crate) struct ProbeArgs {
    /// Base address of the server, e.g. http://127.0.0.1:8000
    pub(crate) url: String,
    /// Ask /v1/chat/completions instead of /v1/completions
    #[arg(long)]
    pub(crate) chat: bool,
    /// Name of the model in the requests [default: the first that the server lists]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Key sent as a bearer token [default: the environment variable ANDANTE_API_KEY]
    #[arg(long, value_name = "KEY", hide_default_value = true)]
    pub(crate) api_key: Option<String>,
    /// Repeat the prompts of an earlier run; a server's prefix cache may then know them [default: new ones each time]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Seconds after which a round, or what is left of a trace, is given up
    #[arg(long, value_name = "S", default_value_t = 600)]
    pub(crate) timeout_s: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw what happened into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) stall: StallArgs,
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    #[command(flatten)]
    pub(crate) tenants: TenantArgs,
}

/// Running answers, then a long prompt, then a short one: what is measured unless another mode is asked for.
#[derive(Args, Debug)]
#[command(next_help_heading = "Stalls")]
pub(crate) struct StallArgs {
    /// How often it is repeated; medians are given
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Answers that are being generated when the long prompt arrives
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) victims: u32,
    /// Tokens of the long prompt
    #[arg(long, value_name = "TOKENS", default_value_t = 5000)]
    pub(crate) long: u32,
    /// Tokens before those of the long prompt that the server has processed already, as those of a long conversation: it
    /// resumes there, at that depth
    #[arg(
        long,
        value_name = "TOKENS",
        default_value_t = 0,
        conflicts_with = "alone"
    )]
    pub(crate) resume: u32,
    /// Tokens of the prompt that comes half a second after the long one
    #[arg(long, value_name = "TOKENS", default_value_t = 60)]
    pub(crate) short: u32,
    /// Measure the long prompt alone first, for its slowdown
    #[arg(long)]
    pub(crate) alone: bool,
    /// Tokens that each running answer still gets, counted from the long prompt's arrival, before a round ends: the same
    /// work for every server
    #[arg(long, value_name = "TOKENS", default_value_t = 256)]
    pub(crate) work: u32,
    /// Most tokens of a running answer; it must outlast the long prompt
    #[arg(long, value_name = "TOKENS", default_value_t = 3000)]
    pub(crate) victim_tokens: u32,
}

/// Requests at the times of a trace, whether earlier ones are done or not.
#[derive(Args, Debug)]
#[command(next_help_heading = "Open loop")]
pub(crate) struct TraceArgs {
    /// Trace of requests to send: the CSV and JSONL forms that `simulate` reads
    #[arg(long, value_name = "FILE", conflicts_with = "tenants")]
    pub(crate) trace: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) slo: SloArgs,
}

/// Tenants (header x-tenant) that keep the server busy, the first of them greedier than the others.
#[derive(Args, Debug)]
#[command(next_help_heading = "Tenants")]
pub(crate) struct TenantArgs {
    /// Number of tenants
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) tenants: Option<u32>,
    /// How many times as many clients the first tenant has
    #[arg(long, value_name = "FACTOR", default_value_t = 10)]
    pub(crate) hog: u32,
    /// Clients of each other tenant; each sends its next request when the last is answered
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) clients: u32,
    /// Length of the run
    #[arg(long, value_name = "S", default_value_t = 60)]
    pub(crate) seconds: u64,
    /// Prompt tokens of each request
    #[arg(long, value_name = "TOKENS", default_value_t = 200)]
    pub(crate) prompt: u32,
    /// Answer tokens of each request
    #[arg(long, value_name = "TOKENS", default_value_t = 40)]
    pub(crate) answer: u32,
}
