//! Reads pages of the event log: what the functions know of it, then blocks in commands of about 1 MiB.

use std::sync::Arc;

use actors::storage::{
    StoreEpoch, StoreError,
    events::{
        Block, Boundary, Direction, EventPage, EventPosition, EventQuery, EventStart, PageReader, READ_BYTES_MAX,
        Within,
    },
};
use deadpool_redis::redis::{Cmd, Value, cmd};

use super::{
    super::{
        connection::Request,
        operation::{Operation, pipeline_of},
        pipeline::Pipeline,
        reply::{Reply, into_bytes, unreadable},
    },
    BlockId,
};

/// Blocks that a command reads: 1 MiB of full ones. The first command reads fewer, since most pages are short.
const BLOCKS_MAX: usize = 16;
const FIRST_BLOCKS: usize = 2;
/// Commands of one page. It is short where blocks are small.
const COMMANDS_MAX: usize = 32;
/// By how much the clock of a replica may be ahead of that of the server when a block is looked for by the time of its
/// events.
const CLOCK_TOLERANCE_MS: u64 = 1_000;

/// What the functions know of the log.
struct LogState {
    incarnation: u64,
    oldest: Option<BlockId>,
    /// The last event that was recorded, and the last one that was deleted.
    end: EventPosition,
    trimmed: EventPosition,
}

impl LogState {
    fn of(reply: &mut Reply) -> Result<Self, StoreError> {
        let incarnation = reply.number()?;
        let oldest = match reply.bytes()? {
            none if none.is_empty() => None,
            id => Some(BlockId::parse(&id)?),
        };
        let mut position = || {
            let (id, records) = (BlockId::parse(&reply.bytes()?)?, reply.number()?);
            Ok::<_, StoreError>(EventPosition {
                incarnation,
                block: id.0,
                index: u32::try_from(records).unwrap_or(u32::MAX).saturating_sub(1),
            })
        };
        Ok(Self {
            incarnation,
            oldest,
            end: position()?,
            trimmed: position()?,
        })
    }

    fn oldest_position(&self) -> Option<EventPosition> {
        self.oldest.map(|oldest| EventPosition {
            incarnation: self.incarnation,
            block: oldest.0,
            index: 0,
        })
    }

    /// Before the oldest event.
    const fn front(&self) -> Boundary {
        Boundary::before_block(self.trimmed.block + 1)
    }

    fn keeps(&self, position: EventPosition) -> bool {
        position.incarnation == self.incarnation && (self.trimmed..=self.end).contains(&position)
    }
}

/// A chunk of the stream.
struct Chunk {
    blocks: Vec<Block>,
    /// The last block that was deleted, at about the same time.
    trimmed: BlockId,
    /// Whether the command has found as many blocks as it asked for.
    is_full: bool,
    /// Whether a block could not be read.
    is_damaged: bool,
}

impl Pipeline {
    /// Reads a page, after appending what this replica has recorded.
    ///
    /// # Errors
    /// `RolledBack` when the epoch is over; `Unreachable` when Redis does not answer.
    pub async fn read_events(
        self: &Arc<Self>,
        query: EventQuery,
        at: Option<StoreEpoch>,
    ) -> Result<EventPage, StoreError> {
        // What cannot be appended now is read later.
        let _ = self.write_events().await;
        let operation = Operation::new("event_log").without_reading_inboxes();
        let state = LogState::of(&mut Arc::clone(self).submit(operation, at).await?)?;
        let pipeline = Arc::clone(self);
        self.client
            .run_on_thread(async move { pipeline.read_page(query, state).await })
            .await
    }

    async fn read_page(&self, query: EventQuery, state: LogState) -> Result<EventPage, StoreError> {
        let (boundary, is_gap) = self.boundary(query.from, &state).await?;
        let mut page = PageReader::new(query, state.incarnation, boundary);
        if is_gap {
            page.add_gap();
        }
        let has_more = self.fill(&mut page, query, boundary, &state).await?;
        Ok(page.finish(state.oldest_position(), state.end, has_more))
    }

    /// The boundary that a query names, and whether events behind it are missing.
    async fn boundary(&self, from: EventStart, state: &LogState) -> Result<(Boundary, bool), StoreError> {
        let within = |position: EventPosition, index| {
            let within = Within::Index(index);
            let block = position.block;
            (Boundary { block, within }, false)
        };
        Ok(match from {
            EventStart::Oldest => (state.front(), false),
            EventStart::Newest => (Boundary::before_block(state.end.block + 1), false),
            EventStart::After(position) if state.keeps(position) => within(position, position.index.saturating_add(1)),
            EventStart::Before(position) if state.keeps(position) && position > state.trimmed => {
                within(position, position.index)
            }
            EventStart::After(_) | EventStart::Before(_) => (state.front(), true),
            EventStart::At(ms) => (self.boundary_at(ms, state).await?, false),
        })
    }

    /// Before the first event at this time or later. A block is appended after its events.
    async fn boundary_at(&self, ms: u64, state: &LogState) -> Result<Boundary, StoreError> {
        let within = Within::Time(ms);
        let mut from = BlockId::first_of(ms.saturating_sub(CLOCK_TOLERANCE_MS).min(1 << 41));
        loop {
            let chunk = self.read_forward(from, state.end.block, BLOCKS_MAX).await?;
            let mut blocks = chunk.blocks.iter();
            if let Some(found) = blocks.find(|block| block.header.last_ms >= ms) {
                let block = found.number;
                return Ok(Boundary { block, within });
            }
            match chunk.blocks.last() {
                Some(last) if chunk.is_full => from = BlockId(last.number + 1),
                _ => return Ok(Boundary::before_block(state.end.block + 1)),
            }
        }
    }

    /// Adds blocks to a page. Returns whether there are more in its direction.
    async fn fill(
        &self,
        page: &mut PageReader,
        query: EventQuery,
        boundary: Boundary,
        state: &LogState,
    ) -> Result<bool, StoreError> {
        let (mut events, mut bytes) = (0, 0);
        let (mut next, mut complete_to) = (boundary.block, complete_to(boundary, state));
        for command in 0..COMMANDS_MAX {
            let len_max = if command == 0 { FIRST_BLOCKS } else { BLOCKS_MAX };
            let chunk = match query.direction {
                Direction::Forward => self.read_forward(BlockId(next), state.end.block, len_max).await?,
                Direction::Backward => self.read_backward(BlockId(next.min(state.end.block)), len_max).await?,
            };
            let is_trimmed = query.direction == Direction::Forward && chunk.trimmed.0 > complete_to;
            if is_trimmed || chunk.is_damaged {
                page.add_gap();
            }
            for block in &chunk.blocks {
                if events >= query.scan_max || bytes >= READ_BYTES_MAX {
                    return Ok(true);
                }
                if block.number != boundary.block {
                    events += block.header.records as usize;
                }
                bytes += block.records.len();
                if !page.add(block) {
                    return Ok(true);
                }
            }
            let Some(last) = chunk.blocks.last().filter(|_| chunk.is_full) else {
                return Ok(false);
            };
            complete_to = last.number;
            next = match query.direction {
                Direction::Forward => last.number + 1,
                Direction::Backward => last.number - 1,
            };
        }
        Ok(true)
    }

    /// Reads blocks from this one to the last noted one.
    async fn read_forward(&self, from: BlockId, last: u64, len_max: usize) -> Result<Chunk, StoreError> {
        self.read_chunk(["XRANGE", &from.text(), &BlockId(last).text()], len_max)
            .await
    }

    /// Reads blocks from this one back.
    async fn read_backward(&self, from: BlockId, len_max: usize) -> Result<Chunk, StoreError> {
        self.read_chunk(["XREVRANGE", &from.text(), "-"], len_max).await
    }

    async fn read_chunk(&self, [name, from, to]: [&str; 3], len_max: usize) -> Result<Chunk, StoreError> {
        let key = self.events_key();
        let range = cmd(name)
            .arg(&key)
            .arg(from)
            .arg(to)
            .arg("COUNT")
            .arg(len_max)
            .to_owned();
        let request = Request {
            commands: pipeline_of([Some(range), Some(trimmed_command(&key))]),
            key,
        };
        self.breaker.admit()?;
        let replies = self.client.connection.send(&request, self.client.deadline()).await;
        self.breaker.record(&replies);
        let Ok([Value::Array(entries), trimmed]) = <[Value; 2]>::try_from(replies?) else {
            return Err(unreadable("the event log"));
        };
        let len = entries.len();
        let blocks = entries.into_iter().map(block).filter_map(Result::transpose);
        let blocks: Vec<_> = blocks.collect::<Result<_, _>>()?;
        Ok(Chunk {
            is_damaged: blocks.len() < len,
            blocks,
            trimmed: match trimmed {
                Value::Nil => BlockId::NONE,
                id => BlockId::parse(&into_bytes(id)?)?,
            },
            is_full: len == len_max,
        })
    }
}

/// Up to which block nothing behind the boundary is missing, before any is read.
fn complete_to(boundary: Boundary, state: &LogState) -> u64 {
    state.trimmed.block.max(boundary.block.saturating_sub(1))
}

fn trimmed_command(events_key: &str) -> Cmd {
    cmd("HGET").arg(format!("{events_key}:log")).arg("trimmed").to_owned()
}

/// Reads an entry of the stream. None for a block of another version, which is left out.
fn block(entry: Value) -> Result<Option<Block>, StoreError> {
    let unexpected = || unreadable("a block of events");
    let Value::Array(parts) = entry else {
        return Err(unexpected());
    };
    let Ok([id, Value::Array(fields)]) = <[Value; 2]>::try_from(parts) else {
        return Err(unexpected());
    };
    let number = BlockId::parse(&into_bytes(id)?)?.0;
    let stored = fields.into_iter().nth(1).ok_or_else(unexpected)?;
    let block = Block::from_stored(number, into_bytes(stored)?.into());
    if block.is_err() {
        tracing::error!(
            block = number,
            "a block of the event log cannot be read and was left out"
        );
    }
    Ok(block.ok())
}
