//! The storage contract: what a backend keeps for the broker, and the three backends' shared parts.
//!
//! [`Storage`] holds the records of all projects and opens the [`Store`] of one. A store holds sessions, protocols,
//! inboxes, receipts, dead letters, questions, the lists of backends and the event log; everything in it outlives the actors that use it. `contract.rs` and `store.rs` are the way in;
//! each subject has a file with its trait and its types. [`memory`] is the reference backend, [`disk`] the durable one,
//! and [`conformance`] the suite that every backend passes. `state/` decides for both memory and disk. Nothing here
//! knows an actor or reads a clock.

mod added_backends;
mod backend_lists;
mod claim;
pub mod conformance;
mod contract;
mod dead_letters;
pub mod disk;
mod error;
pub mod events;
mod inboxes;
mod local;
pub mod memory;
mod protocols;
mod questions;
mod replicated;
mod retention;
mod sessions;
mod state;
mod store;
mod targets;
mod tracking;

pub use added_backends::{ADDED_BACKENDS_MAX, AddedBackendStore, BACKEND_TABLE_BYTES_MAX, TableChange};
pub use backend_lists::{BACKEND_LISTS_BYTES_MAX, BackendListStore};
pub use claim::Claim;
pub use contract::{ReplicaDirectory, ReplicatedStorage, ServerFigures, Storage, StorageFigures, StoreEpoch};
pub use dead_letters::{
    BlockedDeadLetter, DeadLetterPage, DeadLetterQuery, DeadLetterStore, REPORT_BYTES_MAX, REPORT_CLAIM,
    REPORT_LEN_MAX, RedriveRefusal, Redriven, Unreported,
};
pub use error::{Op, StorageHealth, StoreError};
pub use events::{Direction, EventPage, EventPosition, EventQuery, EventStart, EventStore, LoggedEvent};
pub use inboxes::{
    Acknowledge, Acknowledged, Append, Appended, Audience, Delivery, Depth, InboxStore, Lease, Peeked,
    RecipientRefusal, Release, Released, Swept,
};
pub use protocols::{Inserted, ProtocolStore};
pub use questions::{
    Asked, ConsoleRecord, DRAFTS_MAX, DraftPut, HELD_YAPS_BYTES_MAX, HELD_YAPS_MAX, OPEN_BYTES_DIVISOR, OPEN_MAX,
    OPEN_OF_SESSION_MAX, QuestionStore, QuestionsFull, ReleasedYaps, SESSION_BYTES_DIVISOR, Updated, YAP_BACKDATE_MAX,
    YAPS_BYTES_MAX, YAPS_MAX, YAPS_RETENTION, YapHeld, asked_bytes_max,
};
pub use replicated::{Heartbeat, HeartbeatExchange, PrefetchLimit, PushStore, PushedDelivery, ReplicatedStore};
pub use retention::{COPY_BYTES, QUESTION_BYTES, Retention, Usage, envelope_bytes};
pub use sessions::{Claimed, KEPT_AT_ONCE_BYTES, LastSign, PutOutcome, PutSession, Roster, SessionKey, SessionStore};
pub use store::Store;
pub use targets::{TARGETS_MAX, TargetCursor, TargetId, TargetStore};
pub use tracking::{KeyReservation, SendResult, TrackingStore};
