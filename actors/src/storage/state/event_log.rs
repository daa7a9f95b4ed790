//! The event log of a project in this process: a ring of blocks.
//!
//! A backend in memory keeps the blocks here. A backend with a journal keeps here the block that is written and the headers
//! of the others; the journal receives the rest. Pure: the time is an argument.

mod persistence;

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;

use self::persistence::{PART_BYTES, Unwritten};
pub use self::persistence::{StoredEvents, StoredPart};
use super::{
    account::{SharedBytes, StoreLimits},
    journal::Journal,
};
use crate::{
    clock::{Now, millis},
    model::{DeadLetterReason, Message, MessageId, ProjectEvent, SessionId},
    storage::{
        events::{
            Block, BlockHeader, BlockWriter, Boundary, Direction, EventPage, EventPosition, EventQuery, EventStart,
            PageReader, READ_BYTES_MAX, Within,
        },
        retention::Retention,
    },
};

/// The event log of a project.
#[derive(Debug)]
pub struct EventLog {
    limits: Limits,
    incarnation: u64,
    /// The complete blocks, oldest first. Their numbers are consecutive, and end before that of `open`.
    complete: VecDeque<CompleteBlock>,
    open: BlockWriter,
    open_number: u64,
    /// The last event that was trimmed.
    trimmed: EventPosition,
    /// Bytes and accepted messages of the complete blocks.
    bytes: usize,
    accepted: usize,
    /// What the journal has not received; None if all blocks are kept here.
    unwritten: Option<Unwritten>,
}

/// The bounds of a log.
#[derive(Debug)]
struct Limits {
    records_messages: bool,
    with_payloads: bool,
    window_ms: u64,
    accepted_max: usize,
    bytes_max: usize,
    /// The bytes of the logs of all projects.
    pool: Arc<SharedBytes>,
}

#[derive(Debug)]
struct CompleteBlock {
    header: BlockHeader,
    /// Bytes of its records, and of what keeps its parts apart.
    len: usize,
    /// None if the journal has received them.
    records: Option<Bytes>,
    /// The index of the first record of each part that the journal has received.
    parts: Vec<u32>,
}

/// What a page needs: blocks, and what the log knows of itself.
#[derive(Debug)]
pub struct ReadPlan {
    query: EventQuery,
    boundary: Boundary,
    incarnation: u64,
    oldest: Option<EventPosition>,
    end: EventPosition,
    gap: bool,
    has_more: bool,
    blocks: Vec<PlannedBlock>,
}

/// A block to read. Without records, it is read from where the journal has written it.
#[derive(Debug)]
struct PlannedBlock {
    number: u64,
    header: BlockHeader,
    records: Option<Bytes>,
}

impl ReadPlan {
    /// True if the page needs no block that the journal has received.
    pub fn is_in_memory(&self) -> bool {
        self.blocks.iter().all(|block| block.records.is_some())
    }

    /// Reads the page. `load` reads the records of a block that the journal has received; None if it was trimmed since.
    ///
    /// # Errors
    /// Those of `load`.
    pub fn read<E>(self, mut load: impl FnMut(u64) -> Result<Option<Bytes>, E>) -> Result<EventPage, E> {
        let mut reader = PageReader::new(self.query, self.incarnation, self.boundary);
        if self.gap {
            reader.add_gap();
        }
        for PlannedBlock {
            number,
            header,
            records,
        } in self.blocks
        {
            let records = match records {
                Some(records) => Some(records),
                None => load(number)?,
            };
            let Some(records) = records else {
                reader.add_gap();
                continue;
            };
            if !reader.add(&Block {
                number,
                header,
                records,
            }) {
                break;
            }
        }
        Ok(reader.finish(self.oldest, self.end, self.has_more))
    }
}

impl EventLog {
    /// An empty log; `is_journaled` says that a journal keeps its blocks.
    pub fn new(limits: &StoreLimits, is_journaled: bool) -> Self {
        let retention: &Retention = &limits.retention;
        let incarnation = uuid::Uuid::new_v4().as_u64_pair().0;
        Self {
            limits: Limits {
                records_messages: retention.records_messages(),
                with_payloads: retention.history_payloads,
                window_ms: millis(retention.events_window()),
                accepted_max: retention.history_messages_max,
                bytes_max: retention.events_bytes_max,
                pool: Arc::clone(&limits.events_pool),
            },
            incarnation,
            complete: VecDeque::new(),
            open: BlockWriter::default(),
            open_number: 1,
            trimmed: EventPosition::origin(incarnation),
            bytes: 0,
            accepted: 0,
            unwritten: is_journaled.then(Unwritten::default),
        }
    }

    /// Records that a message was accepted for these recipients.
    #[inline]
    pub fn accepted(&mut self, message: &Message, recipients: &[SessionId], now: Now) {
        if self.limits.records_messages {
            let with_payload = self.limits.with_payloads;
            self.open.accepted(message, recipients, with_payload, now.unix_ms);
            self.complete_if_full(now);
        }
    }

    /// Records a delivery; `delivery` counts it.
    #[inline]
    pub fn delivered(&mut self, message: MessageId, session: SessionId, delivery: u32, now: Now) {
        if self.limits.records_messages {
            self.open.delivered(message, session, delivery, now.unix_ms);
            self.complete_if_full(now);
        }
    }

    /// Records an acknowledgement.
    #[inline]
    pub fn acknowledged(&mut self, message: MessageId, session: SessionId, now: Now) {
        if self.limits.records_messages {
            self.open.acknowledged(message, session, now.unix_ms);
            self.complete_if_full(now);
        }
    }

    /// Records that a message waits again.
    pub fn released(&mut self, message: MessageId, session: SessionId, now: Now) {
        if self.limits.records_messages {
            self.record(&ProjectEvent::Released { message, session }, now);
        }
    }

    /// Records that a message was given up after this number of deliveries.
    pub fn dead_lettered(
        &mut self,
        message: MessageId,
        session: SessionId,
        reason: DeadLetterReason,
        deliveries: u32,
        now: Now,
    ) {
        if self.limits.records_messages {
            let event = ProjectEvent::DeadLettered {
                message,
                session,
                reason,
                deliveries,
            };
            self.record(&event, now);
        }
    }

    /// Records that a dead letter of the session `from` waits again, for `session`.
    pub fn redriven(&mut self, message: MessageId, session: SessionId, from: SessionId, now: Now) {
        if self.limits.records_messages {
            self.record(&ProjectEvent::Redriven { message, session, from }, now);
        }
    }

    /// Records any event.
    pub fn record(&mut self, event: &ProjectEvent, now: Now) {
        self.open.event(event, now.unix_ms);
        self.complete_if_full(now);
    }

    /// Trims what is too old. Called from time to time, because nothing else trims the log of a project that is idle.
    pub fn sweep(&mut self, now: Now) {
        let is_old = self.is_too_old(self.open.header(), now);
        if !self.open.is_empty() && is_old {
            self.complete_block();
        }
        self.trim(now);
    }

    /// Reports to the journal what happened since the last call. Called at the end of each operation of a backend with a
    /// journal.
    pub fn flush(&mut self, journal: &mut impl Journal) {
        if let Some(unwritten) = &mut self.unwritten {
            unwritten.flush(self.incarnation, self.open_number, &self.open, journal);
        }
    }

    /// Continues a persisted log, in an empty one. The next event begins a block. Blocks before a missing one are removed.
    pub fn restore(&mut self, stored: StoredEvents, now: Now) {
        let (Some(incarnation), Some(last)) = (stored.incarnation, stored.blocks.last()) else {
            return;
        };
        self.incarnation = incarnation;
        self.open_number = last.number.saturating_add(1);
        let mut first = self.open_number;
        for block in stored.blocks.iter().rev() {
            if block.number.checked_add(1) != Some(first) {
                break;
            }
            first = block.number;
        }
        for block in stored.blocks {
            if block.number >= first {
                self.push(CompleteBlock {
                    header: block.header,
                    len: block.len + block.parts.len() * PART_BYTES,
                    records: None,
                    parts: block.parts,
                });
            } else if let Some(unwritten) = &mut self.unwritten {
                unwritten.trimmed(block.number, block.parts);
            }
        }
        self.trimmed = match first {
            0 | 1 => EventPosition::origin(incarnation),
            first => EventPosition {
                incarnation,
                block: first - 1,
                index: u32::MAX,
            },
        };
        self.trim(now);
    }

    /// The bytes of the log.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.bytes + self.open.records().len()
    }

    /// What a query needs.
    pub fn plan(&self, query: EventQuery) -> ReadPlan {
        let (boundary, gap) = self.boundary(query.from);
        let mut plan = ReadPlan {
            query,
            boundary,
            incarnation: self.incarnation,
            oldest: self.oldest(),
            end: self.end(),
            gap,
            has_more: false,
            blocks: Vec::new(),
        };
        let at = |number: u64| number.checked_sub(self.first_number()).map_or(0, |at| at as usize);
        let len = self.complete.len() + usize::from(!self.open.is_empty());
        let from = at(boundary.block).min(len);
        match query.direction {
            Direction::Forward => self.plan_blocks(&mut plan, from..len),
            Direction::Backward => {
                let until = if boundary.block < self.first_number() {
                    0
                } else {
                    len.min(from + 1)
                };
                self.plan_blocks(&mut plan, (0..until).rev());
            }
        }
        plan
    }

    /// Adds blocks until they have enough events or bytes.
    fn plan_blocks(&self, plan: &mut ReadPlan, indices: impl Iterator<Item = usize>) {
        let (mut events, mut bytes) = (0, 0);
        for index in indices {
            if events >= plan.query.scan_max || bytes >= READ_BYTES_MAX {
                plan.has_more = true;
                return;
            }
            let (block, len) = self.block(index);
            // How much of the first block is behind the boundary is seen when it is read.
            if block.number != plan.boundary.block {
                events += block.header.records as usize;
            }
            bytes += block.records.as_ref().map_or(len, Bytes::len);
            plan.blocks.push(block);
        }
    }

    /// A block and the bytes of its records.
    fn block(&self, index: usize) -> (PlannedBlock, usize) {
        let number = self.first_number() + index as u64;
        let (header, records, len) = match self.complete.get(index) {
            Some(block) => (block.header, block.records.clone(), block.len),
            None => self.copy_open(),
        };
        let block = PlannedBlock {
            number,
            header,
            records,
        };
        (block, len)
    }

    fn copy_open(&self) -> (BlockHeader, Option<Bytes>, usize) {
        let records = self.open.records();
        (
            *self.open.header(),
            Some(Bytes::copy_from_slice(records)),
            records.len(),
        )
    }

    /// The boundary that a query names, and whether events behind it are missing.
    fn boundary(&self, from: EventStart) -> (Boundary, bool) {
        let front = Boundary::before_block(self.first_number());
        let keeps = |position: EventPosition| {
            position.incarnation == self.incarnation && (self.trimmed..=self.end()).contains(&position)
        };
        let within = |position: EventPosition, index: u32| {
            let boundary = Boundary {
                block: position.block,
                within: Within::Index(index),
            };
            (boundary, false)
        };
        match from {
            EventStart::Oldest => (front, false),
            EventStart::Newest => (Boundary::before_block(self.open_number + 1), false),
            EventStart::After(position) if keeps(position) => within(position, position.index.saturating_add(1)),
            EventStart::Before(position) if keeps(position) && position > self.trimmed => {
                within(position, position.index)
            }
            EventStart::After(_) | EventStart::Before(_) => (front, true),
            EventStart::At(ms) => {
                let is_earlier = |block: &CompleteBlock| block.header.last_ms < ms;
                let at = self.complete.iter().position(|block| !is_earlier(block));
                let block = at.map_or(self.open_number, |at| self.first_number() + at as u64);
                let boundary = Boundary {
                    block,
                    within: Within::Time(ms),
                };
                (boundary, false)
            }
        }
    }

    fn first_number(&self) -> u64 {
        self.open_number - self.complete.len() as u64
    }

    fn oldest(&self) -> Option<EventPosition> {
        let is_empty = self.complete.is_empty() && self.open.is_empty();
        (!is_empty).then(|| EventPosition {
            incarnation: self.incarnation,
            block: self.first_number(),
            index: 0,
        })
    }

    /// The position of the last event that was recorded.
    fn end(&self) -> EventPosition {
        let (block, records) = match self.complete.back() {
            _ if !self.open.is_empty() => (self.open_number, self.open.header().records),
            Some(last) => (self.open_number - 1, last.header.records),
            None => return self.trimmed,
        };
        EventPosition {
            incarnation: self.incarnation,
            block,
            index: records - 1,
        }
    }

    #[inline]
    fn complete_if_full(&mut self, now: Now) {
        if self.open.is_full() {
            self.complete_block();
            self.trim(now);
        }
    }

    fn complete_block(&mut self) {
        let number = self.open_number;
        let parts = match &mut self.unwritten {
            Some(unwritten) => unwritten.complete(number, &self.open),
            None => Vec::new(),
        };
        let (header, records) = self.open.finish();
        self.open_number += 1;
        self.push(CompleteBlock {
            header,
            len: records.len() + parts.len() * PART_BYTES,
            records: self.unwritten.is_none().then_some(records),
            parts,
        });
    }

    fn push(&mut self, block: CompleteBlock) {
        self.bytes += block.len;
        self.accepted += block.header.accepted as usize;
        self.limits.pool.add_unchecked(block.len);
        self.complete.push_back(block);
    }

    /// Removes blocks from the front until the log is within its bounds.
    fn trim(&mut self, now: Now) {
        while let Some(first) = self.complete.front() {
            let is_too_much = self.bytes > self.limits.bytes_max
                || self.accepted > self.limits.accepted_max
                || self.limits.pool.is_exceeded();
            if !is_too_much && !self.is_too_old(&first.header, now) {
                return;
            }
            self.trimmed = EventPosition {
                incarnation: self.incarnation,
                block: self.first_number(),
                index: first.header.records.saturating_sub(1),
            };
            let Some(first) = self.complete.pop_front() else { return };
            self.bytes -= first.len;
            self.accepted -= first.header.accepted as usize;
            self.limits.pool.release(first.len);
            if let Some(unwritten) = &mut self.unwritten {
                unwritten.trimmed(self.trimmed.block, first.parts);
            }
        }
    }

    const fn is_too_old(&self, header: &BlockHeader, now: Now) -> bool {
        now.unix_ms.saturating_sub(header.last_ms) > self.limits.window_ms
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        self.limits.pool.release(self.bytes);
    }
}

#[cfg(test)]
mod tests;
