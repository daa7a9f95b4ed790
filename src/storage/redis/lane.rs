//! The operations of one project, in the order in which they were first polled. While batches are under way the next one
//! gathers: so the more there is to do, the less each operation costs.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use actors::{
    model::{MessageId, ProjectId, SessionId, Status},
    storage::{StoreEpoch, StoreError},
};
use deadpool_redis::redis::{Value, cmd};
use futures_util::{StreamExt, future::join_all, stream::FuturesOrdered};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use super::{
    breaker::Breaker,
    client::{Carried, Client, ended},
    error::Failure,
    held::Held,
    late::{Late, Left, fill, odd, portions},
    operation::Operation,
    posts::{Noted, Post, Posts},
    reply::{Reply, message, status},
    script::Preamble,
    timeline::Witness,
    written::{self, Answer, Written},
};

/// Most operations, and about as many bytes, of one batch: a script holds everybody else up while it runs.
const BATCH_LEN_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 2 << 20;
/// Most batches under way, so that Redis has the next one at hand when it is done with one.
const UNDERWAY_MAX: usize = 2;
/// Most operations, and about as many bytes, that wait for their turn.
const WAITING_LEN_MAX: usize = 20_000;
const WAITING_BYTES_MAX: usize = 64 << 20;
/// To write to many takes its time.
const POST_WITHIN_EACH: std::time::Duration = std::time::Duration::from_micros(100);
/// How often it is tried to give back what nobody heard of.
const RETRY_AFTER: std::time::Duration = std::time::Duration::from_millis(300);

pub(super) struct Lane {
    pub client: Arc<Client>,
    pub project: ProjectId,
    pub held: Held,
    pub breaker: Arc<Breaker>,
    preamble: Preamble,
    queue: Mutex<Queue>,
    /// Enough waits for one more batch.
    enough: Notify,
}

#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    waiting_weight: usize,
    /// Has its turn before anything else that is asked of the inboxes, and soon in any case.
    written: Written,
    /// Acknowledged when they have been written to all.
    posts: Posts,
    /// Of the batches under way.
    underway_weight: usize,
    /// The last batch that was heard of was carried out.
    is_well: bool,
    /// Somebody takes the batches.
    is_driven: bool,
    /// Batches whose answers never came, and whose messages they may have handed out.
    unheard: Vec<Unheard>,
    /// What the last batch has seen of the data set.
    pub witness: Witness,
    /// Since when the data set is the one that the lane knows.
    epoch: StoreEpoch,
}

type Unheard = (u64, Vec<SessionId>);

impl Queue {
    /// # Errors
    /// When what was formed at this epoch is void.
    fn check(&self, at: Option<StoreEpoch>) -> Result<(), StoreError> {
        if at.is_some_and(|at| at < self.epoch) {
            return Err(StoreError::WentBack);
        }
        Ok(())
    }

    /// Whether one more batch is worth its costs while others are under way.
    fn has_enough(&self) -> bool {
        !self.waiting.is_empty() && 2 * self.waiting_weight >= self.underway_weight
    }

    fn push(&mut self, operation: Operation, until: Instant, answer: Answer) {
        self.waiting_bytes += operation.size();
        self.waiting_weight += operation.weight();
        self.waiting.push_back(Waiting {
            operation,
            until,
            answer,
        });
    }

    /// Has acknowledged what is leased to many as one and has been written to those whom this is about.
    fn tell_of_posts(&mut self, operation: &Operation) {
        if !self.posts.is_empty() {
            for session in operation.named() {
                let messages = self.posts.tell(session);
                if !messages.is_empty() {
                    self.written.add(session, &messages, oneshot::channel().0);
                }
            }
        }
    }

    /// Nothing that was asked for is carried out any more: it was about a data set that is lost.
    pub(super) fn go_back(&mut self, epoch: StoreEpoch) -> VecDeque<Waiting> {
        self.epoch = epoch;
        (self.waiting_bytes, self.waiting_weight) = (0, 0);
        (self.written, self.posts) = (Written::default(), Posts::default());
        self.unheard.clear();
        std::mem::take(&mut self.waiting)
    }

    fn acknowledge_written(&mut self, until: Instant) {
        if let Some((operation, answer)) = self.written.take() {
            self.push(operation, until, answer);
        }
    }
}

/// What goes to Redis at once.
struct Batch {
    operations: Vec<Waiting>,
    weight: usize,
    /// What is put back by it.
    owed: Vec<Unheard>,
    /// It may be sent a second time.
    may_repeat: bool,
}

pub(super) struct Waiting {
    pub operation: Operation,
    pub until: Instant,
    pub answer: Answer,
}

impl Lane {
    pub fn new(client: Arc<Client>, project: ProjectId) -> Self {
        Self {
            preamble: Preamble::new(client.replica, &project),
            held: Held::default(),
            breaker: client.breaker_of_a_project(),
            queue: Mutex::default(),
            enough: Notify::new(),
            client,
            project,
        }
    }

    /// Has its place in the order from its first poll on. Whoever gives up on it takes nothing back. It is refused when it
    /// was formed at an epoch of the store that is over; None forms part of every epoch.
    pub async fn submit(self: Arc<Self>, operation: Operation, at: Option<StoreEpoch>) -> Result<Reply, StoreError> {
        let answer = self.enqueue(operation, at)?;
        answer.await.unwrap_or_else(|_| Err(ended()))
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
        if queue.waiting.len() >= WAITING_LEN_MAX || queue.waiting_bytes >= WAITING_BYTES_MAX {
            return Err(StoreError::Unreachable("too many operations wait for Redis".to_owned()));
        }
        let until = self.client.deadline();
        if operation.sees_inboxes {
            queue.tell_of_posts(&operation);
            queue.acknowledge_written(until);
        }
        queue.push(operation, until, Answer::One(answer));
        self.set_out(queue);
        Ok(answered)
    }

    /// As [`Self::submit`], of an acknowledgement that goes with others.
    pub async fn submit_written(
        self: Arc<Self>,
        session: SessionId,
        messages: Vec<MessageId>,
        at: Option<StoreEpoch>,
    ) -> Result<Reply, StoreError> {
        let answer = self.enqueue_written(session, &messages, at)?;
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    fn enqueue_written(
        self: &Arc<Self>,
        session: SessionId,
        messages: &[MessageId],
        at: Option<StoreEpoch>,
    ) -> Result<oneshot::Receiver<Result<Reply, StoreError>>, StoreError> {
        self.breaker.admit()?;
        let (answer, answered) = oneshot::channel();
        let mut queue = self.queue();
        queue.check(at)?;
        let is_first = queue.written.is_empty();
        queue.written.add(session, messages, answer);
        if queue.written.is_full() {
            queue.acknowledge_written(self.client.deadline());
            self.set_out(&mut queue);
        } else if is_first {
            let lane = Arc::clone(self);
            self.client.thread.spawn(async move {
                tokio::time::sleep(written::WITHIN).await;
                let mut queue = lane.queue();
                queue.acknowledge_written(lane.client.deadline());
                lane.set_out(&mut queue);
            });
        }
        Ok(answered)
    }

    /// A message is leased to these sessions as one. Those to whom it has not been written in a while have it as a lease of
    /// their own then.
    pub fn take_post(self: &Arc<Self>, message: MessageId, sessions: impl Iterator<Item = SessionId>) {
        let len = self.queue().posts.take(message, sessions);
        let within = self.client.posts_within.max(POST_WITHIN_EACH * len);
        let lane = Arc::clone(self);
        self.client.thread.spawn(async move {
            tokio::time::sleep(within).await;
            let mut queue = lane.queue();
            if let Some(post) = queue.posts.end(message) {
                lane.acknowledge_post(&mut queue, message, post);
            }
        });
    }

    /// Takes out those of these messages that are leased to this session and others as one.
    pub fn note_written(self: &Arc<Self>, session: SessionId, messages: &mut Vec<MessageId>) {
        let mut queue = self.queue();
        if queue.posts.is_empty() {
            return;
        }
        messages.retain(|message| match queue.posts.note(session, *message) {
            Noted::Nothing => true,
            Noted::One => false,
            Noted::Last(post) => {
                self.acknowledge_post(&mut queue, *message, post);
                false
            }
        });
    }

    /// Before anything else is asked of these inboxes.
    fn acknowledge_post(self: &Arc<Self>, queue: &mut Queue, message: MessageId, post: Post) {
        let (written, late) = post.split();
        let replica = self.client.replica.to_string();
        let operation = Operation::new("acknowledge_post")
            .seeing_no_inboxes()
            .time(actors::clock::now())
            .text([message.as_uuid().as_bytes(), replica.as_bytes()].concat())
            .sessions(&late);
        let at = Some(queue.epoch);
        let mut answer = self.enqueue_in(queue, operation.clone());
        let lane = Arc::clone(self);
        self.client.thread.spawn(async move {
            loop {
                let reply = match answer {
                    Ok(answer) => answer.await.unwrap_or_else(|_| Err(ended())),
                    Err(error) => Err(error),
                };
                match reply.and_then(|mut reply| reply.int()) {
                    Ok(1) => return,
                    Ok(_) => break,
                    // It does no harm to do it twice, and nobody else does it.
                    Err(StoreError::Unreachable(_)) => tokio::time::sleep(RETRY_AFTER).await,
                    Err(StoreError::WentBack) => return,
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
                let submit = |session: &_| Arc::clone(&lane).submit_written(*session, vec![message], at);
                let written = left.iter().map(submit);
                let mut answers = join_all(written).await.into_iter();
                left.retain(|_| matches!(answers.next(), Some(Err(StoreError::Unreachable(_)))));
                if !left.is_empty() {
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            }
        });
    }

    /// Has somebody take what waits.
    fn set_out(self: &Arc<Self>, queue: &mut Queue) {
        if queue.waiting.is_empty() && queue.unheard.is_empty() {
            return;
        }
        if !std::mem::replace(&mut queue.is_driven, true) {
            self.client.thread.spawn(Self::drive(Arc::clone(self)));
        } else if queue.has_enough() {
            self.enough.notify_one();
        }
    }

    async fn drive(self: Arc<Self>) {
        // On one connection batches keep their order. But one that is sent a second time would come after its successor: in
        // a cluster when its slot has moved, and anywhere when the functions are not known, or there is no room and it was
        // not only about what needs some.
        let (mut underway, mut may_repeat) = (FuturesOrdered::new(), false);
        loop {
            while underway.is_empty() || (underway.len() < self.underway_max() && !may_repeat) {
                let Some(batch) = self.next_batch(underway.is_empty()) else {
                    break;
                };
                may_repeat = batch.may_repeat;
                underway.push_back(Self::carry_out(&self, batch));
            }
            tokio::select! {
                biased;
                is_in_vain = underway.next() => match is_in_vain {
                    Some(true) => tokio::time::sleep(RETRY_AFTER).await,
                    Some(false) => {}
                    None => return,
                },
                () = self.enough.notified() => {}
            }
        }
    }

    fn underway_max(&self) -> usize {
        if self.client.link.is_cluster() || !self.queue().is_well {
            1
        } else {
            UNDERWAY_MAX
        }
    }

    /// None when nothing is to be sent now; if nothing is under way either, nobody drives any more.
    fn next_batch(&self, is_idle: bool) -> Option<Batch> {
        // What is cut short says nothing about the server.
        let late = Instant::now() + self.client.deadline / 8;
        let mut queue = self.queue();
        if !is_idle && !queue.has_enough() {
            return None;
        }
        let (mut operations, mut bytes, mut weight) = (Vec::new(), 0, 0);
        while operations.len() < BATCH_LEN_MAX
            && bytes < BATCH_BYTES_MAX
            && let Some(waiting) = queue.waiting.pop_front()
        {
            let size = waiting.operation.size();
            queue.waiting_bytes -= size;
            queue.waiting_weight -= waiting.operation.weight();
            if waiting.until < late {
                let reason = "Redis did not get round to it in time".to_owned();
                waiting.answer.send(Err(StoreError::Unreachable(reason)));
            } else {
                bytes += size;
                weight += waiting.operation.weight();
                operations.push(waiting);
            }
        }
        let owed = std::mem::take(&mut queue.unheard);
        if operations.is_empty() && owed.is_empty() {
            queue.is_driven = !is_idle;
            return None;
        }
        queue.underway_weight += weight;
        let accepting = operations.iter().filter(|waiting| waiting.operation.accepts).count();
        Some(Batch {
            may_repeat: accepting > 0 && (accepting < operations.len() || !owed.is_empty()),
            operations,
            weight,
            owed,
        })
    }

    /// Whether it was to put something back, and nothing else, and did not.
    async fn carry_out(self: &Arc<Self>, batch: Batch) -> bool {
        let Batch {
            operations,
            weight,
            owed,
            ..
        } = batch;
        let number = self.client.next_batch();
        let until = operations
            .first()
            .map_or_else(|| self.client.deadline(), |first| first.until);
        let put_back: Vec<_> = owed.iter().map(give_back).collect();
        let all = put_back
            .iter()
            .chain(operations.iter().map(|waiting| &waiting.operation));
        let seen = self.queue().witness.clone();
        let carried = self.client.carry_out(&self.preamble, number, &seen, all, until).await;
        self.breaker.take_note(&carried);
        {
            let mut queue = self.queue();
            queue.underway_weight -= weight;
            queue.is_well = carried.is_ok();
        }
        match carried.and_then(|carried| self.read(carried)) {
            Ok(None) => {
                for waiting in operations {
                    waiting.answer.send(Err(StoreError::WentBack));
                }
                false
            }
            Ok(Some(Read {
                mut replies,
                left,
                unsafe_because,
            })) => {
                for _ in &owed {
                    replies.next();
                }
                let late = answer(operations, replies, unsafe_because.as_deref(), 1 + owed.len(), left);
                if !late.is_empty() {
                    let lane = Arc::clone(self);
                    self.client
                        .thread
                        .spawn(async move { lane.answer_late(number, late, until).await });
                }
                false
            }
            Err(failure) => {
                let was_owed = !owed.is_empty();
                self.queue().unheard.extend(owed);
                self.owe(number, &operations, &failure);
                let is_in_vain = was_owed && operations.is_empty();
                for waiting in operations {
                    waiting.answer.send(Err(failure.clone().into()));
                }
                is_in_vain
            }
        }
    }

    fn owe(&self, number: u64, batch: &[Waiting], failure: &Failure) {
        if matches!(failure, Failure::Unheard(_) | Failure::Wrong(_)) {
            let unheard = unheard(number, batch.iter());
            self.queue().unheard.extend(unheard);
        }
    }

    /// Reads the messages that the function has left to be read, and answers with them.
    async fn answer_late(self: Arc<Self>, number: u64, mut late: Vec<Late>, until: Instant) {
        let is_read = match self.read_late(&late, until).await {
            Ok(read) => fill(&mut late, read),
            Err(failure) => Err(failure),
        };
        if is_read.is_err() {
            let mut queue = self.queue();
            let unheard = unheard(number, late.iter().map(|late| &late.waiting));
            queue.unheard.extend(unheard);
            self.set_out(&mut queue);
        }
        for Late { waiting, reply, .. } in late {
            waiting.answer.send(match &is_read {
                Ok(()) => Ok(reply),
                Err(failure) => Err(failure.clone().into()),
            });
        }
    }

    /// One command does not ask for much at a time: other projects' commands and answers go over the same connection.
    async fn read_late(&self, late: &[Late], until: Instant) -> Result<Vec<Value>, Failure> {
        let mut read = Vec::new();
        for ids in portions(late) {
            let mut command = cmd("HMGET");
            command.arg(&self.preamble.messages).arg(ids);
            let asked = self.client.link.ask_one(command, &self.preamble.key, until).await;
            self.breaker.take_note(&asked);
            let Value::Array(messages) = asked? else {
                return Err(odd());
            };
            read.extend(messages);
        }
        Ok(read)
    }

    /// None for a batch that was not carried out, because the data set has gone back.
    fn read(self: &Arc<Self>, carried: Carried) -> Result<Option<Read>, Failure> {
        let Value::Array(mut replies) = carried.reply else {
            return Err(odd());
        };
        let witness = Witness::of(replies.pop().ok_or_else(odd)?)?;
        self.learn(witness);
        if replies.is_empty() {
            return Ok(None);
        }
        if let Some(Value::Array(progress)) = replies.pop() {
            self.tell(&progress);
        }
        let Some(Value::Array(left)) = replies.pop() else {
            return Err(odd());
        };
        Ok(Some(Read {
            replies: replies.into_iter(),
            left: left
                .chunks_exact(3)
                .map(Left::of)
                .collect::<Option<_>>()
                .ok_or_else(odd)?,
            unsafe_because: carried.unsafe_because,
        }))
    }

    /// Who waits for a message hears that it was given up. That it was handed over or acknowledged is for those to say
    /// who have done it.
    fn tell(&self, progress: &[Value]) {
        for news in progress.chunks_exact(2) {
            if let [Value::BulkString(id), Value::BulkString(code)] = news
                && let (Ok(id), Ok(status)) = (message(id), status(code))
                && !matches!(status, Status::Queued | Status::Delivered | Status::Acknowledged)
                && let Some(message) = self.held.finish(id)
            {
                message.progress.reach(status);
            }
        }
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the function said to a batch.
struct Read {
    replies: std::vec::IntoIter<Value>,
    left: VecDeque<Left>,
    unsafe_because: Option<String>,
}

/// What a batch leased for operations that have not been answered.
fn unheard<'a>(number: u64, operations: impl Iterator<Item = &'a Waiting>) -> Option<Unheard> {
    let mut sessions: Vec<_> = operations.filter_map(|waiting| waiting.operation.leases).collect();
    sessions.sort_unstable();
    sessions.dedup();
    (!sessions.is_empty()).then_some((number, sessions))
}

/// What puts back the messages that nobody has.
fn give_back((number, sessions): &Unheard) -> Operation {
    let mut operation = Operation::new("give_back").time(actors::clock::now()).number(*number);
    for session in sessions {
        operation = operation.session(*session);
    }
    operation
}

/// Answers all but those whose messages are yet to be read. `first` is the number of the first reply.
fn answer(
    batch: Vec<Waiting>,
    mut replies: impl Iterator<Item = Value>,
    unsafe_because: Option<&str>,
    first: usize,
    mut left: VecDeque<Left>,
) -> Vec<Late> {
    let mut late = Vec::new();
    for (number, waiting) in (first..).zip(batch) {
        let its_own = left.partition_point(|left| left.reply <= number);
        if its_own > 0 {
            let left = left.drain(..its_own).collect();
            let reply = replies.next().unwrap_or(Value::Nil);
            late.push(Late { waiting, reply, left });
            continue;
        }
        let reply = match unsafe_because {
            Some(why) if waiting.operation.accepts => {
                replies.next();
                Err(StoreError::Unreachable(why.to_owned()))
            }
            _ => replies.next().ok_or_else(ended),
        };
        waiting.answer.send(reply);
    }
    late
}
