//! The store of one project in this process: each operation runs on the [`ProjectState`], and a [`Commit`] keeps what it
//! changed before it is answered. This file says what each operation needs.

use std::{
    future::ready,
    sync::{Arc, MutexGuard},
    time::Duration,
};

use uuid::Uuid;

use super::{
    Acknowledge, Acknowledged, Append, Appended, Asked, Before, Claim, ClaimEpoch, ClaimStore, Claimed, DeadLetterPage,
    DeadLetterQuery, DeadLetterStore, Depth, DraftPut, EventPage, EventQuery, EventStore, Heartbeat, HeldClaim,
    InboxStore, KeyReservation, Lease, Op, Peeked, PushStore, PutOutcome, PutSession, QuestionStore, RecordPut,
    RecordStore, Redriven, Release, Released, ReleasedYaps, ReplicatedStore, Roster, SendResult, SessionKey,
    SessionStore, Store, Swept, Table, TrackingStore, Unreported, Unswept, Updated, Usage, YapHeld,
    state::{journal::Journal, project::ProjectState},
};
use crate::{
    clock::Now,
    locked::Locked,
    model::{
        DeadLetterReason, Message, MessageId, ProjectEvent, ProjectId, Question, QuestionContent, QuestionId,
        RecipientStatus, SessionId, SessionName, SessionRecord, ShownYap, Transformed, Yap,
    },
};

/// The store of one project in this process.
#[derive(Debug)]
pub struct LocalStore<C>(pub C);

/// Holds the state of a project, and keeps what an operation changed before the operation is answered.
pub trait Commit: Send + Sync + 'static {
    /// Receives the changes of the state.
    type Journal: Journal;

    /// See [`Store::is_synchronous`].
    const IS_SYNCHRONOUS: bool;

    /// Runs an operation on the state, and answers once what it changed and what it saw is kept. One that is no query is
    /// noted in what is unswept, under the lock of the state: a sweep has seen it, or comes after the note.
    fn run<T: Send + 'static>(
        &self,
        need: Need,
        operation: impl FnOnce(&mut ProjectState<Self::Journal>) -> T + Send + 'static,
    ) -> Op<T>;

    /// See [`Store::unswept`].
    fn unswept(&self) -> Arc<Unswept>;

    /// See [`EventStore::record`].
    fn record(&self, event: &ProjectEvent, now: Now);

    /// See [`EventStore::events`].
    fn events(&self, query: EventQuery) -> Op<EventPage>;
}

/// What an operation needs of where its changes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The operation is a query: it runs even if nothing can be written.
    Read,
    /// The operation adds almost nothing, or frees space.
    Access,
    /// The operation adds data.
    Space,
}

/// The state of one project, of which nothing is kept elsewhere. Carries out each operation before it returns, under
/// the one lock of the project; the future only carries the answer.
#[derive(Debug)]
pub struct MemoryCommit(Locked<ProjectState>);

impl MemoryCommit {
    /// Keeps this state in memory.
    pub fn new(state: ProjectState) -> Self {
        Self(Locked::new(state))
    }

    fn state(&self) -> MutexGuard<'_, ProjectState> {
        self.0.lock()
    }
}

impl Commit for MemoryCommit {
    type Journal = ();

    const IS_SYNCHRONOUS: bool = true;

    fn run<T: Send + 'static>(
        &self,
        need: Need,
        operation: impl FnOnce(&mut ProjectState) -> T + Send + 'static,
    ) -> Op<T> {
        let mut state = self.state();
        if need != Need::Read {
            state.unswept.mark();
        }
        let answer = operation(&mut state);
        drop(state);
        Box::pin(ready(Ok(answer)))
    }

    fn unswept(&self) -> Arc<Unswept> {
        Arc::clone(&self.state().unswept)
    }

    fn record(&self, event: &ProjectEvent, now: Now) {
        self.state().ledger.events.record(event, now);
    }

    /// The events are decoded after the lock was released.
    fn events(&self, query: EventQuery) -> Op<EventPage> {
        let plan = self.state().ledger.events.plan(query);
        Box::pin(async move { plan.read(|_| Ok(None)) })
    }
}

impl<C: Commit> Store for LocalStore<C> {
    fn is_synchronous(&self) -> bool {
        C::IS_SYNCHRONOUS
    }

    fn replicated(&self) -> Option<&dyn ReplicatedStore> {
        None
    }

    fn push(&self) -> Option<&dyn PushStore> {
        None
    }

    fn unswept(&self) -> Arc<Unswept> {
        self.0.unswept()
    }

    fn usage(&self) -> Op<Usage> {
        self.0.run(Need::Read, |state| state.usage())
    }
}

impl<C: Commit> SessionStore for LocalStore<C> {
    /// A session may resume on a full disk: what it acknowledges frees space.
    fn put_session(&self, record: SessionRecord, condition: PutSession) -> Op<PutOutcome> {
        let need = if condition.must_exist {
            Need::Access
        } else {
            Need::Space
        };
        self.0.run(need, move |state| state.put_session(record, condition))
    }

    fn sessions(&self) -> Op<Roster> {
        self.0.run(Need::Read, |state| state.sessions())
    }

    fn keep_heartbeats(&self, heartbeats: Vec<Heartbeat>, now: Now) -> Op<usize> {
        self.0
            .run(Need::Access, move |state| state.keep_heartbeats(&heartbeats, now))
    }

    fn kept_heartbeats(&self, now: Now) -> Op<Vec<Heartbeat>> {
        self.0.run(Need::Read, move |state| state.kept_heartbeats(now))
    }

    fn find_session(&self, key: SessionKey) -> Op<Option<SessionRecord>> {
        self.0.run(Need::Read, move |state| state.find_session(&key))
    }

    fn remove_session(
        &self,
        session: SessionId,
        reason: DeadLetterReason,
        _: Option<Duration>,
        now: Now,
    ) -> Op<Option<usize>> {
        self.0.run(Need::Access, move |state| {
            Some(state.remove_session(session, reason, now))
        })
    }

    fn claim_session(&self, session: SessionId, claim: Claim, delivery_limit: u32, now: Now) -> Op<Claimed> {
        self.0.run(Need::Access, move |state| {
            state.claim_session(session, claim, delivery_limit, now)
        })
    }
}

impl<C: Commit> InboxStore for LocalStore<C> {
    fn append(&self, batch: Vec<Append>, now: Now) -> Op<Vec<Appended>> {
        self.0.run(Need::Space, move |state| state.append(batch, now))
    }

    /// Waits for the disk: the delivery of a message that crashes its recipient must be counted.
    fn lease(&self, session: SessionId, by: Option<Claim>, limit: usize, bytes_max: usize, now: Now) -> Op<Lease> {
        self.0.run(Need::Access, move |state| {
            state.lease(session, by, limit, bytes_max, now)
        })
    }

    fn acknowledge(&self, session: SessionId, which: Acknowledge, now: Now) -> Op<Acknowledged> {
        self.0
            .run(Need::Access, move |state| state.acknowledge(session, which, now))
    }

    fn release(&self, session: SessionId, which: Release, delivery_limit: u32, now: Now) -> Op<Released> {
        self.0.run(Need::Access, move |state| {
            state.release(session, &which, delivery_limit, now)
        })
    }

    fn depth(&self, session: SessionId) -> Op<Depth> {
        self.0.run(Need::Read, move |state| state.depth(session))
    }

    fn peek(&self, session: SessionId, limit: usize, _: usize) -> Op<Peeked> {
        self.0.run(Need::Read, move |state| state.peek(session, limit))
    }

    fn sweep(&self, now: Now) -> Op<Swept> {
        self.0.run(Need::Access, move |state| state.sweep(now))
    }
}

impl<C: Commit> TrackingStore for LocalStore<C> {
    fn update_send_result(&self, sender: SessionId, key: String, result: SendResult) -> Op<()> {
        self.0.run(Need::Access, move |state| {
            state
                .idempotency_keys
                .complete(&(sender, key.into()), result, &mut state.journal);
        })
    }

    /// Waits for the disk: a result found here counts as an acceptance.
    fn reserve_key(&self, sender: SessionId, key: String, target: ProjectId, now: Now) -> Op<KeyReservation> {
        self.0.run(Need::Space, move |state| {
            state
                .idempotency_keys
                .reserve((sender, key.into()), target, now, &mut state.journal)
        })
    }

    fn complete_reservation(&self, sender: SessionId, key: String, result: SendResult) -> Op<()> {
        self.0.run(Need::Access, move |state| {
            state
                .idempotency_keys
                .complete_reservation(&(sender, key.into()), result, &mut state.journal);
        })
    }

    fn cancel_reservation(&self, sender: SessionId, key: String) -> Op<()> {
        self.0.run(Need::Access, move |state| {
            state
                .idempotency_keys
                .cancel_reservation(&(sender, key.into()), &mut state.journal);
        })
    }

    fn message_statuses(&self, messages: Vec<MessageId>, now: Now) -> Op<Vec<Option<Vec<RecipientStatus>>>> {
        self.0
            .run(Need::Read, move |state| state.message_statuses(&messages, now))
    }

    fn note_transformed(&self, session: SessionId, messages: Vec<(MessageId, Arc<Transformed>)>) -> Op<()> {
        self.0
            .run(Need::Access, move |state| state.note_transformed(session, messages))
    }

    fn messages(&self, messages: Vec<MessageId>) -> Op<Vec<Option<Arc<Message>>>> {
        self.0.run(Need::Read, move |state| state.messages(&messages))
    }

    fn put_cross_project_target(&self, message: MessageId, target: ProjectId) -> Op<()> {
        self.0.run(Need::Access, move |state| {
            state.cross_project_targets.put(message, target, &mut state.journal);
        })
    }

    fn cross_project_target(&self, message: MessageId) -> Op<Option<ProjectId>> {
        self.0.run(Need::Read, move |state| {
            state.cross_project_targets.get(message).cloned()
        })
    }

    fn cross_project_targets(&self) -> Op<Vec<ProjectId>> {
        self.0.run(Need::Read, |state| state.cross_project_targets.targets())
    }
}

impl<C: Commit> DeadLetterStore for LocalStore<C> {
    fn dead_letters(&self, query: DeadLetterQuery) -> Op<DeadLetterPage> {
        self.0
            .run(Need::Read, move |state| state.ledger.dead_letters.list(&query))
    }

    fn redrive(
        &self,
        messages: Vec<MessageId>,
        recipient: Option<SessionId>,
        queue_capacity: usize,
        now: Now,
    ) -> Op<Redriven> {
        self.0.run(Need::Space, move |state| {
            state.redrive(messages, recipient, queue_capacity, now)
        })
    }

    fn dead_letter_count(&self) -> Op<usize> {
        self.0.run(Need::Read, |state| state.ledger.dead_letters.len())
    }

    /// Waits for the disk: after a restart the same dead letters are reported under the same number.
    fn unreported(&self) -> Op<Unreported> {
        self.0.run(Need::Access, |state| {
            state.ledger.dead_letters.unreported(&mut state.journal)
        })
    }

    fn mark_reported(&self, until: u64) -> Op<()> {
        self.0.run(Need::Access, move |state| {
            state.ledger.dead_letters.mark_reported(until, &mut state.journal);
        })
    }
}

impl<C: Commit> EventStore for LocalStore<C> {
    fn record(&self, event: ProjectEvent, now: Now) {
        self.0.record(&event, now);
    }

    fn events(&self, query: EventQuery) -> Op<EventPage> {
        self.0.events(query)
    }
}

impl<C: Commit> QuestionStore for LocalStore<C> {
    fn ask(&self, question: Arc<Question>, content: Arc<QuestionContent>, now: Now) -> Op<Asked> {
        self.0.run(Need::Space, move |state| state.ask(question, content, now))
    }

    fn update_question(
        &self,
        question: Arc<Question>,
        event: Option<ProjectEvent>,
        notice: Option<Append>,
        now: Now,
    ) -> Op<Updated> {
        self.0.run(Need::Space, move |state| {
            state.update_question(question, event, notice, now)
        })
    }

    fn questions(&self, ids: Vec<QuestionId>) -> Op<Vec<Option<Arc<Question>>>> {
        self.0.run(Need::Read, move |state| {
            ids.iter().map(|id| state.questions.record(*id)).collect()
        })
    }

    fn question_content(&self, id: QuestionId) -> Op<Option<Arc<QuestionContent>>> {
        self.0.run(Need::Read, move |state| state.questions.content(id))
    }

    fn open_questions(&self) -> Op<Vec<Arc<Question>>> {
        self.0.run(Need::Read, move |state| state.questions.open())
    }

    fn question_page(&self, before: Option<QuestionId>, limit: usize) -> Op<Vec<Arc<Question>>> {
        self.0.run(Need::Read, move |state| state.questions.page(before, limit))
    }

    fn remove_question(&self, id: QuestionId) -> Op<bool> {
        self.0.run(Need::Access, move |state| {
            state.questions.remove(id, &mut state.journal)
        })
    }

    fn put_draft(&self, id: QuestionId, human: SessionName, text: String) -> Op<DraftPut> {
        self.0.run(Need::Space, move |state| {
            state.questions.put_draft(id, human, text, &mut state.journal)
        })
    }

    fn draft(&self, id: QuestionId, human: SessionName) -> Op<String> {
        self.0.run(Need::Read, move |state| state.questions.draft(id, &human))
    }

    fn hold_yap(&self, yap: Arc<Yap>, now: Now) -> Op<YapHeld> {
        self.0
            .run(Need::Space, move |state| state.yaps.hold(yap, now, &mut state.journal))
    }

    fn release_yaps(&self, delay: Duration, now: Now) -> Op<ReleasedYaps> {
        self.0.run(Need::Read, move |state| {
            state.yaps.release(delay, now, &mut state.journal)
        })
    }

    fn yaps(&self, after: Option<u64>, limit: usize) -> Op<Vec<Arc<ShownYap>>> {
        self.0.run(Need::Read, move |state| state.yaps.list(after, limit))
    }
}

impl<C: Commit> RecordStore for LocalStore<C> {
    fn get(&self, table: Table, key: Vec<u8>) -> Op<Option<Arc<str>>> {
        self.0.run(Need::Read, move |state| state.records.get(table, &key))
    }

    fn keys(&self, table: Table, prefix: Vec<u8>) -> Op<Vec<Vec<u8>>> {
        self.0.run(Need::Read, move |state| {
            let records = state.records.with_prefix(table, &prefix);
            records.map(|(key, _)| key.clone()).collect()
        })
    }

    fn list(&self, table: Table, prefix: Vec<u8>) -> Op<Vec<(Vec<u8>, Arc<str>)>> {
        self.0.run(Need::Read, move |state| {
            let records = state.records.with_prefix(table, &prefix);
            records.map(|(key, text)| (key.clone(), Arc::clone(text))).collect()
        })
    }

    fn put_if(&self, table: Table, key: Vec<u8>, before: Before, text: Option<Arc<str>>) -> Op<RecordPut> {
        let adds_data = text.is_some() && table.adds_data();
        let need = if adds_data { Need::Space } else { Need::Access };
        self.0.run(need, move |state| {
            let journal = &mut state.journal;
            state.records.put_if(table, key, &before, text, journal)
        })
    }
}

/// Claims are kept in memory alone. An operation waits, as a query does, until the last change of the project is kept.
impl<C: Commit> ClaimStore for LocalStore<C> {
    fn claim(&self, thing: Arc<str>, holder: Uuid, ttl: Duration, note: Arc<str>, now: Now) -> Op<Option<ClaimEpoch>> {
        self.0.run(Need::Read, move |state| {
            state.claims.claim(thing, holder, ttl, note, now)
        })
    }

    fn settle(&self, epoch: ClaimEpoch) -> Op<bool> {
        self.0.run(Need::Read, move |state| state.claims.settle(epoch))
    }

    fn end_silent(&self, now: Now) -> Op<Vec<HeldClaim>> {
        self.0.run(Need::Read, move |state| state.claims.end_silent(now))
    }

    fn claims(&self, prefix: Arc<str>, now: Now) -> Op<Vec<HeldClaim>> {
        self.0
            .run(Need::Read, move |state| state.claims.with_prefix(&prefix, now))
    }
}
