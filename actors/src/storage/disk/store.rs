//! The store of one project on the disk.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{Core, commits::Need, recorder::Recorder, settled};
use crate::{
    clock::Now,
    model::{
        DeadLetterReason, MessageId, ProjectId, ProtocolName, ProtocolRecord, RecipientStatus, SessionId, SessionRecord,
    },
    storage::{
        Acknowledge, Acknowledged, Append, Appended, Claim, Claimed, DeadLetterQuery, DeadLetters, Depth, Inserted,
        Leased, Op, Outcome, Redriven, Release, Released, Reserved, Roster, Seat, Seated, Store, StoreError, Usage,
        Wanted, memory::state::State,
    },
};

/// What is known of a project, shared by all who have opened it.
#[derive(Debug)]
pub struct Tenant(Mutex<State<Recorder>>);

impl Tenant {
    pub fn new(state: State<Recorder>) -> Self {
        Self(Mutex::new(state))
    }

    pub fn space(&self) -> u32 {
        self.state().journal.space()
    }

    /// What is in memory and not on the disk is forgotten; who has a session in hand keeps it.
    pub fn begin_anew(&self, mut fresh: State<Recorder>) {
        let mut state = self.state();
        fresh.adopt_claims(&state);
        *state = fresh;
    }

    /// Nothing of it is recorded after what `last` records. Returns its space, and what `last` does.
    ///
    /// # Errors
    /// Those of `last`; then it goes on.
    pub fn mute<T>(&self, last: impl FnOnce() -> Result<T, StoreError>) -> Result<(u32, T), StoreError> {
        let mut state = self.state();
        let done = last()?;
        state.journal.mute();
        Ok((state.journal.space(), done))
    }

    fn state(&self) -> MutexGuard<'_, State<Recorder>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub struct DiskStore {
    core: Arc<Core>,
    tenant: Arc<Tenant>,
}

impl DiskStore {
    pub fn new(core: Arc<Core>, tenant: Arc<Tenant>) -> Self {
        Self { core, tenant }
    }

    /// An operation that is answered when what it did, and what it saw, is on the disk.
    ///
    /// The lock of the project is held until its records have joined a group: they are in the order of the operations.
    fn change<T: Send + 'static>(
        &self,
        need: Need,
        operation: impl FnOnce(&mut State<Recorder>) -> T + Send + 'static,
    ) -> Op<T> {
        let (core, tenant) = (Arc::clone(&self.core), Arc::clone(&self.tenant));
        Box::pin(async move {
            let (answer, durable) = {
                let mut state = tenant.state();
                core.commits.admit(need)?;
                let answer = operation(&mut state);
                (answer, core.commits.submit(state.journal.take())?)
            };
            settled(durable).await?;
            Ok(answer)
        })
    }

    /// An operation that promises nothing. What it noticed, such as that a message has expired, is written when it is.
    fn look<T: Send + 'static>(&self, operation: impl FnOnce(&mut State<Recorder>) -> T + Send + 'static) -> Op<T> {
        let (core, tenant) = (Arc::clone(&self.core), Arc::clone(&self.tenant));
        Box::pin(async move {
            let mut state = tenant.state();
            let answer = operation(&mut state);
            core.commits.record(state.journal.untaken());
            Ok(answer)
        })
    }
}

impl Store for DiskStore {
    /// Who comes back may do so on a full disk: what it takes makes room.
    fn put_session(&self, record: SessionRecord, seat: Seat) -> Op<Seated> {
        let need = if seat.resumes { Need::Access } else { Need::Room };
        self.change(need, move |state| state.put_session(record, seat))
    }

    fn sessions(&self) -> Op<Roster> {
        self.look(|state| state.sessions())
    }

    fn find_session(&self, wanted: Wanted) -> Op<Option<SessionRecord>> {
        self.look(move |state| state.find_session(&wanted))
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
        self.change(Need::Room, move |state| state.insert_protocol(record, len_max))
    }

    fn protocols(&self) -> Op<Vec<Arc<ProtocolRecord>>> {
        self.look(|state| state.protocols())
    }

    fn protocol(&self, name: ProtocolName, version: semver::Version) -> Op<Option<Arc<ProtocolRecord>>> {
        self.look(move |state| state.protocol(name, version))
    }

    fn append(&self, batch: Vec<Append>, now: Now) -> Op<Vec<Appended>> {
        self.change(Need::Room, move |state| state.append(batch, now))
    }

    fn settle_outcome(&self, sender: SessionId, key: String, outcome: Outcome) -> Op<()> {
        self.change(Need::Access, move |state| state.settle_outcome(sender, key, outcome))
    }

    /// Waits for what it saw: an outcome is an acceptance.
    fn reserve_key(&self, sender: SessionId, key: String, target: ProjectId, now: Now) -> Op<Reserved> {
        self.change(Need::Room, move |state| state.reserve_key(sender, key, target, now))
    }

    fn keep_outcome(&self, sender: SessionId, key: String, outcome: Outcome) -> Op<()> {
        self.change(Need::Access, move |state| state.keep_outcome(sender, key, outcome))
    }

    fn free_key(&self, sender: SessionId, key: String) -> Op<()> {
        self.change(Need::Access, move |state| state.free_key(sender, key))
    }

    /// Waits for the count of the deliveries: who dies over a message must find it counted.
    fn lease(&self, session: SessionId, by: Option<Claim>, limit: usize, bytes_max: usize, now: Now) -> Op<Leased> {
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
        self.look(move |state| state.depth(session))
    }

    fn sweep(&self, now: Now) -> Op<Vec<(SessionId, usize)>> {
        self.change(Need::Access, move |state| state.sweep(now))
    }

    fn message_status(&self, message: MessageId, now: Now) -> Op<Option<Vec<RecipientStatus>>> {
        self.look(move |state| state.message_status(message, now))
    }

    fn dead_letters(&self, query: DeadLetterQuery) -> Op<DeadLetters> {
        self.look(move |state| state.dead_letters(&query))
    }

    fn redrive(
        &self,
        messages: Vec<MessageId>,
        recipient: Option<SessionId>,
        queue_capacity: usize,
        now: Now,
    ) -> Op<Redriven> {
        self.change(Need::Room, move |state| {
            state.redrive(messages, recipient, queue_capacity, now)
        })
    }

    fn dead_letter_count(&self) -> Op<usize> {
        self.look(|state| state.dead_letter_count())
    }

    fn usage(&self) -> Op<Usage> {
        self.look(|state| state.usage())
    }

    fn put_crossing(&self, message: MessageId, target: ProjectId) -> Op<()> {
        self.change(Need::Access, move |state| state.put_crossing(message, target))
    }

    fn crossing(&self, message: MessageId) -> Op<Option<ProjectId>> {
        self.look(move |state| state.crossing(message))
    }

    fn crossing_targets(&self) -> Op<Vec<ProjectId>> {
        self.look(|state| state.crossing_targets())
    }
}
