//! What a person may set about the server, and the fixed limits of the wire.

use std::time::Duration;

use crate::keys::ApiKey;
use crate::observe::Observer;

/// The server's settings.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The name under which `/v1/models` lists the model. Requests may ask for any name: there is one model.
    pub model_name: String,
    /// The formats of the model's tensors, for whoever looks at what is loaded.
    pub formats: Vec<FormatShare>,
    /// Where a request's tenant is looked for, first to last. A request that has none of these is the default tenant's.
    pub tenant_from: Vec<TenantSource>,
    /// The keys that open the server; with none it is open to everybody who reaches it.
    pub api_keys: Vec<ApiKey>,
    /// Origins whose pages may call beside this machine's own; `*` is all.
    pub cors_origins: Vec<String>,
    /// Whether no tenant takes over what was computed for another: how soon an answer begins then says nothing about what
    /// others have asked. Only as good as what names the tenant.
    pub isolate_tenants: bool,
    /// Silence on a stream after which the API's sign of life is sent, so that no client takes a queued or prefilling
    /// request for a dead one.
    pub keep_alive: Duration,
    /// The largest request body, in bytes.
    pub body_limit_bytes: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// How long a request's head may take to arrive; also how long an idle connection is kept.
    pub head_timeout: Duration,
    /// How long running answers may go on after the wish to shut down.
    pub drain_timeout: Duration,
    /// Connections served at once; more wait in the listener's backlog.
    pub max_connections: usize,
    /// Whether `/metrics` also has vLLM's names, which load balancers of Kubernetes read.
    pub vllm_metrics: bool,
    /// Who hears of every request to the model.
    pub observer: Option<Observer>,
    /// Requests parsed, rendered and tokenised at once, so that a flood of prompts leaves the cores to the model.
    pub max_preparing: usize,
}

impl ServerConfig {
    /// The usual settings for a model listed as `model_name`.
    pub fn new(model_name: impl Into<String>) -> Self {
        Self {
            model_name: model_name.into(),
            formats: Vec::new(),
            tenant_from: vec![TenantSource::Header, TenantSource::User, TenantSource::Key],
            api_keys: Vec::new(),
            cors_origins: Vec::new(),
            isolate_tenants: false,
            keep_alive: Duration::from_secs(5),
            body_limit_bytes: 64 << 20,
            body_timeout: Duration::from_secs(120),
            head_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(30),
            max_connections: 1024,
            vllm_metrics: false,
            observer: None,
            max_preparing: std::thread::available_parallelism().map_or(2, usize::from),
        }
    }
}

/// The tensors of one format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatShare {
    /// The format's name.
    pub format: String,
    /// How many tensors have it.
    pub tensors: usize,
    /// What they take in the file.
    pub bytes: u64,
}

/// What names a request's tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TenantSource {
    /// The header `x-tenant`.
    Header,
    /// The field `user` of the body.
    User,
    /// The API key: `Authorization: Bearer`, or the header `x-api-key`.
    Key,
}

/// Choices (prompts times `n`) of one request. All must find a place in the queue at once.
pub(crate) const MAX_CHOICES: usize = 64;
/// Stop strings of one request; OpenAI allows 4, llama-server any number.
pub(crate) const MAX_STOPS: usize = 16;
/// Bytes of one stop string: text is held back for as long as it may begin one.
pub(crate) const MAX_STOP_BYTES: usize = 4096;
/// Alternatives listed beside each token.
pub(crate) const MAX_TOP_LOGPROBS: i64 = 20;
/// The largest request head, in bytes.
pub(crate) const MAX_HEAD_BYTES: usize = 64 << 10;
/// Responses kept for `previous_response_id`.
pub(crate) const MAX_STORED_RESPONSES: usize = 1024;
/// Memory for them, in bytes.
pub(crate) const MAX_STORED_BYTES: usize = 64 << 20;
