//! A tenant: owns its registry, its router and its sessions.

mod actor;
mod charter;
mod crossing;
mod directory;
mod handle;
mod looks;
mod messages;
mod news;
mod presence;
mod projects;

use std::time::Duration;

pub use actor::Project;
pub use charter::{Charter, Terms};
pub use crossing::Crossing;
pub use directory::{Directory, Found, SessionQuery};
pub use handle::{Dispatch, Envelope, Page, ProjectHandle, ReceiveRequest, RedriveRequest};
#[cfg(feature = "faults")]
pub use messages::Panic;
pub use messages::{ProtocolDefinition, Registered, Registration};
pub use projects::Projects;

use crate::{model::Presence, supervise::Policy};

/// What applies to every project of a broker.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Messages that may wait for one session, where its project says nothing else.
    pub queue_capacity: usize,
    /// Sessions that a project may have, where it says nothing else.
    pub sessions_max: usize,
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

impl Settings {
    /// Messages in one queue of this capacity from which on it is nearly full.
    pub fn queue_warning_len(&self, queue_capacity: usize) -> usize {
        // A share of a count that fits into memory is exact enough as a float.
        #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]
        let len = (queue_capacity as f64 * self.queue_warning).ceil() as usize;
        len.max(1)
    }
}
