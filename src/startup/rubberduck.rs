//! The port of the rubberduck programs: binds it on the loopback interface, if the configuration names one.

use std::{
    env, io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    sync::Arc,
};

use actix_rt::ArbiterHandle;
use actors::model::{ProjectId, SessionName};
use tokio::sync::Notify;

use super::server;
use crate::{
    config::Config,
    transport::{
        TransportContext,
        rubberduck::{RubberduckFacts, serve_rubberduck},
    },
};

/// The name of the person at a console, if the environment names no user.
const UNKNOWN_HUMAN: &str = "human";

/// The port while it is served. Dropping it ends its accepting; connections end with the broker.
pub struct RubberduckPort {
    address: SocketAddr,
    stopping: Arc<Notify>,
}

impl RubberduckPort {
    /// Serves the port on this worker. A port that is taken is no error: the desk has other consoles, and other programs
    /// have the same favourite port.
    ///
    /// # Errors
    /// `rubberduck_project` is not the id of a project.
    pub fn start(
        config: &Config,
        context: &TransportContext,
        worker: Option<&ArbiterHandle>,
    ) -> io::Result<Option<Self>> {
        let (Some(port), Some(worker)) = (config.rubberduck_port, worker) else {
            return Ok(None);
        };
        let facts = RubberduckFacts {
            project: project(config)?,
            trusts_loopback: config.rubberduck_trust_loopback,
            human: human(),
        };
        let listener = match bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::warn!(%error, "rubberduck programs are not served");
                return Ok(None);
            }
        };
        let address = listener.local_addr()?;
        let mut listeners = vec![listener];
        // `localhost` is this address first for some programs. Not every machine has it.
        match bind(SocketAddr::from((Ipv6Addr::LOCALHOST, address.port()))) {
            Ok(listener) => listeners.push(listener),
            Err(error) => tracing::debug!(%error, "rubberduck programs are served over IPv4 only"),
        }
        let stopping = Arc::new(Notify::new());
        let (stop, context) = (Arc::clone(&stopping), context.clone());
        worker.spawn_fn(move || {
            actix_rt::spawn(async move {
                tokio::select! {
                    served = serve_rubberduck(listeners, context, facts) => if let Err(error) = served {
                        tracing::warn!(%error, "rubberduck programs are not served");
                    },
                    () = stop.notified() => {}
                }
            });
        });
        Ok(Some(Self { address, stopping }))
    }

    /// Where the programs find it, in words.
    pub fn announcement(&self) -> String {
        format!("rubberduck programs are served at {}", self.address)
    }
}

impl Drop for RubberduckPort {
    fn drop(&mut self) {
        self.stopping.notify_one();
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    server::bind(address, "--rubberduck-port")
}

fn project(config: &Config) -> io::Result<ProjectId> {
    let text = config.rubberduck_project.as_deref().unwrap_or_default();
    ProjectId::parse(text).map_err(|error| {
        let text = format!("rubberduck_project = {text}: {error}");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

/// The user of this process, by name.
fn human() -> SessionName {
    let user = env::var("USER").ok().and_then(|user| SessionName::parse(&user).ok());
    // The text of the constant is a name.
    user.or_else(|| SessionName::parse(UNKNOWN_HUMAN).ok())
        .unwrap_or_else(|| unreachable!("a name"))
}
