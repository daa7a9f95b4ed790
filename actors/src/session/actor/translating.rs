//! Leased messages on their way to their reader: the live connection, or a call of `receive_messages`. Those that lenses
//! put into a version of the session leave in the order in which they were leased. Nothing else of the session waits for
//! them: claims, releases, acknowledgements and the end of the session go past them.

use std::{sync::Arc, task::Poll};

use actix::{ActorFutureExt, AsyncContext, Context, fut::wrap_future};

use super::{
    RETRY_DELAY, Session,
    leased::{After, ForConnection, LeaseTime, Reader, Translation},
};
use crate::{
    model::{MessageId, Outcome, OutcomeKind},
    ops::poll_once,
    session::{
        ReadReservation,
        speaking::{Room, Spoken, Unspoken},
        state::Event,
    },
    storage::{Acknowledge, Delivery, Release},
};

impl Session {
    /// Gives leased messages to their reader: at once, unless they are to be translated, or others before them are. A call goes
    /// past messages that are held for the connection.
    pub(super) fn deliver(&mut self, leased: Vec<Delivery>, begun: LeaseTime, mut to: Reader, ctx: &mut Context<Self>) {
        let goes_past = self.translations.is_held && matches!(to, Reader::Call(_));
        if (goes_past || self.translations.queue.is_empty()) && !self.speaking.is_needed(&leased) {
            let spoken = Spoken {
                deliveries: leased,
                ..Spoken::default()
            };
            self.give(spoken, begun, to, ctx);
            return;
        }
        // What is done meanwhile says something newer of the inbox.
        if let Some(depth) = to.depth_mut() {
            let depth = *depth;
            self.shared.set_depth(depth);
            self.apply(Event::DepthChanged { depth }, ctx);
        }
        let translation = Translation {
            begun,
            leased,
            to: Some(to),
        };
        if goes_past {
            self.translations.queue.push_front(translation);
            return self.resume_translations(ctx);
        }
        self.translations.queue.push_back(translation);
        if self.translations.queue.len() == 1 {
            self.translate(ctx);
        }
    }

    /// Tries again to translate what is held: the connection has room, the store may answer, or the lease has ended.
    pub(super) fn resume_translations(&mut self, ctx: &mut Context<Self>) {
        if std::mem::take(&mut self.translations.is_held) {
            if let Some(retry) = self.translations.retry.take() {
                ctx.cancel_future(retry);
            }
            self.translate(ctx);
        }
    }

    /// As [`Self::resume_translations`], in a later turn of the actor.
    pub(super) fn resume_translations_later(&self, ctx: &mut Context<Self>) {
        if self.translations.is_held {
            let turn = wrap_future(std::future::ready(()));
            ctx.spawn(turn.map(|(), session: &mut Self, ctx| session.resume_translations(ctx)));
        }
    }

    /// Translates the first messages, and then those after them: these in later turns of the worker.
    fn translate(&mut self, ctx: &mut Context<Self>) {
        self.translate_in_turns(false, ctx);
    }

    fn translate_in_turns(&mut self, mut is_later: bool, ctx: &mut Context<Self>) {
        while let Some(Translation { begun, leased, to }) = self.translations.queue.front() {
            let room = match to {
                Some(Reader::Call(call)) => Some(call.room()),
                Some(Reader::Connection(to)) if begun.is_leased(self.lease_time()) => {
                    let connection = self.connections.live();
                    connection.map(|connection| Room::Connection(Arc::clone(connection), to.reserved))
                }
                _ => None,
            };
            let Some(room) = room else {
                // The lease has ended, and with it the delivery.
                if self.translated(Ok(Spoken::default()), ctx) {
                    continue;
                }
                return;
            };
            let spoken = self.speaking.clone().translate(leased.clone(), room);
            let mut spoken = Box::pin(async move {
                if is_later {
                    tokio::task::yield_now().await;
                }
                spoken.await
            });
            is_later = true;
            match poll_once(&mut spoken) {
                Poll::Ready(spoken) => {
                    if !self.translated(spoken, ctx) {
                        return;
                    }
                }
                Poll::Pending => {
                    ctx.spawn(wrap_future(spoken).map(|spoken, session: &mut Self, ctx| {
                        if session.translated(spoken, ctx) {
                            session.translate_in_turns(true, ctx);
                        }
                    }));
                    return;
                }
            }
        }
    }

    /// The first messages are translated. False if they are held.
    fn translated(&mut self, spoken: Result<Spoken, Unspoken>, ctx: &mut Context<Self>) -> bool {
        let now = self.lease_time();
        let depth = self.state.depth();
        let Some(first) = self.translations.queue.front_mut() else {
            return false;
        };
        let (begun, is_leased) = (first.begun, first.begun.is_leased(now));
        let Some(mut to) = first.to.take() else { return false };
        if let Some(known) = to.depth_mut() {
            *known = depth;
        }
        let mut rest = None;
        match (to, spoken) {
            (to @ Reader::Connection(_), _) if !is_leased => {
                self.give(Spoken::default(), begun, to, ctx);
            }
            (to, Ok(spoken)) => rest = self.give(spoken, begun, to, ctx),
            (Reader::Call(call), Err(error)) => {
                let leased = std::mem::take(&mut first.leased);
                let leased = if is_leased { &*leased } else { &[] };
                self.refuse_read(call, leased, error, ctx);
            }
            (to @ Reader::Connection(_), Err(error)) => {
                first.to = Some(to);
                self.hold(error, ctx);
                return false;
            }
        }
        match (rest, self.translations.queue.front_mut()) {
            (Some((leased, to)), Some(first)) => {
                first.leased = leased;
                first.to = Some(Reader::Connection(to));
            }
            _ => drop(self.translations.queue.pop_front()),
        }
        true
    }

    fn hold(&mut self, why: Unspoken, ctx: &mut Context<Self>) {
        self.translations.is_held = true;
        match why {
            // The connection reports that it is writable.
            Unspoken::NoRoom => {}
            Unspoken::Unknown(error) => {
                tracing::warn!(session = %self.id, %error, "messages wait until their lenses are known; retrying");
                let retry = ctx.run_later(RETRY_DELAY, |session, ctx| {
                    session.translations.retry = None;
                    session.resume_translations(ctx);
                });
                self.translations.retry = Some(retry);
            }
        }
    }

    /// Gives messages to their reader. Returns those for which the connection needs another reservation.
    fn give(
        &mut self,
        spoken: Spoken,
        begun: LeaseTime,
        to: Reader,
        ctx: &mut Context<Self>,
    ) -> Option<(Vec<Delivery>, ForConnection)> {
        let Spoken {
            deliveries,
            failed,
            rest,
            reservation,
        } = spoken;
        let has_failed = !failed.is_empty();
        if has_failed {
            self.give_up(failed, begun, ctx);
        }
        match to {
            Reader::Call(call) => {
                self.give_to_call(call, deliveries, &rest, has_failed, ctx);
                None
            }
            Reader::Connection(to) => {
                if !begun.is_attached(self.lease_time()) {
                    // What ended the attachment has released the lease; the next attachment may have the messages already.
                    return None;
                }
                let pushed = to.pushed + self.push_to_connection(deliveries);
                drop(reservation);
                if rest.is_empty() {
                    self.finish_push(pushed, to, ctx);
                    return None;
                }
                let to = ForConnection {
                    reserved: 0,
                    reservation: ReadReservation::default(),
                    pushed,
                    ..to
                };
                Some((rest, to))
            }
        }
    }

    /// Tells the state what was pushed.
    fn finish_push(&mut self, pushed: usize, to: ForConnection, ctx: &mut Context<Self>) {
        let ForConnection { reservation, after, .. } = to;
        drop(reservation);
        match after {
            After::Nothing => {}
            After::Drained { depth, delivered } => {
                self.shared.set_depth(depth);
                self.apply(Event::Drained { depth, delivered }, ctx);
            }
            After::PushedByStore { .. } if pushed == 0 => {}
            After::PushedByStore { is_group_lease } => {
                // The store acknowledges a group lease soon, and this session does not learn of it: it is not counted.
                let count = if is_group_lease { 0 } else { pushed };
                self.apply(Event::PushedByStore { count }, ctx);
            }
        }
    }

    /// Gives up messages that lenses could not transform, as if the recipient had rejected them: those of one reason together.
    /// A lease that has ended since it was begun gives up nothing: its messages may be leased again, to a recipient that could
    /// get them.
    fn give_up(&mut self, failed: Vec<(MessageId, String)>, begun: LeaseTime, ctx: &mut Context<Self>) {
        let now = self.lease_time();
        if begun != now {
            if begun.is_leased(now) {
                let failed = failed.into_iter().map(|(message, _)| message);
                self.release(Release::Undelivered(failed.collect()), ctx);
            }
            return;
        }
        let mut by_reason: Vec<(String, Vec<MessageId>)> = Vec::new();
        for (message, reason) in failed {
            tracing::warn!(session = %self.id, message_id = %message, reason, "a message cannot be transformed: dead-lettered");
            match by_reason.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, messages)) => messages.push(message),
                None => by_reason.push((reason, vec![message])),
            }
        }
        for (reason, messages) in by_reason {
            let outcome = Outcome::new(OutcomeKind::TransformFailed, &reason);
            self.acknowledge(Acknowledge::Concluded(messages, outcome), None, ctx);
        }
    }
}
