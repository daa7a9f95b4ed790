//! The store of one project on the disk.

use std::{sync::Arc, time::Duration};

use super::{
    commits::{Need, wait_durable},
    disk_state::DiskState,
    project::DiskProject,
    recorder::Recorder,
};
use crate::{
    clock::Now,
    model::{
        BackendName, DeadLetterReason, Message, MessageId, ProjectEvent, ProjectId, ProtocolName, ProtocolRecord,
        Question, QuestionContent, QuestionId, RecipientStatus, SessionId, SessionName, SessionRecord, ShownYap, Yap,
    },
    storage::{
        Acknowledge, Acknowledged, AddedBackendStore, Append, Appended, Asked, BackendListStore, Claim, Claimed,
        ConsoleRecord, DeadLetterPage, DeadLetterQuery, DeadLetterStore, Depth, DraftPut, EventPage, EventQuery,
        EventStore, Heartbeat, InboxStore, Inserted, KeyReservation, Lease, Op, Peeked, ProtocolStore, PushStore,
        PutOutcome, PutSession, QuestionStore, Redriven, Release, Released, ReleasedYaps, ReplicatedStore, Roster,
        SendResult, SessionKey, SessionStore, Store, Swept, TableChange, TargetCursor, TargetId, TargetStore,
        TrackingStore, Unreported, Updated, Usage, YapHeld, state::project::ProjectState,
    },
};

/// The store of one project. An operation is answered when its changes are on the disk.
#[derive(Debug)]
pub struct DiskStore {
    shared: Arc<DiskState>,
    project: Arc<DiskProject>,
}

impl DiskStore {
    /// A store on an open project.
    pub fn new(shared: Arc<DiskState>, project: Arc<DiskProject>) -> Self {
        Self { shared, project }
    }

    /// Runs an operation and waits until what it changed and what it saw of the project is on the disk.
    ///
    /// The project's lock is held until the records have joined a group, so that their order is that of the operations.
    fn change<T: Send + 'static>(
        &self,
        need: Need,
        operation: impl FnOnce(&mut ProjectState<Recorder>) -> T + Send + 'static,
    ) -> Op<T> {
        let (shared, project) = (Arc::clone(&self.shared), Arc::clone(&self.project));
        Box::pin(async move {
            let (answer, durable) = {
                let mut state = project.state();
                shared.commits.check(need)?;
                let answer = operation(&mut state);
                state.flush_events();
                (answer, shared.commits.submit(state.journal.changes())?)
            };
            wait_durable(durable).await?;
            Ok(answer)
        })
    }

    /// Runs a query, which a failed disk does not refuse, and waits until what it saw of the project is on the disk. It
    /// waits for nothing while no change of the project is being written.
    fn read<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut ProjectState<Recorder>) -> T + Send + 'static,
    ) -> Op<T> {
        let (shared, project) = (Arc::clone(&self.shared), Arc::clone(&self.project));
        Box::pin(async move {
            let (answer, durable) = {
                let mut state = project.state();
                let answer = operation(&mut state);
                state.flush_events();
                (answer, shared.commits.settle(state.journal.changes())?)
            };
            wait_durable(durable).await?;
            Ok(answer)
        })
    }
}

impl Store for DiskStore {
    fn is_synchronous(&self) -> bool {
        false
    }

    fn replicated(&self) -> Option<&dyn ReplicatedStore> {
        None
    }

    fn push(&self) -> Option<&dyn PushStore> {
        None
    }

    fn usage(&self) -> Op<Usage> {
        self.read(|state| state.usage())
    }
}

impl SessionStore for DiskStore {
    /// A session may resume on a full disk: what it acknowledges frees space.
    fn put_session(&self, record: SessionRecord, condition: PutSession) -> Op<PutOutcome> {
        let need = if condition.must_exist {
            Need::Access
        } else {
            Need::Space
        };
        self.change(need, move |state| state.put_session(record, condition))
    }

    fn sessions(&self) -> Op<Roster> {
        self.read(|state| state.sessions())
    }

    fn keep_heartbeats(&self, heartbeats: Vec<Heartbeat>, now: Now) -> Op<usize> {
        self.change(Need::Access, move |state| state.keep_heartbeats(&heartbeats, now))
    }

    fn kept_heartbeats(&self, now: Now) -> Op<Vec<Heartbeat>> {
        self.read(move |state| state.kept_heartbeats(now))
    }

    fn find_session(&self, key: SessionKey) -> Op<Option<SessionRecord>> {
        self.read(move |state| state.find_session(&key))
    }

    fn remove_session(
        &self,
        session: SessionId,
        reason: DeadLetterReason,
        _: Option<Duration>,
        now: Now,
    ) -> Op<Option<usize>> {
        self.change(Need::Access, move |state| {
            Some(state.remove_session(session, reason, now))
        })
    }

    fn claim(&self, session: SessionId, claim: Claim, delivery_limit: u32, now: Now) -> Op<Claimed> {
        self.change(Need::Access, move |state| {
            state.claim(session, claim, delivery_limit, now)
        })
    }
}

impl ProtocolStore for DiskStore {
    fn insert_protocol(&self, record: Arc<ProtocolRecord>, len_max: Option<usize>) -> Op<Inserted> {
        self.change(Need::Space, move |state| state.insert_protocol(record, len_max))
    }

    fn protocols(&self) -> Op<Vec<Arc<ProtocolRecord>>> {
        self.read(|state| state.protocols())
    }

    fn protocol(&self, name: ProtocolName, version: semver::Version) -> Op<Option<Arc<ProtocolRecord>>> {
        self.read(move |state| state.protocol(name, version))
    }
}

impl InboxStore for DiskStore {
    fn append(&self, batch: Vec<Append>, now: Now) -> Op<Vec<Appended>> {
        self.change(Need::Space, move |state| state.append(batch, now))
    }

    /// Waits for the disk: the delivery of a message that crashes its recipient must be counted.
    fn lease(&self, session: SessionId, by: Option<Claim>, limit: usize, bytes_max: usize, now: Now) -> Op<Lease> {
        self.change(Need::Access, move |state| {
            state.lease(session, by, limit, bytes_max, now)
        })
    }

    fn acknowledge(&self, session: SessionId, which: Acknowledge, now: Now) -> Op<Acknowledged> {
        self.change(Need::Access, move |state| state.acknowledge(session, which, now))
    }

    fn release(&self, session: SessionId, which: Release, delivery_limit: u32, now: Now) -> Op<Released> {
        self.change(Need::Access, move |state| {
            state.release(session, &which, delivery_limit, now)
        })
    }

    fn depth(&self, session: SessionId) -> Op<Depth> {
        self.read(move |state| state.depth(session))
    }

    fn peek(&self, session: SessionId, limit: usize, _: usize) -> Op<Peeked> {
        self.read(move |state| state.peek(session, limit))
    }

    fn sweep(&self, now: Now) -> Op<Swept> {
        self.change(Need::Access, move |state| state.sweep(now))
    }
}

impl TrackingStore for DiskStore {
    fn update_send_result(&self, sender: SessionId, key: String, result: SendResult) -> Op<()> {
        self.change(Need::Access, move |state| state.update_send_result(sender, key, result))
    }

    /// Waits for the disk: a result found here counts as an acceptance.
    fn reserve_key(&self, sender: SessionId, key: String, target: ProjectId, now: Now) -> Op<KeyReservation> {
        self.change(Need::Space, move |state| state.reserve_key(sender, key, target, now))
    }

    fn complete_reservation(&self, sender: SessionId, key: String, result: SendResult) -> Op<()> {
        self.change(Need::Access, move |state| {
            state.complete_reservation(sender, key, result)
        })
    }

    fn cancel_reservation(&self, sender: SessionId, key: String) -> Op<()> {
        self.change(Need::Access, move |state| state.cancel_reservation(sender, key))
    }

    fn message_statuses(&self, messages: Vec<MessageId>, now: Now) -> Op<Vec<Option<Vec<RecipientStatus>>>> {
        self.read(move |state| state.message_statuses(&messages, now))
    }

    fn messages(&self, messages: Vec<MessageId>) -> Op<Vec<Option<Arc<Message>>>> {
        self.read(move |state| state.messages(&messages))
    }

    fn put_cross_project_target(&self, message: MessageId, target: ProjectId) -> Op<()> {
        self.change(Need::Access, move |state| {
            state.put_cross_project_target(message, target)
        })
    }

    fn cross_project_target(&self, message: MessageId) -> Op<Option<ProjectId>> {
        self.read(move |state| state.cross_project_target(message))
    }

    fn cross_project_targets(&self) -> Op<Vec<ProjectId>> {
        self.read(|state| state.cross_project_targets())
    }
}

impl DeadLetterStore for DiskStore {
    fn dead_letters(&self, query: DeadLetterQuery) -> Op<DeadLetterPage> {
        self.read(move |state| state.dead_letters(&query))
    }

    fn redrive(
        &self,
        messages: Vec<MessageId>,
        recipient: Option<SessionId>,
        queue_capacity: usize,
        now: Now,
    ) -> Op<Redriven> {
        self.change(Need::Space, move |state| {
            state.redrive(messages, recipient, queue_capacity, now)
        })
    }

    fn dead_letter_count(&self) -> Op<usize> {
        self.read(|state| state.dead_letter_count())
    }

    /// Waits for the disk: after a restart the same dead letters are reported under the same number.
    fn claim_unreported(&self, now: Now) -> Op<Unreported> {
        self.change(Need::Access, move |state| state.claim_unreported(now))
    }

    fn mark_reported(&self, until: u64) -> Op<()> {
        self.change(Need::Access, move |state| state.mark_reported(until))
    }
}

impl EventStore for DiskStore {
    /// While the disk fails, nothing is recorded: the state is replaced by that on the disk anyway.
    fn record(&self, event: ProjectEvent, now: Now) {
        if self.shared.commits.check(Need::Access).is_err() {
            return;
        }
        let mut state = self.project.state();
        state.ledger.events.record(&event, now);
        state.flush_events();
        self.shared.commits.record(state.journal.changes());
    }

    /// Waits until the events are on the disk: a follower must find an event that it has seen after a restart too.
    fn events(&self, query: EventQuery) -> Op<EventPage> {
        let planned = self.change(Need::Access, move |state| {
            (state.journal.space(), state.ledger.events.plan(query))
        });
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let (space, plan) = planned.await?;
            shared.events.read(space, plan).await
        })
    }
}

impl QuestionStore for DiskStore {
    fn ask(&self, question: Arc<Question>, content: Arc<QuestionContent>, now: Now) -> Op<Asked> {
        self.change(Need::Space, move |state| state.ask(question, content, now))
    }

    fn update_question(
        &self,
        question: Arc<Question>,
        event: Option<ProjectEvent>,
        notice: Option<Append>,
        now: Now,
    ) -> Op<Updated> {
        self.change(Need::Space, move |state| {
            state.update_question(question, event, notice, now)
        })
    }

    fn questions(&self, ids: Vec<QuestionId>) -> Op<Vec<Option<Arc<Question>>>> {
        self.read(move |state| ids.iter().map(|id| state.questions.record(*id)).collect())
    }

    fn question_content(&self, id: QuestionId) -> Op<Option<Arc<QuestionContent>>> {
        self.read(move |state| state.questions.content(id))
    }

    fn open_questions(&self) -> Op<Vec<Arc<Question>>> {
        self.read(move |state| state.questions.open())
    }

    fn question_page(&self, before: Option<QuestionId>, limit: usize) -> Op<Vec<Arc<Question>>> {
        self.read(move |state| state.questions.page(before, limit))
    }

    fn remove_question(&self, id: QuestionId) -> Op<bool> {
        self.change(Need::Access, move |state| state.remove_question(id))
    }

    fn put_draft(&self, id: QuestionId, human: SessionName, text: String) -> Op<DraftPut> {
        self.change(Need::Space, move |state| state.put_draft(id, human, text))
    }

    fn draft(&self, id: QuestionId, human: SessionName) -> Op<String> {
        self.read(move |state| state.questions.draft(id, &human))
    }

    fn hold_yap(&self, yap: Arc<Yap>, now: Now) -> Op<YapHeld> {
        self.change(Need::Space, move |state| state.hold_yap(yap, now))
    }

    fn release_yaps(&self, delay: Duration, now: Now) -> Op<ReleasedYaps> {
        self.read(move |state| state.release_yaps(delay, now))
    }

    fn yaps(&self, after: Option<u64>, limit: usize) -> Op<Vec<Arc<ShownYap>>> {
        self.read(move |state| state.yaps.list(after, limit))
    }

    fn exchange_consoles(&self, own: Vec<ConsoleRecord>, _: Duration) -> Op<Vec<ConsoleRecord>> {
        Box::pin(std::future::ready(Ok(own)))
    }
}

impl TargetStore for DiskStore {
    fn claim_target(&self, target: TargetId, _: Duration) -> Op<Option<TargetCursor>> {
        self.read(move |state| Some(state.target(target)))
    }

    fn move_target(&self, target: TargetId, cursor: TargetCursor, _: Duration) -> Op<bool> {
        self.change(Need::Access, move |state| {
            state.move_target(target, cursor);
            true
        })
    }
}

impl BackendListStore for DiskStore {
    fn keep_backend_lists(&self, backend: BackendName, lists: Option<Arc<str>>) -> Op<()> {
        let need = if lists.is_some() { Need::Space } else { Need::Access };
        self.change(need, move |state| state.keep_backend_lists(backend, lists))
    }

    fn backend_lists(&self, backend: BackendName) -> Op<Option<Arc<str>>> {
        self.read(move |state| state.backend_lists.get(&backend).cloned())
    }

    fn retain_backend_lists(&self, backends: Vec<BackendName>) -> Op<()> {
        self.change(Need::Access, move |state| state.retain_backend_lists(&backends))
    }
}

impl AddedBackendStore for DiskStore {
    fn added_backends(&self) -> Op<Vec<(BackendName, Arc<str>)>> {
        self.read(|state| state.added_backends())
    }

    fn change_added_backend(
        &self,
        backend: BackendName,
        before: Option<Arc<str>>,
        table: Option<Arc<str>>,
    ) -> Op<TableChange> {
        let need = if table.is_some() { Need::Space } else { Need::Access };
        self.change(need, move |state| {
            state.change_added_backend(backend, before.as_deref(), table)
        })
    }
}
