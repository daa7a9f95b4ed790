//! Messages: the encoded envelope, its stages from draft to dead letter, and how a sender tracks it.

mod excerpt;
mod fragments;
mod headers;
mod ids;
mod outcome;
mod stored;
mod summary;
mod trace;
mod transformed;
mod transforms;
mod version;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::BufMut;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use utoipa::ToSchema;
use uuid::Uuid;

pub use excerpt::excerpt;
pub use fragments::EnvelopeFragments;
use fragments::{Layout, PAYLOAD};
use headers::write_json;
pub use headers::{Complement, HOPS_MAX, Headers, Priority, ReportChoice, TransformRule};
pub use ids::MessageIds;
pub use outcome::{NOTE_CHARACTERS_MAX, Outcome, OutcomeKind};
pub use stored::StoredMessageError;
pub use summary::EnvelopeSummary;
pub use transformed::Transformed;
pub use transforms::Transforms;
pub use version::{MessageText, TransformHeaders};

use super::{MessageId, ProjectId, SessionId, SessionName, SessionRecord, TraceContext, UNSET_ID};
use crate::clock::{Now, rfc3339};

/// The state of one message for one recipient. It never claims more than happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeliveryStatus {
    /// Accepted and waiting in the inbox.
    Queued,
    /// Written to the outbox of the live connection, or returned by `receive_messages`.
    Delivered,
    /// The recipient has acknowledged the message.
    Acknowledged,
    /// Its time to live ran out while it waited.
    Expired,
    /// The broker gave the message up for this reason.
    DeadLettered(DeadLetterReason),
}

impl DeliveryStatus {
    /// The name in the contract.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Delivered => "delivered",
            Self::Acknowledged => "acknowledged",
            Self::Expired => "expired",
            Self::DeadLettered(_) => "dead_lettered",
        }
    }

    /// Whether the status is final. Only a redrive can change a final status.
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Queued | Self::Delivered)
    }
}

words! {
    /// Why the broker gave a message up for one recipient.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum DeadLetterReason {
        Expired = "expired",
        DeliveryLimit = "delivery_limit",
        RecipientGone = "recipient_gone",
        Rejected = "rejected",
        /// Lenses could not transform it into a version that the recipient declares, or were not allowed to.
        TransformFailed = "transform_failed",
    }
}

/// The state of a message for one recipient, as `get_message_status` reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecipientStatus {
    pub session: SessionId,
    pub status: DeliveryStatus,
    /// When the status was reached, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// What the recipient said of it when it acknowledged or rejected it.
    pub outcome: Option<Arc<Outcome>>,
    /// What lenses did to it at its last delivery; None for one as it was sent.
    pub transformed: Option<Arc<Transformed>>,
}

/// A message that was given up for one recipient, kept with the reason until it is redriven.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    pub message: Arc<Message>,
    pub recipient: SessionId,
    /// The name that the recipient had then: its session may have ended. None for a recipient without a name, in another
    /// project, or in the data of a version that kept none.
    pub recipient_name: Option<SessionName>,
    pub reason: DeadLetterReason,
    /// Milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// How often the message was delivered before it was given up.
    pub deliveries: u32,
}

/// A message that is checked and encoded but not yet accepted.
///
/// The surface that received the message encodes it once; the router fills in three fields of fixed width: id, time
/// and recipient. It is made in the place where it stays, and nothing else refers to it before it is sealed.
#[derive(Debug)]
pub struct NewMessage(Arc<Message>);

const ENVELOPE_HEAD: &[u8] = b"{\"message_id\":\"00000000-0000-0000-0000-000000000000\",\"timestamp\":\"0000-00-00T00:00:00.000Z\",\"recipient_id\":";
const ID_AT: usize = 15;
const TIMESTAMP_AT: usize = ID_AT + UNSET_ID.len() + 15;
const RECIPIENT_AT: usize = ENVELOPE_HEAD.len() + 1;

impl NewMessage {
    /// Encodes the envelope (contract, section 5). `payload` is the text of a validated JSON object.
    pub fn new(
        project: &ProjectId,
        sender: &SessionRecord,
        to: Addressing,
        protocol: (&str, &str),
        payload: &str,
        headers: &Headers,
    ) -> Self {
        let mut body = Vec::with_capacity(ENVELOPE_HEAD.len() + 320 + payload.len());
        body.extend_from_slice(ENVELOPE_HEAD);
        match to {
            Addressing::Direct => {
                body.push(b'"');
                body.extend_from_slice(UNSET_ID.as_bytes());
                body.push(b'"');
            }
            Addressing::Broadcast => body.extend_from_slice(b"null"),
        }
        body.extend_from_slice(b",\"project_id\":\"");
        body.extend_from_slice(project.as_str().as_bytes());
        body.extend_from_slice(b"\",\"sender_id\":\"");
        let at = body.len();
        body.resize(at + UNSET_ID.len(), 0);
        sender.id.as_uuid().as_hyphenated().encode_lower(&mut body[at..]);
        body.extend_from_slice(b"\",\"sender_name\":");
        let sender_name = body.len() as u32;
        match &sender.name {
            Some(name) => write_json(&mut body, name),
            None => body.extend_from_slice(b"null"),
        }
        body.extend_from_slice(b",\"protocol_name\":\"");
        body.extend_from_slice(protocol.0.as_bytes());
        body.extend_from_slice(b"\",\"protocol_version\":\"");
        body.extend_from_slice(protocol.1.as_bytes());
        body.push(b'"');
        body.extend_from_slice(PAYLOAD);
        let payload_at = body.len() as u32;
        body.extend_from_slice(payload.as_bytes());
        let tail = body.len() as u32;
        body.extend_from_slice(b",\"headers\":");
        headers.write_to(&mut body);
        Self(Arc::new(Message {
            id: MessageId::from_uuid(Uuid::nil()),
            sender: sender.id,
            origin: None,
            recipient: None,
            priority: headers.priority,
            ttl: headers.ttl_seconds.map(Duration::from_secs),
            accepted_ns: 0,
            body,
            layout: Some(Layout {
                sender_name,
                payload: payload_at,
                tail,
            }),
            sent: None,
            progress: Progress::new(false),
        }))
    }

    fn change(mut self, change: impl FnOnce(&mut Message)) -> Self {
        let message = Arc::get_mut(&mut self.0);
        debug_assert!(
            message.is_some(),
            "nothing else refers to a message that is not accepted"
        );
        if let Some(message) = message {
            change(message);
        }
        self
    }

    /// Marks the draft as a message from the project `origin` to another project.
    #[must_use]
    pub fn with_origin(self, origin: ProjectId) -> Self {
        self.change(|message| message.origin = Some(origin))
    }

    /// Adds the trace that the message belongs to: `_meta` of its envelope.
    #[must_use]
    pub fn with_trace(self, trace: &TraceContext) -> Self {
        self.change(|message| {
            message.body.extend_from_slice(b",\"_meta\":");
            trace.write_meta(&mut message.body);
        })
    }

    /// Notes when this process accepts the message, on the fine clock.
    #[must_use]
    pub fn accepted_at(self, accepted_ns: u64) -> Self {
        self.change(|message| message.accepted_ns = accepted_ns)
    }

    /// Bytes of the encoded envelope, without its delivery count.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.0.body.len()
    }

    /// Completes the message. `recipient` is Some exactly for [`Addressing::Direct`]; `tracked` says whether the
    /// sender follows the delivery status.
    #[must_use]
    pub fn seal(self, id: MessageId, recipient: Option<SessionId>, now: Now, watched: bool) -> Arc<Message> {
        let sealed = self.change(|message| {
            (message.id, message.recipient) = (id, recipient);
            let body = &mut message.body;
            id.as_uuid().as_hyphenated().encode_lower(&mut body[ID_AT..]);
            body[TIMESTAMP_AT..TIMESTAMP_AT + 24].copy_from_slice(&rfc3339(now.unix_ms));
            if let Some(recipient) = recipient {
                recipient
                    .as_uuid()
                    .as_hyphenated()
                    .encode_lower(&mut body[RECIPIENT_AT..]);
            }
            if watched {
                message.progress = Progress::new(true);
            }
        });
        sealed.0
    }
}

/// Whether a message is for one session or for all that a filter selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// One session.
    Direct,
    /// All sessions that a filter selects.
    Broadcast,
}

/// An accepted message, shared by queues, connections and dead letters.
#[derive(Debug)]
pub struct Message {
    pub id: MessageId,
    pub sender: SessionId,
    /// The project of the sender, when the recipient is in another one.
    pub origin: Option<ProjectId>,
    /// None for a broadcast.
    pub recipient: Option<SessionId>,
    pub priority: Priority,
    pub ttl: Option<Duration>,
    /// When this process accepted it, on the fine clock; 0 if another one did, or an earlier one.
    pub accepted_ns: u64,
    /// The JSON object of the envelope up to, not including, `delivery_count` and the closing brace.
    body: Vec<u8>,
    /// None for a message that was read back from a store.
    layout: Option<Layout>,
    /// The message as it was sent, if this is its form in another version of its protocol.
    sent: Option<Arc<Message>>,
    /// How far the message has come.
    pub progress: Progress,
}

impl Message {
    /// Bytes that [`Message::write`] writes.
    pub fn encoded_len(&self, delivery_count: u32) -> usize {
        let digits = delivery_count.checked_ilog10().unwrap_or(0) as usize + 1;
        self.body.len() + DELIVERY_COUNT.len() + digits + 1
    }

    /// Appends the envelope as a JSON object.
    pub fn write(&self, out: &mut impl BufMut, delivery_count: u32) {
        out.put_slice(&self.body);
        out.put_slice(DELIVERY_COUNT);
        if delivery_count < 10 {
            out.put_u8(b'0' + delivery_count as u8);
        } else {
            out.put_slice(delivery_count.to_string().as_bytes());
        }
        out.put_u8(b'}');
    }

    /// The encoded envelope without its delivery count: what a store keeps next to the other fields.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The parts of the envelope that the event log keeps; None for a message that was read back from a store.
    pub fn fragments(&self) -> Option<EnvelopeFragments<'_>> {
        let timestamp = self.body.get(TIMESTAMP_AT..TIMESTAMP_AT + 24)?;
        self.layout?.fragments(&self.body, timestamp)
    }

    /// A message read back from a store. It is not tracked.
    pub fn restore(kept: StoredMessage) -> Self {
        let StoredMessage {
            id,
            sender,
            origin,
            recipient,
            priority,
            ttl,
            body,
        } = kept;
        Self {
            id,
            sender,
            origin,
            recipient,
            priority,
            ttl,
            accepted_ns: 0,
            body,
            layout: None,
            sent: None,
            progress: Progress::new(false),
        }
    }

    /// The same message for another recipient, for a redrive.
    #[must_use]
    pub fn readdressed(&self, recipient: SessionId) -> Self {
        let mut body = self.body.clone();
        if self.recipient.is_some() {
            recipient
                .as_uuid()
                .as_hyphenated()
                .encode_lower(&mut body[RECIPIENT_AT..]);
        }
        Self {
            id: self.id,
            sender: self.sender,
            origin: self.origin.clone(),
            recipient: self.recipient.map(|_| recipient),
            priority: self.priority,
            ttl: self.ttl,
            accepted_ns: 0,
            body,
            layout: self.layout,
            sent: None,
            progress: Progress::new(false),
        }
    }
}

/// What a store keeps of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    pub id: MessageId,
    pub sender: SessionId,
    pub origin: Option<ProjectId>,
    pub recipient: Option<SessionId>,
    pub priority: Priority,
    pub ttl: Option<Duration>,
    /// The value of [`Message::body`].
    pub body: Vec<u8>,
}

const DELIVERY_COUNT: &[u8] = b",\"delivery_count\":";

/// The delivery status of a message, for a sender in this process that tracks it.
#[derive(Debug)]
pub struct Progress {
    delivered_count: AtomicU32,
    delivered_at_ms: AtomicU64,
    status: Option<watch::Sender<DeliveryStatus>>,
}

impl Progress {
    fn new(watched: bool) -> Self {
        Self {
            delivered_count: AtomicU32::new(0),
            delivered_at_ms: AtomicU64::new(0),
            status: watched.then(|| watch::Sender::new(DeliveryStatus::Queued)),
        }
    }

    /// The number of recipients to which the message was delivered, and when last, in milliseconds since the Unix
    /// epoch; None before the first.
    pub fn delivered(&self) -> Option<(u32, u64)> {
        let count = self.delivered_count.load(Ordering::Acquire);
        (count > 0).then(|| (count, self.delivered_at_ms.load(Ordering::Relaxed)))
    }

    /// Records a delivery at this time, in milliseconds since the Unix epoch: the message is in the outbox of one
    /// live connection, or `receive_messages` returned it.
    pub fn mark_delivered(&self, at_ms: u64) {
        self.delivered_at_ms.store(at_ms, Ordering::Relaxed);
        self.delivered_count.fetch_add(1, Ordering::Release);
        self.advance_to(DeliveryStatus::Delivered);
    }

    /// Sets the status, unless it is final. Wakes the subscribers.
    pub fn advance_to(&self, status: DeliveryStatus) {
        if let Some(watch) = &self.status {
            watch.send_if_modified(|current| {
                let forward = !current.is_final() && *current != status;
                if forward {
                    *current = status;
                }
                forward
            });
        }
    }

    /// Whether a receiver of [`Self::subscribe`] is alive.
    pub fn has_subscribers(&self) -> bool {
        self.status.as_ref().is_some_and(|watch| watch.receiver_count() > 0)
    }

    /// The status as it changes; None unless the sender asked for tracking at acceptance.
    pub fn subscribe(&self) -> Option<watch::Receiver<DeliveryStatus>> {
        self.status.as_ref().map(watch::Sender::subscribe)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::clock::now;

    fn sender(name: Option<&str>) -> SessionRecord {
        SessionRecord {
            name: name.map(|name| SessionName::parse(name).unwrap()),
            ..SessionRecord::unnamed()
        }
    }

    fn read(message: &Message, count: u32) -> Value {
        let mut out = Vec::new();
        message.write(&mut out, count);
        assert_eq!(out.len(), message.encoded_len(count));
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn the_envelope_is_that_of_the_contract() {
        let (from, to, now) = (sender(Some("ali\"ce")), SessionId::generate(), now());
        let headers = Headers {
            priority: Priority::High,
            ttl_seconds: Some(5),
            ..Headers::default()
        };
        let project = ProjectId::default_project();
        let draft = NewMessage::new(
            &project,
            &from,
            Addressing::Direct,
            ("chat", "1.2.0"),
            r#"{"text":"hi"}"#,
            &headers,
        );
        let id = MessageIds::default().next(now);
        let len = draft.encoded_len();
        let message = draft.seal(id, Some(to), now, false);
        assert_eq!(message.body().len(), len, "the router overwrites bytes and adds none");
        let expected = json!({
            "message_id": id, "project_id": "default", "sender_id": from.id, "sender_name": "ali\"ce",
            "recipient_id": to, "timestamp": crate::clock::rfc3339_text(now.unix_ms),
            "protocol_name": "chat", "protocol_version": "1.2.0", "payload": {"text": "hi"},
            "headers": {"priority": "high", "ttl_seconds": 5}, "delivery_count": 1,
        });
        assert_eq!(read(&message, 1), expected);
        for count in [0, 9, 10, 11] {
            assert_eq!(read(&message, count)["delivery_count"], json!(count));
        }
        assert_eq!(
            read(&message, 4_294_967_295)["delivery_count"],
            json!(4_294_967_295_u32)
        );
        let other = SessionId::generate();
        assert_eq!(read(&message.readdressed(other), 1)["recipient_id"], json!(other));
    }

    #[test]
    fn a_broadcast_has_no_recipient_and_a_nameless_sender_no_name() {
        let draft = NewMessage::new(
            &ProjectId::default_project(),
            &sender(None),
            Addressing::Broadcast,
            ("chat", "1.0.0"),
            "{}",
            &Headers::default(),
        );
        let message = draft.seal(MessageIds::default().next(now()), None, now(), false);
        let seen = read(&message, 2);
        assert_eq!(
            (&seen["recipient_id"], &seen["sender_name"]),
            (&Value::Null, &Value::Null)
        );
    }

    #[test]
    fn statuses_have_the_names_of_the_contract() {
        let reasons = [
            DeadLetterReason::Expired,
            DeadLetterReason::DeliveryLimit,
            DeadLetterReason::RecipientGone,
            DeadLetterReason::Rejected,
            DeadLetterReason::TransformFailed,
        ];
        for reason in reasons {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
        }
        let statuses = [
            DeliveryStatus::Queued,
            DeliveryStatus::Delivered,
            DeliveryStatus::Acknowledged,
            DeliveryStatus::Expired,
            DeliveryStatus::DeadLettered(DeadLetterReason::Rejected),
        ];
        assert_eq!(
            statuses.map(DeliveryStatus::as_str),
            ["queued", "delivered", "acknowledged", "expired", "dead_lettered"]
        );
    }

    #[test]
    fn progress_has_subscribers_while_a_receiver_is_held() {
        let progress = Progress::new(true);
        assert_eq!((progress.delivered(), progress.has_subscribers()), (None, false));
        let view = progress.subscribe();
        assert!(progress.has_subscribers());
        drop(view);
        assert!(!progress.has_subscribers());
        let unwatched = Progress::new(false);
        assert!(unwatched.subscribe().is_none() && !unwatched.has_subscribers());
    }

    #[test]
    fn progress_never_goes_back() {
        let progress = Progress::new(true);
        let view = progress.subscribe().unwrap();
        progress.mark_delivered(7);
        progress.advance_to(DeliveryStatus::Acknowledged);
        progress.mark_delivered(7);
        assert_eq!(
            (*view.borrow(), progress.delivered()),
            (DeliveryStatus::Acknowledged, Some((2, 7)))
        );
    }
}
