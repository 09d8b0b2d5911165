//! What every handler shares, and what happens around each of them: ids, limits, the log line of a refusal.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use andante_engine::EngineHandle;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;
use tokio::sync::Semaphore;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::aliases::{self, Alias};
use crate::api::{self, LastMap, ResponseStore};
use crate::caller::{Account, Caller};
use crate::config::ServerConfig;
use crate::error::{ApiError, Envelope, Refusal};
use crate::gate::{Gate, Pass};
use crate::json::Field;
use crate::keys::{self, ApiKey};
use crate::observe::Observation;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const ANTHROPIC_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// The longest request id that is taken over from a client.
const MAX_REQUEST_ID_BYTES: usize = 128;

/// The HTTP side of one engine. Clones share everything; one for a request knows whose it is, and where tenants are kept
/// apart, prepares what shares prefixes with that tenant's only.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
    engine: EngineHandle,
    account: Account,
}

struct Shared {
    config: Arc<ServerConfig>,
    /// Those of the configuration's keys, in their order.
    gates: Vec<Gate>,
    /// Permits to parse, render and tokenise.
    preparing: Arc<Semaphore>,
    responses: ResponseStore,
    last_map: LastMap,
    /// Refused requests, by status code.
    refusals: Mutex<BTreeMap<u16, u64>>,
    ids: RandomState,
    next_id: AtomicU64,
    started_at_s: u64,
}

impl Server {
    /// A server for the model behind `engine`.
    pub fn new(engine: EngineHandle, config: ServerConfig) -> Self {
        let shared = Shared {
            preparing: Arc::new(Semaphore::new(config.max_preparing)),
            gates: config
                .api_keys
                .iter()
                .map(|key| Gate::new(key.limits()))
                .collect(),
            config: Arc::new(config),
            responses: ResponseStore::default(),
            last_map: LastMap::default(),
            refusals: Mutex::default(),
            ids: RandomState::new(),
            next_id: AtomicU64::new(0),
            started_at_s: unix_time_s(),
        };
        Self {
            shared: Arc::new(shared),
            engine,
            account: Account::default(),
        }
    }

    /// The server as a caller meets it.
    fn for_account(&self, account: Account) -> Self {
        let engine = if self.shared.config.isolate_tenants {
            self.engine.with_salt(account.tenant.salt())
        } else {
            self.engine.clone()
        };
        Self {
            shared: Arc::clone(&self.shared),
            engine,
            account,
        }
    }

    /// All routes, with what surrounds them; for [`serve`](crate::serve), or for calls without a socket.
    pub fn router(&self) -> Router {
        api::routes(self.clone())
            .layer(middleware::from_fn_with_state(self.clone(), authorize))
            .layer(cors(&self.shared.config.cors_origins))
            .layer(middleware::from_fn_with_state(self.clone(), surround))
    }

    pub(crate) fn engine(&self) -> &EngineHandle {
        &self.engine
    }

    pub(crate) fn config(&self) -> &Arc<ServerConfig> {
        &self.shared.config
    }

    /// Names that stand for the model beside its own.
    pub(crate) fn aliases(&self) -> &'static [Alias] {
        aliases::of(&self.engine.info().architecture)
    }

    /// All names under which the model is listed, its own first.
    pub(crate) fn model_names(&self) -> impl Iterator<Item = &str> {
        let own = self.shared.config.model_name.as_str();
        let others = self.aliases().iter().map(|alias| alias.name);
        std::iter::once(own).chain(others.filter(move |&name| name != own))
    }

    /// Whether the model thinks under the name that a request calls it by; `None` where the name does not say.
    pub(crate) fn thinks_by_name(&self, body: &Field<'_>) -> Result<Option<bool>, ApiError> {
        let name = body.get("model").string()?;
        // Ollama's clients add it.
        let name = name.map(|name| name.strip_suffix(":latest").unwrap_or(name));
        let named = |alias: &&Alias| Some(alias.name) == name;
        Ok(self.aliases().iter().find(named).map(|alias| alias.thinks))
    }

    /// Whom this one is for.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Responses that were asked to be kept.
    pub(crate) fn responses(&self) -> &ResponseStore {
        &self.shared.responses
    }

    /// The last description of the KV blocks.
    pub(crate) fn last_map(&self) -> &LastMap {
        &self.shared.last_map
    }

    /// Requests refused so far, by status code.
    pub(crate) fn refusals(&self) -> BTreeMap<u16, u64> {
        lock(&self.shared.refusals).clone()
    }

    pub(crate) fn started_at_s(&self) -> u64 {
        self.shared.started_at_s
    }

    /// An id that no other answer of this or another run has: clients merge turns that share one.
    pub(crate) fn unique_id(&self, prefix: &str) -> String {
        let number = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        format!(
            "{prefix}{:016x}{number:08x}",
            self.shared.ids.hash_one(number)
        )
    }

    /// Lets a request in that the model is to answer, within the limits of its key.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<Pass, ApiError> {
        let caller = Caller::of(headers);
        let keys = &self.shared.config.api_keys;
        let Some(place) = caller.key().and_then(|key| keys::position(keys, key)) else {
            return Ok(Pass::default());
        };
        self.shared.gates[place].enter().map_err(|breach| {
            // When one of the key's own requests will have ended nobody knows; all that wait are the nearest guess.
            let estimate_s = || self.engine.retry_after_s();
            ApiError::OverLimit {
                limit: breach.limit,
                retry_after_s: breach.wait_s.unwrap_or_else(estimate_s),
            }
        })
    }

    /// The request's body, within its limits of size and time.
    pub(crate) async fn read_body(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Bytes, ApiError> {
        // The content type is not asked for: the body is JSON or it is refused as such.
        if headers
            .get(header::CONTENT_ENCODING)
            .is_some_and(|encoding| encoding != "identity")
        {
            return Err(ApiError::ContentEncoding);
        }
        let limit = self.shared.config.body_limit_bytes;
        if body.size_hint().lower() > limit as u64 {
            return Err(ApiError::BodyTooLarge { limit });
        }
        let whole = Limited::new(body, limit).collect();
        match tokio::time::timeout(self.shared.config.body_timeout, whole).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                Err(ApiError::BodyTooLarge { limit })
            }
            Ok(Err(_)) => Err(ApiError::BodyCut),
            Err(_) => Err(ApiError::BodyTimeout),
        }
    }

    /// Reads a request's body and runs `work` on it, as [`prepare`](Self::prepare) does, with the server of its sender.
    pub(crate) async fn prepare_body<T: Send + 'static>(
        &self,
        headers: &HeaderMap,
        body: Body,
        work: impl FnOnce(&Self, &Field<'_>) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let caller = Caller::of(headers);
        let body = self.read_body(headers, body).await?;
        self.prepare(move |server| {
            let body: Value = serde_json::from_slice(&body)?;
            let body = Field::body(&body)?;
            let account = caller.identify(&body, server.config())?;
            work(&server.for_account(account), &body)
        })
        .await
    }

    /// Runs the part of a request that costs time but no waiting, on a thread where it holds nobody up.
    pub(crate) async fn prepare<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let permit = self
            .shared
            .preparing
            .clone()
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        let server = self.clone();
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&server)
        });
        // A panic is a bug of ours, which the panic hook has reported; it costs this request only.
        work.await.unwrap_or(Err(ApiError::Panicked))
    }
}

/// Pages of this machine may call, and those of the origins given; pages of other sites may not read what their visitors'
/// servers answer.
fn cors(origins: &[String]) -> CorsLayer {
    let origins = origins.to_vec();
    let is_allowed = move |origin: &HeaderValue| {
        is_local(origin)
            || origins
                .iter()
                .any(|allowed| allowed == "*" || origin == allowed.as_str())
    };
    CorsLayer::new()
        .allow_origin(AllowOrigin::predicate(move |origin, _| is_allowed(origin)))
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([REQUEST_ID, ANTHROPIC_REQUEST_ID, header::RETRY_AFTER])
}

/// Lets those in who have a key, where there are keys.
async fn authorize(State(server): State<Server>, request: Request, next: Next) -> Response {
    let keys = &server.config().api_keys;
    if !keys.is_empty() && !keys::is_public(request.uri().path()) {
        let caller = Caller::of(request.headers());
        if caller.key().and_then(|key| keys::find(keys, key)).is_none() {
            return ApiError::NoKey.into_response();
        }
    }
    next.run(request).await
}

/// Whether an `Origin` is this machine under one of its own names, whatever the port.
fn is_local(origin: &HeaderValue) -> bool {
    let Ok(origin) = origin.to_str().unwrap_or_default().parse::<Uri>() else {
        return false;
    };
    matches!(origin.host(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

/// A count is whole whatever became of who held it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn unix_time_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Gives every answer an id, every refusal its API's envelope and a log line. (Answers are logged by the engine.)
async fn surround(State(server): State<Server>, mut request: Request, next: Next) -> Response {
    let id = request_id(&server, request.headers());
    // Handlers that write the id find it where a client would have put it.
    request.headers_mut().insert(REQUEST_ID, id.clone());
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let envelope = Envelope::of(&path, request.headers());
    let caller = Caller::of(request.headers());
    let observer = server.config().observer.as_ref();
    let observation = Observation::begin(observer, &request, id.to_str().unwrap_or_default());
    let mut response = Observation::lend(observation, next.run(request)).await;
    if let Some(Refusal(error)) = response.extensions_mut().remove() {
        let id = id.to_str().unwrap_or_default();
        let written = error.response(envelope, id);
        let status = written.status().as_u16();
        *lock(&server.shared.refusals).entry(status).or_default() += 1;
        let key = caller
            .key()
            .and_then(|key| keys::find(&server.config().api_keys, key));
        let key = key.map_or("", ApiKey::name);
        tracing::info!(id, %method, ?path, status, key, reason = ?error.to_string(), "refused");
        // Headers of the first response stay: CORS, the methods allowed.
        let (parts, body) = written.into_parts();
        *response.status_mut() = parts.status;
        *response.body_mut() = body;
        response.headers_mut().remove(header::CONTENT_LENGTH);
        response.headers_mut().extend(parts.headers);
    }
    response.headers_mut().insert(REQUEST_ID, id.clone());
    if envelope == Envelope::Anthropic {
        response.headers_mut().insert(ANTHROPIC_REQUEST_ID, id);
    }
    response
}

/// The id that the client or a proxy gave the request, or a new one.
fn request_id(server: &Server, headers: &HeaderMap) -> HeaderValue {
    let given = headers.get(REQUEST_ID).filter(|id| {
        (1..=MAX_REQUEST_ID_BYTES).contains(&id.len())
            && id.as_bytes().iter().all(u8::is_ascii_graphic)
    });
    given.cloned().unwrap_or_else(|| {
        HeaderValue::try_from(server.unique_id("req_")).expect("an id is plain ASCII")
    })
}
