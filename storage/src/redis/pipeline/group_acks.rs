//! Acknowledges group leases: once for all members, when the message was written to all of them or the time is over.

use std::{sync::Arc, time::Duration};

use actors::{
    model::{MessageId, SessionId},
    storage::{StoreEpoch, StoreError},
};
use futures_util::future::join_all;

use super::{
    super::{client::store_closed, operation::Operation, reply::PendingReply},
    Pipeline,
    group_lease::{GroupLease, Members, WrittenEffect},
    queue::Queue,
    retry::RETRY_INTERVAL,
};

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
