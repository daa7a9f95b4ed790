//! Carries out what [`Waking`](crate::session::waking::Waking) decides: reads the inbox, tells the client, and notes what
//! became of it.

use std::time::Duration;

use actix::{AsyncContext, Context, Handler};

use super::{Session, WakeTimer};
use crate::{
    clock::{now, timer_delay},
    metrics::{Labelled as _, METRICS, StoreOperation, WakeWay},
    model::{Message, Rung, Rungs, Wake, WakeRecord, WakeResult},
    session::{
        AwaitMail, HookLeft, MailAnswer, PeekMail, WakeAnswered,
        wake_log::ways_with,
        waking::{Effect, Event, PEEK_BYTES_MAX, PEEK_MAX, Turn, Unread, UnreadMessage, Ways},
    },
    storage::Peeked,
    supervise::Envelope,
};

impl Session {
    /// Gives an event to [`Waking`](crate::session::waking::Waking) and carries out what follows.
    pub(super) fn apply_waking(&mut self, event: Event, ctx: &mut Context<Self>) {
        let effect = self.waking.on(event, now());
        self.set_wants_wakeup();
        match effect {
            None => {}
            Some(Effect::Peek) => self.peek_for_wake(ctx),
            Some(Effect::TellConnection { wake, turn }) => self.tell_connection(&wake, turn, ctx),
            Some(Effect::TellHook { wake, turn }) => self.tell_hook(wake, turn, ctx),
            Some(Effect::Hold(hold)) => METRICS.wakes_held.of(hold).increment(),
            Some(Effect::ReadAfterWake { ms }) => METRICS.wake_to_read.observe(ms.saturating_mul(1_000_000)),
        }
        self.schedule_wake_timer(ctx);
    }

    /// Tells whether messages are to be reported to this actor. Call it before the inbox is looked at.
    pub(super) fn set_wants_wakeup(&self) {
        let wants_wakeup = self.state.wants_wakeup() || self.waking.wants_arrivals();
        self.shared.set_wants_wakeup(wants_wakeup);
    }

    /// The live connection or the hook that waits may be another one.
    pub(super) fn ways_changed(&mut self, ctx: &mut Context<Self>) {
        self.mail_waiter.take_if(|waiter| waiter.is_closed());
        let connection = self.connections.live().map(|connection| connection.wakes_by());
        let connection: Rungs = connection.unwrap_or_default();
        let ways = Ways {
            connection: !connection.is_empty(),
            hook: self.mail_waiter.is_some(),
        };
        self.shared.wakes().set_rungs(ways_with(connection, ways.hook));
        if ways != self.waking.ways() {
            self.apply_waking(Event::WaysChanged(ways), ctx);
        }
    }

    /// Tells whether something takes what comes, if that has changed.
    pub(super) fn attention_changed(&mut self, ctx: &mut Context<Self>) {
        let is_attentive = self.state.takes_messages();
        if is_attentive != self.waking.is_attentive() {
            self.apply_waking(Event::Attends { is_attentive }, ctx);
        }
    }

    fn schedule_wake_timer(&mut self, ctx: &mut Context<Self>) {
        let at_ms = self.waking.timer_ms();
        if at_ms == self.wake_timer.as_ref().map(|timer| timer.at_ms) {
            return;
        }
        if let Some(timer) = self.wake_timer.take() {
            ctx.cancel_future(timer.handle);
        }
        self.wake_timer = at_ms.map(|at_ms| {
            let delay = Duration::from_millis(at_ms.saturating_sub(now().mono_ms));
            let handle = ctx.run_later(timer_delay(delay), |session, ctx| {
                session.wake_timer = None;
                session.apply_waking(Event::TimerFired, ctx);
            });
            WakeTimer { at_ms, handle }
        });
    }

    fn peek_for_wake(&mut self, ctx: &mut Context<Self>) {
        let op = self.store.peek(self.id, PEEK_MAX, PEEK_BYTES_MAX);
        self.then(StoreOperation::Other, op, ctx, |session, peeked, ctx| {
            let event = match peeked {
                Ok(peeked) => Event::Peeked(unread(&peeked)),
                Err(error) => {
                    tracing::warn!(session = %session.id, %error, "the inbox cannot be read to wake its agent; retrying");
                    Event::PeekFailed
                }
            };
            session.apply_waking(event, ctx);
        });
    }

    fn tell_connection(&mut self, wake: &Wake, turn: Turn, ctx: &mut Context<Self>) {
        let Some(connection) = self.connections.live() else {
            return self.ways_changed(ctx);
        };
        self.shared.wakes().begin_turn(turn);
        connection.wake(self.id, wake);
    }

    fn tell_hook(&mut self, wake: Wake, turn: Turn, ctx: &mut Context<Self>) {
        let waiter = self.mail_waiter.take();
        let is_told = waiter.is_some_and(|waiter| waiter.send(MailAnswer::Wake(wake)).is_ok());
        if is_told {
            self.shared.wakes().begin_turn(turn);
            self.note_wake(Some(Rung::Hook), WakeResult::Written);
        } else {
            self.note_wake(Some(Rung::Hook), WakeResult::Failed);
            self.apply_waking(Event::HookGone, ctx);
        }
        self.ways_changed(ctx);
    }

    fn note_wake(&self, rung: Option<Rung>, result: WakeResult) {
        METRICS.wakes[WakeWay::from(rung).index()].of(result).increment();
        self.shared.wakes().add(WakeRecord {
            at_ms: now().unix_ms,
            rung,
            result,
        });
    }
}

/// What a decision about a wake looks at.
fn unread(peeked: &Peeked) -> Unread {
    Unread {
        len: peeked.waiting,
        first: peeked.messages.iter().map(|message| unread_message(message)).collect(),
    }
}

fn unread_message(message: &Message) -> UnreadMessage {
    let summary = message.summary();
    UnreadMessage {
        sender: message.sender,
        sender_name: summary.sender_name.unwrap_or_else(|| message.sender.to_string()),
        protocol: summary.protocol,
        priority: message.priority,
        hops: summary.hops,
        accepted_ms: message.id.accepted_ms(),
    }
}

impl Handler<Envelope<WakeAnswered>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<WakeAnswered>, ctx: &mut Context<Self>) {
        let WakeAnswered {
            connection,
            number,
            rung,
            result,
        } = message;
        if self.connections.live_id() == Some(connection) && self.waking.awaits_answer(number) {
            self.note_wake(rung, result);
            self.apply_waking(Event::Answered { number, result }, ctx);
        }
    }
}

impl Handler<Envelope<AwaitMail>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<AwaitMail>, ctx: &mut Context<Self>) {
        if let Some(earlier) = self.mail_waiter.replace(message.reply) {
            // A hook that has gone needs no answer.
            let _ = earlier.send(MailAnswer::Replaced);
            // To the decisions it is another hook: it gets what no client took.
            self.apply_waking(Event::HookGone, ctx);
        }
        self.ways_changed(ctx);
    }
}

impl Handler<Envelope<HookLeft>> for Session {
    type Result = ();

    fn handle(&mut self, _: Envelope<HookLeft>, ctx: &mut Context<Self>) {
        self.ways_changed(ctx);
    }
}

impl Handler<Envelope<PeekMail>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<PeekMail>, ctx: &mut Context<Self>) {
        let op = self.store.peek(self.id, PEEK_MAX, PEEK_BYTES_MAX);
        self.then(StoreOperation::Other, op, ctx, |_, peeked, _| {
            let mail = peeked.map(|peeked| unread(&peeked).summary(now()));
            // A caller that has gone needs no answer.
            let _ = message.reply.send(mail.map_err(Into::into));
        });
    }
}
