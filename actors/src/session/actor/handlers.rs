//! The commands about nudges, connections, presence and the end of a session.

use std::sync::Arc;

use actix::{ActorContext, Context, Handler};

use super::Session;
use crate::{
    clock::now,
    metrics::StoreOperation,
    session::{
        AcknowledgeMessages, Attach, CloseReason, Connection, Detach, Disconnect, EndSession, KillSession,
        MessagesWritten, Nudge, ResyncSession, SessionRemoved, Subscribe, Superseded, Unwatch, Watch, Writable,
        ownership,
        state::{AckMode, Event},
        waking,
    },
    storage::Depth,
    supervise::Envelope,
};

impl Session {
    /// Notifies a connection that subscribes to changes of the inbox, if messages wait already: it was not notified of
    /// them.
    fn notify_if_waiting(&mut self, connection: Option<Arc<dyn Connection>>, ctx: &mut Context<Self>) {
        let op = self.store.depth(self.id);
        self.then(StoreOperation::Other, op, ctx, |_, depth, _| {
            if let (Ok(Depth { waiting: 1.., .. }), Some(connection)) = (depth, connection) {
                connection.notify_inbox_changed();
            }
        });
    }

    /// Tells the state how many watchers there are now.
    pub(super) fn watchers_changed(&mut self, ctx: &mut Context<Self>) {
        let watchers = self.connections.watchers_len();
        self.apply(Event::WatchersChanged { watchers }, ctx);
    }
}

impl Handler<Envelope<Nudge>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Nudge>, ctx: &mut Context<Self>) {
        if self.state.is_silent() {
            self.tick(ctx);
        }
        self.push.note_arrival();
        self.apply(Event::Nudged, ctx);
        if self.waking.wants_arrivals() {
            self.apply_waking(waking::Event::Arrived, ctx);
        }
        drop(message.barrier);
    }
}

impl Handler<Envelope<Attach>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { mut message, .. }: Envelope<Attach>, ctx: &mut Context<Self>) {
        if message.named {
            self.state.set_named();
        }
        if let Some(incarnation) = message.incarnation {
            self.fence_out(incarnation, ctx);
        }
        if let Some(wake) = message.wake {
            self.settings.wake = wake;
            self.apply_waking(waking::Event::Prefers(wake), ctx);
        }
        let live = self.connections.live_id();
        match message.connection.take() {
            Some(connection) if message.is_reattach && live.is_some_and(|live| live != connection.id()) => {
                connection.close(CloseReason::TakenOver);
            }
            Some(connection) => {
                let id = connection.id();
                self.connections.attach(connection);
                self.apply(Event::Attached { connection: id }, ctx);
            }
            None if message.keeps_leases && live.is_none() => {}
            None => self.apply(Event::Resumed, ctx),
        }
        self.tick(ctx);
    }
}

impl Handler<Envelope<Detach>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Detach>, ctx: &mut Context<Self>) {
        let Detach { connection } = message;
        self.connections.detach(connection);
        self.apply(Event::Detached { connection }, ctx);
    }
}

impl Handler<Envelope<Superseded>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Superseded>, ctx: &mut Context<Self>) {
        let Superseded { epoch } = message;
        self.apply_ownership(ownership::Event::ClaimedRemotely { epoch }, ctx);
    }
}

impl Handler<Envelope<Watch>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { mut message, .. }: Envelope<Watch>, ctx: &mut Context<Self>) {
        let Some(connection) = message.connection.take() else {
            return;
        };
        self.connections.watch(Arc::clone(&connection));
        self.watchers_changed(ctx);
        self.notify_if_waiting(Some(connection), ctx);
    }
}

impl Handler<Envelope<Unwatch>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Unwatch>, ctx: &mut Context<Self>) {
        self.connections.unwatch(message.connection);
        self.watchers_changed(ctx);
    }
}

impl Handler<Envelope<Subscribe>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Subscribe>, ctx: &mut Context<Self>) {
        let Subscribe {
            connection,
            inbox_changes,
            push,
        } = message;
        let was_notified = self.state.inbox_changes();
        let event = Event::Subscribed {
            connection,
            inbox_changes,
            push,
        };
        self.apply(event, ctx);
        if self.state.inbox_changes() && !was_notified {
            self.notify_if_waiting(self.connections.live().cloned(), ctx);
        }
    }
}

impl Handler<Envelope<MessagesWritten>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<MessagesWritten>, ctx: &mut Context<Self>) {
        let auto_ack = self.state.push().filter(|push| push.ack == AckMode::Auto);
        if self.state.connection() == Some(message.connection)
            && let Some(push) = auto_ack
        {
            self.acknowledge_written(message.messages, push.window, ctx);
        }
    }
}

impl Handler<Envelope<Writable>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Writable>, ctx: &mut Context<Self>) {
        let Writable { connection } = message;
        self.resume_translations(ctx);
        self.apply(Event::Writable { connection }, ctx);
    }
}

impl Handler<Envelope<AcknowledgeMessages>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<AcknowledgeMessages>, ctx: &mut Context<Self>) {
        self.acknowledge(message.which, message.reply, ctx);
    }
}

impl Handler<Envelope<Disconnect>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Disconnect>, ctx: &mut Context<Self>) {
        self.end_waiting(ctx);
        self.shared.leave(now());
        if let Some(connection) = self.state.connection() {
            match message.closes {
                Some(why) => self.connections.close(connection, why),
                // The connection itself stays open: it may register again.
                None => self.connections.detach_live(),
            }
            self.apply(Event::Detached { connection }, ctx);
        }
        self.tick(ctx);
        let _ = message.reply.send(Ok(self.state.depth().waiting));
    }
}

impl Handler<Envelope<ResyncSession>> for Session {
    type Result = ();

    fn handle(&mut self, _: Envelope<ResyncSession>, ctx: &mut Context<Self>) {
        if self.store.supports_push() && self.state.push().is_some() {
            self.start_push(ctx);
        } else if let Some(claim) = self.ownership.claim() {
            // An empty lease asks whether the claim still holds.
            let op = self.store.lease(self.id, Some(claim), 0, 0, now());
            self.then(StoreOperation::Lease, op, ctx, |session, lease, ctx| {
                if lease.is_ok_and(|lease| lease.superseded) {
                    session.claim_refused(ctx);
                }
            });
        }
        self.apply(Event::Nudged, ctx);
    }
}

impl Handler<Envelope<EndSession>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<EndSession>, ctx: &mut Context<Self>) {
        self.end(message.reason, ctx);
    }
}

impl Handler<Envelope<SessionRemoved>> for Session {
    type Result = ();

    fn handle(&mut self, _: Envelope<SessionRemoved>, ctx: &mut Context<Self>) {
        self.shut_down();
        ctx.stop();
    }
}

impl Handler<Envelope<KillSession>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<KillSession>, ctx: &mut Context<Self>) {
        self.close_reason = message.why;
        self.metrics.mark_finished();
        ctx.stop();
    }
}

crate::supervise::panics!(Session);
