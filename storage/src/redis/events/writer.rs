//! Appends what was recorded to the stream, behind the operations that caused it: when a block is complete, and every
//! [`WRITE_INTERVAL`]. A replica that is killed loses what it has not appended yet.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use actors::{
    clock::Now,
    model::{MessageId, ProjectEvent, SessionId},
    storage::{Append, Appended, Delivery, PushedDelivery, StoreError},
};
use deadpool_redis::redis::{Cmd, Value, cmd};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{
    super::{
        error::Failure,
        operation::Operation,
        pipeline::Pipeline,
        reply::{PendingReply, into_bytes},
    },
    BlockId,
    buffer::{Recorder, WaitingBlock, Wakeup},
};

/// How long an event waits for others.
const WRITE_INTERVAL: Duration = Duration::from_millis(250);
/// The pause after a failure.
const RETRY_INTERVAL: Duration = Duration::from_millis(300);
/// Blocks that are appended at once.
const BLOCKS_AT_ONCE: usize = 8;
/// Most blocks that are appended by a function, which takes longer.
const BLOCKS_IN_FUNCTION: usize = 4;
/// Blocks that are appended and not noted: beyond it the oldest stay uncounted until they are too old.
const UNNOTED_MAX: usize = 1_000;

impl Pipeline {
    /// Records an event that the functions do not see.
    pub fn record_event(self: &Arc<Self>, event: &ProjectEvent, now: Now) {
        self.record(|recorder| recorder.event(event, now.unix_ms));
    }

    /// Records the messages of a batch that were accepted.
    pub fn record_accepted(self: &Arc<Self>, batch: &[Append], answers: &[Appended], now: Now) {
        self.record_messages(|recorder| {
            for (append, answer) in batch.iter().zip(answers) {
                let Appended::Accepted { refused, .. } = answer else {
                    continue;
                };
                let recipients = append.audience.ids();
                if refused.is_empty() {
                    recorder.accepted(&append.message, recipients, now.unix_ms);
                } else if refused.len() < recipients.len() {
                    let kept = recipients.iter().filter(|recipient| !refused.contains(recipient));
                    recorder.accepted(&append.message, &kept.copied().collect::<Vec<_>>(), now.unix_ms);
                }
            }
        });
    }

    /// Records what was leased for a session.
    pub fn record_delivered(self: &Arc<Self>, session: SessionId, deliveries: &[Delivery], now: Now) {
        if deliveries.is_empty() {
            return;
        }
        self.record_messages(|recorder| {
            for delivery in deliveries {
                recorder.delivered(delivery.message.id, session, delivery.count, now.unix_ms);
            }
        });
    }

    /// Records what was pushed to this replica.
    pub fn record_pushed(self: &Arc<Self>, pushed: &[PushedDelivery], now: Now) {
        self.record_messages(|recorder| {
            for PushedDelivery {
                session, deliveries, ..
            } in pushed
            {
                for delivery in deliveries {
                    recorder.delivered(delivery.message.id, *session, delivery.count, now.unix_ms);
                }
            }
        });
    }

    /// Records acknowledged messages.
    pub fn record_acknowledged(self: &Arc<Self>, acknowledged: impl Iterator<Item = (MessageId, SessionId)>, now: Now) {
        self.record_messages(|recorder| {
            for (message, session) in acknowledged {
                recorder.acknowledged(message, session, now.unix_ms);
            }
        });
    }

    fn record_messages(self: &Arc<Self>, write: impl FnOnce(&mut Recorder<'_>)) {
        if self.events.records_messages() {
            self.record(write);
        }
    }

    fn record(self: &Arc<Self>, write: impl FnOnce(&mut Recorder<'_>)) {
        match self.events.record(write) {
            Wakeup::Nothing => {}
            Wakeup::Start => drop(self.client.thread.spawn(write_behind(Arc::clone(self)))),
            Wakeup::BlockReady => self.events.block_ready.notify_one(),
        }
    }

    /// The operation that appends what is recorded so far, with its blocks; None when there is nothing, or too much for a
    /// function.
    pub fn take_events(&self) -> Option<(Operation, TakenBlocks)> {
        // Before the blocks are taken: the end of the process finds them in the buffer or waits.
        let unsettled = self.events.unsettled.token();
        let blocks = self.events.take_few(BLOCKS_IN_FUNCTION)?;
        let operation = Operation::new("append_blocks").without_reading_inboxes();
        let texts = blocks.iter().map(|block| block.stored.clone());
        let operation = texts.fold(operation, Operation::text);
        Some((operation, TakenBlocks { blocks, unsettled }))
    }

    /// Puts blocks back that such an operation did not append.
    pub fn await_append(self: &Arc<Self>, taken: TakenBlocks, reply: PendingReply) {
        let pipeline = Arc::clone(self);
        let TakenBlocks { blocks, unsettled } = taken;
        self.client.thread.spawn(async move {
            match reply.await {
                Ok(Ok(_)) => {}
                Ok(Err(StoreError::RolledBack | StoreError::Full(_) | StoreError::EarlierReplica)) => {
                    pipeline.events.put_back(blocks);
                }
                Ok(Err(StoreError::Unreachable(_))) | Err(_) => {
                    for block in &blocks {
                        pipeline.events.count_lost(block);
                    }
                }
            }
            drop(unsettled);
        });
    }

    /// Appends everything that was recorded before the call.
    ///
    /// # Errors
    /// `Unreachable` or `Full`; what could not be appended is kept.
    pub async fn write_events(self: &Arc<Self>) -> Result<(), StoreError> {
        let pipeline = Arc::clone(self);
        self.client
            .run_on_thread(async move {
                pipeline.events.complete_open();
                pipeline.write_complete().await
            })
            .await
    }

    /// A token for an operation that is recorded when it has its reply. The end of the process waits until it is dropped.
    pub fn track_recorded_operation(&self) -> TaskTrackerToken {
        self.events.unsettled.token()
    }

    /// Appends everything that was recorded before the call, and what operations record or append that have no reply yet.
    /// The process may end afterwards.
    ///
    /// # Errors
    /// Those of [`Self::write_events`].
    pub async fn flush_events(self: &Arc<Self>) -> Result<(), StoreError> {
        // First what is recorded already: the caller may not have the time to wait for the others.
        self.write_events().await?;
        self.events.unsettled.wait().await;
        self.write_events().await
    }

    /// Appends all complete blocks and notes them.
    async fn write_complete(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut unnoted = self.events.unnoted.lock().await;
        loop {
            self.note(&mut unnoted).await?;
            let blocks = self.events.take(BLOCKS_AT_ONCE);
            if blocks.is_empty() {
                return Ok(());
            }
            let appended = self.append(blocks, &mut unnoted).await;
            if appended.is_err() {
                // Readers see the others.
                self.note(&mut unnoted).await?;
            }
            appended?;
        }
    }

    /// Appends blocks to the stream. Those that were not appended are put back; one without an answer counts as lost:
    /// appended twice, its events would come twice.
    async fn append(&self, mut blocks: VecDeque<WaitingBlock>, unnoted: &mut Vec<Vec<u8>>) -> Result<(), StoreError> {
        if let Err(error) = self.breaker.admit() {
            self.events.put_back(blocks);
            return Err(error);
        }
        let deadline = self.client.deadline();
        let (connection, key) = (&self.client.connection, self.events_key());
        // One by one: when one of several commands that are sent together fails, the results of the others are unknown.
        let sent = blocks
            .iter()
            .map(|block| connection.send_one(append_command(&key, block), &key, deadline));
        let replies = join_all(sent).await;
        let (mut refused, mut result) = (VecDeque::new(), Ok(()));
        for (block, reply) in blocks.drain(..).zip(replies) {
            self.breaker.record(&reply);
            match reply.map(|id| noted(&block, id)) {
                Ok(Ok(noted)) => unnoted.push(noted),
                Err(failure @ (Failure::Refused(_) | Failure::OutOfMemory(_) | Failure::LibraryMissing)) => {
                    refused.push_back(block);
                    result = Err(failure.into());
                }
                Err(failure) => {
                    self.events.count_lost(&block);
                    result = Err(failure.into());
                }
                Ok(Err(error)) => {
                    self.events.count_lost(&block);
                    result = Err(error);
                }
            }
        }
        self.events.put_back(refused);
        unnoted.drain(..unnoted.len().saturating_sub(UNNOTED_MAX));
        result
    }

    /// Has the functions count the blocks that were appended, and show them to readers.
    async fn note(self: &Arc<Self>, unnoted: &mut Vec<Vec<u8>>) -> Result<(), StoreError> {
        if unnoted.is_empty() {
            return Ok(());
        }
        let operation = Operation::new("note_blocks").without_reading_inboxes();
        let operation = unnoted
            .iter()
            .fold(operation, |operation, block| operation.text(block.clone()));
        let mut noted = Arc::clone(self).submit(operation.clone(), None).await;
        if matches!(noted, Err(StoreError::RolledBack)) {
            // The blocks belong to no epoch: this replica knows the new one now.
            noted = Arc::clone(self).submit(operation, None).await;
        }
        noted?;
        unnoted.clear();
        Ok(())
    }

    /// The key of the stream.
    pub(super) fn events_key(&self) -> String {
        format!("{{{}}}:events", self.project)
    }
}

/// Blocks that an operation appends.
pub struct TakenBlocks {
    blocks: VecDeque<WaitingBlock>,
    /// Held until the blocks are in the log, put back or counted as lost.
    unsettled: TaskTrackerToken,
}

/// Appends what is recorded until nothing is left.
async fn write_behind(pipeline: Arc<Pipeline>) {
    let mut outage = None;
    let mut due = Instant::now() + WRITE_INTERVAL;
    loop {
        let is_due = tokio::select! {
            () = sleep_until(due) => true,
            () = pipeline.events.block_ready.notified() => false,
        };
        if is_due {
            pipeline.events.complete_open();
            due = Instant::now() + WRITE_INTERVAL;
        }
        let lost = pipeline.events.lost();
        if let Err(error) = pipeline.write_complete().await {
            outage.get_or_insert(error);
            sleep(RETRY_INTERVAL).await;
            continue;
        }
        if lost > 0 {
            let reason = outage.as_ref().map_or_else(String::new, StoreError::to_string);
            tracing::warn!(project = %pipeline.project, lost, reason, "events are missing in the event log: Redis did not accept them");
        }
        outage = None;
        if is_due && pipeline.events.end_task() {
            return;
        }
    }
}

fn append_command(key: &str, block: &WaitingBlock) -> Cmd {
    let mut command = cmd("XADD");
    command.arg(key).arg("*").arg("b").arg(&*block.stored);
    command
}

/// What the functions get of a block: see `BLOCK` in `scripts/events.lua`.
#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds and sequence numbers are below 2^53"
)]
fn noted(block: &WaitingBlock, id: Value) -> Result<Vec<u8>, StoreError> {
    let id = BlockId::parse(&into_bytes(id)?)?;
    let mut noted = Vec::with_capacity(28);
    noted.extend((id.ms() as f64).to_be_bytes());
    noted.extend((id.seq() as f64).to_be_bytes());
    noted.extend(block.header.records.to_be_bytes());
    noted.extend(block.header.accepted.to_be_bytes());
    noted.extend((block.stored.len() as u32).to_be_bytes());
    Ok(noted)
}
