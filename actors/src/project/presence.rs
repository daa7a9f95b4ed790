//! Keeps the last signs of life of sessions in the store of one process, and opens sessions as what they are by then. Where
//! the store is shared, the exchange of heartbeats does both (`replication.rs`).

use std::{collections::HashMap, sync::Arc, time::Duration};

use actix::{ActorFutureExt, AsyncContext, Context, Handler, fut::wrap_future};

use super::{actor::Project, heartbeats::LastSeen, messages::KeepHeartbeats};
use crate::{
    clock::now,
    idle,
    model::{BrokerError, SessionId},
    ops::then,
    session::SessionShared,
    storage::{Heartbeat, Op, Roster},
    supervise::Envelope,
};

/// The shortest time between two rounds of [`Project::keep_heartbeats`].
const KEEP_INTERVAL_MIN: Duration = Duration::from_millis(50);

impl Project {
    /// Opens the sessions that the directory lacks. The clients of those that were connected when the broker ended are
    /// awaited for one heartbeat. What an earlier version has stored counts as seen now, and as having left.
    pub(super) fn load_directory(&mut self, roster: Roster, kept: Vec<Heartbeat>) {
        let now = now();
        let kept: HashMap<_, _> = kept.into_iter().map(|kept| (kept.session, kept)).collect();
        let grace = self.settings.heartbeat_interval.min(self.settings.presence.stale_after);
        for record in roster.sessions {
            if self.directory.by_id(record.id).is_some() {
                continue;
            }
            let shared = match kept.get(&record.id) {
                Some(heartbeat) => {
                    let seen = LastSeen::from_heartbeat(heartbeat, now);
                    self.heartbeats.record_local(record.id, seen);
                    let is_awaited = seen.connected && !seen.left;
                    let awaited_until_ms = if is_awaited { now.mono_after(grace) } else { 0 };
                    SessionShared::kept(seen.mono_ms, seen.left, awaited_until_ms, now)
                }
                None => SessionShared::last_seen_elsewhere(now.mono_ms, true, now),
            };
            let member = Arc::new(self.start_session(record, shared, true));
            self.directory.put(&member);
        }
    }

    /// Keeps the heartbeats after a pause: a third of `stale_after`, and longer while the process has nothing to do.
    pub(super) fn keep_heartbeats_later(&self, ctx: &mut Context<Self>) {
        let interval = (self.settings.presence.stale_after / 3).max(KEEP_INTERVAL_MIN);
        let pause = async move {
            idle::while_idle(idle::IDLE_PAUSE_MAX).await;
            tokio::time::sleep(interval).await;
        };
        ctx.spawn(wrap_future(pause).map(|(), project: &mut Self, ctx| {
            // The end of the broker has kept them: from then on connections close because of it.
            if !project.is_stopping {
                project.keep_heartbeats(ctx, |project, ctx| project.keep_heartbeats_later(ctx));
            }
        }));
    }

    /// Keeps the heartbeats that have changed, the longest known ones first.
    fn keep_heartbeats(
        &mut self,
        ctx: &mut Context<Self>,
        on_done: impl FnOnce(&mut Self, &mut Context<Self>) + 'static,
    ) {
        let asked = now();
        let mut own: Vec<(u64, Heartbeat)> = Vec::new();
        for member in self.directory.all() {
            let (id, shared) = (member.record.id, &member.shared);
            let seen = LastSeen {
                mono_ms: shared.last_seen_mono_ms(),
                left: shared.has_left(),
                connected: shared.is_connected_or_awaited(asked),
            };
            let known = self.heartbeats.last_seen(id).map_or(0, |known| known.mono_ms);
            if self.heartbeats.record_local(id, seen) {
                own.push((known, seen.heartbeat(id, asked)));
            }
        }
        own.sort_by_key(|(known, _)| *known);
        let own: Vec<_> = own.into_iter().map(|(_, heartbeat)| heartbeat).collect();
        let told: Vec<SessionId> = own.iter().map(|heartbeat| heartbeat.session).collect();
        let op: Op<usize> = if own.is_empty() {
            Box::pin(std::future::ready(Ok(0)))
        } else {
            self.store.keep_heartbeats(own, asked)
        };
        then(op, self, ctx, move |project, kept, ctx| {
            let kept = kept.inspect_err(|error| {
                tracing::debug!(project = %project.id, %error, "heartbeats could not be kept");
            });
            project
                .heartbeats
                .retract(told.get(kept.unwrap_or(0)..).unwrap_or_default());
            on_done(project, ctx);
        });
    }
}

impl Handler<Envelope<KeepHeartbeats>> for Project {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<KeepHeartbeats>, ctx: &mut Context<Self>) {
        self.is_stopping = true;
        let reply = move |_: &mut Self, _: &mut Context<Self>| {
            // A caller that has gone wants no answer.
            let _ = message.reply.send(Ok::<(), BrokerError>(()));
        };
        if self.store.is_shared() {
            return reply(self, ctx);
        }
        self.keep_heartbeats(ctx, reply);
    }
}
