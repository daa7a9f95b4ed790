//! A tenant: owns its registry, its router and its sessions.

mod actor;
mod directory;
mod handle;
mod messages;

use std::time::Duration;

pub use actor::Project;
pub use directory::{Directory, SessionQuery};
pub use handle::{Envelope, Page, ProjectHandle, ReceiveRequest, RedriveRequest};
#[cfg(feature = "faults")]
pub use messages::Panic;
pub use messages::{ProtocolDefinition, Registered, Registration};

use crate::{model::Presence, supervise::Policy};

/// What applies to every project of a broker.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Messages that may wait for one session.
    pub queue_capacity: usize,
    /// The share of the capacity from which on a warning is logged.
    pub queue_warning: f64,
    /// Deliveries of one message without acknowledgement until it is dead-lettered.
    pub delivery_limit: u32,
    pub heartbeat_interval: Duration,
    pub presence: Presence,
    /// How long a disconnected session keeps its name and its inbox.
    pub session_retention: Duration,
    pub restarts: Policy,
}
