//! Options of `andante serve`.

use std::net::IpAddr;
use std::path::PathBuf;

use andante_server::ApiKey;
use clap::{Args, Subcommand, ValueEnum};

use super::{Ds4Args, EngineArgs, KvDiskArgs, ModelArgs, Pooling};

/// Options of `serve`.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// File of settings in TOML: names of flags without the dashes, and their values. Variables stand above it (ANDANTE_CTX for
    /// --ctx), flags above those; ANDANTE_CONFIG may name the file too
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// Name under which clients see the model [default: its own]
    #[arg(long, value_name = "NAME")]
    pub(crate) alias: Option<String>,
    /// Address to listen on
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", value_parser = parse_host)]
    pub(crate) host: IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 8000)]
    pub(crate) port: u16,
    /// Listen on this UNIX socket instead
    #[arg(long, value_name = "PATH", conflicts_with_all = ["host", "port", "tls_cert"])]
    pub(crate) unix_socket: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Most tokens of an answer whose request does not say [default: what its context holds]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tokens: Option<u32>,
    /// Most tokens of reasoning in an answer whose request does not say [default: no bound]
    #[arg(long, value_name = "N")]
    pub(crate) think_budget: Option<u32>,
    /// Where a request's tenant is looked for, first to last: the header x-tenant, the body's field `user`, the API key; without
    /// keys of the server's own, clients may send any
    /// [default: header,user,key; with API keys only key]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SOURCES")]
    pub(crate) tenant_from: Option<Vec<TenantFrom>>,
    /// Most sequences of one tenant computed at once [default: no limit]
    #[arg(long, value_name = "N")]
    pub(crate) tenant_sessions: Option<u32>,
    /// Weight of a tenant's share of the time; others weigh 1. May be repeated
    #[arg(long, value_name = "NAME=WEIGHT", value_parser = parse_weight)]
    pub(crate) tenant_weight: Vec<(String, u32)>,
    /// Give every tenant a prefix cache of its own, so that none learns by timing what another asked. Only API keys tell tenants
    /// apart who might want to know
    #[arg(long)]
    pub(crate) kv_isolate_tenants: bool,
    /// How the hidden states of a text become its embedding [default: what the file says, else last]
    #[arg(long, value_name = "mean|last", value_parser = Pooling::parse)]
    pub(crate) pooling: Option<Pooling>,
    /// Seconds that a request may wait for its turn [default: as long as its client waits]
    #[arg(long, value_name = "S")]
    pub(crate) queue_timeout_s: Option<u32>,
    /// Seconds from a request's turn to its first token [default: as long as its prompt takes]
    #[arg(long, value_name = "S")]
    pub(crate) ttft_timeout_s: Option<u32>,
    /// Seconds that a client may leave its answer unread
    #[arg(long, value_name = "S", default_value_t = 300)]
    pub(crate) idle_client_timeout_s: u32,
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
    /// Seconds that running answers get to finish after SIGINT or SIGTERM
    #[arg(long, value_name = "S", default_value_t = 30)]
    pub(crate) drain_s: u64,
    /// Seconds that a step may take before the process takes itself to be stuck, leaves a report and ends
    #[arg(long, value_name = "S", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) watchdog_s: u32,
    /// Go to this folder first; relative paths begin there
    #[arg(long, value_name = "DIR")]
    pub(crate) chdir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) kv: KvDiskArgs,
    #[command(flatten)]
    pub(crate) ds4: Ds4Args,
}

/// What to do with the settings of `serve`.
#[derive(Subcommand, Debug)]
pub(crate) enum ConfigCommand {
    /// Print what flags, variables and file say together, and where each comes from; fails when something is wrong
    Check(Box<ServeArgs>),
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Who may ask, and how safely.
#[derive(Args, Debug)]
pub(crate) struct AccessArgs {
    /// Key that a client must send, SECRET or NAME:SECRET; may be repeated. The environment variable ANDANTE_API_KEY is one
    /// more. Limits may follow, as in `ann:SECRET parallel=4 rpm=60 tpm=100000`: requests at once, requests a minute, tokens a
    /// minute (of prompts, cached or not, and answers)
    #[arg(long, value_name = "KEY", value_parser = ApiKey::parse)]
    pub(crate) api_key: Vec<ApiKey>,
    /// File of such keys, with their limits, one a line
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Origin whose web pages may call, beside this machine's; `*` is all. May be repeated
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) cors_origin: Vec<String>,
    /// Let web pages of every origin call: `--cors-origin '*'`
    #[arg(long)]
    pub(crate) cors: bool,
    /// Certificate in PEM, for HTTPS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's private key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Largest request body, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) max_body_mib: u32,
    /// Connections served at once; more wait
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: u32,
    /// Seconds of silence on a stream after which the client is told that its request is alive
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep_alive_s: u32,
}

/// What is told of its work, and to whom.
#[derive(Args, Debug)]
#[command(next_help_heading = "Watching")]
pub(crate) struct WatchArgs {
    /// How the log is written to standard error: lines to read, or one JSON object a line
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// Give `/metrics` the names too that llm-d and the endpoint picker of Kubernetes' gateway read
    #[arg(long)]
    pub(crate) vllm_metrics: bool,
    /// Write every decision of the scheduler to this file, for `andante simulate`; prompts are in it as token ids
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Write whole sessions to this file, for reports of faults: prompts as the model sees them, what was found of them, every
    /// token and what was read from it. Whoever reads the file reads all that was said
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Largest size of that file, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024, requires = "trace", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) trace_mib: u32,
    /// Send a span for each request to this collector, by OTLP over HTTP, such as http://localhost:4318
    /// [default: what OTEL_EXPORTER_OTLP_ENDPOINT says, else none]
    #[arg(long, value_name = "URL")]
    pub(crate) otlp_endpoint: Option<String>,
}

/// What names a request's tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TenantFrom {
    /// The header x-tenant
    Header,
    /// The body's field `user`
    User,
    /// The API key
    Key,
}

fn parse_host(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(IpAddr::from([127, 0, 0, 1])),
        _ => text
            .parse()
            .map_err(|_| "give an IP address, or localhost".to_owned()),
    }
}

/// A name and a weight in thousandths.
fn parse_weight(text: &str) -> Result<(String, u32), String> {
    let wrong = || "give NAME=WEIGHT, with a weight from 0.001 to 1000".to_owned();
    let (name, weight) = text.rsplit_once('=').ok_or_else(wrong)?;
    let weight: f64 = weight.parse().map_err(|_| wrong())?;
    if name.is_empty() || !(0.001..=1000.0).contains(&weight) {
        return Err(wrong());
    }
    // At most a million.
    Ok((name.to_owned(), (weight * 1000.0).round() as u32))
}
