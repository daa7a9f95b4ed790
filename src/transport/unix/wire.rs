//! Local sockets and FIFOs as lasting connections: one JSON-RPC message in a line, and a few methods besides MCP.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use actors::{
    idle::{self, AwakeGuard},
    model::{BrokerError, Rung, Rungs},
    session::{Connection as _, Member, WakeAnswered},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::unix::pipe::{Receiver, Sender},
};
use tokio_util::task::AbortOnDropHandle;

use super::{mail, service::ClientEntry, write_end::WriteEnd};
use crate::transport::{
    closing::Closing,
    descriptor_stream::DescriptorStream,
    inbound::UNRESERVED_LEN_MAX,
    wire::{Decode, Served, Wire, WireEvent},
};
use api::{
    auth::Identity,
    mcp::{
        Outbox, Peer, ReplyRoute,
        lines::{LineDecoder, LineEvent},
        outbox::ANSWER_BYTES_MAX,
        rpc::{self, INVALID_REQUEST, Incoming, PARSE_ERROR, Params, RpcError},
        waking::{WOKEN, Woken},
    },
};
use common::{
    json::frame::{self, JsonText},
    user_broker::{
        hello::{self, Hello},
        mail::{ACTIVITY, MAIL},
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

impl LocalStream for DescriptorStream {
    const HAS_MANY_CLIENTS: bool = false;

    /// The kernel reports a hang-up when the peer has closed both directions.
    fn is_gone(&self) -> bool {
        self.is_hung_up()
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
    /// Held while a client of a FIFO waits for an answer: its connection exists without clients, too.
    awake: Option<AwakeGuard>,
    /// The question for mail that is not answered. It ends with the connection.
    mail: Option<AbortOnDropHandle<()>>,
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
            mail: None,
            stream: std::marker::PhantomData,
        }
    }

    /// The lines that the next client on the stream has sent already.
    pub fn into_next_client(self) -> Vec<u8> {
        self.next_client.unwrap_or_default()
    }

    /// Serves a local method. False if it is unknown.
    fn serve_local(&mut self, id: &str, method: &str, params: &Params<'_>) -> bool {
        if !matches!(method, hello::METHOD | hello::RETIRE | hello::STATUS | ACTIVITY | MAIL) {
            return false;
        }
        let begun = self.check_request(method, params);
        let answer = begun.and_then(|()| match method {
            MAIL => self.answer_mail(id, params).map(|()| None),
            method => self.answer(method, params).map(Some),
        });
        match answer {
            Ok(None) => {}
            Ok(Some(result)) => respond(&self.outbox, id, &result),
            Err(error) => ReplyRoute::Connection.refuse(&self.outbox, Some(id), &error),
        }
        if method == hello::RETIRE {
            self.entry.service().retire();
        }
        true
    }

    /// Answers a question for mail, when there is an answer.
    fn answer_mail(&mut self, id: &str, params: &Params<'_>) -> Result<(), RpcError> {
        let query = mail::parse_query(params)?;
        let (outbox, id) = (Arc::clone(&self.outbox), id.to_owned());
        let (service, identity) = (Arc::clone(self.entry.service()), Arc::clone(&self.identity));
        let answering = tokio::task::spawn_local(async move {
            let mail = mail::answer(service, identity, query).await;
            respond(&outbox, &id, &json!(mail));
        });
        // A connection has one question at a time: a client that asks again no longer waits for the first answer.
        self.mail = Some(AbortOnDropHandle::new(answering));
        Ok(())
    }

    /// Refuses what a local method would cost too much for.
    fn check_request(&self, method: &str, params: &Params<'_>) -> Result<(), RpcError> {
        if self.outbox.waiting_len() >= ANSWER_BYTES_MAX {
            return Err(RpcError::refused(&BrokerError::unavailable()));
        }
        if params.text.is_some_and(|params| params.len() > PARAMS_LEN_MAX) {
            let message = format!("Invalid params: {method} takes at most {PARAMS_LEN_MAX} bytes");
            return Err(RpcError::invalid_params(message));
        }
        Ok(())
    }

    /// The result of a local method that is answered at once.
    fn answer(&self, method: &str, params: &Params<'_>) -> Result<Value, RpcError> {
        match method {
            hello::METHOD => Hello::parse(params.text.unwrap_or("{}"))
                .map_err(|why| RpcError::invalid_params(format!("Invalid params: {why}")))
                .and_then(|hello| self.hello(hello)),
            ACTIVITY => mail::report(&self.identity, params),
            hello::STATUS => Ok(json!(self.entry.service().status())),
            _ => Ok(json!({"retiring": true})),
        }
    }

    fn hello(&self, hello: Hello) -> Result<Value, RpcError> {
        let agent = hello.agent.as_ref();
        let rungs = agent.map(|agent| Rungs::named(agent.wake.iter().map(String::as_str)));
        let result = self.entry.hello(hello, &self.identity)?;
        self.outbox.set_rungs(rungs.unwrap_or_default());
        Ok(json!(result))
    }

    /// Tells the session of the connection what became of a wake. A notification has no answer, so one that cannot be read
    /// is dropped.
    fn note_woken(&self, peer: &Peer, params: &Params<'_>) {
        let woken = params.text.and_then(|text| serde_json::from_str::<Woken>(text).ok());
        let Some(woken) = woken else { return };
        let Ok(number) = woken.wake_id.parse() else { return };
        if let Some(detail) = &woken.detail {
            tracing::debug!(rung = %woken.rung.escape_debug(), detail = %detail.escape_debug(), "an agent was not woken");
        }
        let answer = WakeAnswered {
            connection: self.outbox.id(),
            number,
            rung: Rung::parse(&woken.rung),
            result: woken.result,
        };
        // Only a full mailbox refuses it: then the wake counts as not answered.
        peer.with_session(|member| drop(member.address.tell(answer)));
    }
}

fn respond(outbox: &Outbox, id: &str, result: &Value) {
    outbox.respond(frame::result(id, result), None, None);
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
            if method.starts_with(LOCAL_METHODS) && self.serve_local(id, method, params) {
                return Served::Frame(api::mcp::FrameOutcome::Handled);
            }
            if S::HAS_MANY_CLIENTS && method == "initialize" && peer.version().is_some() {
                self.next_client = Some(format!("{text}\n").into_bytes());
                return Served::NextClient;
            }
        }
        if let Ok(Incoming::Notification { method, params }) = &parsed
            && method == WOKEN
        {
            self.note_woken(peer, params);
            return Served::Frame(api::mcp::FrameOutcome::Handled);
        }
        Served::Frame(peer.handle_parsed(text, parsed, ReplyRoute::Connection))
    }

    fn observe(&mut self, peer: &Peer) {
        if S::HAS_MANY_CLIENTS {
            let is_busy = !peer.is_idle() || self.outbox.waiting_len() > 0;
            if is_busy != self.awake.is_some() {
                self.awake = is_busy.then(idle::keep_awake);
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
        frame::notification(hello::CLOSING, params).into_line()
    }
}

impl Decode for LineDecoder {
    fn decode(&mut self, bytes: &mut [u8], mut on: impl FnMut(WireEvent<'_>)) -> Result<(), Closing> {
        let line_len_max = self.line_len_max();
        Self::decode(self, bytes, |event| {
            on(match event {
                LineEvent::Text(text) => WireEvent::Text(text),
                LineEvent::TooLong(frame) => {
                    let message = format!("Invalid Request: a line has at most {line_len_max} bytes");
                    let error = RpcError::new(INVALID_REQUEST, message);
                    WireEvent::Refused {
                        id: frame.into_id(),
                        error,
                    }
                }
                LineEvent::NotUtf8(_) => {
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
        Self::needed_len(self, UNRESERVED_LEN_MAX)
    }

    /// The line grows as it arrives.
    fn reserve(&mut self) {}

    fn shrink(&mut self) {
        Self::shrink(self);
    }
}
