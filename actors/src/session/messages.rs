use std::{any::Any, sync::Arc};

use actix::Message;
use tokio::sync::oneshot;

use super::{CloseReason, Connection, PushMode, ReadAt, ReadBudget, ReceiveCall};
use crate::{
    model::{BrokerError, CallReceipt, ConnectionId, DeadLetterReason, MessageId},
    storage::{Acknowledge, Acknowledged, Delivery},
};

/// There may be something new in the inbox.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Nudge {
    /// Held until the session has done what it can at once; letting go of the last one answers the sender.
    pub barrier: Option<Arc<dyn Any + Send + Sync>>,
}

/// The session was registered anew. An older connection is closed as taken over, and what was delivered there
/// without acknowledgement waits again. Nothing is pushed to the new one until it has said [`Subscribe`].
#[derive(Message)]
#[rtype(result = "()")]
pub struct Attach {
    /// The connection that is the session's from now on; None for a caller that has no lasting one.
    pub connection: Option<Arc<dyn Connection>>,
    pub named: bool,
    /// The connection was the session's before, and nobody registers: where there is another by now, it is the one that
    /// goes.
    pub is_reattach: bool,
    /// The caller without a connection has had the session before: what it was given stays with it.
    pub keeps_leases: bool,
    /// Of the session from now on; None where it stays as it is.
    pub incarnation: Option<u32>,
}

impl Drop for Attach {
    fn drop(&mut self) {
        close_undelivered(&mut self.connection);
    }
}

/// Lost with the mailbox of a session that was given up: nobody will ever talk to the connection.
fn close_undelivered(connection: &mut Option<Arc<dyn Connection>>) {
    if let Some(connection) = connection.take() {
        connection.close(CloseReason::Failed);
    }
}

#[derive(Message)]
#[rtype(result = "()")]
pub struct Detach {
    pub connection: ConnectionId,
}

/// Whether the connection wants to hear of changes of the inbox, and of messages by push.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Subscribe {
    pub connection: ConnectionId,
    pub inbox_changes: bool,
    pub push: Option<PushMode>,
}

/// Somebody beside the live connection wants to hear of changes of the inbox, until [`Unwatch`]. Too many, and the
/// oldest is let go.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Watch {
    /// There until it is taken.
    pub connection: Option<Arc<dyn Connection>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        close_undelivered(&mut self.connection);
    }
}

#[derive(Message)]
#[rtype(result = "()")]
pub struct Unwatch {
    pub connection: ConnectionId,
}

/// These messages were written to the socket.
#[derive(Message)]
#[rtype(result = "()")]
pub struct MessagesWritten {
    pub connection: ConnectionId,
    pub messages: Vec<MessageId>,
}

/// The connection has room again.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Writable {
    pub connection: ConnectionId,
}

#[derive(Message)]
#[rtype(result = "()")]
pub struct AcknowledgeMessages {
    pub which: Acknowledge,
    /// None: nobody waits for the answer.
    pub reply: Option<oneshot::Sender<Result<Acknowledged, BrokerError>>>,
}

/// Takes messages out of the inbox, waiting for the first one if there is none. A caller that drops the other end
/// of `reply` waits no more; what it was to get stays in the inbox.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ReceiveMessages {
    pub call: ReceiveCall,
    pub limit: usize,
    /// Most bytes of the messages; reserved in `room` before they are read.
    pub bytes_max: usize,
    pub budget: Arc<dyn ReadBudget>,
    /// On the monotonic clock; None for a call that does not wait.
    pub until_ms: Option<u64>,
    /// The same call asked before, and was told how much room it needs: what it acknowledges is acknowledged.
    pub is_retry: bool,
    pub mode: ReceiveMode,
    /// Of an earlier call: what it names is acknowledged, and whatever else waits for an acknowledgement by the next
    /// call waits to be returned again.
    pub receipt: Option<CallReceipt>,
    pub read_at: ReadAt,
    /// Of the session as its caller knows it; see [`SessionRecord`](crate::model::SessionRecord).
    pub incarnation: u32,
    pub reply: oneshot::Sender<Result<ReceiveOutcome, BrokerError>>,
}

/// How a session answers a call of `receive_messages`.
#[derive(Debug)]
pub enum ReceiveOutcome {
    Messages(ReceivedMessages),
    /// Nothing was read. The call asks again when it has reserved room for so many bytes of messages.
    NeedsReservation(usize),
}

/// The caller has given a call of `receive_messages` up: what it returned and nobody acknowledged waits again.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CancelReceive {
    pub call: ReceiveCall,
}

/// The answer of a call is written: its caller may ask for more at another replica.
#[derive(Message)]
#[rtype(result = "()")]
pub struct AnswerWritten {
    pub call: ReceiveCall,
}

/// When what `receive_messages` returns counts as acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiveMode {
    /// At the next call, if the answer was written before that call was read.
    #[default]
    OnNext,
    /// When the caller says so.
    Manual,
    /// At once.
    Immediate,
}

#[derive(Debug, Default)]
pub struct ReceivedMessages {
    pub deliveries: Vec<Delivery>,
    /// Messages that still wait.
    pub remaining: usize,
}

/// The session leaves of its own will; name and inbox are kept. Answers with the number of messages that wait.
#[derive(Message)]
#[rtype(result = "usize")]
pub struct Disconnect;

/// Another replica has claimed the session.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Superseded {
    pub epoch: u64,
}

/// Another caller has registered the session, at another replica: the calls of those who had it before are refused.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Fence {
    pub incarnation: u32,
}

/// Other replicas may have done what nobody told: looks whether the session is still this one's, and into its inbox.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ResyncSession;

/// The store does not know the session any more: another replica has ended it.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SessionRemoved;

/// The actor is given up, with those around it: it ends, and its connections with it, for this reason. What its inbox holds is for the
/// actor that comes after it.
#[derive(Message)]
#[rtype(result = "()")]
pub struct KillSession {
    pub why: CloseReason,
}

/// The session ends. What its inbox holds becomes dead letters of this reason.
#[derive(Message)]
#[rtype(result = "()")]
pub struct EndSession {
    pub reason: DeadLetterReason,
}

/// Makes the actor panic. Compiled in for tests only.
#[cfg(feature = "faults")]
#[derive(Message)]
#[rtype(result = "()")]
pub struct PanicSession;
