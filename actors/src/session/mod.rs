//! A session: a participant with an inbox, which outlives its connections and has at most one live one.
//!
//! The parts decide and know neither actix, nor tokio, nor a clock: `state` (connection, presence, end), `ownership`
//! (claim), `push` (what the connection is given), `receives` (calls of `receive_messages`). `actor` carries out what
//! they decide. Transports see a session as a [`Member`], and are seen by it as a [`Connection`].

mod actor;
mod connections;
#[cfg(test)]
mod fixtures;
mod lease_sequence;
mod messages;
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

use std::sync::Arc;

pub(crate) use actor::SessionSettings;
pub use actor::{Session, SessionEnded};
pub(crate) use messages::ReceiveOutcome;
pub use messages::{
    AcknowledgeMessages, AnswerWritten, Attach, AwaitMail, CancelReceive, DeliverPushed, Detach, Disconnect,
    EndSession, Fence, HookLeft, KillSession, MailAnswer, MessagesWritten, Nudge, PeekMail, ReceiveMessages,
    ReceiveMode, ReceivedMessages, ResyncSession, SessionRemoved, Subscribe, Superseded, Unwatch, WakeAnswered, Watch,
    Writable,
};
pub use read_budget::{ReadBudget, ReadReservation, UNRESERVED_BYTES_MAX, UnboundedReads};
pub use receive_call::{ReadAt, ReceiveCall, WriteInProgress};
pub use shared::{AgentInfo, SessionShared};
pub(crate) use speaking::{Speaking, SpokenProject};
pub use state::{AckMode, PushMode};
pub use wake_log::WakeLog;

use crate::{
    clock::Now,
    model::{ConnectionId, PresenceTimeouts, Rungs, SessionId, SessionRecord, SessionStatus, Wake},
    storage::Delivery,
    supervise::Address,
};

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
