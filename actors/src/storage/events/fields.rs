//! The fields of an event, for a store whose functions write the record.

use super::record::{RecordTime, take_record, write_event};
use crate::model::ProjectEvent;

/// The record of an event that is not an accepted message, without the length, the kind and the time.
pub fn fields_of(event: &ProjectEvent) -> Vec<u8> {
    let mut record = Vec::new();
    let (at_ms, block_ms) = (0, 0);
    write_event(&mut record, RecordTime { at_ms, block_ms }, event);
    // Of one byte each: the kind, and the difference of the times, which is 0.
    let fields = take_record(&mut record.as_slice())
        .ok()
        .and_then(|record| record.get(2..));
    fields.unwrap_or_default().to_vec()
}
