//! What must outlive an actor: sessions, protocols, messages and where each of them stands.
//!
//! [`Storage`] opens the store of one project; [`Store`] is that project's. The memory backend is the reference,
//! and [`conformance`] is the suite that every backend runs.

mod account;
pub mod conformance;
pub mod disk;
mod id_map;
mod inbox;
mod journal;
pub mod memory;
mod receipts;

use std::{future::Future, net::SocketAddr, num::NonZeroU64, ops::Range, pin::Pin, sync::Arc, time::Duration};

pub use account::{COPY_BYTES, envelope_bytes};

use crate::{
    bridge::{Bridge, DeliveryBatch},
    clock::Now,
    model::{
        AuditEntry, AuditQuery, BrokerError, BudgetFull, CallReceipt, DeadLetter, DeadLetterReason, DeliveryStatus,
        Message, MessageId, PAGE_BYTES_MAX, ProjectId, ProjectRecord, ProtocolName, ProtocolRecord, RecipientStatus,
        ReplicaId, SessionId, SessionName, SessionRecord,
    },
};

/// An operation under way. The memory backend's are ready at the first poll; callers that care poll once before
/// they arrange to wait.
pub type Op<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// How a store is. The reasons are for anybody to read: they hold no address and no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageHealth {
    Healthy,
    /// It works, and not as it was meant to: why.
    Degraded(String),
    /// Nothing can be accepted now: why.
    Unavailable(String),
}

/// The store did not do it, and may or may not have tried. Nothing is accepted because of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    #[error("the store has no room: {0}")]
    Full(String),
    /// The data set of the project went back after the caller had learnt of it.
    #[error("the store came back with older data: the project is opened again from what it has")]
    RolledBack,
}

/// How often a storage was found to have gone back to an older state when something was learnt from it. What was learnt
/// of a project before such a loss of it is void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoreEpoch(pub u64);

pub trait Storage: Send + Sync + 'static {
    /// `memory`, `redis` or `disk`, as `/health` shows it.
    fn name(&self) -> &'static str;

    /// What a restart of the process, or of the store, can lose of what was accepted; as `/health` shows it.
    fn durability(&self) -> String;

    /// How the store is now. It is asked often, and answers from what it knows.
    fn health(&self) -> StorageHealth {
        StorageHealth::Healthy
    }

    /// Where the other replicas are heard; None when there can be none.
    fn bridge(&self) -> Option<Arc<dyn Bridge>> {
        None
    }

    /// The processes that share the storage; None when there can be no other.
    fn replicas(&self) -> Option<Arc<dyn ReplicaDirectory>> {
        None
    }

    fn open(&self, project: &ProjectId) -> Arc<dyn Store>;

    /// The same for a caller that learnt of the project at this epoch: once that is void, each operation fails with
    /// [`StoreError::WentBack`].
    fn open_at(&self, project: &ProjectId, epoch: StoreEpoch) -> Arc<dyn Store> {
        let _ = epoch;
        self.open(project)
    }

    /// The epoch of what is asked for from now on, unless the store is found to have gone back meanwhile.
    fn epoch(&self) -> StoreEpoch {
        StoreEpoch::default()
    }

    /// Whether the data set of the project has gone back since this epoch.
    fn has_rolled_back(&self, project: &ProjectId, at: StoreEpoch) -> bool {
        let _ = (project, at);
        false
    }

    /// All projects, the deleted ones too.
    fn projects(&self) -> Op<Vec<Arc<ProjectRecord>>>;
    fn project(&self, project: ProjectId) -> Op<Option<Arc<ProjectRecord>>>;
    /// Keeps a record whose revision is the next after that of the one that is kept, or 0 when there is none. False
    /// when it is another: somebody else was first, and nothing changes.
    fn put_project(&self, record: Arc<ProjectRecord>) -> Op<bool>;
    /// The same of a record that was made from one that was learnt at this epoch: fails once that is void.
    fn put_project_at(&self, record: Arc<ProjectRecord>, epoch: StoreEpoch) -> Op<bool> {
        let _ = epoch;
        self.put_project(record)
    }
    /// Forgets what a project holds: sessions, protocols, messages. Its record stays.
    fn clear_project(&self, project: ProjectId) -> Op<()>;

    /// Adds to the record of what was administered and refused. It is bounded, that of each project and what was refused
    /// by itself, so that who is refused often cannot have the rest forgotten.
    fn append_audit(&self, entry: AuditEntry) -> Op<()>;
    /// Entries of that record, the newest first.
    fn audit(&self, query: AuditQuery) -> Op<Vec<Arc<AuditEntry>>>;
}

/// The processes that share a storage, and where each of them serves HTTP.
pub trait ReplicaDirectory: Send + Sync + 'static {
    /// This process.
    fn own_id(&self) -> ReplicaId;

    /// None for a process that has ended, or never said where it is. One that was killed is known until it has been
    /// silent for a while.
    fn address_of(&self, replica: ReplicaId) -> Op<Option<SocketAddr>>;
}

/// The store of one project.
///
/// Each operation is atomic, and operations on one session take effect in the order in which they were first polled;
/// they may be answered in another. Of the messages: a message that `append` accepted for a recipient is, until it is
/// acknowledged, either waiting, or leased, or a dead letter; never in two places, never in none.
pub trait Store: Send + Sync + 'static {
    /// Whether every operation is ready at its first poll, on whatever thread that is, and cannot fail.
    fn is_synchronous(&self) -> bool {
        false
    }

    /// Whether other replicas work on the same project: what is known of it in this process may be old.
    fn is_shared(&self) -> bool {
        false
    }

    /// The serial of the last frame of this project that was published.
    fn last_frame_seq(&self) -> Op<u64> {
        Box::pin(std::future::ready(Ok(0)))
    }

    /// Adds a session, or replaces what was kept of it, unless something that is newer here stands in the way. It is a
    /// sign of life.
    fn put_session(&self, record: SessionRecord, seat: PutSession) -> Op<PutOutcome>;
    fn sessions(&self) -> Op<Roster>;
    fn find_session(&self, wanted: SessionKey) -> Op<Option<SessionRecord>>;
    /// Forgets a session; what its inbox holds becomes dead letters of this reason. Returns how many; None, and nothing
    /// is done, when a sign of life of it is known that is younger than `silent_for`.
    fn remove_session(
        &self,
        session: SessionId,
        reason: DeadLetterReason,
        silent_for: Option<Duration>,
        now: Now,
    ) -> Op<Option<usize>>;
    /// Whoever claims a session has it until the next who does: everything leased is put back as by
    /// [`Self::release`], and what asks as another is refused from now on.
    fn claim(&self, session: SessionId, claim: Claim, delivery_limit: u32, now: Now) -> Op<Claimed>;
    /// Tells how long ago sessions gave a sign of life, here, and hears of those that others have told of since this
    /// was called last; at the first call, of all. Of several signs of a session the youngest counts. Nobody but this process knows of any where the store is not shared.
    fn exchange_heartbeats(&self, own: Vec<Heartbeat>) -> Op<HeartbeatExchange> {
        drop(own);
        Box::pin(std::future::ready(Ok(HeartbeatExchange::default())))
    }

    /// Adds a protocol unless this name and version exist already, or the project has `len_max` of them; then nothing
    /// changes.
    fn insert_protocol(&self, record: Arc<ProtocolRecord>, len_max: Option<usize>) -> Op<Inserted>;
    fn protocols(&self) -> Op<Vec<Arc<ProtocolRecord>>>;
    fn protocol(&self, name: ProtocolName, version: semver::Version) -> Op<Option<Arc<ProtocolRecord>>>;

    /// Accepts messages, in this order, each for its whole audience; one answer each. What is leased counts as
    /// waiting against the capacity: who never acknowledges fills its queue too.
    fn append(&self, batch: Vec<Append>, now: Now) -> Op<Vec<Appended>>;
    /// Keeps `outcome` as the first result of this idempotency key; does nothing when the key is not known.
    fn update_send_result(&self, sender: SessionId, key: String, outcome: SendResult) -> Op<()>;
    /// Reserves an idempotency key for a message to the project `target`, before that project is asked to take it. The
    /// reservation lasts for the idempotency window from the last call that found or made it.
    fn reserve_key(&self, sender: SessionId, key: String, target: ProjectId, now: Now) -> Op<KeyReservation>;
    /// Keeps `outcome` as the first result of a key that is reserved. Does nothing when its result is known already, and
    /// when the key is not known.
    fn complete_reservation(&self, sender: SessionId, key: String, outcome: SendResult) -> Op<()>;
    /// Ends a reservation whose message was refused, unless another send has found the reservation: that one may have
    /// been accepted.
    fn cancel_reservation(&self, sender: SessionId, key: String) -> Op<()>;
    /// Hands out waiting messages, urgent before low and old before new, and counts the delivery: up to `limit`, of at most
    /// `bytes_max` bytes together, for which the caller has room. The lease ends before the first message that does not
    /// fit ([`Leased::beyond`]). They stay leased until they are acknowledged or
    /// released. Those whose time has run out are dead-lettered instead. Nothing for a session that is not known, and
    /// nothing for a claim that is not the session's last.
    fn lease(&self, session: SessionId, by: Option<Claim>, limit: usize, bytes_max: usize, now: Now) -> Op<Lease>;
    /// The same for a call of `receive_messages`, whose receipt names what it leases: [`Self::settle_receipt`].
    fn lease_for_call(
        &self,
        session: SessionId,
        receipt: CallReceipt,
        limit: usize,
        bytes_max: usize,
        now: Now,
    ) -> Op<Lease> {
        let _ = receipt;
        self.lease(session, None, limit, bytes_max, now)
    }
    /// Whether it hands over messages unasked to whoever stands by.
    fn supports_push(&self) -> bool {
        false
    }
    /// Whoever has this claim takes messages unasked from now on, where the store does that: what nothing waits before, and
    /// for which its sender does not wait, is leased by the operation that accepts it, as long as no more than the
    /// window and the room hold are leased by it, and comes as a [`Parcel`](crate::bridge::Parcel). That ends with the
    /// claim, and with the release of all that is leased. Answers with what is leased under the claim from the number
    /// `from` on.
    fn start_push(&self, session: SessionId, claim: Claim, takes: PrefetchLimit, from: u64) -> Op<Lease> {
        let _ = (session, claim, takes, from);
        Box::pin(std::future::ready(Ok(Lease::default())))
    }
    /// Reads a parcel.
    ///
    /// # Errors
    /// When it is not one of this store.
    fn decode_batch(&self, parcel: &DeliveryBatch) -> Result<Vec<PushedDelivery>, StoreError> {
        let _ = parcel;
        Ok(Vec::new())
    }
    fn acknowledge(&self, session: SessionId, which: Acknowledge, now: Now) -> Op<Acknowledged>;
    /// The same of messages that were written to a connection. Nobody waits for it: it may take a few milliseconds for
    /// others to come with it, but never longer than what is asked of the inbox next.
    fn acknowledge_written(&self, session: SessionId, messages: Vec<MessageId>, now: Now) -> Op<Acknowledged> {
        self.acknowledge(session, Acknowledge::Ids(messages), now)
    }
    /// Takes out of these messages, which were written to the connection of this session, those that are leased to many
    /// as one: they are acknowledged as one when they have been written to all, or after a while.
    fn settle_group_leases(&self, session: SessionId, messages: &mut Vec<MessageId>) {
        let _ = (session, messages);
    }
    /// Remembers that these leased messages were returned to a caller who acknowledges them by asking for more, wherever
    /// it asks: [`Self::acknowledge_returned`]. What is released meanwhile is not among them any more. Of no use where the
    /// store is not shared: the session knows.
    fn mark_returned(&self, session: SessionId, messages: Vec<MessageId>) -> Op<()> {
        drop((session, messages));
        Box::pin(std::future::ready(Ok(())))
    }
    fn acknowledge_returned(&self, session: SessionId, now: Now) -> Op<Acknowledged> {
        let _ = (session, now);
        Box::pin(std::future::ready(Ok(Acknowledged::default())))
    }
    /// Acknowledges the messages that a call leased under this receipt, at whatever replica, and that no later call has
    /// leased; then releases all others that [`Self::mark_returned`] remembers. A receipt that is not known names nothing.
    /// Of no use where the store is not shared: the session knows.
    fn acknowledge_receipt(
        &self,
        session: SessionId,
        receipt: CallReceipt,
        delivery_limit: u32,
        now: Now,
    ) -> Op<Acknowledged> {
        let _ = (session, receipt, delivery_limit, now);
        Box::pin(std::future::ready(Ok(Acknowledged::default())))
    }
    /// Puts what is leased back where it was in the queue, `queued` again; or among the dead letters when it has been
    /// delivered `delivery_limit` times, or its time has run out.
    fn release(&self, session: SessionId, which: Release, delivery_limit: u32, now: Now) -> Op<Released>;
    /// How many messages of a session wait, and how many are leased.
    fn depth(&self, session: SessionId) -> Op<Depth>;
    /// Dead-letters what has outlived its time and forgets receipts and idempotency keys that are too old.
    /// Returns the sessions whose queues lost a message to expiry since the last sweep, whichever operation noticed
    /// it, with the number that still wait.
    fn sweep(&self, now: Now) -> Op<Vec<(SessionId, usize)>>;

    /// None for a message that is not known, or no longer.
    fn message_status(&self, message: MessageId, now: Now) -> Op<Option<Vec<RecipientStatus>>>;
    /// Another replica has brought this message further, or any: whoever follows it here is told. Where the store is not
    /// shared, whoever brings it further tells them.
    fn notify_progress(&self, message: Option<MessageId>) -> Op<()> {
        let _ = message;
        Box::pin(std::future::ready(Ok(())))
    }
    /// Dead letters, ordered by message id (which is by age) and recipient.
    fn dead_letters(&self, query: DeadLetterQuery) -> Op<DeadLetterPage>;
    /// Sends dead letters again, as new in the queue and with no deliveries counted, to their recipient or to
    /// another; their time to live begins anew. A recipient that has a copy already, of a broadcast, gets no second.
    fn redrive(
        &self,
        messages: Vec<MessageId>,
        recipient: Option<SessionId>,
        queue_capacity: usize,
        now: Now,
    ) -> Op<Redriven>;
    fn dead_letter_count(&self) -> Op<usize>;
    /// How many bytes of each kind are kept.
    fn usage(&self) -> Op<Usage>;

    /// Remembers that a message of this project went to another. Bounded; the oldest go first.
    fn put_cross_project_target(&self, message: MessageId, target: ProjectId) -> Op<()>;
    fn cross_project_target(&self, message: MessageId) -> Op<Option<ProjectId>>;
    /// To which projects the remembered messages went.
    fn cross_project_targets(&self) -> Op<Vec<ProjectId>>;
}

/// Which dead letters are asked for.
#[derive(Clone, Debug)]
pub struct DeadLetterQuery {
    pub reason: Option<DeadLetterReason>,
    /// Only those of messages that came from this other project.
    pub origin: Option<ProjectId>,
    /// Only those after this one (its message, its recipient), which need not be there any more.
    pub after: Option<(MessageId, SessionId)>,
    pub limit: usize,
    /// Of the envelopes of all letters together. The list ends before the first letter that does not fit
    /// ([`DeadLetters::beyond`]).
    pub bytes_max: usize,
}

impl Default for DeadLetterQuery {
    fn default() -> Self {
        Self {
            reason: None,
            origin: None,
            after: None,
            limit: 0,
            bytes_max: PAGE_BYTES_MAX,
        }
    }
}

/// What a [`DeadLetterQuery`] found.
#[derive(Clone, Debug, Default)]
pub struct DeadLetterPage {
    pub dead_letters: Vec<DeadLetter>,
    /// The letter before which the list ends for lack of bytes.
    pub blocked: Option<BlockedDeadLetter>,
}

/// A dead letter that is listed when there is room for its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockedDeadLetter {
    pub message: MessageId,
    pub recipient: SessionId,
    /// See [`envelope_bytes`].
    pub bytes: usize,
}

impl DeadLetterQuery {
    /// Whether a letter is asked for, where the list begins and its length left out.
    #[must_use]
    pub fn matches(&self, letter: &DeadLetter) -> bool {
        self.reason.is_none_or(|reason| letter.reason == reason)
            && self
                .origin
                .as_ref()
                .is_none_or(|origin| letter.message.origin.as_ref() == Some(origin))
    }
}

/// One message to accept.
#[derive(Clone, Debug)]
pub struct Append {
    pub message: Arc<Message>,
    pub audience: Audience,
    /// Most messages that may wait for one recipient.
    pub queue_capacity: usize,
    pub idempotency_key: Option<String>,
    /// The roster that the audience was taken from, for a broadcast where the store is shared.
    pub roster_version: Option<u64>,
}

#[derive(Clone, Debug)]
pub enum Audience {
    One(SessionId),
    /// Each session once.
    Many(Arc<[SessionId]>),
}

impl Audience {
    #[must_use]
    pub fn ids(&self) -> &[SessionId] {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Appended {
    /// Accepted for everyone in the audience but `refused`: their queues were full, or they are not sessions of this
    /// store. A message that everyone refused is not kept at all.
    Accepted {
        /// Messages waiting for the recipient, this one included; for a broadcast the longest such queue. 0 when
        /// everyone refused, and when it was handed over at once.
        queue_len: usize,
        refused: Vec<SessionId>,
        /// Why they refused; of several the last. None when nobody did.
        refusal: Option<RecipientRefusal>,
    },
    /// The sender used this idempotency key before; nothing was sent.
    Duplicate(SendResult),
    /// The sender has reserved this idempotency key for a message to another project; nothing was sent.
    KeyReserved,
    /// Sessions have come or gone since the roster of the audience. Neither this message nor any after it in the batch
    /// was sent.
    RosterOutdated,
}

/// What the sender's store knows of an idempotency key for a message to another project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyReservation {
    /// The key was free: it is reserved now.
    New,
    /// An earlier send reserved it for the same project, and its result is not known here.
    Repeated,
    /// An earlier send reserved it for another project, and its result is not known here.
    OtherProject,
    /// The first result.
    Completed(SendResult),
}

impl Appended {
    /// Everyone accepted it.
    #[must_use]
    pub const fn accepted_by_all(queue_len: usize) -> Self {
        Self::Accepted {
            queue_len,
            refused: Vec::new(),
            refusal: None,
        }
    }

    /// Everyone refused it.
    #[must_use]
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
    /// It is not a session of this store.
    Gone,
    Full(BudgetFull),
}

/// The first result of a send, kept for its idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendResult {
    pub message: MessageId,
    pub delivered: usize,
    pub queued: usize,
    pub skipped: usize,
    pub queue_len: usize,
    pub refused: Vec<SessionId>,
    /// Milliseconds since the Unix epoch, when it was handed to a live connection.
    pub delivered_at_ms: Option<u64>,
    /// Where the message was when the sender that waited for more had its answer.
    pub status: Option<DeliveryStatus>,
}

impl SendResult {
    /// What is known at acceptance.
    #[must_use]
    pub fn accepted(message: MessageId, audience: usize, queue_len: usize, refused: Vec<SessionId>) -> Self {
        Self {
            message,
            delivered: 0,
            queued: audience - refused.len(),
            skipped: 0,
            queue_len,
            refused,
            delivered_at_ms: None,
            status: None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Delivery {
    pub message: Arc<Message>,
    /// 1 at the first delivery.
    pub count: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Lease {
    pub deliveries: Vec<Delivery>,
    pub depth: Depth,
    /// Somebody else has claimed the session since.
    pub superseded: bool,
    /// The numbers of these leases among all of the session, which grow. Empty where nothing is handed over unasked.
    pub lease_numbers: Range<u64>,
    /// Messages are handed over unasked.
    pub is_pushing: bool,
    /// Bytes of the message before which the lease ended, as it did not fit into the bytes of the lease.
    pub blocked_bytes: Option<usize>,
}

/// What a session takes unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefetchLimit {
    /// Most messages that may be leased.
    pub messages: usize,
    /// Most bytes that may be leased.
    pub bytes: usize,
    /// What was written to its connection is acknowledged, soon: the store may lease a message to many of these as one.
    pub auto_ack: bool,
}

/// What the store has leased to a session unasked.
#[derive(Clone, Debug, actix::Message)]
#[rtype(result = "()")]
pub struct PushedDelivery {
    pub session: SessionId,
    /// By which the session was in hand.
    pub claim: Claim,
    pub deliveries: Vec<Delivery>,
    /// The numbers of these leases. Empty of what is leased to many as one: it comes before the lease of this number. It
    /// becomes a lease of its own, and comes once more, when anything else is done with the inbox.
    pub lease_numbers: Range<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    pub waiting: usize,
    pub leased: usize,
}

/// How many bytes a project keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of messages that wait, are leased, or are dead letters: each envelope once, and [`COPY_BYTES`] for each recipient.
    pub messages: usize,
    /// Of dead letters alone, counted in the same way.
    pub dead_letters: usize,
    /// Of the records of sessions.
    pub sessions: usize,
    /// Of idempotency keys with their results.
    pub idempotency_keys: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acknowledge {
    Ids(Vec<MessageId>),
    /// This one and all that were leased before it.
    UpTo(MessageId),
}

#[derive(Clone, Debug, Default)]
pub struct Acknowledged {
    /// How many were leased, or waiting after a release, and are now done with.
    pub acknowledged: usize,
    /// Ids that are not in this inbox.
    pub unknown: Vec<MessageId>,
    /// Those of them whose sender waits to be told.
    pub tracked: Vec<Arc<Message>>,
    pub depth: Depth,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    Ids(Vec<MessageId>),
    /// All, unless somebody else has claimed the session since.
    Claimed(Claim),
    /// All, unless a sign of life is known that is younger than this.
    Silent(Duration),
}

/// The token of whoever has the inbox of a session in hand: of several, the one that claimed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim(NonZeroU64);

impl Claim {
    #[must_use]
    pub fn generate() -> Self {
        Self::from_bits(uuid::Uuid::new_v4().as_u64_pair().1)
    }

    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        // Of a random UUID the highest bit of the second half is set: nothing is lost.
        match NonZeroU64::new(bits | 1 << 63) {
            Some(bits) => Self(bits),
            None => Self(NonZeroU64::MAX),
        }
    }

    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0.get()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    /// Higher than that of every claim of this session before. 0 for a session that is not known.
    pub epoch: u64,
    pub released: Released,
}

/// On what terms a session is put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutSession {
    /// It is there already, as far as the caller knows.
    pub must_exist: bool,
    /// Most sessions there may be with a new one.
    pub sessions_len_max: Option<usize>,
}

/// What became of a session that was put. But for the first, nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    Stored,
    /// Another session has the name.
    NameTaken,
    /// It was to be resumed, and is not there any more.
    Gone,
    /// There are as many sessions as there may be.
    TooManySessions,
    /// The records of the sessions have as many bytes as they may have: this limit.
    TooManyBytes {
        limit: usize,
    },
}

/// What became of a protocol that was to be added. But for the first, nothing changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Inserted {
    New,
    /// This one has the name and version.
    Exists(Arc<ProtocolRecord>),
    /// There are as many protocols as there may be.
    Full,
}

/// All sessions, as they were at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Roster {
    /// Grows whenever a session is put or removed.
    pub version: u64,
    pub sessions: Vec<SessionRecord>,
}

/// How a session is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionKey {
    Id(SessionId),
    Name(SessionName),
}

/// A sign of life of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    pub session: SessionId,
    pub ago: Duration,
    /// It said goodbye then.
    pub has_left: bool,
}

/// The signs of life that others have told of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeartbeatExchange {
    pub heartbeats: Vec<Heartbeat>,
    /// The serial of the last frame that was published then. Of a session that was put by it, or before, these signs and
    /// those exchanged earlier tell.
    pub frame_seq: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released {
    pub returned: usize,
    pub dead: usize,
    pub depth: Depth,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redriven {
    /// Message and the session it now waits for, with the length of that queue.
    pub sent: Vec<(MessageId, SessionId, usize)>,
    /// Not among the dead letters.
    pub unknown: Vec<MessageId>,
    /// Still dead letters: the recipient is gone, or its queue is full.
    pub refused: Vec<(MessageId, RedriveRefusal)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedriveRefusal {
    RecipientGone,
    QueueFull,
}

/// How much the store of a project keeps.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Receipts are per message and recipient; the oldest settled ones go first.
    pub receipts_len_max: usize,
    pub dead_letters_len_max: usize,
    pub idempotency_keys_len_max: usize,
    pub idempotency_window: Duration,
    /// Messages to other projects whose receipts can be asked for.
    pub cross_project_targets_len_max: usize,
    /// Entries of the audit, of what was done and of what was refused in each project.
    pub audit_len_max: usize,
    /// Bytes of the messages that wait for one session or are leased to it. One more is refused.
    pub queue_bytes_max: usize,
    /// Bytes of the messages of a project that wait or are leased; see [`Usage::messages`]. One more is refused.
    pub waiting_bytes_max: usize,
    /// Bytes of dead letters; the oldest go first.
    pub dead_letters_bytes_max: usize,
    /// Bytes of the messages of all projects, where they are in the memory of the broker. One more is refused.
    pub messages_bytes_max: usize,
    /// Bytes of idempotency keys and their results; the oldest go first.
    pub idempotency_keys_bytes_max: usize,
    /// Bytes of the records of sessions. One more is refused.
    pub sessions_bytes_max: usize,
}

const MIB: usize = 1024 * 1024;

impl Default for Retention {
    fn default() -> Self {
        Self {
            receipts_len_max: 200_000,
            dead_letters_len_max: 10_000,
            idempotency_keys_len_max: 1_000_000,
            idempotency_window: Duration::from_hours(24),
            cross_project_targets_len_max: 200_000,
            audit_len_max: 10_000,
            queue_bytes_max: 32 * MIB,
            waiting_bytes_max: 96 * MIB,
            dead_letters_bytes_max: 32 * MIB,
            messages_bytes_max: 192 * MIB,
            idempotency_keys_bytes_max: 16 * MIB,
            sessions_bytes_max: 16 * MIB,
        }
    }
}

impl From<StoreError> for BrokerError {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "the store did not answer as it should");
        match error {
            StoreError::Unreachable(_) | StoreError::RolledBack => Self::unavailable(),
            StoreError::Full(_) => Self::StorageFull,
        }
    }
}
