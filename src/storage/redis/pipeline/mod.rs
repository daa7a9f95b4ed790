//! The pipeline of one project: operations gather while earlier ones are outstanding, and go to Redis as one function
//! call.
//!
//! `queue` holds what waits, `driver` sends it as batches and distributes the replies, `retry` returns the leases of
//! batches whose answer never came, `group_acks` and `auto_ack` gather acknowledgements of what connections have
//! written. Nothing here knows what an operation means.

mod auto_ack;
mod driver;
mod group_acks;
mod group_lease;
mod incomplete_reply;
mod queue;
mod retry;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actors::{
    model::{MessageId, ProjectId, SessionId},
    storage::{StoreEpoch, StoreError},
};
use tokio::sync::{Notify, oneshot};

use self::{auto_ack::ReplyTarget, queue::Queue};
use super::{
    breaker::CircuitBreaker,
    client::{RedisClient, store_closed},
    library::Preamble,
    local_messages::LocalMessages,
    operation::Operation,
    reply::Reply,
    timeline::Witness,
};

/// The answer to an operation that is queued.
type PendingReply = oneshot::Receiver<Result<Reply, StoreError>>;

/// The operations of one project, in the order in which they were first polled. Two batches are outstanding at most;
/// the more there is to do, the more operations share one batch, and the less each of them costs.
pub(super) struct Pipeline {
    pub client: Arc<RedisClient>,
    pub project: ProjectId,
    pub local_messages: LocalMessages,
    pub breaker: Arc<CircuitBreaker>,
    preamble: Preamble,
    queue: Mutex<Queue>,
    /// Notified when another batch is worth sending while one is outstanding.
    batch_ready: Notify,
}

impl Pipeline {
    /// A pipeline without operations. Its task is started by the first of them.
    pub fn new(client: Arc<RedisClient>, project: ProjectId) -> Self {
        Self {
            preamble: Preamble::new(client.replica, &project),
            local_messages: LocalMessages::default(),
            breaker: client.project_breaker(),
            queue: Mutex::default(),
            batch_ready: Notify::new(),
            client,
            project,
        }
    }

    /// Carries out an operation. Its place in the order is that of the first poll; dropping the future does not cancel
    /// it. `at` is the epoch of the store on which the operation rests; None for one that rests on nothing.
    ///
    /// # Errors
    /// `RolledBack` when the epoch is over; `Full` when Redis has no memory; `Unreachable` when the queue is full, the
    /// breaker is open, or Redis does not answer in time.
    pub async fn submit(self: Arc<Self>, operation: Operation, at: Option<StoreEpoch>) -> Result<Reply, StoreError> {
        let reply = self.enqueue(operation, at)?;
        reply.await.unwrap_or_else(|_| Err(store_closed()))
    }

    /// Acknowledges messages that were written to a connection, together with those of other sessions: within
    /// [`auto_ack::DELAY`], and before any later operation that reads inboxes.
    ///
    /// # Errors
    /// Those of [`Self::submit`].
    pub async fn submit_auto_ack(
        self: Arc<Self>,
        session: SessionId,
        messages: Vec<MessageId>,
        at: Option<StoreEpoch>,
    ) -> Result<Reply, StoreError> {
        let reply = self.enqueue_auto_ack(session, &messages, at)?;
        reply.await.unwrap_or_else(|_| Err(store_closed()))
    }

    /// The epoch of the store at which the current data set was first seen.
    pub fn epoch(&self) -> StoreEpoch {
        self.queue().epoch()
    }

    /// Takes over what a batch has seen of the data set. When the data set has gone back, everything that is queued
    /// fails: it rests on data that is lost. Returns the new epoch then.
    pub fn observe(&self, witness: Witness) -> Option<StoreEpoch> {
        let (epoch, void) = {
            let mut queue = self.queue();
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

    fn enqueue(self: &Arc<Self>, operation: Operation, at: Option<StoreEpoch>) -> Result<PendingReply, StoreError> {
        let mut queue = self.queue();
        queue.check_epoch(at)?;
        self.enqueue_in(&mut queue, operation)
    }

    fn enqueue_in(self: &Arc<Self>, queue: &mut Queue, operation: Operation) -> Result<PendingReply, StoreError> {
        self.breaker.admit()?;
        queue.check_room()?;
        let (reply_to, reply) = oneshot::channel();
        let deadline = self.client.deadline();
        if operation.reads_inboxes {
            queue.settle_group_leases_of(&operation);
            queue.push_auto_acks(deadline);
        }
        queue.push(operation, deadline, ReplyTarget::Single(reply_to));
        self.wake_driver(queue);
        Ok(reply)
    }

    fn enqueue_auto_ack(
        self: &Arc<Self>,
        session: SessionId,
        messages: &[MessageId],
        at: Option<StoreEpoch>,
    ) -> Result<PendingReply, StoreError> {
        self.breaker.admit()?;
        let (reply_to, reply) = oneshot::channel();
        let mut queue = self.queue();
        queue.check_epoch(at)?;
        let is_first = queue.auto_acks.is_empty();
        queue.auto_acks.add(session, messages, reply_to);
        if queue.auto_acks.is_full() {
            self.push_auto_acks(&mut queue);
        } else if is_first {
            let pipeline = Arc::clone(self);
            self.client.thread.spawn(async move {
                tokio::time::sleep(auto_ack::DELAY).await;
                pipeline.push_auto_acks(&mut pipeline.queue());
            });
        }
        Ok(reply)
    }

    fn push_auto_acks(self: &Arc<Self>, queue: &mut Queue) {
        queue.push_auto_acks(self.client.deadline());
        self.wake_driver(queue);
    }

    /// Starts the task of the pipeline where something waits, or tells it that another batch is worth sending.
    fn wake_driver(self: &Arc<Self>, queue: &mut Queue) {
        if queue.is_empty() {
            return;
        }
        if queue.set_driven() {
            self.client.thread.spawn(driver::run(Arc::clone(self)));
        } else if queue.is_worth_a_batch() {
            self.batch_ready.notify_one();
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
