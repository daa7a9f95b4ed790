//! A participant. It outlives its connections, of which it has at most one.

mod actor;
mod lease_sequence;
mod messages;
#[cfg(test)]
mod properties;
mod read_budget;
mod receive_call;
mod state;

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

pub(crate) use actor::SessionSettings;
pub use actor::{Session, SessionEnded};
#[cfg(feature = "faults")]
pub use messages::PanicSession;
pub(crate) use messages::ReceiveOutcome;
pub use messages::{
    AcknowledgeMessages, AnswerWritten, Attach, CancelReceive, Detach, Disconnect, EndSession, Fence, KillSession,
    MessagesWritten, Nudge, ReceiveMessages, ReceiveMode, ReceivedMessages, ResyncSession, SessionRemoved, Subscribe,
    Superseded, Unwatch, Watch, Writable,
};
pub use read_budget::{ReadBudget, ReadReservation, UNRESERVED_BYTES_MAX, UnboundedReads};
pub use receive_call::{ReadAt, ReceiveCall};
pub use state::{AckMode, PushMode};

use crate::{
    clock::Now,
    model::{ConnectionId, PresenceTimeouts, ProjectId, SessionName, SessionRecord, SessionStatus},
    silence,
    storage::{Claim, Delivery, Depth},
    supervise::Address,
};

/// A session as everybody else sees it: who it is, how it is, where to reach it.
///
/// The record never changes; a session that registers anew gets a new `Member` over the same vitals.
#[derive(Clone)]
pub struct Member {
    pub record: SessionRecord,
    pub shared: Arc<SessionShared>,
    pub address: Address<Session>,
}

impl Member {
    pub fn status(&self, presence: PresenceTimeouts, now: Now) -> SessionStatus {
        self.shared.status(presence, now)
    }

    /// The session has ended, or is about to: whoever comes back to its name gets a new one.
    pub(crate) fn has_ended(&self) -> bool {
        self.address.metrics().is_finished()
    }

    /// A sign of life. One after a long silence is news to the session's actor.
    pub fn touch(&self, presence: PresenceTimeouts, now: Now) {
        let was_away = self.status(presence, now) == SessionStatus::Disconnected;
        self.shared.touch(now);
        if was_away {
            // Refused only by a full mailbox, and then the commands in it are news enough.
            let _ = self.address.tell(Nudge { barrier: None });
        }
    }
}

/// The signs of life of a session, written by whoever sees them and read without asking its actor.
#[derive(Debug)]
pub struct SessionShared {
    last_seen_mono_ms: AtomicU64,
    last_seen_unix_ms: AtomicU64,
    has_left: AtomicBool,
    wants_wakeup: AtomicBool,
    /// The session has a live connection at this replica.
    connected: AtomicBool,
    /// The connection whose writes acknowledge; 0 when there is none.
    auto_ack_connection: AtomicU64,
    /// By which the session's actor has the inbox in hand; 0 when it has not.
    claim: AtomicU64,
    waiting: AtomicUsize,
    /// How often an operation on the inbox has told how many messages wait.
    waiting_updates: AtomicU64,
    /// How often another replica may have changed that, and how often it had when the store was asked for the last count.
    remote_changes: AtomicU64,
    remote_changes_counted: AtomicU64,
    last_batch: AtomicU64,
    agent: Mutex<AgentInfo>,
}

/// What the log says of the agent that acts as a session.
#[derive(Clone, Debug, Default)]
pub struct AgentInfo {
    pub project: Option<ProjectId>,
    pub name: Option<SessionName>,
    /// Empty when the agent did not say, or joined at another replica.
    pub client: Box<str>,
    pub client_version: Box<str>,
}

impl SessionShared {
    pub fn new(now: Now) -> Arc<Self> {
        Arc::new(Self {
            last_seen_mono_ms: AtomicU64::new(now.mono_ms),
            last_seen_unix_ms: AtomicU64::new(now.unix_ms),
            has_left: AtomicBool::new(false),
            wants_wakeup: AtomicBool::new(false),
            connected: AtomicBool::new(false),
            auto_ack_connection: AtomicU64::new(0),
            claim: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            waiting_updates: AtomicU64::new(0),
            // Nothing was counted yet.
            remote_changes: AtomicU64::new(1),
            remote_changes_counted: AtomicU64::new(0),
            last_batch: AtomicU64::new(0),
            agent: Mutex::default(),
        })
    }

    /// What the log says of the agent.
    pub fn agent(&self) -> MutexGuard<'_, AgentInfo> {
        self.agent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of a session that was last seen elsewhere.
    pub(crate) fn last_seen_elsewhere(mono_ms: u64, goodbye: bool, now: Now) -> Arc<Self> {
        let vitals = Self::new(now);
        vitals.last_seen_mono_ms.store(mono_ms, Ordering::Relaxed);
        let unix_ms = now.unix_ms.saturating_sub(crate::clock::millis(now.since(mono_ms)));
        vitals.last_seen_unix_ms.store(unix_ms, Ordering::Relaxed);
        vitals.has_left.store(goodbye, Ordering::Relaxed);
        vitals
    }

    /// Another replica has seen a sign of life then, or a goodbye; `instead_of` what was taken for it before.
    pub(crate) fn apply_remote_heartbeat(&self, mono_ms: u64, instead_of: Option<u64>, goodbye: bool, now: Now) {
        let last = &self.last_seen_mono_ms;
        let is_put_right = instead_of.is_some_and(|before| {
            let swapped = last.compare_exchange(before, mono_ms, Ordering::Relaxed, Ordering::Relaxed);
            swapped.is_ok()
        });
        if !is_put_right && last.fetch_max(mono_ms, Ordering::Relaxed) > mono_ms {
            return;
        }
        let unix_ms = now.unix_ms.saturating_sub(crate::clock::millis(now.since(mono_ms)));
        self.last_seen_unix_ms.store(unix_ms, Ordering::Relaxed);
        self.has_left.store(goodbye, Ordering::Relaxed);
    }

    pub(crate) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }

    /// A sign of life.
    pub fn touch(&self, now: Now) {
        self.last_seen_mono_ms.fetch_max(now.mono_ms, Ordering::Relaxed);
        self.last_seen_unix_ms.store(now.unix_ms, Ordering::Relaxed);
        if self.has_left.load(Ordering::Relaxed) {
            self.has_left.store(false, Ordering::Relaxed);
        }
    }

    /// The session left of its own will: disconnected from now on, until the next sign of life.
    pub fn leave(&self, now: Now) {
        self.touch(now);
        self.has_left.store(true, Ordering::Relaxed);
    }

    pub fn status(&self, presence: PresenceTimeouts, now: Now) -> SessionStatus {
        if self.has_left.load(Ordering::Relaxed) {
            SessionStatus::Disconnected
        } else {
            presence.status(silence::peer_silence(self.last_seen_mono_ms(), now))
        }
    }

    pub fn last_seen_mono_ms(&self) -> u64 {
        self.last_seen_mono_ms.load(Ordering::Relaxed)
    }

    pub fn last_seen_unix_ms(&self) -> u64 {
        self.last_seen_unix_ms.load(Ordering::Relaxed)
    }

    /// Messages that wait, as the last operation on the inbox left it.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub fn set_waiting(&self, waiting: usize) {
        self.waiting_updates.fetch_add(1, Ordering::AcqRel);
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    pub fn add_waiting(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Another replica may have changed how many messages wait.
    pub(crate) fn mark_waiting_outdated(&self) {
        self.remote_changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether [`Self::waiting`] is what a shared store has: the session has its connection at this replica, so that no other
    /// takes messages out of its inbox; the store was asked; and no replica has told of a new message since.
    pub(crate) fn is_waiting_current(&self) -> bool {
        self.connected.load(Ordering::Acquire)
            && self.remote_changes.load(Ordering::Acquire) == self.remote_changes_counted.load(Ordering::Acquire)
    }

    /// The store is about to be asked how many messages wait.
    pub(crate) fn begin_recount(&self) -> Recount {
        Recount {
            waiting_updates: self.waiting_updates.load(Ordering::Acquire),
            remote_changes: self.remote_changes.load(Ordering::Acquire),
        }
    }

    /// The store has answered. An operation that was answered meanwhile may know better; what another replica has told
    /// meanwhile may not be in it.
    pub(crate) fn finish_recount(&self, begun: Recount, waiting: usize) {
        let Recount {
            waiting_updates: tellings,
            remote_changes: doubts,
        } = begun;
        let next = tellings + 1;
        let is_last = self
            .waiting_updates
            .compare_exchange(tellings, next, Ordering::AcqRel, Ordering::Acquire);
        if is_last.is_ok() {
            self.waiting.store(waiting, Ordering::Relaxed);
        }
        self.remote_changes_counted.fetch_max(doubts, Ordering::AcqRel);
    }

    pub fn set_depth(&self, depth: Depth) {
        self.set_waiting(depth.waiting);
    }

    /// Whether something would come of telling the session about a new message at once. A session sets it before
    /// it looks into its inbox, so that a message is either seen there or told.
    pub fn wants_wakeup(&self) -> bool {
        self.wants_wakeup.load(Ordering::SeqCst)
    }

    pub fn set_wants_wakeup(&self, attentive: bool) {
        self.wants_wakeup.store(attentive, Ordering::SeqCst);
    }

    /// Whether the session has a live connection at this replica.
    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Acquire)
    }

    pub(crate) fn set_connected(&self, connected: bool) {
        if self.connected.swap(connected, Ordering::AcqRel) != connected {
            self.mark_waiting_outdated();
        }
    }

    /// Whether what this connection has written is acknowledged by that.
    pub fn is_auto_acked(&self, connection: ConnectionId) -> bool {
        self.auto_ack_connection.load(Ordering::Acquire) == connection.get()
    }

    pub fn set_auto_ack_connection(&self, connection: Option<ConnectionId>) {
        let connection = connection.map_or(0, ConnectionId::get);
        self.auto_ack_connection.store(connection, Ordering::Release);
    }

    /// Whether the session's actor here has its inbox in hand, and so knows what waits.
    pub(crate) fn is_claimed(&self) -> bool {
        self.claim().is_some()
    }

    fn claim(&self) -> Option<Claim> {
        let bits = self.claim.load(Ordering::Relaxed);
        (bits != 0).then(|| Claim::from_bits(bits))
    }

    fn set_claim(&self, claim: Option<Claim>) {
        self.claim.store(claim.map_or(0, Claim::bits), Ordering::Relaxed);
    }

    /// True the first time it is called with this number in a row: one nudge per session and batch is enough.
    pub fn is_first_in_batch(&self, batch: u64) -> bool {
        self.last_batch.swap(batch, Ordering::Relaxed) != batch
    }
}

/// A count of what waits, while the store is asked for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recount {
    waiting_updates: u64,
    remote_changes: u64,
}

/// A live connection, as its session needs it. What is pushed is bounded by what it reserved, and beyond it by
/// [`UNRESERVED_BYTES_MAX`] of what the store hands over.
pub trait Connection: Send + Sync + 'static {
    fn id(&self) -> ConnectionId;

    /// Reserves room for so many bytes of messages, which are about to be read and pushed. When there is none, the
    /// connection tells its session [`Writable`] as soon as there may be.
    fn reserve(self: Arc<Self>, bytes: usize) -> Option<ReadReservation>;

    /// Writes messages to the peer, in this order.
    fn push(&self, deliveries: &[Delivery]);

    /// Something is new in the inbox: tells the peer's subscriptions.
    fn notify_inbox_changed(&self);

    fn close(&self, why: CloseReason);
}

/// Why the broker closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// A newer connection registered the session's name.
    TakenOver,
    /// No sign of life for the disconnect threshold.
    Silent,
    /// The broker stops; the client may come back.
    ShuttingDown,
    /// The session's actor panicked too often.
    Failed,
    /// The store came back with older data: the session is to be registered again.
    StoreRolledBack,
    /// The session is over.
    SessionEnded,
    /// What it came in with is good no more.
    Unauthorized,
}
