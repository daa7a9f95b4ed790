//! Messages, what became of them, and dead letters. The broker writes the text of a message by hand.

use std::ops::Deref;

use actors::model::{Activity, DeadLetterReason, OutcomeKind, Priority, Rung, SessionStatus, TransformRule};
use answer::answer;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::words::{self, Id, Time};

/// The envelope of a message.
#[answer(lenient)]
pub struct Envelope {
    pub message_id: Id,
    #[schema(value_type = words::ProjectId)]
    pub project_id: String,
    pub sender_id: Id,
    pub sender_name: Option<String>,
    /// Null for a broadcast.
    pub recipient_id: Option<Id>,
    pub timestamp: Time,
    #[schema(value_type = words::ProtocolName)]
    pub protocol_name: String,
    #[schema(value_type = words::Version)]
    pub protocol_version: String,
    /// With `include=payload`, while it is kept.
    #[absent]
    #[schema(value_type = Option<Object>)]
    pub payload: Option<Value>,
    pub headers: Headers,
    /// Deliveries without an acknowledgement.
    #[absent]
    pub delivery_count: Option<usize>,
}

impl Envelope {
    /// The name of the sender, or else its id.
    pub fn sender(&self) -> &str {
        self.sender_name.as_deref().unwrap_or(&self.sender_id)
    }

    /// Protocol and version.
    pub fn protocol(&self) -> String {
        format!("{} {}", self.protocol_name, self.protocol_version)
    }
}

/// How to deliver a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = MessageHeaders)]
pub struct Headers {
    #[schema(nullable = false, value_type = Option<Priority>)]
    pub priority: Option<String>,
    /// The message is not delivered later than this many seconds after acceptance.
    #[schema(minimum = 1)]
    pub ttl_seconds: Option<usize>,
    /// Ties an answer to its question. At most 256 bytes.
    #[schema(max_length = 256)]
    pub correlation_id: Option<String>,
    /// Where to answer. At most 256 bytes.
    #[schema(max_length = 256)]
    pub reply_to: Option<String>,
    /// A repeat within 24 hours sends nothing and gets the first answer. At most 256 bytes.
    #[schema(max_length = 256)]
    pub idempotency_key: Option<String>,
    /// The thread that the message belongs to. At most 128 bytes, without control characters. A message without it is
    /// the first of the thread that its message id names.
    #[schema(max_length = 128)]
    pub thread_id: Option<String>,
    /// What the message is about: one line of at most 200 characters.
    #[schema(max_length = 200)]
    pub subject: Option<String>,
    /// How many messages in a row, each caused by the one before, led to this one.
    #[schema(maximum = 64)]
    pub hops: Option<u64>,
    /// Absent: the sender gets a report if the message becomes a dead letter.
    #[schema(nullable = false, value_type = Option<ReportChoice>)]
    pub report: Option<String>,
    /// Whether a recipient that declares another version of the protocol gets the message transformed by lenses: `any` (the
    /// default), `lossless` (not where it would lose something), `never`.
    #[schema(nullable = false, value_type = Option<TransformRule>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<String>,
    /// The `transformed.complement` of the message that this one answers. At most 16 KiB.
    #[schema(nullable = false, value_type = Option<Object>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complement: Option<Value>,
}

/// `none`: the sender wants no report about the message.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum ReportChoice {
    None,
}

/// A message of the list: its envelope, and what became of it.
#[answer(lenient)]
pub struct ListedMessage {
    #[serde(flatten)]
    pub envelope: Envelope,
    /// Null for a broadcast, and for a recipient without a name or one that has ended.
    pub recipient_name: Option<String>,
    /// The header `thread_id`, or the id of the message, which is then the first of its thread.
    #[schema(max_length = 128)]
    pub thread_id: String,
    /// With `include=excerpt`: its first words, on one line. Null once the payload is not kept.
    #[schema(required = false, max_length = 160)]
    pub excerpt: Option<String>,
    /// Of a message with one recipient, while its receipt is kept.
    #[schema(value_type = Option<DeliveryStatus>)]
    pub status: Option<String>,
    /// Null once the receipts are forgotten.
    pub recipients: Option<RecipientCounts>,
}

impl Deref for ListedMessage {
    type Target = Envelope;

    fn deref(&self) -> &Envelope {
        &self.envelope
    }
}

/// How many recipients of a message have each status.
#[answer(lenient)]
pub struct RecipientCounts {
    pub queued: usize,
    pub delivered: usize,
    pub acknowledged: usize,
    pub expired: usize,
    pub dead_lettered: usize,
}

/// A page of messages, newest first.
#[answer]
pub struct Messages {
    pub messages: Vec<ListedMessage>,
    /// The payloads of messages are kept after the acknowledgement (`message_history_payloads`).
    pub payloads_kept: bool,
    /// Cursor of the next page.
    #[absent]
    pub next_cursor: Option<String>,
}

/// A message from or to a person.
#[answer(lenient)]
pub struct PersonsMessage {
    #[serde(flatten)]
    pub message: ListedMessage,
    /// It waits for the person, who has not marked it as read.
    pub unread: bool,
}

impl Deref for PersonsMessage {
    type Target = ListedMessage;

    fn deref(&self) -> &ListedMessage {
        &self.message
    }
}

/// A page of the messages of a person, newest first.
#[answer(lenient)]
pub struct PersonsMessages {
    pub messages: Vec<PersonsMessage>,
    /// The payloads of messages are kept after the acknowledgement (`message_history_payloads`).
    pub payloads_kept: bool,
    /// The session of the person.
    pub session_id: Id,
    pub human: String,
    /// All messages that wait for the person.
    #[schema(value_type = usize)]
    pub waiting: u64,
    /// Cursor of the next page.
    #[absent]
    pub next_cursor: Option<String>,
}

/// What became of messages that a person has read.
#[answer]
pub struct MessagesRead {
    pub acknowledged: usize,
    /// Those that do not wait for the person.
    pub unknown: Vec<String>,
}

/// The status of a message for one recipient.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum DeliveryStatus {
    Queued,
    Delivered,
    Acknowledged,
    Expired,
    DeadLettered,
}

/// The answer to a direct message, or to a broadcast: the latter has the members from `recipients` on.
#[answer]
pub struct Sent {
    pub message_id: Id,
    #[absent]
    #[schema(value_type = Option<DeliveryStatus>)]
    pub status: Option<String>,
    /// Messages that wait for the recipient, unless it is in another project.
    #[absent]
    #[schema(value_type = Option<usize>)]
    pub queue_size: Option<u64>,
    #[absent]
    pub delivered_at: Option<Time>,
    /// What the recipient said of it, if the sender waited for it.
    #[absent]
    #[schema(value_type = Option<OutcomeKind>)]
    pub outcome: Option<String>,
    #[absent]
    pub note: Option<String>,
    /// What is known of the recipient of a direct message that waits, in the project of the sender.
    #[absent]
    pub recipient: Option<Recipient>,
    #[absent]
    pub recipients: Option<usize>,
    #[absent]
    pub delivered: Option<usize>,
    #[absent]
    pub queued: Option<usize>,
    #[absent]
    pub failed: Option<usize>,
    #[absent]
    pub skipped: Option<usize>,
    #[absent]
    pub failures: Option<Vec<RecipientFailure>>,
    /// What lenses do to the message for its recipient as it is now; of a recipient in another project only `from` and
    /// `loss`.
    #[absent]
    pub transform: Option<Transform>,
    /// What lenses do to a broadcast for its recipients as they are now, a row for each version.
    #[absent]
    pub transforms: Option<Vec<Transform>>,
}

/// What lenses do to a payload.
#[answer]
pub struct Transform {
    #[absent]
    #[schema(value_type = Option<words::Version>)]
    pub from: Option<String>,
    #[absent]
    #[schema(value_type = Option<words::Version>)]
    pub to: Option<String>,
    /// Of a broadcast: how many recipients get it so.
    #[absent]
    pub recipients: Option<usize>,
    /// Places of the payload as sent that are lost, at most 32. `*` is each item of an array.
    pub loss: Vec<String>,
    /// Places of the payload as delivered that are made up, at most 32.
    #[absent]
    pub defaulted: Option<Vec<String>>,
    /// One of the lists does not name all places.
    #[absent]
    pub more: Option<bool>,
}

impl Transform {
    /// The versions and the places, each in words.
    pub fn details(&self) -> Vec<String> {
        let mut details = Vec::new();
        match (&self.from, &self.to, self.recipients) {
            (Some(from), Some(to), _) => details.push(format!("transformed from {from} to {to}")),
            (None, Some(to), Some(recipients)) => details.push(format!("transformed to {to} for {recipients}")),
            _ => {}
        }
        for (word, places) in [("lost", Some(&self.loss)), ("made up", self.defaulted.as_ref())] {
            if let Some(places) = places.filter(|places| !places.is_empty()) {
                details.push(format!("{word} {}", places.join(" ")));
            }
        }
        details
    }
}

/// What the sender of a message may know of its recipient.
#[answer]
pub struct Recipient {
    #[schema(value_type = SessionStatus)]
    pub status: String,
    #[schema(value_type = Activity)]
    pub activity: String,
    /// The ways in which the client of the agent can wake it; null if there is none.
    #[schema(value_type = Option<Vec<Rung>>)]
    pub wakes_by: Option<Vec<String>>,
    /// When it was last given messages; null if that is not known.
    pub last_read_at: Option<Time>,
}

/// A recipient that does not get a broadcast.
#[answer]
pub struct RecipientFailure {
    pub session_id: Id,
    pub code: String,
}

/// The life of a message.
#[answer]
pub struct MessageLife {
    pub message_id: Id,
    /// Null once the history has forgotten the message.
    pub message: Option<Envelope>,
    /// The header `thread_id`, or the id of the message, which is then the first of its thread. Null as `message`.
    #[schema(max_length = 128)]
    pub thread_id: Option<String>,
    pub accepted_at: Option<Time>,
    /// A page of the recipients.
    #[serde(default)]
    pub recipients: Vec<RecipientLife>,
    /// The payloads of messages are kept after the acknowledgement (`message_history_payloads`).
    #[serde(default)]
    pub payloads_kept: bool,
    /// The history after the message is too long to be searched to its end: later events may be missing.
    #[serde(default)]
    pub incomplete: bool,
    /// Cursor of the next page of recipients.
    #[absent]
    pub next_cursor: Option<Id>,
}

/// The life of a message for one recipient.
#[answer]
pub struct RecipientLife {
    pub session_id: Id,
    /// Null for a session without a name, or one that has ended.
    pub name: Option<String>,
    /// The present status; null once the receipt is forgotten.
    #[schema(value_type = Option<DeliveryStatus>)]
    pub status: Option<String>,
    #[absent]
    pub at: Option<Time>,
    #[absent]
    #[schema(value_type = Option<DeadLetterReason>)]
    pub reason: Option<String>,
    /// What the recipient said of it.
    #[absent]
    #[schema(value_type = Option<OutcomeKind>)]
    pub outcome: Option<String>,
    /// What the recipient added.
    #[absent]
    #[schema(max_length = 1000)]
    pub note: Option<String>,
    /// What lenses did to it at the last delivery; absent for one as it was sent. A sender in another project sees `from` and
    /// `loss` only.
    #[absent]
    pub transformed: Option<Transform>,
    /// In their order.
    #[serde(default)]
    pub events: Vec<LifeChange>,
}

impl RecipientLife {
    /// The name, or else the id.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.session_id)
    }
}

/// A change in the life of a message for a recipient.
#[answer]
pub struct LifeChange {
    #[schema(value_type = LifeEvent)]
    pub event: String,
    pub at: Time,
    /// Of a delivery: which one.
    #[absent]
    #[schema(value_type = Option<usize>)]
    pub delivery: Option<u32>,
    /// Of a dead letter.
    #[absent]
    #[schema(value_type = Option<DeadLetterReason>)]
    pub reason: Option<String>,
    /// Of a redrive: the recipient before.
    #[absent]
    pub from: Option<Id>,
    /// Of a delivery: what lenses did to the message. Absent for one as it was sent.
    #[absent]
    pub transformed: Option<Transform>,
}

impl LifeChange {
    /// What the event says besides its name.
    pub fn detail(&self) -> String {
        match (self.delivery, &self.reason, &self.from) {
            (Some(delivery), _, _) => {
                let mut details = vec![format!("delivery {delivery}")];
                details.extend(self.transformed.iter().flat_map(Transform::details));
                details.join(", ")
            }
            (None, Some(reason), _) => reason.clone(),
            (None, None, Some(from)) => format!("from {from}"),
            (None, None, None) => String::new(),
        }
    }
}

/// What happened to a message for a recipient.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum LifeEvent {
    Queued,
    Delivered,
    Released,
    Acknowledged,
    Expired,
    DeadLettered,
    Redriven,
}

/// A message that was given up.
#[answer]
pub struct DeadLetter {
    pub message: Envelope,
    /// The recipient.
    pub session_id: Id,
    /// The name of the recipient, or the one that it had when the message was given up. Null for a recipient without a
    /// name.
    pub session_name: Option<String>,
    #[schema(value_type = DeadLetterReason)]
    pub reason: String,
    pub at: Time,
    pub deliveries: usize,
}

impl DeadLetter {
    /// The recipient by its name, or by its id.
    pub fn recipient(&self) -> &str {
        self.session_name.as_ref().unwrap_or(&self.session_id)
    }
}

/// A page of dead letters, oldest first. A page may have fewer entries than its limit, or none, and still be followed by
/// another.
#[answer]
pub struct DeadLetters {
    pub dead_letters: Vec<DeadLetter>,
    /// Cursor of the next page, when items are left.
    #[absent]
    pub next_cursor: Option<String>,
}

/// What became of a redrive.
#[answer(lenient)]
pub struct Redriven {
    /// Messages that wait again.
    #[schema(value_type = usize)]
    pub redriven: u64,
    /// Ids that are not among the dead letters.
    pub unknown: Vec<String>,
    pub failures: Vec<RedriveFailure>,
}

/// A dead letter that stays one.
#[answer]
pub struct RedriveFailure {
    pub message_id: Id,
    pub code: String,
}
