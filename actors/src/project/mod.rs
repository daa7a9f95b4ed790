//! A tenant: owns its registry, its router and its sessions.

mod actor;
mod cross_project;
mod directory;
mod handle;
mod heartbeats;
mod messages;
mod policy;
mod projects;
mod replication;
mod resync;

use std::time::Duration;

pub use actor::Project;
pub use cross_project::CrossProjectSend;
pub use directory::{Directory, SelectedRecipients, SessionQuery};
pub use handle::{Page, PreparedSend, ProjectHandle, ReceiveRequest, RedriveRequest, SendRequest};
#[cfg(feature = "faults")]
pub use messages::Panic;
pub use messages::{ProtocolDefinition, Registered, Registration};
pub use policy::{PolicyLimits, ProjectPolicy};
pub use projects::Projects;

use crate::{model::PresenceTimeouts, supervise::RestartPolicy};

/// What applies to every project of a broker.
#[derive(Clone, Copy, Debug)]
pub struct ProjectSettings {
    /// Messages that may wait for one session, where its project says nothing else.
    pub queue_capacity: usize,
    /// Sessions that a project may have, where it says nothing else.
    pub sessions_max: usize,
    /// The share of the capacity from which on a warning is logged.
    pub queue_warning: f64,
    /// Deliveries of one message without acknowledgement until it is dead-lettered.
    pub delivery_limit: u32,
    pub heartbeat_interval: Duration,
    pub presence: PresenceTimeouts,
    /// How long a disconnected session keeps its name and its inbox.
    pub session_retention: Duration,
    pub restarts: RestartPolicy,
}

impl ProjectSettings {
    /// Messages in one queue of this capacity from which on it is nearly full.
    pub fn queue_warning_len(&self, queue_capacity: usize) -> usize {
        // A share of a count that fits into memory is exact enough as a float.
        #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]
        let len = (queue_capacity as f64 * self.queue_warning).ceil() as usize;
        len.max(1)
    }
}
