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
    headers::{Accepts, Refusal},
    sessions::{Command, Session, Sessions, Stream, priming_event},
};
use crate::{
    mcp::{Form, Outbox, Peer, outbox::Answered},
    transport::{Connections, Gate, Line, Seat},
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Who fills the outbox that is being written, and hears what becomes of it.
pub enum Driver {
    /// The peer of this one request, which is over with it.
    Stateless(Box<Peer>),
    /// A session answers one of its requests; `stream` is the number of its events.
    Call {
        session: Arc<Session>,
        stream: u64,
        /// What it answers may have been taken out of an inbox.
        takes: bool,
    },
    /// The stream of a session, or the rest of the answer to one of its requests.
    Reader {
        session: Arc<Session>,
        stream: Arc<Stream>,
        /// It goes on after an event that it names.
        resumes: bool,
    },
    /// The stream on which a client of 2024-11-05 gets everything: its session ends with it.
    Sole {
        sessions: Arc<Sessions>,
        session: Arc<Session>,
        stream: Arc<Stream>,
    },
}

impl Driver {
    fn poll(&mut self, cx: &mut Context<'_>, now: Now) {
        if let Self::Stateless(peer) = self {
            peer.poll(cx, now);
        }
    }

    fn tell(&self, command: Command) {
        match self {
            Self::Stateless(peer) => match command {
                Command::Written(messages) => peer.written(messages),
                Command::Writable => peer.writable(),
                Command::Alive => peer.touch(now()),
                _ => {}
            },
            Self::Call { session, .. } | Self::Reader { session, .. } | Self::Sole { session, .. } => {
                session.tell(command)
            }
        }
    }

    /// The broker stops: what is open is answered, as far as it is to be, and the stream ends with that.
    fn give_up(&self, outbox: &Arc<Outbox>) {
        match self {
            Self::Stateless(peer) => {
                peer.say_farewell();
                peer.give_up(None);
                outbox.interrupt();
            }
            Self::Reader { .. } => outbox.interrupt(),
            Self::Call { session, .. } | Self::Sole { session, .. } => session.tell(Command::GiveUp {
                exchange: Arc::clone(outbox),
                all: matches!(self, Self::Sole { .. }),
            }),
        }
    }

    fn says_farewell(&self) -> bool {
        matches!(self, Self::Stateless(peer) if peer.say_farewell())
    }

    /// The stream of a session that is read.
    fn stream(&self) -> Option<(&Arc<Session>, &Arc<Stream>)> {
        match self {
            Self::Reader { session, stream, .. } | Self::Sole { session, stream, .. } => Some((session, stream)),
            Self::Stateless(_) | Self::Call { .. } => None,
        }
    }

    fn session(&self) -> Option<&Arc<Session>> {
        match self {
            Self::Stateless(_) => None,
            Self::Call { session, .. } | Self::Reader { session, .. } | Self::Sole { session, .. } => Some(session),
        }
    }
}

/// The answer to one request, while it is written.
pub struct Exchange {
    outbox: Arc<Outbox>,
    driver: Driver,
    line: Rc<Line>,
    connections: Arc<Connections>,
    seat: Option<Seat>,
    accepts: Accepts,
    /// A stream begins only when there is something in it.
    waits_for_first: bool,
    /// The broker stops, and whoever is to answer was told.
    given_up: bool,
    /// How often somebody who waits is told that the stream is alive.
    keep_alive: Duration,
    tick: Option<Pin<Box<Sleep>>>,
    /// What comes before what is in the outbox.
    first: Option<Bytes>,
    /// Where what is written is kept, and which of its readers this is.
    reading: Option<(Arc<Stream>, u64)>,
    /// Pushed messages that are not with the kernel yet, with the number of times that all was written before them.
    marks: VecDeque<(u64, MessageId)>,
    /// How often all was written before the last bytes were given to HTTP.
    emptied_before: u64,
    /// The length of an answer that is whole.
    whole_len: Option<u64>,
    /// The answer has been given to HTTP to the end, or to somebody else.
    done: bool,
}

/// How a response begins.
enum Begins {
    Whole(Bytes, Answered),
    Stream,
    /// There is no answer, for its request was cancelled.
    Abandoned,
    /// The peer has gone.
    Unheard,
    /// The broker stops.
    Stopped,
}

impl Exchange {
    pub fn new(outbox: Arc<Outbox>, driver: Driver, line: Rc<Line>, gate: &Gate, accepts: Accepts) -> Self {
        Self {
            outbox,
            driver,
            line,
            connections: Arc::clone(&gate.connections),
            seat: None,
            accepts,
            waits_for_first: false,
            given_up: false,
            keep_alive: gate.tempo.ping_interval,
            tick: None,
            first: None,
            reading: None,
            marks: VecDeque::new(),
            emptied_before: 0,
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
            Begins::Whole(body, Answered { error, .. }) => {
                let mut response = HttpResponse::build(status(error));
                response.insert_header((CONTENT_TYPE, JSON));
                if self.done {
                    return Ok(response.body(body));
                }
                self.whole_len = Some(body.len() as u64);
                self.first = Some(body);
                Ok(response.body(self))
            }
            Begins::Stream => {
                if let Driver::Call { session, stream, .. } = &self.driver {
                    let kept = session.keep(*stream, Arc::clone(&self.outbox));
                    let first = session.takes_priming().then(|| priming_event(*stream));
                    let reader = kept.take_over();
                    self.reading = Some((kept, reader));
                    self.first = first;
                }
                Ok(self.events())
            }
            Begins::Abandoned => Ok(HttpResponse::Accepted().finish()),
            Begins::Unheard => Ok(HttpResponse::build(StatusCode::BAD_REQUEST).force_close().finish()),
            Begins::Stopped => Err(Refusal::unavailable("nobody can wait here now: try again later")),
        }
    }

    /// The stream of a session, with what its reader has missed before it.
    pub async fn stream(mut self, first: Option<Bytes>) -> Answer {
        self.first = first;
        let read = self
            .driver
            .stream()
            .map(|(session, stream)| (Arc::clone(session), Arc::clone(stream)));
        if let Some((session, stream)) = read {
            let reader = stream.take_over();
            if stream.is_main() {
                let resumes = matches!(self.driver, Driver::Reader { resumes: true, .. });
                session.tell(Command::Listening { resumes });
                // A session that was given up for silent is alive again before its stream is looked at.
                session.caught_up().await;
            }
            self.reading = Some((stream, reader));
        }
        if !self.sit() {
            return Err(Refusal::unavailable(
                "no place for another connection now: try again later",
            ));
        }
        Ok(self.events())
    }

    fn events(self) -> HttpResponse {
        self.outbox.begin_stream();
        HttpResponse::Ok()
            .insert_header((CONTENT_TYPE, HeaderValue::from_static("text/event-stream")))
            .insert_header((CACHE_CONTROL, "no-cache, no-transform"))
            .insert_header((HeaderName::from_static("x-accel-buffering"), "no"))
            .body(self)
    }

    /// Takes a place among the connections, so that the end of the broker is heard of. False when there is none.
    fn sit(&mut self) -> bool {
        if self.seat.is_none() {
            self.seat = self.connections.seat(&self.outbox);
        }
        self.seat.is_some()
    }

    fn begin(&mut self, cx: &mut Context<'_>) -> Poll<Begins> {
        loop {
            self.outbox.awake();
            self.driver.poll(cx, now());
            if let Some(answered) = self.outbox.answered().filter(|answered| answered.whole) {
                let mut body = Vec::new();
                self.outbox.take(&mut body, &mut VecDeque::new());
                if !self.holds_messages() {
                    self.finish();
                }
                return Poll::Ready(Begins::Whole(body.into(), answered));
            }
            if self.outbox.is_abandoned() {
                self.done = true;
                return Poll::Ready(Begins::Abandoned);
            }
            let at_once = self.accepts.form() == Form::Events && !self.waits_for_first;
            if at_once || self.outbox.waiting_len() > 0 || self.outbox.is_interrupted() {
                return Poll::Ready(if self.sit() { Begins::Stream } else { Begins::Stopped });
            }
            if self.line.hung_up() {
                return Poll::Ready(Begins::Unheard);
            }
            if !self.sit() || self.outbox.closing().is_some() {
                return Poll::Ready(Begins::Stopped);
            }
            if self.accepts.events() && self.ticked(cx) {
                self.outbox.comment();
                continue;
            }
            if self.outbox.sleep(cx.waker()) {
                return Poll::Pending;
            }
        }
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

    /// Whether there are messages in the answer that nobody else has. They are delivered when they are with the kernel: until
    /// then they may have to wait again.
    fn holds_messages(&self) -> bool {
        match &self.driver {
            Driver::Stateless(peer) => peer.has_taken(),
            Driver::Call { takes, .. } => *takes,
            Driver::Reader { .. } | Driver::Sole { .. } => false,
        }
    }

    /// The answer is complete and in the hands of HTTP.
    fn finish(&mut self) {
        if self.line.hung_up() {
            return;
        }
        self.done = true;
        if let Driver::Stateless(peer) = &self.driver {
            peer.all_answered();
        }
    }

    /// The next bytes of a stream.
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(first) = self.first.take() {
            self.emptied_before = self.line.emptied();
            return Poll::Ready(Some(first));
        }
        loop {
            self.tell_of_written(cx);
            self.driver.poll(cx, now());
            if self
                .reading
                .as_ref()
                .is_some_and(|(stream, reader)| !stream.is_read_by(*reader))
            {
                // Somebody else reads on.
                self.done = true;
                return Poll::Ready(None);
            }
            if self.line.hung_up() {
                return Poll::Ready(None);
            }
            let (chunk, closing) = self.take();
            if let Some(chunk) = chunk {
                return Poll::Ready(Some(chunk));
            }
            if self.outbox.answered().is_some() {
                if self.holds_messages() && self.line.emptied() == self.emptied_before {
                    self.line.wake_when_empty(cx.waker());
                    return Poll::Pending;
                }
                self.finish();
                return Poll::Ready(None);
            }
            if self.outbox.is_abandoned() {
                if let Driver::Call { session, stream, .. } = &self.driver {
                    session.cancelled(*stream);
                }
                self.done = true;
                return Poll::Ready(None);
            }
            if self.outbox.take_interrupt() {
                self.done = true;
                return Poll::Ready(None);
            }
            match closing {
                None => {}
                Some(Closing::ShuttingDown) if self.given_up => {}
                Some(Closing::ShuttingDown) => {
                    self.given_up = true;
                    self.driver.give_up(&self.outbox);
                    continue;
                }
                // The result of a subscription says that it ends on purpose.
                Some(Closing::Released | Closing::Failed) if self.driver.says_farewell() => continue,
                Some(_) => return Poll::Ready(None),
            }
            if self.ticked(cx) {
                self.driver.tell(Command::Alive);
                self.outbox.comment();
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

    fn take(&mut self) -> (Option<Bytes>, Option<Closing>) {
        let mut marks = VecDeque::new();
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
        self.marks
            .extend(marks.into_iter().map(|(_, message)| (emptied, message)));
        if self.outbox.written(chunk.len()) {
            self.driver.tell(Command::Writable);
        }
        (Some(chunk), closing)
    }

    /// What was pushed is written once everything was, after HTTP had taken it.
    fn tell_of_written(&mut self, cx: &mut Context<'_>) {
        let emptied = self.line.emptied();
        let done = self.marks.iter().take_while(|(before, _)| *before < emptied).count();
        if done > 0 {
            let messages = self.marks.drain(..done).map(|(_, message)| message).collect();
            self.driver.tell(Command::Written(messages));
        }
        if !self.marks.is_empty() {
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
        if let Some(session) = self.driver.session() {
            session.is_used();
        }
        let is_current = self
            .reading
            .as_ref()
            .is_none_or(|(stream, reader)| stream.is_read_by(*reader));
        match &self.driver {
            Driver::Stateless(_) => {}
            Driver::Call { session, .. } if !self.done => session.tell(Command::Left {
                exchange: Arc::clone(&self.outbox),
            }),
            Driver::Call { .. } => {}
            Driver::Reader { session, stream, .. } if is_current && stream.is_main() => session.tell(Command::Deaf),
            Driver::Reader { .. } => {}
            Driver::Sole { sessions, session, .. } => sessions.close(&session.id),
        }
    }
}
