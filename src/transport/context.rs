//! The state, intervals and bounds that all transports share.

use std::{sync::Arc, time::Duration};

use actors::{model::ReplicaId, storage::ReplicaDirectory};

use super::Connections;
use crate::edge::Admission;
use api::{auth::Authenticator, budget::ByteBudget, mcp::Service};

/// Bytes for the JSON-RPC envelope around the largest payload.
const ENVELOPE_LEN_MAX: usize = 64 * 1024;

/// State that all transports share.
#[derive(Clone)]
pub struct TransportContext {
    pub connections: Arc<Connections>,
    pub admission: Admission,
    pub auth: Arc<Authenticator>,
    pub service: Arc<Service>,
    pub timeouts: Timeouts,
    /// The other replicas; `None` when the storage is not shared.
    pub replicas: Option<Arc<dyn ReplicaDirectory>>,
    /// Byte budget of frames and bodies that are being received, small ones excepted.
    pub inbound: Arc<ByteBudget>,
}

/// Length of a refused body that is still read to its end, in messages of the largest size.
const DISCARDED_MESSAGES_MAX: usize = 4;
impl TransportContext {
    /// The id of this replica.
    pub fn replica_id(&self) -> Option<ReplicaId> {
        self.replicas.as_ref().map(|replicas| replicas.own_id())
    }

    /// Bytes of a refused body that are still read and discarded.
    pub fn discarded_body_len_max(&self) -> usize {
        DISCARDED_MESSAGES_MAX * self.message_len_max()
    }

    /// Bytes of one message with its envelope.
    pub fn message_len_max(&self) -> usize {
        self.service.payload_len_max + ENVELOPE_LEN_MAX
    }
}

/// Intervals and timeouts of connections.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Interval between pings of an idle peer.
    pub ping_interval: Duration,
    /// A peer that takes no bytes for this long is a slow consumer.
    pub stall_timeout: Duration,
    /// A peer that sends nothing for this long is lost.
    pub silence_timeout: Duration,
}
