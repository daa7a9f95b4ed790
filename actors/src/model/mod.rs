//! Values: what the broker talks about, parsed once at the edge and immutable from then on.

mod capabilities;
mod error;
mod ids;
mod message;
mod protocol;
mod session;

pub use capabilities::{Capabilities, CapabilityFilter};
pub use error::{BrokerError, PathFailure};
pub use ids::{ConnectionId, MessageId, ProjectId, SessionId, SessionName, UNSET_ID};
pub use message::{
    DeadLetter, DeadLetterReason, Draft, Headers, Message, MessageIds, Priority, Progress, RecipientStatus, Status, To,
};
pub use protocol::{Pattern, ProtocolMetadata, ProtocolName, ProtocolRecord};
pub use session::{Presence, SessionRecord, SessionStatus};
