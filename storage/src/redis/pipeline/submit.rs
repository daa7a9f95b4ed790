//! Operations enter the pipeline here, and acknowledgements of what was written, which are gathered.

use std::sync::Arc;

use actors::{
    model::{MessageId, SessionId},
    storage::{StoreEpoch, StoreError},
};
use tokio::sync::oneshot;

use super::{
    super::{
        client::store_closed,
        operation::Operation,
        reply::{PendingReply, Reply},
    },
    Pipeline,
    auto_ack::{self, ReplyTarget},
    queue::Queue,
};

impl Pipeline {
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

    /// Queues an operation. Later operations come after it.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        operation: Operation,
        at: Option<StoreEpoch>,
    ) -> Result<PendingReply, StoreError> {
        let mut queue = self.queue.lock();
        queue.check_epoch(at)?;
        self.enqueue_in(&mut queue, operation)
    }

    /// Adds an operation to a queue that the caller has locked.
    pub(super) fn enqueue_in(
        self: &Arc<Self>,
        queue: &mut Queue,
        operation: Operation,
    ) -> Result<PendingReply, StoreError> {
        self.breaker.admit()?;
        queue.check_room()?;
        let (reply_to, reply) = oneshot::channel();
        let deadline = self.client.deadline();
        if operation.reads_inboxes {
            queue.settle_group_leases_of(&operation);
            queue.push_auto_acks(deadline);
        }
        if operation.records_events
            && let Some((append, taken)) = self.take_events()
        {
            let (reply_to, reply) = oneshot::channel();
            queue.push(append, deadline, ReplyTarget::Single(reply_to));
            self.await_append(taken, reply);
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
        let mut queue = self.queue.lock();
        queue.check_epoch(at)?;
        let is_first = queue.auto_acks.is_empty();
        queue.auto_acks.add(session, messages, reply_to);
        if queue.auto_acks.is_full() {
            self.push_auto_acks(&mut queue);
        } else if is_first {
            let pipeline = Arc::clone(self);
            self.client.thread.spawn(async move {
                tokio::time::sleep(auto_ack::DELAY).await;
                pipeline.push_auto_acks(&mut pipeline.queue.lock());
            });
        }
        Ok(reply)
    }

    fn push_auto_acks(self: &Arc<Self>, queue: &mut Queue) {
        queue.push_auto_acks(self.client.deadline());
        self.wake_driver(queue);
    }
}
