//! The status of a message, and the reason of a dead letter, in a record.

use super::codec::{Decoded, RecordReader, RecordWriter, damaged};
use crate::model::{DeadLetterReason, DeliveryStatus};

const REASONS: [DeadLetterReason; 5] = [
    DeadLetterReason::Expired,
    DeadLetterReason::DeliveryLimit,
    DeadLetterReason::RecipientGone,
    DeadLetterReason::Rejected,
    DeadLetterReason::TransformFailed,
];

/// The number of a reason. It must not change.
pub const fn reason_byte(reason: DeadLetterReason) -> u8 {
    match reason {
        DeadLetterReason::Expired => 0,
        DeadLetterReason::DeliveryLimit => 1,
        DeadLetterReason::RecipientGone => 2,
        DeadLetterReason::Rejected => 3,
        DeadLetterReason::TransformFailed => 4,
    }
}

/// Reads the reason of a dead letter.
///
/// # Errors
/// For an unknown number.
pub fn read_reason(byte: u8) -> Decoded<DeadLetterReason> {
    let reason = REASONS.get(usize::from(byte)).copied();
    reason.ok_or_else(|| damaged("an unknown reason"))
}

/// Writes a status.
pub fn write_status(writer: RecordWriter, status: DeliveryStatus) -> RecordWriter {
    match status {
        DeliveryStatus::Queued => writer.u8(0),
        DeliveryStatus::Delivered => writer.u8(1),
        DeliveryStatus::Acknowledged => writer.u8(2),
        DeliveryStatus::Expired => writer.u8(3),
        DeliveryStatus::DeadLettered(reason) => writer.u8(4).u8(reason_byte(reason)),
    }
}

/// Reads a status.
///
/// # Errors
/// For an unknown number.
pub fn read_status(reader: &mut RecordReader<'_>) -> Decoded<DeliveryStatus> {
    Ok(match reader.u8()? {
        0 => DeliveryStatus::Queued,
        1 => DeliveryStatus::Delivered,
        2 => DeliveryStatus::Acknowledged,
        3 => DeliveryStatus::Expired,
        4 => DeliveryStatus::DeadLettered(read_reason(reader.u8()?)?),
        _ => return Err(damaged("an unknown status")),
    })
}
