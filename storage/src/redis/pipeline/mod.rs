//! The pipeline of one project: operations gather while earlier ones are outstanding, and go to Redis as one function
//! call.
//!
//! This file takes operations, and acknowledges group leases: once for all members, when the message was written to all of them or
//! the time is over. `queue` holds the waiting ones, gathers acknowledgements of what connections have written, and notes
//! the leases of batches whose answer never came; `driver` sends the operations as batches and distributes the replies;
//! `group_lease` has what is written of the group leases, `losses` reports lost data. Nothing here knows what an operation means.

mod driver;
mod group_lease;
mod losses;
mod queue;

use std::{sync::Arc, time::Duration};

use actors::{
    locked::Locked,
    model::{MessageId, ProjectId, SessionId},
    storage::{StoreEpoch, StoreError},
};
use futures_util::future::join_all;
use tokio::sync::{Notify, oneshot};

use super::{
    breaker::CircuitBreaker,
    client::{RedisClient, store_closed},
    events::buffer::EventBuffer,
    library::Preamble,
    local_messages::LocalMessages,
    operation::Operation,
    pipeline::{
        group_lease::{GroupLease, Members, WrittenEffect},
        queue::{AUTO_ACK_DELAY, Queue, RETRY_INTERVAL, ReplyTarget},
    },
    reply::{PendingReply, Reply},
    timeline::Witness,
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
    /// [`AUTO_ACK_DELAY`], and before any later operation that reads inboxes.
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
    fn enqueue_in(self: &Arc<Self>, queue: &mut Queue, operation: Operation) -> Result<PendingReply, StoreError> {
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
                tokio::time::sleep(AUTO_ACK_DELAY).await;
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

/// Time that is granted for each member of a group lease, where that is more than the timeout of the settings: writing
/// to many connections takes its time.
const TIMEOUT_PER_SESSION: Duration = Duration::from_micros(100);

/// How the acknowledgement of a group lease ended.
enum GroupLeaseEnd {
    Acknowledged,
    /// There is no such group lease: its members have leases of their own.
    Gone,
    /// The data set went back.
    RolledBack,
}

impl Pipeline {
    /// Begins to count to which members of a group lease its message is written. After the timeout the others get
    /// leases of their own.
    pub fn begin_group_lease(self: &Arc<Self>, message: MessageId, members: impl Iterator<Item = SessionId>) {
        let len = self.queue.lock().group_leases.insert(message, members);
        let timeout = self.client.group_lease_timeout.max(TIMEOUT_PER_SESSION * len);
        let pipeline = Arc::clone(self);
        self.client.thread.spawn(async move {
            tokio::time::sleep(timeout).await;
            let mut queue = pipeline.queue.lock();
            if let Some(lease) = queue.group_leases.remove(message) {
                pipeline.acknowledge_group_lease(&mut queue, message, lease);
            }
        });
    }

    /// Notes messages that were written to a session, and removes from them those that belong to group leases: they are
    /// acknowledged with their group.
    pub fn note_group_written(self: &Arc<Self>, session: SessionId, messages: &mut Vec<MessageId>) {
        let mut queue = self.queue.lock();
        if queue.group_leases.is_empty() {
            return;
        }
        messages.retain(|message| match queue.group_leases.note_written(session, *message) {
            WrittenEffect::NotMember => true,
            WrittenEffect::Counted => false,
            WrittenEffect::Complete(lease) => {
                self.acknowledge_group_lease(&mut queue, *message, lease);
                false
            }
        });
    }

    /// Queues the acknowledgement at once, so that it precedes later operations on these inboxes.
    fn acknowledge_group_lease(self: &Arc<Self>, queue: &mut Queue, message: MessageId, lease: GroupLease) {
        let Members {
            pending,
            written,
            acknowledged,
        } = lease.split();
        let now = actors::clock::now();
        let replica = self.client.replica.to_string();
        let operation = Operation::new("acknowledge_group_lease")
            .without_reading_inboxes()
            .time(now)
            .text([message.as_uuid().as_bytes(), replica.as_bytes()].concat())
            .sessions(&pending);
        let epoch = queue.epoch();
        let reply = self.enqueue_in(queue, operation.clone());
        let pipeline = Arc::clone(self);
        self.client.thread.spawn(async move {
            match pipeline.end_group_lease(operation, reply, epoch).await {
                GroupLeaseEnd::Acknowledged => {
                    let written = written.iter().map(|session| (message, *session));
                    pipeline.record_acknowledged(written, now);
                }
                GroupLeaseEnd::Gone => {
                    let written = [written, acknowledged].concat();
                    pipeline.acknowledge_members(message, written, epoch).await;
                }
                GroupLeaseEnd::RolledBack => {}
            }
        });
    }

    /// Waits for the acknowledgement and repeats it while Redis is unreachable: no other process does it, and doing it
    /// twice is harmless.
    async fn end_group_lease(
        self: &Arc<Self>,
        operation: Operation,
        mut reply: Result<PendingReply, StoreError>,
        epoch: StoreEpoch,
    ) -> GroupLeaseEnd {
        loop {
            let answer = match reply {
                Ok(reply) => reply.await.unwrap_or_else(|_| Err(store_closed())),
                Err(error) => Err(error),
            };
            match answer.and_then(|mut reply| reply.int()) {
                Ok(1) => return GroupLeaseEnd::Acknowledged,
                Ok(_) => return GroupLeaseEnd::Gone,
                Err(StoreError::Unreachable(_)) => tokio::time::sleep(RETRY_INTERVAL).await,
                Err(StoreError::RolledBack) => return GroupLeaseEnd::RolledBack,
                Err(error) => {
                    tracing::warn!(project = %self.project, %error, "a group lease cannot be acknowledged; its members are acknowledged one by one");
                    return GroupLeaseEnd::Gone;
                }
            }
            reply = self.enqueue(operation.clone(), Some(epoch));
        }
    }

    /// Acknowledges the message for each of these sessions, and repeats it where Redis was unreachable.
    async fn acknowledge_members(
        self: &Arc<Self>,
        message: MessageId,
        mut sessions: Vec<SessionId>,
        epoch: StoreEpoch,
    ) {
        while !sessions.is_empty() {
            let submit = |session: &_| Arc::clone(self).submit_auto_ack(*session, vec![message], Some(epoch));
            let mut answers = join_all(sessions.iter().map(submit)).await.into_iter();
            sessions.retain(|_| matches!(answers.next(), Some(Err(StoreError::Unreachable(_)))));
            if !sessions.is_empty() {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}
