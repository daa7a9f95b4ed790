//! The reference backend: keeps everything in this process.

use std::{
    collections::HashMap,
    future::ready,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{
    Acknowledge, Acknowledged, AddedBackendStore, Append, Appended, Asked, BackendListStore, Claim, Claimed,
    ConsoleRecord, DeadLetterPage, DeadLetterQuery, DeadLetterStore, Depth, DraftPut, EventPage, EventQuery,
    EventStore, Heartbeat, InboxStore, Inserted, KeyReservation, Lease, Op, Peeked, ProtocolStore, PushStore,
    PutOutcome, PutSession, QuestionStore, Redriven, Release, Released, ReleasedYaps, ReplicatedStorage,
    ReplicatedStore, Retention, Roster, SendResult, SessionKey, SessionStore, Storage, StorageHealth, Store, Swept,
    TableChange, TargetCursor, TargetId, TargetStore, TrackingStore, Unreported, Updated, Usage, YapHeld,
    state::{account::StoreLimits, project::ProjectState, system::SystemState},
};
use crate::{
    clock::Now,
    model::{
        AuditEntry, AuditQuery, BackendName, DeadLetterReason, Message, MessageId, ProjectEvent, ProjectId,
        ProjectRecord, ProtocolName, ProtocolRecord, Question, QuestionContent, QuestionId, RecipientStatus, SessionId,
        SessionName, SessionRecord, ShownYap, Yap,
    },
};

/// Keeps the store of each project as long as the storage itself lives.
#[derive(Debug, Default)]
pub struct MemoryStorage {
    limits: StoreLimits,
    /// Why this storage replaces another one.
    fallback_reason: Option<String>,
    stores: Mutex<HashMap<ProjectId, Arc<MemoryStore>>>,
    system: Mutex<SystemState>,
}

impl MemoryStorage {
    /// `retention` applies to each project by itself, except `messages_bytes_max`, which all projects share.
    #[must_use]
    pub fn new(retention: Retention) -> Self {
        Self {
            limits: StoreLimits::new(retention),
            ..Self::default()
        }
    }

    /// A storage that replaces another one for this reason. Its health is degraded.
    #[must_use]
    pub fn new_fallback(retention: Retention, why: impl Into<String>) -> Self {
        Self {
            limits: StoreLimits::new(retention),
            fallback_reason: Some(why.into()),
            ..Self::default()
        }
    }
}

impl MemoryStorage {
    fn run<T: Send + 'static>(&self, operation: impl FnOnce(&mut SystemState) -> T) -> Op<T> {
        let answer = operation(&mut self.system.lock().unwrap_or_else(PoisonError::into_inner));
        Box::pin(ready(Ok(answer)))
    }
}

impl Storage for MemoryStorage {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn durability(&self) -> String {
        "nothing survives the process".to_owned()
    }

    fn health(&self) -> StorageHealth {
        self.fallback_reason
            .clone()
            .map_or(StorageHealth::Healthy, StorageHealth::Degraded)
    }

    fn replicated(&self) -> Option<&dyn ReplicatedStorage> {
        None
    }

    fn open(&self, project: &ProjectId) -> Arc<dyn Store> {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = stores.get(project) {
            return store.clone();
        }
        let store = Arc::new(MemoryStore(Mutex::new(ProjectState::new(
            project.clone(),
            &self.limits,
        ))));
        stores.insert(project.clone(), store.clone());
        store
    }

    fn projects(&self) -> Op<Vec<Arc<ProjectRecord>>> {
        self.run(|system| system.projects())
    }

    fn project(&self, project: ProjectId) -> Op<Option<Arc<ProjectRecord>>> {
        self.run(|system| system.project(&project))
    }

    fn put_project(&self, record: Arc<ProjectRecord>) -> Op<bool> {
        self.run(|system| system.put_project(record))
    }

    fn clear_project(&self, project: ProjectId) -> Op<()> {
        self.stores
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&project);
        Box::pin(ready(Ok(())))
    }

    fn append_audit(&self, entry: AuditEntry) -> Op<()> {
        let len_max = self.limits.retention.audit_len_max;
        self.run(|system| {
            system.append_audit(entry, len_max);
        })
    }

    fn audit(&self, query: AuditQuery) -> Op<Vec<Arc<AuditEntry>>> {
        self.run(|system| system.audit(&query))
    }
}

/// The store of one project. Carries out each operation before it returns, under the one lock of the project; the future only carries the answer.
#[derive(Debug)]
struct MemoryStore(Mutex<ProjectState>);

impl MemoryStore {
    fn run<T: Send + 'static>(&self, operation: impl FnOnce(&mut ProjectState) -> T) -> Op<T> {
        let answer = operation(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
        Box::pin(ready(Ok(answer)))
    }
}

impl Store for MemoryStore {
    fn is_synchronous(&self) -> bool {
        true
    }

    fn replicated(&self) -> Option<&dyn ReplicatedStore> {
        None
    }

    fn push(&self) -> Option<&dyn PushStore> {
        None
    }

    fn usage(&self) -> Op<Usage> {
        self.run(|state| state.usage())
    }
}

impl SessionStore for MemoryStore {
    fn put_session(&self, record: SessionRecord, condition: PutSession) -> Op<PutOutcome> {
        self.run(|state| state.put_session(record, condition))
    }

    fn sessions(&self) -> Op<Roster> {
        self.run(|state| state.sessions())
    }

    fn keep_heartbeats(&self, heartbeats: Vec<Heartbeat>, now: Now) -> Op<usize> {
        self.run(|state| state.keep_heartbeats(&heartbeats, now))
    }

    fn kept_heartbeats(&self, now: Now) -> Op<Vec<Heartbeat>> {
        self.run(|state| state.kept_heartbeats(now))
    }

    fn find_session(&self, key: SessionKey) -> Op<Option<SessionRecord>> {
        self.run(|state| state.find_session(&key))
    }

    fn remove_session(
        &self,
        session: SessionId,
        reason: DeadLetterReason,
        _: Option<Duration>,
        now: Now,
    ) -> Op<Option<usize>> {
        self.run(|state| Some(state.remove_session(session, reason, now)))
    }

    fn claim(&self, session: SessionId, claim: Claim, delivery_limit: u32, now: Now) -> Op<Claimed> {
        self.run(|state| state.claim(session, claim, delivery_limit, now))
    }
}

impl ProtocolStore for MemoryStore {
    fn insert_protocol(&self, record: Arc<ProtocolRecord>, len_max: Option<usize>) -> Op<Inserted> {
        self.run(|state| state.insert_protocol(record, len_max))
    }

    fn protocols(&self) -> Op<Vec<Arc<ProtocolRecord>>> {
        self.run(|state| state.protocols())
    }

    fn protocol(&self, name: ProtocolName, version: semver::Version) -> Op<Option<Arc<ProtocolRecord>>> {
        self.run(|state| state.protocol(name, version))
    }
}

impl InboxStore for MemoryStore {
    fn append(&self, batch: Vec<Append>, now: Now) -> Op<Vec<Appended>> {
        self.run(|state| state.append(batch, now))
    }

    fn lease(&self, session: SessionId, by: Option<Claim>, limit: usize, bytes_max: usize, now: Now) -> Op<Lease> {
        self.run(|state| state.lease(session, by, limit, bytes_max, now))
    }

    fn acknowledge(&self, session: SessionId, which: Acknowledge, now: Now) -> Op<Acknowledged> {
        self.run(|state| state.acknowledge(session, which, now))
    }

    fn release(&self, session: SessionId, which: Release, delivery_limit: u32, now: Now) -> Op<Released> {
        self.run(|state| state.release(session, &which, delivery_limit, now))
    }

    fn depth(&self, session: SessionId) -> Op<Depth> {
        self.run(|state| state.depth(session))
    }

    fn peek(&self, session: SessionId, limit: usize, _: usize) -> Op<Peeked> {
        self.run(|state| state.peek(session, limit))
    }

    fn sweep(&self, now: Now) -> Op<Swept> {
        self.run(|state| state.sweep(now))
    }
}

impl TrackingStore for MemoryStore {
    fn update_send_result(&self, sender: SessionId, key: String, result: SendResult) -> Op<()> {
        self.run(|state| state.update_send_result(sender, key, result))
    }

    fn reserve_key(&self, sender: SessionId, key: String, target: ProjectId, now: Now) -> Op<KeyReservation> {
        self.run(|state| state.reserve_key(sender, key, target, now))
    }

    fn complete_reservation(&self, sender: SessionId, key: String, result: SendResult) -> Op<()> {
        self.run(|state| state.complete_reservation(sender, key, result))
    }

    fn cancel_reservation(&self, sender: SessionId, key: String) -> Op<()> {
        self.run(|state| state.cancel_reservation(sender, key))
    }

    fn message_statuses(&self, messages: Vec<MessageId>, now: Now) -> Op<Vec<Option<Vec<RecipientStatus>>>> {
        self.run(|state| state.message_statuses(&messages, now))
    }

    fn messages(&self, messages: Vec<MessageId>) -> Op<Vec<Option<Arc<Message>>>> {
        self.run(|state| state.messages(&messages))
    }

    fn put_cross_project_target(&self, message: MessageId, target: ProjectId) -> Op<()> {
        self.run(|state| state.put_cross_project_target(message, target))
    }

    fn cross_project_target(&self, message: MessageId) -> Op<Option<ProjectId>> {
        self.run(|state| state.cross_project_target(message))
    }

    fn cross_project_targets(&self) -> Op<Vec<ProjectId>> {
        self.run(|state| state.cross_project_targets())
    }
}

impl DeadLetterStore for MemoryStore {
    fn dead_letters(&self, query: DeadLetterQuery) -> Op<DeadLetterPage> {
        self.run(|state| state.dead_letters(&query))
    }

    fn redrive(
        &self,
        messages: Vec<MessageId>,
        recipient: Option<SessionId>,
        queue_capacity: usize,
        now: Now,
    ) -> Op<Redriven> {
        self.run(|state| state.redrive(messages, recipient, queue_capacity, now))
    }

    fn dead_letter_count(&self) -> Op<usize> {
        self.run(|state| state.dead_letter_count())
    }

    fn claim_unreported(&self, now: Now) -> Op<Unreported> {
        self.run(|state| state.claim_unreported(now))
    }

    fn mark_reported(&self, until: u64) -> Op<()> {
        self.run(|state| state.mark_reported(until))
    }
}

impl EventStore for MemoryStore {
    fn record(&self, event: ProjectEvent, now: Now) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.ledger.events.record(&event, now);
    }

    /// The events are decoded after the lock was released.
    fn events(&self, query: EventQuery) -> Op<EventPage> {
        let plan = self.run(move |state| state.ledger.events.plan(query));
        Box::pin(async move { plan.await?.read(|_| Ok(None)) })
    }
}

impl QuestionStore for MemoryStore {
    fn ask(&self, question: Arc<Question>, content: Arc<QuestionContent>, now: Now) -> Op<Asked> {
        self.run(|state| state.ask(question, content, now))
    }

    fn update_question(
        &self,
        question: Arc<Question>,
        event: Option<ProjectEvent>,
        notice: Option<Append>,
        now: Now,
    ) -> Op<Updated> {
        self.run(|state| state.update_question(question, event, notice, now))
    }

    fn questions(&self, ids: Vec<QuestionId>) -> Op<Vec<Option<Arc<Question>>>> {
        self.run(|state| ids.iter().map(|id| state.questions.record(*id)).collect())
    }

    fn question_content(&self, id: QuestionId) -> Op<Option<Arc<QuestionContent>>> {
        self.run(|state| state.questions.content(id))
    }

    fn open_questions(&self) -> Op<Vec<Arc<Question>>> {
        self.run(|state| state.questions.open())
    }

    fn question_page(&self, before: Option<QuestionId>, limit: usize) -> Op<Vec<Arc<Question>>> {
        self.run(|state| state.questions.page(before, limit))
    }

    fn remove_question(&self, id: QuestionId) -> Op<bool> {
        self.run(|state| state.remove_question(id))
    }

    fn put_draft(&self, id: QuestionId, human: SessionName, text: String) -> Op<DraftPut> {
        self.run(|state| state.put_draft(id, human, text))
    }

    fn draft(&self, id: QuestionId, human: SessionName) -> Op<String> {
        self.run(|state| state.questions.draft(id, &human))
    }

    fn hold_yap(&self, yap: Arc<Yap>, now: Now) -> Op<YapHeld> {
        self.run(|state| state.hold_yap(yap, now))
    }

    fn release_yaps(&self, delay: Duration, now: Now) -> Op<ReleasedYaps> {
        self.run(|state| state.release_yaps(delay, now))
    }

    fn yaps(&self, after: Option<u64>, limit: usize) -> Op<Vec<Arc<ShownYap>>> {
        self.run(|state| state.yaps.list(after, limit))
    }

    fn exchange_consoles(&self, own: Vec<ConsoleRecord>, _: Duration) -> Op<Vec<ConsoleRecord>> {
        Box::pin(ready(Ok(own)))
    }
}

impl TargetStore for MemoryStore {
    fn claim_target(&self, target: TargetId, _: Duration) -> Op<Option<TargetCursor>> {
        self.run(|state| Some(state.target(target)))
    }

    fn move_target(&self, target: TargetId, cursor: TargetCursor, _: Duration) -> Op<bool> {
        self.run(|state| {
            state.move_target(target, cursor);
            true
        })
    }
}

impl BackendListStore for MemoryStore {
    fn keep_backend_lists(&self, backend: BackendName, lists: Option<Arc<str>>) -> Op<()> {
        self.run(|state| state.keep_backend_lists(backend, lists))
    }

    fn backend_lists(&self, backend: BackendName) -> Op<Option<Arc<str>>> {
        self.run(|state| state.backend_lists.get(&backend).cloned())
    }

    fn retain_backend_lists(&self, backends: Vec<BackendName>) -> Op<()> {
        self.run(|state| state.retain_backend_lists(&backends))
    }
}

impl AddedBackendStore for MemoryStore {
    fn added_backends(&self) -> Op<Vec<(BackendName, Arc<str>)>> {
        self.run(|state| state.added_backends())
    }

    fn change_added_backend(
        &self,
        backend: BackendName,
        before: Option<Arc<str>>,
        table: Option<Arc<str>>,
    ) -> Op<TableChange> {
        self.run(|state| state.change_added_backend(backend, before.as_deref(), table))
    }
}

#[cfg(test)]
mod tests;
