//! The port of the rubberduck programs: binds it on the loopback interface, if the configuration names one.

use std::{
    env, io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use actix_http::StatusCode;
use actix_rt::ArbiterHandle;
use actors::model::{ProjectId, SessionName};
use rustix::process::geteuid;
use tokio::{sync::Notify, time::sleep};

use crate::transport::{
    TransportContext,
    rubberduck::{RubberduckFacts, serve_rubberduck},
};
use common::config::Config;
use common::listen;

/// Interval of looking whether a taken port is free.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// The name of the person at a console, if the environment names no user.
const UNKNOWN_HUMAN: &str = "human";

/// The port while it is served. Dropping it ends its accepting; connections end with the broker.
pub struct RubberduckPort {
    /// None while another program has the port.
    address: Option<SocketAddr>,
    stopping: Arc<Notify>,
}

impl RubberduckPort {
    /// Serves the port on this worker. A port that is taken is no error: the desk has other consoles, and other programs
    /// have the same favourite port. It is served once they have left it.
    ///
    /// # Errors
    /// `rubberduck_project` is not a project.
    pub async fn start(
        config: &Config,
        context: &TransportContext,
        worker: Option<&ArbiterHandle>,
    ) -> io::Result<Option<Self>> {
        let (Some(port), Some(worker)) = (config.rubberduck_port, worker) else {
            return Ok(None);
        };
        let facts = RubberduckFacts {
            project: project(config, context).await?,
            trusts_loopback: config.rubberduck_trust_loopback,
            human: human(),
        };
        let bound = bind_all(port);
        if let Err(error) = &bound {
            tracing::warn!(%error, "rubberduck programs are not served until the port is free");
        }
        let bound = bound.ok();
        let address = bound.as_ref().map(|(address, _)| *address);
        let stopping = Arc::new(Notify::new());
        let (stop, context) = (Arc::clone(&stopping), context.clone());
        worker.spawn_fn(move || {
            actix_rt::spawn(async move {
                let serving = async {
                    let listeners = match bound {
                        Some((_, listeners)) => listeners,
                        None => wait_for_port(port).await,
                    };
                    if let Err(error) = serve_rubberduck(listeners, context, facts).await {
                        tracing::warn!(%error, "rubberduck programs are not served");
                    }
                };
                tokio::select! {
                    () = serving => {}
                    () = stop.notified() => {}
                }
            });
        });
        Ok(Some(Self { address, stopping }))
    }

    /// Where the programs find it, in words; None while another program has the port.
    pub fn announcement(&self) -> Option<String> {
        self.address.map(served_at)
    }
}

impl Drop for RubberduckPort {
    fn drop(&mut self) {
        self.stopping.notify_one();
    }
}

fn served_at(address: SocketAddr) -> String {
    format!("rubberduck programs are served at {address}")
}

/// Binds the port on the loopback interface.
fn bind_all(port: u16) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
    let bind = |address| listen::bind(address, "--rubberduck-port");
    let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    let address = listener.local_addr()?;
    let mut listeners = vec![listener];
    // `localhost` is this address first for some programs. Not every machine has it.
    match bind(SocketAddr::from((Ipv6Addr::LOCALHOST, address.port()))) {
        Ok(listener) => listeners.push(listener),
        Err(error) => tracing::debug!(%error, "rubberduck programs are served over IPv4 only"),
    }
    Ok((address, listeners))
}

/// Binds the port once the program that has it has ended, such as an original broker.
async fn wait_for_port(port: u16) -> Vec<TcpListener> {
    loop {
        sleep(RETRY_INTERVAL).await;
        if let Ok((address, listeners)) = bind_all(port) {
            let line = served_at(address);
            tracing::info!("{line}");
            return listeners;
        }
    }
}

/// The project that the setting names, which exists.
async fn project(config: &Config, context: &TransportContext) -> io::Result<ProjectId> {
    let text = config.rubberduck_project.as_deref().unwrap_or_default();
    let refuse = |reason: &str| {
        let text = format!("rubberduck_project = {text}: {reason}");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    let project = ProjectId::parse(text).map_err(|error| refuse(&error.to_string()))?;
    match context.auth.authenticate_user(geteuid().as_raw(), &project).await {
        Err(problem) if problem.status == StatusCode::NOT_FOUND => {
            Err(refuse("there is no such project: create it first, or name another"))
        }
        // A storage that does not answer now may know it.
        _ => Ok(project),
    }
}

/// The user of this process, by name.
fn human() -> SessionName {
    let user = env::var("USER").ok().and_then(|user| SessionName::parse(&user).ok());
    // The text of the constant is a name.
    user.or_else(|| SessionName::parse(UNKNOWN_HUMAN).ok())
        .unwrap_or_else(|| unreachable!("a name"))
}
