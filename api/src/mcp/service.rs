//! What all peers of a process share.

use std::{sync::Arc, time::Duration};

use actors::model::{ProjectId, ReplicaId, ToolSet};

use super::{
    client_input::ClarifyBy,
    list_changes::ListChanges,
    outbox::{Framing, Outbox},
    request_state::StateSigner,
    tasks::Tasks,
};
use crate::{
    budget::{ByteBudget, Reservation},
    verbs::administration::Administration,
};

/// What all peers of a process share.
pub struct Service {
    /// Bytes of one payload.
    pub payload_len_max: usize,
    /// The interval of progress notifications of a waiting call, which keep its client and proxies from giving up.
    pub progress_interval: Duration,
    /// Administers projects, keys and permissions.
    pub admin: Arc<Administration>,
    /// The tasks of the process.
    pub tasks: Arc<Tasks>,
    /// Announces changes of the lists that clients cache.
    pub lists: ListChanges,
    /// Bounds the bytes of answers and pushed messages of all peers.
    pub outbound: Arc<ByteBudget>,
    /// By which ways `clarify` reaches people.
    pub clarify_by: ClarifyBy,
    /// The tools that callers are listed whose keys do not say which.
    pub tools: ToolSet,
    /// How long calls of backends may last when the broker stops.
    pub call_drain: Duration,
    /// Signs the state that clients carry between rounds.
    pub state_signer: StateSigner,
}

impl Service {
    /// Without tasks, with the default of `tools`. `replica` is part of the ids of tasks and of signed states.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(
        payload_len_max: usize,
        progress_interval: Duration,
        admin: Arc<Administration>,
        replica: Option<ReplicaId>,
        outbound: Arc<ByteBudget>,
        clarify_by: ClarifyBy,
        call_drain: Duration,
    ) -> Result<Self, getrandom::Error> {
        Ok(Self {
            payload_len_max,
            progress_interval,
            admin,
            tasks: Tasks::new(replica),
            lists: ListChanges::default(),
            outbound,
            clarify_by,
            tools: ToolSet::default(),
            call_drain,
            state_signer: StateSigner::random(replica)?,
        })
    }

    /// The outbox of a peer of this project.
    pub fn outbox(&self, framing: Framing, project: &ProjectId) -> Arc<Outbox> {
        Arc::new(Outbox::with_budget(framing, Reservation::new(&self.outbound, project)))
    }
}
