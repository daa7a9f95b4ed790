//! The store of one project on the disk.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{Core, commits::Need, recorder::Recorder, wait_durable};
use crate::{
    clock::Now,
    model::{
        DeadLetterReason, MessageId, ProjectId, ProtocolName, ProtocolRecord, RecipientStatus, SessionId, SessionRecord,
    },
    storage::{
        Acknowledge, Acknowledged, Append, Appended, Claim, Claimed, DeadLetterPage, DeadLetterQuery, Depth, Inserted,
        KeyReservation, Lease, Op, PutOutcome, PutSession, Redriven, Release, Released, Roster, SendResult, SessionKey,
        Store, StoreError, Usage, memory::state::State,
    },
};

/// What is known of a project, shared by all who have opened it.
#[derive(Debug)]
pub struct DiskProject(Mutex<State<Recorder>>);

impl DiskProject {
    pub fn new(state: State<Recorder>) -> Self {
        Self(Mutex::new(state))
    }

    pub fn space(&self) -> u32 {
        self.state().journal.space()
    }

    /// What is in memory and not on the disk is forgotten; who has a session in hand keeps it.
    pub fn replace_state(&self, mut fresh: State<Recorder>) {
        let mut state = self.state();
        fresh.adopt_claims(&state);
        *state = fresh;
    }

    /// Nothing of it is recorded after what `last` records. Returns its space, and what `last` does.
    ///
    /// # Errors
    /// Those of `last`; then it goes on.
    pub fn close_with<T>(&self, last: impl FnOnce() -> Result<T, StoreError>) -> Result<(u32, T), StoreError> {
        let mut state = self.state();
        let done = last()?;
        state.journal.close();
        Ok((state.journal.space(), done))
    }

    fn state(&self) -> MutexGuard<'_, State<Recorder>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub struct DiskStore {
    core: Arc<Core>,
    project: Arc<DiskProject>,
}

impl DiskStore {
    pub fn new(core: Arc<Core>, tenant: Arc<DiskProject>) -> Self {
        Self { core, project: tenant }
    }

    /// An operation that is answered when what it did, and what it saw, is on the disk.
    ///
    /// The lock of the project is held until its records have joined a group: they are in the order of the operations.
    fn change<T: Send + 'static>(
        &self,
        need: Need,
        operation: impl FnOnce(&mut State<Recorder>) -> T + Send + 'static,
    ) -> Op<T> {
        let (core, tenant) = (Arc::clone(&self.core), Arc::clone(&self.project));
        Box::pin(async move {
            let (answer, durable) = {
                let mut state = tenant.state();
                core.commits.check(need)?;
                let answer = operation(&mut state);
                (answer, core.commits.submit(state.journal.take())?)
            };
            wait_durable(durable).await?;
            Ok(answer)
        })
    }

    /// An operation that promises nothing. What it noticed, such as that a message has expired, is written when it is.
    fn read<T: Send + 'static>(&self, operation: impl FnOnce(&mut State<Recorder>) -> T + Send + 'static) -> Op<T> {
        let (core, tenant) = (Arc::clone(&self.core), Arc::clone(&self.project));
        Box::pin(async move {
            let mut state = tenant.state();
            let answer = operation(&mut state);
            core.commits.record(state.journal.pending());
            Ok(answer)
        })
    }
}

impl Store for DiskStore {
    /// Who comes back may do so on a full disk: what it takes makes room.
    fn put_session(&self, record: SessionRecord, seat: PutSession) -> Op<PutOutcome> {
        let need = if seat.must_exist { Need::Access } else { Need::Space };
        self.change(need, move |state| state.put_session(record, seat))
    }

    fn sessions(&self) -> Op<Roster> {
        self.read(|state| state.sessions())
    }

    fn find_session(&self, wanted: SessionKey) -> Op<Option<SessionRecord>> {
        self.read(move |state| state.find_session(&wanted))
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

    fn insert_protocol(&self, record: Arc<ProtocolRecord>, len_max: Option<usize>) -> Op<Inserted> {
        self.change(Need::Space, move |state| state.insert_protocol(record, len_max))
    }

    fn protocols(&self) -> Op<Vec<Arc<ProtocolRecord>>> {
        self.read(|state| state.protocols())
    }

    fn protocol(&self, name: ProtocolName, version: semver::Version) -> Op<Option<Arc<ProtocolRecord>>> {
        self.read(move |state| state.protocol(name, version))
    }

    fn append(&self, batch: Vec<Append>, now: Now) -> Op<Vec<Appended>> {
        self.change(Need::Space, move |state| state.append(batch, now))
    }

    fn update_send_result(&self, sender: SessionId, key: String, outcome: SendResult) -> Op<()> {
        self.change(Need::Access, move |state| {
            state.update_send_result(sender, key, outcome)
        })
    }

    /// Waits for what it saw: an outcome is an acceptance.
    fn reserve_key(&self, sender: SessionId, key: String, target: ProjectId, now: Now) -> Op<KeyReservation> {
        self.change(Need::Space, move |state| state.reserve_key(sender, key, target, now))
    }

    fn complete_reservation(&self, sender: SessionId, key: String, outcome: SendResult) -> Op<()> {
        self.change(Need::Access, move |state| {
            state.complete_reservation(sender, key, outcome)
        })
    }

    fn cancel_reservation(&self, sender: SessionId, key: String) -> Op<()> {
        self.change(Need::Access, move |state| state.cancel_reservation(sender, key))
    }

    /// Waits for the count of the deliveries: who dies over a message must find it counted.
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

    fn sweep(&self, now: Now) -> Op<Vec<(SessionId, usize)>> {
        self.change(Need::Access, move |state| state.sweep(now))
    }

    fn message_status(&self, message: MessageId, now: Now) -> Op<Option<Vec<RecipientStatus>>> {
        self.read(move |state| state.message_status(message, now))
    }

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

    fn usage(&self) -> Op<Usage> {
        self.read(|state| state.usage())
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
