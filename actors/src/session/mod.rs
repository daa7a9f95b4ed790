//! A participant. It outlives its connections, of which it has at most one.

mod actor;
mod call;
mod messages;
#[cfg(test)]
mod properties;
mod room;
mod sequence;
mod state;

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

pub(crate) use actor::SessionSettings;
pub use actor::{Ended, Session};
pub use call::{ReadAt, ReceiveCall};
#[cfg(feature = "faults")]
pub use messages::Panic;
pub(crate) use messages::Served;
pub use messages::{
    Abandon, AcknowledgeMessages, Answered, Attach, Detach, Disconnect, Fence, Forgotten, GiveBack, Nudge,
    ReceiveMessages, ReceiveMode, Received, Recheck, Retire, Subscribe, Superseded, Unwatch, Watch, Writable, Written,
};
pub use room::{ReadRoom, Reservation, UNRESERVED_BYTES_MAX, Unbounded};
pub use state::{AckMode, Push};

use crate::{
    attention,
    clock::Now,
    model::{ConnectionId, Presence, ProjectId, SessionName, SessionRecord, SessionStatus},
    storage::{Claim, Delivery, Depth},
    supervise::Address,
};

/// A session as everybody else sees it: who it is, how it is, where to reach it.
///
/// The record never changes; a session that registers anew gets a new `Member` over the same vitals.
#[derive(Clone)]
pub struct Member {
    pub record: SessionRecord,
    pub vitals: Arc<Vitals>,
    pub address: Address<Session>,
}

impl Member {
    pub fn status(&self, presence: Presence, now: Now) -> SessionStatus {
        self.vitals.status(presence, now)
    }

    /// The session has ended, or is about to: whoever comes back to its name gets a new one.
    pub(crate) fn is_over(&self) -> bool {
        self.address.pulse().finished()
    }

    /// A sign of life. One after a long silence is news to the session's actor.
    pub fn touch(&self, presence: Presence, now: Now) {
        let was_away = self.status(presence, now) == SessionStatus::Disconnected;
        self.vitals.touch(now);
        if was_away {
            // Refused only by a full mailbox, and then the commands in it are news enough.
            let _ = self.address.tell(Nudge { until_handled: None });
        }
    }
}

/// The signs of life of a session, written by whoever sees them and read without asking its actor.
#[derive(Debug)]
pub struct Vitals {
    last_seen_mono_ms: AtomicU64,
    last_seen_unix_ms: AtomicU64,
    said_goodbye: AtomicBool,
    attentive: AtomicBool,
    /// The session has a live connection at this replica.
    connected: AtomicBool,
    /// The connection whose writes acknowledge; 0 when there is none.
    acknowledged_by_writes_of: AtomicU64,
    /// By which the session's actor has the inbox in hand; 0 when it has not.
    claim: AtomicU64,
    waiting: AtomicUsize,
    /// How often an operation on the inbox has told how many messages wait.
    tellings: AtomicU64,
    /// How often another replica may have changed that, and how often it had when the store was asked for the last count.
    doubts: AtomicU64,
    doubts_settled: AtomicU64,
    routed: AtomicU64,
    agent: Mutex<Agent>,
}

/// What the log says of the agent that acts as a session.
#[derive(Clone, Debug, Default)]
pub struct Agent {
    pub project: Option<ProjectId>,
    pub name: Option<SessionName>,
    /// Empty when the agent did not say, or joined at another replica.
    pub client: Box<str>,
    pub client_version: Box<str>,
}

impl Vitals {
    pub fn new(now: Now) -> Arc<Self> {
        Arc::new(Self {
            last_seen_mono_ms: AtomicU64::new(now.mono_ms),
            last_seen_unix_ms: AtomicU64::new(now.unix_ms),
            said_goodbye: AtomicBool::new(false),
            attentive: AtomicBool::new(false),
            connected: AtomicBool::new(false),
            acknowledged_by_writes_of: AtomicU64::new(0),
            claim: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            tellings: AtomicU64::new(0),
            // Nothing was counted yet.
            doubts: AtomicU64::new(1),
            doubts_settled: AtomicU64::new(0),
            routed: AtomicU64::new(0),
            agent: Mutex::default(),
        })
    }

    /// What the log says of the agent.
    pub fn agent(&self) -> MutexGuard<'_, Agent> {
        self.agent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of a session that was last seen elsewhere.
    pub(crate) fn seen(mono_ms: u64, goodbye: bool, now: Now) -> Arc<Self> {
        let vitals = Self::new(now);
        vitals.last_seen_mono_ms.store(mono_ms, Ordering::Relaxed);
        let unix_ms = now.unix_ms.saturating_sub(crate::clock::millis(now.since(mono_ms)));
        vitals.last_seen_unix_ms.store(unix_ms, Ordering::Relaxed);
        vitals.said_goodbye.store(goodbye, Ordering::Relaxed);
        vitals
    }

    /// Another replica has seen a sign of life then, or a goodbye; `instead_of` what was taken for it before.
    pub(crate) fn hear(&self, mono_ms: u64, instead_of: Option<u64>, goodbye: bool, now: Now) {
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
        self.said_goodbye.store(goodbye, Ordering::Relaxed);
    }

    pub(crate) fn has_said_goodbye(&self) -> bool {
        self.said_goodbye.load(Ordering::Relaxed)
    }

    /// A sign of life.
    pub fn touch(&self, now: Now) {
        self.last_seen_mono_ms.fetch_max(now.mono_ms, Ordering::Relaxed);
        self.last_seen_unix_ms.store(now.unix_ms, Ordering::Relaxed);
        if self.said_goodbye.load(Ordering::Relaxed) {
            self.said_goodbye.store(false, Ordering::Relaxed);
        }
    }

    /// The session left of its own will: disconnected from now on, until the next sign of life.
    pub fn say_goodbye(&self, now: Now) {
        self.touch(now);
        self.said_goodbye.store(true, Ordering::Relaxed);
    }

    pub fn status(&self, presence: Presence, now: Now) -> SessionStatus {
        if self.said_goodbye.load(Ordering::Relaxed) {
            SessionStatus::Disconnected
        } else {
            presence.status(attention::silence(self.last_seen_mono_ms(), now))
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
        self.tellings.fetch_add(1, Ordering::AcqRel);
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    pub fn add_waiting(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Another replica may have changed how many messages wait.
    pub(crate) fn doubt_waiting(&self) {
        self.doubts.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether [`Self::waiting`] is what a shared store has: the session has its connection at this replica, so that no other
    /// takes messages out of its inbox; the store was asked; and no replica has told of a new message since.
    pub(crate) fn is_waiting_known(&self) -> bool {
        self.connected.load(Ordering::Acquire)
            && self.doubts.load(Ordering::Acquire) == self.doubts_settled.load(Ordering::Acquire)
    }

    /// The store is about to be asked how many messages wait.
    pub(crate) fn begin_count(&self) -> Count {
        Count {
            tellings: self.tellings.load(Ordering::Acquire),
            doubts: self.doubts.load(Ordering::Acquire),
        }
    }

    /// The store has answered. An operation that was answered meanwhile may know better; what another replica has told
    /// meanwhile may not be in it.
    pub(crate) fn end_count(&self, begun: Count, waiting: usize) {
        let Count { tellings, doubts } = begun;
        let next = tellings + 1;
        let is_last = self
            .tellings
            .compare_exchange(tellings, next, Ordering::AcqRel, Ordering::Acquire);
        if is_last.is_ok() {
            self.waiting.store(waiting, Ordering::Relaxed);
        }
        self.doubts_settled.fetch_max(doubts, Ordering::AcqRel);
    }

    pub fn set_depth(&self, depth: Depth) {
        self.set_waiting(depth.waiting);
    }

    /// Whether something would come of telling the session about a new message at once. A session sets it before
    /// it looks into its inbox, so that a message is either seen there or told.
    pub fn attentive(&self) -> bool {
        self.attentive.load(Ordering::SeqCst)
    }

    pub fn set_attentive(&self, attentive: bool) {
        self.attentive.store(attentive, Ordering::SeqCst);
    }

    /// Whether the session has a live connection at this replica.
    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Acquire)
    }

    pub(crate) fn set_connected(&self, connected: bool) {
        if self.connected.swap(connected, Ordering::AcqRel) != connected {
            self.doubt_waiting();
        }
    }

    /// Whether what this connection has written is acknowledged by that.
    pub fn acknowledged_by_writes_of(&self, connection: ConnectionId) -> bool {
        self.acknowledged_by_writes_of.load(Ordering::Acquire) == connection.get()
    }

    pub fn set_acknowledged_by_writes_of(&self, connection: Option<ConnectionId>) {
        let connection = connection.map_or(0, ConnectionId::get);
        self.acknowledged_by_writes_of.store(connection, Ordering::Release);
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
    pub fn first_in_batch(&self, batch: u64) -> bool {
        self.routed.swap(batch, Ordering::Relaxed) != batch
    }
}

/// A count of what waits, while the store is asked for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count {
    tellings: u64,
    doubts: u64,
}

/// A live connection, as its session needs it. What is pushed is bounded by what it reserved, and beyond it by
/// [`UNRESERVED_BYTES_MAX`] of what the store hands over.
pub trait Connection: Send + Sync + 'static {
    fn id(&self) -> ConnectionId;

    /// Reserves room for so many bytes of messages, which are about to be read and pushed. When there is none, the
    /// connection tells its session [`Writable`] as soon as there may be.
    fn reserve(self: Arc<Self>, bytes: usize) -> Option<Reservation>;

    /// Writes messages to the peer, in this order.
    fn push(&self, deliveries: &[Delivery]);

    /// Something is new in the inbox: tells the peer's subscriptions.
    fn inbox_changed(&self);

    fn close(&self, why: Closing);
}

/// Why the broker closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// A newer connection registered the session's name.
    TakenOver,
    /// No sign of life for the disconnect threshold.
    Silent,
    /// The broker stops; the client may come back.
    ShuttingDown,
    /// The session's actor panicked too often.
    Failed,
    /// The store came back with older data: the session is to be registered again.
    WentBack,
    /// The session is over.
    Released,
    /// What it came in with is good no more.
    Unauthorized,
}
