//! A server of our own in this process, for a conversation that found none.

use andante_server::{ApiKey, Listener, Phase, Server, ServerConfig};
use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::args::{ChatArgs, ModelArgs};
use crate::models::DEFAULT_MODEL;
use crate::peer::Peer;
use crate::session::{self, Session};

/// A server in this process, for nobody else: on a free port of this machine, behind a key made for it.
pub(super) struct Own {
    peer: Peer,
    session: Session,
    runtime: Runtime,
    phases: watch::Sender<Phase>,
    serving: JoinHandle<()>,
}

impl Own {
    /// Loads the model that the arguments name and serves it.
    pub(super) fn start(args: &ChatArgs) -> Result<Self> {
        let model = match &args.model {
            Some(model) => model.clone(),
            None => DEFAULT_MODEL.parse()?,
        };
        let compute = args.compute.clone();
        let model = ModelArgs { model, compute };
        let session = session::start(&model, &args.engine, None, &|_, _| {}, |_| {})?;
        let mut secret = [0; 24];
        getrandom::fill(&mut secret).context("this system gives no random numbers")?;
        let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let config = ServerConfig {
            api_keys: vec![ApiKey::parse(&secret)?],
            ..ServerConfig::new(&session.name)
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("cannot start the server's threads")?;
        let socket = runtime
            .block_on(TcpListener::bind("127.0.0.1:0"))
            .context("cannot listen on this machine")?;
        let base = format!("http://{}", socket.local_addr()?);
        let (phases, phase) = watch::channel(Phase::Serve);
        let server = Server::new(session.handle.clone(), config);
        let serving = runtime.spawn(andante_server::serve(Listener::from(socket), server, phase));
        let peer = Peer::new(&base, Some(secret));
        Ok(Self {
            peer,
            session,
            runtime,
            phases,
            serving,
        })
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(super) fn finish(self) -> Result<()> {
        self.phases.send_replace(Phase::Stop);
        self.runtime
            .block_on(self.serving)
            .context("the server failed")?;
        self.session.finish()
    }
}
