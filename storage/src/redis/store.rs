//! The store of one project: each method of [`Store`] as an operation (`scripts/*.lua`), and its reply as the answer.

mod claims;
mod questions;
mod records;
mod tracking;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use actors::{
    bridge::{DeliveryBatch, Frame, StoreEvent},
    clock::{self, Now},
    model::{
        CallReceipt, DeadLetterReason, DeliveryStatus, Message, MessageId, Outcome, ProjectId, ReplicaId, SessionId,
        SessionRecord,
    },
    storage::{
        Acknowledge, Acknowledged, Append, Appended, Claim, Claimed, DeadLetterPage, DeadLetterQuery, DeadLetterStore,
        Depth, Heartbeat, HeartbeatExchange, InboxStore, Lease, Op, Peeked, PrefetchLimit, PushStore, PushedDelivery,
        PutOutcome, PutSession, Redriven, Release, Released, ReplicatedStore, Roster, SessionKey, SessionStore, Store,
        StoreEpoch, StoreError, Swept, TrackingStore, Unreported, Unswept, Usage,
    },
};

use super::{
    append,
    decode::{self, claim_text},
    operation::Operation,
    pipeline::Pipeline,
    reply::{Reply, reason_code, without},
};

/// The longest time until a project is swept again. After the end of a replica the others find within it what that
/// replica has added.
const SWEEP_PAUSE_MAX: Duration = Duration::from_secs(3);

/// The store of a project, as opened at an epoch.
pub(super) struct RedisStore {
    pipeline: Arc<Pipeline>,
    /// Operations fail once this epoch is over. None: they belong to every epoch.
    epoch: Option<StoreEpoch>,
    /// The `poll_seq` up to which this handle knows the heartbeats of other replicas, and the sessions that lost
    /// messages to expiry.
    heartbeat_seq: Arc<AtomicU64>,
    expired_in_seq: Arc<AtomicU64>,
    unswept: Arc<Unswept>,
}

impl RedisStore {
    /// A store whose operations go through this pipeline.
    pub fn new(pipeline: Arc<Pipeline>, epoch: Option<StoreEpoch>) -> Self {
        Self {
            pipeline,
            epoch,
            heartbeat_seq: Arc::default(),
            expired_in_seq: Arc::default(),
            unswept: Arc::default(),
        }
    }

    /// Carries out an operation and decodes its reply.
    fn run<T: 'static>(
        &self,
        operation: Operation,
        read: impl FnOnce(&Arc<Pipeline>, Reply) -> Result<T, StoreError> + Send + 'static,
    ) -> Op<T> {
        self.unswept.mark();
        self.run_upkeep(operation, read)
    }

    /// As [`Self::run`], for what also happens in a project that has no traffic.
    fn run_upkeep<T: 'static>(
        &self,
        operation: Operation,
        read: impl FnOnce(&Arc<Pipeline>, Reply) -> Result<T, StoreError> + Send + 'static,
    ) -> Op<T> {
        let (pipeline, epoch) = (Arc::clone(&self.pipeline), self.epoch);
        Box::pin(async move {
            let reply = Arc::clone(&pipeline).submit(operation, epoch).await?;
            read(&pipeline, reply)
        })
    }

    fn frame(&self, event: &StoreEvent) -> String {
        Frame::head(self.pipeline.client.replica, &self.pipeline.project, event)
    }
}

impl Store for RedisStore {
    fn is_synchronous(&self) -> bool {
        false
    }

    fn replicated(&self) -> Option<&dyn ReplicatedStore> {
        Some(self)
    }

    fn push(&self) -> Option<&dyn PushStore> {
        Some(self)
    }

    fn unswept(&self) -> Arc<Unswept> {
        Arc::clone(&self.unswept)
    }

    fn usage(&self) -> Op<Usage> {
        self.run_upkeep(Operation::new("usage"), |_, mut reply| {
            Ok(Usage {
                messages: reply.len()?,
                dead_letters: reply.len()?,
                sessions: reply.len()?,
                idempotency_keys: reply.len()?,
                questions: reply.len()?,
            })
        })
    }
}

impl SessionStore for RedisStore {
    fn put_session(&self, record: SessionRecord, put: PutSession) -> Op<PutOutcome> {
        let name = record.name.as_ref().map_or("", |name| name.as_str());
        // A name has no control character.
        let aliases: Vec<_> = record.aliases.iter().map(|alias| alias.as_str()).collect();
        let aliases = aliases.join("\n");
        let operation = Operation::accepting("put_session")
            .session(record.id)
            .text(name)
            .text(aliases)
            .json(&record)
            .flag(put.must_exist)
            .text(
                put.sessions_len_max
                    .map_or_else(|| "-1".to_owned(), |max| max.to_string()),
            )
            .text(self.frame(&StoreEvent::Session(Box::new(record))));
        self.run(operation, |pipeline, mut reply| {
            decode::put_outcome(&mut reply, pipeline.client.retention.sessions_bytes_max)
        })
    }

    fn sessions(&self) -> Op<Roster> {
        self.run(Operation::new("sessions"), |_, mut reply| {
            Ok(Roster {
                version: reply.number()?,
                sessions: reply.records()?,
            })
        })
    }

    fn find_session(&self, wanted: SessionKey) -> Op<Option<SessionRecord>> {
        let operation = Operation::new("find_session");
        let operation = match wanted {
            SessionKey::Id(id) => operation.text("id").session_text(id),
            SessionKey::Name(name) => operation.text("name").text(name.as_str()),
        };
        self.run(operation, |_, mut reply| reply.record())
    }

    fn remove_session(
        &self,
        session: SessionId,
        reason: DeadLetterReason,
        silent_for: Option<Duration>,
        now: Now,
    ) -> Op<Option<usize>> {
        let silence = silent_for.map_or_else(String::new, |time| clock::millis(time).to_string());
        let operation = Operation::new("remove_session")
            .recording_events()
            .time(now)
            .session(session)
            .text(reason_code(reason).to_string())
            .text(silence)
            .text(self.frame(&StoreEvent::SessionRemoved(session)));
        self.run(operation, |_, mut reply| Ok(usize::try_from(reply.int()?).ok()))
    }

    fn claim_session(&self, session: SessionId, claim: Claim, delivery_limit: u32, now: Now) -> Op<Claimed> {
        let operation = Operation::new("claim")
            .recording_events()
            .time(now)
            .session(session)
            .text(claim_text(claim))
            .number(delivery_limit.into())
            .text(self.frame(&StoreEvent::Claimed(session)));
        self.run(operation, |_, mut reply| {
            Ok(Claimed {
                epoch: reply.number()?,
                released: decode::released(&mut reply)?,
            })
        })
    }
}

impl InboxStore for RedisStore {
    fn append(&self, batch: Vec<Append>, now: Now) -> Op<Vec<Appended>> {
        // Now: a recipient may get the message before the reply is here.
        self.pipeline
            .local_messages
            .insert(batch.iter().map(|append| &append.message));
        let items = append::group_into_items(&batch);
        let operation = append::operation(&batch, &items, now);
        let unsettled = self.pipeline.track_recorded_operation();
        self.run(operation, move |pipeline, mut reply| {
            let answers = append::read_answers(&batch, &items, &pipeline.client.retention, &mut reply)?;
            pipeline.record_accepted(&batch, &answers, now);
            drop(unsettled);
            Ok(answers)
        })
    }

    fn lease(&self, session: SessionId, by: Option<Claim>, limit: usize, bytes_max: usize, now: Now) -> Op<Lease> {
        let claim = by.map_or_else(String::new, claim_text);
        self.lease_as(session, claim, Vec::new(), (limit, bytes_max), now)
    }

    fn acknowledge(&self, session: SessionId, which: Acknowledge, now: Now) -> Op<Acknowledged> {
        let operation = Operation::new("acknowledge").time(now).session(session);
        let kind = if matches!(which, Acknowledge::Seen(_)) {
            "seen"
        } else {
            "ids"
        };
        match which {
            Acknowledge::Ids(ids) | Acknowledge::Seen(ids) => {
                let operation = operation.text(kind).messages(&ids);
                self.run(operation, move |pipeline, mut reply| {
                    let answer = decode::acknowledged(pipeline, &mut reply)?;
                    let acknowledged = without(&ids, answer.unknown.clone());
                    pipeline.record_acknowledged(acknowledged.map(|id| (id, session)), now);
                    Ok(answer)
                })
            }
            Acknowledge::Concluded(ids, outcome) => self.conclude(session, ids, &outcome, now),
            Acknowledge::UpTo(id) => self.acknowledge_named(operation.text("up_to").message(id), session, now),
        }
    }

    fn release(&self, session: SessionId, which: Release, delivery_limit: u32, now: Now) -> Op<Released> {
        let operation = Operation::new("release")
            .recording_events()
            .time(now)
            .session(session)
            .number(delivery_limit.into());
        let operation = match which {
            Release::Ids(ids) => operation.text("ids").messages(&ids),
            Release::Undelivered(ids) => operation.text("undelivered").messages(&ids),
            Release::Claimed(claim) => operation.text("claimed").text(claim_text(claim)),
            Release::Silent(time) => operation.text("silent").duration(time),
        };
        self.run(operation, |_, mut reply| decode::released(&mut reply))
    }

    fn depth(&self, session: SessionId) -> Op<Depth> {
        let operation = Operation::new("depth").session(session);
        self.run(operation, |_, mut reply| reply.depth())
    }

    fn peek(&self, session: SessionId, limit: usize, bytes_max: usize) -> Op<Peeked> {
        let operation = Operation::new("peek")
            .session(session)
            .number(limit as u64)
            .number(bytes_max as u64);
        self.run(operation, move |pipeline, mut reply| {
            decode::peeked(pipeline, &mut reply, session, limit)
        })
    }

    fn sweep(&self, _: Now) -> Op<Swept> {
        self.unswept.clear();
        let operation = Operation::new("sweep").number(self.expired_in_seq.load(Ordering::Acquire));
        let known = Arc::clone(&self.expired_in_seq);
        self.run_upkeep(operation, move |pipeline, mut reply| {
            advance(&known, reply.number()?);
            let (dead_letters, keys) = (reply.len()?, reply.len()?);
            log_dropped(pipeline, dead_letters, keys);
            let has_unreported = reply.int()? == 1;
            let next_deadline = u64::try_from(reply.int()?).map_or(SWEEP_PAUSE_MAX, Duration::from_millis);
            let mut expired_in = Vec::new();
            while !reply.is_empty() {
                expired_in.push((reply.session()?, reply.len()?));
            }
            Ok(Swept {
                expired_in,
                has_unreported,
                next_within: next_deadline.min(SWEEP_PAUSE_MAX),
            })
        })
    }
}

impl DeadLetterStore for RedisStore {
    fn dead_letters(&self, query: DeadLetterQuery) -> Op<DeadLetterPage> {
        let after = query.after.map_or_else(Vec::new, |(message, session)| {
            [message.as_uuid().as_bytes(), session.to_string().as_bytes()].concat()
        });
        let operation = Operation::new("dead_letters")
            .text(
                query
                    .reason
                    .map_or_else(String::new, |reason| reason_code(reason).to_string()),
            )
            .text(query.origin.as_ref().map_or("", ProjectId::as_str))
            .text(after)
            .bound(query.limit)
            .bound(query.bytes_max);
        self.run(operation, |pipeline, mut reply| {
            decode::dead_letters(pipeline, &mut reply)
        })
    }

    fn redrive(
        &self,
        messages: Vec<MessageId>,
        recipient: Option<SessionId>,
        queue_capacity: usize,
        now: Now,
    ) -> Op<Redriven> {
        let operation = Operation::accepting("redrive")
            .recording_events()
            .time(now)
            .text(recipient.map_or_else(String::new, |id| id.to_string()))
            .bound(queue_capacity)
            .messages(&messages);
        self.run(operation, |_, mut reply| decode::redriven(&mut reply))
    }

    fn dead_letter_count(&self) -> Op<usize> {
        self.run(Operation::new("dead_letter_count"), |_, mut reply| reply.len())
    }

    fn unreported(&self) -> Op<Unreported> {
        self.run(Operation::new("unreported"), |pipeline, mut reply| {
            decode::unreported(pipeline, &mut reply)
        })
    }

    fn mark_reported(&self, until: u64) -> Op<()> {
        self.run(Operation::new("mark_reported").number(until), |_, _| Ok(()))
    }
}

impl ReplicatedStore for RedisStore {
    fn own_replica(&self) -> ReplicaId {
        self.pipeline.client.replica
    }

    fn last_frame_seq(&self) -> Op<u64> {
        self.run(Operation::new("last_frame_seq"), |_, mut reply| reply.number())
    }

    fn exchange_heartbeats(&self, own: Vec<Heartbeat>) -> Op<HeartbeatExchange> {
        let mut operation = Operation::new("exchange_heartbeats")
            .without_reading_inboxes()
            .number(self.heartbeat_seq.load(Ordering::Acquire));
        for heartbeat in own {
            operation = operation
                .session(heartbeat.session)
                .duration(heartbeat.ago)
                .flag(heartbeat.has_left);
        }
        let known = Arc::clone(&self.heartbeat_seq);
        self.run_upkeep(operation, move |_, mut reply| {
            advance(&known, reply.number()?);
            Ok(HeartbeatExchange {
                frame_seq: reply.number()?,
                heartbeats: decode::heartbeats(&mut reply)?,
            })
        })
    }

    fn lease_for_call(
        &self,
        session: SessionId,
        receipt: CallReceipt,
        limit: usize,
        bytes_max: usize,
        now: Now,
    ) -> Op<Lease> {
        let receipt = receipt.to_bytes().to_vec();
        self.lease_as(session, String::new(), receipt, (limit, bytes_max), now)
    }

    fn mark_returned(&self, session: SessionId, messages: Vec<MessageId>) -> Op<()> {
        let operation = Operation::new("mark_returned").session(session).messages(&messages);
        self.run(operation, |_, _| Ok(()))
    }

    fn acknowledge_returned(&self, session: SessionId, now: Now) -> Op<Acknowledged> {
        let operation = Operation::new("acknowledge_returned").time(now).session(session);
        self.acknowledge_named(operation, session, now)
    }

    fn acknowledge_receipt(
        &self,
        session: SessionId,
        receipt: CallReceipt,
        delivery_limit: u32,
        now: Now,
    ) -> Op<Acknowledged> {
        let operation = Operation::new("acknowledge_receipt")
            .time(now)
            .session(session)
            .text(receipt.to_bytes().as_slice())
            .number(delivery_limit.into());
        self.acknowledge_named(operation, session, now)
    }

    fn notify_progress(&self, message: Option<MessageId>) -> Op<()> {
        let local = &self.pipeline.local_messages;
        let followed: Vec<_> = match message {
            Some(id) => local
                .get(id)
                .into_iter()
                .filter(|message| message.is_tracked())
                .collect(),
            None => local.tracked(),
        };
        let refreshes: Vec<_> = followed
            .into_iter()
            .map(|message| self.refresh_progress(message))
            .collect();
        Box::pin(async move { futures_util::future::join_all(refreshes).await.into_iter().collect() })
    }
}

impl PushStore for RedisStore {
    fn start_push(&self, session: SessionId, claim: Claim, limit: PrefetchLimit, from: u64) -> Op<Lease> {
        let most = |number: usize| number.min(u32::MAX as usize);
        let operation = Operation::new("start_push")
            .session(session)
            .text(claim_text(claim))
            .bound(most(limit.messages))
            .bound(most(limit.bytes))
            .text(self.pipeline.client.replica.to_string())
            .flag(limit.auto_ack)
            .number(from);
        self.run(operation, move |pipeline, mut reply| {
            let lease = decode::leased(pipeline, &mut reply, session)?;
            pipeline.record_delivered(session, &lease.deliveries, clock::now());
            Ok(lease)
        })
    }

    fn decode_batch(&self, batch: &DeliveryBatch) -> Result<Vec<PushedDelivery>, StoreError> {
        let pushed = decode::delivery_batch(&self.pipeline, batch)?;
        self.pipeline.record_pushed(&pushed, clock::now());
        Ok(pushed)
    }

    fn acknowledge_written(&self, session: SessionId, messages: Vec<MessageId>, _: Now) -> Op<Acknowledged> {
        let (pipeline, epoch) = (Arc::clone(&self.pipeline), self.epoch);
        Box::pin(async move {
            let mut reply = Arc::clone(&pipeline).submit_auto_ack(session, messages, epoch).await?;
            decode::acknowledged(&pipeline, &mut reply)
        })
    }

    fn settle_group_leases(&self, session: SessionId, messages: &mut Vec<MessageId>) {
        self.pipeline.note_group_written(session, messages);
    }
}

impl RedisStore {
    /// Leases messages by a claim or for a call, either of which may be empty.
    fn lease_as(
        &self,
        session: SessionId,
        claim: String,
        receipt: Vec<u8>,
        (limit, bytes_max): (usize, usize),
        now: Now,
    ) -> Op<Lease> {
        let operation = Operation::new("lease")
            .time(now)
            .session(session)
            .text(claim)
            .text(receipt)
            .bound(limit)
            .bound(bytes_max)
            .leasing_for(session);
        self.run(operation, move |pipeline, mut reply| {
            let lease = decode::leased(pipeline, &mut reply, session)?;
            pipeline.record_delivered(session, &lease.deliveries, now);
            Ok(lease)
        })
    }

    /// Acknowledges or rejects messages with an outcome.
    fn conclude(&self, session: SessionId, ids: Vec<MessageId>, outcome: &Outcome, now: Now) -> Op<Acknowledged> {
        let operation = Operation::new("conclude")
            .recording_events()
            .time(now)
            .session(session)
            .text(outcome.to_bytes())
            .number(outcome.receipts_len() as u64)
            .messages(&ids);
        let rejects = outcome.kind.dead_letter_reason().is_some();
        self.run(operation, move |pipeline, mut reply| {
            let mut answer = decode::acknowledged(pipeline, &mut reply)?;
            if rejects {
                answer.dead = answer.acknowledged;
            } else {
                let acknowledged = without(&ids, answer.unknown.clone());
                pipeline.record_acknowledged(acknowledged.map(|id| (id, session)), now);
            }
            Ok(answer)
        })
    }

    /// Carries out an acknowledgement whose reply names the messages.
    fn acknowledge_named(&self, operation: Operation, session: SessionId, now: Now) -> Op<Acknowledged> {
        self.run(operation, move |pipeline, mut reply| {
            let (ids, answer) = decode::acknowledged_with_ids(pipeline, &mut reply)?;
            pipeline.record_acknowledged(ids.into_iter().map(|id| (id, session)), now);
            Ok(answer)
        })
    }

    /// Tells the followers of a message how far it has come at other replicas.
    fn refresh_progress(&self, message: Arc<Message>) -> Op<()> {
        let statuses = self.message_statuses(vec![message.id], clock::now());
        let pipeline = Arc::clone(&self.pipeline);
        Box::pin(async move {
            for known in statuses.await?.into_iter().flatten().flatten() {
                // A released message was delivered before: its progress does not go back.
                if known.status != DeliveryStatus::Queued {
                    message.progress.advance_to(known.status);
                }
                if known.status.is_final() {
                    pipeline.local_messages.take_final(message.id);
                }
            }
            Ok(())
        })
    }
}

/// Logs what was dropped since the last sweep of any replica because there was too much.
fn log_dropped(pipeline: &Pipeline, dead_letters: usize, keys: usize) {
    let (project, retention) = (&pipeline.project, &pipeline.client.retention);
    if dead_letters > 0 {
        let (limit, bytes_max) = (retention.dead_letters_len_max, retention.dead_letters_bytes_max);
        tracing::warn!(%project, dropped = dead_letters, limit, bytes_max, "too many dead letters: the oldest were dropped");
    }
    if keys > 0 {
        let (limit, bytes_max) = (retention.idempotency_keys_len_max, retention.idempotency_keys_bytes_max);
        tracing::warn!(%project, dropped = keys, limit, bytes_max, "too many idempotency keys: the oldest were dropped");
    }
}

/// Advances a sequence number. It grows only, within an epoch of the store.
fn advance(known: &AtomicU64, seq: u64) {
    known.fetch_max(seq, Ordering::AcqRel);
}
