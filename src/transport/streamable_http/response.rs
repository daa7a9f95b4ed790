//! Writes one HTTP response: a JSON object when the answer comes first, else a stream of events.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use actix_web::{
    HttpResponse,
    body::{BodySize, MessageBody},
    http::{
        StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue},
    },
    web::Bytes,
};
use actors::{
    clock::{Now, now},
    metrics::TransportKind,
    model::MessageId,
    session::{CloseReason, Connection},
};
use tokio::time::{Instant, Sleep, sleep};

use super::{
    commands::{DrainRequest, SessionCommand},
    endpoint::HttpResult,
    headers::Accepts,
    refusal::Refusal,
    sessions::{HttpSession, HttpSessions, Resumption},
    streams::{EventStream, priming_event},
};
use crate::transport::{ConnectionPermit, Connections, LONG_ANSWER_LEN_MIN, SocketState, TransportContext};
use api::{
    auth::Identity,
    mcp::{
        Outbox, Peer, ResponseForm, WriteMarks,
        outbox::{ROOM_CHECK_INTERVAL, exchange::ResponseStart},
    },
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The source of the frames of a response, which learns what becomes of them.
pub enum Driver {
    /// The peer of one request. It ends with the response.
    Stateless(Box<Peer>),
    /// A session answers a request or a batch; `stream` is the number of its event stream.
    SessionCall {
        session: Arc<HttpSession>,
        stream: u64,
        /// The answer may contain messages taken from an inbox.
        may_hold_messages: bool,
    },
    /// The stream of a session, or the rest of a resumed answer.
    StreamReader(Resumption),
    /// The single stream of a client of 2024-11-05 (HTTP+SSE transport). Its session ends with it.
    HttpSse {
        sessions: Arc<HttpSessions>,
        session: Arc<HttpSession>,
    },
}

impl Driver {
    fn poll(&mut self, cx: &mut Context<'_>, now: Now) {
        if let Self::Stateless(peer) = self {
            peer.poll(cx, now);
        }
    }

    fn send(&self, command: SessionCommand) {
        match (self, command) {
            (Self::Stateless(peer), SessionCommand::MessagesWritten(messages)) => peer.messages_written(messages),
            (Self::Stateless(peer), SessionCommand::OutboxWritable) => peer.writable(),
            (Self::Stateless(peer), SessionCommand::Touch) => peer.touch(now()),
            (Self::Stateless(_), _) => {}
            (_, command) => drop(self.session().map(|session| session.send(command))),
        }
    }

    fn session(&self) -> Option<&Arc<HttpSession>> {
        match self {
            Self::Stateless(_) => None,
            Self::SessionCall { session, .. } | Self::HttpSse { session, .. } => Some(session),
            Self::StreamReader(Resumption { session, .. }) => Some(session),
        }
    }

    /// Whether it writes the stream of a session, and not an answer.
    fn writes_main_stream(&self) -> bool {
        match self {
            Self::Stateless(_) | Self::SessionCall { .. } => false,
            Self::StreamReader(Resumption { stream, .. }) => stream.is_main(),
            Self::HttpSse { .. } => true,
        }
    }

    /// The broker stops: calls in progress finish, then the response is interrupted. True when that is arranged; if
    /// false, call it again after each poll.
    fn drain(&self, exchange: &Arc<Outbox>) -> bool {
        match self {
            Self::Stateless(peer) => {
                peer.end_subscriptions();
                if !peer.is_drained(None) {
                    return false;
                }
                exchange.interrupt();
            }
            Self::StreamReader(Resumption { stream, .. }) if stream.is_main() => exchange.interrupt(),
            Self::StreamReader(_) | Self::SessionCall { .. } | Self::HttpSse { .. } => {
                self.send(SessionCommand::Drain(DrainRequest {
                    outbox: Arc::clone(exchange),
                    all_requests: matches!(self, Self::HttpSse { .. }),
                }))
            }
        }
        true
    }

    fn end_subscriptions(&self) -> bool {
        matches!(self, Self::Stateless(peer) if peer.end_subscriptions())
    }

    /// Whether the answer contains messages that exist nowhere else. They count as delivered once the kernel has them;
    /// until then they may have to return to the inbox.
    fn holds_messages(&self) -> bool {
        match self {
            Self::Stateless(peer) => peer.has_receives(),
            Self::SessionCall { may_hold_messages, .. } => *may_hold_messages,
            Self::StreamReader(Resumption { stream, .. }) => !stream.is_main(),
            Self::HttpSse { .. } => false,
        }
    }
}

/// Writes the answer to one request. It is the body of the response.
#[allow(
    clippy::struct_excessive_bools,
    reason = "the flags are independent facts about the response"
)]
pub struct ResponseWriter {
    outbox: Arc<Outbox>,
    driver: Driver,
    socket: Rc<SocketState>,
    connections: Arc<Connections>,
    permit: Option<ConnectionPermit>,
    identity: Arc<Identity>,
    accepts: Accepts,
    /// A stream starts with its first frame only.
    awaits_first_frame: bool,
    /// The broker stops, and the end of the response is arranged.
    is_draining: bool,
    /// Interval of the comments that keep an idle stream alive.
    keep_alive_interval: Duration,
    tick: Option<Pin<Box<Sleep>>>,
    /// Set while pushes wait for the outbound budget.
    capacity_tick: Option<Pin<Box<Sleep>>>,
    /// Bytes that precede the outbox.
    prefix: Option<Bytes>,
    /// The stream that retains what is written, and the number of this reader.
    reading: Option<(Arc<EventStream>, u64)>,
    /// Pushed messages that the kernel does not have yet, with the flush count at which HTTP took them.
    pushed: VecDeque<(u64, MessageId)>,
    /// The flush count when HTTP took the last bytes.
    flushes_before: u64,
    /// A long answer counts as pending until the kernel has it.
    is_long: bool,
    /// Bytes of the last chunk. HTTP asks for the next one when most of it is flushed.
    chunk_len: usize,
    /// The length of a whole answer.
    whole_len: Option<u64>,
    /// The answer is with the kernel, another reader writes it, or none exists.
    is_done: bool,
}

/// How a response starts.
enum FirstEvent {
    Answer(ResponseStart),
    /// The peer has closed its side.
    PeerClosed,
    /// The broker stops, or the session has ended.
    Stopped,
}

impl ResponseWriter {
    /// A writer for a caller that accepts the given media types.
    pub fn new(
        outbox: Arc<Outbox>,
        driver: Driver,
        socket: Rc<SocketState>,
        context: &TransportContext,
        (accepts, identity): (Accepts, Arc<Identity>),
    ) -> Self {
        Self {
            outbox,
            driver,
            socket,
            connections: Arc::clone(&context.connections),
            permit: None,
            identity,
            accepts,
            awaits_first_frame: false,
            is_draining: false,
            keep_alive_interval: context.timeouts.ping_interval,
            tick: None,
            capacity_tick: None,
            prefix: None,
            reading: None,
            pushed: VecDeque::new(),
            flushes_before: 0,
            is_long: false,
            chunk_len: 0,
            whole_len: None,
            is_done: false,
        }
    }

    /// Delays the start of the response until the first frame.
    pub fn await_first_frame(mut self) -> Self {
        self.awaits_first_frame = true;
        self
    }

    /// Waits for the start of the answer and returns the response; `status` maps the error code of an answer to HTTP.
    pub async fn respond(mut self, status: fn(Option<i32>) -> StatusCode) -> HttpResult {
        match poll_fn(|cx| self.poll_start(cx)).await {
            FirstEvent::Answer(ResponseStart::Whole { body, error }) => {
                let mut response = HttpResponse::build(status(error));
                response.insert_header((CONTENT_TYPE, JSON));
                self.is_long = body.len() >= LONG_ANSWER_LEN_MIN;
                if self.tracks_flush() {
                    self.whole_len = Some(body.len() as u64);
                    self.prefix = Some(body.into());
                    return Ok(response.body(self));
                }
                self.outbox.note_written(body.len());
                self.finish();
                Ok(response.body(body))
            }
            FirstEvent::Answer(ResponseStart::Stream { error }) => {
                self.acquire_permit();
                if let Driver::SessionCall { session, stream, .. } = &self.driver {
                    let retained = session.retain_stream(*stream, Arc::clone(&self.outbox));
                    self.prefix = session.supports_priming_event().then(|| priming_event(*stream));
                    let (reader, _) = retained.attach_reader(None);
                    self.reading = Some((retained, reader));
                }
                let mut response = self.event_response();
                *response.status_mut() = status(error);
                Ok(response)
            }
            FirstEvent::Answer(ResponseStart::Abandoned) => {
                self.is_done = true;
                Ok(HttpResponse::Accepted().finish())
            }
            FirstEvent::PeerClosed => Ok(HttpResponse::build(StatusCode::BAD_REQUEST).force_close().finish()),
            FirstEvent::Stopped => Err(Refusal::unavailable("no connection is available now: try again later")),
        }
    }

    /// Returns a stream of a session, preceded by the bytes `before`.
    pub async fn respond_with_stream(mut self, before: Option<Bytes>) -> HttpResult {
        let (session, stream, after) = match &self.driver {
            Driver::StreamReader(resumption) => (&resumption.session, &resumption.stream, resumption.after),
            Driver::HttpSse { session, .. } => (session, session.main_stream(), None),
            Driver::Stateless(_) | Driver::SessionCall { .. } => return Ok(self.event_response()),
        };
        let (session, stream) = (Arc::clone(session), Arc::clone(stream));
        let permit = session.reserve(0).await?;
        // The previous reader may have been closed for its credential; this one is authenticated.
        stream.outbox.clear_unauthorized();
        let (reader, missed) = stream.attach_reader(after);
        self.prefix = before.or(missed);
        self.reading = Some((Arc::clone(&stream), reader));
        if stream.is_main() {
            let resumes = after.is_some();
            session.send(SessionCommand::ReaderAttached {
                reader,
                resumes,
                permit,
            });
            // The session may have counted as disconnected; it is live again before its stream is read.
            session.wait_until_processed().await;
        }
        self.acquire_permit();
        Ok(self.event_response())
    }

    fn event_response(self) -> HttpResponse {
        HttpResponse::Ok()
            .insert_header((CONTENT_TYPE, HeaderValue::from_static("text/event-stream")))
            .insert_header((CACHE_CONTROL, "no-cache, no-transform"))
            .insert_header((HeaderName::from_static("x-accel-buffering"), "no"))
            .body(self)
    }

    /// Takes a connection permit, so that the response ends with the broker and with its credential. Capacity was
    /// checked before the request was handled; a broker that has begun to stop since then gives no permit.
    fn acquire_permit(&mut self) {
        if self.permit.is_some() {
            return;
        }
        self.permit = self
            .connections
            .acquire_over_limit(&self.outbox, &self.identity, TransportKind::Http);
        if self.permit.is_none() && self.outbox.closing().is_none() {
            self.outbox.close(CloseReason::ShuttingDown);
        }
    }

    fn poll_start(&mut self, cx: &mut Context<'_>) -> Poll<FirstEvent> {
        let prefers_events = matches!(self.accepts.form(), ResponseForm::Events | ResponseForm::EventsOnly);
        let at_once = prefers_events && !self.awaits_first_frame;
        loop {
            self.outbox.set_awake();
            self.driver.poll(cx, now());
            if self.is_draining && self.outbox.is_unused() && self.outbox.take_interrupt() {
                return Poll::Ready(FirstEvent::Stopped);
            }
            if let Some(beginning) = self.outbox.response_start(at_once) {
                return Poll::Ready(FirstEvent::Answer(beginning));
            }
            if self.socket.has_peer_closed() {
                return Poll::Ready(FirstEvent::PeerClosed);
            }
            self.acquire_permit();
            match self.outbox.closing() {
                _ if self.has_lost_session() => return Poll::Ready(FirstEvent::Stopped),
                Some(CloseReason::ShuttingDown) if self.start_drain() => continue,
                None | Some(CloseReason::ShuttingDown) => {}
                Some(_) => return Poll::Ready(FirstEvent::Stopped),
            }
            if self.poll_tick(cx) {
                if self.accepts.events() {
                    self.outbox.send_comment();
                }
                continue;
            }
            if self.outbox.register_waker(cx.waker()) {
                return Poll::Pending;
            }
        }
    }

    /// Whether the task of the session has ended, so that no answer can come.
    fn has_lost_session(&self) -> bool {
        self.driver.session().is_some_and(|session| session.has_stopped())
    }

    /// Whether the keep-alive interval has passed.
    fn poll_tick(&mut self, cx: &mut Context<'_>) -> bool {
        let keep_alive = self.keep_alive_interval;
        let tick = self.tick.get_or_insert_with(|| Box::pin(sleep(keep_alive)));
        if tick.as_mut().poll(cx).is_pending() {
            return false;
        }
        tick.as_mut().reset(Instant::now() + keep_alive);
        // Registers the waker for the next tick.
        let _ = tick.as_mut().poll(cx);
        true
    }

    /// Whether the outbound budget has bytes for waiting pushes; checked every [`ROOM_CHECK_INTERVAL`].
    fn poll_push_capacity(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.outbox.is_push_blocked() {
            self.capacity_tick = None;
            return false;
        }
        let tick = self
            .capacity_tick
            .get_or_insert_with(|| Box::pin(sleep(ROOM_CHECK_INTERVAL)));
        if tick.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.capacity_tick = None;
        // Registers the waker for the next tick.
        cx.waker().wake_by_ref();
        self.outbox.take_unblocked()
    }

    fn finish(&mut self) {
        self.is_done = true;
        for receive in self.outbox.take_receives() {
            self.socket.track_flushed(receive);
        }
    }

    /// Whether it matters when the kernel has the answer.
    fn tracks_flush(&self) -> bool {
        self.is_long || self.driver.holds_messages()
    }

    /// Whether another reader has taken over the stream.
    fn is_superseded(&self) -> bool {
        let reading = self.reading.as_ref();
        reading.is_some_and(|(stream, reader)| !stream.is_read_by(*reader))
    }

    /// The next bytes of the body.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.report_chunk_taken();
        if let Some(first) = self.prefix.take() {
            self.flushes_before = self.socket.flush_count();
            if self.whole_len.is_some() {
                self.socket.track_unflushed(self.outbox.take_receives());
            }
            return Poll::Ready(Some(first));
        }
        loop {
            self.report_written(cx);
            self.driver.poll(cx, now());
            if self.is_superseded() {
                self.is_done = true;
                return Poll::Ready(None);
            }
            if self.outbox.is_done() {
                // Everything is flushed: closing the connection now takes nothing back.
                if !self.tracks_flush() || self.socket.flush_count() > self.flushes_before {
                    self.finish();
                    return Poll::Ready(None);
                }
                if self.socket.has_peer_closed() {
                    return Poll::Ready(None);
                }
                self.socket.wake_on_flush(cx.waker());
                return Poll::Pending;
            }
            if self.socket.has_peer_closed() {
                return Poll::Ready(None);
            }
            let (chunk, closing) = self.take_chunk();
            if let Some(chunk) = chunk {
                return Poll::Ready(Some(chunk));
            }
            if self.ends_stream(closing) {
                return Poll::Ready(None);
            }
            if self.outbox.is_done() {
                continue;
            }
            if self.poll_tick(cx) {
                self.driver.send(SessionCommand::Touch);
                self.outbox.send_comment();
                continue;
            }
            if self.poll_push_capacity(cx) {
                self.driver.send(SessionCommand::OutboxWritable);
                continue;
            }
            let sleeps = match &self.reading {
                Some((stream, reader)) => stream.sleep(*reader, cx.waker()),
                None => self.outbox.register_waker(cx.waker()),
            };
            if sleeps {
                return Poll::Pending;
            }
        }
    }

    /// Whether the stream ends without an answer. Open subscriptions write their final result first.
    fn ends_stream(&mut self, closing: Option<CloseReason>) -> bool {
        if self.outbox.is_abandoned() {
            if let Driver::SessionCall { session, stream, .. } = &self.driver {
                session.cancel_stream(*stream);
            }
            self.is_done = true;
            return true;
        }
        if self.outbox.take_interrupt() {
            self.is_done = true;
            return true;
        }
        if self.has_lost_session()
            || (self.driver.writes_main_stream() && self.driver.session().is_some_and(|session| session.is_closed()))
        {
            return true;
        }
        match closing {
            None => false,
            Some(CloseReason::ShuttingDown) => {
                self.start_drain();
                false
            }
            // The final result of a subscription says that it ended on purpose.
            Some(CloseReason::SessionEnded | CloseReason::Failed | CloseReason::StoreRolledBack) => {
                !self.driver.end_subscriptions()
            }
            Some(_) => true,
        }
    }

    /// Starts draining. True when this call arranged the end of the response.
    fn start_drain(&mut self) -> bool {
        if self.is_draining {
            return false;
        }
        self.is_draining = self.driver.drain(&self.outbox);
        self.is_draining
    }

    fn take_chunk(&mut self) -> (Option<Bytes>, Option<CloseReason>) {
        let mut marks = WriteMarks::default();
        let (chunk, closing) = if let Some((stream, reader)) = &self.reading {
            stream.take(*reader, &mut marks)
        } else {
            let mut bytes = Vec::new();
            let closing = self.outbox.take(&mut bytes, &mut marks);
            (Bytes::from(bytes), closing)
        };
        if chunk.is_empty() {
            return (None, closing);
        }
        let emptied = self.socket.flush_count();
        self.flushes_before = emptied;
        let messages = marks.messages.into_iter().map(|(_, message)| (emptied, message));
        self.pushed.extend(messages);
        self.socket
            .track_unflushed(marks.receives.into_iter().map(|mark| mark.receive));
        self.chunk_len += chunk.len();
        (Some(chunk), closing)
    }

    /// Tells the outbox that HTTP took the last chunk.
    fn report_chunk_taken(&mut self) {
        let len = std::mem::take(&mut self.chunk_len);
        if len > 0 && self.outbox.note_written(len) {
            self.driver.send(SessionCommand::OutboxWritable);
        }
    }

    /// Reports pushed messages as written once everything was flushed after HTTP took them.
    fn report_written(&mut self, cx: &mut Context<'_>) {
        self.report_flushed();
        if !self.pushed.is_empty() {
            self.socket.wake_on_flush(cx.waker());
        }
    }

    fn report_flushed(&mut self) {
        let emptied = self.socket.flush_count();
        let done = self.pushed.iter().take_while(|(before, _)| *before < emptied).count();
        if done > 0 {
            let written = self.pushed.drain(..done).map(|(_, message)| message).collect();
            self.driver.send(SessionCommand::MessagesWritten(written));
        }
    }
}

impl MessageBody for ResponseWriter {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        self.whole_len.map_or(BodySize::Stream, BodySize::Sized)
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        self.get_mut().poll_chunk(cx).map(|chunk| chunk.map(Ok))
    }
}

impl Drop for ResponseWriter {
    fn drop(&mut self) {
        self.report_chunk_taken();
        // The client may have closed the connection right after it had read everything.
        self.report_flushed();
        if let Some(len) = self.whole_len {
            // Calls whose messages may still return to the inbox hold the outbox for longer.
            self.outbox.note_written(usize::try_from(len).unwrap_or(0));
        }
        if let Some((stream, reader)) = &self.reading {
            stream.detach_reader(*reader);
        }
        let Some(session) = self.driver.session() else { return };
        session.touch();
        match (&self.driver, &self.reading) {
            (Driver::HttpSse { sessions, .. }, _) => sessions.close(&session.id),
            (_, Some((stream, reader))) if stream.is_main() => {
                session.send(SessionCommand::ReaderDetached { reader: *reader })
            }
            _ if self.is_done || self.is_superseded() => {}
            _ => session.send(SessionCommand::CallerLeft {
                exchange: Arc::clone(&self.outbox),
            }),
        }
    }
}
