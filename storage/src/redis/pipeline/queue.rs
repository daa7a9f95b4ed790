//! The queue of the pipeline: operations; acknowledgements of what was written to connections, gathered for all sessions of a
//! project; and the leases of batches whose answer never came, which are returned as if nothing had been delivered. It knows no
//! connection.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use actors::{
    model::{MessageId, SessionId},
    storage::{StoreEpoch, StoreError},
};
use deadpool_redis::redis::Value;
use tokio::{sync::oneshot, time::Instant};

use super::group_lease::GroupLeases;
use crate::redis::{
    client::store_closed,
    error::Failure,
    operation::{Operation, pack_ids},
    reply::{self, Reply},
    timeline::{Observation, Witness},
};

/// Most operations of one batch, and the bytes at which it is closed: a function blocks the server while it runs.
const BATCH_LEN_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 2 << 20;
/// Most operations that wait, and the bytes at which further ones are refused.
const QUEUED_LEN_MAX: usize = 20_000;
const QUEUED_BYTES_MAX: usize = 64 << 20;

/// An operation that waits, and who is answered.
pub(super) struct QueuedOperation {
    pub operation: Operation,
    /// When it is given up.
    pub deadline: Instant,
    pub reply_to: ReplyTarget,
}

/// What is sent to Redis as one function call.
pub(super) struct Batch {
    pub operations: Vec<QueuedOperation>,
    pub weight: usize,
    /// Earlier batches whose leases it returns.
    pub to_return: Vec<UnansweredBatch>,
}

impl Batch {
    /// Whether the client may send it a second time, because the server has no memory for a part of it. A batch that
    /// follows it would overtake it then.
    pub fn may_be_repeated(&self) -> bool {
        let accepting = self.operations.iter().filter(|queued| queued.operation.accepts).count();
        accepting > 0 && (accepting < self.operations.len() || !self.to_return.is_empty())
    }
}

/// The operations of a pipeline that wait, and what is known of those that are outstanding.
#[derive(Default)]
pub(super) struct Queue {
    operations: VecDeque<QueuedOperation>,
    /// Bytes of these operations, and about what they and their replies take together.
    bytes: usize,
    weight: usize,
    /// Acknowledgements of what connections have written. They precede any other operation that reads inboxes.
    pub auto_acks: AutoAcks,
    pub group_leases: GroupLeases,
    /// The weight of the outstanding batches.
    outstanding_weight: usize,
    /// Whether the last batch that ended was carried out.
    last_batch_succeeded: bool,
    /// Whether the task of the pipeline runs.
    is_driven: bool,
    unanswered: Vec<UnansweredBatch>,
    /// What the last batch has seen of the data set.
    witness: Witness,
    epoch: StoreEpoch,
}

impl Queue {
    /// # Errors
    /// `RolledBack` when an operation that rests on this epoch is void.
    pub fn check_epoch(&self, at: Option<StoreEpoch>) -> Result<(), StoreError> {
        if at.is_some_and(|at| at < self.epoch) {
            return Err(StoreError::RolledBack);
        }
        Ok(())
    }

    /// # Errors
    /// `Unreachable` when too much waits.
    pub fn check_room(&self) -> Result<(), StoreError> {
        if self.operations.len() >= QUEUED_LEN_MAX || self.bytes >= QUEUED_BYTES_MAX {
            return Err(StoreError::Unreachable("too many operations wait for Redis".to_owned()));
        }
        Ok(())
    }

    /// Operations that wait, and their bytes.
    pub fn queued(&self) -> (usize, usize) {
        (self.operations.len(), self.bytes)
    }

    /// Queues an operation.
    pub fn push(&mut self, operation: Operation, deadline: Instant, reply_to: ReplyTarget) {
        self.bytes += operation.request_bytes();
        self.weight += operation.weight();
        self.operations.push_back(QueuedOperation {
            operation,
            deadline,
            reply_to,
        });
    }

    /// Queues the gathered acknowledgements as one operation.
    pub fn push_auto_acks(&mut self, deadline: Instant) {
        if let Some((operation, reply_to)) = self.auto_acks.take() {
            self.push(operation, deadline, reply_to);
        }
    }

    /// Acknowledges, for each session that an operation names, the messages of group leases that were written to it:
    /// the operation is to see an inbox without them.
    pub fn settle_group_leases_of(&mut self, operation: &Operation) {
        if self.group_leases.is_empty() {
            return;
        }
        for session in operation.named_sessions() {
            let messages = self.group_leases.take_written_of(session);
            if !messages.is_empty() {
                self.auto_acks.add(session, &messages, oneshot::channel().0);
            }
        }
    }

    /// Adds the leases of a batch whose answer never came.
    pub fn add_unanswered(&mut self, batches: impl IntoIterator<Item = UnansweredBatch>) {
        self.unanswered.extend(batches);
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty() && self.unanswered.is_empty()
    }

    /// Whether another batch is worth its costs while batches are outstanding.
    pub fn is_worth_a_batch(&self) -> bool {
        !self.operations.is_empty() && 2 * self.weight >= self.outstanding_weight
    }

    /// Notes that the task of the pipeline runs. False when it ran already.
    pub const fn set_driven(&mut self) -> bool {
        !std::mem::replace(&mut self.is_driven, true)
    }

    /// Takes the next batch. None when nothing is to be sent now; with `is_idle`, when nothing is outstanding, the task
    /// ends then. An operation whose deadline is before `earliest_deadline` fails instead.
    pub fn take_batch(&mut self, is_idle: bool, earliest_deadline: Instant) -> Option<Batch> {
        if !is_idle && !self.is_worth_a_batch() {
            return None;
        }
        let (mut operations, mut bytes, mut weight) = (Vec::new(), 0, 0);
        while operations.len() < BATCH_LEN_MAX
            && bytes < BATCH_BYTES_MAX
            && let Some(queued) = self.operations.pop_front()
        {
            self.bytes -= queued.operation.request_bytes();
            self.weight -= queued.operation.weight();
            if queued.deadline < earliest_deadline {
                let reason = "Redis did not reach the operation in time".to_owned();
                queued.reply_to.send(Err(StoreError::Unreachable(reason)));
            } else {
                bytes += queued.operation.request_bytes();
                weight += queued.operation.weight();
                operations.push(queued);
            }
        }
        let to_return = std::mem::take(&mut self.unanswered);
        if operations.is_empty() && to_return.is_empty() {
            self.is_driven = !is_idle;
            return None;
        }
        self.outstanding_weight += weight;
        Some(Batch {
            operations,
            weight,
            to_return,
        })
    }

    /// Notes the end of a batch of this weight.
    pub const fn end_batch(&mut self, weight: usize, has_succeeded: bool) {
        self.outstanding_weight -= weight;
        self.last_batch_succeeded = has_succeeded;
    }

    /// Whether the last batch that ended was carried out. False before the first.
    pub const fn last_batch_succeeded(&self) -> bool {
        self.last_batch_succeeded
    }

    /// What the last batch has seen of the data set.
    pub fn witness(&self) -> Witness {
        self.witness.clone()
    }

    /// The epoch of the store at which the data set was first seen.
    pub const fn epoch(&self) -> StoreEpoch {
        self.epoch
    }

    /// Takes over what a batch has seen. True when the data set has gone back.
    pub fn observe(&mut self, witness: Witness) -> bool {
        self.witness.observe(witness) == Observation::Lost
    }

    /// Begins an epoch: drops everything that rests on the data set before. Returns the operations that waited.
    pub fn reset(&mut self, epoch: StoreEpoch) -> VecDeque<QueuedOperation> {
        self.epoch = epoch;
        (self.bytes, self.weight) = (0, 0);
        (self.auto_acks, self.group_leases) = (AutoAcks::default(), GroupLeases::default());
        self.unanswered.clear();
        std::mem::take(&mut self.operations)
    }
}

/// How long an acknowledgement waits for others: three messages of a session cost hardly more than one.
pub(super) const AUTO_ACK_DELAY: Duration = Duration::from_millis(5);
/// Messages from which on they are sent at once.
const AUTO_ACKS_LEN_MAX: usize = 256;

/// Where the answer to one request goes.
pub(super) type ReplySender = oneshot::Sender<Result<Reply, StoreError>>;

/// Where the reply to an operation goes.
pub(super) enum ReplyTarget {
    Single(ReplySender),
    /// The reply is a list, one for each session.
    PerSession(Vec<WrittenMessages>),
}

/// Messages that were written to a session, and the requests to acknowledge them. The last request gets the reply; the
/// earlier ones get the same depth and no acknowledged messages.
pub(super) struct WrittenMessages {
    session: SessionId,
    messages: Vec<MessageId>,
    senders: Vec<ReplySender>,
}

/// The gathered acknowledgements.
#[derive(Default)]
pub(super) struct AutoAcks {
    /// Positions in `sessions`.
    positions: HashMap<SessionId, usize>,
    sessions: Vec<WrittenMessages>,
    messages_len: usize,
}

impl AutoAcks {
    /// Adds the messages that were written to a session.
    pub fn add(&mut self, session: SessionId, messages: &[MessageId], reply_to: ReplySender) {
        let position = *self.positions.entry(session).or_insert(self.sessions.len());
        if position == self.sessions.len() {
            self.sessions.push(WrittenMessages {
                session,
                messages: Vec::new(),
                senders: Vec::new(),
            });
        }
        let written = &mut self.sessions[position];
        written.messages.extend(messages);
        written.senders.push(reply_to);
        self.messages_len += messages.len();
    }

    /// Whether nothing is gathered.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Whether there are enough to be sent at once.
    pub const fn is_full(&self) -> bool {
        self.messages_len >= AUTO_ACKS_LEN_MAX
    }

    /// All of them as one operation, with the requests to answer. None when there are none.
    pub fn take(&mut self) -> Option<(Operation, ReplyTarget)> {
        let gathered = std::mem::take(self);
        if gathered.is_empty() {
            return None;
        }
        let mut operation = Operation::new("acknowledge_written").time(actors::clock::now());
        for written in &gathered.sessions {
            operation = operation.session_with(written.session, pack_ids(&written.messages));
        }
        Some((operation, ReplyTarget::PerSession(gathered.sessions)))
    }
}

impl ReplyTarget {
    /// Sends the reply. A request whose future was dropped is skipped.
    pub fn send(self, reply: Result<Value, StoreError>) {
        match self {
            Self::Single(sender) => drop(sender.send(reply.and_then(Reply::new))),
            Self::PerSession(all) => match reply.and_then(Reply::new) {
                Ok(mut replies) => {
                    for written in all {
                        let reply = replies.next().ok_or_else(store_closed).and_then(Reply::new);
                        send_to_each(written.senders, reply);
                    }
                }
                Err(error) => {
                    for written in all {
                        send_to_each(written.senders, Err(error.clone()));
                    }
                }
            },
        }
    }

    /// The messages that are acknowledged by the reply to `acknowledge_written`, with their sessions.
    pub fn acknowledged(&self, reply: &Value) -> Vec<(MessageId, SessionId)> {
        let (Self::PerSession(all), Value::Array(replies)) = (self, reply) else {
            return Vec::new();
        };
        let mut acknowledged = Vec::new();
        for (written, reply) in all.iter().zip(replies) {
            let known = reply::without(&written.messages, reply::unknown_messages(reply));
            acknowledged.extend(known.map(|message| (message, written.session)));
        }
        acknowledged
    }
}

/// Sends the reply to the last request, and its depth to the earlier ones.
fn send_to_each(mut senders: Vec<ReplySender>, reply: Result<Reply, StoreError>) {
    let last = senders.pop();
    for sender in senders {
        let _ = sender.send(match &reply {
            Ok(reply) => Ok(reply.depth_only()),
            Err(error) => Err(error.clone()),
        });
    }
    if let Some(last) = last {
        let _ = last.send(reply);
    }
}

/// The pause after a failure before leases are returned, or a group lease is acknowledged, another time.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(300);

/// A batch that may have leased messages for these sessions.
pub(super) struct UnansweredBatch {
    number: u64,
    sessions: Vec<SessionId>,
}

/// What these operations of a batch may have leased; None when none of them leases.
pub(super) fn leases_of<'a>(number: u64, operations: impl Iterator<Item = &'a Operation>) -> Option<UnansweredBatch> {
    let mut sessions: Vec<_> = operations.filter_map(|operation| operation.leases_for).collect();
    sessions.sort_unstable();
    sessions.dedup();
    (!sessions.is_empty()).then_some(UnansweredBatch { number, sessions })
}

/// What a batch that has failed may have leased. A batch that was refused has leased nothing.
pub(super) fn of_failed_batch<'a>(
    number: u64,
    operations: impl Iterator<Item = &'a Operation>,
    failure: &Failure,
) -> Option<UnansweredBatch> {
    let may_have_leased = matches!(failure, Failure::NoReply(_) | Failure::Unexpected(_));
    may_have_leased.then(|| leases_of(number, operations)).flatten()
}

/// The operation that returns the leases. Should the batch reach Redis later, it leases nothing.
pub(super) fn return_unclaimed(batch: &UnansweredBatch) -> Operation {
    let operation = Operation::new("return_unclaimed")
        .time(actors::clock::now())
        .number(batch.number);
    batch
        .sessions
        .iter()
        .fold(operation, |operation, session| operation.session(*session))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn push(queue: &mut Queue, len: usize) {
        for _ in 0..len {
            let reply_to = ReplyTarget::Single(oneshot::channel().0);
            let deadline = Instant::now() + Duration::from_secs(60);
            queue.push(Operation::new("depth"), deadline, reply_to);
        }
    }

    #[test]
    fn a_second_batch_waits_for_half_the_weight_of_the_first() {
        let mut queue = Queue::default();
        push(&mut queue, 4);
        let first = queue.take_batch(true, Instant::now()).unwrap();
        assert_eq!(first.operations.len(), 4);
        push(&mut queue, 1);
        assert!(queue.take_batch(false, Instant::now()).is_none());
        push(&mut queue, 1);
        assert_eq!(queue.take_batch(false, Instant::now()).unwrap().operations.len(), 2);
    }

    #[test]
    fn an_operation_that_would_end_too_late_is_answered_at_once() {
        let mut queue = Queue::default();
        let (reply_to, mut reply) = oneshot::channel();
        let deadline = Instant::now();
        queue.push(Operation::new("depth"), deadline, ReplyTarget::Single(reply_to));
        assert!(queue.take_batch(true, deadline + Duration::from_millis(1)).is_none());
        assert!(matches!(reply.try_recv(), Ok(Err(StoreError::Unreachable(_)))));
        assert!(queue.is_empty() && queue.bytes == 0 && queue.weight == 0);
    }

    #[test]
    fn an_operation_of_an_earlier_epoch_is_refused() {
        let mut queue = Queue::default();
        push(&mut queue, 3);
        assert_eq!(queue.reset(StoreEpoch(2)).len(), 3);
        assert_eq!(queue.check_epoch(Some(StoreEpoch(1))), Err(StoreError::RolledBack));
        assert_eq!(queue.check_epoch(Some(StoreEpoch(2))), Ok(()));
        assert_eq!(queue.check_epoch(None), Ok(()));
    }
}
