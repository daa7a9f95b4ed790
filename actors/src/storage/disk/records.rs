//! How each thing is a record: `space`, `kind`, and then what it is known by.
//!
//! A space is a number that a project has until it is cleared; [`OFFICES`] is what belongs to no project. The order of
//! the kinds is that of reading them back: what is referred to comes first.

use std::time::Duration;

use serde::{Serialize, de::DeserializeOwned};

use super::codec::{Decoded, RecordReader, RecordWriter, damaged};
use crate::{
    model::{
        DeadLetter, DeadLetterReason, DeliveryStatus, Message, MessageId, Priority, ProjectId, RecipientStatus,
        SessionId, StoredMessage,
    },
    storage::{SendResult, memory::idempotency::KeyUse, receipts::ReceiptKey},
};

/// Of this layout. A later one is refused by its number.
pub const VERSION: u32 = 1;

/// In the place of a message that is not known yet.
const NO_MESSAGE: MessageId = MessageId::from_uuid(uuid::Uuid::nil());

/// The space of what belongs to no project.
pub const SYSTEM_SPACE: u32 = 0;

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
    pub const DEAD_LETTER: u8 = 16;
    pub const IDEMPOTENCY_KEY: u8 = 17;
    pub const CROSS_PROJECT: u8 = 18;
}

pub fn key(space: u32, kind: u8) -> RecordWriter {
    RecordWriter::with_capacity(32).u32(space).u8(kind)
}

/// Of what is known by its receipt: they ascend as messages are accepted, so that what is written together lies
/// together, and are short.
pub fn receipt_key(space: u32, kind: u8, at: ReceiptKey) -> Vec<u8> {
    key(space, kind).u64(at.receipt).u32(at.recipient_index).0
}

pub fn dead_letter_key(space: u32, letter: &DeadLetter) -> Vec<u8> {
    let key = key(space, kind::DEAD_LETTER).message(letter.message.id);
    key.session(letter.recipient).0
}

pub fn idempotency_key(space: u32, sender: SessionId, text: &str) -> Vec<u8> {
    key(space, kind::IDEMPOTENCY_KEY)
        .session(sender)
        .rest(text.as_bytes())
        .0
}

pub fn read_receipt_key(reader: &mut RecordReader<'_>) -> Decoded<ReceiptKey> {
    Ok(ReceiptKey {
        receipt: reader.u64()?,
        recipient_index: reader.u32()?,
    })
}

/// What is written rarely: readable, and new fields find a default.
pub fn json(value: &impl Serialize) -> Vec<u8> {
    // Writing plain values to memory cannot fail: there is neither I/O nor a map with other keys than strings.
    serde_json::to_vec(value).unwrap_or_default()
}

pub fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Decoded<T> {
    serde_json::from_slice(bytes).map_err(|error| damaged(&error.to_string()))
}

/// Whether the body of a message is a record of its own: a broadcast waits in many inboxes.
pub fn is_shared(message: &Message) -> bool {
    message.recipient.is_none()
}

/// A message without its id, and without its body when that is shared.
pub fn write_message(writer: RecordWriter, message: &Message) -> RecordWriter {
    let writer = writer
        .message(message.id)
        .session(message.sender)
        .option(message.origin.as_ref(), |writer, origin| writer.text(origin.as_str()))
        .option(message.recipient, RecordWriter::session)
        .u8(message.priority as u8)
        .option(message.ttl, |writer, ttl| writer.u64(ttl.as_secs()));
    if is_shared(message) {
        writer
    } else {
        writer.rest(message.body())
    }
}

/// Reads to the end. The body of one that is shared is left empty.
pub fn read_message(reader: &mut RecordReader<'_>) -> Decoded<StoredMessage> {
    Ok(StoredMessage {
        id: reader.message()?,
        sender: reader.session()?,
        origin: reader.option(RecordReader::project)?,
        recipient: reader.option(RecordReader::session)?,
        priority: read_priority(reader.u8()?)?,
        ttl: reader.option(RecordReader::u64)?.map(Duration::from_secs),
        body: reader.rest().to_vec(),
    })
}

fn read_priority(byte: u8) -> Decoded<Priority> {
    let priority = Priority::ALL.get(usize::from(byte)).copied();
    priority.ok_or_else(|| damaged("a priority is none"))
}

pub fn write_dead_letter(letter: &DeadLetter, death: u64) -> Vec<u8> {
    let writer = RecordWriter::with_capacity(128 + letter.message.body().len())
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

pub fn read_reason(byte: u8) -> Decoded<DeadLetterReason> {
    let reason = REASONS.get(usize::from(byte)).copied();
    reason.ok_or_else(|| damaged("a reason is none"))
}

fn write_status(writer: RecordWriter, status: DeliveryStatus) -> RecordWriter {
    match status {
        DeliveryStatus::Queued => writer.u8(0),
        DeliveryStatus::Delivered => writer.u8(1),
        DeliveryStatus::Acknowledged => writer.u8(2),
        DeliveryStatus::Expired => writer.u8(3),
        DeliveryStatus::DeadLettered(reason) => writer.u8(4).u8(reason_byte(reason)),
    }
}

fn read_status(reader: &mut RecordReader<'_>) -> Decoded<DeliveryStatus> {
    Ok(match reader.u8()? {
        0 => DeliveryStatus::Queued,
        1 => DeliveryStatus::Delivered,
        2 => DeliveryStatus::Acknowledged,
        3 => DeliveryStatus::Expired,
        4 => DeliveryStatus::DeadLettered(read_reason(reader.u8()?)?),
        _ => return Err(damaged("a status is none")),
    })
}

pub fn write_receipt(message: MessageId, entry: &RecipientStatus) -> Vec<u8> {
    let writer = RecordWriter::with_capacity(44)
        .message(message)
        .session(entry.session)
        .u64(entry.at_ms);
    write_status(writer, entry.status).0
}

pub fn read_receipt(reader: &mut RecordReader<'_>) -> Decoded<(MessageId, RecipientStatus)> {
    let message = reader.message()?;
    let session = reader.session()?;
    let at_ms = reader.u64()?;
    let status = read_status(reader)?;
    let entry = RecipientStatus { session, status, at_ms };
    Ok((message, entry))
}

/// Of an idempotency key. A reservation has the nil id, which no message has, in the place of the message's.
pub fn write_key_use(until_unix_ms: u64, by: &KeyUse) -> Vec<u8> {
    let writer = RecordWriter::with_capacity(80).u64(until_unix_ms);
    match by {
        KeyUse::SendResult(outcome) => write_send_result(writer, outcome),
        KeyUse::Reservation { target, is_repeated } => {
            let writer = writer.message(NO_MESSAGE).u8(u8::from(*is_repeated));
            writer.rest(target.as_str().as_bytes()).0
        }
    }
}

pub fn read_key_use(reader: &mut RecordReader<'_>) -> Decoded<(u64, KeyUse)> {
    let until_unix_ms = reader.u64()?;
    let message = reader.message()?;
    if message != NO_MESSAGE {
        return Ok((until_unix_ms, KeyUse::SendResult(read_send_result(message, reader)?)));
    }
    let is_repeated = reader.u8()? != 0;
    let target = read_project(reader)?;
    Ok((until_unix_ms, KeyUse::Reservation { target, is_repeated }))
}

/// The id of a project, to the end of the record.
pub fn read_project(reader: &mut RecordReader<'_>) -> Decoded<ProjectId> {
    let text = std::str::from_utf8(std::mem::take(&mut reader.0)).ok();
    text.and_then(|text| ProjectId::parse(text).ok())
        .ok_or_else(|| damaged("a project id is none"))
}

fn write_send_result(writer: RecordWriter, outcome: &SendResult) -> Vec<u8> {
    let writer = writer
        .message(outcome.message)
        .u64(outcome.delivered as u64)
        .u64(outcome.queued as u64)
        .u64(outcome.skipped as u64)
        .u64(outcome.queue_len as u64)
        .option(outcome.delivered_at_ms, RecordWriter::u64)
        .option(outcome.status, write_status);
    let refused = outcome.refused.iter();
    refused.fold(writer, |writer, session| writer.session(*session)).0
}

fn read_send_result(message: MessageId, reader: &mut RecordReader<'_>) -> Decoded<SendResult> {
    let mut count = || reader.u64().map(|count| count as usize);
    let (delivered, queued, skipped, queue_len) = (count()?, count()?, count()?, count()?);
    let delivered_at_ms = reader.option(RecordReader::u64)?;
    let status = reader.option(read_status)?;
    let mut refused = Vec::new();
    while !reader.0.is_empty() {
        refused.push(reader.session()?);
    }
    Ok(SendResult {
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
    key(SYSTEM_SPACE, kind::SPACE).rest(project.as_str().as_bytes()).0
}

pub fn project_key(project: &ProjectId) -> Vec<u8> {
    key(SYSTEM_SPACE, kind::PROJECT).rest(project.as_str().as_bytes()).0
}
