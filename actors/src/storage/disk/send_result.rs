//! The result of a send, as it is kept under an idempotency key.

use super::{
    codec::{Decoded, RecordReader, RecordWriter, damaged},
    status::{read_status, write_status},
};
use crate::{
    model::{MessageId, SessionId, Transforms},
    storage::SendResult,
};

/// Used after the sessions that refused the message, where lenses do something to it.
const NO_SESSION: SessionId = SessionId::from_uuid(uuid::Uuid::nil());

/// Writes a result, the id of its message first.
pub fn write_send_result(writer: RecordWriter, result: &SendResult) -> Vec<u8> {
    let writer = writer
        .message(result.message)
        .u64(result.delivered as u64)
        .u64(result.queued as u64)
        .u64(result.skipped as u64)
        .u64(result.queue_len as u64)
        .option(result.delivered_at_ms, RecordWriter::u64)
        .option(result.status, write_status);
    let refused = result.refused.iter();
    let writer = refused.fold(writer, |writer, session| writer.session(*session));
    match &result.transforms {
        None => writer.0,
        // The nil id ends the list of those that refused the message.
        Some(transforms) => writer.session(NO_SESSION).rest(transforms.to_text().as_bytes()).0,
    }
}

/// Reads what follows the id of the message.
///
/// # Errors
/// If the record is damaged.
pub fn read_send_result(message: MessageId, reader: &mut RecordReader<'_>) -> Decoded<SendResult> {
    let mut count = || reader.u64().map(|count| count as usize);
    let (delivered, queued, skipped, queue_len) = (count()?, count()?, count()?, count()?);
    let delivered_at_ms = reader.option(RecordReader::u64)?;
    let status = reader.option(read_status)?;
    let (mut refused, mut transforms) = (Vec::new(), None);
    while !reader.0.is_empty() {
        let session = reader.session()?;
        if session == NO_SESSION {
            let text = std::mem::take(&mut reader.0);
            transforms = Some(Transforms::from_text(text).ok_or_else(|| damaged("what lenses do to a message"))?);
        } else {
            refused.push(session);
        }
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
        transforms,
    })
}
