//! The storage contract: what a backend keeps for the broker, and the three backends' shared parts.
//!
//! [`Storage`] holds the records of all projects and opens the [`Store`] of one. A store holds sessions, protocols,
//! inboxes, receipts, dead letters, questions, records, claims and the event log; everything in it outlives the actors that use it. `contract.rs` and `store.rs` are the way in;
//! each subject has a file with its trait and its types. [`memory`] is the reference backend, [`disk`] the durable one,
//! and `conformance` (for tests only) the suite that every backend passes. `state/` decides for both memory and disk. Nothing here
//! knows an actor or reads a clock.

mod claim;
mod claims;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod contract;
mod dead_letters;
pub mod disk;
mod error;
pub mod events;
mod inboxes;
mod lenses;
mod local;
pub mod memory;
mod protocols;
mod questions;
mod records;
mod replicated;
mod retention;
mod sessions;
mod state;
mod store;
mod tracking;
mod unswept;

pub use claim::Claim;
pub use claims::{ClaimEpoch, ClaimStore, ENDED_AT_ONCE_MAX, HeldClaim};
pub use contract::{ReplicaDirectory, ReplicatedStorage, ServerFigures, Storage, StorageFigures, StoreEpoch};
pub use dead_letters::{
    BlockedDeadLetter, DeadLetterPage, DeadLetterQuery, DeadLetterStore, REPORT_BYTES_MAX, REPORT_LEN_MAX, REPORTS,
    RedriveRefusal, Redriven, Unreported,
};
pub use error::{Op, StorageHealth, StoreError};
pub use events::{Direction, EventPage, EventPosition, EventQuery, EventStart, EventStore, LoggedEvent};
pub use inboxes::{
    Acknowledge, Acknowledged, Append, Appended, Audience, Delivery, Depth, InboxStore, Lease, Peeked,
    RecipientRefusal, Release, Released, Swept,
};
pub use lenses::{LensPut, StoredLens};
pub use protocols::Inserted;
pub use questions::{
    Asked, DRAFTS_MAX, DraftPut, HELD_YAPS_BYTES_MAX, HELD_YAPS_MAX, OPEN_BYTES_DIVISOR, OPEN_MAX, OPEN_OF_SESSION_MAX,
    QuestionStore, QuestionsFull, ReleasedYaps, SESSION_BYTES_DIVISOR, Updated, YAP_BACKDATE_MAX, YAPS_BYTES_MAX,
    YAPS_MAX, YAPS_RETENTION, YapHeld, asked_bytes_max,
};
pub use records::{
    ADDED_BACKENDS_MAX, BACKEND_LISTS_BYTES_MAX, BACKEND_TABLE_BYTES_MAX, Before, RecordPut, RecordStore, Table,
};
pub use replicated::{Heartbeat, HeartbeatExchange, PrefetchLimit, PushStore, PushedDelivery, ReplicatedStore};
pub use retention::{COPY_BYTES, QUESTION_BYTES, Retention, Usage, envelope_bytes};
pub use sessions::{Claimed, KEPT_AT_ONCE_BYTES, LastSign, PutOutcome, PutSession, Roster, SessionKey, SessionStore};
pub use store::Store;
pub use tracking::{KeyReservation, SendResult, TrackingStore};
pub use unswept::Unswept;
