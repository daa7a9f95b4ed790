//! What this replica has recorded of a project and has not appended to the stream yet. It knows no connection.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use actors::{
    locked::Locked,
    metrics::METRICS,
    model::{Message, MessageId, ProjectEvent, SessionId},
    storage::{
        Retention,
        events::{BlockHeader, BlockWriter},
    },
};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

/// Bytes of complete blocks that wait for Redis: of one project, and of all of them together. Beyond it the oldest are
/// dropped, and counted.
const PROJECT_BYTES_MAX: usize = 4 << 20;
const ALL_BYTES_MAX: usize = 32 << 20;

/// The bytes of the blocks of all projects that wait.
pub type SharedBytes = Arc<AtomicUsize>;

/// The events of a project that wait to be appended, the oldest first.
#[derive(Debug)]
pub struct EventBuffer {
    records_messages: bool,
    with_payloads: bool,
    all_bytes: SharedBytes,
    waiting: Locked<Waiting>,
    /// Held while blocks are appended, so that they keep their order: the blocks that are appended and not noted.
    pub(super) unnoted: tokio::sync::Mutex<Vec<Vec<u8>>>,
    /// Notified when a block is complete.
    pub(super) block_ready: Notify,
    /// Operations that append blocks, or are recorded once they have their reply. Each holds a token until then.
    pub(super) unsettled: TaskTracker,
}

#[derive(Debug, Default)]
struct Waiting {
    open: BlockWriter,
    complete: VecDeque<WaitingBlock>,
    bytes: usize,
    /// Events that were dropped since the last block that reports it.
    lost: u64,
    /// Whether a task appends what is recorded.
    is_driven: bool,
}

/// A block that waits.
#[derive(Debug)]
pub struct WaitingBlock {
    pub(super) header: BlockHeader,
    pub(super) stored: Vec<u8>,
    /// The number of events that are lost with it.
    events: u64,
}

/// What follows from recording an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wakeup {
    /// Nothing: a task runs, and no block is complete.
    Nothing,
    /// Some task has to append it.
    Start,
    /// A block is complete.
    BlockReady,
}

impl EventBuffer {
    /// An empty buffer.
    pub fn new(retention: &Retention, all_bytes: SharedBytes) -> Self {
        let unsettled = TaskTracker::new();
        // A tracker that is open never ends a wait.
        unsettled.close();
        Self {
            records_messages: retention.records_messages(),
            with_payloads: retention.history_payloads,
            all_bytes,
            waiting: Locked::default(),
            unnoted: tokio::sync::Mutex::default(),
            block_ready: Notify::new(),
            unsettled,
        }
    }

    /// Whether the log records what happens to messages.
    pub const fn records_messages(&self) -> bool {
        self.records_messages
    }

    /// Records events.
    pub(super) fn record(&self, write: impl FnOnce(&mut Recorder<'_>)) -> Wakeup {
        let mut waiting = self.waiting.lock();
        let mut recorder = Recorder {
            buffer: self,
            waiting: &mut waiting,
            has_completed: false,
        };
        write(&mut recorder);
        let has_completed = recorder.has_completed;
        if waiting.is_empty() {
            Wakeup::Nothing
        } else if !std::mem::replace(&mut waiting.is_driven, true) {
            Wakeup::Start
        } else if has_completed {
            Wakeup::BlockReady
        } else {
            Wakeup::Nothing
        }
    }

    /// Completes the block that is being written.
    pub(super) fn complete_open(&self) {
        self.complete(&mut self.waiting.lock());
    }

    /// Takes everything, where it is at most so many blocks.
    pub(super) fn take_few(&self, len_max: usize) -> Option<VecDeque<WaitingBlock>> {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() || waiting.complete.len() >= len_max {
            return None;
        }
        self.complete(&mut waiting);
        Some(self.take_locked(&mut waiting, len_max))
    }

    /// Takes the oldest complete blocks, preceded by one that tells how many events were lost before them.
    pub(super) fn take(&self, len_max: usize) -> VecDeque<WaitingBlock> {
        self.take_locked(&mut self.waiting.lock(), len_max)
    }

    fn take_locked(&self, waiting: &mut Waiting, len_max: usize) -> VecDeque<WaitingBlock> {
        let len = waiting.complete.len().min(len_max);
        let mut blocks: VecDeque<_> = waiting.complete.drain(..len).collect();
        let bytes = blocks.iter().map(|block| block.stored.len()).sum();
        self.release(waiting, bytes);
        if let Some(first) = blocks.front()
            && waiting.lost > 0
        {
            let events = std::mem::take(&mut waiting.lost);
            let mut writer = BlockWriter::default();
            writer.event(&ProjectEvent::Lost { events }, first.header.first_ms);
            blocks.push_front(WaitingBlock {
                header: *writer.header(),
                stored: writer.finish_stored(),
                events,
            });
        }
        blocks
    }

    /// Puts blocks back that were taken and not appended.
    pub(super) fn put_back(&self, blocks: VecDeque<WaitingBlock>) {
        let mut waiting = self.waiting.lock();
        for block in blocks.into_iter().rev() {
            self.reserve(&mut waiting, block.stored.len());
            waiting.complete.push_front(block);
        }
        self.drop_excess(&mut waiting);
    }

    /// Counts the events of a block as lost: it is unknown whether it was appended.
    pub(super) fn count_lost(&self, block: &WaitingBlock) {
        METRICS.lost_events.add(block.events);
        self.waiting.lock().lost += block.events;
    }

    /// Events that were dropped and are not reported yet.
    pub(super) fn lost(&self) -> u64 {
        self.waiting.lock().lost
    }

    /// Notes that the task ends. False when something waits: the task continues.
    pub(super) fn end_task(&self) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.is_driven = !waiting.is_empty();
        !waiting.is_driven
    }

    fn complete(&self, waiting: &mut Waiting) {
        if waiting.open.is_empty() {
            return;
        }
        let header = *waiting.open.header();
        let stored = waiting.open.finish_stored();
        self.reserve(waiting, stored.len());
        waiting.complete.push_back(WaitingBlock {
            header,
            stored,
            events: header.records.into(),
        });
        self.drop_excess(waiting);
    }

    /// Drops the oldest blocks while there are too many bytes. The newest one stays.
    fn drop_excess(&self, waiting: &mut Waiting) {
        while waiting.complete.len() > 1
            && (waiting.bytes > PROJECT_BYTES_MAX || self.all_bytes.load(Ordering::Relaxed) > ALL_BYTES_MAX)
        {
            let Some(dropped) = waiting.complete.pop_front() else {
                return;
            };
            self.release(waiting, dropped.stored.len());
            METRICS.lost_events.add(dropped.events);
            waiting.lost += dropped.events;
        }
    }

    fn reserve(&self, waiting: &mut Waiting, bytes: usize) {
        waiting.bytes += bytes;
        self.all_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn release(&self, waiting: &mut Waiting, bytes: usize) {
        waiting.bytes -= bytes;
        self.all_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for EventBuffer {
    fn drop(&mut self) {
        let bytes = self.waiting.lock().bytes;
        self.all_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.open.is_empty() && self.complete.is_empty()
    }
}

/// Writes events to a locked buffer. Those of messages are written only where the log records them.
pub struct Recorder<'a> {
    buffer: &'a EventBuffer,
    waiting: &'a mut Waiting,
    has_completed: bool,
}

impl Recorder<'_> {
    /// A message was accepted for these recipients.
    pub fn accepted(&mut self, message: &Message, recipients: &[SessionId], at_ms: u64) {
        if self.buffer.records_messages {
            let with_payload = self.buffer.with_payloads;
            self.waiting.open.accepted(message, recipients, with_payload, at_ms);
            self.complete_if_full();
        }
    }

    /// A message was leased for a session.
    pub fn delivered(&mut self, message: MessageId, session: SessionId, delivery: u32, at_ms: u64) {
        if self.buffer.records_messages {
            self.waiting.open.delivered(message, session, delivery, at_ms);
            self.complete_if_full();
        }
    }

    /// A session acknowledged a message.
    pub fn acknowledged(&mut self, message: MessageId, session: SessionId, at_ms: u64) {
        if self.buffer.records_messages {
            self.waiting.open.acknowledged(message, session, at_ms);
            self.complete_if_full();
        }
    }

    /// Any event.
    pub fn event(&mut self, event: &ProjectEvent, at_ms: u64) {
        self.waiting.open.event(event, at_ms);
        self.complete_if_full();
    }

    fn complete_if_full(&mut self) {
        if self.waiting.open.is_full() {
            self.buffer.complete(self.waiting);
            self.has_completed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use actors::model::{SessionChange, SessionId};

    use super::*;

    fn buffer(all_bytes: &SharedBytes) -> EventBuffer {
        EventBuffer::new(&Retention::default(), Arc::clone(all_bytes))
    }

    fn record(buffer: &EventBuffer) -> Wakeup {
        let event = ProjectEvent::Session {
            session: SessionId::generate(),
            name: None,
            change: SessionChange::Stale,
        };
        buffer.record(|recorder| recorder.event(&event, 7))
    }

    /// Records until this many blocks are complete. Returns the number of events.
    fn complete_blocks(buffer: &EventBuffer, len: usize) -> u64 {
        let (mut events, mut blocks) = (0, 0);
        while blocks < len {
            events += 1;
            blocks += usize::from(record(buffer) == Wakeup::BlockReady);
        }
        events
    }

    #[test]
    fn the_first_event_starts_a_task_and_a_complete_block_wakes_it() {
        let buffer = buffer(&SharedBytes::default());
        assert_eq!(record(&buffer), Wakeup::Start);
        assert_eq!(record(&buffer), Wakeup::Nothing);
        complete_blocks(&buffer, 1);
        assert!(!buffer.end_task(), "a block waits");
        assert_eq!(buffer.take(9).len(), 1);
        assert!(buffer.end_task());
        assert_eq!(record(&buffer), Wakeup::Start);
    }

    #[test]
    fn what_is_too_much_is_dropped_from_the_front_and_told_once() {
        let all_bytes = SharedBytes::default();
        let buffer = buffer(&all_bytes);
        record(&buffer);
        let recorded = 1 + complete_blocks(&buffer, 100);
        let lost = buffer.lost();
        let bytes = all_bytes.load(Ordering::Relaxed);
        assert!(lost > 0 && bytes <= PROJECT_BYTES_MAX, "{lost} {bytes}");
        let blocks = buffer.take(1000);
        let kept: u64 = blocks.iter().skip(1).map(|block| u64::from(block.header.records)).sum();
        assert_eq!((blocks[0].header.records, blocks[0].events), (1, lost));
        assert_eq!(lost + kept, recorded);
        assert_eq!((buffer.lost(), all_bytes.load(Ordering::Relaxed)), (0, 0));

        buffer.put_back(blocks);
        complete_blocks(&buffer, 100);
        assert!(
            buffer.lost() >= recorded,
            "the block that told of lost events was dropped with the events"
        );
    }

    #[test]
    fn all_projects_together_are_bounded() {
        let all_bytes = SharedBytes::default();
        let buffers: Vec<_> = (0..20).map(|_| buffer(&all_bytes)).collect();
        for buffer in &buffers {
            record(buffer);
            complete_blocks(buffer, 50);
        }
        let bytes = all_bytes.load(Ordering::Relaxed);
        assert!(bytes <= ALL_BYTES_MAX + buffers.len() * (64 << 10), "{bytes}");
        drop(buffers);
        assert_eq!(all_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn few_blocks_are_taken_with_the_open_one() {
        let buffer = buffer(&SharedBytes::default());
        assert!(buffer.take_few(4).is_none());
        record(&buffer);
        assert_eq!(buffer.take_few(4).unwrap().len(), 1);
        record(&buffer);
        complete_blocks(&buffer, 4);
        assert!(buffer.take_few(4).is_none(), "too much for a function");
        assert_eq!(buffer.take(9).len(), 4);
    }
}
