//! HTTP sessions (2025-11-25 and before): the state of a client between its requests.

use std::{
    collections::{HashMap, VecDeque},
    future::poll_fn,
    panic::AssertUnwindSafe,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use actix_web::http::StatusCode;
use actors::{
    clock::{Now, millis, now},
    locked::Locked,
    model::{ProjectId, ReplicaId},
    session::ReadAt,
    silence,
};
use futures_util::FutureExt;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, Sleep, sleep},
};

use super::{
    commands::{CommandPermit, CommandSender, DrainRequest, SessionCommand},
    refusal::Refusal,
    replay_logs::{LogOwner, ReplayLogs},
    streams::{EventId, EventStream, StreamContext},
};
use api::{
    auth::Identity,
    mcp::{
        Exposure, Framing, Outbox, Peer, ReplyRoute, ResponseForm, located_id,
        outbox::ANSWER_BYTES_MAX,
        owned_frame::OwnedFrame,
        rpc::{INVALID_REQUEST, RpcError},
        version::{BATCH_VERSION, LEGACY},
    },
};

/// The query parameter by which a client of 2024-11-05 names its session: it received the whole URI.
pub const SESSION_QUERY_KEY: &str = "session_id";
/// Resumable streams of one session, the stream of `GET` excluded.
const RETAINED_STREAMS_MAX: usize = 16;

/// The HTTP sessions of the process.
pub struct HttpSessions {
    sessions_max: usize,
    /// A session without requests for this long is closed.
    idle_timeout: Duration,
    replay_logs: Arc<ReplayLogs>,
    sessions: Locked<HashMap<Box<str>, Arc<HttpSession>>>,
}

impl HttpSessions {
    /// The number of open sessions.
    pub fn len(&self) -> usize {
        self.sessions.lock().len()
    }

    /// Whether no session is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Allows `max` sessions; a session without requests for `idle_max` is closed.
    pub fn new(max: usize, idle_max: Duration) -> Arc<Self> {
        Arc::new(Self {
            sessions_max: max,
            idle_timeout: idle_max,
            replay_logs: ReplayLogs::new(),
            sessions: Locked::default(),
        })
    }

    /// Opens a session around a peer, which stays on this thread. Beyond the limit, the longest idle sessions of the
    /// largest project are closed, so that one project does not displace the sessions of another.
    pub fn open(
        self: &Arc<Self>,
        replica: Option<ReplicaId>,
        peer: Peer,
        outbox: Arc<Outbox>,
        identity: Arc<Identity>,
    ) -> Arc<HttpSession> {
        let exposure = peer.exposure().clone();
        let (commands, received) = CommandSender::new();
        let session = Arc::new_cyclic(|session| {
            let context = StreamContext {
                logs: Arc::clone(&self.replay_logs),
                project: identity.project.id().clone(),
                session: Weak::<HttpSession>::clone(session),
            };
            HttpSession {
                id: located_id::new_id(replica),
                exposure,
                identity: Locked::new(identity),
                main_stream: EventStream::new(0, outbox, context.clone()),
                stream_context: context,
                commands,
                version: OnceLock::new(),
                streams: Locked::default(),
                streams_opened: AtomicU64::new(0),
                last_used_ms: AtomicU64::new(now().mono_ms),
                is_closed: AtomicBool::new(false),
            }
        });
        let evicted = {
            let mut open = self.sessions.lock();
            let evicted = if open.len() >= self.sessions_max {
                eviction_candidates(&open, self.sessions_max / 100 + 1)
            } else {
                Vec::new()
            };
            for session in &evicted {
                open.remove(session.id.as_str());
            }
            open.insert(session.id.as_str().into(), Arc::clone(&session));
            evicted
        };
        if !evicted.is_empty() {
            tracing::warn!(
                max = self.sessions_max,
                closed = evicted.len(),
                "too many HTTP sessions: the longest idle ones are closed"
            );
            for session in evicted {
                session.close();
            }
        }
        let task = SessionTask {
            peer,
            last_reader: 0,
            session: Arc::downgrade(&session),
            received,
            sessions: Arc::downgrade(self),
            draining: Vec::new(),
            idle_timeout: self.idle_timeout,
            idle_timer: Box::pin(sleep(self.idle_timeout)),
        };
        actix_rt::spawn(task.run());
        session
    }

    /// Finds a session of Streamable HTTP and sets its latest identity.
    ///
    /// # Errors
    /// 404 when the session does not exist or belongs to another caller: the client has to initialize again
    /// (2025-11-25, basic/transports, Session Management).
    pub fn find(&self, id: &str, identity: &Arc<Identity>, exposure: &Exposure) -> Result<Arc<HttpSession>, Refusal> {
        self.find_matching(id, identity, |session| {
            !session.is_http_sse() && session.exposure == *exposure
        })
    }

    /// Finds a session of the HTTP+SSE transport (2024-11-05).
    ///
    /// # Errors
    /// 404, as [`Self::find`].
    pub fn find_http_sse(&self, id: &str, identity: &Arc<Identity>) -> Result<Arc<HttpSession>, Refusal> {
        self.find_matching(id, identity, HttpSession::is_http_sse)
    }

    fn find_matching(
        &self,
        id: &str,
        identity: &Arc<Identity>,
        is_wanted: impl Fn(&HttpSession) -> bool,
    ) -> Result<Arc<HttpSession>, Refusal> {
        let found = {
            let open = self.sessions.lock();
            let session = open.get(id);
            session
                .filter(|session| is_wanted(session) && !session.has_stopped() && session.belongs_to(identity))
                .cloned()
        };
        let session = found.ok_or_else(not_found)?;
        session.touch();
        *session.identity.lock() = Arc::clone(identity);
        Ok(session)
    }

    /// Closes a session and its stream. Requests in progress are still answered.
    pub fn close(&self, id: &str) {
        let session = self.sessions.lock().remove(id);
        if let Some(session) = session {
            session.close();
        }
    }

    /// Closes sessions whose credential has been invalid for at least `known_for`.
    pub fn close_invalid(&self, now: Now, known_for: Duration) {
        let ended: Vec<_> = {
            let mut open = self.sessions.lock();
            let is_over = |session: &HttpSession| {
                session
                    .identity
                    .lock()
                    .invalid_for(now)
                    .is_some_and(|time| time >= known_for)
            };
            let ended = open.extract_if(|_, session| is_over(session));
            ended.map(|(_, session)| session).collect()
        };
        for session in ended {
            session.close();
        }
    }
}

/// 404: the client has to initialize again.
pub fn not_found() -> Refusal {
    let error = RpcError::new(INVALID_REQUEST, "Session not found: initialize again");
    Refusal::new(StatusCode::NOT_FOUND, error)
}

/// The longest idle sessions of the largest project that no request uses. Several at once, because finding them scans
/// all sessions.
fn eviction_candidates(open: &HashMap<Box<str>, Arc<HttpSession>>, count: usize) -> Vec<Arc<HttpSession>> {
    let mut by_project = HashMap::<ProjectId, Vec<_>>::new();
    for session in open.values() {
        let project = session.identity.lock().project.id().clone();
        by_project.entry(project).or_default().push(session);
    }
    let mut most = by_project.into_values().max_by_key(Vec::len).unwrap_or_default();
    most.retain(|session| Arc::strong_count(session) == 1);
    most.sort_unstable_by_key(|session| session.last_used_ms.load(Ordering::Relaxed));
    most.into_iter().take(count).cloned().collect()
}

/// One client, from `initialize` to `DELETE`. Its peer stays on one thread; its requests may arrive on any.
pub struct HttpSession {
    pub id: String,
    /// What its client is shown. A request at another path does not find the session.
    exposure: Exposure,
    /// The identity of the latest request. Only the caller that opened the session may use it.
    identity: Locked<Arc<Identity>>,
    main_stream: Arc<EventStream>,
    stream_context: StreamContext,
    commands: CommandSender,
    version: OnceLock<&'static str>,
    streams: Locked<Streams>,
    streams_opened: AtomicU64,
    last_used_ms: AtomicU64,
    is_closed: AtomicBool,
}

/// The streams of a session other than the one of `GET`.
#[derive(Default)]
struct Streams {
    retained: VecDeque<Arc<EventStream>>,
    /// Numbers of the streams whose requests were cancelled.
    cancelled: VecDeque<u64>,
}

impl HttpSession {
    /// Sends a command to the session's task. After the end of the session it is dropped.
    pub fn send(&self, command: SessionCommand) {
        self.commands.send(command);
    }

    /// Waits for a permit for a frame of `text_len` bytes; see [`CommandSender::reserve`].
    ///
    /// # Errors
    /// 503, as [`CommandSender::reserve`].
    pub async fn reserve(&self, text_len: usize) -> Result<CommandPermit, Refusal> {
        self.commands.reserve(text_len).await
    }

    /// Accepts a frame whose answers go to the stream of the session.
    ///
    /// # Errors
    /// 503 when too many requests or answers wait already.
    pub async fn accept_frame(&self, frame: OwnedFrame, read_at: ReadAt) -> Result<(), Refusal> {
        let permit = self.reserve(frame.text().len()).await?;
        if self.main_stream.outbox.waiting_len() >= ANSWER_BYTES_MAX {
            return Err(Refusal::unavailable(
                "too many answers wait for this session: read its stream",
            ));
        }
        self.send(SessionCommand::Frame {
            frame,
            reply_outbox: None,
            read_at,
            permit,
        });
        Ok(())
    }

    /// Whether an identity may use this session: the same owner, scope and project. A token with another scope opens
    /// another session. A session of a restarted project is about to close.
    fn belongs_to(&self, identity: &Identity) -> bool {
        let own = self.identity.lock();
        own.owner() == identity.owner()
            && own.scope() == identity.scope()
            && own.project.id() == identity.project.id()
            && !own.project.is_killed()
    }

    /// Whether the session is of the HTTP+SSE transport (2024-11-05).
    fn is_http_sse(&self) -> bool {
        !self.main_stream.outbox.is_numbered()
    }

    /// The negotiated protocol version; `None` before `initialize` is answered.
    pub fn version(&self) -> Option<&'static str> {
        self.version.get().copied()
    }

    /// Whether the negotiated revision has JSON-RPC batches (2025-03-26).
    pub fn supports_batches(&self) -> bool {
        self.version() == Some(BATCH_VERSION)
    }

    /// Whether streams start with an event without data. Clients of older revisions fail on one.
    pub fn supports_priming_event(&self) -> bool {
        self.version() == Some(LEGACY[0])
    }

    /// Returns the number of the next stream, and the framing of its answer.
    pub fn next_stream(&self, form: ResponseForm) -> (u64, Framing) {
        let number = self.streams_opened.fetch_add(1, Ordering::Relaxed) + 1;
        let stream = Some(number);
        (number, Framing::Exchange { stream, form })
    }

    /// Retains a stream so that it can be resumed.
    pub fn retain_stream(&self, number: u64, outbox: Arc<Outbox>) -> Arc<EventStream> {
        let stream = EventStream::new(number, outbox, self.stream_context.clone());
        let mut streams = self.streams.lock();
        let is_full = streams.retained.len() == RETAINED_STREAMS_MAX;
        let oldest = if is_full { streams.retained.pop_front() } else { None };
        streams.retained.push_back(Arc::clone(&stream));
        drop(streams);
        if let Some(oldest) = oldest {
            oldest.drop_replay_log();
        }
        stream
    }

    fn remove_retained(&self, number: u64) -> Option<Arc<EventStream>> {
        let mut streams = self.streams.lock();
        let at = streams.retained.iter().position(|stream| stream.number == number)?;
        streams.retained.remove(at)
    }

    /// Records that the request of this stream was cancelled, so that it cannot be resumed.
    pub fn cancel_stream(&self, number: u64) {
        let stream = self.remove_retained(number);
        let mut streams = self.streams.lock();
        if streams.cancelled.len() == RETAINED_STREAMS_MAX {
            streams.cancelled.pop_front();
        }
        streams.cancelled.push_back(number);
        drop(streams);
        if let Some(stream) = stream {
            stream.drop_replay_log();
        }
    }

    /// The stream of the session itself, which `GET` reads.
    pub fn main_stream(&self) -> &Arc<EventStream> {
        &self.main_stream
    }

    /// Whether the session was closed, so that its stream has to end.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Whether the session's task has ended.
    pub fn has_stopped(&self) -> bool {
        self.commands.is_closed()
    }

    /// Selects the stream that a `GET` reads, after the event `last`. Without a known event it is the stream of the
    /// session, from now on.
    ///
    /// # Errors
    /// `Cancelled` when the request of the stream was cancelled, `Dropped` when the stream is not retained.
    pub fn resume(self: &Arc<Self>, last: Option<EventId>) -> Result<Resumption, ResumeError> {
        let known = match last {
            None => None,
            Some(EventId { stream, number }) => {
                let streams = self.streams.lock();
                if streams.cancelled.contains(&stream) {
                    return Err(ResumeError::Cancelled);
                }
                let retained = streams.retained.iter().find(|known| known.number == stream);
                if retained.is_none() && (1..=self.streams_opened.load(Ordering::Relaxed)).contains(&stream) {
                    return Err(ResumeError::Dropped);
                }
                // An answer is replayed as far as it is retained; the stream of the session starts at the present where
                // it has a gap.
                let main = || (stream == 0 && self.main_stream.can_resume_after(number)).then_some(&self.main_stream);
                retained.or_else(main).map(|stream| (Arc::clone(stream), number))
            }
        };
        let (stream, after) = match known {
            Some((stream, number)) => (stream, Some(number)),
            None => (Arc::clone(&self.main_stream), None),
        };
        Ok(Resumption {
            session: Arc::clone(self),
            stream,
            after,
        })
    }

    /// Records activity of the client.
    pub fn touch(&self) {
        self.last_used_ms.store(now().mono_ms, Ordering::Relaxed);
    }

    /// Waits until the task has handled all commands sent before.
    pub async fn wait_until_processed(&self) {
        let (reply, done) = oneshot::channel();
        self.send(SessionCommand::Barrier(reply));
        let _ = done.await;
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.main_stream.outbox.wake();
    }
}

impl LogOwner for HttpSession {
    fn drop_replay_log(&self, stream: u64) {
        if stream == self.main_stream.number {
            return self.main_stream.drop_replay_log();
        }
        if let Some(stream) = self.remove_retained(stream) {
            stream.drop_replay_log();
        }
    }
}

/// Why a stream cannot be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeError {
    /// The request of the stream was cancelled: no answer exists.
    Cancelled,
    /// The stream is not retained.
    Dropped,
}

/// A stream and the event after which it is read.
pub struct Resumption {
    pub session: Arc<HttpSession>,
    pub stream: Arc<EventStream>,
    /// The number of the last event that the reader has.
    pub after: Option<u64>,
}

/// Returns the session id in the query of a URI.
pub fn session_id_in_query(query: &str) -> Option<&str> {
    query
        .split('&')
        .find_map(|pair| pair.strip_prefix(SESSION_QUERY_KEY)?.strip_prefix('='))
}

/// The task that runs the peer of a session.
struct SessionTask {
    peer: Peer,
    /// The latest reader of the stream of the session.
    last_reader: u64,
    session: Weak<HttpSession>,
    received: mpsc::UnboundedReceiver<SessionCommand>,
    sessions: Weak<HttpSessions>,
    /// Responses that end once their calls in progress have finished, while the broker stops.
    draining: Vec<DrainRequest>,
    idle_timeout: Duration,
    idle_timer: std::pin::Pin<Box<Sleep>>,
}

impl SessionTask {
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
        while self.peer.poll_slice(cx).is_ready()
            && let Poll::Ready(command) = self.received.poll_recv(cx)
        {
            let Some(command) = command else { return Poll::Ready(()) };
            self.handle(command, now);
        }
        self.peer.finish_read(now);
        self.peer.poll(cx, now);
        let peer = &self.peer;
        for DrainRequest { outbox: exchange, .. } in self.draining.extract_if(.., |response| {
            peer.is_drained((!response.all_requests).then_some(&*response.outbox))
        }) {
            exchange.interrupt();
        }
        while self.idle_timer.as_mut().poll(cx).is_ready() {
            self.close_if_idle(now);
        }
        Poll::Pending
    }

    fn handle(&mut self, command: SessionCommand, now: Now) {
        match command {
            SessionCommand::Frame {
                frame,
                reply_outbox,
                read_at,
                ..
            } => {
                self.peer.resume();
                self.peer.begin_read(read_at, now);
                self.peer.set_http_trace(frame.http_trace());
                let route = reply_outbox.map_or(ReplyRoute::Connection, ReplyRoute::Exchange);
                self.peer.handle_parsed(frame.text(), frame.parsed(), route);
                self.record_version();
            }
            SessionCommand::CallerLeft { exchange } => self.peer.drop_exchange(&exchange),
            SessionCommand::ReaderAttached { reader, resumes, .. } => {
                self.last_reader = reader;
                self.peer.resume();
                if !resumes {
                    self.peer.set_push_stream(false);
                }
                self.peer.set_push_stream(true);
            }
            SessionCommand::ReaderDetached { reader } if reader == self.last_reader => self.peer.set_push_stream(false),
            SessionCommand::ReaderDetached { .. } => {}
            SessionCommand::MessagesWritten(messages) => self.peer.messages_written(messages),
            SessionCommand::OutboxWritable => self.peer.writable(),
            SessionCommand::Touch => self.peer.touch(now),
            SessionCommand::Barrier(reply) => drop(reply.send(())),
            SessionCommand::Drain(response) => self.draining.push(response),
        }
    }

    fn record_version(&self) {
        if let (Some(version), Some(session)) = (self.peer.version(), self.session.upgrade()) {
            let _ = session.version.set(version);
        }
    }

    fn close_if_idle(&mut self, now: Now) {
        let Some(session) = self.session.upgrade() else { return };
        // The table and this function hold two references; further ones are requests.
        if Arc::strong_count(&session) > 2 {
            session.touch();
        }
        let silence = silence::peer_silence(session.last_used_ms.load(Ordering::Relaxed), now);
        if silence >= self.idle_timeout
            && let Some(sessions) = self.sessions.upgrade()
        {
            sessions.close(&session.id);
        }
        let left = millis(self.idle_timeout).saturating_sub(millis(silence)).max(10);
        self.idle_timer
            .as_mut()
            .reset(Instant::now() + Duration::from_millis(left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_id_is_found_among_other_query_parameters() {
        assert_eq!(session_id_in_query("session_id=abc"), Some("abc"));
        assert_eq!(session_id_in_query("x=1&session_id=abc&y=2"), Some("abc"));
        for none in ["", "session_idx=1", "other=session_id=1", "session_id"] {
            assert_eq!(session_id_in_query(none), None, "{none}");
        }
    }
}
