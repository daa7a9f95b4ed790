//! The standard streams of the process as a lasting connection of one client, which sees the backends of the gateway alone.

use std::{
    cell::Cell,
    io,
    os::fd::OwnedFd,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use actors::{
    gateway::{BackendState, ListKind},
    metrics::TransportKind,
    model::{BrokerError, ProjectId},
};
use rustix::process::geteuid;
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    LastingConnection, Timeouts, TransportContext,
    closing::Closing,
    descriptor_stream::DescriptorStream,
    wire::{Served, Wire},
};
use api::{
    auth::Identity,
    budget::Reservation,
    mcp::{
        Exposure, FrameOutcome, Framing, Outbox, Peer, ReplyRoute,
        lines::LineDecoder,
        outbox::ANSWER_BYTES_MAX,
        rpc::{self, Incoming, RpcError},
    },
};
use common::json::frame;

/// The method that says how the backends are, which is not of MCP.
const STATUS: &str = "gateway/status";

/// The progress of a client that has ended its input.
#[derive(Default)]
pub struct InputEnd {
    /// Notified when the other end of the input was closed, although lines of it may be unread.
    pub closed: Notify,
    /// Notified when the last line is being served.
    pub all_served: Notify,
}

/// Serves the client at the other end of two descriptors, copies of stdin and stdout, to its end.
///
/// # Errors
/// The client cannot be served.
pub async fn serve(
    context: &TransportContext,
    (input, output): (OwnedFd, OwnedFd),
    end: Arc<InputEnd>,
) -> io::Result<()> {
    let stream = Stream {
        descriptors: DescriptorStream::of_shared(input, output)?,
        has_ended: Rc::default(),
    };
    let (input_end, told) = (stream.descriptors.input_end(), Arc::clone(&end));
    let _watching = AbortOnDropHandle::new(actix_rt::spawn(async move {
        input_end.await;
        told.closed.notify_one();
    }));
    let user = geteuid().as_raw();
    let identity = context
        .auth
        .authenticate_user(user, &ProjectId::default_project())
        .await;
    let identity = identity.map_err(|problem| io::Error::other(problem.detail().to_owned()))?;
    let outbox = context.service.outbox(Framing::Line, identity.project.id());
    let permit = context
        .connections
        .try_acquire(&outbox, &identity, TransportKind::Local);
    let permit = permit.ok_or_else(|| io::Error::other("the process is ending"))?;
    let (service, exposure) = (Arc::clone(&context.service), Exposure::Backends);
    let peer = Peer::local(Arc::clone(&identity), Arc::clone(&outbox), service, exposure);
    let wire = StdioWire {
        identity: Arc::clone(&identity),
        outbox: Arc::clone(&outbox),
        has_input_ended: Rc::clone(&stream.has_ended),
        end,
    };
    let decoder = LineDecoder::new(context.message_len_max());
    let inbound = Reservation::new(&context.inbound, identity.project.id());
    // A client may be silent, or busy with something else than reading, as long as it has its end of the streams.
    let timeouts = Timeouts {
        stall_timeout: Duration::MAX,
        silence_timeout: Duration::MAX,
        ..context.timeouts
    };
    let connection = LastingConnection::new((stream, wire), peer, outbox, (decoder, inbound), timeouts, (permit, ()));
    connection.run(Vec::new()).await;
    Ok(())
}

/// The standard streams.
struct Stream {
    descriptors: DescriptorStream,
    /// The end of the input was read.
    has_ended: Rc<Cell<bool>>,
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.descriptors).poll_read(cx, into))?;
        if into.filled().len() == before {
            self.has_ended.set(true);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.descriptors).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.descriptors).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.descriptors).poll_shutdown(cx)
    }
}

/// The client of this process.
struct StdioWire {
    identity: Arc<Identity>,
    outbox: Arc<Outbox>,
    has_input_ended: Rc<Cell<bool>>,
    end: Arc<InputEnd>,
}

impl StdioWire {
    fn answer_status(&self, id: &str, is_initialized: bool) {
        if self.outbox.waiting_len() >= ANSWER_BYTES_MAX {
            let error = RpcError::refused(&BrokerError::unavailable());
            return ReplyRoute::Connection.refuse(&self.outbox, Some(id), &error);
        }
        let result = json!({"backends": self.backends(), "initialized": is_initialized});
        self.outbox.respond(frame::result(id, result), None, None);
    }

    /// The state of each backend, in the words of mcpmon.
    fn backends(&self) -> Map<String, Value> {
        let gateway = self.identity.project.gateway();
        let offered = gateway.map(|gateway| gateway.shared().offered()).unwrap_or_default();
        let backends = offered.backends.iter().map(|backend| {
            let view = backend.view();
            let state = match view.state {
                BackendState::Starting => "starting",
                BackendState::Ready | BackendState::Replacing => "ready",
                BackendState::Backoff | BackendState::Failed => "failed",
                BackendState::Idle | BackendState::Disabled | BackendState::Stopping => "stopped",
            };
            let tools = view.lists.as_ref().map_or(0, |lists| lists.of(ListKind::Tools).len());
            let status = json!({"state": state, "pid": view.pid, "tools": tools, "error": view.reason});
            (backend.name.to_string(), status)
        });
        backends.collect()
    }
}

impl Wire for StdioWire {
    type Stream = Stream;
    type Decoder = LineDecoder;

    const HAS_CONTROL_FRAMES: bool = false;

    fn serve(&mut self, peer: &mut Peer, text: &str) -> Served {
        let parsed = rpc::parse(text);
        if let Ok(Incoming::Request { id, method, .. }) = &parsed
            && method == STATUS
        {
            self.answer_status(id, peer.version().is_some());
            return Served::Frame(FrameOutcome::Handled);
        }
        Served::Frame(peer.handle_parsed(text, parsed, ReplyRoute::Connection))
    }

    fn observe(&mut self, peer: &Peer) {
        // A draining connection takes up no deferred lines.
        if self.has_input_ended.get() && peer.deferred_len() == 0 {
            self.has_input_ended.set(false);
            self.end.all_served.notify_one();
        }
    }

    fn is_gone(stream: &Stream) -> bool {
        stream.descriptors.is_hung_up()
    }

    /// Nothing: the client reads MCP alone.
    fn last(_: &Closing) -> Vec<u8> {
        Vec::new()
    }
}
