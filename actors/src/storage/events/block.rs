//! Blocks: the unit in which the event log is kept, read and trimmed.
//!
//! A stored block is a header of [`HEADER_BYTES`] and records. The header is the version (1 byte), the number of records and of
//! accepted messages (4 bytes each), and the time of the first record and the latest time (8 bytes each, milliseconds since
//! the Unix epoch). Its numbers are big-endian.

use bytes::Bytes;

use super::record::{self, DamagedLog, Decoded, RecordTime};
use crate::model::{EventKind, EventKinds, Message, MessageId, ProjectEvent, SessionId};

/// A block of this many bytes gets no further record. Only one large record takes a block past it.
pub const BLOCK_BYTES: usize = 64 << 10;

/// The capacity of a block that is written: room for the record that fills it, unless that is a large one. Without the room,
/// most blocks are copied twice at their end.
const BLOCK_CAPACITY: usize = BLOCK_BYTES + (4 << 10);

/// Bytes of the header of a stored block.
pub const HEADER_BYTES: usize = 25;

/// The version that this build writes and reads.
const VERSION: u8 = 1;

/// What is known of a block without reading its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockHeader {
    /// The number of records.
    pub records: u32,
    /// How many of them are accepted messages.
    pub accepted: u32,
    /// The time of the first record, in milliseconds since the Unix epoch.
    pub first_ms: u64,
    /// The latest time of a record, in milliseconds since the Unix epoch.
    pub last_ms: u64,
    /// Kinds that the records may have. Not stored: of a block that was read it is every kind.
    pub kinds: EventKinds,
}

impl BlockHeader {
    /// The stored form.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [VERSION; HEADER_BYTES];
        bytes[1..5].copy_from_slice(&self.records.to_be_bytes());
        bytes[5..9].copy_from_slice(&self.accepted.to_be_bytes());
        bytes[9..17].copy_from_slice(&self.first_ms.to_be_bytes());
        bytes[17..].copy_from_slice(&self.last_ms.to_be_bytes());
        bytes
    }

    /// Reads the stored form from the beginning of `bytes`.
    ///
    /// # Errors
    /// [`DamagedLog`] for another version, or too few bytes.
    pub fn read(bytes: &[u8]) -> Decoded<Self> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(DamagedLog)?;
        let [version, a0, a1, a2, a3, b0, b1, b2, b3, times @ ..] = *header;
        let (first, last) = times.split_first_chunk::<8>().ok_or(DamagedLog)?;
        if version != VERSION {
            return Err(DamagedLog);
        }
        Ok(Self {
            records: u32::from_be_bytes([a0, a1, a2, a3]),
            accepted: u32::from_be_bytes([b0, b1, b2, b3]),
            first_ms: u64::from_be_bytes(*first),
            last_ms: u64::from_be_bytes(last.try_into().map_err(|_| DamagedLog)?),
            kinds: EventKinds::ALL,
        })
    }

    /// Adds what a later part of the same block contains.
    pub fn extend(&mut self, later: &Self) {
        if self.records == 0 {
            self.first_ms = later.first_ms;
        }
        self.records = self.records.saturating_add(later.records);
        self.accepted = self.accepted.saturating_add(later.accepted);
        self.last_ms = self.last_ms.max(later.last_ms);
        self.kinds = self.kinds.union(later.kinds);
    }
}

/// A block that is read.
#[derive(Clone, Debug)]
pub struct Block {
    /// The number of the block; see [`EventPosition::block`](super::EventPosition::block).
    pub number: u64,
    /// What its header says.
    pub header: BlockHeader,
    /// The records alone.
    pub records: Bytes,
}

impl Block {
    /// A block from its stored form.
    ///
    /// # Errors
    /// [`DamagedLog`] if the header cannot be read. The records are checked as they are read.
    pub fn from_stored(number: u64, mut stored: Bytes) -> Decoded<Self> {
        let header = BlockHeader::read(&stored)?;
        Ok(Self {
            number,
            header,
            records: stored.split_off(HEADER_BYTES),
        })
    }
}

/// A block that is written.
#[derive(Debug, Default)]
pub struct BlockWriter {
    header: BlockHeader,
    records: Vec<u8>,
}

impl BlockWriter {
    /// What the header would say.
    pub const fn header(&self) -> &BlockHeader {
        &self.header
    }

    /// The records.
    pub fn records(&self) -> &[u8] {
        &self.records
    }

    /// True if the block has no record.
    pub const fn is_empty(&self) -> bool {
        self.header.records == 0
    }

    /// True if the block gets no further record.
    pub const fn is_full(&self) -> bool {
        self.records.len() + HEADER_BYTES >= BLOCK_BYTES
    }

    /// Records that the store accepted a message for these recipients.
    pub fn accepted(&mut self, message: &Message, recipients: &[SessionId], with_payload: bool, at_ms: u64) {
        let time = self.time(at_ms);
        if record::write_accepted(&mut self.records, time, message, recipients, with_payload) {
            self.count(EventKind::Accepted, at_ms);
            self.header.accepted += 1;
        }
    }

    /// Records a delivery.
    #[inline]
    pub fn delivered(&mut self, message: MessageId, session: SessionId, delivery: u32, at_ms: u64) {
        let time = self.time(at_ms);
        record::write_delivered(&mut self.records, time, message, session, delivery);
        self.count(EventKind::Delivered, at_ms);
    }

    /// Records an acknowledgement.
    #[inline]
    pub fn acknowledged(&mut self, message: MessageId, session: SessionId, at_ms: u64) {
        let time = self.time(at_ms);
        record::write_acknowledged(&mut self.records, time, message, session);
        self.count(EventKind::Acknowledged, at_ms);
    }

    /// Records any event.
    pub fn event(&mut self, event: &ProjectEvent, at_ms: u64) {
        let time = self.time(at_ms);
        record::write_event(&mut self.records, time, event);
        self.count(event.kind(), at_ms);
        self.header.accepted += u32::from(matches!(event, ProjectEvent::Accepted(_)));
    }

    /// Ends the block. The next record begins another one.
    pub fn finish(&mut self) -> (BlockHeader, Bytes) {
        let header = std::mem::take(&mut self.header);
        // A log that fills blocks gets the next one at once, and does not grow it step by step.
        let next = Vec::with_capacity(if self.is_full() { BLOCK_CAPACITY } else { 0 });
        let mut records = std::mem::replace(&mut self.records, next);
        if records.capacity() > BLOCK_CAPACITY || records.len() < BLOCK_BYTES / 2 {
            records.shrink_to_fit();
        }
        (header, records.into())
    }

    /// The stored form of the block, which ends. The next record begins another one.
    pub fn finish_stored(&mut self) -> Vec<u8> {
        let header = std::mem::take(&mut self.header);
        let stored = [&header.to_bytes()[..], &self.records].concat();
        // The next block is written to the same memory.
        self.records.clear();
        self.records.shrink_to(BLOCK_CAPACITY);
        stored
    }

    #[inline]
    fn time(&self, at_ms: u64) -> RecordTime {
        let block_ms = if self.is_empty() { at_ms } else { self.header.first_ms };
        RecordTime { at_ms, block_ms }
    }

    #[inline]
    fn count(&mut self, kind: EventKind, at_ms: u64) {
        let header = &mut self.header;
        header.kinds = header.kinds.union(EventKinds::of(&[kind]));
        if header.records == 0 {
            header.first_ms = at_ms;
        }
        header.records += 1;
        header.last_ms = header.last_ms.max(at_ms);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_header_is_read_back(records: u32, accepted: u32, first_ms: u64, last_ms: u64) {
            let header = BlockHeader { records, accepted, first_ms, last_ms, kinds: EventKinds::ALL };
            let bytes = header.to_bytes();
            prop_assert_eq!(BlockHeader::read(&bytes), Ok(header));
            for len in 0..HEADER_BYTES {
                prop_assert_eq!(BlockHeader::read(&bytes[..len]), Err(DamagedLog));
            }
        }
    }

    #[test]
    fn a_block_of_another_version_is_refused() {
        let mut bytes = BlockHeader::default().to_bytes();
        bytes[0] = 2;
        assert_eq!(BlockHeader::read(&bytes), Err(DamagedLog));
    }
}
