//! MCP, free of any transport: frames in, frames out.
//!
//! A transport makes a [`Peer`] for each lasting connection, gives it the frames of a turn, and writes what its
//! [`Outbox`] holds. Both eras are served on the same connection: a request with modern `_meta` is answered
//! statelessly, an `initialize` opens a legacy session.

mod answer_reservation;
mod charge;
mod completions;
mod context;
mod dispatch;
#[cfg(feature = "conformance-fixtures")]
mod fixtures;
mod framing;
pub mod interactive;
pub mod list_changes;
pub mod located_id;
pub mod logging;
pub mod outbox;
mod page;
mod peer;
mod pending_receive;
mod prompts;
mod read_batch;
pub mod reply;
pub mod request_state;
mod resources;
pub mod rpc;
pub mod scan;
mod subscriptions;
pub mod tasks;
pub mod tools;
pub mod version;

use std::{sync::Arc, time::Duration};

use actors::model::{ProjectId, ReplicaId};

pub use framing::{Framing, ResponseForm};
pub use outbox::{Outbox, RetentionCounter};
pub use peer::{FrameOutcome, Peer};
pub use pending_receive::{PendingReceive, WriteMarks};
pub use reply::ReplyRoute;

use list_changes::ListChanges;
use request_state::StateSigner;
use tasks::Tasks;

use crate::{
    admin::Administration,
    budget::{Budget, Reservation},
};

/// What a server tells a model that has just connected.
pub const INSTRUCTIONS: &str = include_str!("instructions.txt");

/// What all peers of a process have in common.
pub struct Service {
    /// Bytes of one payload.
    pub payload_len_max: usize,
    /// How often the caller of a call that waits is told that it still does, so that neither it nor a proxy gives up.
    pub progress_interval: Duration,
    pub admin: Arc<Administration>,
    pub tasks: Arc<Tasks>,
    pub lists: ListChanges,
    /// What answers and pushed messages of all peers take.
    pub outbound: Arc<Budget>,
    state_signer: StateSigner,
}

impl Service {
    /// The outbox of a peer of this project.
    pub fn outbox(&self, framing: Framing, project: &ProjectId) -> Arc<Outbox> {
        Arc::new(Outbox::with_budget(framing, Reservation::new(&self.outbound, project)))
    }

    /// # Errors
    /// When the system has no random numbers.
    pub fn new(
        payload_len_max: usize,
        progress_interval: Duration,
        admin: Arc<Administration>,
        replica: Option<ReplicaId>,
        outbound: Arc<Budget>,
    ) -> Result<Self, getrandom::Error> {
        Ok(Self {
            payload_len_max,
            progress_interval,
            admin,
            tasks: Tasks::new(replica),
            lists: ListChanges::default(),
            outbound,
            state_signer: StateSigner::random()?,
        })
    }
}
