//! How each thing is a record: `space`, `kind`, and then what it is known by.
//!
//! A space is a number that a project has until it is cleared; [`OFFICES`] is what belongs to no project. The order of
//! the kinds is that of reading them back: what is referred to comes first.

use std::time::Duration;

use serde::{Serialize, de::DeserializeOwned};

use super::codec::{Read, Reader, Writer, damaged};
use crate::{
    model::{
        DeadLetter, DeadLetterReason, KeptMessage, Message, MessageId, Priority, ProjectId, RecipientStatus, SessionId,
        Status,
    },
    storage::{Outcome, memory::idempotency::TakenBy, receipts::ReceiptKey},
};

/// Of this layout. A later one is refused by its number.
pub const VERSION: u32 = 1;

/// In the place of a message that is not known yet.
const NO_MESSAGE: MessageId = MessageId::from_uuid(uuid::Uuid::nil());

/// The space of what belongs to no project.
pub const OFFICES: u32 = 0;

pub mod kind {
    // In the space of the offices.
    pub const VERSION: u8 = 0;
    pub const SPACE: u8 = 1;
    pub const PROJECT: u8 = 2;
    pub const AUDIT: u8 = 3;
    // In that of a project.
    pub const SESSION: u8 = 10;
    pub const PROTOCOL: u8 = 11;
    /// Of a message that several inboxes hold, once.
    pub const BODY: u8 = 12;
    pub const DELIVERIES: u8 = 13;
    pub const QUEUED: u8 = 14;
    pub const RECEIPT: u8 = 15;
    pub const LETTER: u8 = 16;
    pub const OUTCOME: u8 = 17;
    pub const CROSSING: u8 = 18;
}

pub fn key(space: u32, kind: u8) -> Writer {
    Writer::with_capacity(32).u32(space).u8(kind)
}

/// Of what is known by its receipt: they ascend as messages are accepted, so that what is written together lies
/// together, and are short.
pub fn place_key(space: u32, kind: u8, at: ReceiptKey) -> Vec<u8> {
    key(space, kind).u64(at.receipt).u32(at.recipient).0
}

pub fn letter_key(space: u32, letter: &DeadLetter) -> Vec<u8> {
    let key = key(space, kind::LETTER).message(letter.message.id);
    key.session(letter.recipient).0
}

pub fn outcome_key(space: u32, sender: SessionId, text: &str) -> Vec<u8> {
    key(space, kind::OUTCOME).session(sender).rest(text.as_bytes()).0
}

pub fn read_place(reader: &mut Reader<'_>) -> Read<ReceiptKey> {
    Ok(ReceiptKey {
        receipt: reader.u64()?,
        recipient: reader.u32()?,
    })
}

/// What is written rarely: readable, and new fields find a default.
pub fn json(value: &impl Serialize) -> Vec<u8> {
    // Writing plain values to memory cannot fail: there is neither I/O nor a map with other keys than strings.
    serde_json::to_vec(value).unwrap_or_default()
}

pub fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Read<T> {
    serde_json::from_slice(bytes).map_err(|error| damaged(&error.to_string()))
}

/// Whether the body of a message is a record of its own: a broadcast waits in many inboxes.
pub fn is_shared(message: &Message) -> bool {
    message.recipient.is_none()
}

/// A message without its id, and without its body when that is shared.
pub fn write_message(writer: Writer, message: &Message) -> Writer {
    let writer = writer
        .message(message.id)
        .session(message.sender)
        .option(message.origin.as_ref(), |writer, origin| writer.text(origin.as_str()))
        .option(message.recipient, Writer::session)
        .u8(message.priority as u8)
        .option(message.ttl, |writer, ttl| writer.u64(ttl.as_secs()));
    if is_shared(message) {
        writer
    } else {
        writer.rest(message.body())
    }
}

/// Reads to the end. The body of one that is shared is left empty.
pub fn read_message(reader: &mut Reader<'_>) -> Read<KeptMessage> {
    Ok(KeptMessage {
        id: reader.message()?,
        sender: reader.session()?,
        origin: reader.option(Reader::project)?,
        recipient: reader.option(Reader::session)?,
        priority: read_priority(reader.u8()?)?,
        ttl: reader.option(Reader::u64)?.map(Duration::from_secs),
        body: reader.rest().to_vec(),
    })
}

fn read_priority(byte: u8) -> Read<Priority> {
    let priority = Priority::ALL.get(usize::from(byte)).copied();
    priority.ok_or_else(|| damaged("a priority is none"))
}

pub fn write_letter(letter: &DeadLetter, death: u64) -> Vec<u8> {
    let writer = Writer::with_capacity(128 + letter.message.body().len())
        .u64(death)
        .u8(reason_byte(letter.reason))
        .u64(letter.at_ms)
        .u32(letter.deliveries);
    write_message(writer, &letter.message).0
}

const REASONS: [DeadLetterReason; 4] = [
    DeadLetterReason::Expired,
    DeadLetterReason::DeliveryLimit,
    DeadLetterReason::RecipientGone,
    DeadLetterReason::Rejected,
];

fn reason_byte(reason: DeadLetterReason) -> u8 {
    match reason {
        DeadLetterReason::Expired => 0,
        DeadLetterReason::DeliveryLimit => 1,
        DeadLetterReason::RecipientGone => 2,
        DeadLetterReason::Rejected => 3,
    }
}

pub fn read_reason(byte: u8) -> Read<DeadLetterReason> {
    let reason = REASONS.get(usize::from(byte)).copied();
    reason.ok_or_else(|| damaged("a reason is none"))
}

fn write_status(writer: Writer, status: Status) -> Writer {
    match status {
        Status::Queued => writer.u8(0),
        Status::Delivered => writer.u8(1),
        Status::Acknowledged => writer.u8(2),
        Status::Expired => writer.u8(3),
        Status::DeadLettered(reason) => writer.u8(4).u8(reason_byte(reason)),
    }
}

fn read_status(reader: &mut Reader<'_>) -> Read<Status> {
    Ok(match reader.u8()? {
        0 => Status::Queued,
        1 => Status::Delivered,
        2 => Status::Acknowledged,
        3 => Status::Expired,
        4 => Status::DeadLettered(read_reason(reader.u8()?)?),
        _ => return Err(damaged("a status is none")),
    })
}

pub fn write_receipt(message: MessageId, entry: &RecipientStatus) -> Vec<u8> {
    let writer = Writer::with_capacity(44)
        .message(message)
        .session(entry.session)
        .u64(entry.at_ms);
    write_status(writer, entry.status).0
}

pub fn read_receipt(reader: &mut Reader<'_>) -> Read<(MessageId, RecipientStatus)> {
    let message = reader.message()?;
    let session = reader.session()?;
    let at_ms = reader.u64()?;
    let status = read_status(reader)?;
    let entry = RecipientStatus { session, status, at_ms };
    Ok((message, entry))
}

/// Of an idempotency key. A reservation has the nil id, which no message has, in the place of the message's.
pub fn write_taken(until_unix_ms: u64, by: &TakenBy) -> Vec<u8> {
    let writer = Writer::with_capacity(80).u64(until_unix_ms);
    match by {
        TakenBy::Outcome(outcome) => write_outcome(writer, outcome),
        TakenBy::Reservation { target, is_repeated } => {
            let writer = writer.message(NO_MESSAGE).u8(u8::from(*is_repeated));
            writer.rest(target.as_str().as_bytes()).0
        }
    }
}

pub fn read_taken(reader: &mut Reader<'_>) -> Read<(u64, TakenBy)> {
    let until_unix_ms = reader.u64()?;
    let message = reader.message()?;
    if message != NO_MESSAGE {
        return Ok((until_unix_ms, TakenBy::Outcome(read_outcome(message, reader)?)));
    }
    let is_repeated = reader.u8()? != 0;
    let target = read_project(reader)?;
    Ok((until_unix_ms, TakenBy::Reservation { target, is_repeated }))
}

/// The id of a project, to the end of the record.
pub fn read_project(reader: &mut Reader<'_>) -> Read<ProjectId> {
    let text = std::str::from_utf8(std::mem::take(&mut reader.0)).ok();
    text.and_then(|text| ProjectId::parse(text).ok())
        .ok_or_else(|| damaged("a project id is none"))
}

fn write_outcome(writer: Writer, outcome: &Outcome) -> Vec<u8> {
    let writer = writer
        .message(outcome.message)
        .u64(outcome.delivered as u64)
        .u64(outcome.queued as u64)
        .u64(outcome.skipped as u64)
        .u64(outcome.queue_len as u64)
        .option(outcome.delivered_at_ms, Writer::u64)
        .option(outcome.status, write_status);
    let refused = outcome.refused.iter();
    refused.fold(writer, |writer, session| writer.session(*session)).0
}

fn read_outcome(message: MessageId, reader: &mut Reader<'_>) -> Read<Outcome> {
    let mut count = || reader.u64().map(|count| count as usize);
    let (delivered, queued, skipped, queue_len) = (count()?, count()?, count()?, count()?);
    let delivered_at_ms = reader.option(Reader::u64)?;
    let status = reader.option(read_status)?;
    let mut refused = Vec::new();
    while !reader.0.is_empty() {
        refused.push(reader.session()?);
    }
    Ok(Outcome {
        message,
        delivered,
        queued,
        skipped,
        queue_len,
        refused,
        delivered_at_ms,
        status,
    })
}

pub fn space_key(project: &ProjectId) -> Vec<u8> {
    key(OFFICES, kind::SPACE).rest(project.as_str().as_bytes()).0
}

pub fn project_key(project: &ProjectId) -> Vec<u8> {
    key(OFFICES, kind::PROJECT).rest(project.as_str().as_bytes()).0
}
