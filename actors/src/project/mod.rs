//! A tenant: an actor that owns a registry, a router and sessions, and the verbs that surfaces call. It knows no
//! other project except to send messages to it.

mod actor;
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
pub use directory::{Directory, SelectedRecipients, SessionQuery};
pub use handle::{
    CrossProjectSend, LateAnswer, Lookup, Page, PendingLookup, PreparedSend, ProjectHandle, ProtocolDefinition,
    ReceiveRequest, RedriveRequest, SendRequest,
};
#[cfg(feature = "faults")]
pub use messages::Panic;
pub use messages::{Registered, Registration};
pub use policy::{PolicyLimits, ProjectPolicy};
pub use projects::Projects;

use crate::{model::PresenceTimeouts, supervise::RestartPolicy};

/// Settings of every project of a broker.
#[derive(Clone, Copy, Debug)]
pub struct ProjectSettings {
    /// Messages that may wait for one session, unless the project's record says otherwise.
    pub queue_capacity: usize,
    /// Sessions of a project, unless its record says otherwise.
    pub sessions_max: usize,
    /// The share of the queue capacity from which on a warning is logged.
    pub queue_warning: f64,
    /// Deliveries of one message without acknowledgement until it becomes a dead letter.
    pub delivery_limit: u32,
    /// How often a live connection is asked for a heartbeat.
    pub heartbeat_interval: Duration,
    /// The silence after which a session is stale or disconnected.
    pub presence: PresenceTimeouts,
    /// How long a disconnected session keeps its name and its inbox.
    pub session_retention: Duration,
    pub restarts: RestartPolicy,
}

impl ProjectSettings {
    /// Messages in a queue of this capacity from which on a warning is logged.
    pub fn queue_warning_len(&self, queue_capacity: usize) -> usize {
        // A share of a count that fits into memory is exact enough as a float.
        #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]
        let len = (queue_capacity as f64 * self.queue_warning).ceil() as usize;
        len.max(1)
    }
}
