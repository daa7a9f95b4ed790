//! The actor of a project: the parent of its registry, router and sessions, and the only writer of its directory.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Supervised};
use tokio::sync::oneshot;

use super::{
    Registered, Registration,
    heartbeats::Heartbeats,
    messages::{Child, ChildDown, CloseProject, NamedById, Register},
    resync::{KnownSeq, Resync},
};
use crate::{
    clock::now,
    directory::Directory,
    model::{
        BrokerError, DeadLetterReason, Holder, Owner, ProjectId, ProtocolName, SessionId, SessionRecord, SessionStatus,
    },
    ops::{OrderedOps, then},
    policy::{ProjectPolicy, ProjectSettings},
    registry::{RefreshCatalog, Registry},
    session::{
        AgentInfo, Attach, Connection, Detach, EndSession, KillSession, Member, Session, SessionEnded, SessionSettings,
        SessionShared,
    },
    storage::{Op, PutOutcome, PutSession, SessionKey, Store, StoreError},
    supervise::{self, ActorMetrics, Address, Envelope},
};

type Reply = oneshot::Sender<Result<Registered, BrokerError>>;

/// How often the project tells the store to expire messages and leases.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// How often a registration is tried again when another replica was faster.
const REGISTER_TRIES_MAX: usize = 8;

/// The actor of one project: the parent of its registry, its router and its sessions.
pub struct Project {
    pub(super) id: ProjectId,
    settings: ProjectSettings,
    address: Address<Project>,
    registry: Arc<OnceLock<Address<Registry>>>,
    pub(super) store: Arc<dyn Store>,
    pub(super) directory: Arc<Directory>,
    policy: Arc<ProjectPolicy>,
    metrics: Arc<ActorMetrics>,
    /// Sessions with a put under way: the store may not know them yet.
    pub(super) pending_puts: HashSet<SessionId>,
    /// Puts of this replica per session whose frames have not come back. Until they do, frames of other replicas
    /// about the session describe an older state. Empty where the store is not shared.
    pub(super) pending_own_frames: HashMap<SessionId, u32>,
    /// Reads of the whole roster that are under way.
    pub(super) refreshing: usize,
    /// Sessions that were put or have ended here during such a read, whose answer may be older.
    pub(super) changed_locally: HashSet<SessionId>,
    pub(super) heartbeats: Heartbeats,
    /// The effects of frames, in the order of the frames.
    pub(super) frame_effects: OrderedOps<Project>,
    pub(super) resync: Resync,
    pub(super) known_seq: KnownSeq,
    /// Frames were dropped because the mailbox was full, and a resync is on its way.
    pub(super) frames_dropped: Arc<AtomicBool>,
    /// The project is closed, and ends with its last session.
    closing: Option<oneshot::Sender<()>>,
    /// Reports that the store has lost data of this project.
    on_rollback: Box<dyn Fn()>,
    on_give_up: Option<Box<dyn FnOnce()>>,
}

/// What the actor of a project is started with.
pub(super) struct ProjectParts {
    pub id: ProjectId,
    pub settings: ProjectSettings,
    pub address: Address<Project>,
    /// Set when the registry has been started.
    pub registry: Arc<OnceLock<Address<Registry>>>,
    pub store: Arc<dyn Store>,
    pub directory: Arc<Directory>,
    pub policy: Arc<ProjectPolicy>,
    pub metrics: Arc<ActorMetrics>,
    pub known_seq: KnownSeq,
    pub frames_dropped: Arc<AtomicBool>,
    pub on_rollback: Box<dyn Fn()>,
    pub on_give_up: Box<dyn FnOnce()>,
}

impl Project {
    /// An actor without sessions; `started` loads them.
    pub(super) fn new(parts: ProjectParts) -> Self {
        let ProjectParts {
            id,
            settings,
            address,
            registry,
            store,
            directory,
            policy,
            metrics,
            known_seq,
            frames_dropped,
            on_rollback,
            on_give_up,
        } = parts;
        Self {
            id,
            settings,
            address,
            registry,
            store,
            directory,
            policy,
            metrics,
            pending_puts: HashSet::new(),
            pending_own_frames: HashMap::new(),
            refreshing: 0,
            changed_locally: HashSet::new(),
            heartbeats: Heartbeats::default(),
            frame_effects: OrderedOps::default(),
            resync: Resync::default(),
            known_seq,
            frames_dropped,
            closing: None,
            on_rollback,
            on_give_up: Some(on_give_up),
        }
    }

    /// `tries` is how often the registration may still be repeated when the store knows more than the directory.
    fn register(&mut self, registration: Registration, tries: usize, ctx: &mut Context<Self>, reply: Reply) {
        let again = self.store.is_shared().then(|| registration.clone());
        let Registration {
            name,
            capabilities,
            metadata,
            owner,
            current,
            connection,
        } = registration;
        let lives = |member: &Arc<Member>| !member.has_ended();
        let is_own = |member: &Arc<Member>| member.record.owner == owner;
        let current = current.and_then(|id| self.directory.by_id(id));
        // A session of another owner counts as missing.
        let current = current.filter(|member| lives(member) && is_own(member));
        let holder = name.as_ref().and_then(|name| self.directory.by_name(name.as_str()));
        let holder = holder.filter(lives);
        let orphan = holder.clone().filter(|holder| self.is_orphan(holder, &owner));
        let holder = holder.filter(|_| orphan.is_none());
        let is_nameless = |member: &Arc<Member>| member.record.name.is_none();
        // The session to register: the holder of the name; otherwise the caller's own session, if it can take the
        // name.
        let subject = match (holder, &current) {
            (Some(holder), _) => Some(holder),
            (None, Some(current)) if name.is_none() || is_nameless(current) => Some(Arc::clone(current)),
            (None, _) => None,
        };
        if let Some(refusal) = self.check_registration(subject.as_deref(), &owner) {
            drop(reply.send(Err(refusal)));
            return;
        }
        let resumed = subject.is_some();
        let is_holder = |member: &Arc<Member>| current.as_ref().is_some_and(|own| own.record.id == member.record.id);
        let renews = subject.as_ref().is_some_and(is_holder);
        let by_id = connection.is_none();
        let seen = subject.as_deref().map(|member| self.status_and_silence(member));
        let record = match &subject {
            Some(member) => SessionRecord {
                id: member.record.id,
                name: name.or_else(|| member.record.name.clone()),
                capabilities: capabilities.unwrap_or_else(|| member.record.capabilities.clone()),
                metadata: metadata.unwrap_or_else(|| member.record.metadata.clone()),
                connected_at_ms: member.record.connected_at_ms,
                owner,
                holder: next_holder(member, renews, by_id),
            },
            None => SessionRecord {
                id: SessionId::generate(),
                name,
                capabilities: capabilities.unwrap_or_default(),
                metadata: metadata.unwrap_or_default(),
                connected_at_ms: now().unix_ms,
                owner,
                holder: Holder { incarnation: 0, by_id },
            },
        };
        let seat = PutSession {
            must_exist: resumed,
            sessions_len_max: Some(self.policy.limits().sessions_max),
        };
        let left = current.filter(|current| current.record.id != record.id);
        let member = self.put_in_directory(record, subject.as_deref(), false);
        let op = self.put_session(member.record.clone(), seat, orphan);
        self.begin_put(member.record.id);
        then(op, self, ctx, move |project, stored, ctx| {
            project.finish_put(member.record.id, &stored, ctx);
            let answer = match stored {
                Ok(PutOutcome::Stored) => {
                    Self::leave_session(left, connection.as_deref());
                    member.shared.touch(now());
                    // Another replica may have registered the session again since.
                    let known = project.directory.by_id(member.record.id);
                    let incarnation = known.map(|known| known.record.holder.incarnation);
                    // A new session has an empty mailbox; if an existing one is full, the caller gets the error.
                    member
                        .address
                        .tell(Attach {
                            connection,
                            named: member.record.name.is_some(),
                            is_reattach: false,
                            keeps_leases: renews,
                            incarnation,
                        })
                        .map(|()| Registered {
                            member,
                            resumed,
                            was_active: seen.is_some_and(|(status, _)| status == SessionStatus::Active),
                            silence: seen.map(|(_, silence)| silence),
                        })
                }
                refused => {
                    match &subject {
                        Some(before) => project.directory.put(before),
                        None => drop(project.directory.remove(member.record.id)),
                    }
                    match (refused, again) {
                        (Ok(seated @ (PutOutcome::NameTaken | PutOutcome::Gone)), Some(again)) if tries > 0 => {
                            return project.retry_registration(seated, &member.record, again, tries - 1, ctx, reply);
                        }
                        (Ok(PutOutcome::TooManyBytes { limit }), _) => Err(records_too_large(limit)),
                        (Ok(PutOutcome::TooManySessions), _) => {
                            Err(too_many_sessions(seat.sessions_len_max.unwrap_or(0)))
                        }
                        (Ok(_), _) => Err(BrokerError::unavailable()),
                        (Err(error), _) => Err(error.into()),
                    }
                }
            };
            let _ = reply.send(answer);
        });
    }

    /// A put of a session begins.
    fn begin_put(&mut self, session: SessionId) {
        self.pending_puts.insert(session);
        self.note_local_change(session);
        if self.store.is_shared() {
            *self.pending_own_frames.entry(session).or_default() += 1;
        }
    }

    /// The store has answered a put. A refused put publishes no frame; after an error the store is read again,
    /// because it may have kept the session.
    fn finish_put(&mut self, session: SessionId, stored: &Result<PutOutcome, StoreError>, ctx: &mut Context<Self>) {
        self.pending_puts.remove(&session);
        match stored {
            Ok(PutOutcome::Stored) => {}
            Ok(_) => self.own_frame_arrived(session),
            Err(_) if self.store.is_shared() => {
                self.own_frame_arrived(session);
                self.request_resync(None, ctx);
            }
            Err(_) => {}
        }
    }

    /// The frame of a put of this replica has come back.
    pub(super) fn own_frame_arrived(&mut self, session: SessionId) {
        if let Entry::Occupied(mut unheard) = self.pending_own_frames.entry(session) {
            *unheard.get_mut() -= 1;
            if *unheard.get() == 0 {
                unheard.remove();
            }
        }
    }

    /// The status before the registration makes the session active, and the time since its last heartbeat.
    fn status_and_silence(&self, member: &Member) -> (SessionStatus, Duration) {
        let now = now();
        let silence = now.since(member.shared.last_seen_mono_ms());
        (member.status(self.settings.presence, now), silence)
    }

    /// Stores that the holder names the session by id. If the store fails, the next call tries again.
    fn note_named_by_id(&mut self, session: SessionId, ctx: &mut Context<Self>) {
        let known = self.directory.by_id(session);
        let known = known.filter(|member| !member.record.holder.by_id && !member.has_ended());
        let Some(before) = known.filter(|_| !self.pending_puts.contains(&session)) else {
            return;
        };
        let mut record = before.record.clone();
        record.holder.by_id = true;
        let seat = PutSession {
            must_exist: true,
            sessions_len_max: None,
        };
        let member = self.put_in_directory(record.clone(), Some(&before), false);
        self.begin_put(session);
        let op = self.store.put_session(record, seat);
        then(op, self, ctx, move |project, stored, ctx| {
            project.finish_put(session, &stored, ctx);
            if !matches!(stored, Ok(PutOutcome::Stored)) {
                tracing::warn!(%session, ?stored, "could not store that the session is named by its id");
                let is_current = project
                    .directory
                    .by_id(session)
                    .is_some_and(|known| Arc::ptr_eq(&known, &member));
                if is_current {
                    project.directory.put(&before);
                }
            }
        });
    }

    /// Stores a session, after ending the orphaned session that holds its name.
    fn put_session(&self, record: SessionRecord, seat: PutSession, orphan: Option<Arc<Member>>) -> Op<PutOutcome> {
        let Some(orphan) = orphan else {
            return self.store.put_session(record, seat);
        };
        let reason = DeadLetterReason::RecipientGone;
        let evicted = self.store.remove_session(orphan.record.id, reason, None, now());
        orphan.address.report(EndSession { reason });
        let store = Arc::clone(&self.store);
        Box::pin(async move {
            evicted.await?;
            store.put_session(record, seat).await
        })
    }

    /// Another replica was faster: reads what the store has, and repeats the registration.
    fn retry_registration(
        &mut self,
        seated: PutOutcome,
        wanted: &SessionRecord,
        registration: Registration,
        tries: usize,
        ctx: &mut Context<Self>,
        reply: Reply,
    ) {
        let name = wanted.name.clone().filter(|_| seated == PutOutcome::NameTaken);
        let Some(name) = name else {
            self.remove_session(wanted.id);
            return self.register(registration, tries, ctx, reply);
        };
        let op = self.store.find_session(SessionKey::Name(name));
        then(op, self, ctx, move |project, found, ctx| match found {
            Ok(found) => {
                if let Some(record) = found {
                    project.apply_session_record(record, None);
                }
                project.register(registration, tries, ctx, reply);
            }
            Err(error) => drop(reply.send(Err(error.into()))),
        });
    }

    /// The reason why this owner may not register this session, or (None) a new one.
    fn check_registration(&self, subject: Option<&Member>, owner: &Owner) -> Option<BrokerError> {
        let Some(subject) = subject else {
            let max = self.policy.limits().sessions_max;
            return (self.directory.len() >= max).then(|| too_many_sessions(max));
        };
        (subject.record.owner != *owner)
            .then(|| BrokerError::forbidden("the name belongs to a session of another key: choose another"))
    }

    /// Whether the last key of the holder's owner has ended. Such a session gives its name up: it ends, and its
    /// messages become dead letters, which can be redriven.
    fn is_orphan(&self, holder: &Member, owner: &Owner) -> bool {
        let held_by = &holder.record.owner;
        held_by != owner && self.policy.limits().record.is_orphaned(held_by, now().unix_ms)
    }

    /// Puts a session into the directory: a new actor, or the existing one with a new record. The name is taken from
    /// this moment on.
    pub(super) fn put_in_directory(
        &self,
        record: SessionRecord,
        before: Option<&Member>,
        resumes: bool,
    ) -> Arc<Member> {
        let member = match before {
            Some(before) => Member {
                record,
                shared: Arc::clone(&before.shared),
                address: before.address.clone(),
            },
            None => self.start_session(record, SessionShared::new(now()), resumes),
        };
        let member = Arc::new(member);
        self.directory.put(&member);
        member
    }

    /// Starts the actor of a session; `resumes` says that the store has the session already.
    pub(super) fn start_session(&self, record: SessionRecord, shared: Arc<SessionShared>, resumes: bool) -> Member {
        let id = record.id;
        *shared.agent() = AgentInfo {
            project: Some(self.policy.limits().record.id.clone()),
            name: record.name.clone(),
            ..AgentInfo::default()
        };
        let settings = SessionSettings {
            presence: self.settings.presence,
            retention: self.settings.session_retention,
            delivery_limit: self.settings.delivery_limit,
            named: record.name.is_some(),
            had_predecessor: resumes,
            incarnation: record.holder.incarnation,
        };
        let metrics = ActorMetrics::new("session", record.id.to_string());
        let (project, store) = (self.address.clone(), Arc::clone(&self.store));
        let ended = project.clone();
        let address = supervise::start(
            Arc::clone(&metrics),
            self.settings.restarts,
            move || {
                project.report(ChildDown {
                    child: Child::Session(id),
                })
            },
            |_| {
                Session::new(id, settings, Arc::clone(&shared), store, metrics, move |fact| {
                    ended.report(fact)
                })
            },
        );
        let member = Member {
            record,
            shared,
            address,
        };
        if self.closing.is_some() {
            end_session(&member);
        }
        member
    }

    /// Ends a closed project that has no sessions left.
    fn end_if_empty(&mut self, ctx: &mut Context<Self>) {
        if self.directory.is_empty()
            && let Some(done) = self.closing.take()
        {
            let _ = done.send(());
            self.metrics.mark_finished();
            ctx.stop();
        }
    }

    /// Leaves the session that a caller had before it registered another one. A session without a name ends with
    /// that, because nothing could find it again.
    fn leave_session(left: Option<Arc<Member>>, connection: Option<&dyn Connection>) {
        let Some(left) = left else { return };
        // The connection itself goes on, with the other session.
        let detached = connection.map_or(Ok(()), |connection| {
            left.address.tell(Detach {
                connection: connection.id(),
            })
        });
        let told = match left.record.name {
            None => detached.and_then(|()| {
                left.address.tell(EndSession {
                    reason: DeadLetterReason::RecipientGone,
                })
            }),
            Some(_) => detached,
        };
        if told.is_err() {
            tracing::warn!(session = %left.record.id, "the session that a caller left could not be notified");
        }
    }

    /// Opens the sessions that the store has and the directory lacks: all after a start, none after a panic.
    fn load_sessions(&mut self, ctx: &mut Context<Self>) {
        self.refresh_directory(ctx, |project, refreshed, ctx| {
            if let Err(error) = refreshed {
                tracing::warn!(project = %project.id, %error, "sessions cannot be loaded; retrying");
                ctx.run_later(Duration::from_secs(1), Self::load_sessions);
            }
        });
    }

    pub(super) fn refresh_protocols(&self, which: Option<(ProtocolName, semver::Version)>) -> Op<()> {
        let (done, is_learnt) = oneshot::channel();
        if let Some(registry) = self.registry.get() {
            registry.report(RefreshCatalog { key: which, done });
        }
        Box::pin(async {
            let is_unknown = |_| StoreError::Unreachable("the protocols cannot be read".to_owned());
            is_learnt.await.map_err(is_unknown)
        })
    }

    /// A tenth of `stale_after`, so that a session seen at another replica never looks stale here.
    fn heartbeat_exchange_interval(&self) -> Duration {
        let tenth = self.settings.presence.stale_after / 10;
        tenth.clamp(Duration::from_millis(50), Duration::from_secs(3))
    }

    fn sweep(&mut self, ctx: &mut Context<Self>) {
        if self.closing.is_some() {
            // Another replica may have ended the last session.
            return self.end_if_empty(ctx);
        }
        let op = self.store.sweep(now());
        then(op, self, ctx, |project, swept, _| match swept {
            Ok(changed) => {
                for (session, waiting) in changed {
                    if let Some(member) = project.directory.by_id(session) {
                        member.shared.set_waiting(waiting);
                    }
                }
            }
            Err(StoreError::RolledBack) => (project.on_rollback)(),
            Err(error) => tracing::warn!(project = %project.id, %error, "the store could not be swept"),
        });
    }
}

/// The holder after a registration. A caller that renews its own session stays the holder. Another caller gets a new
/// incarnation if either of the two names the session by id, unless the holder before has only a connection: closing
/// that tells it enough.
fn next_holder(member: &Member, renews: bool, by_id: bool) -> Holder {
    let before = &member.record;
    let is_told = !before.holder.by_id && member.shared.is_connected();
    let incarnation = if !renews && !is_told && (by_id || before.holder.by_id) {
        before.new_incarnation()
    } else {
        before.holder.incarnation
    };
    Holder {
        incarnation,
        by_id: by_id || (renews && before.holder.by_id),
    }
}

fn end_session(member: &Member) {
    let reason = DeadLetterReason::RecipientGone;
    member.address.report(EndSession { reason });
}

fn too_many_sessions(max: usize) -> BrokerError {
    BrokerError::forbidden(format!(
        "the project has its maximum of {max} sessions (max_sessions of the project, else sessions_max of the broker): one \
         must leave first"
    ))
}

fn records_too_large(limit: usize) -> BrokerError {
    BrokerError::forbidden(format!(
        "the capabilities and metadata of the project's sessions have reached their limit of {limit} bytes: \
         register with less, or have another session leave first"
    ))
}

impl Actor for Project {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        if self.store.is_shared() {
            ctx.run_interval(self.heartbeat_exchange_interval(), Self::exchange_heartbeats);
            self.request_resync(None, ctx);
        } else {
            self.load_sessions(ctx);
        }
        ctx.run_interval(SWEEP_INTERVAL, Self::sweep);
    }
}

impl Handler<Envelope<CloseProject>> for Project {
    type Result = ();

    /// Ends the sessions, discards their messages, and closes their connections. The registry and the router end with
    /// the last handle of the project.
    fn handle(&mut self, Envelope { message, .. }: Envelope<CloseProject>, ctx: &mut Context<Self>) {
        for member in self.directory.all() {
            end_session(&member);
        }
        self.closing = Some(message.done);
        self.end_if_empty(ctx);
    }
}

impl Handler<Envelope<KillSession>> for Project {
    type Result = ();

    fn handle(&mut self, _: Envelope<KillSession>, ctx: &mut Context<Self>) {
        self.metrics.mark_finished();
        ctx.stop();
    }
}

/// The directory and the addresses of the children stay valid across a restart.
impl Supervised for Project {
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.pending_puts.clear();
        self.pending_own_frames.clear();
        self.refreshing = 0;
        self.changed_locally.clear();
        self.frame_effects = OrderedOps::default();
        self.resync = Resync::default();
    }
}

impl Handler<Envelope<Register>> for Project {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Register>, ctx: &mut Context<Self>) {
        let Register { registration, reply } = message;
        if self.closing.is_some() {
            return drop(reply.send(Err(BrokerError::unavailable())));
        }
        self.register(registration, REGISTER_TRIES_MAX, ctx, reply);
    }
}

impl Handler<Envelope<NamedById>> for Project {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<NamedById>, ctx: &mut Context<Self>) {
        self.note_named_by_id(message.0, ctx);
    }
}

impl Handler<Envelope<SessionEnded>> for Project {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<SessionEnded>, ctx: &mut Context<Self>) {
        self.directory.remove(message.session);
        self.heartbeats.remove(message.session);
        self.note_local_change(message.session);
        self.end_if_empty(ctx);
    }
}

impl Handler<Envelope<ChildDown>> for Project {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<ChildDown>, _: &mut Context<Self>) {
        match message.child {
            // A new actor goes on from the inbox in the store. The connection was closed with the old one.
            Child::Session(id) => {
                if let Some(before) = self.directory.by_id(id) {
                    tracing::error!(session = %id, "session actor failed too often; restarting it from the store");
                    let member = self.start_session(before.record.clone(), Arc::clone(&before.shared), true);
                    self.directory.put(&Arc::new(member));
                }
            }
            child @ (Child::Registry | Child::Router) => {
                tracing::error!(project = %self.id, ?child, "child failed too often; restarting the project");
                if let Some(gave_up) = self.on_give_up.take() {
                    gave_up();
                }
            }
        }
    }
}

#[cfg(feature = "faults")]
impl Handler<Envelope<super::Panic>> for Project {
    type Result = ();

    fn handle(&mut self, _: Envelope<super::Panic>, _: &mut Context<Self>) {
        panic!("a fault was injected");
    }
}
