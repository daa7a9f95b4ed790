mod stored;

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
use uuid::{ContextV7, Timestamp, Uuid};

pub use stored::StoredMessageError;

use super::{MessageId, ProjectId, SessionId, SessionRecord, UNSET_ID};
use crate::clock::{Now, rfc3339};

/// Which of the waiting messages goes first; equal ones keep the order in which they were accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    Low,
    #[default]
    Normal,
    High,
    Urgent,
}

impl Priority {
    pub const ALL: [Self; 4] = [Self::Low, Self::Normal, Self::High, Self::Urgent];
}

/// What a sender may say about a message beside its payload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Headers {
    #[serde(default)]
    pub priority: Priority,
    /// Seconds from acceptance after which the message is no longer delivered. At least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Within 24 hours the same key from the same sender sends nothing and returns the first result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// Where one message stands for one recipient. It never claims more than happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeliveryStatus {
    /// Accepted, waiting.
    Queued,
    /// Handed to the live connection, or returned by `receive_messages`.
    Delivered,
    Acknowledged,
    /// Its time to live ran out while it waited.
    Expired,
    DeadLettered(DeadLetterReason),
}

impl DeliveryStatus {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Delivered => "delivered",
            Self::Acknowledged => "acknowledged",
            Self::Expired => "expired",
            Self::DeadLettered(_) => "dead_lettered",
        }
    }

    /// Nothing will happen to the message any more, unless somebody redrives it.
    #[must_use]
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Queued | Self::Delivered)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadLetterReason {
    Expired,
    DeliveryLimit,
    RecipientGone,
    Rejected,
}

impl DeadLetterReason {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::DeliveryLimit => "delivery_limit",
            Self::RecipientGone => "recipient_gone",
            Self::Rejected => "rejected",
        }
    }
}

/// The state of a message for one of its recipients, as `get_message_status` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecipientStatus {
    pub session: SessionId,
    pub status: DeliveryStatus,
    /// Milliseconds since the Unix epoch, when it came to be so.
    pub at_ms: u64,
}

/// A message that was given up for one recipient; kept, with the reason, until it is redriven.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    pub message: Arc<Message>,
    pub recipient: SessionId,
    pub reason: DeadLetterReason,
    /// Milliseconds since the Unix epoch.
    pub at_ms: u64,
    pub deliveries: u32,
}

/// A message that is checked and encoded but not yet accepted: it lacks only what the router decides.
///
/// The encoding happens where the message came in, once; the router writes three fields of fixed width into it.
#[derive(Debug)]
pub struct Draft {
    sender: SessionId,
    origin: Option<ProjectId>,
    priority: Priority,
    ttl: Option<Duration>,
    body: Vec<u8>,
}

const ENVELOPE_HEAD: &[u8] = b"{\"message_id\":\"00000000-0000-0000-0000-000000000000\",\"timestamp\":\"0000-00-00T00:00:00.000Z\",\"recipient_id\":";
const ID_AT: usize = 15;
const TIMESTAMP_AT: usize = ID_AT + UNSET_ID.len() + 15;
const RECIPIENT_AT: usize = ENVELOPE_HEAD.len() + 1;

impl Draft {
    /// Encodes the envelope (contract, section 5). `payload` is the text of a JSON object that was validated.
    #[must_use]
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
        match &sender.name {
            Some(name) => write_json(&mut body, name),
            None => body.extend_from_slice(b"null"),
        }
        body.extend_from_slice(b",\"protocol_name\":\"");
        body.extend_from_slice(protocol.0.as_bytes());
        body.extend_from_slice(b"\",\"protocol_version\":\"");
        body.extend_from_slice(protocol.1.as_bytes());
        body.extend_from_slice(b"\",\"payload\":");
        body.extend_from_slice(payload.as_bytes());
        body.extend_from_slice(b",\"headers\":");
        write_json(&mut body, headers);
        Self {
            sender: sender.id,
            origin: None,
            priority: headers.priority,
            ttl: headers.ttl_seconds.map(Duration::from_secs),
            body,
        }
    }

    /// It goes to another project than that of its sender, which is this one.
    #[must_use]
    pub fn with_origin(mut self, origin: ProjectId) -> Self {
        self.origin = Some(origin);
        self
    }

    /// Bytes of the envelope as far as it is encoded.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        self.body.len()
    }

    /// Makes it a message. `recipient` is there exactly when the draft was made for [`To::One`].
    #[must_use]
    pub fn seal(mut self, id: MessageId, recipient: Option<SessionId>, now: Now, watched: bool) -> Message {
        id.as_uuid().as_hyphenated().encode_lower(&mut self.body[ID_AT..]);
        self.body[TIMESTAMP_AT..TIMESTAMP_AT + 24].copy_from_slice(&rfc3339(now.unix_ms));
        if let Some(recipient) = recipient {
            recipient
                .as_uuid()
                .as_hyphenated()
                .encode_lower(&mut self.body[RECIPIENT_AT..]);
        }
        Message {
            id,
            sender: self.sender,
            origin: self.origin,
            recipient,
            priority: self.priority,
            ttl: self.ttl,
            body: self.body,
            progress: Progress::new(watched),
        }
    }
}

/// Whether a message is for one session or for whoever a filter lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    Direct,
    Broadcast,
}

fn write_json(out: &mut Vec<u8>, value: &impl Serialize) {
    // Writing plain values to memory cannot fail: there is neither I/O nor a map with other keys than strings.
    let _ = serde_json::to_writer(out, value);
}

/// An accepted message. Shared by everyone who holds it: queues, connections, dead letters.
#[derive(Debug)]
pub struct Message {
    pub id: MessageId,
    pub sender: SessionId,
    /// The project of the sender, if it is another than that of the recipient.
    pub origin: Option<ProjectId>,
    /// None for a broadcast.
    pub recipient: Option<SessionId>,
    pub priority: Priority,
    pub ttl: Option<Duration>,
    /// The JSON object of the envelope up to, not including, `delivery_count` and the closing brace.
    body: Vec<u8>,
    pub progress: Progress,
}

impl Message {
    /// How many bytes [`Message::write`] writes.
    #[must_use]
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

    /// The envelope as far as it is encoded: what a store keeps of a message beside its other fields.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// A message that a store kept. Nobody waits for it any more.
    #[must_use]
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
            body,
            progress: Progress::new(false),
        }
    }

    /// The same message for another recipient, as a redrive may ask for.
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
            body,
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
    /// As [`Message::body`] gave it.
    pub body: Vec<u8>,
}

const DELIVERY_COUNT: &[u8] = b",\"delivery_count\":";

/// How far a message has come, for a sender in this process that waits to be told.
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

    /// To how many recipients the message was handed over, and when last (milliseconds since the Unix epoch).
    pub fn delivered(&self) -> Option<(u32, u64)> {
        let count = self.delivered_count.load(Ordering::Acquire);
        (count > 0).then(|| (count, self.delivered_at_ms.load(Ordering::Relaxed)))
    }

    /// Says that the message was handed to one live connection, or returned by `receive_messages`.
    pub fn mark_delivered(&self, at_ms: u64) {
        self.delivered_at_ms.store(at_ms, Ordering::Relaxed);
        self.delivered_count.fetch_add(1, Ordering::Release);
        self.advance_to(DeliveryStatus::Delivered);
    }

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

    /// Whether anybody has such a view as [`Self::subscribe`] gives.
    pub fn has_subscribers(&self) -> bool {
        self.status.as_ref().is_some_and(|watch| watch.receiver_count() > 0)
    }

    /// A view of the status as it moves on; None when nobody asked for one at acceptance.
    pub fn subscribe(&self) -> Option<watch::Receiver<DeliveryStatus>> {
        self.status.as_ref().map(watch::Sender::subscribe)
    }
}

/// Makes ids that grow: within one generator a later message has a greater id, whatever the wall clock does.
#[derive(Debug, Default)]
pub struct MessageIds(ContextV7);

impl MessageIds {
    pub fn next(&self, now: Now) -> MessageId {
        let (seconds, millis) = (now.unix_ms / 1000, now.unix_ms % 1000);
        let timestamp = Timestamp::from_unix(&self.0, seconds, millis as u32 * 1_000_000);
        MessageId::from_uuid(Uuid::new_v7(timestamp))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        clock::now,
        model::{Capabilities, Owner},
    };

    fn sender(name: Option<&str>) -> SessionRecord {
        SessionRecord {
            id: SessionId::generate(),
            name: name.map(|name| crate::model::SessionName::parse(name).unwrap()),
            capabilities: Capabilities::default(),
            metadata: serde_json::Map::new(),
            connected_at_ms: 0,
            owner: Owner::anonymous(),
            holder: crate::model::Holder::default(),
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
        let draft = Draft::new(
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
        assert_eq!(message.body().len(), len, "the router writes into it and adds nothing");
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
        let draft = Draft::new(
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
    fn ids_grow_even_when_the_wall_clock_goes_back() {
        let ids = MessageIds::default();
        let mut last = ids.next(Now {
            unix_ms: 1_790_000_000_000,
            mono_ms: 0,
        });
        for step in 0..20_000_u64 {
            let next = ids.next(Now {
                unix_ms: 1_790_000_000_000 - step % 700,
                mono_ms: 0,
            });
            assert!(next > last, "{next} after {last}");
            last = next;
        }
    }

    #[test]
    fn an_id_holds_the_time_at_which_it_was_made() {
        let now = Now {
            unix_ms: 1_790_000_000_123,
            mono_ms: 0,
        };
        let id = MessageIds::default().next(now);
        let made = id.as_uuid().get_timestamp().map(|made| made.to_unix());
        assert_eq!(made, Some((1_790_000_000, 123_000_000)));
    }

    #[test]
    fn statuses_have_the_names_of_the_contract() {
        let reasons = [
            DeadLetterReason::Expired,
            DeadLetterReason::DeliveryLimit,
            DeadLetterReason::RecipientGone,
            DeadLetterReason::Rejected,
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
    fn a_message_is_followed_while_a_view_of_its_progress_is_held() {
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
