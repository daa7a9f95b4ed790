use std::{sync::Arc, time::Duration};

use actors::{model::ReplicaId, storage::ReplicaDirectory};

use super::Connections;
use crate::{admission::Admission, auth::Authenticator, budget::Budget, mcp::Service};

/// Room for the JSON-RPC envelope around the largest payload.
const ENVELOPE_LEN_MAX: usize = 64 * 1024;

/// What every way in needs to know.
#[derive(Clone)]
pub struct TransportContext {
    pub connections: Arc<Connections>,
    pub admission: Admission,
    pub auth: Arc<Authenticator>,
    pub service: Arc<Service>,
    pub timeouts: Timeouts,
    /// The replicas that share the storage, where there can be others.
    pub replicas: Option<Arc<dyn ReplicaDirectory>>,
    /// What is being received by all connections, of what is not small.
    pub inbound: Arc<Budget>,
}

/// A refused body is read to its end if it has no more bytes than so many messages may have.
const DISCARDED_MESSAGES_MAX: usize = 4;
impl TransportContext {
    /// This process among the replicas.
    pub fn replica_id(&self) -> Option<ReplicaId> {
        self.replicas.as_ref().map(|replicas| replicas.own_id())
    }

    /// Bytes of a refused body that are still read, and thrown away.
    pub fn discarded_body_len_max(&self) -> usize {
        DISCARDED_MESSAGES_MAX * self.message_len_max()
    }

    /// Bytes of one message, with everything around its payload.
    pub fn message_len_max(&self) -> usize {
        self.service.payload_len_max + ENVELOPE_LEN_MAX
    }
}

/// The times by which a connection lives.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// How often an idle peer is pinged.
    pub ping_interval: Duration,
    /// A peer that takes nothing of what waits for it for so long is a slow consumer.
    pub stall_timeout: Duration,
    /// A peer that shows no sign of life for so long is gone.
    pub silence_timeout: Duration,
}
