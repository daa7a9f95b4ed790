//! One event as bytes.
//!
//! A record is the length of what follows, the kind (1 byte), the time as a difference to that of the block, and the fields
//! of the kind. Ids are 16 bytes; lengths, counts and differences are variable-length integers of 7 bits a byte, low bits
//! first, the signed ones zigzag-encoded. A reader skips a record whose kind it does not know.

mod writer;

use std::sync::Arc;

use semver::Version;
use uuid::Uuid;

pub use self::writer::RecordTime;
use self::writer::{FIXED_FIELDS_BYTES, FieldWriter, unzigzag, zigzag};
use crate::model::{
    AcceptedMessage, ActorChange, ActorKind, AuditOutcome, DeadLetterReason, EventKind, LensChangeKind,
    LoggedRecipients, Message, MessageId, Priority, ProjectEvent, ProjectId, ProtocolName, QuestionChange, QuestionId,
    SessionChange, SessionId, SessionMark, SessionName, Transformed,
};

/// Bytes of the largest payload that the log keeps. A larger one is left out.
pub const PAYLOAD_BYTES_MAX: usize = 256 << 10;

/// Bytes of the largest headers that the log keeps. Of larger ones it keeps the priority alone.
const TAIL_BYTES_MAX: usize = 8 << 10;

const DAY_MS: u64 = 86_400_000;

const HAS_MANY_RECIPIENTS: u8 = 1;
const HAS_ORIGIN: u8 = 2;
const HAS_PAYLOAD: u8 = 4;

/// The bytes are no event log, or a damaged one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event log is damaged")]
pub struct DamagedLog;

/// The result of decoding.
pub type Decoded<T> = Result<T, DamagedLog>;

/// Appends an accepted message. `recipients` are those that did not refuse it. False, and nothing appended, for a message
/// that was read back from a store.
pub fn write_accepted(
    out: &mut Vec<u8>,
    time: RecordTime,
    message: &Message,
    recipients: &[SessionId],
    with_payload: bool,
) -> bool {
    let Some(parts) = message.fragments() else {
        return false;
    };
    let recipients = match (message.recipient, recipients) {
        (Some(_), [one]) => RecipientsRef::One(*one),
        _ => RecipientsRef::Sessions(recipients),
    };
    let record = AcceptedRecord {
        message: message.id,
        sender: message.sender,
        origin: message.origin.as_ref(),
        recipients,
        timestamp_ms: timestamp_ms(parts.time_of_day_ms, time.at_ms),
        head: parts.head,
        payload: (with_payload && parts.payload.len() <= PAYLOAD_BYTES_MAX).then_some(parts.payload),
        tail: if parts.tail.len() <= TAIL_BYTES_MAX {
            parts.tail
        } else {
            short_tail(message.priority)
        },
    };
    record.write(out, time);
    true
}

/// The timestamp of the envelope, which is within half a day of `at_ms`.
fn timestamp_ms(time_of_day_ms: u64, at_ms: u64) -> u64 {
    let late_by = (at_ms % DAY_MS + DAY_MS).wrapping_sub(time_of_day_ms) % DAY_MS;
    if late_by <= DAY_MS / 2 {
        at_ms.wrapping_sub(late_by)
    } else {
        at_ms.wrapping_add(DAY_MS - late_by)
    }
}

/// The headers without what the sender may choose at length.
const fn short_tail(priority: Priority) -> &'static [u8] {
    match priority {
        Priority::Low => br#","headers":{"priority":"low"}"#,
        Priority::Normal => br#","headers":{"priority":"normal"}"#,
        Priority::High => br#","headers":{"priority":"high"}"#,
        Priority::Urgent => br#","headers":{"priority":"urgent"}"#,
    }
}

/// Appends a delivery.
pub fn write_delivered(out: &mut Vec<u8>, time: RecordTime, message: MessageId, session: SessionId, delivery: u32) {
    let fields = FieldWriter::begin(out, EventKind::Delivered, time);
    fields.message(message).session(session).number(delivery.into()).end();
}

/// Appends an acknowledgement.
pub fn write_acknowledged(out: &mut Vec<u8>, time: RecordTime, message: MessageId, session: SessionId) {
    let fields = FieldWriter::begin(out, EventKind::Acknowledged, time);
    fields.message(message).session(session).end();
}

/// Appends any event.
pub fn write_event(out: &mut Vec<u8>, time: RecordTime, event: &ProjectEvent) {
    if let ProjectEvent::Accepted(accepted) = event {
        return AcceptedRecord::of(accepted).write(out, time);
    }
    let fields = FieldWriter::begin(out, event.kind(), time);
    let fields = match event {
        ProjectEvent::Accepted(_) => fields,
        ProjectEvent::Delivered {
            message,
            session,
            delivery,
        } => fields.message(*message).session(*session).number((*delivery).into()),
        ProjectEvent::Transformed {
            message,
            session,
            delivery,
            transformed,
        } => {
            let fields = fields.message(*message).session(*session).number((*delivery).into());
            fields.text(transformed.text().as_bytes())
        }
        ProjectEvent::Acknowledged { message, session } | ProjectEvent::Released { message, session } => {
            fields.message(*message).session(*session)
        }
        ProjectEvent::DeadLettered {
            message,
            session,
            reason,
            deliveries,
        } => {
            let fields = fields.message(*message).session(*session).byte(reason_number(*reason));
            fields.number((*deliveries).into())
        }
        ProjectEvent::Redriven { message, session, from } => fields.message(*message).session(*session).session(*from),
        ProjectEvent::Session { session, name, change } => {
            let name = name.as_ref().map_or("", SessionName::as_str);
            fields.session(*session).byte(*change as u8).text(name.as_bytes())
        }
        ProjectEvent::Protocol { name, version, by } => {
            let fields = match by {
                Some(session) => fields.byte(1).session(*session),
                None => fields.byte(0),
            };
            fields
                .text(name.as_str().as_bytes())
                .text(version.to_string().as_bytes())
        }
        ProjectEvent::Lens {
            name,
            version,
            from,
            change,
        } => fields
            .byte(*change as u8)
            .text(name.as_str().as_bytes())
            .text(version.to_string().as_bytes())
            .text(from.to_string().as_bytes()),
        ProjectEvent::Actor { actor, change } => fields.byte(*actor as u8).byte(*change as u8),
        ProjectEvent::Audit { entry, action, outcome } => {
            let outcome = u8::from(*outcome == AuditOutcome::Refused);
            fields.bytes(entry.as_bytes()).byte(outcome).text(action.as_bytes())
        }
        ProjectEvent::Lost { events } => fields.number(*events),
        ProjectEvent::Question {
            question,
            asker,
            change,
            human,
        } => {
            let human = human.as_ref().map_or("", SessionName::as_str);
            let fields = fields.bytes(question.as_uuid().as_bytes()).session(*asker);
            fields.byte(*change as u8).text(human.as_bytes())
        }
    };
    fields.end();
}

/// Removes the next record from `rest`, without its length.
///
/// # Errors
/// [`DamagedLog`] if the record is incomplete.
pub fn take_record<'a>(rest: &mut &'a [u8]) -> Decoded<&'a [u8]> {
    let mut reader = Reader(rest);
    let len = reader.len()?;
    let record = reader.take(len)?;
    *rest = reader.0;
    if record.is_empty() { Err(DamagedLog) } else { Ok(record) }
}

/// The kind of a record that [`take_record`] returned; None for a kind of a later version.
pub fn kind_of(record: &[u8]) -> Option<EventKind> {
    EventKind::from_number(*record.first()?)
}

/// The time of a record, in milliseconds since the Unix epoch. `block_ms` is the time of its block.
///
/// # Errors
/// [`DamagedLog`] if the record is incomplete.
pub fn time_of(record: &[u8], block_ms: u64) -> Decoded<u64> {
    let mut reader = Reader(record.get(1..).ok_or(DamagedLog)?);
    reader.time(block_ms)
}

/// Reads a record of a known kind: its time in milliseconds since the Unix epoch, and the event.
///
/// # Errors
/// [`DamagedLog`] for anything that no `write_` function writes.
pub fn read_record(record: &[u8], block_ms: u64) -> Decoded<(u64, ProjectEvent)> {
    let kind = kind_of(record).ok_or(DamagedLog)?;
    let mut reader = Reader(&record[1..]);
    let at_ms = reader.time(block_ms)?;
    let event = reader.event(kind, at_ms)?;
    if reader.0.is_empty() {
        Ok((at_ms, event))
    } else {
        Err(DamagedLog)
    }
}

/// The fields of an accepted message, as they are written.
struct AcceptedRecord<'a> {
    message: MessageId,
    sender: SessionId,
    origin: Option<&'a ProjectId>,
    recipients: RecipientsRef<'a>,
    timestamp_ms: u64,
    head: &'a [u8],
    payload: Option<&'a [u8]>,
    tail: &'a [u8],
}

enum RecipientsRef<'a> {
    One(SessionId),
    Sessions(&'a [SessionId]),
    Marks(&'a [SessionMark]),
}

impl<'a> AcceptedRecord<'a> {
    fn of(accepted: &'a AcceptedMessage) -> Self {
        Self {
            message: accepted.message,
            sender: accepted.sender,
            origin: accepted.origin.as_ref(),
            recipients: match &accepted.recipients {
                LoggedRecipients::One(session) => RecipientsRef::One(*session),
                LoggedRecipients::Many(marks) => RecipientsRef::Marks(marks),
            },
            timestamp_ms: accepted.timestamp_ms,
            head: accepted.head.as_bytes(),
            payload: accepted.payload.as_deref().map(str::as_bytes),
            tail: accepted.tail.as_bytes(),
        }
    }

    fn write(&self, out: &mut Vec<u8>, time: RecordTime) {
        let marks_len = match &self.recipients {
            RecipientsRef::One(_) => None,
            RecipientsRef::Sessions(sessions) => Some(sessions.len()),
            RecipientsRef::Marks(marks) => Some(marks.len()),
        };
        let flag = |flag, is_set| if is_set { flag } else { 0 };
        let flags = flag(HAS_MANY_RECIPIENTS, marks_len.is_some())
            | flag(HAS_ORIGIN, self.origin.is_some())
            | flag(HAS_PAYLOAD, self.payload.is_some());
        let late_by = zigzag(time.at_ms.wrapping_sub(self.timestamp_ms).cast_signed());
        let texts = [
            self.origin.map(|origin| origin.as_str().as_bytes()),
            Some(self.head),
            self.payload,
            Some(self.tail),
        ];
        let texts_len: usize = texts.iter().flatten().map(|text| text.len()).sum();
        out.reserve(FIXED_FIELDS_BYTES + marks_len.unwrap_or(0) * 8 + texts_len);
        // Its names and headers usually take it past 127 bytes.
        let mut fields = FieldWriter::begin_with(2, out, EventKind::Accepted, time)
            .message(self.message)
            .session(self.sender)
            .byte(flags)
            .number(late_by);
        fields = match &self.recipients {
            RecipientsRef::One(session) => fields.session(*session),
            RecipientsRef::Sessions(_) | RecipientsRef::Marks(_) => fields.number(marks_len.unwrap_or(0) as u64),
        };
        match &self.recipients {
            RecipientsRef::One(_) => {}
            RecipientsRef::Sessions(sessions) => {
                for session in *sessions {
                    fields = fields.bytes(&SessionMark::of(*session).0);
                }
            }
            RecipientsRef::Marks(marks) => {
                for mark in *marks {
                    fields = fields.bytes(&mark.0);
                }
            }
        }
        for text in texts.into_iter().flatten() {
            fields = fields.text(text);
        }
        fields.end();
    }
}

const REASONS: [DeadLetterReason; 5] = [
    DeadLetterReason::Expired,
    DeadLetterReason::DeliveryLimit,
    DeadLetterReason::RecipientGone,
    DeadLetterReason::Rejected,
    DeadLetterReason::TransformFailed,
];

const fn reason_number(reason: DeadLetterReason) -> u8 {
    match reason {
        DeadLetterReason::Expired => 0,
        DeadLetterReason::DeliveryLimit => 1,
        DeadLetterReason::RecipientGone => 2,
        DeadLetterReason::Rejected => 3,
        DeadLetterReason::TransformFailed => 4,
    }
}

/// Decodes a record; holds the bytes that remain.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Decoded<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(DamagedLog)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Decoded<u8> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> Decoded<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let is_last = byte < 0x80;
            // The tenth byte has room for one bit, and a last byte of 0 is superfluous.
            if (shift == 63 && bits > 1) || (is_last && bits == 0 && shift > 0) {
                return Err(DamagedLog);
            }
            value |= bits << shift;
            if is_last {
                return Ok(value);
            }
        }
        Err(DamagedLog)
    }

    fn small_number(&mut self) -> Decoded<u32> {
        u32::try_from(self.number()?).map_err(|_| DamagedLog)
    }

    fn len(&mut self) -> Decoded<usize> {
        usize::try_from(self.number()?).map_err(|_| DamagedLog)
    }

    fn time(&mut self, block_ms: u64) -> Decoded<u64> {
        Ok(block_ms.wrapping_add_signed(unzigzag(self.number()?)))
    }

    fn uuid(&mut self) -> Decoded<Uuid> {
        Uuid::from_slice(self.take(16)?).map_err(|_| DamagedLog)
    }

    fn message(&mut self) -> Decoded<MessageId> {
        self.uuid().map(MessageId::from_uuid)
    }

    fn session(&mut self) -> Decoded<SessionId> {
        self.uuid().map(SessionId::from_uuid)
    }

    fn text(&mut self) -> Decoded<&'a str> {
        let len = self.len()?;
        std::str::from_utf8(self.take(len)?).map_err(|_| DamagedLog)
    }

    fn transformed(&mut self) -> Decoded<Arc<Transformed>> {
        let transformed = Transformed::from_text(self.text()?.as_bytes());
        transformed.map(Arc::new).ok_or(DamagedLog)
    }

    fn event(&mut self, kind: EventKind, at_ms: u64) -> Decoded<ProjectEvent> {
        Ok(match kind {
            EventKind::Accepted => ProjectEvent::Accepted(Box::new(self.accepted(at_ms)?)),
            EventKind::Delivered => ProjectEvent::Delivered {
                message: self.message()?,
                session: self.session()?,
                delivery: self.small_number()?,
            },
            EventKind::Transformed => ProjectEvent::Transformed {
                message: self.message()?,
                session: self.session()?,
                delivery: self.small_number()?,
                transformed: self.transformed()?,
            },
            EventKind::Acknowledged => ProjectEvent::Acknowledged {
                message: self.message()?,
                session: self.session()?,
            },
            EventKind::Released => ProjectEvent::Released {
                message: self.message()?,
                session: self.session()?,
            },
            EventKind::DeadLettered => ProjectEvent::DeadLettered {
                message: self.message()?,
                session: self.session()?,
                reason: *REASONS.get(usize::from(self.byte()?)).ok_or(DamagedLog)?,
                deliveries: self.small_number()?,
            },
            EventKind::Redriven => ProjectEvent::Redriven {
                message: self.message()?,
                session: self.session()?,
                from: self.session()?,
            },
            EventKind::Session => {
                let session = self.session()?;
                let change = SessionChange::from_number(self.byte()?).ok_or(DamagedLog)?;
                let name = self.name()?;
                ProjectEvent::Session { session, name, change }
            }
            EventKind::Protocol => {
                let by = match self.byte()? {
                    0 => None,
                    1 => Some(self.session()?),
                    _ => return Err(DamagedLog),
                };
                ProjectEvent::Protocol {
                    name: ProtocolName::parse(self.text()?).map_err(|_| DamagedLog)?,
                    version: Version::parse(self.text()?).map_err(|_| DamagedLog)?,
                    by,
                }
            }
            EventKind::Lens => {
                let change = LensChangeKind::from_number(self.byte()?).ok_or(DamagedLog)?;
                ProjectEvent::Lens {
                    name: ProtocolName::parse(self.text()?).map_err(|_| DamagedLog)?,
                    version: Version::parse(self.text()?).map_err(|_| DamagedLog)?,
                    from: Version::parse(self.text()?).map_err(|_| DamagedLog)?,
                    change,
                }
            }
            EventKind::Actor => ProjectEvent::Actor {
                actor: ActorKind::from_number(self.byte()?).ok_or(DamagedLog)?,
                change: ActorChange::from_number(self.byte()?).ok_or(DamagedLog)?,
            },
            EventKind::Audit => ProjectEvent::Audit {
                entry: self.uuid()?,
                outcome: match self.byte()? {
                    0 => AuditOutcome::Done,
                    1 => AuditOutcome::Refused,
                    _ => return Err(DamagedLog),
                },
                action: self.text()?.to_owned(),
            },
            EventKind::Lost => ProjectEvent::Lost { events: self.number()? },
            EventKind::Question => ProjectEvent::Question {
                question: self.uuid().map(QuestionId::from_uuid)?,
                asker: self.session()?,
                change: QuestionChange::from_number(self.byte()?).ok_or(DamagedLog)?,
                human: self.name()?,
            },
        })
    }

    /// A name; None for an empty text.
    fn name(&mut self) -> Decoded<Option<SessionName>> {
        match self.text()? {
            "" => Ok(None),
            name => Ok(Some(SessionName::stored(name).map_err(|_| DamagedLog)?)),
        }
    }

    fn accepted(&mut self, at_ms: u64) -> Decoded<AcceptedMessage> {
        let (message, sender) = (self.message()?, self.session()?);
        let flags = self.byte()?;
        if flags & !(HAS_MANY_RECIPIENTS | HAS_ORIGIN | HAS_PAYLOAD) != 0 {
            return Err(DamagedLog);
        }
        let late_by = unzigzag(self.number()?);
        let recipients = if flags & HAS_MANY_RECIPIENTS != 0 {
            let bytes = self.len()?.checked_mul(8).ok_or(DamagedLog)?;
            let (marks, _) = self.take(bytes)?.as_chunks::<8>();
            LoggedRecipients::Many(marks.iter().map(|mark| SessionMark(*mark)).collect())
        } else {
            LoggedRecipients::One(self.session()?)
        };
        let origin = if flags & HAS_ORIGIN != 0 {
            Some(ProjectId::parse(self.text()?).map_err(|_| DamagedLog)?)
        } else {
            None
        };
        Ok(AcceptedMessage {
            message,
            sender,
            origin,
            recipients,
            timestamp_ms: at_ms.wrapping_sub(late_by.cast_unsigned()),
            head: self.text()?.to_owned(),
            payload: if flags & HAS_PAYLOAD != 0 {
                Some(self.text()?.to_owned())
            } else {
                None
            },
            tail: self.text()?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests;
