//! Registers sessions: plans a registration, stores the record, and then applies the plan to the directory. While the
//! store has not answered, its name and its session are reserved: registrations that need one of them wait.

use std::{
    collections::{VecDeque, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use actix::{Context, Handler};
use futures_util::future::join_all;

use super::{
    actor::{Project, end_session},
    messages::{Child, ChildDown, ForgetSession, Register},
    registration::{
        Attempt, Candidate, Facts, Plan, Registered, Registration, address_taken, records_too_large, too_many_sessions,
    },
};
use crate::{
    clock::now,
    directory::Directory,
    model::{
        BrokerError, DeadLetterReason, ProjectEvent, ProjectRecord, SessionChange, SessionId, SessionName,
        SessionRecord, SessionStatus, id_of_sender,
    },
    ops::then,
    session::{
        AgentInfo, Attach, Connection, Detach, EndSession, Member, Session, SessionSettings, SessionShared, Speaking,
    },
    storage::{Depth, LastSign, Op, PutOutcome, PutSession, SessionKey, StoreError},
    supervise::{self, ActorMetrics, Envelope},
};

impl Project {
    /// Registers a session, or has the registration wait for a reservation. Returns the put that it has begun or waits
    /// for; None if it is answered.
    fn register(&mut self, attempt: Attempt, ctx: &mut Context<Self>) -> Option<SessionId> {
        if self.closing.is_some() {
            attempt.answer(Err(BrokerError::unavailable()));
            return None;
        }
        let registration = &attempt.registration;
        let is_alive = |member: &Arc<Member>| !member.has_ended();
        let current = registration
            .current
            .and_then(|id| self.directory.by_id(id))
            .filter(is_alive);
        let name = registration.name.as_ref();
        let find = if registration.is_name_automatic() {
            Directory::by_name_or_alias
        } else {
            Directory::by_name
        };
        let holder = name.and_then(|name| find(&self.directory, name.as_str()));
        let holder = holder.filter(is_alive);
        let sessions = [&current, &holder].into_iter().flatten().map(|member| member.record.id);
        let names = name.into_iter().chain(registration.aliases.iter().flatten());
        if let Some(put) = self.pending_puts.blocking(names, sessions) {
            self.pending_puts.wait(put, VecDeque::from([attempt]));
            return Some(put);
        }
        if let Some(holder) = holder
            .as_ref()
            .filter(|holder| registration.leaves_alone(&holder.record))
        {
            let (status, silence) = self.status_and_silence(holder);
            let registered = Registered {
                member: Arc::clone(holder),
                resumed: true,
                former_name: None,
                was_active: status == SessionStatus::Active,
                silence: Some(silence),
            };
            attempt.answer(Ok(registered));
            return None;
        }
        let idle_holder = holder.as_ref().filter(|holder| !holder.shared.is_connected());
        let merged = current
            .as_ref()
            .filter(|own| registration.may_merge(&own.record, idle_holder.map(|holder| &holder.record)));
        if let Some(own) = merged.filter(|_| attempt.leaves_empty.is_none()) {
            self.register_with_depth(own.record.id, attempt, ctx);
            return None;
        }
        let leaves_empty = attempt.leaves_empty == Some(true);
        match self.plan(registration, current.as_deref(), holder.as_deref(), leaves_empty) {
            Ok(plan) => {
                let session = plan.record.id;
                self.store_plan(plan, attempt, ctx);
                self.pending_puts.contains(session).then_some(session)
            }
            Err(refusal) => {
                attempt.answer(Err(refusal));
                None
            }
        }
    }

    /// Repeats a registration once it is known whether something is in the inbox that the caller would leave, or asked in
    /// its name.
    fn register_with_depth(&mut self, current: SessionId, attempt: Attempt, ctx: &mut Context<Self>) {
        let op = self.store.depth(current);
        then(op, self, ctx, move |project, depth, ctx| {
            let is_empty = depth.is_ok_and(|depth| depth == Depth::default());
            let asks = !project.desk.questions_of(current).is_empty();
            project.register(attempt.leaving(is_empty && !asks), ctx);
        });
    }

    /// Repeats registrations that waited, in the order of their arrival. When one of them has to wait for the store, the
    /// rest waits for the same answer.
    fn register_waiting(&mut self, mut waiting: VecDeque<Attempt>, ctx: &mut Context<Self>) {
        while let Some(attempt) = waiting.pop_front() {
            if let Some(put) = self.register(attempt, ctx) {
                waiting = self.pending_puts.wait(put, waiting);
            }
        }
    }

    fn plan(
        &self,
        registration: &Registration,
        current: Option<&Member>,
        holder: Option<&Member>,
        leaves_empty: bool,
    ) -> Result<Plan, BrokerError> {
        let (limits, now_ms) = (self.policy.limits(), now().unix_ms);
        let mut plan = registration.plan(&Facts {
            current: current.map(|member| candidate(member, &limits.record, now_ms)),
            holder: holder.map(|member| candidate(member, &limits.record, now_ms)),
            leaves_empty,
            sessions_len: self.directory.len() + self.pending_puts.new_len(),
            sessions_max: limits.sessions_max,
            now_ms,
        })?;
        if let (true, Some(name)) = (plan.record.holder.only_sends && !plan.resumes, &plan.record.name) {
            let id = id_of_sender(&self.id, &plan.record.owner, name);
            if self.directory.by_id(id).is_none() {
                plan.record.id = id;
            }
        }
        match self.holder_of_names(&plan) {
            Some((name, holder)) => Err(address_taken(name, &holder.record)),
            None => Ok(plan),
        }
    }

    /// The first name of the record that belongs to another session, which stays, and that session.
    fn holder_of_names<'a>(&self, plan: &'a Plan) -> Option<(&'a SessionName, Arc<Member>)> {
        let is_other = |member: &Arc<Member>| {
            let id = member.record.id;
            let ends = Some(id) == plan.evicts || Some(id) == plan.leaves.filter(|_| plan.merges);
            id != plan.record.id && !ends && !member.has_ended()
        };
        let mut names = plan.record.names();
        names.find_map(|name| Some((name, self.directory.by_name_or_alias(name.as_str()).filter(is_other)?)))
    }

    /// Stores the record of a plan. The answer of the store decides what becomes of the registration.
    fn store_plan(&mut self, plan: Plan, attempt: Attempt, ctx: &mut Context<Self>) {
        let before = self.directory.by_id(plan.record.id);
        let seen = before.map(|member| self.status_and_silence(&member));
        let sessions_max = self.policy.limits().sessions_max;
        let put = PutSession {
            must_exist: plan.resumes,
            sessions_len_max: Some(sessions_max),
            sign: Some(LastSign {
                at_ms: now().unix_ms,
                has_left: attempt.registration.is_absent,
                is_connected: attempt.registration.connection.is_some(),
            }),
        };
        let op = self.put_session(&plan, put);
        self.begin_put(&plan.record, plan.resumes);
        then(op, self, ctx, move |project, stored, ctx| {
            let (member, mut waiting) = project.finish_put(plan.record.id, &stored, ctx);
            match stored {
                Ok(PutOutcome::Stored) => {
                    project.record_registration(&plan);
                    let registered = member.map(|member| project.attach(member, &plan, seen, &attempt.registration));
                    attempt.answer(registered.unwrap_or(Err(BrokerError::unavailable())));
                }
                Ok(PutOutcome::NameTaken) if attempt.tries > 0 && project.store.is_shared() => {
                    project.retry_with_holder(&plan, attempt, ctx);
                }
                Ok(PutOutcome::Gone) if attempt.tries > 0 && project.store.is_shared() => {
                    project.remove_session(plan.record.id);
                    project.register(attempt.repeated(), ctx);
                }
                Ok(PutOutcome::TooManyBytes { limit }) => attempt.answer(Err(records_too_large(limit))),
                Ok(PutOutcome::TooManySessions) => attempt.answer(Err(too_many_sessions(sessions_max))),
                Ok(PutOutcome::NameTaken | PutOutcome::Gone) => attempt.answer(Err(BrokerError::unavailable())),
                Err(error) => {
                    // A store that fails is not asked again for each registration that waits.
                    let error = BrokerError::from(error);
                    for failed in waiting.drain(..).chain([attempt]) {
                        failed.answer(Err(error.clone()));
                    }
                }
            }
            project.register_waiting(waiting, ctx);
        });
    }

    fn record_registration(&self, plan: &Plan) {
        let event = ProjectEvent::Session {
            session: plan.record.id,
            name: plan.record.name.clone(),
            change: if plan.resumes {
                SessionChange::Resumed
            } else {
                SessionChange::Registered
            },
        };
        self.store.record(event, now());
    }

    /// Gives a stored session to its caller: its connection is attached, and the session it had before is left.
    fn attach(
        &self,
        known: Arc<Member>,
        plan: &Plan,
        seen: Option<(SessionStatus, Duration)>,
        registration: &Registration,
    ) -> Result<Registered, BrokerError> {
        let connection = registration.connection.clone();
        let left = plan.leaves.and_then(|id| self.directory.by_id(id));
        leave_session(left, connection.as_deref(), plan.merges);
        if registration.is_absent {
            known.shared.leave(now());
        } else {
            known.shared.touch(now());
        }
        known.shared.agent().name.clone_from(&plan.record.name);
        // Another replica may have registered the session again since.
        let incarnation = Some(known.record.holder.incarnation);
        let member = if known.record == plan.record {
            known
        } else {
            Arc::new(Member {
                record: plan.record.clone(),
                ..Member::clone(&known)
            })
        };
        // A new session has an empty mailbox; if an existing one is full, the caller gets the error.
        member.address.tell(Attach {
            connection,
            named: member.record.is_durable(),
            is_reattach: false,
            keeps_leases: plan.renews,
            incarnation,
            wake: Some(member.record.wake),
        })?;
        Ok(Registered {
            member,
            resumed: plan.resumes,
            former_name: plan.renames.clone(),
            was_active: seen.is_some_and(|(status, _)| status == SessionStatus::Active),
            silence: seen.map(|(_, silence)| silence),
        })
    }

    /// Another replica has registered a name or an alias first: reads the sessions that have them from the store, and
    /// repeats the registration.
    fn retry_with_holder(&mut self, plan: &Plan, attempt: Attempt, ctx: &mut Context<Self>) {
        let own = plan.record.id;
        let names: Vec<_> = plan.record.names().cloned().collect();
        let finds = names.iter().cloned().map(SessionKey::Name);
        let finds: Vec<_> = finds.map(|key| self.store.find_session(key)).collect();
        let op: Op<Vec<_>> = Box::pin(async move { join_all(finds).await.into_iter().collect() });
        then(op, self, ctx, move |project, found, ctx| match found {
            Ok(found) => {
                let holders = names.iter().zip(found).filter_map(|(name, found)| Some((name, found?)));
                for (name, record) in holders.filter(|(_, record)| record.id != own) {
                    // A build without aliases has written the record: its session still has the alias.
                    if !record.names().any(|known| known == name) {
                        return attempt.answer(Err(address_taken(name, &record)));
                    }
                    project.apply_session_record(record, None);
                }
                project.register(attempt.repeated(), ctx);
            }
            Err(error) => attempt.answer(Err(error.into())),
        });
    }

    /// Reserves the name and the session of a record until the store has answered.
    fn begin_put(&mut self, record: &SessionRecord, resumes: bool) {
        self.note_local_change(record.id);
        if self.store.is_shared() {
            *self.pending_own_frames.entry(record.id).or_default() += 1;
        }
        self.pending_puts.begin(record.clone(), resumes);
    }

    /// The store has answered a put. Returns the session as the directory has it, if the store has taken the record and
    /// the session has not ended since; and the registrations that waited for the answer.
    ///
    /// A refused put publishes no frame. After an error the store is read again, because it may have kept the record.
    fn finish_put(
        &mut self,
        session: SessionId,
        stored: &Result<PutOutcome, StoreError>,
        ctx: &mut Context<Self>,
    ) -> (Option<Arc<Member>>, VecDeque<Attempt>) {
        let Some(put) = self.pending_puts.finish(session) else {
            // The actor has panicked since.
            return (self.directory.by_id(session), VecDeque::new());
        };
        let member = match stored {
            Ok(PutOutcome::Stored) if put.is_applied => self.directory.by_id(session),
            Ok(PutOutcome::Stored) => self.apply_put(put.record, put.resumes),
            Ok(_) => {
                self.own_frame_arrived(session);
                None
            }
            Err(_) if self.store.is_shared() => {
                self.own_frame_arrived(session);
                self.request_resync(None, ctx);
                None
            }
            Err(_) => None,
        };
        (member, put.waiting)
    }

    /// The frame of a put of this replica has come back: the store has the record, whether it has answered or not.
    pub(super) fn confirm_put(&mut self, record: &SessionRecord) {
        self.own_frame_arrived(record.id);
        if let Some(resumes) = self.pending_puts.confirm(record) {
            self.apply_put(record.clone(), resumes);
        }
    }

    /// Puts a record that the store has taken into the directory. A session that has ended meanwhile stays away.
    fn apply_put(&mut self, record: SessionRecord, resumes: bool) -> Option<Arc<Member>> {
        let before = self.directory.by_id(record.id);
        let is_known = before.is_some() || !resumes;
        is_known.then(|| self.put_in_directory(record, before.as_deref()))
    }

    fn own_frame_arrived(&mut self, session: SessionId) {
        if let Entry::Occupied(mut pending) = self.pending_own_frames.entry(session) {
            *pending.get_mut() -= 1;
            if *pending.get() == 0 {
                pending.remove();
            }
        }
    }

    /// The status before the registration makes the session active, and the time since its last heartbeat.
    fn status_and_silence(&self, member: &Member) -> (SessionStatus, Duration) {
        let now = now();
        let silence = now.since(member.shared.last_seen_mono_ms());
        (member.status(self.settings.presence, now), silence)
    }

    /// Stores a session, after ending the orphaned session that holds its name, and the one that is merged into it.
    fn put_session(&mut self, plan: &Plan, put: PutSession) -> Op<PutOutcome> {
        let (record, reason) = (plan.record.clone(), DeadLetterReason::RecipientGone);
        let orphan = plan.evicts.and_then(|id| self.directory.by_id(id));
        let merged = plan.leaves.filter(|_| plan.merges);
        if orphan.is_none() && merged.is_none() {
            return self.store.put_session(record, put);
        }
        let ended = orphan.iter().map(|orphan| orphan.record.id).chain(merged);
        let ended: Vec<_> = ended
            .map(|id| self.store.remove_session(id, reason, None, now()))
            .collect();
        if let Some(orphan) = orphan {
            orphan.address.report(EndSession { reason });
        }
        if let Some(merged) = merged {
            self.note_local_change(merged);
        }
        let store = Arc::clone(&self.store);
        Box::pin(async move {
            for ended in ended {
                ended.await?;
            }
            store.put_session(record, put).await
        })
    }

    /// Puts a session into the directory: a new actor, or the existing one with a new record.
    pub(super) fn put_in_directory(&self, record: SessionRecord, before: Option<&Member>) -> Arc<Member> {
        let member = match before {
            Some(before) => Member {
                record,
                shared: Arc::clone(&before.shared),
                address: before.address.clone(),
            },
            None => self.start_session(record, SessionShared::new(now()), false),
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
            id,
            presence: self.settings.presence,
            retention: self.settings.session_retention,
            delivery_limit: self.settings.delivery_limit,
            named: record.is_durable(),
            had_predecessor: resumes,
            incarnation: record.holder.incarnation,
            wake: record.wake,
        };
        let metrics = ActorMetrics::new("session", record.id.to_string());
        let (project, store) = (self.address.clone(), Arc::clone(&self.store));
        let counters = Arc::clone(&self.counters);
        let ended = project.clone();
        let speaking = Speaking::new(id, Arc::clone(&self.view) as _);
        let address = supervise::start(
            Arc::clone(&metrics),
            self.settings.restarts,
            move || {
                project.report(ChildDown {
                    child: Child::Session(id),
                })
            },
            |_| {
                Session::new(
                    settings,
                    Arc::clone(&shared),
                    store,
                    speaking,
                    metrics,
                    counters,
                    move |fact| ended.report(fact),
                )
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
}

fn candidate<'a>(member: &'a Member, project: &ProjectRecord, now_ms: u64) -> Candidate<'a> {
    Candidate {
        record: &member.record,
        is_orphaned: project.is_orphaned(&member.record.owner, now_ms),
    }
}

/// Leaves the session that a caller had before it registered another one. A session without a name ends with
/// that, because nothing could find it again, and so does one that is merged into the other.
fn leave_session(left: Option<Arc<Member>>, connection: Option<&dyn Connection>, merges: bool) {
    let Some(left) = left else { return };
    // The connection itself stays open, with the other session.
    let detached = connection.map_or(Ok(()), |connection| {
        left.address.tell(Detach {
            connection: connection.id(),
        })
    });
    let left_told = if merges || left.record.name.is_none() {
        detached.and_then(|()| {
            left.address.tell(EndSession {
                reason: DeadLetterReason::RecipientGone,
            })
        })
    } else {
        detached
    };
    if left_told.is_err() {
        tracing::warn!(session = %left.record.id, "the session that a caller left could not be notified");
    }
}

impl Handler<Envelope<Register>> for Project {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Register>, ctx: &mut Context<Self>) {
        self.register(Attempt::new(message.registration, message.reply), ctx);
    }
}

impl Handler<Envelope<ForgetSession>> for Project {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<ForgetSession>, ctx: &mut Context<Self>) {
        let ForgetSession { session, reply } = message;
        let op = self
            .store
            .remove_session(session, DeadLetterReason::RecipientGone, None, now());
        then(op, self, ctx, move |project, removed, ctx| {
            if removed.is_ok() {
                project.note_local_change(session);
                project.remove_session(session);
                project.end_if_empty(ctx);
            }
            // A caller that has gone wants no answer.
            let _ = reply.send(removed.map(|dead| dead.unwrap_or(0)).map_err(BrokerError::from));
        });
    }
}
