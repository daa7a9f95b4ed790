//! The operations of one project, in the order in which they were first polled. While batches are under way the next one
//! gathers: so the more there is to do, the less each operation costs.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use actors::{
    model::{DeliveryStatus, MessageId, ProjectId, SessionId},
    storage::{StoreEpoch, StoreError},
};
use deadpool_redis::redis::{Value, cmd};
use futures_util::{StreamExt, future::join_all, stream::FuturesOrdered};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use super::{
    auto_ack::{self, AutoAcks, ReplyTarget},
    breaker::CircuitBreaker,
    client::{BatchReply, RedisClient, store_closed},
    error::Failure,
    group_lease::{GroupLease, GroupLeases, WrittenEffect},
    incomplete_reply::{IncompleteReply, PendingRead, fill_replies, split_reads, unexpected_reply},
    library::Preamble,
    local_messages::LocalMessages,
    operation::Operation,
    reply::{Reply, parse_message, parse_status},
    timeline::Witness,
};

/// Most operations, and about as many bytes, of one batch: a script holds everybody else up while it runs.
const BATCH_LEN_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 2 << 20;
/// Most batches under way, so that Redis has the next one at hand when it is done with one.
const OUTSTANDING_BATCHES_MAX: usize = 2;
/// Most operations, and about as many bytes, that wait for their turn.
const QUEUED_LEN_MAX: usize = 20_000;
const QUEUED_BYTES_MAX: usize = 64 << 20;
/// To write to many takes its time.
const GROUP_LEASE_TIMEOUT_PER_SESSION: std::time::Duration = std::time::Duration::from_micros(100);
/// How often it is tried to give back what nobody heard of.
const RETRY_INTERVAL: std::time::Duration = std::time::Duration::from_millis(300);

pub(super) struct Pipeline {
    pub client: Arc<RedisClient>,
    pub project: ProjectId,
    pub local_messages: LocalMessages,
    pub breaker: Arc<CircuitBreaker>,
    preamble: Preamble,
    queue: Mutex<Queue>,
    /// Enough waits for one more batch.
    batch_ready: Notify,
}

#[derive(Default)]
pub(super) struct Queue {
    operations: VecDeque<QueuedOperation>,
    bytes: usize,
    weight: usize,
    /// Has its turn before anything else that is asked of the inboxes, and soon in any case.
    auto_acks: AutoAcks,
    /// Acknowledged when they have been written to all.
    group_leases: GroupLeases,
    /// Of the batches under way.
    outstanding_weight: usize,
    /// The last batch that was heard of was carried out.
    last_batch_succeeded: bool,
    /// Somebody takes the batches.
    has_driver: bool,
    /// Batches whose answers never came, and whose messages they may have handed out.
    unanswered: Vec<UnansweredBatch>,
    /// What the last batch has seen of the data set.
    pub witness: Witness,
    /// Since when the data set is the one that the lane knows.
    epoch: StoreEpoch,
}

type UnansweredBatch = (u64, Vec<SessionId>);

impl Queue {
    /// # Errors
    /// When what was formed at this epoch is void.
    fn check(&self, at: Option<StoreEpoch>) -> Result<(), StoreError> {
        if at.is_some_and(|at| at < self.epoch) {
            return Err(StoreError::RolledBack);
        }
        Ok(())
    }

    /// Whether one more batch is worth its costs while others are under way.
    fn is_worth_a_batch(&self) -> bool {
        !self.operations.is_empty() && 2 * self.weight >= self.outstanding_weight
    }

    fn push(&mut self, operation: Operation, until: Instant, answer: ReplyTarget) {
        self.bytes += operation.request_bytes();
        self.weight += operation.weight();
        self.operations.push_back(QueuedOperation {
            operation,
            deadline: until,
            reply_to: answer,
        });
    }

    /// Has acknowledged what is leased to many as one and has been written to those whom this is about.
    fn settle_group_leases_of(&mut self, operation: &Operation) {
        if !self.group_leases.is_empty() {
            for session in operation.named_sessions() {
                let messages = self.group_leases.take_written_of(session);
                if !messages.is_empty() {
                    self.auto_acks.add(session, &messages, oneshot::channel().0);
                }
            }
        }
    }

    /// Nothing that was asked for is carried out any more: it was about a data set that is lost.
    pub(super) fn reset(&mut self, epoch: StoreEpoch) -> VecDeque<QueuedOperation> {
        self.epoch = epoch;
        (self.bytes, self.weight) = (0, 0);
        (self.auto_acks, self.group_leases) = (AutoAcks::default(), GroupLeases::default());
        self.unanswered.clear();
        std::mem::take(&mut self.operations)
    }

    fn push_auto_acks(&mut self, until: Instant) {
        if let Some((operation, answer)) = self.auto_acks.take() {
            self.push(operation, until, answer);
        }
    }
}

/// What goes to Redis at once.
struct Batch {
    operations: Vec<QueuedOperation>,
    weight: usize,
    /// What is put back by it.
    to_return: Vec<UnansweredBatch>,
    /// It may be sent a second time.
    may_repeat: bool,
}

pub(super) struct QueuedOperation {
    pub operation: Operation,
    pub deadline: Instant,
    pub reply_to: ReplyTarget,
}

impl Pipeline {
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

    /// Has its place in the order from its first poll on. Whoever gives up on it takes nothing back. It is refused when it
    /// was formed at an epoch of the store that is over; None forms part of every epoch.
    pub async fn submit(self: Arc<Self>, operation: Operation, at: Option<StoreEpoch>) -> Result<Reply, StoreError> {
        let answer = self.enqueue(operation, at)?;
        answer.await.unwrap_or_else(|_| Err(store_closed()))
    }

    /// Since when the data set of the project is the one that the lane knows.
    pub fn epoch(&self) -> StoreEpoch {
        self.queue().epoch
    }

    fn enqueue(
        self: &Arc<Self>,
        operation: Operation,
        at: Option<StoreEpoch>,
    ) -> Result<oneshot::Receiver<Result<Reply, StoreError>>, StoreError> {
        let mut queue = self.queue();
        queue.check(at)?;
        self.enqueue_in(&mut queue, operation)
    }

    fn enqueue_in(
        self: &Arc<Self>,
        queue: &mut Queue,
        operation: Operation,
    ) -> Result<oneshot::Receiver<Result<Reply, StoreError>>, StoreError> {
        self.breaker.admit()?;
        let (answer, answered) = oneshot::channel();
        if queue.operations.len() >= QUEUED_LEN_MAX || queue.bytes >= QUEUED_BYTES_MAX {
            return Err(StoreError::Unreachable("too many operations wait for Redis".to_owned()));
        }
        let until = self.client.deadline();
        if operation.reads_inboxes {
            queue.settle_group_leases_of(&operation);
            queue.push_auto_acks(until);
        }
        queue.push(operation, until, ReplyTarget::Single(answer));
        self.wake_driver(queue);
        Ok(answered)
    }

    /// As [`Self::submit`], of an acknowledgement that goes with others.
    pub async fn submit_auto_ack(
        self: Arc<Self>,
        session: SessionId,
        messages: Vec<MessageId>,
        at: Option<StoreEpoch>,
    ) -> Result<Reply, StoreError> {
        let answer = self.enqueue_auto_ack(session, &messages, at)?;
        answer.await.unwrap_or_else(|_| Err(store_closed()))
    }

    fn enqueue_auto_ack(
        self: &Arc<Self>,
        session: SessionId,
        messages: &[MessageId],
        at: Option<StoreEpoch>,
    ) -> Result<oneshot::Receiver<Result<Reply, StoreError>>, StoreError> {
        self.breaker.admit()?;
        let (answer, answered) = oneshot::channel();
        let mut queue = self.queue();
        queue.check(at)?;
        let is_first = queue.auto_acks.is_empty();
        queue.auto_acks.add(session, messages, answer);
        if queue.auto_acks.is_full() {
            queue.push_auto_acks(self.client.deadline());
            self.wake_driver(&mut queue);
        } else if is_first {
            let lane = Arc::clone(self);
            self.client.thread.spawn(async move {
                tokio::time::sleep(auto_ack::AUTO_ACK_DELAY).await;
                let mut queue = lane.queue();
                queue.push_auto_acks(lane.client.deadline());
                lane.wake_driver(&mut queue);
            });
        }
        Ok(answered)
    }

    /// A message is leased to these sessions as one. Those to whom it has not been written in a while have it as a lease of
    /// their own then.
    pub fn begin_group_lease(self: &Arc<Self>, message: MessageId, sessions: impl Iterator<Item = SessionId>) {
        let len = self.queue().group_leases.insert(message, sessions);
        let within = self
            .client
            .group_lease_timeout
            .max(GROUP_LEASE_TIMEOUT_PER_SESSION * len);
        let lane = Arc::clone(self);
        self.client.thread.spawn(async move {
            tokio::time::sleep(within).await;
            let mut queue = lane.queue();
            if let Some(post) = queue.group_leases.remove(message) {
                lane.acknowledge_group_lease(&mut queue, message, post);
            }
        });
    }

    /// Takes out those of these messages that are leased to this session and others as one.
    pub fn note_group_written(self: &Arc<Self>, session: SessionId, messages: &mut Vec<MessageId>) {
        let mut queue = self.queue();
        if queue.group_leases.is_empty() {
            return;
        }
        messages.retain(|message| match queue.group_leases.note_written(session, *message) {
            WrittenEffect::NotMember => true,
            WrittenEffect::Counted => false,
            WrittenEffect::Complete(post) => {
                self.acknowledge_group_lease(&mut queue, *message, post);
                false
            }
        });
    }

    /// Before anything else is asked of these inboxes.
    fn acknowledge_group_lease(self: &Arc<Self>, queue: &mut Queue, message: MessageId, post: GroupLease) {
        let (written, late) = post.split();
        let replica = self.client.replica.to_string();
        let operation = Operation::new("acknowledge_group_lease")
            .without_reading_inboxes()
            .time(actors::clock::now())
            .text([message.as_uuid().as_bytes(), replica.as_bytes()].concat())
            .sessions(&late);
        let at = Some(queue.epoch);
        let mut answer = self.enqueue_in(queue, operation.clone());
        let lane = Arc::clone(self);
        self.client.thread.spawn(async move {
            loop {
                let reply = match answer {
                    Ok(answer) => answer.await.unwrap_or_else(|_| Err(store_closed())),
                    Err(error) => Err(error),
                };
                match reply.and_then(|mut reply| reply.int()) {
                    Ok(1) => return,
                    Ok(_) => break,
                    // It does no harm to do it twice, and nobody else does it.
                    Err(StoreError::Unreachable(_)) => tokio::time::sleep(RETRY_INTERVAL).await,
                    Err(StoreError::RolledBack) => return,
                    Err(error) => {
                        tracing::warn!(project = %lane.project, %error, "a message for many cannot be acknowledged as one");
                        break;
                    }
                }
                answer = lane.enqueue(operation.clone(), at);
            }
            // Each has it as a lease of its own.
            let mut left = written;
            while !left.is_empty() {
                let submit = |session: &_| Arc::clone(&lane).submit_auto_ack(*session, vec![message], at);
                let written = left.iter().map(submit);
                let mut answers = join_all(written).await.into_iter();
                left.retain(|_| matches!(answers.next(), Some(Err(StoreError::Unreachable(_)))));
                if !left.is_empty() {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        });
    }

    /// Has somebody take what waits.
    fn wake_driver(self: &Arc<Self>, queue: &mut Queue) {
        if queue.operations.is_empty() && queue.unanswered.is_empty() {
            return;
        }
        if !std::mem::replace(&mut queue.has_driver, true) {
            self.client.thread.spawn(Self::drive(Arc::clone(self)));
        } else if queue.is_worth_a_batch() {
            self.batch_ready.notify_one();
        }
    }

    async fn drive(self: Arc<Self>) {
        // On one connection batches keep their order. But one that is sent a second time would come after its successor: in
        // a cluster when its slot has moved, and anywhere when the functions are not known, or there is no room and it was
        // not only about what needs some.
        let (mut underway, mut may_repeat) = (FuturesOrdered::new(), false);
        loop {
            while underway.is_empty() || (underway.len() < self.outstanding_max() && !may_repeat) {
                let Some(batch) = self.next_batch(underway.is_empty()) else {
                    break;
                };
                may_repeat = batch.may_repeat;
                underway.push_back(Self::run_batch(&self, batch));
            }
            tokio::select! {
                biased;
                is_in_vain = underway.next() => match is_in_vain {
                    Some(true) => tokio::time::sleep(RETRY_INTERVAL).await,
                    Some(false) => {}
                    None => return,
                },
                () = self.batch_ready.notified() => {}
            }
        }
    }

    fn outstanding_max(&self) -> usize {
        if self.client.connection.is_cluster() || !self.queue().last_batch_succeeded {
            1
        } else {
            OUTSTANDING_BATCHES_MAX
        }
    }

    /// None when nothing is to be sent now; if nothing is under way either, nobody drives any more.
    fn next_batch(&self, is_idle: bool) -> Option<Batch> {
        // What is cut short says nothing about the server.
        let late = Instant::now() + self.client.deadline / 8;
        let mut queue = self.queue();
        if !is_idle && !queue.is_worth_a_batch() {
            return None;
        }
        let (mut operations, mut bytes, mut weight) = (Vec::new(), 0, 0);
        while operations.len() < BATCH_LEN_MAX
            && bytes < BATCH_BYTES_MAX
            && let Some(waiting) = queue.operations.pop_front()
        {
            let size = waiting.operation.request_bytes();
            queue.bytes -= size;
            queue.weight -= waiting.operation.weight();
            if waiting.deadline < late {
                let reason = "Redis did not get round to it in time".to_owned();
                waiting.reply_to.send(Err(StoreError::Unreachable(reason)));
            } else {
                bytes += size;
                weight += waiting.operation.weight();
                operations.push(waiting);
            }
        }
        let owed = std::mem::take(&mut queue.unanswered);
        if operations.is_empty() && owed.is_empty() {
            queue.has_driver = !is_idle;
            return None;
        }
        queue.outstanding_weight += weight;
        let accepting = operations.iter().filter(|waiting| waiting.operation.accepts).count();
        Some(Batch {
            may_repeat: accepting > 0 && (accepting < operations.len() || !owed.is_empty()),
            operations,
            weight,
            to_return: owed,
        })
    }

    /// Whether it was to put something back, and nothing else, and did not.
    async fn run_batch(self: &Arc<Self>, batch: Batch) -> bool {
        let Batch {
            operations,
            weight,
            to_return: owed,
            ..
        } = batch;
        let number = self.client.next_batch();
        let until = operations
            .first()
            .map_or_else(|| self.client.deadline(), |first| first.deadline);
        let put_back: Vec<_> = owed.iter().map(return_unclaimed).collect();
        let all = put_back
            .iter()
            .chain(operations.iter().map(|waiting| &waiting.operation));
        let seen = self.queue().witness.clone();
        let carried = self.client.run_batch(&self.preamble, number, &seen, all, until).await;
        self.breaker.record(&carried);
        {
            let mut queue = self.queue();
            queue.outstanding_weight -= weight;
            queue.last_batch_succeeded = carried.is_ok();
        }
        match carried.and_then(|carried| self.parse(carried)) {
            Ok(None) => {
                for waiting in operations {
                    waiting.reply_to.send(Err(StoreError::RolledBack));
                }
                false
            }
            Ok(Some(ParsedReply {
                mut replies,
                pending_reads: left,
                replication_error: unsafe_because,
            })) => {
                for _ in &owed {
                    replies.next();
                }
                let late = reply_to_all(operations, replies, unsafe_because.as_deref(), 1 + owed.len(), left);
                if !late.is_empty() {
                    let lane = Arc::clone(self);
                    self.client
                        .thread
                        .spawn(async move { lane.read_messages_and_reply(number, late, until).await });
                }
                false
            }
            Err(failure) => {
                let was_owed = !owed.is_empty();
                self.queue().unanswered.extend(owed);
                self.note_unanswered(number, &operations, &failure);
                let is_in_vain = was_owed && operations.is_empty();
                for waiting in operations {
                    waiting.reply_to.send(Err(failure.clone().into()));
                }
                is_in_vain
            }
        }
    }

    fn note_unanswered(&self, number: u64, batch: &[QueuedOperation], failure: &Failure) {
        if matches!(failure, Failure::NoReply(_) | Failure::Unexpected(_)) {
            let unheard = leases_of_unanswered(number, batch.iter());
            self.queue().unanswered.extend(unheard);
        }
    }

    /// Reads the messages that the function has left to be read, and answers with them.
    async fn read_messages_and_reply(self: Arc<Self>, number: u64, mut late: Vec<IncompleteReply>, until: Instant) {
        let is_read = match self.read_messages(&late, until).await {
            Ok(read) => fill_replies(&mut late, read),
            Err(failure) => Err(failure),
        };
        if is_read.is_err() {
            let mut queue = self.queue();
            let unheard = leases_of_unanswered(number, late.iter().map(|late| &late.operation));
            queue.unanswered.extend(unheard);
            self.wake_driver(&mut queue);
        }
        for IncompleteReply {
            operation: waiting,
            reply,
            ..
        } in late
        {
            waiting.reply_to.send(match &is_read {
                Ok(()) => Ok(reply),
                Err(failure) => Err(failure.clone().into()),
            });
        }
    }

    /// One command does not ask for much at a time: other projects' commands and answers go over the same connection.
    async fn read_messages(&self, late: &[IncompleteReply], until: Instant) -> Result<Vec<Value>, Failure> {
        let mut read = Vec::new();
        for ids in split_reads(late) {
            let mut command = cmd("HMGET");
            command.arg(&self.preamble.messages).arg(ids);
            let asked = self
                .client
                .connection
                .send_one(command, &self.preamble.key, until)
                .await;
            self.breaker.record(&asked);
            let Value::Array(messages) = asked? else {
                return Err(unexpected_reply());
            };
            read.extend(messages);
        }
        Ok(read)
    }

    /// None for a batch that was not carried out, because the data set has gone back.
    fn parse(self: &Arc<Self>, carried: BatchReply) -> Result<Option<ParsedReply>, Failure> {
        let Value::Array(mut replies) = carried.reply else {
            return Err(unexpected_reply());
        };
        let witness = Witness::of(replies.pop().ok_or_else(unexpected_reply)?)?;
        self.learn(witness);
        if replies.is_empty() {
            return Ok(None);
        }
        if let Some(Value::Array(progress)) = replies.pop() {
            self.notify_progress(&progress);
        }
        let Some(Value::Array(left)) = replies.pop() else {
            return Err(unexpected_reply());
        };
        Ok(Some(ParsedReply {
            replies: replies.into_iter(),
            pending_reads: left
                .chunks_exact(3)
                .map(PendingRead::of)
                .collect::<Option<_>>()
                .ok_or_else(unexpected_reply)?,
            replication_error: carried.replication_error,
        }))
    }

    /// Who waits for a message hears that it was given up. That it was handed over or acknowledged is for those to say
    /// who have done it.
    fn notify_progress(&self, progress: &[Value]) {
        for news in progress.chunks_exact(2) {
            if let [Value::BulkString(id), Value::BulkString(code)] = news
                && let (Ok(id), Ok(status)) = (parse_message(id), parse_status(code))
                && !matches!(
                    status,
                    DeliveryStatus::Queued | DeliveryStatus::Delivered | DeliveryStatus::Acknowledged
                )
                && let Some(message) = self.local_messages.take_final(id)
            {
                message.progress.advance_to(status);
            }
        }
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the function said to a batch.
struct ParsedReply {
    replies: std::vec::IntoIter<Value>,
    pending_reads: VecDeque<PendingRead>,
    replication_error: Option<String>,
}

/// What a batch leased for operations that have not been answered.
fn leases_of_unanswered<'a>(
    number: u64,
    operations: impl Iterator<Item = &'a QueuedOperation>,
) -> Option<UnansweredBatch> {
    let mut sessions: Vec<_> = operations.filter_map(|waiting| waiting.operation.leases_for).collect();
    sessions.sort_unstable();
    sessions.dedup();
    (!sessions.is_empty()).then_some((number, sessions))
}

/// What puts back the messages that nobody has.
fn return_unclaimed((number, sessions): &UnansweredBatch) -> Operation {
    let mut operation = Operation::new("return_unclaimed")
        .time(actors::clock::now())
        .number(*number);
    for session in sessions {
        operation = operation.session(*session);
    }
    operation
}

/// Answers all but those whose messages are yet to be read. `first` is the number of the first reply.
fn reply_to_all(
    batch: Vec<QueuedOperation>,
    mut replies: impl Iterator<Item = Value>,
    unsafe_because: Option<&str>,
    first: usize,
    mut left: VecDeque<PendingRead>,
) -> Vec<IncompleteReply> {
    let mut late = Vec::new();
    for (number, waiting) in (first..).zip(batch) {
        let its_own = left.partition_point(|left| left.reply <= number);
        if its_own > 0 {
            let left = left.drain(..its_own).collect();
            let reply = replies.next().unwrap_or(Value::Nil);
            late.push(IncompleteReply {
                operation: waiting,
                reply,
                pending_reads: left,
            });
            continue;
        }
        let reply = match unsafe_because {
            Some(why) if waiting.operation.accepts => {
                replies.next();
                Err(StoreError::Unreachable(why.to_owned()))
            }
            _ => replies.next().ok_or_else(store_closed),
        };
        waiting.reply_to.send(reply);
    }
    late
}
