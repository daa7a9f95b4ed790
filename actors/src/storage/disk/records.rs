//! The layout of the records: a key is `space`, `kind` and the identity of the item.
//!
//! A space is a number that a project has until it is cleared; [`SYSTEM_SPACE`] holds what belongs to no project. Kinds
//! are ordered so that on reading back, a record follows those that it refers to.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    codec::{Decoded, RecordReader, RecordWriter, damaged},
    engine::Record,
    send_result::{read_send_result, write_send_result},
    status::{read_reason, read_status, reason_byte, write_status},
};
use crate::{
    model::{
        DeadLetter, DeadLetterReason, Message, MessageId, Outcome, Priority, ProjectId, RecipientStatus, SessionId,
        SessionName, SessionRecord, StoredMessage, Transformed,
    },
    storage::{
        LastSign, Table,
        events::{BlockHeader, HEADER_BYTES},
        state::{
            event_log::StoredPart,
            journal::{KeyUse, ReceiptKey, ReportProgress, WrittenEvents},
        },
    },
};

/// The layout version. A broker refuses later versions. Version 2 has added the event log, version 3 the
/// outcome at the end of a receipt, version 4 which dead letters are reported, questions, yaps, targets and the
/// lists of backends, version 5 the name of the recipient in a dead letter, version 6 lenses.
pub const VERSION: u32 = 6;
/// The layout version of data without lenses. A project writes [`VERSION`] with its first lens, so that earlier brokers refuse
/// the data from then on.
pub const VERSION_WITHOUT_LENSES: u32 = 5;

/// Used instead of the message id of a reservation.
const NO_MESSAGE: MessageId = MessageId::from_uuid(uuid::Uuid::nil());

/// The space of what belongs to no project.
pub const SYSTEM_SPACE: u32 = 0;

/// The kinds of records; the number is the fifth byte of the key.
pub mod kind {
    // In the system space.
    /// The layout version of the disk.
    pub const VERSION: u8 = 0;
    /// The space of a project.
    pub const SPACE: u8 = 1;
    /// A project record.
    pub const PROJECT: u8 = 2;
    /// An entry of the audit log.
    pub const AUDIT: u8 = 3;
    // In the space of a project.
    /// A session record.
    pub const SESSION: u8 = 10;
    /// A protocol record.
    pub const PROTOCOL: u8 = 11;
    /// The body of a message that several inboxes hold.
    pub const BODY: u8 = 12;
    /// How often a message in an inbox has been delivered, and what lenses did to it at the last delivery.
    pub const DELIVERIES: u8 = 13;
    /// A message in an inbox.
    pub const QUEUED: u8 = 14;
    /// A final receipt.
    pub const RECEIPT: u8 = 15;
    /// A dead letter.
    pub const DEAD_LETTER: u8 = 16;
    /// An idempotency key.
    pub const IDEMPOTENCY_KEY: u8 = 17;
    /// The target of a message to another project.
    pub const CROSS_PROJECT: u8 = 18;
    /// A part of a block of the event log.
    pub const EVENTS: u8 = 19;
    /// The content of a question.
    pub const QUESTION_CONTENT: u8 = 21;
    /// The record of a question.
    pub const QUESTION: u8 = 22;
    /// A draft of an answer.
    pub const DRAFT: u8 = 23;
    /// A yap that is held for the order.
    pub const HELD_YAP: u8 = 24;
    /// A yap that was shown.
    pub const SHOWN_YAP: u8 = 25;
    /// The number of the last yap that was shown, and the latest time that was.
    pub const LAST_YAP: u8 = 26;
    /// How far the events have been sent to a target.
    pub const TARGET: u8 = 27;
    /// The kept lists of a backend.
    pub const BACKEND_LISTS: u8 = 28;
    /// The table of an added backend.
    pub const ADDED_BACKEND: u8 = 29;
    /// A lens.
    pub const LENS: u8 = 30;
    /// Which dead letters are reported.
    pub const REPORT_PROGRESS: u8 = 20;
}

/// The kind of the records of a table. Their keys end with the key of the record, and their values are its text.
pub const fn kind_of(table: Table) -> u8 {
    match table {
        Table::Protocols => kind::PROTOCOL,
        Table::AddedBackends => kind::ADDED_BACKEND,
        Table::BackendLists => kind::BACKEND_LISTS,
        Table::Targets => kind::TARGET,
        Table::Lenses => kind::LENS,
    }
}

/// Reads the key of a record. Earlier versions wrote the length of the name, the name, and the version of a protocol.
///
/// # Errors
/// If the key is damaged.
pub fn read_key(table: Table, reader: &mut RecordReader<'_>) -> Decoded<Vec<u8>> {
    if table == Table::Protocols && reader.0.first() == Some(&0) {
        let name = reader.text()?;
        return Ok([name.as_bytes(), b" ", reader.rest()].concat());
    }
    Ok(reader.rest().to_vec())
}

/// The layout version, as a record.
pub fn layout_version(version: u32) -> Record {
    Record {
        key: key(SYSTEM_SPACE, kind::VERSION).0,
        value: Some(version.to_be_bytes().to_vec()),
    }
}

/// The beginning of a key.
pub fn key(space: u32, kind: u8) -> RecordWriter {
    RecordWriter::with_capacity(32).u32(space).u8(kind)
}

/// The key of an item that a receipt identifies. Such keys are short, and ascend as messages are accepted, so that what
/// is written together lies together.
pub fn receipt_key(space: u32, kind: u8, at: ReceiptKey) -> Vec<u8> {
    key(space, kind).u64(at.receipt).u32(at.recipient_index).0
}

/// The key of a dead letter.
pub fn dead_letter_key(space: u32, dead_letter: &DeadLetter) -> Vec<u8> {
    let key = key(space, kind::DEAD_LETTER).message(dead_letter.message.id);
    key.session(dead_letter.recipient).0
}

/// The key of an idempotency key.
pub fn idempotency_key(space: u32, sender: SessionId, text: &str) -> Vec<u8> {
    key(space, kind::IDEMPOTENCY_KEY)
        .session(sender)
        .rest(text.as_bytes())
        .0
}

/// Reads the identity from a key made by [`receipt_key`].
///
/// # Errors
/// If the key is too short.
pub fn read_receipt_key(reader: &mut RecordReader<'_>) -> Decoded<ReceiptKey> {
    Ok(ReceiptKey {
        receipt: reader.u64()?,
        recipient_index: reader.u32()?,
    })
}

/// JSON, for records that are rarely written: readable, and new fields take their default.
pub fn json(value: &impl Serialize) -> Vec<u8> {
    // Serialising plain values to memory cannot fail: no I/O, and no map with keys other than strings.
    serde_json::to_vec(value).unwrap_or_default()
}

/// Reads a record written by [`json`].
///
/// # Errors
/// If the JSON is invalid.
pub fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Decoded<T> {
    serde_json::from_slice(bytes).map_err(|error| damaged(&error.to_string()))
}

/// The value of a session: its record, and the last sign of life as one more member, which earlier versions ignore.
pub fn write_session(record: &SessionRecord, last_sign: Option<LastSign>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Stored<'a> {
        #[serde(flatten)]
        record: &'a SessionRecord,
        #[serde(skip_serializing_if = "Option::is_none")]
        last_sign: Option<LastSign>,
    }
    json(&Stored { record, last_sign })
}

/// Reads a value written by [`write_session`].
///
/// # Errors
/// If the JSON is invalid.
pub fn read_session(bytes: &[u8]) -> Decoded<(SessionRecord, Option<LastSign>)> {
    #[derive(Deserialize)]
    struct Kept {
        last_sign: Option<LastSign>,
    }
    let Kept { last_sign } = read_json(bytes)?;
    Ok((read_json(bytes)?, last_sign))
}

/// True if the body of a message is a record of its own, as that of a broadcast.
pub fn is_shared(message: &Message) -> bool {
    message.recipient.is_none()
}

/// Appends a message; the body only if it is not shared.
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

/// Reads a message to the end of the record. A shared body is left empty.
///
/// # Errors
/// If the record is damaged.
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
    priority.ok_or_else(|| damaged("an unknown priority"))
}

/// The value of a dead letter.
pub fn write_dead_letter(dead_letter: &DeadLetter, sequence: u64) -> Vec<u8> {
    let name = dead_letter.recipient_name.as_ref();
    let flag = if name.is_some() { HAS_NAME } else { 0 };
    let writer = RecordWriter::with_capacity(128 + dead_letter.message.body().len())
        .u64(sequence)
        .u8(reason_byte(dead_letter.reason) | flag)
        .u64(dead_letter.at_ms)
        .u32(dead_letter.deliveries);
    let writer = match name {
        Some(name) => writer.text(name.as_str()),
        None => writer,
    };
    write_message(writer, &dead_letter.message).0
}

/// Added to the reason of a dead letter: the name of the recipient precedes the message. Up to version 4 none has it.
const HAS_NAME: u8 = 0x80;

/// Reads a value written by [`write_dead_letter`]: what it says of the dead letter of this recipient, and the message.
///
/// # Errors
/// If the record is damaged.
pub fn read_dead_letter(reader: &mut RecordReader<'_>) -> Decoded<(u64, StoredDeadLetter)> {
    let (sequence, reason) = (reader.u64()?, reader.u8()?);
    let dead_letter = StoredDeadLetter {
        reason: read_reason(reason & !HAS_NAME)?,
        at_ms: reader.u64()?,
        deliveries: reader.u32()?,
        recipient_name: match reason & HAS_NAME {
            0 => None,
            _ => Some(SessionName::stored(reader.text()?).map_err(|_| damaged("an invalid name"))?),
        },
        message: read_message(reader)?,
    };
    Ok((sequence, dead_letter))
}

/// What is on the disk of a dead letter, besides its key.
#[derive(Debug)]
pub struct StoredDeadLetter {
    pub reason: DeadLetterReason,
    pub at_ms: u64,
    pub deliveries: u32,
    pub recipient_name: Option<SessionName>,
    pub message: StoredMessage,
}

/// The value of the progress of reports.
pub fn write_report_progress(progress: ReportProgress) -> Vec<u8> {
    let writer = RecordWriter::with_capacity(17).u64(progress.reported);
    writer.option(progress.claimed, RecordWriter::u64).0
}

/// Reads a value written by [`write_report_progress`].
///
/// # Errors
/// If the record is damaged.
pub fn read_report_progress(reader: &mut RecordReader<'_>) -> Decoded<ReportProgress> {
    Ok(ReportProgress {
        reported: reader.u64()?,
        claimed: reader.option(RecordReader::u64)?,
    })
}

/// Precedes what lenses did to a message; it is the code of no outcome. Up to version 5 no receipt has it.
const TRANSFORMED: u8 = b'T';

/// The value of a final receipt.
pub fn write_receipt(message: MessageId, entry: &RecipientStatus) -> Vec<u8> {
    let writer = RecordWriter::with_capacity(44)
        .message(message)
        .session(entry.session)
        .u64(entry.at_ms);
    let writer = write_status(writer, entry.status);
    let writer = match &entry.transformed {
        Some(transformed) => writer.u8(TRANSFORMED).text(transformed.text()),
        None => writer,
    };
    match &entry.outcome {
        Some(outcome) => writer.rest(&outcome.to_bytes()).0,
        None => writer.0,
    }
}

/// Reads a value written by [`write_receipt`].
///
/// # Errors
/// If the record is damaged.
pub fn read_receipt(reader: &mut RecordReader<'_>) -> Decoded<(MessageId, RecipientStatus)> {
    let message = reader.message()?;
    let session = reader.session()?;
    let at_ms = reader.u64()?;
    let status = read_status(reader)?;
    let transformed = if reader.0.first() == Some(&TRANSFORMED) {
        reader.u8()?;
        read_transformed(reader.text()?.as_bytes())?
    } else {
        None
    };
    let outcome = match reader.rest() {
        [] => None,
        bytes => Some(Outcome::from_bytes(bytes).ok_or_else(|| damaged("an outcome"))?),
    };
    let entry = RecipientStatus {
        session,
        status,
        at_ms,
        outcome,
        transformed,
    };
    Ok((message, entry))
}

/// Reads what lenses did to a message; nothing is None.
///
/// # Errors
/// If it is damaged.
pub fn read_transformed(text: &[u8]) -> Decoded<Option<Arc<Transformed>>> {
    if text.is_empty() {
        return Ok(None);
    }
    let transformed = Transformed::from_text(text).ok_or_else(|| damaged("a transformation"))?;
    Ok(Some(Arc::new(transformed)))
}

/// The value of an idempotency key. A reservation has the nil id, which no message has, in place of the message id.
pub fn write_key_use(until_unix_ms: u64, key_use: &KeyUse) -> Vec<u8> {
    let writer = RecordWriter::with_capacity(80).u64(until_unix_ms);
    match key_use {
        KeyUse::SendResult(result) => write_send_result(writer, result),
        KeyUse::Reservation { target, is_repeated } => {
            let writer = writer.message(NO_MESSAGE).u8(u8::from(*is_repeated));
            writer.rest(target.as_str().as_bytes()).0
        }
    }
}

/// Reads a value written by [`write_key_use`].
///
/// # Errors
/// If the record is damaged.
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

/// Reads the id of a project, to the end of the record.
///
/// # Errors
/// If the text is not a project id.
pub fn read_project(reader: &mut RecordReader<'_>) -> Decoded<ProjectId> {
    let text = std::str::from_utf8(std::mem::take(&mut reader.0)).ok();
    text.and_then(|text| ProjectId::parse(text).ok())
        .ok_or_else(|| damaged("an invalid project id"))
}

/// The beginning of the keys of a block of the event log.
pub fn events_prefix(space: u32, block: u64) -> RecordWriter {
    key(space, kind::EVENTS).u64(block)
}

/// The value of a part of a block: the incarnation of the log, and the part as a stored block.
pub fn write_events(part: &WrittenEvents<'_>) -> Vec<u8> {
    let writer = RecordWriter::with_capacity(8 + HEADER_BYTES + part.records.len());
    let writer = writer.u64(part.incarnation).rest(&part.header.to_bytes());
    writer.rest(part.records).0
}

/// Reads what a part of a block says of itself. The records remain.
///
/// # Errors
/// If the record is damaged.
pub fn read_events(key: &mut RecordReader<'_>, value: &mut RecordReader<'_>) -> Decoded<StoredPart> {
    let (block, first_index) = (key.u64()?, key.u32()?);
    let incarnation = value.u64()?;
    let header = BlockHeader::read(value.0).map_err(|_| damaged("a part of the event log"))?;
    value.0 = &value.0[HEADER_BYTES..];
    Ok(StoredPart {
        incarnation,
        block,
        first_index,
        header,
        len: value.0.len(),
    })
}

/// The key of a project's space.
pub fn space_key(project: &ProjectId) -> Vec<u8> {
    key(SYSTEM_SPACE, kind::SPACE).rest(project.as_str().as_bytes()).0
}

/// The key of a project record.
pub fn project_key(project: &ProjectId) -> Vec<u8> {
    key(SYSTEM_SPACE, kind::PROJECT).rest(project.as_str().as_bytes()).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_letter_of_an_earlier_version_has_no_name() {
        let (message, recipient) = (MessageId::from_uuid(uuid::Uuid::from_u128(1)), SessionId::BROKER);
        let stored = StoredMessage {
            id: message,
            sender: recipient,
            origin: None,
            recipient: Some(recipient),
            priority: Priority::High,
            ttl: None,
            body: b"{".to_vec(),
        };
        let message = Message::restore(stored.clone());
        let earlier = RecordWriter::default().u64(7).u8(3).u64(8).u32(9);
        let earlier = write_message(earlier, &message).0;
        let mut dead_letter = DeadLetter {
            message: message.into(),
            recipient,
            recipient_name: None,
            reason: DeadLetterReason::Rejected,
            at_ms: 8,
            deliveries: 9,
        };
        assert_eq!(write_dead_letter(&dead_letter, 7), earlier);
        dead_letter.recipient_name = SessionName::parse("bob").ok();
        for (bytes, name) in [
            (earlier, None),
            (write_dead_letter(&dead_letter, 7), dead_letter.recipient_name.clone()),
        ] {
            let (sequence, read) = read_dead_letter(&mut RecordReader(&bytes)).unwrap();
            assert_eq!((sequence, read.reason), (7, dead_letter.reason));
            assert_eq!((read.at_ms, read.deliveries), (8, 9));
            assert_eq!((read.recipient_name, read.message), (name, stored.clone()));
        }
    }

    #[test]
    fn the_last_sign_of_life_is_one_more_member_of_a_session() {
        let record = SessionRecord::unnamed();
        let sign = LastSign {
            at_ms: 7,
            has_left: false,
            is_connected: true,
        };
        let stored = write_session(&record, Some(sign));
        assert_eq!(read_session(&stored).unwrap(), (record.clone(), Some(sign)));
        let by_earlier_version: SessionRecord = read_json(&stored).unwrap();
        assert_eq!(by_earlier_version, record);
        assert_eq!(
            read_session(&json(&record)).unwrap(),
            (record, None),
            "of an earlier version"
        );
    }
}
