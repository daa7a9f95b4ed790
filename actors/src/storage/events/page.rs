//! Reads a page of events out of blocks.

use std::cmp::Ordering;

use super::{
    Direction, EventPage, EventPosition, EventQuery, EventStart, LoggedEvent,
    block::Block,
    record::{self, Decoded},
};

/// A place between two events, where a page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// The block.
    pub block: u64,
    /// The place in the block.
    pub within: Within,
}

/// A place in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// Before the event with this index; behind the last one if there are fewer.
    Index(u32),
    /// Before the first event at this time or later, in milliseconds since the Unix epoch; behind the last one if all are
    /// earlier.
    Time(u64),
}

impl Boundary {
    /// Before the first event of a block.
    pub const fn before_block(block: u64) -> Self {
        Self {
            block,
            within: Within::Index(0),
        }
    }
}

/// Fills a page with the events of blocks, which are added in the direction of reading.
#[derive(Debug)]
pub struct PageReader {
    query: EventQuery,
    incarnation: u64,
    boundary: Boundary,
    page: EventPage,
    bytes: usize,
    last: Option<EventPosition>,
    is_full: bool,
}

impl PageReader {
    /// An empty page that begins at `boundary`.
    pub fn new(query: EventQuery, incarnation: u64, boundary: Boundary) -> Self {
        Self {
            query,
            incarnation,
            boundary,
            page: EventPage::default(),
            bytes: 0,
            last: None,
            is_full: false,
        }
    }

    /// Reads a block. Returns false once the page is full: no further block is needed. A block that is damaged is left out,
    /// and the page says that something is missing.
    pub fn add(&mut self, block: &Block) -> bool {
        if self.is_full {
            return false;
        }
        if self.read(block).is_err() {
            tracing::error!(
                block = block.number,
                "a block of the event log is damaged and was left out"
            );
            self.page.gap = true;
        }
        !self.is_full
    }

    /// Says that a block is missing.
    pub const fn add_gap(&mut self) {
        self.page.gap = true;
    }

    /// The page. `oldest` is the oldest event that is kept, `end` the last event that was recorded. `has_more` says that
    /// there are blocks, in the direction of reading, that were not added.
    pub fn finish(mut self, oldest: Option<EventPosition>, end: EventPosition, has_more: bool) -> EventPage {
        self.page.oldest = oldest;
        self.page.more = self.is_full || has_more;
        self.page.next = match self.query.direction {
            Direction::Forward => Some(self.last.unwrap_or(match self.query.from {
                EventStart::After(position) if !self.page.gap => position,
                _ => end,
            })),
            Direction::Backward => self.last.filter(|_| self.page.more),
        };
        self.page
    }

    fn read(&mut self, block: &Block) -> Decoded<()> {
        if !block.header.kinds.intersects(self.query.kinds) && self.skip(block) {
            return Ok(());
        }
        let mut records = Vec::with_capacity(block.header.records.min(4096) as usize);
        let mut rest = &block.records[..];
        while !rest.is_empty() {
            records.push(record::take_record(&mut rest)?);
        }
        let cut = match self.boundary_index(block, records.len() as u32) {
            Ok(index) => index as usize,
            Err(ms) => first_at(ms, &records, block.header.first_ms)?,
        };
        let direction = self.query.direction;
        let mut visit = |at: usize| self.visit(block, at, records[at]);
        let visited = match direction {
            Direction::Forward => (cut..records.len()).try_for_each(&mut visit),
            Direction::Backward => (0..cut).rev().try_for_each(&mut visit),
        };
        visited.or_else(|ended| ended)
    }

    /// Counts the records of a block that has none of the kinds as scanned, and reads none of them. False if the page ends
    /// within the block.
    fn skip(&mut self, block: &Block) -> bool {
        let len = block.header.records;
        let Ok(cut) = self.boundary_index(block, len) else {
            return false;
        };
        let skipped = match self.query.direction {
            Direction::Forward => cut..len,
            Direction::Backward => 0..cut,
        };
        let scanned = self.page.scanned + skipped.len();
        if scanned > self.query.scan_max || self.bytes >= self.query.bytes_max {
            return false;
        }
        let last = match self.query.direction {
            Direction::Forward => skipped.clone().last(),
            Direction::Backward => skipped.clone().next(),
        };
        self.page.scanned = scanned;
        self.last = last
            .map(|index| EventPosition {
                incarnation: self.incarnation,
                block: block.number,
                index,
            })
            .or(self.last);
        true
    }

    /// The index of the first of `len` records behind the boundary. The error is the time of the boundary, if only the
    /// times of the records say it.
    fn boundary_index(&self, block: &Block, len: u32) -> Result<u32, u64> {
        match (self.boundary.block.cmp(&block.number), self.boundary.within) {
            (Ordering::Less, _) => Ok(0),
            (Ordering::Greater, _) => Ok(len),
            (Ordering::Equal, Within::Index(index)) => Ok(len.min(index)),
            (Ordering::Equal, Within::Time(ms)) => Err(ms),
        }
    }

    /// Adds a record to the page. The error ends the block: with Ok because the page is full.
    fn visit(&mut self, block: &Block, at: usize, bytes: &[u8]) -> Result<(), Decoded<()>> {
        if self.page.scanned >= self.query.scan_max || self.bytes >= self.query.bytes_max {
            self.is_full = true;
            return Err(Ok(()));
        }
        let position = EventPosition {
            incarnation: self.incarnation,
            block: block.number,
            index: at as u32,
        };
        if record::kind_of(bytes).is_some_and(|kind| self.query.kinds.contains(kind)) {
            let (at_ms, event) = record::read_record(bytes, block.header.first_ms).map_err(Err)?;
            self.bytes += bytes.len();
            self.page.events.push(LoggedEvent { position, at_ms, event });
        }
        self.page.scanned += 1;
        self.last = Some(position);
        Ok(())
    }
}

/// The index of the first record at a time or later, in milliseconds since the Unix epoch; their number if all are earlier.
fn first_at(ms: u64, records: &[&[u8]], block_ms: u64) -> Decoded<usize> {
    for (at, record) in records.iter().enumerate() {
        if record::time_of(record, block_ms)? >= ms {
            return Ok(at);
        }
    }
    Ok(records.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::block::BlockWriter, *};
    use crate::model::{EventKind, EventKinds, MessageId, ProjectEvent, SessionId};

    const INCARNATION: u64 = 7;

    /// Blocks of which each has `lens` deliveries or acknowledgements.
    fn blocks(lens: &[(usize, bool)]) -> Vec<Block> {
        let (message, session) = (MessageId::from_uuid(uuid::Uuid::nil()), SessionId::generate());
        let mut number = 0;
        let block = |&(len, acknowledged): &(usize, bool)| {
            let mut writer = BlockWriter::default();
            for at_ms in 0..len as u64 {
                if acknowledged {
                    writer.event(&ProjectEvent::Acknowledged { message, session }, at_ms);
                } else {
                    writer.delivered(message, session, 1, at_ms);
                }
            }
            let (header, records) = writer.finish();
            number += 1;
            Block {
                number,
                header,
                records,
            }
        };
        lens.iter().map(block).collect()
    }

    fn page(blocks: &[Block], query: EventQuery, boundary: Boundary) -> EventPage {
        let mut reader = PageReader::new(query, INCARNATION, boundary);
        let mut in_order: Vec<_> = blocks.iter().collect();
        if query.direction == Direction::Backward {
            in_order.reverse();
        }
        in_order.into_iter().all(|block| reader.add(block));
        let at = |block: &Block, index| EventPosition {
            incarnation: INCARNATION,
            block: block.number,
            index,
        };
        let (first, last) = (&blocks[0], &blocks[blocks.len() - 1]);
        reader.finish(Some(at(first, 0)), at(last, last.header.records - 1), false)
    }

    proptest! {
        #[test]
        fn a_block_that_is_skipped_counts_as_one_that_was_read(
            lens in prop::collection::vec((1..6_usize, any::<bool>()), 1..6),
            block in 0..8_u64,
            index in 0..7_u32,
            scan_max in 1..20_usize,
            is_forward: bool,
            reads_deliveries: bool,
        ) {
            let kind = if reads_deliveries { EventKind::Delivered } else { EventKind::Acknowledged };
            let query = EventQuery {
                from: EventStart::Oldest,
                direction: if is_forward { Direction::Forward } else { Direction::Backward },
                kinds: EventKinds::of(&[kind]),
                scan_max,
                bytes_max: 1 << 20,
            };
            let boundary = Boundary { block, within: Within::Index(index) };
            let blocks = blocks(&lens);
            let unknown: Vec<_> = blocks.iter().cloned().map(|mut block| {
                block.header.kinds = EventKinds::ALL;
                block
            }).collect();
            let (skipped, read) = (page(&blocks, query, boundary), page(&unknown, query, boundary));
            prop_assert_eq!(format!("{skipped:?}"), format!("{read:?}"));
        }
    }
}
