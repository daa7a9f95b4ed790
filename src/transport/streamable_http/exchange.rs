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
    session::Closing,
};
use tokio::time::{Instant, Sleep, sleep};

use super::{
    Answer,
    commands::{Command, WindingUp},
    headers::{Accepts, Refusal},
    sessions::{Resumption, Session, Sessions},
    streams::{Stream, priming_event},
};
use crate::{
    auth::Identity,
    mcp::{
        Form, Marks, Outbox, Peer,
        outbox::{Beginning, ROOM_INTERVAL},
    },
    transport::{Connections, Gate, LONG_ANSWER_LEN, Line, Seat},
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Who fills the outbox that is being written, and hears what becomes of it.
pub enum Driver {
    /// The peer of this one request, which is over with it.
    Stateless(Box<Peer>),
    /// A session answers a request, or a batch; `stream` is the number of its events.
    Call {
        session: Arc<Session>,
        stream: u64,
        /// What it answers may have been taken out of an inbox.
        takes: bool,
    },
    /// The stream of a session, or the rest of an answer of it.
    Reader(Resumption),
    /// The stream on which a client of 2024-11-05 gets everything: its session ends with it.
    Old {
        sessions: Arc<Sessions>,
        session: Arc<Session>,
    },
}

impl Driver {
    fn poll(&mut self, cx: &mut Context<'_>, now: Now) {
        if let Self::Stateless(peer) = self {
            peer.poll(cx, now);
        }
    }

    fn tell(&self, command: Command) {
        match (self, command) {
            (Self::Stateless(peer), Command::Written(messages)) => peer.written(messages),
            (Self::Stateless(peer), Command::Writable) => peer.writable(),
            (Self::Stateless(peer), Command::Alive) => peer.touch(now()),
            (Self::Stateless(_), _) => {}
            (_, command) => drop(self.session().map(|session| session.tell(command))),
        }
    }

    fn session(&self) -> Option<&Arc<Session>> {
        match self {
            Self::Stateless(_) => None,
            Self::Call { session, .. } | Self::Old { session, .. } => Some(session),
            Self::Reader(Resumption { session, .. }) => Some(session),
        }
    }

    /// Whether it writes the stream of a session, and not an answer.
    fn is_main(&self) -> bool {
        match self {
            Self::Stateless(_) | Self::Call { .. } => false,
            Self::Reader(Resumption { stream, .. }) => stream.is_main(),
            Self::Old { .. } => true,
        }
    }

    /// The broker stops: what is under way comes to its end, and the response is interrupted then. True when that is
    /// seen to; else it is to be said again whenever the driver was polled.
    fn winds_up(&self, exchange: &Arc<Outbox>) -> bool {
        match self {
            Self::Stateless(peer) => {
                peer.say_farewell();
                if !peer.winds_up(None) {
                    return false;
                }
                exchange.interrupt();
            }
            Self::Reader(Resumption { stream, .. }) if stream.is_main() => exchange.interrupt(),
            Self::Reader(_) | Self::Call { .. } | Self::Old { .. } => self.tell(Command::WindUp(WindingUp {
                exchange: Arc::clone(exchange),
                all: matches!(self, Self::Old { .. }),
            })),
        }
        true
    }

    fn says_farewell(&self) -> bool {
        matches!(self, Self::Stateless(peer) if peer.say_farewell())
    }

    /// Whether there are messages in the answer that nobody else has. They are delivered when they are with the kernel:
    /// until then they may have to wait again.
    fn holds_messages(&self) -> bool {
        match self {
            Self::Stateless(peer) => peer.has_taken(),
            Self::Call { takes, .. } => *takes,
            Self::Reader(Resumption { stream, .. }) => !stream.is_main(),
            Self::Old { .. } => false,
        }
    }
}

/// The answer to one request, while it is written.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about the response"
)]
pub struct Exchange {
    outbox: Arc<Outbox>,
    driver: Driver,
    line: Rc<Line>,
    connections: Arc<Connections>,
    seat: Option<Seat>,
    identity: Arc<Identity>,
    accepts: Accepts,
    /// A stream begins only when there is something in it.
    waits_for_first: bool,
    /// The broker stops, and it is seen to that the response ends.
    winds_up: bool,
    /// How often somebody who waits is told that the stream is alive.
    keep_alive: Duration,
    tick: Option<Pin<Box<Sleep>>>,
    /// There while messages were refused for lack of room.
    room_tick: Option<Pin<Box<Sleep>>>,
    /// What comes before what is in the outbox.
    first: Option<Bytes>,
    /// Where what is written is kept, and which of its readers this is.
    reading: Option<(Arc<Stream>, u64)>,
    /// Pushed messages that are not with the kernel yet, with the number of times that all was written before them.
    pushed: VecDeque<(u64, MessageId)>,
    /// How often all was written before the last bytes were given to HTTP.
    emptied_before: u64,
    /// What is long counts as waiting until it is with the kernel.
    is_long: bool,
    /// Bytes of the last chunk that HTTP was given. It asks for the next when most of it is with the kernel.
    taken_len: usize,
    /// The length of an answer that is whole.
    whole_len: Option<u64>,
    /// The answer is with the kernel, or somebody else writes it, or there is none.
    done: bool,
}

/// How a response begins.
enum Begins {
    As(Beginning),
    /// The peer has gone.
    Unheard,
    /// The broker stops, or the session has.
    Stopped,
}

impl Exchange {
    /// For somebody who `accepts` some forms of an answer.
    pub fn new(
        outbox: Arc<Outbox>,
        driver: Driver,
        line: Rc<Line>,
        gate: &Gate,
        (accepts, identity): (Accepts, Arc<Identity>),
    ) -> Self {
        Self {
            outbox,
            driver,
            line,
            connections: Arc::clone(&gate.connections),
            seat: None,
            identity,
            accepts,
            waits_for_first: false,
            winds_up: false,
            keep_alive: gate.tempo.ping_interval,
            tick: None,
            room_tick: None,
            first: None,
            reading: None,
            pushed: VecDeque::new(),
            emptied_before: 0,
            is_long: false,
            taken_len: 0,
            whole_len: None,
            done: false,
        }
    }

    /// The response begins with the first frame and not before.
    pub fn after_the_first_frame(mut self) -> Self {
        self.waits_for_first = true;
        self
    }

    /// Waits for how the answer begins; `status` is that of an answer which is whole.
    pub async fn respond(mut self, status: fn(Option<i32>) -> StatusCode) -> Answer {
        match poll_fn(|cx| self.begin(cx)).await {
            Begins::As(Beginning::Whole { body, error }) => {
                let mut response = HttpResponse::build(status(error));
                response.insert_header((CONTENT_TYPE, JSON));
                self.is_long = body.len() >= LONG_ANSWER_LEN;
                if self.is_watched() {
                    self.whole_len = Some(body.len() as u64);
                    self.first = Some(body.into());
                    return Ok(response.body(self));
                }
                self.outbox.written(body.len());
                self.finish();
                Ok(response.body(body))
            }
            Begins::As(Beginning::Stream { error }) => {
                self.sit();
                if let Driver::Call { session, stream, .. } = &self.driver {
                    let kept = session.keep(*stream, Arc::clone(&self.outbox));
                    self.first = session.takes_priming().then(|| priming_event(*stream));
                    let (reader, _) = kept.take_over(None);
                    self.reading = Some((kept, reader));
                }
                let mut response = self.events();
                *response.status_mut() = status(error);
                Ok(response)
            }
            Begins::As(Beginning::Abandoned) => {
                self.done = true;
                Ok(HttpResponse::Accepted().finish())
            }
            Begins::Unheard => Ok(HttpResponse::build(StatusCode::BAD_REQUEST).force_close().finish()),
            Begins::Stopped => Err(Refusal::unavailable("nobody can wait here now: try again later")),
        }
    }

    /// A stream of a session; `before` comes before what is in it.
    pub async fn stream(mut self, before: Option<Bytes>) -> Answer {
        let (session, stream, after) = match &self.driver {
            Driver::Reader(resumption) => (&resumption.session, &resumption.stream, resumption.after),
            Driver::Old { session, .. } => (session, session.main_stream(), None),
            Driver::Stateless(_) | Driver::Call { .. } => return Ok(self.events()),
        };
        let (session, stream) = (Arc::clone(session), Arc::clone(stream));
        let room = session.room(0).await?;
        // Whoever read it before may have been sent away; this reader was let in.
        stream.outbox.readmit();
        let (reader, missed) = stream.take_over(after);
        self.first = before.or(missed);
        self.reading = Some((Arc::clone(&stream), reader));
        if stream.is_main() {
            let resumes = after.is_some();
            session.tell(Command::Listening { reader, resumes, room });
            // A session that was given up for silent is alive again before its stream is looked at.
            session.caught_up().await;
        }
        self.sit();
        Ok(self.events())
    }

    fn events(self) -> HttpResponse {
        HttpResponse::Ok()
            .insert_header((CONTENT_TYPE, HeaderValue::from_static("text/event-stream")))
            .insert_header((CACHE_CONTROL, "no-cache, no-transform"))
            .insert_header((HeaderName::from_static("x-accel-buffering"), "no"))
            .body(self)
    }

    /// Takes a place among the connections, so that the end of the broker is heard of, and that of the credential.
    /// Whether there is one was asked before anything was done.
    fn sit(&mut self) {
        if self.seat.is_none() {
            self.seat = self.connections.seat_begun(&self.outbox, &self.identity);
        }
    }

    fn begin(&mut self, cx: &mut Context<'_>) -> Poll<Begins> {
        let prefers_events = matches!(self.accepts.form(), Form::Events | Form::EventsOnly);
        let at_once = prefers_events && !self.waits_for_first;
        loop {
            self.outbox.awake();
            self.driver.poll(cx, now());
            if self.winds_up && self.outbox.is_untouched() && self.outbox.take_interrupt() {
                return Poll::Ready(Begins::Stopped);
            }
            if let Some(beginning) = self.outbox.begin(at_once) {
                return Poll::Ready(Begins::As(beginning));
            }
            if self.line.hung_up() {
                return Poll::Ready(Begins::Unheard);
            }
            self.sit();
            match self.outbox.closing() {
                _ if self.is_forsaken() => return Poll::Ready(Begins::Stopped),
                Some(Closing::ShuttingDown) if self.ends_with_the_broker() => continue,
                None | Some(Closing::ShuttingDown) => {}
                Some(_) => return Poll::Ready(Begins::Stopped),
            }
            if self.ticked(cx) {
                if self.accepts.events() {
                    self.outbox.comment();
                }
                continue;
            }
            if self.outbox.sleep(cx.waker()) {
                return Poll::Pending;
            }
        }
    }

    /// Nobody will ever answer: what ran the session is gone.
    fn is_forsaken(&self) -> bool {
        self.driver.session().is_some_and(|session| session.is_gone())
    }

    /// Whether it is time for a sign of life.
    fn ticked(&mut self, cx: &mut Context<'_>) -> bool {
        let keep_alive = self.keep_alive;
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
    fn finds_room(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.outbox.lacks_room() {
            self.room_tick = None;
            return false;
        }
        let tick = self.room_tick.get_or_insert_with(|| Box::pin(sleep(ROOM_INTERVAL)));
        if tick.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.room_tick = None;
        // The next tick has to know whom to wake.
        cx.waker().wake_by_ref();
        self.outbox.has_room_again()
    }

    fn finish(&mut self) {
        self.done = true;
        for taking in self.outbox.take_answers() {
            self.line.carries(taking);
        }
    }

    /// Whether it matters when the answer is with the kernel.
    fn is_watched(&self) -> bool {
        self.is_long || self.driver.holds_messages()
    }

    /// Whether somebody else reads the stream by now.
    fn is_superseded(&self) -> bool {
        let reading = self.reading.as_ref();
        reading.is_some_and(|(stream, reader)| !stream.is_read_by(*reader))
    }

    /// The next bytes of a stream.
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.tell_of_taken();
        if let Some(first) = self.first.take() {
            self.emptied_before = self.line.emptied();
            return Poll::Ready(Some(first));
        }
        loop {
            self.tell_of_written(cx);
            self.driver.poll(cx, now());
            if self.is_superseded() {
                self.done = true;
                return Poll::Ready(None);
            }
            if self.outbox.is_done() {
                // That the peer hangs up when it has everything takes nothing back.
                if !self.is_watched() || self.line.emptied() > self.emptied_before {
                    self.finish();
                    return Poll::Ready(None);
                }
                if self.line.hung_up() {
                    return Poll::Ready(None);
                }
                self.line.wake_when_empty(cx.waker());
                return Poll::Pending;
            }
            if self.line.hung_up() {
                return Poll::Ready(None);
            }
            let (chunk, closing) = self.take();
            if let Some(chunk) = chunk {
                return Poll::Ready(Some(chunk));
            }
            if self.ends_here(closing) {
                return Poll::Ready(None);
            }
            if self.outbox.is_done() {
                continue;
            }
            if self.ticked(cx) {
                self.driver.tell(Command::Alive);
                self.outbox.comment();
                continue;
            }
            if self.finds_room(cx) {
                self.driver.tell(Command::Writable);
                continue;
            }
            let sleeps = match &self.reading {
                Some((stream, reader)) => stream.sleep(*reader, cx.waker()),
                None => self.outbox.sleep(cx.waker()),
            };
            if sleeps {
                return Poll::Pending;
            }
        }
    }

    /// Whether the stream ends without an answer. Who can say more is asked to, and then it does not yet.
    fn ends_here(&mut self, closing: Option<Closing>) -> bool {
        if self.outbox.is_abandoned() {
            if let Driver::Call { session, stream, .. } = &self.driver {
                session.cancelled(*stream);
            }
            self.done = true;
            return true;
        }
        if self.outbox.take_interrupt() {
            self.done = true;
            return true;
        }
        if self.is_forsaken()
            || (self.driver.is_main() && self.driver.session().is_some_and(|session| session.has_ended()))
        {
            return true;
        }
        match closing {
            None => false,
            Some(Closing::ShuttingDown) => {
                self.ends_with_the_broker();
                false
            }
            // The result of a subscription says that it ends on purpose.
            Some(Closing::Released | Closing::Failed | Closing::WentBack) => !self.driver.says_farewell(),
            Some(_) => true,
        }
    }

    /// The broker stops. True when it has just been seen to that the response ends.
    fn ends_with_the_broker(&mut self) -> bool {
        if self.winds_up {
            return false;
        }
        self.winds_up = self.driver.winds_up(&self.outbox);
        self.winds_up
    }

    fn take(&mut self) -> (Option<Bytes>, Option<Closing>) {
        let mut marks = Marks::default();
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
        let emptied = self.line.emptied();
        self.emptied_before = emptied;
        let messages = marks.messages.into_iter().map(|(_, message)| (emptied, message));
        self.pushed.extend(messages);
        self.line
            .will_carry(marks.answers.into_iter().map(|(_, taking)| taking));
        self.taken_len += chunk.len();
        (Some(chunk), closing)
    }

    /// What HTTP was given before waits here no longer.
    fn tell_of_taken(&mut self) {
        let len = std::mem::take(&mut self.taken_len);
        if len > 0 && self.outbox.written(len) {
            self.driver.tell(Command::Writable);
        }
    }

    /// What was pushed is written once everything was, after HTTP had taken it.
    fn tell_of_written(&mut self, cx: &mut Context<'_>) {
        let emptied = self.line.emptied();
        let done = self.pushed.iter().take_while(|(before, _)| *before < emptied).count();
        if done > 0 {
            let written = self.pushed.drain(..done).map(|(_, message)| message).collect();
            self.driver.tell(Command::Written(written));
        }
        if !self.pushed.is_empty() {
            self.line.wake_when_empty(cx.waker());
        }
    }
}

impl MessageBody for Exchange {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        self.whole_len.map_or(BodySize::Stream, BodySize::Sized)
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        self.get_mut().next(cx).map(|chunk| chunk.map(Ok))
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.tell_of_taken();
        if let Some(len) = self.whole_len {
            // Calls that can still be given back know the outbox for longer.
            self.outbox.written(usize::try_from(len).unwrap_or(0));
        }
        if let Some((stream, reader)) = &self.reading {
            stream.leave(*reader);
        }
        let Some(session) = self.driver.session() else { return };
        session.is_used();
        match (&self.driver, &self.reading) {
            (Driver::Old { sessions, .. }, _) => sessions.close(&session.id),
            (_, Some((stream, reader))) if stream.is_main() => session.tell(Command::Deaf { reader: *reader }),
            _ if self.done || self.is_superseded() => {}
            _ => session.tell(Command::Left {
                exchange: Arc::clone(&self.outbox),
            }),
        }
    }
}
