//! The Unix socket: accepts clients of the same user, and serves each on a worker.

use std::{io, sync::Arc, time::Duration};

use actix_rt::{ArbiterHandle, task::JoinHandle};
use actors::{
    metrics::{AuthFailure, METRICS, TransportKind},
    model::BrokerError,
};
use futures_util::FutureExt;
use rustix::process::geteuid;
use serde_json::json;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::Notify,
};

use super::{
    admission::{self, FirstLines},
    service::{ClientEntry, LocalService},
};
use crate::transport::descriptor_stream::DescriptorStream;
use api::mcp::rpc::{self, REFUSED, RpcError};
use common::{json::frame::JsonText, user_broker::PublishedSocket};

/// Pause after a failure to accept, which is usually a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket that accepts clients.
pub struct LocalListener {
    name: PublishedSocket,
    stopping: Arc<Notify>,
    accepting: JoinHandle<()>,
}

impl LocalListener {
    /// Accepts on this thread, and serves clients on `workers` in turn.
    ///
    /// # Errors
    /// The socket cannot be registered with the event loop.
    pub fn start(
        (listener, name): (std::os::unix::net::UnixListener, PublishedSocket),
        service: &Arc<LocalService>,
        workers: &[ArbiterHandle],
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        let stopping = Arc::new(Notify::new());
        let accepting = Accepting {
            listener,
            service: Arc::clone(service),
            workers: workers.to_vec(),
            next: 0,
        };
        let accepting = actix_rt::spawn(accepting.run(Arc::clone(&stopping)));
        Ok(Self {
            name,
            stopping,
            accepting,
        })
    }

    /// The name of the socket.
    pub fn name(&self) -> &PublishedSocket {
        &self.name
    }

    /// Removes the name, and then accepts what has connected by it.
    pub async fn stop(self) {
        drop(self.name);
        self.stopping.notify_one();
        let _ = self.accepting.await;
    }
}

struct Accepting {
    listener: UnixListener,
    service: Arc<LocalService>,
    workers: Vec<ArbiterHandle>,
    next: usize,
}

impl Accepting {
    async fn run(mut self, stopping: Arc<Notify>) {
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stopping.notified() => break,
            };
            match accepted {
                Ok((stream, _)) => self.admit(stream),
                Err(error) => {
                    tracing::warn!(%error, "the local socket could not accept a client");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        while let Some(Ok((stream, _))) = self.listener.accept().now_or_never() {
            self.admit(stream);
        }
    }

    fn admit(&mut self, stream: UnixStream) {
        let own = geteuid().as_raw();
        let peer = match stream.peer_cred() {
            Ok(peer) if peer.uid() == own => peer,
            Ok(peer) => {
                METRICS.authentication_failures.of(AuthFailure::ForeignUser).increment();
                tracing::warn!(
                    uid = peer.uid(),
                    "another user has opened the local socket: the connection is closed"
                );
                return;
            }
            Err(error) => {
                tracing::debug!(%error, "a local client disconnected before it was accepted");
                return;
            }
        };
        let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
        let Some(entry) = self.service.try_enter(pid) else {
            return refuse_one_more(&stream, self.service.facts.clients_max);
        };
        let Ok(stream) = stream.into_std() else { return };
        if let Some(worker) = self.workers.get(self.next % self.workers.len().max(1)) {
            self.next = self.next.wrapping_add(1);
            worker.spawn_fn(move || drop(actix_rt::spawn(serve(stream, entry))));
        }
    }
}

/// Serves one client on the worker that this runs on.
async fn serve(stream: std::os::unix::net::UnixStream, entry: ClientEntry) {
    // The stream belongs to the event loop of the thread that accepted it.
    let stream = match DescriptorStream::of_socket(stream) {
        Ok(stream) => stream,
        Err(error) => {
            tracing::warn!(%error, "a local client cannot be served");
            return;
        }
    };
    let first = FirstLines::new(entry.service());
    match admission::admit(stream, entry, first).await {
        Ok(admitted) => drop(admitted.run().await),
        Err((stream, error)) => admission::refuse(stream, &error).await,
    }
}

/// Refuses a client at the limit. A new socket has room for the line.
fn refuse_one_more(stream: &UnixStream, clients_max: usize) {
    METRICS.connections_refused.of(TransportKind::Local).increment();
    let text = format!("this broker serves at most {clients_max} local clients (local_connections_max): close one");
    let error = RpcError::new(REFUSED, text).with_data(json!({"code": BrokerError::unavailable().code()}));
    let _ = stream.try_write(&rpc::error_response(Some("null"), &error).into_line());
}
