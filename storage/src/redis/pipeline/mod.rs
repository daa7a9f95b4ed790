//! The pipeline of one project: operations gather while earlier ones are outstanding, and go to Redis as one function
//! call.
//!
//! `submit` takes operations, `queue` holds the waiting ones, `driver` sends them as batches and distributes the replies,
//! `retry` returns the leases of batches whose answer never came, `group_acks` and `auto_ack` gather acknowledgements of
//! what connections have written, `losses` reports lost data. Nothing here knows what an operation means.

mod auto_ack;
mod driver;
mod group_acks;
mod group_lease;
mod incomplete_reply;
mod losses;
mod queue;
mod retry;
mod submit;

use std::sync::Arc;

use actors::{
    locked::Locked,
    model::ProjectId,
    storage::{StoreEpoch, StoreError},
};
use tokio::sync::Notify;

use self::queue::Queue;
use super::{
    breaker::CircuitBreaker, client::RedisClient, events::buffer::EventBuffer, library::Preamble,
    local_messages::LocalMessages, timeline::Witness,
};

/// The operations of one project, in the order in which they were first polled. Two batches are outstanding at most;
/// the more there is to do, the more operations share one batch, and the less each of them costs.
pub(super) struct Pipeline {
    pub client: Arc<RedisClient>,
    pub project: ProjectId,
    pub local_messages: LocalMessages,
    pub breaker: Arc<CircuitBreaker>,
    /// What this replica has recorded and not appended to the event log yet.
    pub events: EventBuffer,
    preamble: Preamble,
    queue: Locked<Queue>,
    /// Notified when another batch is worth sending while one is outstanding.
    batch_ready: Notify,
}

impl Pipeline {
    /// A pipeline without operations. Its task is started by the first of them.
    pub fn new(client: Arc<RedisClient>, project: ProjectId) -> Self {
        Self {
            preamble: Preamble::new(client.replica, &client.data_set, &project),
            local_messages: LocalMessages::default(),
            breaker: client.project_breaker(),
            events: EventBuffer::new(&client.retention, Arc::clone(&client.event_bytes)),
            queue: Locked::default(),
            batch_ready: Notify::new(),
            client,
            project,
        }
    }

    /// The epoch of the store at which the current data set was first seen.
    pub fn epoch(&self) -> StoreEpoch {
        self.queue.lock().epoch()
    }

    /// Takes over what a batch has seen of the data set. When the data set has gone back, everything that is queued
    /// fails: it rests on data that is lost. Returns the new epoch then.
    pub fn observe(&self, witness: Witness) -> Option<StoreEpoch> {
        let (epoch, void) = {
            let mut queue = self.queue.lock();
            if !queue.observe(witness) {
                return None;
            }
            let epoch = self.client.losses.begin_epoch();
            (epoch, queue.reset(epoch))
        };
        self.local_messages.clear();
        for operation in void {
            operation.reply_to.send(Err(StoreError::RolledBack));
        }
        Some(epoch)
    }

    /// Operations that wait, and their bytes.
    pub fn queued(&self) -> (usize, usize) {
        self.queue.lock().queued()
    }
}
