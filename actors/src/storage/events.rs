//! The event log of a project: what happened, in order, for a bounded time.
//!
//! The log is a sequence of blocks. It says what happened when; the present state of a message is that of its receipts. The
//! files in `events/` encode and read blocks, for every backend.

mod block;
mod fields;
mod page;
mod position;
mod record;

pub use block::{BLOCK_BYTES, Block, BlockHeader, BlockWriter, HEADER_BYTES};
pub use fields::fields_of;
pub use page::{Boundary, PageReader, Within};
pub use position::{EventPosition, NotAPosition};
pub use record::{DamagedLog, PAYLOAD_BYTES_MAX};

use super::error::Op;
use crate::{
    clock::Now,
    model::{EventKinds, ProjectEvent},
};

/// Bytes of blocks that one [`EventStore::events`] reads, at most; and one block more.
pub const READ_BYTES_MAX: usize = 4 << 20;

/// The event log of a project.
///
/// The store records by itself what happens to messages (acceptance, delivery, acknowledgement, release, dead letters and
/// redrives), and that a session ended: only the store knows which of several callers has removed it.
pub trait EventStore {
    /// Records an event that the store does not record by itself: of a session, a protocol, an actor or the audit log.
    /// Returns at once.
    fn record(&self, event: ProjectEvent, now: Now);

    /// Reads a page of the log.
    fn events(&self, query: EventQuery) -> Op<EventPage>;
}

/// Selects a page of the log.
///
/// ```text
/// EventQuery { from: Newest, direction: Backward, kinds: ALL, scan_max: 100, .. }     // the last 100 events
/// EventQuery { from: After(p), direction: Forward, kinds: ALL, scan_max: 1000, .. }   // what came after p
/// ```
#[derive(Clone, Copy, Debug)]
pub struct EventQuery {
    /// Where the page begins.
    pub from: EventStart,
    /// In which direction it is read.
    pub direction: Direction,
    /// The events that the page contains. Others are skipped at little cost, and count as scanned.
    pub kinds: EventKinds,
    /// The largest number of events that are looked at. At least 1.
    pub scan_max: usize,
    /// The page ends with the event that reaches this many bytes, as the log keeps them. At least 1.
    pub bytes_max: usize,
}

impl EventQuery {
    /// The whole log, oldest events first.
    pub const WHOLE_LOG: Self = Self {
        from: EventStart::Oldest,
        direction: Direction::Forward,
        kinds: EventKinds::ALL,
        scan_max: usize::MAX,
        bytes_max: usize::MAX,
    };
}

/// A place between two events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventStart {
    /// Before the oldest event that is kept.
    Oldest,
    /// Behind the newest event. A page that is read forward from here is empty, and its `next` is where to follow the log.
    Newest,
    /// Behind this event.
    After(EventPosition),
    /// Before this event.
    Before(EventPosition),
    /// Before the first event at this time or later, in milliseconds since the Unix epoch.
    At(u64),
}

/// The direction in which a page is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Older events first.
    Forward,
    /// Newer events first.
    Backward,
}

/// A page of the log.
#[derive(Clone, Debug, Default)]
pub struct EventPage {
    /// The events in the direction of reading.
    pub events: Vec<LoggedEvent>,
    /// The number of events that were looked at, those of other kinds included.
    pub scanned: usize,
    /// Where to continue: [`EventStart::After`] this event when reading forward, [`EventStart::Before`] it when reading
    /// backward. Always Some when reading forward from a log that keeps positions; None once the oldest event was read.
    pub next: Option<EventPosition>,
    /// False if the page reached the end of the log, in its direction.
    pub more: bool,
    /// The oldest event that is kept; None if the log is empty.
    pub oldest: Option<EventPosition>,
    /// The events right behind the start are no longer kept, or some could not be read. The page begins with the oldest that
    /// is kept.
    pub gap: bool,
}

/// An event with its place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEvent {
    /// Its place.
    pub position: EventPosition,
    /// When it happened, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// What happened.
    pub event: ProjectEvent,
}
