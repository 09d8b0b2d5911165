//! `andante serve`: a model over HTTP until a signal ends it.

use std::io::IsTerminal;
use std::time::Duration;

use andante_engine::{EngineConfig, Health, Tenant};
use andante_server::{ApiKey, Phase, Server, ServerConfig, TenantSource};
use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::access::{self, Bound};
use crate::args::{ServeArgs, TenantFrom};
use crate::objects;
use crate::output::print;
use crate::session::{self, Session};

/// How often the engine is asked whether it still works.
const WATCH: Duration = Duration::from_millis(500);

/// Loads the model, listens, serves. Ends well after a signal, with an error when the engine has failed.
pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    tracing_subscriber::fmt()
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the server's threads")?;
    // Before the model is loaded: a port that is taken should not cost a long wait first.
    let keys = access::keys(&args.access)?;
    let bound = runtime.block_on(access::bind(args))?;
    let place = objects::place(&args.kv)?;
    let session = session::start(&args.model, &args.engine, place, |config| {
        configure(config, args);
    })?;
    runtime.block_on(serve(bound, keys, &session, args))?;
    session.finish()
}

fn configure(config: &mut EngineConfig, args: &ServeArgs) {
    config.tenant_sessions = args.tenant_sessions;
    let weights = args.tenant_weight.iter();
    config.tenant_weights = weights
        .map(|(name, permille)| (Tenant::named(name).id(), *permille))
        .collect();
    config.queue_timeout_s = args.queue_timeout_s;
    config.first_token_timeout_s = args.ttft_timeout_s;
    config.reader_timeout_s = args.idle_client_timeout_s;
    config.record = args.record.clone();
    config.pooling = args.pooling.map(Into::into);
}

async fn serve(
    bound: Bound,
    api_keys: Vec<ApiKey>,
    session: &Session,
    args: &ServeArgs,
) -> Result<()> {
    let access = &args.access;
    let config = ServerConfig {
        drain_timeout: Duration::from_secs(args.drain_s),
        tenant_from: tenant_from(args, !api_keys.is_empty()),
        isolate_tenants: args.kv_isolate_tenants,
        api_keys,
        cors_origins: access.cors_origin.clone(),
        body_limit_bytes: (access.max_body_mib as usize) << 20,
        max_connections: access.max_connections as usize,
        keep_alive: Duration::from_secs(access.keep_alive_s.into()),
        formats: session.formats.clone(),
        ..ServerConfig::new(args.alias.as_ref().unwrap_or(&session.name))
    };
    let (phases, phase) = watch::channel(Phase::Serve);
    let signals = Signals::new()?;
    print(format_args!(
        "serving {}, loaded in {:.2} s, {}, on {}\n",
        session.name,
        session.load_time.as_secs_f64(),
        memory(session, args),
        bound.address
    ))?;
    let server = Server::new(session.handle.clone(), config);
    let ending = tokio::spawn(signals.pass_on(phases.clone()));
    let failing = tokio::spawn(end_with_engine(session.handle.clone(), phases));
    andante_server::serve(bound.listener, server, phase).await;
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

/// What the KV of all sessions takes.
fn memory(session: &Session, args: &ServeArgs) -> String {
    let blocks = u64::from(session.handle.status().scheduler.blocks.total);
    let bytes = blocks * session.kv_block_bytes;
    let tokens = blocks * u64::from(session.kv_block_tokens);
    format!(
        "KV of {} sessions of {} tokens in {} MiB ({}, {:.1} KiB a token; what they leave free keeps prefixes)",
        args.engine.sessions,
        session.handle.context(),
        bytes.div_ceil(1 << 20),
        args.model.compute.kv_type,
        bytes as f64 / tokens as f64 / 1024.0,
    )
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
