//! A bounded walk over the messages of the event log: what lists, threads and the flow between sessions have in common.

use tokio::sync::SemaphorePermit;

use super::ProjectHandle;
use crate::{
    model::{BrokerError, EventKinds, ProjectEvent},
    storage::{Direction, EventPosition, EventQuery, EventStart, LoggedEvent},
};

/// Walks of a project at once that keep what they have counted, up to 15 MB each, or look at many records. More of them
/// wait for their turn.
pub(in crate::project) const WALKS_MAX: usize = 2;
/// Records that a long walk looks at, at most: about 16,000 messages with their deliveries.
pub(super) const COUNT_SCAN_MAX: usize = 50_000;
/// Records of one read of such a walk.
pub(super) const COUNT_READ_MAX: usize = 5_000;
/// Bytes of one read of the log.
pub(super) const READ_BYTES: usize = 1 << 20;
/// Recipients of messages that one walk looks at, at most, unless one message has more: broadcasts have many.
const RECIPIENTS_SCAN_MAX: usize = 200_000;
/// Recipients that a walk counts before it lets others work, unless one message has more: about 2 ms.
const RECIPIENTS_AT_ONCE: usize = 10_000;

/// What a walk looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Where it begins.
    pub from: EventStart,
    /// Where it goes from there.
    pub direction: Direction,
    /// Only what happened before this time, in milliseconds since the Unix epoch.
    pub until_ms: Option<u64>,
    /// Only what happened at this time or later, in milliseconds since the Unix epoch.
    pub since_ms: Option<u64>,
    /// The kinds of events that it finds.
    pub kinds: EventKinds,
    /// Records that it looks at, at most.
    pub scan_max: usize,
    /// Records of one read of the log, at most: others wait while they are decoded.
    pub read_max: usize,
}

/// A walk over the log. It reads at most `scan_max` records, and messages with 200,000 recipients together; in between it lets
/// others work.
pub(super) struct LogScan {
    span: Span,
    /// Where the next read begins; None once the walk has ended.
    from: Option<EventStart>,
    scanned: usize,
    recipients: usize,
    /// Recipients that were counted since others could work.
    counted: usize,
    /// Where another walk could continue, after a bound has ended this one.
    rest: Option<EventPosition>,
    oldest_ms: Option<u64>,
}

impl LogScan {
    pub(super) fn new(span: Span) -> Self {
        Self {
            span,
            from: Some(span.from),
            scanned: 0,
            recipients: 0,
            counted: 0,
            rest: None,
            oldest_ms: None,
        }
    }

    /// The next events in the direction of the walk; None once the walk has ended.
    ///
    /// # Errors
    /// `unavailable`.
    pub(super) async fn next(&mut self, project: &ProjectHandle) -> Result<Option<Vec<LoggedEvent>>, BrokerError> {
        let Some(from) = self.from.take() else {
            return Ok(None);
        };
        if self.scanned > 0 {
            tokio::task::yield_now().await;
        }
        let query = EventQuery {
            from,
            direction: self.span.direction,
            kinds: self.span.kinds,
            scan_max: self.span.read_max.min(self.span.scan_max - self.scanned),
            bytes_max: READ_BYTES,
        };
        let mut read = project.events(query).await?;
        self.scanned += read.scanned;
        let times = self.span.since_ms.unwrap_or(0)..self.span.until_ms.unwrap_or(u64::MAX);
        let end = read.events.iter().position(|event| match self.span.direction {
            Direction::Backward => event.at_ms < times.start,
            Direction::Forward => event.at_ms >= times.end,
        });
        read.events.truncate(end.unwrap_or(read.events.len()));
        // The events of several replicas are not quite in the order of their times.
        read.events.retain(|event| times.contains(&event.at_ms));
        self.recipients += read.events.iter().map(recipients_len).sum::<usize>();
        self.oldest_ms = read.events.last().map(|event| event.at_ms).or(self.oldest_ms);
        if let Some(next) = read.next.filter(|_| read.more && end.is_none()) {
            if self.scanned >= self.span.scan_max || self.recipients >= RECIPIENTS_SCAN_MAX {
                self.rest = Some(next);
            } else {
                self.from = Some(behind(next, self.span.direction));
            }
        }
        Ok(Some(read.events))
    }

    /// To be called before the recipients of a message are counted: lets others work now and then.
    pub(super) async fn count(&mut self, event: &LoggedEvent) {
        self.counted += recipients_len(event);
        if self.counted > RECIPIENTS_AT_ONCE {
            self.counted = 0;
            tokio::task::yield_now().await;
        }
    }

    /// Ends the walk behind what it has found. Another one can continue from there.
    pub(super) fn end(&mut self) {
        if let Some(EventStart::Before(next) | EventStart::After(next)) = self.from.take() {
            self.rest = Some(next);
        }
    }

    /// Where another walk can continue; None if this one has seen everything that it was to look at.
    pub(super) fn rest(&self) -> Option<EventPosition> {
        self.rest
    }

    /// The number of records that were looked at.
    pub(super) fn scanned(&self) -> usize {
        self.scanned
    }

    /// The time of the oldest event that was found, in milliseconds since the Unix epoch.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.oldest_ms
    }
}

impl ProjectHandle {
    /// Waits until this project may walk over its log and keep what it counts. The permit ends when it is dropped.
    pub(super) async fn walk_permit(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.0.history_walks.acquire().await.ok()
    }
}

/// Where a walk in this direction continues after an event.
pub(super) fn behind(position: EventPosition, direction: Direction) -> EventStart {
    match direction {
        Direction::Backward => EventStart::Before(position),
        Direction::Forward => EventStart::After(position),
    }
}

fn recipients_len(event: &LoggedEvent) -> usize {
    match &event.event {
        ProjectEvent::Accepted(accepted) => accepted.recipients.len(),
        _ => 0,
    }
}
