//! What other replicas do in this project, as its actor hears of it.

use std::{collections::HashSet, future::ready, sync::Arc, time::Duration};

use actix::{AsyncContext, Context, Handler};
use tokio::sync::oneshot;

use super::{
    actor::Project,
    looks::Next,
    messages::{CatchUp, Hear, Refresh},
    presence::{Heard, Seen},
};
use crate::{
    bridge::{Frame, News},
    clock::now,
    model::{SessionId, SessionRecord},
    session::{Fence, Member, Nudge, Recheck, Superseded, Vitals},
    storage::{Op, Roster, StoreError},
    supervise::{InOrder, Posted, settle},
};

impl Project {
    fn hear(
        &mut self,
        Frame {
            news, number, serial, ..
        }: Frame,
        own: bool,
        ctx: &mut Context<Self>,
    ) {
        let mut learnt: Op<()> = Box::pin(ready(Ok(())));
        match news {
            News::Session(record) => {
                if own {
                    self.has_heard_own(record.id);
                } else if !self.unheard.contains_key(&record.id) {
                    self.take_in(*record, Some(serial));
                }
                self.follow(number, ctx);
            }
            News::SessionRemoved(session) => {
                if !own && !self.unheard.contains_key(&session) {
                    self.forget(session);
                }
                self.follow(number, ctx);
            }
            News::Waiting(sessions) if !own => self.nudge(sessions),
            News::Claimed(session) if !own => {
                if let Some(member) = self.directory.by_id(session) {
                    member.address.report(Superseded { epoch: number });
                }
            }
            News::Protocol { name, version } if !own => learnt = self.registry_learns(Some((name, version))),
            News::Progress(message) if !own => learnt = self.store.progressed(Some(message)),
            _ => {}
        }
        InOrder::settle(|project: &mut Self| &mut project.applying, learnt, self, ctx, {
            move |project, learnt, ctx| match learnt {
                Ok(()) => project.looks.heard(serial, &project.known),
                Err(_) => project.look(None, ctx),
            }
        });
    }

    /// A frame that is lost or late is made good for by the next look at the store.
    fn follow(&mut self, version: u64, ctx: &mut Context<Self>) {
        if !self.directory.follow(version) {
            self.look(None, ctx);
        }
    }

    fn nudge(&self, sessions: Vec<SessionId>) {
        for session in sessions {
            let Some(member) = self.directory.by_id(session) else {
                continue;
            };
            // How many is counted when somebody asks.
            member.vitals.doubt_waiting();
            if !member.vitals.is_claimed() {
                member.vitals.add_waiting();
            }
            if member.vitals.attentive() {
                // A session whose mailbox is full looks into its inbox soon enough.
                let _ = member.address.tell(Nudge { until_handled: None });
            }
        }
    }

    /// Frames may have been missed: makes this replica know what the store knows, and tells `done`.
    pub(super) fn look(&mut self, done: Option<oneshot::Sender<()>>, ctx: &mut Context<Self>) {
        if self.looks.begin(done, &self.known) {
            self.take_look(ctx);
        }
    }

    fn take_look(&mut self, ctx: &mut Context<Self>) {
        let op = self.store.serial();
        settle(op, self, ctx, |project, serial, ctx| match serial {
            Ok(serial) => project.look_at_all(serial, ctx),
            Err(error) => project.looked(Err(error), ctx),
        });
    }

    /// What is asked for here is no older than the frame of this serial.
    fn look_at_all(&mut self, serial: u64, ctx: &mut Context<Self>) {
        // Before the sessions are looked at, so that it is known when each was seen.
        self.exchange_signs(ctx);
        let (learnt, progressed) = (self.registry_learns(None), self.store.progressed(None));
        self.refresh(ctx, move |project, refreshed, ctx| {
            let rest: Op<()> = Box::pin(async move {
                refreshed?;
                learnt.await?;
                progressed.await
            });
            settle(rest, project, ctx, move |project, looked, ctx| {
                project.looked(looked.map(|()| serial), ctx);
            });
        });
    }

    fn looked(&mut self, looked: Result<u64, StoreError>, ctx: &mut Context<Self>) {
        match &looked {
            Ok(_) => {
                for member in self.directory.all() {
                    member.vitals.doubt_waiting();
                    member.address.report(Recheck);
                }
            }
            Err(error) => tracing::warn!(project = %self.id, %error, "the store cannot be looked at: tried again"),
        }
        match self.looks.end(looked.ok(), &self.known) {
            Next::Nothing => {}
            Next::Look => self.take_look(ctx),
            Next::LookLater => {
                ctx.run_later(Duration::from_secs(1), |project, ctx| {
                    if project.looks.take_due() {
                        project.look(None, ctx);
                    }
                });
            }
        }
    }

    /// Makes the directory what the store has.
    pub(super) fn refresh(
        &mut self,
        ctx: &mut Context<Self>,
        then: impl FnOnce(&mut Self, Result<(), StoreError>, &mut Context<Self>) + 'static,
    ) {
        let asked = self.directory.told();
        let op = self.store.sessions();
        self.refreshing += 1;
        settle(op, self, ctx, move |project, roster, ctx| {
            project.refreshing = project.refreshing.saturating_sub(1);
            let refreshed = match roster {
                Ok(roster) if project.is_overtaken(&roster, asked) => return project.refresh(ctx, then),
                roster => roster.map(|roster| project.is_now(roster)),
            };
            if project.refreshing == 0 {
                project.changed_here.clear();
            }
            then(project, refreshed, ctx);
        });
    }

    /// A session was put here, or has ended.
    pub(super) fn note_change(&mut self, session: SessionId) {
        if self.refreshing > 0 {
            self.changed_here.insert(session);
        }
    }

    /// Whether frames told more, while the store was asked, than it has answered. A store that knows less than it did
    /// before has lost something, and what it says holds.
    fn is_overtaken(&self, roster: &Roster, asked: u64) -> bool {
        roster.version < self.directory.told() && roster.version >= asked
    }

    fn is_now(&mut self, Roster { version, sessions }: Roster) {
        if !self.store.is_shared() {
            for record in sessions {
                if self.directory.by_id(record.id).is_none() {
                    self.seat(record, None, true);
                }
            }
            return;
        }
        let known = self.directory.all();
        let known = known.iter().map(|member| member.record.id);
        let is_known_better = |id: &SessionId| self.seating.contains(id) || self.changed_here.contains(id);
        let mut gone: HashSet<_> = known.filter(|id| !is_known_better(id)).collect();
        let sessions: Vec<_> = sessions
            .into_iter()
            .filter(|record| !is_known_better(&record.id))
            .collect();
        for record in sessions {
            gone.remove(&record.id);
            self.take_in(record, None);
        }
        for session in gone {
            self.forget(session);
        }
        self.directory.is_of(version);
        // Frames may have been missed.
        self.unheard.retain(|session, _| self.seating.contains(session));
    }

    /// Puts a session that another replica has put into the directory, or what it is by now. Who has just registered, as
    /// this frame tells everybody, has given a sign of life.
    pub(super) fn take_in(&mut self, record: SessionRecord, frame: Option<u64>) {
        let now = now();
        let is_news = frame.is_some_and(|frame| self.signs.is_put(record.id, frame, now));
        match self.directory.by_id(record.id) {
            Some(before) if before.record == record => {
                if is_news {
                    before.vitals.touch(now);
                }
            }
            Some(before) => {
                let member = self.seat(record, Some(&before), false);
                let incarnation = member.record.holder.incarnation;
                if incarnation != before.record.holder.incarnation {
                    member.address.report(Fence { incarnation });
                }
                if is_news {
                    member.vitals.touch(now);
                }
            }
            None => {
                let seen = self.signs.of(record.id);
                let vitals = match seen {
                    _ if is_news => Vitals::new(now),
                    Some(seen) => Vitals::seen(seen.mono_ms, seen.goodbye, now),
                    None => Vitals::seen(0, false, now),
                };
                let member = Arc::new(self.open(record, vitals, false));
                self.directory.put(&member);
            }
        }
    }

    /// A session that the store does not know any more.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.signs.forget(session);
        if let Some(member) = self.directory.remove(session) {
            member.address.report(crate::session::Forgotten);
        }
    }

    /// Tells the other replicas who was seen here, and hears whom they saw.
    pub(super) fn exchange_signs(&mut self, ctx: &mut Context<Self>) {
        let asked = now();
        let seen = |member: &Member| Seen {
            mono_ms: member.vitals.last_seen_mono_ms(),
            goodbye: member.vitals.has_said_goodbye(),
        };
        let mut own = Vec::new();
        for member in self.directory.all() {
            let (id, seen) = (member.record.id, seen(&member));
            if self.signs.is_news(id, seen) {
                own.push(seen.sign(id, asked));
                if !member.vitals.is_claimed() {
                    self.count(member, ctx);
                }
            }
        }
        let told: Vec<_> = own.iter().map(|sign| sign.session).collect();
        let op = self.store.exchange_signs(own);
        settle(op, self, ctx, move |project, heard, _| match heard {
            Ok(exchanged) => {
                let now = now();
                for (session, Heard { seen, instead_of }) in project.signs.hear(exchanged, asked, now) {
                    if let Some(member) = project.directory.by_id(session) {
                        member.vitals.hear(seen.mono_ms, instead_of, seen.goodbye, now);
                    }
                }
            }
            Err(error) => {
                tracing::debug!(project = %project.id, %error, "signs of life could not be told");
                project.signs.take_back(&told);
            }
        });
    }

    /// Of a session that is seen here and has its inbox in nobody's hand here, others know how much waits.
    fn count(&mut self, member: Arc<Member>, ctx: &mut Context<Self>) {
        let begun = member.vitals.begin_count();
        let op = self.store.depth(member.record.id);
        settle(op, self, ctx, move |_, depth, _| {
            if let Ok(depth) = depth {
                member.vitals.end_count(begun, depth.waiting);
            }
        });
    }
}

impl Handler<Posted<Hear>> for Project {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Hear>, ctx: &mut Context<Self>) {
        self.hear(message.frame, message.own, ctx);
    }
}

impl Handler<Posted<CatchUp>> for Project {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<CatchUp>, ctx: &mut Context<Self>) {
        self.look(message.done, ctx);
    }
}

impl Handler<Posted<Refresh>> for Project {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Refresh>, ctx: &mut Context<Self>) {
        self.refresh(ctx, |_, refreshed, _| {
            if refreshed.is_ok() {
                let _ = message.done.send(());
            }
        });
    }
}
