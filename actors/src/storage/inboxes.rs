//! Inboxes: messages that wait for a session, are leased to it, acknowledged or released.

use std::{ops::Range, sync::Arc, time::Duration};

use super::{claim::Claim, error::Op, tracking::SendResult};
use crate::{
    clock::Now,
    model::{BudgetFull, Message, MessageId, Outcome, SessionId},
};

/// The inboxes of a project's sessions.
pub trait InboxStore {
    /// Accepts messages in this order, each for its whole audience; answers one [`Appended`] for each. Waiting and leased
    /// messages count against the capacity of an inbox, so a recipient that never acknowledges fills its inbox too.
    fn append(&self, batch: Vec<Append>, now: Now) -> Op<Vec<Appended>>;

    /// Leases waiting messages, high priority first and old before new, and counts each delivery: at most `limit`
    /// messages of at most `bytes_max` bytes together. Ends before the first message that does not fit
    /// ([`Lease::blocked_bytes`]). A leased message stays leased until it is acknowledged or released. Expired messages
    /// become dead letters instead. Leases nothing for an unknown session, or under a claim that is not the last one.
    fn lease(&self, session: SessionId, by: Option<Claim>, limit: usize, bytes_max: usize, now: Now) -> Op<Lease>;

    /// Acknowledges delivered messages: they leave the inbox. A rejected one becomes a dead letter.
    fn acknowledge(&self, session: SessionId, which: Acknowledge, now: Now) -> Op<Acknowledged>;

    /// Returns leased messages to their place in the queue. A message whose time to live is over, or that has been
    /// delivered `delivery_limit` times, becomes a dead letter.
    fn release(&self, session: SessionId, which: Release, delivery_limit: u32, now: Now) -> Op<Released>;

    /// The lengths of an inbox; zeros for an unknown session.
    fn depth(&self, session: SessionId) -> Op<Depth>;

    /// Reads the waiting messages, in the order of [`Self::lease`], and changes nothing: at most `limit` messages. A store outside of
    /// this process leaves out messages that need more than `bytes_max` bytes together.
    fn peek(&self, session: SessionId, limit: usize, bytes_max: usize) -> Op<Peeked>;

    /// Moves expired messages to the dead letters, forgets old receipts and idempotency keys, and tells whether dead letters
    /// are to be reported.
    fn sweep(&self, now: Now) -> Op<Swept>;
}

/// The waiting messages of an inbox.
#[derive(Clone, Debug, Default)]
pub struct Peeked {
    /// All messages that wait.
    pub waiting: usize,
    /// The first of them that were read.
    pub messages: Vec<Arc<Message>>,
}

/// What a sweep found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// The sessions whose inbox lost a message to expiry since the last sweep, whichever operation noticed it, each with
    /// the number of messages that still wait.
    pub expired_in: Vec<(SessionId, usize)>,
    /// There are dead letters for [`DeadLetterStore::unreported`](super::DeadLetterStore::unreported).
    pub has_unreported: bool,
    /// How long the next sweep can wait if the store is not used in the meantime.
    pub next_within: Duration,
}

/// One message to accept.
///
/// ```text
/// Append {
///     message: Message { id: 0197…, priority: normal, ttl: 60 s, … },
///     audience: One(bob),
///     queue_capacity: 1000,             // messages
///     idempotency_key: Some("order-17"),
///     roster_version: None,             // a direct message
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Append {
    /// The encoded message, shared by all recipients.
    pub message: Arc<Message>,
    /// The sessions that it is for.
    pub audience: Audience,
    /// The largest number of messages, waiting and leased, in the inbox of one recipient.
    pub queue_capacity: usize,
    /// The sender's key: a second append with it sends nothing and answers [`Appended::Duplicate`].
    pub idempotency_key: Option<String>,
    /// The version of the roster from which the audience of a broadcast was taken; a shared store refuses the message
    /// when the roster has changed since. None: not checked.
    pub roster_version: Option<u64>,
}

/// The recipients of a message, as resolved by the router.
///
/// ```text
/// One(bob)                    // a direct message: allocates nothing
/// Many([bob, carol, dave])    // a broadcast: one stored message, one inbox entry for each session
/// ```
#[derive(Clone, Debug)]
pub enum Audience {
    /// A direct message.
    One(SessionId),
    /// A broadcast; no session occurs twice.
    Many(Arc<[SessionId]>),
}

impl Audience {
    /// The recipients as a slice.
    pub fn ids(&self) -> &[SessionId] {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }
}

/// The result of one [`Append`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Appended {
    /// Accepted for the whole audience except `refused`. A message that every recipient refused is not stored.
    Accepted {
        /// Messages that wait for the recipient, this one included; for a broadcast the longest of these queues. 0 if
        /// every recipient refused, and for a message that the store delivered by push.
        queue_len: usize,
        /// The recipients that do not get the message.
        refused: Vec<SessionId>,
        /// The reason for the last refusal; None if no recipient refused.
        refusal: Option<RecipientRefusal>,
    },
    /// The sender used this idempotency key before; nothing was sent. The first result.
    Duplicate(SendResult),
    /// The sender reserved this idempotency key for a message to another project; nothing was sent.
    KeyReserved,
    /// The roster is newer than [`Append::roster_version`]. Neither this message nor any later one of the batch was sent.
    RosterOutdated,
}

impl Appended {
    /// Accepted for the whole audience.
    pub const fn accepted_by_all(queue_len: usize) -> Self {
        Self::Accepted {
            queue_len,
            refused: Vec::new(),
            refusal: None,
        }
    }

    /// Refused for the whole audience.
    pub fn refused_by_all(refused: &[SessionId], refusal: RecipientRefusal) -> Self {
        Self::Accepted {
            queue_len: 0,
            refused: refused.to_vec(),
            refusal: Some(refusal),
        }
    }
}

/// Why a recipient does not get a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecipientRefusal {
    /// The session is not in this store.
    Gone,
    /// The inbox, the project or the broker has no room.
    Full(BudgetFull),
}

/// One message as it is delivered to its recipient.
///
/// ```text
/// Delivery { message: Message { id: 0197…, … }, count: 1 }    // the first delivery
/// Delivery { message: Message { id: 0197…, … }, count: 2 }    // after one release
/// ```
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The message.
    pub message: Arc<Message>,
    /// How often it has been delivered to this recipient, this delivery included.
    pub count: u32,
}

/// Messages that the store has leased to a session: they are in flight until acknowledged or released.
///
/// ```text
/// Lease {
///     deliveries: [Delivery { message: m1, count: 1 }, Delivery { message: m2, count: 1 }],
///     depth: Depth { waiting: 3, leased: 2 },
///     superseded: false,
///     lease_numbers: 17..19,        // where the store delivers by push, else 0..0
///     is_pushing: true,
///     blocked_bytes: Some(4_096),   // the third message did not fit into the bytes of this lease
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Lease {
    /// The leased messages in the order of delivery.
    pub deliveries: Vec<Delivery>,
    /// The inbox after the operation.
    pub depth: Depth,
    /// The claim of the caller is no longer the last one of the session; nothing was leased.
    pub superseded: bool,
    /// The numbers of these leases in the session's sequence, which has no gaps. Empty where the store does not push.
    pub lease_numbers: Range<u64>,
    /// The store delivers further messages to this session by push.
    pub is_pushing: bool,
    /// The size in bytes of the message before which the lease ended because it did not fit.
    pub blocked_bytes: Option<usize>,
}

/// The lengths of an inbox, in messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Messages that wait for delivery.
    pub waiting: usize,
    /// Messages that are delivered and not yet acknowledged.
    pub leased: usize,
}

/// Which messages [`InboxStore::acknowledge`] acknowledges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acknowledge {
    /// These messages.
    Ids(Vec<MessageId>),
    /// These messages, also those that were never delivered: their recipient got the same in another way.
    Seen(Vec<MessageId>),
    /// These messages, each with this outcome for its receipt. A rejected message becomes a dead letter.
    Concluded(Vec<MessageId>, Arc<Outcome>),
    /// This message and all that were leased before it and still are.
    UpTo(MessageId),
}

impl Acknowledge {
    /// The messages become dead letters: their recipient rejects them, or cannot get them.
    pub fn rejects(&self) -> bool {
        matches!(self, Self::Concluded(_, outcome) if outcome.kind.dead_letter_reason().is_some())
    }
}

/// The result of [`InboxStore::acknowledge`].
#[derive(Clone, Debug, Default)]
pub struct Acknowledged {
    /// The number of messages that left the inbox, whether they were leased or waited again after a release.
    pub acknowledged: usize,
    /// How many of them became dead letters, because the recipient rejected them.
    pub dead: usize,
    /// The ids that are not in this inbox, or were never delivered ([`Acknowledge::Seen`] takes those, too).
    pub unknown: Vec<MessageId>,
    /// The acknowledged messages whose sender tracks the delivery.
    pub tracked: Vec<Arc<Message>>,
    /// The inbox after the operation.
    pub depth: Depth,
}

/// Which messages [`InboxStore::release`] releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// These messages.
    Ids(Vec<MessageId>),
    /// These messages, which were not handed out: their lease does not count as a delivery, and no receipt names it.
    Undelivered(Vec<MessageId>),
    /// All leased messages, if this is the last claim of the session; none otherwise.
    Claimed(Claim),
    /// All leased messages, unless the session's last heartbeat at any replica is younger than this.
    Silent(Duration),
}

/// The result of [`InboxStore::release`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// The number of messages that wait again.
    pub returned: usize,
    /// The number of messages that became dead letters.
    pub dead: usize,
    /// The inbox after the operation.
    pub depth: Depth,
}
