//! The rubberduck port: accepts connections and checks which user is at the other end. All of it runs on one thread.

use std::{
    cell::Cell,
    io,
    net::{SocketAddr, TcpListener as StdListener},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use actors::{
    metrics::{AuthFailure, METRICS, TransportKind},
    model::{ProjectId, SessionName},
};
use rustix::process::geteuid;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::{client::stamp, link::Link, programs::Programs, wire};
use crate::{edge::PeerUser, transport::TransportContext};
use api::mcp::{Framing, Outbox};

/// Connections at once. Each may hold a line of 1 MiB.
const CONNECTIONS_MAX: usize = 64;
/// Pause after a failure to accept, which is usually a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time for the line that refuses a connection.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// What is known of the port when it starts.
#[derive(Clone, Debug)]
pub struct RubberduckFacts {
    /// The project whose desk it serves.
    pub project: ProjectId,
    /// Programs of every user are served.
    pub trusts_loopback: bool,
    /// The name of the person at the consoles: the user of this process.
    pub human: SessionName,
}

/// The port.
struct Service {
    context: TransportContext,
    facts: RubberduckFacts,
    programs: Rc<Programs>,
    links_len: Cell<usize>,
    next_link: Cell<u64>,
}

impl Service {
    fn new(context: TransportContext, facts: RubberduckFacts) -> Rc<Self> {
        Rc::new(Self {
            programs: Programs::new(facts.human.clone(), context.timeouts.stall_timeout),
            context,
            facts,
            links_len: Cell::default(),
            next_link: Cell::default(),
        })
    }

    /// Admits and serves one connection to its end.
    async fn serve(self: Rc<Self>, mut stream: TcpStream) {
        if self.links_len.get() >= CONNECTIONS_MAX {
            METRICS.connections_refused.of(TransportKind::Rubberduck).increment();
            let why = format!("this port serves at most {CONNECTIONS_MAX} connections: close one");
            return refuse(&mut stream, &why).await;
        }
        self.links_len.set(self.links_len.get() + 1);
        self.admit(stream).await;
        self.links_len.set(self.links_len.get() - 1);
    }

    async fn admit(self: &Rc<Self>, mut stream: TcpStream) {
        let Ok((peer, own)) = stream.peer_addr().and_then(|peer| Ok((peer, stream.local_addr()?))) else {
            return;
        };
        if let Err(why) = self.check_user(peer, own) {
            METRICS.authentication_failures.of(AuthFailure::ForeignUser).increment();
            return refuse(&mut stream, why).await;
        }
        let project = &self.facts.project;
        let identified = self.context.auth.authenticate_user(geteuid().as_raw(), project).await;
        let identity = match identified {
            Ok(identity) => identity,
            Err(problem) => {
                tracing::warn!(%project, "a rubberduck program cannot use the project (rubberduck_project)");
                return refuse(&mut stream, problem.detail()).await;
            }
        };
        let outbox = Arc::new(Outbox::new(Framing::Line));
        let connections = &self.context.connections;
        let Some(_permit) = connections.try_acquire(&outbox, &identity, TransportKind::Rubberduck) else {
            return refuse(&mut stream, "too many connections: try again later").await;
        };
        let number = self.next_link.replace(self.next_link.get() + 1);
        Link::new(number, Rc::clone(&self.programs), identity)
            .run(stream, &outbox)
            .await;
    }

    /// Checks that the program at `peer` runs as the user of this process.
    fn check_user(&self, peer: SocketAddr, own: SocketAddr) -> Result<(), &'static str> {
        if !peer.ip().is_loopback() {
            return Err("this port serves programs of this machine");
        }
        if self.facts.trusts_loopback {
            return Ok(());
        }
        match PeerUser::of(peer, own) {
            PeerUser::Own | PeerUser::Root => Ok(()),
            PeerUser::Other(uid) => {
                tracing::warn!(
                    uid,
                    "another user has opened the rubberduck port: the connection is closed"
                );
                Err("this port serves programs of the user that runs the broker")
            }
            PeerUser::Unknown => {
                Err("the user of this program is not known: the broker needs rubberduck_trust_loopback")
            }
        }
    }
}

async fn refuse(stream: &mut TcpStream, why: &str) {
    let line = wire::error(stamp(), why);
    let _ = timeout(REFUSAL_TIMEOUT, stream.write_all(&line)).await;
}

/// Serves the programs that connect to these listeners, until the future is dropped.
///
/// # Errors
/// A listener cannot be registered with the event loop.
pub async fn serve(listeners: Vec<StdListener>, context: TransportContext, facts: RubberduckFacts) -> io::Result<()> {
    let service = Service::new(context, facts);
    let accepting = listeners.into_iter().map(|listener| {
        let service = Rc::clone(&service);
        async move {
            listener.set_nonblocking(true)?;
            accept(TcpListener::from_std(listener)?, service).await;
            Ok(())
        }
    });
    futures_util::future::try_join_all(accepting).await.map(drop)
}

async fn accept(listener: TcpListener, service: Rc<Service>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // A question must not wait for the next line.
                let _ = stream.set_nodelay(true);
                actix_rt::spawn(Rc::clone(&service).serve(stream));
            }
            Err(error) => {
                tracing::warn!(%error, "the rubberduck port could not accept a client");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
