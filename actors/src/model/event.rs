//! Events: what happened in a project, as its event log keeps it.

use std::{collections::HashSet, sync::Arc};

use semver::Version;
use serde::Deserialize;
use uuid::Uuid;

use super::{
    AuditOutcome, DeadLetterReason, Headers, MessageId, ProjectId, ProtocolName, Question, QuestionId, SessionId,
    SessionName, Transformed,
};
use crate::clock::rfc3339;

/// Something that happened in a project.
///
/// ```text
/// Accepted { message: m1, sender: alice, recipients: One(bob), … }
/// Delivered { message: m1, session: bob, delivery: 1 }
/// Acknowledged { message: m1, session: bob }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectEvent {
    /// The store accepted a message.
    Accepted(Box<AcceptedMessage>),
    /// A message was leased to its recipient.
    Delivered {
        message: MessageId,
        session: SessionId,
        /// How often it has been delivered to this recipient, this delivery included.
        delivery: u32,
    },
    /// Lenses transformed a message for a delivery that was recorded before.
    Transformed {
        message: MessageId,
        session: SessionId,
        /// The number of the delivery.
        delivery: u32,
        transformed: Arc<Transformed>,
    },
    /// The recipient acknowledged a message.
    Acknowledged { message: MessageId, session: SessionId },
    /// A message that was delivered waits again.
    Released { message: MessageId, session: SessionId },
    /// The broker gave a message up for one recipient.
    DeadLettered {
        message: MessageId,
        session: SessionId,
        reason: DeadLetterReason,
        /// How often it had been delivered.
        deliveries: u32,
    },
    /// A dead letter waits again.
    Redriven {
        message: MessageId,
        /// The session for which it waits now.
        session: SessionId,
        /// The recipient for which it had been given up.
        from: SessionId,
    },
    /// A session came, went or changed its presence.
    Session {
        session: SessionId,
        name: Option<SessionName>,
        change: SessionChange,
    },
    /// A protocol was registered.
    Protocol {
        name: ProtocolName,
        version: Version,
        /// The session that registered it; None for a caller without one.
        by: Option<SessionId>,
    },
    /// A lens between two versions of a protocol was registered, replaced or removed.
    Lens {
        name: ProtocolName,
        /// The higher version, to which the lens belongs.
        version: Version,
        from: Version,
        change: LensChangeKind,
    },
    /// An actor of the project panicked.
    Actor { actor: ActorKind, change: ActorChange },
    /// An entry was added to the audit log of the project.
    Audit {
        /// The id of the entry.
        entry: Uuid,
        /// The action, such as `key.create`.
        action: String,
        outcome: AuditOutcome,
    },
    /// Events that happened before this one are missing: their replica could not write them to the shared log.
    Lost {
        /// The number of missing events.
        events: u64,
    },
    /// A question to people was asked, changed hands or ended.
    Question {
        question: QuestionId,
        /// The session that asks.
        asker: SessionId,
        change: QuestionChange,
        /// The person who made the change, or got the question; None for a change of the asker or of the broker.
        human: Option<SessionName>,
    },
}

impl ProjectEvent {
    /// A question was asked, changed hands or ended. `human` is the person who made the change, or got the question.
    pub const fn of_question(question: &Question, change: QuestionChange, human: Option<SessionName>) -> Self {
        Self::Question {
            question: question.id,
            asker: question.asker.session,
            change,
            human,
        }
    }

    /// An actor panicked and was started again.
    pub const fn restarted(actor: ActorKind) -> Self {
        let change = ActorChange::Restarted;
        Self::Actor { actor, change }
    }

    /// An actor panicked too often.
    pub const fn gave_up(actor: ActorKind) -> Self {
        let change = ActorChange::GaveUp;
        Self::Actor { actor, change }
    }

    /// The kind of the event.
    pub const fn kind(&self) -> EventKind {
        match self {
            Self::Accepted(_) => EventKind::Accepted,
            Self::Delivered { .. } => EventKind::Delivered,
            Self::Transformed { .. } => EventKind::Transformed,
            Self::Acknowledged { .. } => EventKind::Acknowledged,
            Self::Released { .. } => EventKind::Released,
            Self::DeadLettered { .. } => EventKind::DeadLettered,
            Self::Redriven { .. } => EventKind::Redriven,
            Self::Session { .. } => EventKind::Session,
            Self::Protocol { .. } => EventKind::Protocol,
            Self::Actor { .. } => EventKind::Actor,
            Self::Audit { .. } => EventKind::Audit,
            Self::Lost { .. } => EventKind::Lost,
            Self::Question { .. } => EventKind::Question,
            Self::Lens { .. } => EventKind::Lens,
        }
    }
}

macro_rules! named {
    ($(#[$attributes:meta])* $type:ident { $($(#[$variant_attributes:meta])* $variant:ident = $number:literal $name:literal,)* }) => {
        $(#[$attributes])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $type {
            $($(#[$variant_attributes])* $variant = $number,)*
        }

        impl $type {
            /// All variants.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name in the contract.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The variant with this number in the log; None for a number of a later version.
            pub const fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

named! {
    /// The kinds of events. The number is the one in the log, and never changes.
    EventKind {
        /// [`ProjectEvent::Accepted`].
        Accepted = 1 "accepted",
        /// [`ProjectEvent::Delivered`].
        Delivered = 2 "delivered",
        /// [`ProjectEvent::Acknowledged`].
        Acknowledged = 3 "acknowledged",
        /// [`ProjectEvent::Released`].
        Released = 4 "released",
        /// [`ProjectEvent::DeadLettered`].
        DeadLettered = 5 "dead_lettered",
        /// [`ProjectEvent::Redriven`].
        Redriven = 6 "redriven",
        /// [`ProjectEvent::Session`].
        Session = 7 "session",
        /// [`ProjectEvent::Protocol`].
        Protocol = 8 "protocol",
        /// [`ProjectEvent::Actor`].
        Actor = 9 "actor",
        /// [`ProjectEvent::Audit`].
        Audit = 10 "audit",
        /// [`ProjectEvent::Lost`].
        Lost = 11 "lost",
        /// [`ProjectEvent::Question`].
        Question = 12 "question",
        /// [`ProjectEvent::Lens`].
        Lens = 13 "lens",
        /// [`ProjectEvent::Transformed`].
        Transformed = 14 "transformed",
    }
}

named! {
    /// What happened to a lens.
    LensChangeKind {
        /// It is new.
        Registered = 1 "lens_registered",
        /// It replaces another one of the same versions.
        Replaced = 2 "lens_replaced",
        /// It was removed.
        Removed = 3 "lens_removed",
    }
}

named! {
    /// What happened to a question.
    QuestionChange {
        /// It is new.
        Asked = 1 "asked",
        /// It is shown to the console of a person first.
        Offered = 2 "offered",
        /// A person has opened it and writes.
        Claimed = 3 "claimed",
        /// It waits at the desk again.
        Returned = 4 "returned",
        /// A person gave it to another one, or back to the desk.
        HandedOver = 5 "handed_over",
        /// A person has answered it.
        Answered = 6 "answered",
        /// A person has declined it.
        Declined = 7 "declined",
        /// Its time was over.
        Expired = 8 "expired",
        /// The asker or an administrator cancelled it, or the asker is gone.
        Cancelled = 9 "cancelled",
        /// An administrator removed it.
        Removed = 10 "removed",
        /// A person has read it for the first time.
        Seen = 11 "seen",
        /// Its time is nearly over.
        Expiring = 12 "expiring",
        /// The answer to a sensitive question was deleted: the asker has it.
        AnswerDeleted = 13 "answer_deleted",
    }
}

named! {
    /// What happened to a session.
    SessionChange {
        /// It is new.
        Registered = 1 "registered",
        /// A client has taken it up again.
        Resumed = 2 "resumed",
        /// It has been silent for the stale threshold.
        Stale = 3 "stale",
        /// It was heard again after it had been silent.
        Active = 4 "active",
        /// It has no connection, or has been silent for the disconnect threshold.
        Disconnected = 5 "disconnected",
        /// It was removed.
        Ended = 6 "ended",
    }
}

named! {
    /// The actors of a project.
    ActorKind {
        /// The project itself.
        Project = 1 "project",
        /// The registry of protocols.
        Registry = 2 "registry",
        /// The router.
        Router = 3 "router",
        /// A session.
        Session = 4 "session",
        /// The desk.
        Desk = 5 "desk",
        /// The gateway.
        Gateway = 6 "gateway",
        /// A backend of the gateway.
        Backend = 7 "backend",
    }
}

named! {
    /// What happened to an actor.
    ActorChange {
        /// It panicked and was started again.
        Restarted = 1 "restarted",
        /// It panicked too often; its parent decides.
        GaveUp = 2 "gave_up",
    }
}

/// A set of kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EventKinds(u16);

impl EventKinds {
    /// Every kind.
    pub const ALL: Self = Self::of(EventKind::ALL);

    /// The kinds that are about messages.
    pub const MESSAGES: Self = Self::of(&[
        EventKind::Accepted,
        EventKind::Delivered,
        EventKind::Transformed,
        EventKind::Acknowledged,
        EventKind::Released,
        EventKind::DeadLettered,
        EventKind::Redriven,
    ]);

    /// These kinds.
    pub const fn of(kinds: &[EventKind]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < kinds.len() {
            bits |= 1 << kinds[at] as u16;
            at += 1;
        }
        Self(bits)
    }

    /// The kinds of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The kinds of this set that are not in the other one.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the sets have a kind in common.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the set contains a kind.
    pub const fn contains(self, kind: EventKind) -> bool {
        self.0 & (1 << kind as u16) != 0
    }
}

/// A message as the log keeps it: its envelope, without the payload unless the log keeps payloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedMessage {
    pub message: MessageId,
    pub sender: SessionId,
    /// The project of the sender, when it is another one.
    pub origin: Option<ProjectId>,
    pub recipients: LoggedRecipients,
    /// The `timestamp` of the envelope, in milliseconds since the Unix epoch.
    pub timestamp_ms: u64,
    /// The envelope from the value of `sender_name` up to the payload; see [`EnvelopeFragments::head`](super::EnvelopeFragments::head).
    pub head: String,
    /// The JSON text of the payload, if the log keeps payloads.
    pub payload: Option<String>,
    /// The envelope behind the payload; see [`EnvelopeFragments::tail`](super::EnvelopeFragments::tail). Of headers that are too long only the priority.
    pub tail: String,
}

/// To whom a message went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedRecipients {
    /// One session.
    One(SessionId),
    /// A broadcast: the marks of its recipients.
    Many(Vec<SessionMark>),
}

impl LoggedRecipients {
    /// Whether the session is among the recipients; see [`RecipientLookup::may_contain`].
    pub fn may_contain(&self, session: SessionId) -> bool {
        match self {
            Self::One(one) => *one == session,
            Self::Many(marks) => marks.contains(&SessionMark::of(session)),
        }
    }

    /// The recipients, to look many sessions up.
    pub fn lookup(&self) -> RecipientLookup {
        match self {
            Self::One(one) => RecipientLookup::One(*one),
            Self::Many(marks) => RecipientLookup::Many(marks.iter().copied().collect()),
        }
    }

    /// The number of recipients.
    pub fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(marks) => marks.len(),
        }
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The recipients of a message, by session.
#[derive(Debug)]
pub enum RecipientLookup {
    One(SessionId),
    Many(HashSet<SessionMark>),
}

impl RecipientLookup {
    /// Whether the session is among the recipients. For a broadcast the receipts are the truth: two sessions that began
    /// in the same millisecond at different replicas have the same mark once in 2^30 pairs.
    pub fn may_contain(&self, session: SessionId) -> bool {
        match self {
            Self::One(one) => *one == session,
            Self::Many(marks) => marks.contains(&SessionMark::of(session)),
        }
    }
}

/// The half of a session id by which the log recognizes a recipient of a broadcast: the lower half of its time and the
/// counter of its process, which tell apart the sessions of 49 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionMark(pub [u8; 8]);

impl SessionMark {
    /// The mark of a session.
    pub fn of(session: SessionId) -> Self {
        let id = session.as_uuid().as_bytes();
        let mut mark = [0; 8];
        mark[..4].copy_from_slice(&id[2..6]);
        mark[4..].copy_from_slice(&id[8..12]);
        Self(mark)
    }
}

/// What the head of an envelope says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct EnvelopeHead {
    pub sender_name: Option<String>,
    pub protocol_name: String,
    pub protocol_version: String,
}

impl AcceptedMessage {
    /// The name of the sender, and the protocol. None if the log of another version cannot be read.
    pub fn parse_head(&self) -> Option<EnvelopeHead> {
        serde_json::from_str(&format!("{{\"sender_name\":{}}}", self.head)).ok()
    }

    /// The headers. None if the log of another version cannot be read.
    pub fn parse_headers(&self) -> Option<Headers> {
        #[derive(Deserialize)]
        struct Tail {
            headers: Headers,
        }
        let tail: Tail = serde_json::from_str(&format!("{{{}}}", self.tail.strip_prefix(',')?)).ok()?;
        Some(tail.headers)
    }

    /// The header `thread_id`. A message without it is the first of the thread that its id names.
    pub fn parse_thread_id(&self) -> Option<String> {
        // Parsing costs more than the search for the name of the header, and most messages have none.
        if !self.tail.contains("\"thread_id\":") {
            return None;
        }
        self.parse_headers()?.thread_id
    }

    /// Appends the envelope as a JSON object, with this payload text if there is one. `project` is the project of the
    /// log.
    pub fn write_envelope(&self, project: &ProjectId, payload: Option<&str>, out: &mut Vec<u8>) {
        let mut put = |text: &[u8]| out.extend_from_slice(text);
        let mut id = [0; 36];
        put(b"{\"message_id\":\"");
        put(self.message.as_uuid().as_hyphenated().encode_lower(&mut id).as_bytes());
        put(b"\",\"timestamp\":\"");
        put(&rfc3339(self.timestamp_ms));
        match &self.recipients {
            LoggedRecipients::One(session) => {
                put(b"\",\"recipient_id\":\"");
                put(session.as_uuid().as_hyphenated().encode_lower(&mut id).as_bytes());
                put(b"\"");
            }
            LoggedRecipients::Many(_) => put(b"\",\"recipient_id\":null"),
        }
        put(b",\"project_id\":\"");
        put(self.origin.as_ref().unwrap_or(project).as_str().as_bytes());
        put(b"\",\"sender_id\":\"");
        put(self.sender.as_uuid().as_hyphenated().encode_lower(&mut id).as_bytes());
        put(b"\",\"sender_name\":");
        put(self.head.as_bytes());
        if let Some(payload) = payload {
            put(b",\"payload\":");
            put(payload.as_bytes());
        }
        put(self.tail.as_bytes());
        put(b"}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_contains_the_kinds_that_it_was_made_of() {
        for &kind in EventKind::ALL {
            assert!(EventKinds::ALL.contains(kind) && EventKinds::of(&[kind]).contains(kind));
            assert_eq!(EventKind::from_number(kind as u8), Some(kind));
            let others = EventKinds::ALL.without(EventKinds::of(&[kind]));
            assert!(!others.contains(kind));
            assert_eq!(others.union(EventKinds::of(&[kind])), EventKinds::ALL);
        }
        assert!(!EventKinds::MESSAGES.contains(EventKind::Audit));
        assert_eq!(EventKind::from_number(0), None);
    }
}
