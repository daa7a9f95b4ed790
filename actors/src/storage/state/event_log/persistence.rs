//! What a journal receives of the event log, and how the log is restored from it.
//!
//! The journal receives the block that is written in parts, one after each operation, so that no part is written twice.

use crate::storage::{
    events::{BlockHeader, BlockWriter},
    state::journal::{Change, Journal, WrittenEvents},
};

/// What the journal has not received.
#[derive(Debug, Default)]
pub struct Unwritten {
    /// Records of the open block that the journal has received, and their bytes.
    written_records: u32,
    written_accepted: u32,
    written_bytes: usize,
    /// The index of the first record of each part of the open block.
    parts: Vec<u32>,
    /// What happened to complete blocks.
    changes: Vec<BlockChange>,
}

#[derive(Debug)]
enum BlockChange {
    /// The last part of a block.
    Written {
        block: u64,
        first_index: u32,
        header: BlockHeader,
        records: Vec<u8>,
    },
    Trimmed {
        block: u64,
        parts: Vec<u32>,
    },
}

/// Bytes that each part costs besides its records: its key, the header and the incarnation.
pub const PART_BYTES: usize = 64;

/// The part of a block that a journal has persisted.
#[derive(Clone, Copy, Debug)]
pub struct StoredPart {
    /// The incarnation of the log.
    pub incarnation: u64,
    /// The number of the block.
    pub block: u64,
    /// The index of its first record in the block.
    pub first_index: u32,
    /// What the part contains. Its `first_ms` is that of the block.
    pub header: BlockHeader,
    /// Bytes of its records.
    pub len: usize,
}

/// The log as a journal has persisted it, without the records.
#[derive(Debug, Default)]
pub struct StoredEvents {
    pub incarnation: Option<u64>,
    /// Ascending by number.
    pub blocks: Vec<StoredBlock>,
}

/// A block of which the journal has all parts.
#[derive(Debug)]
pub struct StoredBlock {
    pub number: u64,
    pub header: BlockHeader,
    /// Bytes of its records.
    pub len: usize,
    /// The index of the first record of each part.
    pub parts: Vec<u32>,
}

impl StoredEvents {
    /// Adds a part. Parts are added by ascending block and index.
    pub fn add(&mut self, part: &StoredPart) {
        self.incarnation = Some(part.incarnation);
        if self.blocks.last().is_none_or(|last| last.number != part.block) {
            self.blocks.push(StoredBlock {
                number: part.block,
                header: BlockHeader::default(),
                len: 0,
                parts: Vec::new(),
            });
        }
        if let Some(block) = self.blocks.last_mut() {
            block.header.extend(&part.header);
            block.len += part.len;
            block.parts.push(part.first_index);
        }
    }
}

impl Unwritten {
    /// The part of the open block that the journal has not received.
    fn next_part(&self, open: &BlockWriter) -> Option<BlockHeader> {
        let header = open.header();
        (header.records > self.written_records).then(|| BlockHeader {
            records: header.records - self.written_records,
            accepted: header.accepted - self.written_accepted,
            ..*header
        })
    }

    /// The open block gets no further record. Returns its parts.
    pub fn complete(&mut self, block: u64, open: &BlockWriter) -> Vec<u32> {
        if let Some(header) = self.next_part(open) {
            self.parts.push(self.written_records);
            self.changes.push(BlockChange::Written {
                block,
                first_index: self.written_records,
                header,
                records: open.records()[self.written_bytes..].to_vec(),
            });
        }
        (self.written_records, self.written_accepted, self.written_bytes) = (0, 0, 0);
        std::mem::take(&mut self.parts)
    }

    /// A block was trimmed.
    pub fn trimmed(&mut self, block: u64, parts: Vec<u32>) {
        self.changes.push(BlockChange::Trimmed { block, parts });
    }

    /// Reports to the journal what happened since the last call.
    pub fn flush(&mut self, incarnation: u64, open_number: u64, open: &BlockWriter, journal: &mut impl Journal) {
        for change in self.changes.drain(..) {
            match change {
                BlockChange::Written {
                    block,
                    first_index,
                    header,
                    records,
                } => journal.record(Change::EventsWritten(WrittenEvents {
                    incarnation,
                    block,
                    first_index,
                    header,
                    records: &records,
                })),
                BlockChange::Trimmed { block, parts } => journal.record(Change::EventsTrimmed { block, parts: &parts }),
            }
        }
        let Some(header) = self.next_part(open) else { return };
        self.parts.push(self.written_records);
        journal.record(Change::EventsWritten(WrittenEvents {
            incarnation,
            block: open_number,
            first_index: self.written_records,
            header,
            records: &open.records()[self.written_bytes..],
        }));
        self.written_records += header.records;
        self.written_accepted += header.accepted;
        self.written_bytes = open.records().len();
    }
}
