//! Keeps the view of this replica current: applies the frames of other replicas, and reads the store again after
//! missed frames (a resync).

use std::{
    collections::HashSet,
    future::ready,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use actix::{AsyncContext, Context, Handler};
use tokio::sync::oneshot;

use super::{
    actor::Project,
    heartbeats::{LastSeen, NewHeartbeat},
    messages::{ApplyFrame, RefreshDirectory, RequestResync},
    resync::NextStep,
};
use crate::{
    bridge::{Frame, StoreEvent},
    clock::now,
    metrics::METRICS,
    model::{SessionId, SessionRecord},
    ops::{OrderedOps, then},
    registry::Refresh,
    session::{Fence, Member, ResyncSession, SessionRemoved, SessionShared, Superseded},
    storage::{Op, Roster, StoreError},
    supervise::Envelope,
};

impl Project {
    /// Applies a frame; `own` says that this replica published it.
    fn apply_frame(&mut self, frame: ApplyFrame, ctx: &mut Context<Self>) {
        let ApplyFrame { frame, own, lenses } = frame;
        let Frame { event, number, seq, .. } = frame;
        let mut effect: Op<()> = Box::pin(ready(Ok(())));
        match event {
            StoreEvent::Session(record) => {
                if own {
                    self.confirm_put(&record);
                } else if !self.pending_own_frames.contains_key(&record.id) {
                    self.apply_session_record(*record, Some(seq));
                }
                self.note_roster_version(number, ctx);
            }
            StoreEvent::SessionRemoved(session) => {
                if !own && !self.pending_own_frames.contains_key(&session) {
                    self.remove_session(session);
                }
                self.note_roster_version(number, ctx);
            }
            StoreEvent::Waiting(sessions) if !own => self.nudge(sessions),
            StoreEvent::Claimed(session) if !own => {
                if let Some(member) = self.directory.by_id(session) {
                    member.address.report(Superseded { epoch: number });
                }
            }
            StoreEvent::Protocol { name, version } if !own => {
                effect = self.refresh_catalog(Refresh::Protocol(name, version));
            }
            // Its own as well: the answer of the store may have been lost.
            StoreEvent::Lenses(name) => effect = self.refresh_catalog(Refresh::Lenses(name)),
            // A change of this replica is known when it is stored.
            StoreEvent::Question(question) if !own => self.desk.read_again(question),
            StoreEvent::Yaps(_) if !own => self.desk.yaps_released(),
            StoreEvent::Backends if !own => self.added_backends_changed(),
            StoreEvent::Progress(message) if !own => {
                if let Some(store) = self.store.replicated() {
                    effect = store.notify_progress(Some(message));
                }
            }
            _ => {}
        }
        OrderedOps::then(|project: &mut Self| &mut project.frame_effects, effect, self, ctx, {
            move |project, done, ctx| {
                match done {
                    Ok(()) => project.resync.frame_applied(seq, &project.known_seq),
                    Err(_) => project.request_resync(None, ctx),
                }
                // Last: what may not be delivered before a resync finds that it has begun.
                drop(lenses);
            }
        });
    }

    /// A version gap means a missed or late frame; the resync makes up for it.
    fn note_roster_version(&mut self, version: u64, ctx: &mut Context<Self>) {
        if !self.directory.note_version(version) {
            self.request_resync(None, ctx);
        }
    }

    /// Wakes up those of these sessions that would act on it.
    fn nudge(&self, sessions: Vec<SessionId>) {
        for session in sessions {
            let Some(member) = self.directory.by_id(session) else {
                continue;
            };
            // The exact number is counted on demand.
            member.shared.mark_waiting_outdated();
            if !member.shared.is_claimed() {
                member.shared.add_waiting();
            }
            if member.shared.wants_wakeup() {
                self.directory.nudge(&member, None);
            }
        }
    }

    /// Requests a resync; `done` gets a message when the view is complete.
    pub(super) fn request_resync(&mut self, done: Option<oneshot::Sender<()>>, ctx: &mut Context<Self>) {
        if self.resync.begin(done, &self.known_seq) {
            self.start_resync(ctx);
        }
    }

    fn start_resync(&mut self, ctx: &mut Context<Self>) {
        METRICS.resyncs.increment();
        let Some(store) = self.store.replicated() else {
            return self.finish_resync(Ok(0), ctx);
        };
        let op = store.last_frame_seq();
        then(op, self, ctx, |project, seq, ctx| match seq {
            Ok(seq) => project.resync_from(seq, ctx),
            Err(error) => project.finish_resync(Err(error), ctx),
        });
    }

    /// Everything read from here on includes the frame of this sequence number.
    fn resync_from(&mut self, seq: u64, ctx: &mut Context<Self>) {
        // First, so that the last heartbeat of each session is known when its record arrives.
        self.exchange_heartbeats(ctx);
        let protocols = self.refresh_catalog(Refresh::All);
        let progress = self.store.replicated().map(|store| store.notify_progress(None));
        self.refresh_directory(ctx, move |project, refreshed, ctx| {
            let rest: Op<()> = Box::pin(async move {
                refreshed?;
                protocols.await?;
                match progress {
                    Some(progress) => progress.await,
                    None => Ok(()),
                }
            });
            then(rest, project, ctx, move |project, done, ctx| {
                project.finish_resync(done.map(|()| seq), ctx);
            });
        });
    }

    fn finish_resync(&mut self, resynced: Result<u64, StoreError>, ctx: &mut Context<Self>) {
        match &resynced {
            Ok(_) => {
                self.desk.reload();
                self.added_backends_changed();
                for member in self.directory.all() {
                    member.shared.mark_waiting_outdated();
                    member.address.report(ResyncSession);
                }
            }
            Err(error) => {
                METRICS.resyncs_failed.increment();
                tracing::warn!(project = %self.id, %error, "resync failed; retrying");
            }
        }
        match self.resync.finish(resynced.ok(), &self.known_seq) {
            NextStep::Nothing => {}
            NextStep::Resync => self.start_resync(ctx),
            NextStep::RetryLater => {
                ctx.run_later(Duration::from_secs(1), |project, ctx| {
                    if project.resync.take_retry() {
                        project.request_resync(None, ctx);
                    }
                });
            }
        }
    }

    /// Makes the directory equal to the store.
    pub(super) fn refresh_directory(
        &mut self,
        ctx: &mut Context<Self>,
        on_done: impl FnOnce(&mut Self, Result<(), StoreError>, &mut Context<Self>) + 'static,
    ) {
        let asked = self.directory.announced_version();
        let (sessions, kept) = (self.store.sessions(), self.store.kept_heartbeats(now()));
        let op: Op<_> = Box::pin(async move { Ok((sessions.await?, kept.await?)) });
        self.refreshing += 1;
        then(op, self, ctx, move |project, read, ctx| {
            project.refreshing = project.refreshing.saturating_sub(1);
            let refreshed = match read {
                Ok((roster, _)) if project.is_outdated(&roster, asked) => {
                    return project.refresh_directory(ctx, on_done);
                }
                Ok((roster, kept)) if !project.store.is_shared() => {
                    project.load_directory(roster, kept);
                    Ok(())
                }
                read => read.map(|(roster, _)| project.replace_directory(roster)),
            };
            if project.refreshing == 0 {
                project.changed_locally.clear();
            }
            on_done(project, refreshed, ctx);
        });
    }

    /// A session was put here, or has ended here.
    pub(super) fn note_local_change(&mut self, session: SessionId) {
        if self.refreshing > 0 {
            self.changed_locally.insert(session);
        }
    }

    /// Whether frames announced more during the read than it returned. A store that returns less than was announced
    /// before the read has lost data, and its answer holds.
    fn is_outdated(&self, roster: &Roster, asked: u64) -> bool {
        roster.version < self.directory.announced_version() && roster.version >= asked
    }

    fn replace_directory(&mut self, Roster { version, sessions }: Roster) {
        let known = self.directory.all();
        let known = known.iter().map(|member| member.record.id);
        let is_known_better = |id: &SessionId| self.pending_puts.contains(*id) || self.changed_locally.contains(id);
        let mut gone: HashSet<_> = known.filter(|id| !is_known_better(id)).collect();
        let sessions: Vec<_> = sessions
            .into_iter()
            .filter(|record| !is_known_better(&record.id))
            .collect();
        for record in sessions {
            gone.remove(&record.id);
            self.apply_session_record(record, None);
        }
        for session in gone {
            self.remove_session(session);
        }
        self.directory.set_version(version);
        // The frames of these puts may have been missed.
        self.pending_own_frames
            .retain(|session, _| self.pending_puts.contains(*session));
    }

    /// Applies the record of a session from the store or from a frame. A frame also tells that the session has just
    /// registered, which counts as a heartbeat.
    pub(super) fn apply_session_record(&mut self, record: SessionRecord, frame: Option<u64>) {
        let now = now();
        let is_heartbeat = frame.is_some_and(|frame| self.heartbeats.apply_put_frame(record.id, frame, now));
        match self.directory.by_id(record.id) {
            Some(before) if before.record == record => {
                if is_heartbeat {
                    before.shared.touch(now);
                }
            }
            Some(before) => {
                let member = self.put_in_directory(record, Some(&before));
                let incarnation = member.record.holder.incarnation;
                if incarnation != before.record.holder.incarnation {
                    member.address.report(Fence { incarnation });
                }
                if is_heartbeat {
                    member.shared.touch(now);
                }
            }
            None => {
                let seen = self.heartbeats.last_seen(record.id);
                let shared = match seen {
                    _ if is_heartbeat => SessionShared::new(now),
                    Some(seen) => SessionShared::last_seen_elsewhere(seen.mono_ms, seen.left, now),
                    None => SessionShared::last_seen_elsewhere(0, false, now),
                };
                let member = Arc::new(self.start_session(record, shared, false));
                self.directory.put(&member);
            }
        }
    }

    /// The store no longer has this session.
    pub(super) fn remove_session(&mut self, session: SessionId) {
        self.heartbeats.remove(session);
        self.desk.asker_gone(session);
        if let Some(member) = self.directory.remove(session) {
            member.address.report(SessionRemoved);
        }
    }

    /// Tells other replicas of the heartbeats seen here, and applies theirs.
    pub(super) fn exchange_heartbeats(&mut self, ctx: &mut Context<Self>) {
        let asked = now();
        let seen = |member: &Member| LastSeen {
            mono_ms: member.shared.last_seen_mono_ms(),
            left: member.shared.has_left(),
            connected: false,
        };
        let mut own = Vec::new();
        for member in self.directory.all() {
            let (id, seen) = (member.record.id, seen(&member));
            if self.heartbeats.record_local(id, seen) {
                own.push(seen.heartbeat(id, asked));
                if !member.shared.is_claimed() {
                    self.count_waiting(member, ctx);
                }
            }
        }
        let told: Vec<_> = own.iter().map(|heartbeat| heartbeat.session).collect();
        let Some(store) = self.store.replicated() else { return };
        let op = store.exchange_heartbeats(own);
        then(op, self, ctx, move |project, received, _| match received {
            Ok(exchanged) => {
                let now = now();
                for (session, new) in project.heartbeats.apply_exchange(exchanged, asked, now) {
                    let NewHeartbeat { seen, replaces_mono_ms } = new;
                    if let Some(member) = project.directory.by_id(session) {
                        let shared = &member.shared;
                        shared.apply_remote_heartbeat(seen.mono_ms, replaces_mono_ms, seen.left, now);
                    }
                }
            }
            Err(error) => {
                tracing::debug!(project = %project.id, %error, "heartbeats could not be exchanged");
                project.heartbeats.retract(&told);
            }
        });
    }

    /// Counts the waiting messages of a session that is seen here but claimed elsewhere or not at all.
    fn count_waiting(&mut self, member: Arc<Member>, ctx: &mut Context<Self>) {
        let begun = member.shared.begin_recount();
        let op = self.store.depth(member.record.id);
        then(op, self, ctx, move |_, depth, _| {
            if let Ok(depth) = depth {
                member.shared.finish_recount(begun, depth.waiting);
            }
        });
    }
}

impl Handler<Envelope<ApplyFrame>> for Project {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<ApplyFrame>, ctx: &mut Context<Self>) {
        self.apply_frame(message, ctx);
    }
}

impl Handler<Envelope<RequestResync>> for Project {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<RequestResync>, ctx: &mut Context<Self>) {
        // A frame that is dropped before this line was published before the resync reads the store.
        self.view.frames_dropped.store(false, Ordering::Release);
        self.request_resync(message.done, ctx);
    }
}

impl Handler<Envelope<RefreshDirectory>> for Project {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<RefreshDirectory>, ctx: &mut Context<Self>) {
        self.refresh_directory(ctx, |_, refreshed, _| {
            if refreshed.is_ok() {
                let _ = message.done.send(());
            }
        });
    }
}
