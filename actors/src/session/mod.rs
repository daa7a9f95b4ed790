//! A session: a participant with an inbox, which outlives its connections and has at most one live one.
//!
//! The parts decide and know neither actix, nor tokio, nor a clock: `state` (connection, presence, end), `ownership`
//! (claim), `push` (what the connection is given), `receives` (calls of `receive_messages`). `actor` carries out what
//! they decide. Transports see a session as a [`Member`], and are seen by it as a [`Connection`]. The commands that the actor takes
//! are at the end of this file; each is carried out in the order in which it was put into the mailbox.

mod actor;
mod connections;
#[cfg(test)]
mod fixtures;
mod ownership;
#[cfg(test)]
mod properties;
mod push;
mod read_budget;
mod receive_call;
mod receives;
mod shared;
mod speaking;
mod state;
mod wake_log;
mod waking;

use std::{any::Any, sync::Arc};

use tokio::sync::oneshot;

use crate::{
    clock::Now,
    model::{
        BrokerError, CallReceipt, ConnectionId, DeadLetterReason, MailSummary, MessageId, PresenceTimeouts, Rung,
        Rungs, SessionId, SessionRecord, SessionStatus, Wake, WakePreference, WakeResult,
    },
    storage::{Acknowledge, Acknowledged, Delivery, PushedDelivery},
    supervise::Address,
};

pub(crate) use actor::SessionSettings;
pub(crate) use speaking::{Speaking, SpokenProject};

pub use actor::{Session, SessionEnded};
pub use read_budget::{ReadBudget, ReadReservation, UNRESERVED_BYTES_MAX, UnboundedReads};
pub use receive_call::{ReadAt, ReceiveCall, WriteInProgress};
pub use shared::{AgentInfo, SessionShared};
pub use state::{AckMode, PushMode};
pub use wake_log::WakeLog;

/// A session as the directory of its project lists it: its record, what its actor publishes, and its address.
///
/// The record never changes. A session that is registered again gets a new `Member` with the same [`SessionShared`].
#[derive(Clone)]
pub struct Member {
    pub record: SessionRecord,
    pub shared: Arc<SessionShared>,
    pub address: Address<Session>,
}

impl Member {
    /// The presence of the session, derived from its last heartbeat.
    pub fn status(&self, presence: PresenceTimeouts, now: Now) -> SessionStatus {
        self.shared.status(presence, now)
    }

    /// Whether lists and figures show the session. The session of a name that only commands have sent in is hidden until an
    /// answer waits for it.
    pub(crate) fn is_shown(&self) -> bool {
        !self.record.holder.only_sends || self.shared.waiting() > 0
    }

    /// Whether the session has ended or is about to. Its name can be registered for a new session.
    pub(crate) fn has_ended(&self) -> bool {
        self.address.metrics().is_finished()
    }

    /// Notes a heartbeat. The first one after the session was stale or disconnected wakes its actor.
    pub fn touch(&self, presence: PresenceTimeouts, now: Now) {
        let was_silent = self.status(presence, now) != SessionStatus::Active;
        self.shared.touch(now);
        if was_silent {
            // Only a full mailbox refuses it. The commands in the mailbox wake the actor as well.
            let _ = self.address.tell(Nudge { barrier: None });
        }
    }
}

/// A connection, as its session needs it.
///
/// The bytes pushed to it are bounded by what it reserves, and by [`UNRESERVED_BYTES_MAX`] for what the store pushes.
pub trait Connection: Send + Sync + 'static {
    /// The id of this connection, unique in the process.
    fn id(&self) -> ConnectionId;

    /// Reserves this many bytes for messages that are about to be read and pushed. When it returns None, the connection
    /// sends its session [`Writable`] as soon as the bytes may be available.
    fn reserve(self: Arc<Self>, bytes: usize) -> Option<ReadReservation>;

    /// Writes messages to the peer, in this order.
    fn push(&self, deliveries: &[Delivery]);

    /// Notifies the subscriptions of the peer that the inbox changed.
    fn notify_inbox_changed(&self);

    /// The ways in which the program at the other end can wake its agent.
    fn wakes_by(&self) -> Rungs;

    /// Asks that program to wake the agent of this session. It answers with [`WakeAnswered`].
    fn wake(&self, session: SessionId, wake: &Wake);

    /// Closes the connection and tells the peer the reason.
    fn close(&self, reason: CloseReason);

    /// Whether the end of the client always ends the connection, as between two processes of one machine. The session of
    /// such a connection is active without signs of life.
    fn ends_with_client(&self) -> bool;
}

/// Why the broker closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// A newer connection registered the session's name.
    TakenOver,
    /// The client was silent for as long as the disconnect threshold.
    Silent,
    /// An administrator has disconnected the session; the client may come back.
    Disconnected,
    /// The broker stops; the client may come back.
    ShuttingDown,
    /// The session's actor panicked too often.
    Failed,
    /// The store came back with older data: the client has to register the session again.
    StoreRolledBack,
    /// The session has ended.
    SessionEnded,
    /// The credentials of the connection are revoked or expired.
    Unauthorized,
}

/// Wakes the session: there may be new messages in its inbox.
pub struct Nudge {
    /// Held until the session has done what it can at once. When the last clone is dropped, the sender gets its answer.
    pub barrier: Option<Arc<dyn Any + Send + Sync>>,
}

/// The session was registered again. The older connection is closed as taken over, and what it had in flight is
/// released. Nothing is pushed to the new one before [`Subscribe`].
///
/// A connection in a command that is dropped with the mailbox of an actor that was given up is closed.
pub struct Attach {
    /// The live connection from now on; None for a caller without a lasting one.
    pub connection: Option<Arc<dyn Connection>>,
    /// An agent has given the session a name, for which it is kept after it was disconnected.
    pub named: bool,
    /// The connection was the session's before and does not register: if there is another live one by now, this one is
    /// closed.
    pub is_reattach: bool,
    /// The caller without a connection had the session before: what it has in flight is not released.
    pub keeps_leases: bool,
    /// The incarnation from now on; None if it does not change.
    pub incarnation: Option<u32>,
    /// When the agent may be woken from now on; None if it does not change.
    pub wake: Option<WakePreference>,
}

impl Drop for Attach {
    fn drop(&mut self) {
        close_undelivered(&mut self.connection);
    }
}

fn close_undelivered(connection: &mut Option<Arc<dyn Connection>>) {
    if let Some(connection) = connection.take() {
        connection.close(CloseReason::Failed);
    }
}

/// The connection has closed. What it had in flight is released.
pub struct Detach {
    pub connection: ConnectionId,
}

/// What the live connection is sent without asking. Replaces what it subscribed to before.
pub struct Subscribe {
    pub connection: ConnectionId,
    /// Whether it is notified of changes of the inbox.
    pub inbox_changes: bool,
    /// How messages are pushed to it; None for no push.
    pub push: Option<PushMode>,
}

/// Adds a watcher: a connection in addition to the live one that is notified of changes of the inbox until [`Unwatch`]. Beyond
/// 32 the oldest watcher is closed.
pub struct Watch {
    /// None once the actor has taken it.
    pub connection: Option<Arc<dyn Connection>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        close_undelivered(&mut self.connection);
    }
}

/// Removes a watcher.
pub struct Unwatch {
    pub connection: ConnectionId,
}

/// The connection has written these messages to its socket.
pub struct MessagesWritten {
    pub connection: ConnectionId,
    pub messages: Vec<MessageId>,
}

/// The connection may have bytes to reserve again.
pub struct Writable {
    pub connection: ConnectionId,
}

/// Acknowledges messages.
pub struct AcknowledgeMessages {
    pub which: Acknowledge,
    /// None: the caller does not wait for the answer.
    pub reply: Option<oneshot::Sender<Result<Acknowledged, BrokerError>>>,
}

/// Takes messages out of the inbox, and waits for the first one if there is none. A caller stops waiting by dropping the
/// other end of `reply`; what it would have been given stays in the inbox.
pub struct ReceiveMessages {
    pub call: ReceiveCall,
    /// Messages to return at most.
    pub limit: usize,
    /// Bytes of messages to return at most, reserved in `budget` before they are read.
    pub bytes_max: usize,
    pub budget: Arc<dyn ReadBudget>,
    /// When the call stops waiting, on the monotonic clock in milliseconds; None for a call that does not wait.
    pub until_ms: Option<u64>,
    /// The call asks again, after [`ReceiveOutcome::NeedsReservation`]: what it acknowledges is acknowledged already.
    pub is_retry: bool,
    pub mode: ReceiveMode,
    /// The receipt of an earlier call. What it names is acknowledged, and everything else that this call would
    /// acknowledge is released.
    pub receipt: Option<CallReceipt>,
    /// When the request was read.
    pub read_at: ReadAt,
    /// The incarnation that the caller knows; see [`SessionRecord`](crate::model::SessionRecord). Another one is refused.
    pub incarnation: u32,
    pub reply: oneshot::Sender<Result<ReceiveOutcome, BrokerError>>,
}

/// How a session answers a call of `receive_messages`.
#[derive(Debug)]
pub enum ReceiveOutcome {
    Messages(ReceivedMessages),
    /// Nothing was read. The call has to reserve this many bytes and ask again.
    NeedsReservation(usize),
}

/// The caller has cancelled a call of `receive_messages`: what it returned and was not acknowledged is released.
pub struct CancelReceive {
    pub call: ReceiveCall,
}

/// The answer of a call is written: its caller may send the next call to another replica.
pub struct AnswerWritten {
    pub call: ReceiveCall,
}

/// When the messages that `receive_messages` returns count as acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiveMode {
    /// At the next call, if the answer was written before that call was read.
    #[default]
    OnNext,
    /// When the client acknowledges them.
    Manual,
    /// At once.
    Immediate,
}

/// What a call of `receive_messages` returns.
#[derive(Debug, Default)]
pub struct ReceivedMessages {
    pub deliveries: Vec<Delivery>,
    /// Messages that still wait.
    pub remaining: usize,
}

/// The front of the agent has tried to wake it.
pub struct WakeAnswered {
    pub connection: ConnectionId,
    /// [`Wake::number`].
    pub number: u64,
    /// The way that was tried last; None for one that is not known.
    pub rung: Option<Rung>,
    pub result: WakeResult,
}

/// A hook of the agent's client waits for a wake. It takes the place of one that waited before.
pub struct AwaitMail {
    /// The hook leaves by dropping the other end, and by [`HookLeft`].
    pub reply: oneshot::Sender<MailAnswer>,
}

/// What a hook that waits gets.
#[derive(Debug)]
pub enum MailAnswer {
    /// The agent is to be woken.
    Wake(Wake),
    /// Another hook waits instead.
    Replaced,
}

/// A hook that waited has dropped its end of the reply.
pub struct HookLeft;

/// Asks for the waiting messages of the inbox.
pub struct PeekMail {
    pub reply: oneshot::Sender<Result<MailSummary, BrokerError>>,
}

/// The session leaves: it is disconnected, and keeps its name and its inbox. Answers with the number of messages that
/// wait.
pub struct Disconnect {
    /// Closes the live connection for this reason. None: the caller leaves, and its connection stays open.
    pub closes: Option<CloseReason>,
    pub reply: oneshot::Sender<Result<usize, BrokerError>>,
}

/// Another replica has claimed the session at this epoch.
pub struct Superseded {
    pub epoch: u64,
}

/// Another caller has registered the session, at another replica: calls of an older incarnation are refused.
pub struct Fence {
    pub incarnation: u32,
}

/// This replica may have missed events of others: the session checks its claim and looks into its inbox.
pub struct ResyncSession;

/// Another replica has ended the session: the store has removed it. The actor ends.
pub struct SessionRemoved;

/// Ends the actor and closes its connections for this reason. The session continues: its inbox is for the next actor.
pub struct KillSession {
    pub why: CloseReason,
}

/// Ends the session. The messages in its inbox become dead letters of this reason.
pub struct EndSession {
    pub reason: DeadLetterReason,
}

/// Messages that the store has leased to this session by push.
pub struct DeliverPushed(pub PushedDelivery);
