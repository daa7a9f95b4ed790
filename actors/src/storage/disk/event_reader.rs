//! Reads blocks of the event log back, on other threads than the one that writes.

use std::{fmt, sync::Arc};

use bytes::{Bytes, BytesMut};
use tokio::sync::Semaphore;

use super::{
    codec::{Decoded, RecordReader, damaged},
    engine::EngineReader,
    records,
};
use crate::storage::{EventPage, StoreError, state::event_log::ReadPlan};

/// Pages that are read at once. Each holds some MiB, and readers of history must not take the disk from messages.
const READS_MAX: usize = 2;

/// Reads pages of event logs.
pub struct EventReader {
    engine: Arc<dyn EngineReader>,
    reads: Semaphore,
}

impl fmt::Debug for EventReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventReader")
            .field("reads", &self.reads)
            .finish_non_exhaustive()
    }
}

impl EventReader {
    /// A reader of this disk.
    pub fn new(engine: Arc<dyn EngineReader>) -> Self {
        Self {
            engine,
            reads: Semaphore::new(READS_MAX),
        }
    }

    /// Reads a page of the log in this space. Waits for its turn.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] if the disk cannot be read.
    pub async fn read(&self, space: u32, plan: ReadPlan) -> Result<EventPage, StoreError> {
        if plan.is_in_memory() {
            return plan.read(|_| Ok(None));
        }
        let closed = |_| StoreError::Unreachable("the storage is closed".to_owned());
        let _turn = self.reads.acquire().await.map_err(closed)?;
        let engine = Arc::clone(&self.engine);
        let read = tokio::task::spawn_blocking(move || plan.read(|block| read_block(&*engine, space, block)));
        read.await
            .unwrap_or_else(|error| Err(StoreError::Unreachable(format!("events cannot be read: {error}"))))
    }
}

/// The records of a block; None if it was trimmed.
fn read_block(engine: &dyn EngineReader, space: u32, block: u64) -> Result<Option<Bytes>, StoreError> {
    let prefix = records::events_prefix(space, block).0;
    let mut found = BytesMut::new();
    let mut result: Decoded<()> = Ok(());
    let mut next_index = 0;
    engine.scan(&prefix, &mut |key, value| {
        let (mut key, mut value) = (RecordReader(&key[prefix.len() - 8..]), RecordReader(value));
        result = records::read_events(&mut key, &mut value).and_then(|part| {
            if part.first_index != next_index {
                return Err(damaged("a part of the event log is missing"));
            }
            next_index = next_index.saturating_add(part.header.records);
            found.extend_from_slice(value.0);
            Ok(())
        });
        result.is_ok()
    })?;
    if let Err(error) = result {
        tracing::error!(block, %error, "a block of the event log cannot be read");
        return Ok(None);
    }
    Ok((next_index > 0).then(|| found.freeze()))
}
