//! What a store offers beyond one process: replicas that share it, and push delivery to them.

use std::{ops::Range, time::Duration};

use super::{
    claim::Claim,
    error::{Op, StoreError},
    inboxes::{Acknowledged, Delivery, Lease},
};
use crate::{
    bridge::DeliveryBatch,
    clock::Now,
    model::{CallReceipt, MessageId, ReplicaId, SessionId},
};

/// A store of a project on which several replicas work at once.
pub trait ReplicatedStore {
    /// The id of this process.
    fn own_replica(&self) -> ReplicaId;

    /// The sequence number of the last frame that was published for this project.
    fn last_frame_seq(&self) -> Op<u64>;

    /// Publishes the heartbeats of this replica's sessions, and returns those that other replicas have published since
    /// the last call; at the first call, all of them. Of several heartbeats of a session the youngest counts.
    fn exchange_heartbeats(&self, own: Vec<Heartbeat>) -> Op<HeartbeatExchange>;

    /// [`lease`](super::InboxStore::lease) for a call of `receive_messages`. The receipt, which the client returns with
    /// its next call to any replica, names what was leased: [`Self::acknowledge_receipt`].
    fn lease_for_call(
        &self,
        session: SessionId,
        receipt: CallReceipt,
        limit: usize,
        bytes_max: usize,
        now: Now,
    ) -> Op<Lease>;

    /// Records that these leased messages were returned to a caller whose next request acknowledges them, at whichever
    /// replica it arrives: [`Self::acknowledge_returned`]. A release removes a message from this record.
    fn mark_returned(&self, session: SessionId, messages: Vec<MessageId>) -> Op<()>;

    /// Acknowledges the messages that [`Self::mark_returned`] has recorded.
    fn acknowledge_returned(&self, session: SessionId, now: Now) -> Op<Acknowledged>;

    /// Acknowledges the messages that a call leased under this receipt at any replica, except those that a later call has
    /// leased. Then releases the other messages that [`Self::mark_returned`] has recorded. An unknown receipt
    /// acknowledges nothing.
    fn acknowledge_receipt(
        &self,
        session: SessionId,
        receipt: CallReceipt,
        delivery_limit: u32,
        now: Now,
    ) -> Op<Acknowledged>;

    /// Called when another replica has changed the status of this message, or of an unknown one (None): reads the status
    /// of each such message that a sender tracks here, and notifies the sender.
    fn notify_progress(&self, message: Option<MessageId>) -> Op<()>;
}

/// The last activity of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The session.
    pub session: SessionId,
    /// The time since its last activity.
    pub ago: Duration,
    /// The activity was an explicit leave.
    pub has_left: bool,
    /// The session has a live connection. Replicas do not tell each other.
    pub is_connected: bool,
}

/// The result of [`ReplicatedStore::exchange_heartbeats`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeartbeatExchange {
    /// The heartbeats that other replicas have published.
    pub heartbeats: Vec<Heartbeat>,
    /// The sequence number of the last frame published at that moment. For every session put up to that frame, this
    /// exchange or an earlier one contains a heartbeat.
    pub frame_seq: u64,
}

/// A store that delivers by push: it leases a message in the operation that accepts it, and publishes it to the replica
/// that holds the claim of the recipient.
pub trait PushStore {
    /// Starts push delivery to the holder of this claim. From then on `append` leases a message directly if the inbox is
    /// empty, the sender does not wait for its delivery, and the leases stay within `limit`; it publishes the message in
    /// a [`DeliveryBatch`]. Push delivery ends with the claim, and when everything leased is released. Returns what is
    /// leased under the claim from the lease number `from` on: the caller has received nothing of it. What comes behind a
    /// message that waits returns to the queue instead, so that it is leased after that message.
    fn start_push(&self, session: SessionId, claim: Claim, limit: PrefetchLimit, from: u64) -> Op<Lease>;

    /// Decodes a batch that this store has published.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] if the batch is not one of this store.
    fn decode_batch(&self, batch: &DeliveryBatch) -> Result<Vec<PushedDelivery>, StoreError>;

    /// Acknowledges messages that were written to the session's connection. The store may wait a few milliseconds to
    /// combine several such acknowledgements, but carries them out before the next operation on the inbox.
    fn acknowledge_written(&self, session: SessionId, messages: Vec<MessageId>, now: Now) -> Op<Acknowledged>;

    /// Removes from `messages`, which were written to the session's connection, those that belong to a group lease. The
    /// store acknowledges a group lease at once when every recipient's copy has been written, or after a time limit.
    fn settle_group_leases(&self, session: SessionId, messages: &mut Vec<MessageId>);
}

/// How much a session may have in flight before push delivery pauses (AMQP: prefetch; NATS: `MaxAckPending`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefetchLimit {
    /// The largest number of leased messages.
    pub messages: usize,
    /// The largest sum of the leased messages' bytes.
    pub bytes: usize,
    /// Messages are acknowledged as soon as they are written to the connection, so that the store may combine the leases
    /// of one broadcast for many such sessions into a group lease.
    pub auto_ack: bool,
}

/// Messages that a push has leased to one session.
#[derive(Clone, Debug)]
pub struct PushedDelivery {
    /// The recipient.
    pub session: SessionId,
    /// The claim under which the messages are leased.
    pub claim: Claim,
    /// The messages in the order of delivery.
    pub deliveries: Vec<Delivery>,
    /// The numbers of these leases in the session's sequence. Empty for a message of a group lease, which precedes the
    /// lease with the number at which the range starts. A group lease becomes a lease of its own, and is published again
    /// with a number, when another operation changes the inbox.
    pub lease_numbers: Range<u64>,
}
