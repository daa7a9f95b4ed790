//! Local sockets and FIFOs as lasting connections: one JSON-RPC message in a line, and a few methods beside MCP.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use actors::{
    model::BrokerError,
    rest::{self, AwakeGuard},
    session::Member,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{
        UnixStream,
        unix::pipe::{Receiver, Sender},
    },
};

use super::{
    lines::{LineDecoder, LineEvent},
    service::ClientEntry,
    write_end::WriteEnd,
};
use crate::{
    auth::Identity,
    hang_up::is_hung_up,
    local::hello::{self, Hello},
    mcp::{
        Outbox, Peer, ReplyRoute,
        outbox::ANSWER_BYTES_MAX,
        rpc::{self, INVALID_REQUEST, Incoming, PARSE_ERROR, Params, RpcError},
    },
    transport::{
        closing::Closing,
        wire::{Decode, Served, Wire, WireEvent},
    },
};

/// What the names of the local methods begin with.
const LOCAL_METHODS: &str = "dev.mcp-broker/";
/// Bytes of the params of a local method.
const PARAMS_LEN_MAX: usize = 64 * 1024;

/// A stream of local clients.
pub trait LocalStream: AsyncRead + AsyncWrite + Unpin {
    /// The stream serves one client after another, and has no event that separates them.
    const HAS_MANY_CLIENTS: bool;

    /// Whether a peer that ended its output has gone.
    fn is_gone(&self) -> bool;
}

impl LocalStream for UnixStream {
    const HAS_MANY_CLIENTS: bool = false;

    /// The kernel reports a hang-up when the peer has closed both directions.
    fn is_gone(&self) -> bool {
        is_hung_up(self)
    }
}

/// A pair of FIFOs: one for requests, one for answers.
pub struct FifoPair {
    requests: Receiver,
    answers: Sender,
    /// Without it the requests would end when the last program that writes closes them.
    _write_end: Arc<WriteEnd>,
}

impl FifoPair {
    /// The ends of this process.
    pub fn new(requests: Receiver, answers: Sender, write_end: Arc<WriteEnd>) -> Self {
        Self {
            requests,
            answers,
            _write_end: write_end,
        }
    }
}

impl LocalStream for FifoPair {
    const HAS_MANY_CLIENTS: bool = true;

    fn is_gone(&self) -> bool {
        false
    }
}

impl AsyncRead for FifoPair {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.requests).poll_read(cx, into)
    }
}

impl AsyncWrite for FifoPair {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.answers).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// The pair stays open for the next client.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// One local client.
pub struct LocalWire<S> {
    entry: ClientEntry,
    identity: Arc<Identity>,
    outbox: Arc<Outbox>,
    /// The session that the entry shows.
    session: Option<Arc<Member>>,
    /// The lines of the next client, from its `initialize` on.
    next_client: Option<Vec<u8>>,
    /// Held while a client of a FIFO waits for an answer: its connection stands without clients, too.
    awake: Option<AwakeGuard>,
    stream: std::marker::PhantomData<fn(S)>,
}

impl<S> LocalWire<S> {
    /// A client that has just connected.
    pub fn new(entry: ClientEntry, identity: Arc<Identity>, outbox: Arc<Outbox>) -> Self {
        Self {
            entry,
            identity,
            outbox,
            session: None,
            next_client: None,
            awake: None,
            stream: std::marker::PhantomData,
        }
    }

    /// The lines that the next client on the stream has sent already.
    pub fn into_next_client(self) -> Vec<u8> {
        self.next_client.unwrap_or_default()
    }

    /// Serves a local method. None if it is unknown.
    fn answer(&self, method: &str, params: &Params<'_>) -> Option<Result<Value, RpcError>> {
        if !matches!(method, hello::METHOD | hello::RETIRE | hello::STATUS) {
            return None;
        }
        if self.outbox.waiting_len() >= ANSWER_BYTES_MAX {
            return Some(Err(RpcError::refused(&BrokerError::unavailable())));
        }
        if params.text.is_some_and(|params| params.len() > PARAMS_LEN_MAX) {
            let message = format!("Invalid params: {method} takes at most {PARAMS_LEN_MAX} bytes");
            return Some(Err(RpcError::invalid_params(message)));
        }
        Some(match method {
            hello::METHOD => Hello::parse(params.text.unwrap_or("{}"))
                .map_err(|why| RpcError::invalid_params(format!("Invalid params: {why}")))
                .and_then(|hello| self.entry.hello(hello, &self.identity))
                .map(|result| json!(result)),
            hello::STATUS => Ok(json!(self.entry.service().status())),
            _ => Ok(json!({"retiring": true})),
        })
    }

    fn send(&self, id: &str, answer: Result<Value, RpcError>) {
        match answer {
            Ok(result) => {
                let frame = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}");
                self.outbox.respond(frame.as_bytes(), None);
            }
            Err(error) => ReplyRoute::Connection.refuse(&self.outbox, Some(id), &error),
        }
    }
}

impl<S: LocalStream> Wire for LocalWire<S> {
    type Stream = S;
    type Decoder = LineDecoder;

    const HAS_CONTROL_FRAMES: bool = false;

    fn serve(&mut self, peer: &mut Peer, text: &str) -> Served {
        if let Some(next) = &mut self.next_client {
            next.extend_from_slice(text.as_bytes());
            next.push(b'\n');
            return Served::NextClient;
        }
        let parsed = rpc::parse(text);
        if let Ok(Incoming::Request { id, method, params }) = &parsed {
            if method.starts_with(LOCAL_METHODS)
                && let Some(answer) = self.answer(method, params)
            {
                self.send(id, answer);
                if method == hello::RETIRE {
                    self.entry.service().retire();
                }
                return Served::Frame(crate::mcp::FrameOutcome::Handled);
            }
            if S::HAS_MANY_CLIENTS && method == "initialize" && peer.version().is_some() {
                self.next_client = Some(format!("{text}\n").into_bytes());
                return Served::NextClient;
            }
        }
        Served::Frame(peer.handle_parsed(text, parsed, ReplyRoute::Connection))
    }

    fn observe(&mut self, peer: &Peer) {
        if S::HAS_MANY_CLIENTS {
            let is_busy = !peer.is_idle() || self.outbox.waiting_len() > 0;
            if is_busy != self.awake.is_some() {
                self.awake = is_busy.then(rest::keep_awake);
            }
        }
        let is_same = peer.with_session(|member| self.session.as_ref().is_some_and(|shown| Arc::ptr_eq(shown, member)));
        if is_same.unwrap_or(self.session.is_none()) {
            return;
        }
        self.session = peer.with_session(Arc::clone);
        self.entry.set_session(self.session.as_deref());
    }

    fn is_gone(stream: &S) -> bool {
        stream.is_gone()
    }

    fn writes_all(&self) -> bool {
        S::HAS_MANY_CLIENTS
    }

    fn last(closing: &Closing) -> Vec<u8> {
        let params = json!({"code": closing.code, "reason": closing.reason});
        format!(
            "{}\n",
            json!({"jsonrpc": "2.0", "method": hello::CLOSING, "params": params})
        )
        .into_bytes()
    }
}

impl Decode for LineDecoder {
    fn decode(&mut self, bytes: &mut [u8], mut on: impl FnMut(WireEvent<'_>)) -> Result<(), Closing> {
        let line_len_max = self.line_len_max();
        Self::decode(self, bytes, |event| {
            on(match event {
                LineEvent::Text(text) => WireEvent::Text(text),
                LineEvent::TooLong { id } => {
                    let message = format!("Invalid Request: a line has at most {line_len_max} bytes");
                    let error = RpcError::new(INVALID_REQUEST, message);
                    WireEvent::Refused { id, error }
                }
                LineEvent::NotUtf8 => {
                    let error = RpcError::new(PARSE_ERROR, "Parse error: the line is not UTF-8");
                    WireEvent::Refused { id: None, error }
                }
            });
        });
        Ok(())
    }

    fn buffered_len(&self) -> usize {
        Self::buffered_len(self)
    }

    fn needed_len(&self) -> usize {
        Self::needed_len(self)
    }

    /// The line grows as it arrives.
    fn reserve(&mut self) {}

    fn shrink(&mut self) {
        Self::shrink(self);
    }
}
