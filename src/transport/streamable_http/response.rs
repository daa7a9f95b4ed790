//! One HTTP response: a JSON object when the answer is there before anything else, else a stream of events.

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
    model::MessageId,
    session::CloseReason,
};
use tokio::time::{Instant, Sleep, sleep};

use super::{
    HttpResult,
    commands::{DrainRequest, SessionCommand},
    headers::{Accepts, Refusal},
    sessions::{HttpSession, HttpSessions, Resumption},
    streams::{EventStream, priming_event},
};
use crate::{
    auth::Identity,
    mcp::{
        Outbox, Peer, ResponseForm, WriteMarks,
        outbox::{ROOM_CHECK_INTERVAL, ResponseStart},
    },
    transport::{ConnectionPermit, Connections, LONG_ANSWER_LEN_MIN, SocketState, TransportContext},
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Who fills the outbox that is being written, and hears what becomes of it.
pub enum Driver {
    /// The peer of this one request, which is over with it.
    Stateless(Box<Peer>),
    /// A session answers a request, or a batch; `stream` is the number of its events.
    SessionCall {
        session: Arc<HttpSession>,
        stream: u64,
        /// What it answers may have been taken out of an inbox.
        may_hold_messages: bool,
    },
    /// The stream of a session, or the rest of an answer of it.
    StreamReader(Resumption),
    /// The stream on which a client of 2024-11-05 gets everything: its session ends with it.
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

    /// The broker stops: what is under way comes to its end, and the response is interrupted then. True when that is
    /// seen to; else it is to be said again whenever the driver was polled.
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

    /// Whether there are messages in the answer that nobody else has. They are delivered when they are with the kernel:
    /// until then they may have to wait again.
    fn holds_messages(&self) -> bool {
        match self {
            Self::Stateless(peer) => peer.has_receives(),
            Self::SessionCall {
                may_hold_messages: takes,
                ..
            } => *takes,
            Self::StreamReader(Resumption { stream, .. }) => !stream.is_main(),
            Self::HttpSse { .. } => false,
        }
    }
}

/// The answer to one request, while it is written.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about the response"
)]
pub struct ResponseWriter {
    outbox: Arc<Outbox>,
    driver: Driver,
    socket: Rc<SocketState>,
    connections: Arc<Connections>,
    permit: Option<ConnectionPermit>,
    identity: Arc<Identity>,
    accepts: Accepts,
    /// A stream begins only when there is something in it.
    awaits_first_frame: bool,
    /// The broker stops, and it is seen to that the response ends.
    is_draining: bool,
    /// How often somebody who waits is told that the stream is alive.
    keep_alive_interval: Duration,
    tick: Option<Pin<Box<Sleep>>>,
    /// There while messages were refused for lack of room.
    capacity_tick: Option<Pin<Box<Sleep>>>,
    /// What comes before what is in the outbox.
    prefix: Option<Bytes>,
    /// Where what is written is kept, and which of its readers this is.
    reading: Option<(Arc<EventStream>, u64)>,
    /// Pushed messages that are not with the kernel yet, with the number of times that all was written before them.
    pushed: VecDeque<(u64, MessageId)>,
    /// How often all was written before the last bytes were given to HTTP.
    flushes_before: u64,
    /// What is long counts as waiting until it is with the kernel.
    is_long: bool,
    /// Bytes of the last chunk that HTTP was given. It asks for the next when most of it is with the kernel.
    chunk_len: usize,
    /// The length of an answer that is whole.
    whole_len: Option<u64>,
    /// The answer is with the kernel, or somebody else writes it, or there is none.
    is_done: bool,
}

/// How a response begins.
enum FirstEvent {
    Answer(ResponseStart),
    /// The peer has gone.
    PeerClosed,
    /// The broker stops, or the session has.
    Stopped,
}

impl ResponseWriter {
    /// For somebody who `accepts` some forms of an answer.
    pub fn new(
        outbox: Arc<Outbox>,
        driver: Driver,
        line: Rc<SocketState>,
        gate: &TransportContext,
        (accepts, identity): (Accepts, Arc<Identity>),
    ) -> Self {
        Self {
            outbox,
            driver,
            socket: line,
            connections: Arc::clone(&gate.connections),
            permit: None,
            identity,
            accepts,
            awaits_first_frame: false,
            is_draining: false,
            keep_alive_interval: gate.timeouts.ping_interval,
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

    /// The response begins with the first frame and not before.
    pub fn await_first_frame(mut self) -> Self {
        self.awaits_first_frame = true;
        self
    }

    /// Waits for how the answer begins; `status` is that of an answer which is whole.
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
                    let kept = session.retain_stream(*stream, Arc::clone(&self.outbox));
                    self.prefix = session.supports_priming_event().then(|| priming_event(*stream));
                    let (reader, _) = kept.attach_reader(None);
                    self.reading = Some((kept, reader));
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
            FirstEvent::Stopped => Err(Refusal::unavailable("nobody can wait here now: try again later")),
        }
    }

    /// A stream of a session; `before` comes before what is in it.
    pub async fn respond_with_stream(mut self, before: Option<Bytes>) -> HttpResult {
        let (session, stream, after) = match &self.driver {
            Driver::StreamReader(resumption) => (&resumption.session, &resumption.stream, resumption.after),
            Driver::HttpSse { session, .. } => (session, session.main_stream(), None),
            Driver::Stateless(_) | Driver::SessionCall { .. } => return Ok(self.event_response()),
        };
        let (session, stream) = (Arc::clone(session), Arc::clone(stream));
        let room = session.reserve(0).await?;
        // Whoever read it before may have been sent away; this reader was let in.
        stream.outbox.clear_unauthorized();
        let (reader, missed) = stream.attach_reader(after);
        self.prefix = before.or(missed);
        self.reading = Some((Arc::clone(&stream), reader));
        if stream.is_main() {
            let resumes = after.is_some();
            session.send(SessionCommand::ReaderAttached { reader, resumes, room });
            // A session that was given up for silent is alive again before its stream is looked at.
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

    /// Takes a place among the connections, so that the end of the broker is heard of, and that of the credential.
    /// Whether there is one was asked before anything was done.
    fn acquire_permit(&mut self) {
        if self.permit.is_none() {
            self.permit = self.connections.acquire_over_limit(&self.outbox, &self.identity);
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

    /// Nobody will ever answer: what ran the session is gone.
    fn has_lost_session(&self) -> bool {
        self.driver.session().is_some_and(|session| session.has_stopped())
    }

    /// Whether it is time for a sign of life.
    fn poll_tick(&mut self, cx: &mut Context<'_>) -> bool {
        let keep_alive = self.keep_alive_interval;
        let tick = self.tick.get_or_insert_with(|| Box::pin(sleep(keep_alive)));
        if tick.as_mut().poll(cx).is_pending() {
            return false;
        }
        tick.as_mut().reset(Instant::now() + keep_alive);
        // The timer has to know whom to wake the next time.
        let _ = tick.as_mut().poll(cx);
        true
    }

    /// Whether there is room again for messages that were refused, which is looked for from time to time.
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
        // The next tick has to know whom to wake.
        cx.waker().wake_by_ref();
        self.outbox.take_unblocked()
    }

    fn finish(&mut self) {
        self.is_done = true;
        for taking in self.outbox.take_receives() {
            self.socket.track_flushed(taking);
        }
    }

    /// Whether it matters when the answer is with the kernel.
    fn tracks_flush(&self) -> bool {
        self.is_long || self.driver.holds_messages()
    }

    /// Whether somebody else reads the stream by now.
    fn is_superseded(&self) -> bool {
        let reading = self.reading.as_ref();
        reading.is_some_and(|(stream, reader)| !stream.is_read_by(*reader))
    }

    /// The next bytes of a stream.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.report_chunk_taken();
        if let Some(first) = self.prefix.take() {
            self.flushes_before = self.socket.flush_count();
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
                // That the peer hangs up when it has everything takes nothing back.
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

    /// Whether the stream ends without an answer. Who can say more is asked to, and then it does not yet.
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
            // The result of a subscription says that it ends on purpose.
            Some(CloseReason::SessionEnded | CloseReason::Failed | CloseReason::StoreRolledBack) => {
                !self.driver.end_subscriptions()
            }
            Some(_) => true,
        }
    }

    /// The broker stops. True when it has just been seen to that the response ends.
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
            .track_unflushed(marks.receives.into_iter().map(|(_, taking)| taking));
        self.chunk_len += chunk.len();
        (Some(chunk), closing)
    }

    /// What HTTP was given before waits here no longer.
    fn report_chunk_taken(&mut self) {
        let len = std::mem::take(&mut self.chunk_len);
        if len > 0 && self.outbox.note_written(len) {
            self.driver.send(SessionCommand::OutboxWritable);
        }
    }

    /// What was pushed is written once everything was, after HTTP had taken it.
    fn report_written(&mut self, cx: &mut Context<'_>) {
        let emptied = self.socket.flush_count();
        let done = self.pushed.iter().take_while(|(before, _)| *before < emptied).count();
        if done > 0 {
            let written = self.pushed.drain(..done).map(|(_, message)| message).collect();
            self.driver.send(SessionCommand::MessagesWritten(written));
        }
        if !self.pushed.is_empty() {
            self.socket.wake_on_flush(cx.waker());
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
        if let Some(len) = self.whole_len {
            // Calls that can still be given back know the outbox for longer.
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
