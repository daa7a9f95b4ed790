//! The hooks of the store of one replica: each operation runs on the shared memory, and the frames that follow from it
//! are published.

use std::{
    future::ready,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use actors::{
    bridge::StoreEvent,
    clock::{Now, now},
    model::{
        CallReceipt, DeadLetterReason, MessageId, ProjectEvent, ProjectId, Question, QuestionContent, QuestionId,
        ReplicaId, SessionId, SessionRecord,
    },
    storage::{
        Acknowledge, Acknowledged, Append, Appended, Asked, Before, Claim, Claimed, Heartbeat, HeartbeatExchange,
        Lease, Op, PutOutcome, PutSession, RecordPut, Redriven, Release, Released, ReleasedYaps, ReplicatedStore,
        Roster, SessionKey, Store, Swept, Table, Updated,
    },
};

use super::{ReplicaConnection, SharedState, Unanswered, at_once};
use crate::intercept::{Hooks, StoreHooks};

pub(super) struct ReplicaStore {
    pub(super) connection: Arc<ReplicaConnection>,
    pub(super) project: ProjectId,
    pub(super) inner: Arc<dyn Store>,
    /// The `heartbeat_count` up to which this replica has read.
    pub(super) heartbeats_read: Mutex<u64>,
}

impl ReplicaStore {
    /// Runs an operation and publishes the events of its result.
    fn run_and_publish<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&dyn Store) -> Op<T>,
        news: impl FnOnce(&T) -> Vec<(StoreEvent, u64)>,
    ) -> Op<T> {
        self.connection.run(|hub| {
            let done = at_once(operation(&*self.inner))?;
            for (news, number) in news(&done) {
                hub.publish(self.connection.replica, &self.project, &news, number);
            }
            Ok(done)
        })
    }

    fn roster_version(&self) -> u64 {
        at_once(self.inner.sessions()).map_or(0, |roster| roster.version)
    }

    fn waiting_event(session: SessionId, released: &Released) -> Option<(StoreEvent, u64)> {
        (released.returned > 0).then(|| (StoreEvent::Waiting(vec![session]), 0))
    }

    /// The time since the last heartbeat of a session at any replica.
    fn silence(&self, hub: &SharedState, session: SessionId) -> Option<Duration> {
        let (seen_ms, ..) = hub.heartbeats.get(&(self.project.clone(), session))?;
        Some(now().since(*seen_ms))
    }
}

impl Hooks for ReplicaStore {
    type Inner = dyn Store;

    fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    fn run<T: Send + 'static>(&self, operation: impl FnOnce(&dyn Store) -> Op<T> + Send + 'static) -> Op<T> {
        self.run_and_publish(operation, |_| Vec::new())
    }
}

impl StoreHooks for ReplicaStore {
    fn replicated(&self) -> Option<&dyn ReplicatedStore> {
        Some(self)
    }

    fn put_session(&self, record: SessionRecord, condition: PutSession) -> Op<PutOutcome> {
        self.connection.run(|hub| {
            let outcome = at_once(self.inner.put_session(record.clone(), condition))?;
            if outcome == PutOutcome::Stored {
                hub.record_heartbeat(&self.project, record.id, now().mono_ms, false);
                let news = StoreEvent::Session(Box::new(record));
                hub.publish(self.connection.replica, &self.project, &news, self.roster_version());
            }
            Ok(outcome)
        })
    }

    fn remove_session(
        &self,
        session: SessionId,
        reason: DeadLetterReason,
        silent_for: Option<Duration>,
        now: Now,
    ) -> Op<Option<usize>> {
        self.connection.run(|hub| {
            let silence = self.silence(hub, session);
            if silent_for
                .zip(silence)
                .is_some_and(|(wanted, silence)| silence < wanted)
            {
                return Ok(None);
            }
            let known = at_once(self.inner.find_session(SessionKey::Id(session)))?.is_some();
            let removed = at_once(self.inner.remove_session(session, reason, None, now))?;
            if known {
                let news = StoreEvent::SessionRemoved(session);
                hub.publish(self.connection.replica, &self.project, &news, self.roster_version());
            }
            Ok(removed)
        })
    }

    fn claim_session(&self, session: SessionId, claim: Claim, delivery_limit: u32, now: Now) -> Op<Claimed> {
        if let Err(error) = self.connection.check_answered(Unanswered::Claims) {
            return Box::pin(ready(Err(error)));
        }
        self.run_and_publish(
            move |store| store.claim_session(session, claim, delivery_limit, now),
            |claimed| {
                let news = (StoreEvent::Claimed(session), claimed.epoch);
                [news]
                    .into_iter()
                    .chain(Self::waiting_event(session, &claimed.released))
                    .collect()
            },
        )
    }

    fn sessions(&self) -> Op<Roster> {
        let roster = self.connection.run(|_| {
            self.connection.check_answered(Unanswered::Sessions)?;
            at_once(self.inner.sessions())
        });
        let mut held = self.connection.rosters_held.subscribe();
        self.connection.roster_reads.send_modify(|asked| *asked += 1);
        Box::pin(async move {
            // The roster of this moment, returned later.
            let roster = roster.await?;
            let _ = held.wait_for(|held| !held).await;
            Ok(roster)
        })
    }

    fn put_if(&self, table: Table, key: Vec<u8>, before: Before, text: Option<Arc<str>>) -> Op<RecordPut> {
        let news = table.event(&key);
        self.run_and_publish(
            move |store| store.put_if(table, key, before, text),
            |put| {
                let news = news.filter(|_| *put == RecordPut::Stored);
                news.map(|news| (news, 0)).into_iter().collect()
            },
        )
    }

    fn list(&self, table: Table, prefix: Vec<u8>) -> Op<Vec<(Vec<u8>, Arc<str>)>> {
        self.connection.run(|_| {
            if table == Table::Protocols {
                self.connection.check_answered(Unanswered::Protocols)?;
            }
            at_once(self.inner.list(table, prefix))
        })
    }

    fn get(&self, table: Table, key: Vec<u8>) -> Op<Option<Arc<str>>> {
        self.connection.run(|_| {
            if table == Table::Protocols {
                self.connection.check_answered(Unanswered::Protocols)?;
            }
            at_once(self.inner.get(table, key))
        })
    }

    fn append(&self, batch: Vec<Append>, now: Now) -> Op<Vec<Appended>> {
        let version = self.roster_version();
        let is_current = |append: &&Append| append.roster_version.is_none_or(|roster| roster == version);
        let current = batch.iter().take_while(is_current).count();
        let refused = batch.len() - current;
        let batch: Vec<_> = batch.into_iter().take(current).collect();
        let audience = batch.iter().flat_map(|append| append.audience.ids().to_vec()).collect();
        let appended = self.run_and_publish(
            move |store| store.append(batch, now),
            |_| vec![(StoreEvent::Waiting(audience), 0)],
        );
        Box::pin(async move {
            let mut answers = appended.await?;
            answers.extend(std::iter::repeat_n(Appended::RosterOutdated, refused));
            Ok(answers)
        })
    }

    fn release(&self, session: SessionId, which: Release, delivery_limit: u32, now: Now) -> Op<Released> {
        if let Some(returned) = self.connection.cluster.hub().returned.get_mut(&session) {
            match &which {
                Release::Ids(ids) | Release::Undelivered(ids) => returned.retain(|id| !ids.contains(id)),
                Release::Claimed(_) | Release::Silent(_) => returned.clear(),
            }
        }
        let silence = self.silence(&self.connection.cluster.hub(), session);
        let which = match which {
            Release::Silent(wanted) if silence.is_some_and(|silence| silence < wanted) => Release::Ids(Vec::new()),
            which => which,
        };
        self.run_and_publish(
            move |store| store.release(session, which, delivery_limit, now),
            |released| Self::waiting_event(session, released).into_iter().collect(),
        )
    }

    fn sweep(&self, now: Now) -> Op<Swept> {
        if self.connection.down.load(Ordering::SeqCst) {
            return Box::pin(ready(Ok(Swept::default())));
        }
        self.inner.sweep(now)
    }

    fn redrive(
        &self,
        messages: Vec<MessageId>,
        recipient: Option<SessionId>,
        queue_capacity: usize,
        now: Now,
    ) -> Op<Redriven> {
        self.run_and_publish(
            move |store| store.redrive(messages, recipient, queue_capacity, now),
            |redriven| {
                let sessions = redriven.sent.iter().map(|&(_, session, _)| session).collect();
                vec![(StoreEvent::Waiting(sessions), 0)]
            },
        )
    }

    fn ask(&self, question: Arc<Question>, content: Arc<QuestionContent>, now: Now) -> Op<Asked> {
        let news = (StoreEvent::Question(question.id), 0);
        self.run_and_publish(
            move |store| store.ask(question, content, now),
            |asked| (*asked == Asked::New).then_some(news).into_iter().collect(),
        )
    }

    fn update_question(
        &self,
        question: Arc<Question>,
        event: Option<ProjectEvent>,
        notice: Option<Append>,
        now: Now,
    ) -> Op<Updated> {
        let news = (StoreEvent::Question(question.id), 0);
        let asker = question.asker.session;
        self.run_and_publish(
            move |store| store.update_question(question, event, notice, now),
            move |updated| match updated {
                Updated::Stored(None) => vec![news],
                Updated::Stored(Some(_)) => vec![news, (StoreEvent::Waiting(vec![asker]), 0)],
                Updated::Changed(_) | Updated::Unknown => Vec::new(),
            },
        )
    }

    fn remove_question(&self, id: QuestionId) -> Op<bool> {
        self.run_and_publish(
            move |store| store.remove_question(id),
            |removed| {
                let news = removed.then_some((StoreEvent::Question(id), 0));
                news.into_iter().collect()
            },
        )
    }

    fn release_yaps(&self, delay: Duration, now: Now) -> Op<ReleasedYaps> {
        self.run_and_publish(
            move |store| store.release_yaps(delay, now),
            |released| {
                let last = released.released.last();
                last.map(|last| (StoreEvent::Yaps(last.seq), 0)).into_iter().collect()
            },
        )
    }
}

impl ReplicatedStore for ReplicaStore {
    fn own_replica(&self) -> ReplicaId {
        self.connection.replica
    }

    fn last_frame_seq(&self) -> Op<u64> {
        self.connection.run(|hub| Ok(hub.frame_sequence(&self.project)))
    }

    fn exchange_heartbeats(&self, own: Vec<Heartbeat>) -> Op<HeartbeatExchange> {
        self.connection.run(|hub| {
            let now = now();
            for sign in own {
                let ago = u64::try_from(sign.ago.as_millis()).unwrap_or(0);
                hub.record_heartbeat(
                    &self.project,
                    sign.session,
                    now.mono_ms.saturating_sub(ago),
                    sign.has_left,
                );
            }
            let mut heard = self.heartbeats_read.lock().unwrap_or_else(PoisonError::into_inner);
            let since = std::mem::replace(&mut *heard, hub.heartbeat_count);
            let news = hub
                .heartbeats
                .iter()
                .filter(|((project, _), (.., told))| *project == self.project && *told > since);
            let signs = news.map(|((_, session), (seen_ms, goodbye, _))| Heartbeat {
                session: *session,
                ago: now.since(*seen_ms),
                has_left: *goodbye,
                is_connected: false,
            });
            Ok(HeartbeatExchange {
                heartbeats: signs.collect(),
                frame_seq: hub.frame_sequence(&self.project),
            })
        })
    }

    fn mark_returned(&self, session: SessionId, messages: Vec<MessageId>) -> Op<()> {
        self.connection.run(move |hub| {
            hub.returned.entry(session).or_default().extend(messages);
            Ok(())
        })
    }

    fn acknowledge_returned(&self, session: SessionId, now: Now) -> Op<Acknowledged> {
        let returned = self
            .connection
            .cluster
            .hub()
            .returned
            .remove(&session)
            .unwrap_or_default();
        self.acknowledge(session, Acknowledge::Ids(returned), now)
    }

    fn lease_for_call(
        &self,
        session: SessionId,
        _: CallReceipt,
        limit: usize,
        bytes_max: usize,
        now: Now,
    ) -> Op<Lease> {
        self.lease(session, None, limit, bytes_max, now)
    }

    /// This store keeps no receipts of calls.
    fn acknowledge_receipt(&self, _: SessionId, _: CallReceipt, _: u32, _: Now) -> Op<Acknowledged> {
        Box::pin(ready(Ok(Acknowledged::default())))
    }

    /// The replicas share one process, and with it the progress of every message.
    fn notify_progress(&self, _: Option<MessageId>) -> Op<()> {
        Box::pin(ready(Ok(())))
    }
}
