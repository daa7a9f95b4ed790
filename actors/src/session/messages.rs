//! The commands that a session's actor takes. Each is carried out in the order in which it was put into the mailbox.

use std::{any::Any, sync::Arc};

use tokio::sync::oneshot;

use super::{CloseReason, Connection, PushMode, ReadAt, ReadBudget, ReceiveCall};
use crate::{
    model::{
        BrokerError, CallReceipt, ConnectionId, DeadLetterReason, MailSummary, MessageId, Rung, Wake, WakePreference,
        WakeResult,
    },
    storage::{Acknowledge, Acknowledged, Delivery, PushedDelivery},
};

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
