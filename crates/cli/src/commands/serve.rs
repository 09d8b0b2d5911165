//! `andante serve`: a model over HTTP until a signal ends it.

mod startup;

use std::time::Duration;

use andante_engine::{EngineConfig, Health, Tenant, TranscriptConfig};
use andante_server::{ApiKey, Listener, Loading, Phase, Server, ServerConfig, TenantSource};
use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};

use crate::access::{self, Bound};
use crate::args::{AccessArgs, ServeArgs, TenantFrom, Weights};
use crate::log;
use crate::notify::Notify;
use crate::objects;
#[cfg(feature = "otlp")]
use crate::otlp::Traces;
use crate::output::print;
use crate::report::Reporter;
use crate::session::{self, Session};
use crate::watchdog;
use startup::{Memory, Startup};

/// The exit status of a process that was stuck: sysexits(3) has it for software that fails.
const STUCK: i32 = 70;

/// How often the engine is asked whether it still works.
const WATCH: Duration = Duration::from_millis(500);

/// Loads the model, listens, serves. Ends well after a signal, with an error when the engine has failed.
pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    log::init(args.watch.log_format);
    if let Some(folder) = &args.chdir {
        std::env::set_current_dir(folder)
            .with_context(|| format!("--chdir: cannot go to {}", folder.display()))?;
    }
    for note in &args.ds4.notes {
        tracing::warn!("{note}");
    }
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"DS4_") {
            tracing::warn!(
                "the variable {} is not read: flags say it all",
                name.display()
            );
        }
    }
    #[cfg(not(feature = "otlp"))]
    anyhow::ensure!(
        args.watch.otlp_endpoint.is_none(),
        "--otlp-endpoint: this program was built without it; cargo build --features otlp has it"
    );
    // Dropped at the end, it sends what is left.
    #[cfg(feature = "otlp")]
    let traces = traces(args)?;
    let reporter = Reporter::from_environment();
    reporter.hook();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the server's threads")?;
    // Before the model is loaded: a port that is taken should not cost a long wait first.
    let keys = access::keys(&args.access)?;
    let Bound { listener, address } = runtime.block_on(access::bind(args))?;
    let place = objects::place(&args.kv)?;
    let mut model = args.model.clone();
    if args.ds4.streams_weights && model.compute.weights == Weights::Auto {
        model.compute.weights = Weights::ExpertsInFile;
    }
    let (loading, loaded) = (Loading::default(), oneshot::channel::<()>());
    let answering = runtime.spawn(answer_meanwhile(listener, loading.clone(), loaded.1));
    let told = |done, total| loading.set(done, total);
    let session = session::start(&model, &args.engine, place, &told, |config| {
        configure(config, args);
    })?;
    drop(loaded.0);
    let listener = runtime.block_on(answering)?;
    tell(&session, args);
    reporter.engine(session.handle.clone());
    let notify = watch_over(&session, args, &reporter)?;
    let bound = Bound { listener, address };
    let config = server_config(&session, args, keys);
    #[cfg(feature = "otlp")]
    let config = ServerConfig {
        observer: traces
            .as_ref()
            .map(|traces| traces.observer(&config.model_name)),
        ..config
    };
    runtime.block_on(serve(bound, config, &session, args, &notify))?;
    let ended = session.finish();
    if let Err(error) = &ended {
        reporter.tell(&format!("{error:#}"));
    }
    ended
}

/// Answers while the model is being loaded, and gives the listener back when it is.
async fn answer_meanwhile(
    listener: Listener,
    loading: Loading,
    loaded: oneshot::Receiver<()>,
) -> Listener {
    // Its sender is dropped then.
    andante_server::serve_loading(&listener, loading, async { _ = loaded.await }).await;
    listener
}

/// Has a thread look whether the engine gets on. What it is told of may be anywhere in a step, so the process ends at once.
fn watch_over(session: &Session, args: &ServeArgs, reporter: &Reporter) -> Result<Notify> {
    let (engine, reporter) = (session.handle.clone(), reporter.clone());
    let stuck = move |age: Duration| {
        let seconds = age.as_secs();
        tracing::error!("a step has taken {seconds} s and will not end; the process does");
        reporter.tell(&format!("a step had taken {seconds} s (--watchdog-s)"));
        std::process::exit(STUCK);
    };
    let limit = Duration::from_secs(args.watchdog_s.into());
    let (pings, notify) = (Notify::from_environment(), Notify::from_environment());
    watchdog::watch(move || engine.step_age(), limit, pings, stuck)
        .context("cannot start the watchdog")?;
    Ok(notify)
}

fn configure(config: &mut EngineConfig, args: &ServeArgs) {
    config.tenant_sessions = args.tenant_sessions;
    let weights = args.tenant_weight.iter();
    config.tenant_weights = weights
        .map(|(name, permille)| (Tenant::named(name).id(), *permille))
        .collect();
    config.answer_tokens = args.tokens;
    config.reasoning_tokens = args.think_budget;
    config.queue_timeout_s = args.queue_timeout_s;
    config.first_token_timeout_s = args.ttft_timeout_s;
    config.reader_timeout_s = args.idle_client_timeout_s;
    config.record = args.watch.record.clone();
    config.transcript = args.watch.trace.clone().map(|path| TranscriptConfig {
        path,
        most_bytes: u64::from(args.watch.trace_mib) << 20,
    });
    config.pooling = args.pooling.map(Into::into);
}

/// What makes spans of requests, if they have anywhere to go.
#[cfg(feature = "otlp")]
fn traces(args: &ServeArgs) -> Result<Option<Traces>> {
    let usual = || std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok();
    let Some(endpoint) = args.watch.otlp_endpoint.clone().or_else(usual) else {
        return Ok(None);
    };
    let traces = Traces::start(&endpoint).context("--otlp-endpoint")?;
    tracing::info!("spans of requests go to {endpoint}");
    Ok(Some(traces))
}

fn server_config(session: &Session, args: &ServeArgs, api_keys: Vec<ApiKey>) -> ServerConfig {
    let access = &args.access;
    ServerConfig {
        drain_timeout: Duration::from_secs(args.drain_s),
        tenant_from: tenant_from(args, !api_keys.is_empty()),
        isolate_tenants: args.kv_isolate_tenants,
        api_keys,
        cors_origins: cors_origins(access),
        vllm_metrics: args.watch.vllm_metrics,
        body_limit_bytes: (access.max_body_mib as usize) << 20,
        max_connections: access.max_connections as usize,
        keep_alive: Duration::from_secs(access.keep_alive_s.into()),
        formats: session.formats.clone(),
        ..ServerConfig::new(args.alias.as_ref().unwrap_or(&session.name))
    }
}

async fn serve(
    bound: Bound,
    config: ServerConfig,
    session: &Session,
    args: &ServeArgs,
    notify: &Notify,
) -> Result<()> {
    let (phases, phase) = watch::channel(Phase::Serve);
    let signals = Signals::new()?;
    let startup = Startup {
        name: &session.name,
        load_time: session.load_time,
        memory: memory(session, args),
        address: &bound.address,
    };
    print(format_args!("{startup}\n"))?;
    notify.ready(&format!("serving {} on {}", session.name, bound.address));
    let server = Server::new(session.handle.clone(), config);
    let ending = tokio::spawn(signals.pass_on(phases.clone()));
    let failing = tokio::spawn(end_with_engine(session.handle.clone(), phases));
    let mut leaving = phase.clone();
    let said = async {
        _ = leaving.wait_for(|phase| *phase > Phase::Serve).await;
        notify.stopping();
    };
    tokio::join!(andante_server::serve(bound.listener, server, phase), said);
    ending.abort();
    failing.abort();
    Ok(())
}

/// What names tenants. Where there are keys, nothing else is to be believed unless the operator says so.
fn tenant_from(args: &ServeArgs, has_keys: bool) -> Vec<TenantSource> {
    match &args.tenant_from {
        Some(sources) => sources.iter().copied().map(tenant_source).collect(),
        None if has_keys => vec![TenantSource::Key],
        None => vec![TenantSource::Header, TenantSource::User, TenantSource::Key],
    }
}

/// What sequences take.
fn memory<'a>(session: &'a Session, args: &ServeArgs) -> Memory<'a> {
    let status = session.handle.status();
    Memory {
        sessions: args.engine.sessions,
        context: session.handle.context(),
        blocks: status.scheduler.blocks.total.into(),
        block_bytes: session.kv_block_bytes,
        block_tokens: session.kv_block_tokens.into(),
        format: &session.handle.info().kv_format,
        states: status.running_states.into(),
        state_bytes: session.state_bytes,
    }
}

/// Logs what runs and where it keeps KV; the engine has said how it schedules.
fn tell(session: &Session, args: &ServeArgs) {
    let info = session.handle.info();
    tracing::info!(
        "model: {}, {}, {:.1} GB of weights, {}",
        session.name,
        info.architecture,
        info.weight_bytes as f64 / 1e9,
        info.backend
    );
    if let Some(folder) = &args.kv.kv_disk_dir {
        let (folder, most) = (folder.display(), args.kv.kv_disk_space_mb);
        tracing::info!("KV on disk: {folder}, at most {most} MB");
    }
}

fn cors_origins(access: &AccessArgs) -> Vec<String> {
    let all = access.cors.then(|| "*".to_owned());
    access.cors_origin.iter().cloned().chain(all).collect()
}

fn tenant_source(from: TenantFrom) -> TenantSource {
    match from {
        TenantFrom::Header => TenantSource::Header,
        TenantFrom::User => TenantSource::User,
        TenantFrom::Key => TenantSource::Key,
    }
}

/// Ends the server when its engine has failed: what is left of it can only refuse.
async fn end_with_engine(engine: andante_engine::EngineHandle, phases: watch::Sender<Phase>) {
    while engine.health() != Health::Failed {
        tokio::time::sleep(WATCH).await;
    }
    tracing::error!("the engine has failed; ending");
    phases.send_replace(Phase::Stop);
}

/// SIGINT and SIGTERM.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// The first signal lets running answers finish, the second ends them, each with an error event.
    async fn pass_on(mut self, phases: watch::Sender<Phase>) {
        self.next().await;
        tracing::info!(
            "ending when the running answers have finished; a second signal ends them now"
        );
        phases.send_replace(Phase::Drain);
        self.next().await;
        phases.send_replace(Phase::Stop);
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
