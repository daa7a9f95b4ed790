//! HTTP sessions (2025-11-25 and before): what outlives the requests of a client.

use std::{
    collections::{HashMap, VecDeque},
    future::poll_fn,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use actix_web::http::StatusCode;
use actors::{
    attention,
    clock::{Now, millis, now},
    model::{ProjectId, ReplicaId},
    session::ReadAt,
};
use futures_util::FutureExt;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, Sleep, sleep},
};

use super::{
    commands::{Command, Commands, Room, WindingUp},
    headers::Refusal,
    logs::Logs,
    streams::{EventId, Home, Stream},
};
use crate::{
    auth::Identity,
    mcp::{
        Form, Framing, Lane, Outbox, Peer,
        outbox::ANSWER_BYTES_MAX,
        placed,
        rpc::{self, INVALID_REQUEST, RpcError},
        version::{LEGACY, WITH_BATCHES},
    },
};

/// The parameter by which a client of 2024-11-05 names its session: its only place is the URI it was given.
pub const QUERY_KEY: &str = "session_id";
/// Streams of one session that can be resumed, the one of `GET` left out.
const STREAMS_LEN_MAX: usize = 16;

/// The sessions of the process.
pub struct Sessions {
    max: usize,
    /// A session that is silent for so long is forgotten.
    idle_max: Duration,
    logs: Arc<Logs>,
    open: Mutex<HashMap<Box<str>, Arc<Session>>>,
}

impl Sessions {
    pub fn new(max: usize, idle_max: Duration) -> Arc<Self> {
        Arc::new(Self {
            max,
            idle_max,
            logs: Logs::new(),
            open: Mutex::default(),
        })
    }

    /// Opens a session around a peer, which lives on this thread from now on. When there are too many, those make room
    /// that have been silent for longest in the project that has most: no project crowds out another's.
    pub fn open(
        self: &Arc<Self>,
        replica: Option<ReplicaId>,
        peer: Peer,
        outbox: Arc<Outbox>,
        identity: Arc<Identity>,
    ) -> Arc<Session> {
        let (commands, received) = Commands::new();
        let session = Arc::new_cyclic(|session| {
            let home = Home {
                logs: Arc::clone(&self.logs),
                project: identity.project.id().clone(),
                session: Weak::clone(session),
            };
            Session {
                id: placed::new_id(replica),
                identity: Mutex::new(identity),
                main: Stream::new(0, outbox, home.clone()),
                home,
                commands,
                version: OnceLock::new(),
                streams: Mutex::default(),
                streams_opened: AtomicU64::new(0),
                last_used_ms: AtomicU64::new(now().mono_ms),
                ended: AtomicBool::new(false),
            }
        });
        let crowded_out = {
            let mut open = self.lock();
            let crowded_out = if open.len() >= self.max {
                longest_silent(&open, self.max / 100 + 1)
            } else {
                Vec::new()
            };
            for session in &crowded_out {
                open.remove(session.id.as_str());
            }
            open.insert(session.id.as_str().into(), Arc::clone(&session));
            crowded_out
        };
        if !crowded_out.is_empty() {
            tracing::warn!(
                max = self.max,
                forgotten = crowded_out.len(),
                "too many HTTP sessions: those longest silent are forgotten"
            );
            for session in crowded_out {
                session.end();
            }
        }
        let task = Task {
            peer,
            reader: 0,
            session: Arc::downgrade(&session),
            received,
            sessions: Arc::downgrade(self),
            winding_up: Vec::new(),
            idle_max: self.idle_max,
            idle: Box::pin(sleep(self.idle_max)),
        };
        actix_rt::spawn(task.run());
        session
    }

    /// # Errors
    /// 404 for one that is not there, or not this caller's: the client is to initialize anew (2025-11-25,
    /// basic/transports, Session Management).
    pub fn find(&self, id: &str, identity: &Arc<Identity>) -> Result<Arc<Session>, Refusal> {
        self.find_of(id, identity, false)
    }

    /// The same for a client of 2024-11-05.
    pub fn find_old(&self, id: &str, identity: &Arc<Identity>) -> Result<Arc<Session>, Refusal> {
        self.find_of(id, identity, true)
    }

    fn find_of(&self, id: &str, identity: &Arc<Identity>, old: bool) -> Result<Arc<Session>, Refusal> {
        let found = {
            let open = self.lock();
            let session = open.get(id);
            session
                .filter(|session| session.is_old() == old && !session.is_gone() && session.is_of(identity))
                .cloned()
        };
        let session = found.ok_or_else(not_found)?;
        session.is_used();
        *session.identity() = Arc::clone(identity);
        Ok(session)
    }

    /// Ends a session: its stream too. Requests under way are still answered.
    pub fn close(&self, id: &str) {
        let session = self.lock().remove(id);
        if let Some(session) = session {
            session.end();
        }
    }

    /// Ends those whose callers came in with what is good no more, and has been for so long.
    pub fn close_ended(&self, now: Now, known_for: Duration) {
        let ended: Vec<_> = {
            let mut open = self.lock();
            let is_over = |session: &Session| session.identity().over_for(now).is_some_and(|time| time >= known_for);
            let ended = open.extract_if(|_, session| is_over(session));
            ended.map(|(_, session)| session).collect()
        };
        for session in ended {
            session.end();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<Session>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub fn not_found() -> Refusal {
    let error = RpcError::new(INVALID_REQUEST, "Session not found: initialize again");
    Refusal::new(StatusCode::NOT_FOUND, error)
}

/// Some sessions of the project that has most of them, those that have been silent for longest and that no request holds
/// on to. Several at once: to find them takes a look at all.
fn longest_silent(open: &HashMap<Box<str>, Arc<Session>>, count: usize) -> Vec<Arc<Session>> {
    let mut by_project = HashMap::<ProjectId, Vec<_>>::new();
    for session in open.values() {
        let project = session.identity().project.id().clone();
        by_project.entry(project).or_default().push(session);
    }
    let mut most = by_project.into_values().max_by_key(Vec::len).unwrap_or_default();
    most.retain(|session| Arc::strong_count(session) == 1);
    most.sort_unstable_by_key(|session| session.last_used_ms.load(Ordering::Relaxed));
    most.into_iter().take(count).cloned().collect()
}

/// One client, from `initialize` to `DELETE`. Its peer is on one thread; its requests may come on any.
pub struct Session {
    pub id: String,
    /// Who opened it: nobody else can use it.
    identity: Mutex<Arc<Identity>>,
    main: Arc<Stream>,
    home: Home,
    commands: Commands,
    version: OnceLock<&'static str>,
    streams: Mutex<Streams>,
    streams_opened: AtomicU64,
    last_used_ms: AtomicU64,
    ended: AtomicBool,
}

/// The streams of a session beside the one of `GET`.
#[derive(Default)]
struct Streams {
    kept: VecDeque<Arc<Stream>>,
    /// Those whose requests were cancelled, by number.
    cancelled: VecDeque<u64>,
}

impl Session {
    /// What it does, it does in the order in which it is told. A session that is over does nothing.
    pub fn tell(&self, command: Command) {
        self.commands.tell(command);
    }

    /// Waits until it can be told a frame of so many bytes; see [`Commands::room`].
    pub async fn room(&self, text_len: usize) -> Result<Room, Refusal> {
        self.commands.room(text_len).await
    }

    /// Takes a frame whose answer, if any, goes to the stream of the session.
    ///
    /// # Errors
    /// 503 when too much waits already, here or for the reader of the stream.
    pub async fn take(&self, text: &str, read_at: ReadAt) -> Result<(), Refusal> {
        let room = self.room(text.len()).await?;
        if self.main.outbox.waiting_len() >= ANSWER_BYTES_MAX {
            return Err(Refusal::unavailable("too much waits for this session: read its stream"));
        }
        self.tell(Command::Frame {
            text: text.to_owned(),
            lane: None,
            read_at,
            room,
        });
        Ok(())
    }

    /// What it may do was found when it was opened: a token of the same subject with another scope opens another. One of a
    /// project that was opened again since is nobody's: it is about to end.
    fn is_of(&self, identity: &Identity) -> bool {
        let own = self.identity();
        own.owner() == identity.owner()
            && own.scope() == identity.scope()
            && own.project.id() == identity.project.id()
            && !own.project.is_abandoned()
    }

    /// What its caller came in with last: a token is refreshed while a session lasts.
    fn identity(&self) -> MutexGuard<'_, Arc<Identity>> {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is one of a client of 2024-11-05.
    fn is_old(&self) -> bool {
        !self.main.outbox.is_numbered()
    }

    /// What `initialize` agreed on; None before it did.
    pub fn version(&self) -> Option<&'static str> {
        self.version.get().copied()
    }

    pub fn takes_batches(&self) -> bool {
        self.version() == Some(WITH_BATCHES)
    }

    /// Whether streams begin with an event without data: clients of older revisions stumble over one.
    pub fn takes_priming(&self) -> bool {
        self.version() == Some(LEGACY[0])
    }

    /// A number for the stream of an answer, and how the answer is framed there.
    pub fn open_stream(&self, form: Form) -> (u64, Framing) {
        let number = self.streams_opened.fetch_add(1, Ordering::Relaxed) + 1;
        let stream = Some(number);
        (number, Framing::Exchange { stream, form })
    }

    /// Keeps a stream so that it can be resumed.
    pub fn keep(&self, number: u64, outbox: Arc<Outbox>) -> Arc<Stream> {
        let stream = Stream::new(number, outbox, self.home.clone());
        let mut streams = self.streams();
        let is_full = streams.kept.len() == STREAMS_LEN_MAX;
        let oldest = if is_full { streams.kept.pop_front() } else { None };
        streams.kept.push_back(Arc::clone(&stream));
        drop(streams);
        if let Some(oldest) = oldest {
            oldest.drop_log();
        }
        stream
    }

    /// Forgets what it keeps of this stream, to make room.
    pub fn drop_log(&self, number: u64) {
        if number == self.main.number {
            return self.main.drop_log();
        }
        if let Some(stream) = self.take_kept(number) {
            stream.drop_log();
        }
    }

    fn take_kept(&self, number: u64) -> Option<Arc<Stream>> {
        let mut streams = self.streams();
        let at = streams.kept.iter().position(|stream| stream.number == number)?;
        streams.kept.remove(at)
    }

    /// The request that this stream answered was cancelled: its caller is not to come back for the rest.
    pub fn cancelled(&self, number: u64) {
        let stream = self.take_kept(number);
        let mut streams = self.streams();
        if streams.cancelled.len() == STREAMS_LEN_MAX {
            streams.cancelled.pop_front();
        }
        streams.cancelled.push_back(number);
        drop(streams);
        if let Some(stream) = stream {
            stream.drop_log();
        }
    }

    pub fn main_stream(&self) -> &Arc<Stream> {
        &self.main
    }

    /// It was closed: its stream is to end.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Nobody serves it any more.
    pub fn is_gone(&self) -> bool {
        self.commands.is_closed()
    }

    /// The stream that a `GET` is to read from its last event on. Without one that there ever was, it is the stream of
    /// the session from now on.
    ///
    /// # Errors
    /// When there is nothing more to read of it.
    pub fn resume(self: &Arc<Self>, last: Option<EventId>) -> Result<Resumption, Over> {
        let known = match last {
            None => None,
            Some(EventId { stream, number }) => {
                let streams = self.streams();
                if streams.cancelled.contains(&stream) {
                    return Err(Over::Cancelled);
                }
                let kept = streams.kept.iter().find(|known| known.number == stream);
                if kept.is_none() && (1..=self.streams_opened.load(Ordering::Relaxed)).contains(&stream) {
                    return Err(Over::Dropped);
                }
                // An answer is told as far as it is kept; the stream of the session begins anew where it has a gap.
                let main = || (stream == 0 && self.main.goes_on_after(number)).then_some(&self.main);
                kept.or_else(main).map(|stream| (Arc::clone(stream), number))
            }
        };
        let (stream, after) = match known {
            Some((stream, number)) => (stream, Some(number)),
            None => (Arc::clone(&self.main), None),
        };
        Ok(Resumption {
            session: Arc::clone(self),
            stream,
            after,
        })
    }

    /// A sign of life of the client.
    pub fn is_used(&self) {
        self.last_used_ms.store(now().mono_ms, Ordering::Relaxed);
    }

    /// Returns when everything that the peer was told so far is done.
    pub async fn caught_up(&self) {
        let (reply, done) = oneshot::channel();
        self.tell(Command::Caught(reply));
        let _ = done.await;
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.main.outbox.wake();
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why there is nothing more to read of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The request that it answered was cancelled: there is no answer.
    Cancelled,
    /// It is not kept any more.
    Dropped,
}

/// A stream that is read from somewhere on.
pub struct Resumption {
    pub session: Arc<Session>,
    pub stream: Arc<Stream>,
    /// The number of the last event that its reader has.
    pub after: Option<u64>,
}

/// The session that the query of a URI names.
pub fn id_in_query(query: &str) -> Option<&str> {
    query
        .split('&')
        .find_map(|pair| pair.strip_prefix(QUERY_KEY)?.strip_prefix('='))
}

/// What runs the peer of a session.
struct Task {
    peer: Peer,
    /// Who read the stream of the session last.
    reader: u64,
    session: Weak<Session>,
    received: mpsc::UnboundedReceiver<Command>,
    sessions: Weak<Sessions>,
    /// The broker stops, and these have something under way.
    winding_up: Vec<WindingUp>,
    idle_max: Duration,
    idle: std::pin::Pin<Box<Sleep>>,
}

impl Task {
    async fn run(mut self) {
        let running = AssertUnwindSafe(poll_fn(|cx| self.poll(cx))).catch_unwind().await;
        if running.is_err()
            && let (Some(session), Some(sessions)) = (self.session.upgrade(), self.sessions.upgrade())
        {
            tracing::error!("an HTTP session panicked: its client has to initialize again");
            sessions.close(&session.id);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = now();
        while let Poll::Ready(command) = self.received.poll_recv(cx) {
            let Some(command) = command else { return Poll::Ready(()) };
            self.obey(command, now);
        }
        self.peer.end_turn(now);
        self.peer.poll(cx, now);
        let peer = &self.peer;
        for WindingUp { exchange, .. } in self.winding_up.extract_if(.., |response| {
            peer.winds_up((!response.all).then_some(&*response.exchange))
        }) {
            exchange.interrupt();
        }
        while self.idle.as_mut().poll(cx).is_ready() {
            self.look_whether_idle(now);
        }
        Poll::Pending
    }

    fn obey(&mut self, command: Command, now: Now) {
        match command {
            Command::Frame {
                text, lane, read_at, ..
            } => {
                self.peer.come_back();
                self.peer.reads(read_at, now);
                let lane = lane.map_or(Lane::Connection, Lane::Exchange);
                self.peer.take(&text, rpc::parse(&text), lane);
                self.note_version();
            }
            Command::Left { exchange } => self.peer.caller_left(&exchange),
            Command::Listening { reader, resumes, .. } => {
                self.reader = reader;
                self.peer.come_back();
                if !resumes {
                    self.peer.set_listening(false);
                }
                self.peer.set_listening(true);
            }
            Command::Deaf { reader } if reader == self.reader => self.peer.set_listening(false),
            Command::Deaf { .. } => {}
            Command::Written(messages) => self.peer.written(messages),
            Command::Writable => self.peer.writable(),
            Command::Alive => self.peer.touch(now),
            Command::Caught(reply) => drop(reply.send(())),
            Command::WindUp(response) => self.winding_up.push(response),
        }
    }

    fn note_version(&self) {
        if let (Some(version), Some(session)) = (self.peer.version(), self.session.upgrade()) {
            let _ = session.version.set(version);
        }
    }

    fn look_whether_idle(&mut self, now: Now) {
        let Some(session) = self.session.upgrade() else { return };
        // Besides the table and this function only requests hold on to it.
        if Arc::strong_count(&session) > 2 {
            session.is_used();
        }
        let silence = attention::silence(session.last_used_ms.load(Ordering::Relaxed), now);
        if silence >= self.idle_max
            && let Some(sessions) = self.sessions.upgrade()
        {
            sessions.close(&session.id);
        }
        let left = millis(self.idle_max).saturating_sub(millis(silence)).max(10);
        self.idle.as_mut().reset(Instant::now() + Duration::from_millis(left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_of_a_query_is_found_among_others() {
        assert_eq!(id_in_query("session_id=abc"), Some("abc"));
        assert_eq!(id_in_query("x=1&session_id=abc&y=2"), Some("abc"));
        for none in ["", "session_idx=1", "other=session_id=1", "session_id"] {
            assert_eq!(id_in_query(none), None, "{none}");
        }
    }
}
