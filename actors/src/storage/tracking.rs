//! What a sender can ask about a message after sending it: receipts, idempotency keys, messages to other projects.

use std::sync::Arc;

use super::error::Op;
use crate::{
    clock::Now,
    model::{DeliveryStatus, Message, MessageId, ProjectId, RecipientStatus, SessionId, Transformed, Transforms},
};

/// Receipts, idempotency keys and cross-project targets of a project.
pub trait TrackingStore {
    /// The status of each of these messages for each recipient; None for an unknown message, or one whose receipt is
    /// forgotten.
    fn message_statuses(&self, messages: Vec<MessageId>, now: Now) -> Op<Vec<Option<Vec<RecipientStatus>>>>;

    /// Keeps with the receipts what lenses did to messages that this session has leased. The next lease of a message
    /// forgets it. Does nothing for a message whose receipt is forgotten.
    fn note_transformed(&self, session: SessionId, messages: Vec<(MessageId, Arc<Transformed>)>) -> Op<()>;

    /// Each of these messages if it waits, is leased or is a dead letter; None otherwise.
    fn messages(&self, messages: Vec<MessageId>) -> Op<Vec<Option<Arc<Message>>>>;

    /// Replaces the stored result of an idempotency key. Does nothing if the key is unknown.
    fn update_send_result(&self, sender: SessionId, key: String, result: SendResult) -> Op<()>;

    /// Reserves an idempotency key for a message to the project `target`, before that project is asked to accept it. The
    /// reservation lasts for the idempotency window, counted from the last call that made or found it.
    fn reserve_key(&self, sender: SessionId, key: String, target: ProjectId, now: Now) -> Op<KeyReservation>;

    /// Stores the first result of a reserved key. Does nothing if the key is unknown or has a result.
    fn complete_reservation(&self, sender: SessionId, key: String, result: SendResult) -> Op<()>;

    /// Ends a reservation after the other project refused the message. Does nothing if another send has found the
    /// reservation, because that send may have been accepted.
    fn cancel_reservation(&self, sender: SessionId, key: String) -> Op<()>;

    /// Remembers the project to which a message of this project was sent. Bounded by
    /// [`Retention::cross_project_targets_len_max`](super::Retention::cross_project_targets_len_max); the oldest are
    /// forgotten.
    fn put_cross_project_target(&self, message: MessageId, target: ProjectId) -> Op<()>;

    /// The project to which a message of this project was sent; None if unknown or forgotten.
    fn cross_project_target(&self, message: MessageId) -> Op<Option<ProjectId>>;

    /// All projects to which remembered messages were sent.
    fn cross_project_targets(&self) -> Op<Vec<ProjectId>>;
}

/// The result of [`TrackingStore::reserve_key`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyReservation {
    /// The key was free and is reserved now.
    New,
    /// An earlier send reserved it for the same project; its result is not known here.
    Repeated,
    /// An earlier send reserved it for another project; its result is not known here.
    OtherProject,
    /// An earlier send with this key has this result.
    Completed(SendResult),
}

/// The first result of a send, stored with its idempotency key: a repeated send answers with it.
///
/// ```text
/// SendResult {
///     message: 0197…,
///     delivered: 1, queued: 1, skipped: 0,    // recipients
///     queue_len: 4,                           // messages
///     refused: [dave],
///     delivered_at_ms: Some(1790000000000),
///     status: None,                           // the sender did not wait
///     transforms: None,                       // all get it as sent
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendResult {
    /// The id of the message that the first send created.
    pub message: MessageId,
    /// Recipients to which it was delivered before the sender was answered.
    pub delivered: usize,
    /// Recipients in whose inbox it waited then.
    pub queued: usize,
    /// Sessions that a broadcast left out because of its filter or their protocols.
    pub skipped: usize,
    /// Messages that waited for the recipient, this one included; for a broadcast the longest queue.
    pub queue_len: usize,
    /// Recipients that do not get it.
    pub refused: Vec<SessionId>,
    /// When it was delivered to a live connection, in milliseconds since the Unix epoch.
    pub delivered_at_ms: Option<u64>,
    /// Its status when a sender that waited for delivery or acknowledgement was answered.
    pub status: Option<DeliveryStatus>,
    /// What lenses do to it for the recipients as they were then. None without lenses.
    pub transforms: Option<Arc<Transforms>>,
}

impl SendResult {
    /// The result at the moment of acceptance: nothing is delivered yet. `audience` counts the recipients, refused ones
    /// included.
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
            transforms: None,
        }
    }
}
