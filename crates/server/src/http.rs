//! The listener: connections, their limits, and a shutdown that cuts no answer.
//!
//! `axum::serve` has no limits for slow or large request heads, so the loop over connections is here, on hyper.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use andante_engine::Shutdown;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::Server;
use crate::config::{MAX_HEAD_BYTES, ServerConfig};
use crate::listener::{Accepted, Listener};
use crate::loading::Loading;

/// How far a shutdown has come. It only ever moves on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Serve.
    Serve,
    /// Take no new work; running answers may finish within the drain timeout.
    Drain,
    /// End running answers now, each with an error event.
    Stop,
}

/// How long answers that were ended may take to reach their readers.
const FLUSH: Duration = Duration::from_secs(2);
/// Pause after a failed `accept`: out of file descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `phase` leaves [`Phase::Serve`] (or its sender is gone), then drains. When this returns, every answer
/// has ended with its finish reason or an error event, unless its reader did not take it in time.
pub async fn serve(
    listener: impl Into<Listener>,
    server: Server,
    mut phase: watch::Receiver<Phase>,
) {
    let listener = listener.into();
    let config = Arc::clone(server.config());
    let closing = phase.clone();
    let leaving = reach(&mut phase, Phase::Drain);
    let connections = accept_until(&listener, (server.router(), config), closing, leaving).await;
    drop(listener);
    drain(&server, connections, phase).await;
}

/// Answers while the model is being loaded, until it is.
pub async fn serve_loading(
    listener: &Listener,
    loading: Loading,
    loaded: impl Future<Output = ()>,
) {
    let (phases, phase) = watch::channel(Phase::Serve);
    let config = Arc::new(ServerConfig::new(""));
    let mut connections = accept_until(listener, (loading.router(), config), phase, loaded).await;
    phases.send_replace(Phase::Drain);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(FLUSH, all_ended).await;
}

/// Takes connections until `leaving` is ready; the ones that are left.
async fn accept_until(
    listener: &Listener,
    (router, config): (Router, Arc<ServerConfig>),
    phase: watch::Receiver<Phase>,
    leaving: impl Future<Output = ()>,
) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    let permits = Arc::new(Semaphore::new(config.max_connections));
    let mut leaving = pin!(leaving);
    loop {
        tokio::select! {
            () = &mut leaving => return connections,
            Some(_) = connections.join_next() => {}
            (permit, accepted) = accept(listener, &permits) => {
                let Ok(accepted) = accepted else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                let task = connection(accepted, router.clone(), phase.clone(), config.clone());
                connections.spawn(async move {
                    task.await;
                    drop(permit);
                });
            }
        }
    }
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &Listener,
    permits: &Arc<Semaphore>,
) -> (OwnedSemaphorePermit, io::Result<Accepted>) {
    let permit = permits
        .clone()
        .acquire_owned()
        .await
        .expect("the semaphore is never closed");
    (permit, listener.accept().await)
}

/// One connection until it ends. When the server drains, it ends after the request under way.
async fn connection(
    accepted: Accepted,
    router: Router,
    mut phase: watch::Receiver<Phase>,
    config: Arc<ServerConfig>,
) {
    let opened = tokio::select! {
        opened = accepted.open(config.head_timeout) => opened,
        // Nothing has been asked yet.
        () = reach(&mut phase, Phase::Drain) => return,
    };
    let Ok(stream) = opened else {
        return;
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // Case means nothing, but some clients look for the names as most servers write them.
        .title_case_headers(true)
        .header_read_timeout(config.head_timeout)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = reach(&mut phase, Phase::Drain) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

/// Lets running answers finish; ends them when the time is up or `phase` says so.
async fn drain(server: &Server, mut connections: JoinSet<()>, mut phase: watch::Receiver<Phase>) {
    let timeout = server.config().drain_timeout;
    server.engine().shutdown(Shutdown::Drain { timeout });
    let all_ended = async { while connections.join_next().await.is_some() {} };
    let mut all_ended = pin!(all_ended);
    let stopped = async {
        tokio::select! {
            () = reach(&mut phase, Phase::Stop) => {}
            () = tokio::time::sleep(timeout) => {}
        }
    };
    tokio::select! {
        () = &mut all_ended => {}
        () = stopped => {
            server.engine().shutdown(Shutdown::Now);
            // A reader that does not take even this is cut off when the connections are dropped.
            let _ = tokio::time::timeout(FLUSH, all_ended).await;
        }
    }
}

/// Waits until `phase` is at least `wanted`. Without a sender it waits for `Drain` no longer, and for `Stop` for ever.
async fn reach(phase: &mut watch::Receiver<Phase>, wanted: Phase) {
    if phase.wait_for(|phase| *phase >= wanted).await.is_err() && wanted == Phase::Stop {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests;
