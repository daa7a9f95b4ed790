//! Sends the batches of a pipeline and distributes the replies. Large messages of a reply are read outside the function: which
//! ones, how many at a time, and their positions in the reply.

use std::{collections::VecDeque, sync::Arc};

use actors::{
    clock::fine_ns,
    metrics::{self, METRICS},
    model::DeliveryStatus,
    storage::StoreError,
};
use deadpool_redis::redis::{Value, cmd};
use futures_util::{StreamExt, stream::FuturesOrdered};
use tokio::time::Instant;

use super::{
    Pipeline,
    queue::{Batch, Queue, QueuedOperation, RETRY_INTERVAL, ReplyTarget, leases_of, of_failed_batch, return_unclaimed},
};
use crate::redis::{
    client::{BatchReply, store_closed},
    error::Failure,
    reply::{parse_message, parse_reason, parse_status},
    segment,
    timeline::Witness,
};

/// Most batches that are outstanding: Redis finds the next one in its socket when it ends one.
const OUTSTANDING_BATCHES_MAX: usize = 2;

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Done,
    /// It was only to return leases, and failed: the next attempt waits.
    ReturnFailed,
}

/// The task of a pipeline. It ends when nothing waits and nothing is outstanding.
async fn run(pipeline: Arc<Pipeline>) {
    // On one connection batches keep their order, unless one is sent a second time: in a cluster when its slot has
    // moved; anywhere when the server has no memory for a part of it.
    let (mut outstanding, mut may_be_repeated) = (FuturesOrdered::new(), false);
    loop {
        while outstanding.is_empty() || (outstanding.len() < pipeline.outstanding_max() && !may_be_repeated) {
            let earliest_deadline = Instant::now() + pipeline.client.deadline / 8;
            let batch = pipeline
                .queue
                .lock()
                .take_batch(outstanding.is_empty(), earliest_deadline);
            let Some(batch) = batch else { break };
            may_be_repeated = batch.may_be_repeated();
            outstanding.push_back(run_batch(&pipeline, batch));
        }
        tokio::select! {
            biased;
            ended = outstanding.next() => match ended {
                Some(Ended::ReturnFailed) => tokio::time::sleep(RETRY_INTERVAL).await,
                Some(Ended::Done) => {}
                None => return,
            },
            () = pipeline.batch_ready.notified() => {}
        }
    }
}

async fn run_batch(pipeline: &Arc<Pipeline>, batch: Batch) -> Ended {
    let Batch {
        operations,
        weight,
        to_return,
    } = batch;
    let client = &pipeline.client;
    let number = client.next_batch();
    let deadline = operations
        .first()
        .map_or_else(|| client.deadline(), |first| first.deadline);
    let returns: Vec<_> = to_return.iter().map(return_unclaimed).collect();
    let all = returns.iter().chain(operations.iter().map(|queued| &queued.operation));
    let seen = pipeline.queue.lock().witness();
    let begun_ns = fine_ns();
    let reply = client.run_batch(&pipeline.preamble, number, &seen, all, deadline).await;
    METRICS.redis_batches.observe(fine_ns().saturating_sub(begun_ns));
    METRICS.redis_operations.add(operations.len() as u64);
    if reply.is_err() {
        METRICS.redis_failures.increment();
    }
    pipeline.breaker.record(&reply);
    pipeline.queue.lock().end_batch(weight, reply.is_ok());
    match reply.and_then(|reply| pipeline.parse(reply)) {
        Ok(Some(mut parsed)) => {
            parsed.replies.drain(..returns.len().min(parsed.replies.len()));
            let incomplete = parsed.reply_to_all(pipeline, operations, 1 + returns.len());
            if !incomplete.is_empty() {
                let pipeline = Arc::clone(pipeline);
                client
                    .thread
                    .spawn(async move { pipeline.read_messages_and_reply(number, incomplete, deadline).await });
            }
            Ended::Done
        }
        Ok(None) => {
            for queued in operations {
                queued.reply_to.send(Err(StoreError::RolledBack));
            }
            Ended::Done
        }
        Err(failure) => {
            let returns_only = !to_return.is_empty() && operations.is_empty();
            {
                let mut queue = pipeline.queue.lock();
                queue.add_unanswered(to_return);
                queue.add_unanswered(of_failed_batch(
                    number,
                    operations.iter().map(|queued| &queued.operation),
                    &failure,
                ));
            }
            for queued in operations {
                queued.reply_to.send(Err(failure.clone().into()));
            }
            if returns_only { Ended::ReturnFailed } else { Ended::Done }
        }
    }
}

/// The reply to a batch.
struct ParsedReply {
    /// One for each operation.
    replies: VecDeque<Value>,
    /// Messages that have to be read into the replies, in the order of the replies.
    pending_reads: VecDeque<PendingRead>,
    /// Set when too few Redis replicas confirmed what the batch accepted.
    replication_error: Option<String>,
}

impl ParsedReply {
    /// Answers all operations but those whose messages have yet to be read. `first` is the number of the first reply.
    fn reply_to_all(
        self,
        pipeline: &Arc<Pipeline>,
        operations: Vec<QueuedOperation>,
        first: usize,
    ) -> Vec<IncompleteReply> {
        let Self {
            mut replies,
            mut pending_reads,
            replication_error,
        } = self;
        let mut incomplete = Vec::new();
        for (number, queued) in (first..).zip(operations) {
            let reply = replies.pop_front();
            let own_reads = pending_reads.partition_point(|read| read.reply <= number);
            if own_reads > 0 {
                incomplete.push(IncompleteReply {
                    operation: queued,
                    reply: reply.unwrap_or(Value::Nil),
                    pending_reads: pending_reads.drain(..own_reads).collect(),
                });
                continue;
            }
            if let Some(reply) = &reply {
                pipeline.record_written(&queued.reply_to, reply);
            }
            queued.reply_to.send(match &replication_error {
                Some(why) if queued.operation.accepts => Err(StoreError::Unreachable(why.clone())),
                _ => reply.ok_or_else(store_closed),
            });
        }
        incomplete
    }
}

impl Pipeline {
    /// Starts the task of the pipeline where something waits, or tells it that another batch is worth sending.
    pub(super) fn wake_driver(self: &Arc<Self>, queue: &mut Queue) {
        if queue.is_empty() {
            return;
        }
        if queue.set_driven() {
            self.client.thread.spawn(run(Arc::clone(self)));
        } else if queue.is_worth_a_batch() {
            self.batch_ready.notify_one();
        }
    }

    fn outstanding_max(&self) -> usize {
        if self.client.connection.is_cluster() || !self.queue.lock().last_batch_succeeded() {
            1
        } else {
            OUTSTANDING_BATCHES_MAX
        }
    }

    /// None for a batch that was not carried out because the data set has gone back.
    fn parse(&self, reply: BatchReply) -> Result<Option<ParsedReply>, Failure> {
        let Value::Array(replies) = reply.reply else {
            return Err(unexpected_reply());
        };
        let mut replies = VecDeque::from(replies);
        let witness = Witness::of(replies.pop_back().ok_or_else(unexpected_reply)?)?;
        self.observe_and_report(witness);
        if replies.is_empty() {
            return Ok(None);
        }
        if let Some(Value::Array(dead_letters)) = replies.pop_back() {
            self.count_dead_letters(&dead_letters);
        }
        if let Some(Value::Array(progress)) = replies.pop_back() {
            self.notify_progress(&progress);
        }
        let Some(Value::Array(reads)) = replies.pop_back() else {
            return Err(unexpected_reply());
        };
        let pending_reads = reads.chunks_exact(3).map(PendingRead::of).collect::<Option<_>>();
        Ok(Some(ParsedReply {
            replies,
            pending_reads: pending_reads.ok_or_else(unexpected_reply)?,
            replication_error: reply.replication_error,
        }))
    }

    /// Counts the messages that the function has given up: reason and number, alternately.
    fn count_dead_letters(&self, dead_letters: &[Value]) {
        if dead_letters.is_empty() {
            return;
        }
        let Some(counters) = metrics::open_project(&self.project) else {
            return;
        };
        for part in dead_letters.chunks_exact(2) {
            if let [Value::BulkString(reason), Value::Int(len)] = part
                && let (Ok(reason), Ok(len)) = (parse_reason(reason), usize::try_from(*len))
            {
                counters.dead_lettered(reason, len);
            }
        }
    }

    /// Records what was acknowledged because it was written to connections.
    fn record_written(self: &Arc<Self>, target: &ReplyTarget, reply: &Value) {
        if self.events.records_messages() {
            let acknowledged = target.acknowledged(reply);
            if !acknowledged.is_empty() {
                self.record_acknowledged(acknowledged.into_iter(), actors::clock::now());
            }
        }
    }

    /// Tells the senders of this process that a message was given up. Delivery and acknowledgement are reported by the
    /// session that delivered or acknowledged it.
    fn notify_progress(&self, progress: &[Value]) {
        for part in progress.chunks_exact(2) {
            if let [Value::BulkString(id), Value::BulkString(code)] = part
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

    /// Reads the messages that the function has left to the caller, and answers with them.
    async fn read_messages_and_reply(
        self: Arc<Self>,
        number: u64,
        mut incomplete: Vec<IncompleteReply>,
        deadline: Instant,
    ) {
        let filled = match self.read_messages(&incomplete, deadline).await {
            Ok(read) => fill_replies(&mut incomplete, read),
            Err(failure) => Err(failure),
        };
        if filled.is_err() {
            let mut queue = self.queue.lock();
            let leases = leases_of(
                number,
                incomplete.iter().map(|incomplete| &incomplete.operation.operation),
            );
            queue.add_unanswered(leases);
            self.wake_driver(&mut queue);
        }
        for IncompleteReply { operation, reply, .. } in incomplete {
            operation.reply_to.send(match &filled {
                Ok(()) => Ok(reply),
                Err(failure) => Err(failure.clone().into()),
            });
        }
    }

    /// Reads messages, some at a time: the commands of other projects share the connection.
    async fn read_messages(&self, incomplete: &[IncompleteReply], deadline: Instant) -> Result<Vec<Value>, Failure> {
        let mut read = Vec::new();
        for ids in split_reads(incomplete) {
            let mut command = cmd("HMGET");
            command.arg(&self.preamble.messages).arg(ids);
            let connection = &self.client.connection;
            let reply = connection.send_one(command, &self.preamble.key, deadline).await;
            self.breaker.record(&reply);
            let Value::Array(messages) = reply? else {
                return Err(unexpected_reply());
            };
            read.extend(messages);
        }
        Ok(read)
    }
}

/// Most bytes that one command reads, unless a single message is larger.
const READ_BYTES_MAX: usize = 2 << 20;

/// A message or segment that is read and put into a reply.
pub(super) struct PendingRead {
    /// The number of the reply, counted from 1.
    pub reply: usize,
    /// The position in it, counted from 0.
    position: usize,
    id: Vec<u8>,
    /// Messages and bytes of the segment, as leased.
    len: usize,
    bytes: usize,
}

impl PendingRead {
    /// None when these parts are not the number of a reply, a position and an entry.
    pub fn of(parts: &[Value]) -> Option<Self> {
        let [Value::Int(reply), Value::Int(position), Value::BulkString(entry)] = parts else {
            return None;
        };
        let (id, rest) = entry.split_first_chunk::<16>()?;
        let (flags, bytes) = rest.split_first()?;
        Some(Self {
            reply: usize::try_from(*reply).ok()?,
            position: usize::try_from(*position).ok()?.checked_sub(1)?,
            id: id.to_vec(),
            len: segment::len_of_flags(*flags),
            bytes: u32::from_be_bytes(*bytes.first_chunk()?) as usize,
        })
    }
}

/// An operation, and its reply without the messages.
pub(super) struct IncompleteReply {
    pub operation: QueuedOperation,
    pub reply: Value,
    pub pending_reads: Vec<PendingRead>,
}

/// The ids of what is read, one list for each command.
pub(super) fn split_reads(incomplete: &[IncompleteReply]) -> Vec<Vec<&[u8]>> {
    let (mut commands, mut bytes) = (vec![Vec::new()], 0);
    for read in incomplete.iter().flat_map(|incomplete| &incomplete.pending_reads) {
        bytes += read.bytes;
        if bytes > READ_BYTES_MAX && commands.last().is_some_and(|ids| !ids.is_empty()) {
            commands.push(Vec::new());
            bytes = read.bytes;
        }
        if let Some(ids) = commands.last_mut() {
            ids.push(&*read.id);
        }
    }
    commands
}

/// Puts what was read into the replies. A single message that is missing has been acknowledged meanwhile.
///
/// # Errors
/// `Unexpected` when this does not fit the replies; `NoReply` when a segment was split before it was read: the leases
/// of its messages have to be returned.
pub(super) fn fill_replies(incomplete: &mut [IncompleteReply], read: Vec<Value>) -> Result<(), Failure> {
    let mut read = read.into_iter();
    for IncompleteReply {
        reply, pending_reads, ..
    } in incomplete
    {
        let Value::Array(reply) = reply else {
            return Err(unexpected_reply());
        };
        for pending in pending_reads {
            let (stored, part) = read
                .next()
                .zip(reply.get_mut(pending.position))
                .ok_or_else(unexpected_reply)?;
            let len = match &stored {
                Value::BulkString(stored) => segment::len(stored),
                _ => 1,
            };
            if len != pending.len {
                return Err(Failure::NoReply("a segment was split before it was read".to_owned()));
            }
            *part = stored;
        }
    }
    Ok(())
}

/// The failure of a batch whose reply has another form.
pub(super) fn unexpected_reply() -> Failure {
    Failure::Unexpected("Redis did not answer as the function does".to_owned())
}

#[cfg(test)]
mod tests {
    use tokio::{sync::oneshot, time::Instant};

    use super::{super::super::operation::Operation, *};
    use crate::redis::pipeline::queue::ReplyTarget;

    /// A reply with two messages to read, of segments of these lengths.
    fn incomplete(lens: [usize; 2]) -> Vec<IncompleteReply> {
        let read = |(position, len)| PendingRead {
            reply: 1,
            position,
            id: vec![position as u8],
            len,
            bytes: 0,
        };
        let operation = Operation::new("lease");
        vec![IncompleteReply {
            operation: QueuedOperation {
                operation,
                deadline: Instant::now(),
                reply_to: ReplyTarget::Single(oneshot::channel().0),
            },
            reply: Value::Array(vec![Value::Int(1), Value::Nil, Value::Int(2), Value::Nil]),
            pending_reads: [1, 3].into_iter().zip(lens).map(read).collect(),
        }]
    }

    fn stored(len: usize) -> Value {
        Value::BulkString([0, 0, 0, 1, 0, 0, 0, 9, 7].repeat(len))
    }

    #[test]
    fn messages_fill_the_positions_left_for_them() {
        let mut waiting = incomplete([1, 2]);
        fill_replies(&mut waiting, vec![Value::Nil, stored(2)]).unwrap();
        let filled = Value::Array(vec![Value::Int(1), Value::Nil, Value::Int(2), stored(2)]);
        assert_eq!(waiting[0].reply, filled, "the first was acknowledged meanwhile");
    }

    #[test]
    fn a_message_that_is_not_what_was_leased_is_not_delivered() {
        for read in [
            vec![stored(1), stored(1)],
            vec![stored(2), stored(2)],
            vec![stored(1), Value::Nil],
        ] {
            let split = fill_replies(&mut incomplete([1, 2]), read);
            assert!(matches!(split, Err(Failure::NoReply(_))), "{split:?}");
        }
        let short = fill_replies(&mut incomplete([1, 2]), vec![stored(1)]);
        assert!(matches!(short, Err(Failure::Unexpected(_))), "{short:?}");
    }

    #[test]
    fn a_command_reads_one_message_or_a_few_short_ones() {
        const FULL: usize = READ_BYTES_MAX;
        let command_lens = |bytes: [usize; 4]| {
            let reads = bytes.iter().zip(0..).map(|(&bytes, id)| PendingRead {
                reply: 1,
                position: 1,
                id: vec![id],
                len: 1,
                bytes,
            });
            let incomplete = vec![IncompleteReply {
                pending_reads: reads.collect(),
                ..incomplete([1, 1]).remove(0)
            }];
            split_reads(&incomplete).iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(command_lens([1, 2, 3, 4]), [4]);
        assert_eq!(command_lens([FULL, 1, FULL - 1, 1]), [1, 2, 1]);
        assert_eq!(command_lens([3 * FULL, 2 * FULL, 1, 1]), [1, 1, 2]);
    }
}
