//! Values: what the broker talks about, parsed once at the edge and immutable from then on.

mod audit;
mod budget;
mod capabilities;
mod error;
mod ids;
mod key;
mod message;
mod page;
mod project;
mod protocol;
mod receipt;
mod session;

pub use audit::{AuditEntry, AuditOutcome, AuditQuery};
pub use budget::{Budget, Full};
pub use capabilities::{Capabilities, CapabilityFilter};
pub use error::{BrokerError, MissingSession, PathFailure, Side, Wall};
pub use ids::{ConnectionId, MessageId, ProjectId, ReplicaId, SessionId, SessionName, UNSET_ID};
pub use key::{ApiKey, KeyDigest, KeyId, KeyRecord, KeyStatus, Owner, Scope, Standing};
pub use message::{
    DeadLetter, DeadLetterReason, Draft, Headers, KeptMessage, Message, MessageIds, Priority, Progress,
    RecipientStatus, Status, StoredError, To,
};
pub use page::{PAGE_BYTES_MAX, PageRoom};
pub use project::{
    ConfigChanges, Grant, MadeKey, NewKey, NewProject, ProjectChanges, ProjectConfig, ProjectRecord, Rotated,
};
pub use protocol::{Pattern, ProtocolMetadata, ProtocolName, ProtocolRecord};
pub use receipt::CallReceipt;
pub use session::{Holder, Presence, SessionRecord, SessionStatus};
