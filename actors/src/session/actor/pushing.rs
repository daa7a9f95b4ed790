//! How messages come to their reader, the live connection or a call of `receive_messages`: leased by this session when there
//! is budget, or leased and sent by a store that pushes, and put by lenses into a version of the session.
//!
//! Messages leave in the order in which they were leased. Nothing else of the session waits for lenses: claims, releases,
//! acknowledgements and the end of the session go past the messages that are translated.

use std::{ops::Range, sync::Arc, task::Poll};

use actix::{ActorFutureExt, AsyncContext, Context, Handler, fut::wrap_future};

use super::{After, ForConnection, LeaseTime, RETRY_DELAY, Reader, Session, Translation};
use crate::{
    clock::{Now, fine_ns, now},
    metrics::{METRICS, StoreOperation},
    model::{MessageId, Outcome, OutcomeKind},
    ops::poll_once,
    session::{
        DeliverPushed, ReadReservation,
        ownership::Retry,
        push::Start,
        speaking::{Room, Spoken, Unspoken},
        state::Event,
    },
    storage::{Acknowledge, Delivery, Lease, PushedDelivery, Release, StoreError},
    supervise::Envelope,
    trace::{ActiveSpan, ending_with},
};

/// Messages that one lease asks for at most: what one turn of the actor may take.
const LEASE_LEN_MAX: usize = 1024;

impl Session {
    /// Leases up to `limit` messages for the connection and pushes them.
    pub(super) fn drain(&mut self, limit: usize, ctx: &mut Context<Self>) {
        self.start_push_if_due(ctx);
        let Some((bytes, reservation)) = self.reserve() else {
            return self.finish_empty_drain(ctx);
        };
        let begun = self.lease_time();
        let (claim, len) = (self.ownership.claim(), limit.min(LEASE_LEN_MAX));
        let op = self.store.lease(self.id, claim, len, bytes, now());
        self.then(StoreOperation::Lease, op, ctx, move |session, lease, ctx| {
            session.finish_drain(begun, limit, lease, (bytes, reservation), ctx);
        });
    }

    /// Reserves as many bytes for a lease as the connection has budget for.
    fn reserve(&mut self) -> Option<(usize, ReadReservation)> {
        let connection = self.connections.live()?;
        let mut sizes = self.push.lease_sizes();
        sizes.find_map(|bytes| Some((bytes, Arc::clone(connection).reserve(bytes)?)))
    }

    fn finish_drain(
        &mut self,
        begun: LeaseTime,
        limit: usize,
        lease: Result<Lease, StoreError>,
        (reserved, reservation): (usize, ReadReservation),
        ctx: &mut Context<Self>,
    ) {
        let is_current = begun.is_attached(self.lease_time());
        let Lease {
            deliveries,
            depth,
            lease_numbers,
            is_pushing,
            blocked_bytes,
            ..
        } = match lease {
            Ok(Lease { superseded: true, .. }) => {
                if is_current {
                    self.finish_empty_drain(ctx);
                }
                return self.claim_refused(ctx);
            }
            Ok(lease) => lease,
            Err(error) => {
                tracing::warn!(session = %self.id, %error, "the inbox cannot be read; retrying");
                self.push.stopped();
                self.retry_later(Retry::Lease, ctx);
                if is_current {
                    self.finish_empty_drain(ctx);
                }
                return;
            }
        };
        if !is_current {
            // What ended the attachment has released the lease; the next attachment may have the messages already.
            return;
        }
        if !is_pushing {
            self.push.stopped();
        }
        self.push.note_lease_end(blocked_bytes, depth.waiting > 0);
        if deliveries.is_empty() && blocked_bytes.is_some() {
            self.shared.set_depth(depth);
            drop(reservation);
            return self.drain(limit, ctx);
        }
        let delivered = deliveries.len();
        self.push.forget_broadcasts(&deliveries);
        let ready = self.push.leased(lease_numbers, deliveries);
        let to = ForConnection {
            reserved,
            reservation,
            pushed: 0,
            after: After::Drained { depth, delivered },
        };
        self.push_ready(ready, begun, to, ctx);
    }

    /// Nothing could be leased for the connection: the store failed, or the connection has no budget.
    fn finish_empty_drain(&mut self, ctx: &mut Context<Self>) {
        let depth = self.state.depth();
        self.apply(Event::Drained { depth, delivered: 0 }, ctx);
    }

    /// Pushes what is next in order.
    fn push_ready(&mut self, ready: Vec<Delivery>, begun: LeaseTime, to: ForConnection, ctx: &mut Context<Self>) {
        if self.push.must_schedule_gap_check() {
            ctx.run_later(RETRY_DELAY, |session, ctx| {
                if session.push.is_gap_left() {
                    tracing::debug!(session = %session.id, "pushed messages have not arrived: reading them from the store");
                    session.start_push(ctx);
                }
            });
        }
        self.deliver(ready, begun, Reader::Connection(to), ctx);
    }

    /// Gives messages to the connection, if it takes some. Returns how many were pushed.
    pub(super) fn push_to_connection(&mut self, mut deliveries: Vec<Delivery>) -> usize {
        if self.store.supports_push() && self.state.auto_ack_connection().is_some() {
            self.push.note_pushed(&mut deliveries);
        }
        if let Some(connection) = self.connections.live().filter(|_| self.state.push().is_some()) {
            let _spans = self.begin_spans(&deliveries);
            self.mark_delivered(&deliveries);
            connection.push(&deliveries);
        }
        deliveries.len()
    }

    /// A call of `receive_messages` leased these numbers: the order of pushed messages continues after them.
    pub(super) fn skip_lease_numbers(&mut self, lease_numbers: Range<u64>, ctx: &mut Context<Self>) {
        let ready = self.push.leased(lease_numbers, Vec::new());
        let to = ForConnection::unreserved(After::Nothing);
        self.push_ready(ready, self.lease_time(), to, ctx);
    }

    /// Starts push if the claim or the mode has changed since it was started.
    pub(super) fn start_push_if_due(&mut self, ctx: &mut Context<Self>) {
        if self.store.supports_push() && self.push.is_start_due(self.ownership.claim(), self.state.push()) {
            self.start_push(ctx);
        }
    }

    /// Tells the store to push messages as they are accepted. It answers with what it has leased so far.
    pub(super) fn start_push(&mut self, ctx: &mut Context<Self>) {
        let (Some(store), Some(mode), Some(claim)) = (self.store.push(), self.state.push(), self.ownership.claim())
        else {
            return;
        };
        let Start { sync, from, limit } = self.push.start(claim, mode);
        let begun = self.lease_time();
        let op = store.start_push(self.id, claim, limit, from);
        self.then(StoreOperation::Lease, op, ctx, move |session, lease, ctx| match lease {
            Ok(Lease { superseded: true, .. }) => {
                session.push.stopped();
                session.claim_refused(ctx);
            }
            Ok(lease) => {
                let next = lease.lease_numbers.end;
                if let Some(ready) = session.push.started(sync, next, lease.deliveries) {
                    let to = ForConnection::unreserved(After::Nothing);
                    session.deliver(ready, begun, Reader::Connection(to), ctx);
                }
                session.shared.set_depth(lease.depth);
                session.apply(Event::DepthChanged { depth: lease.depth }, ctx);
            }
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "push cannot be started; retrying");
                session.push.stopped();
                session.retry_later(Retry::Lease, ctx);
            }
        });
    }

    /// Acknowledges what was written to the connection: at once, or together with later messages.
    pub(super) fn acknowledge_written(&mut self, mut messages: Vec<MessageId>, window: usize, ctx: &mut Context<Self>) {
        let spans = self.shared.traced().acknowledge(&messages);
        if let Some(store) = self.store.push() {
            let written = messages.len();
            store.settle_group_leases(self.id, &mut messages);
            self.counters.acknowledged(written - messages.len());
        }
        if messages.is_empty() {
            return;
        }
        let op = if self.push.is_ack_urgent(&messages, window) {
            self.store.acknowledge(self.id, Acknowledge::Ids(messages), now())
        } else {
            self.store.acknowledge_written(self.id, messages, now())
        };
        self.finish_acknowledge(ending_with(spans, op), None, ctx);
    }
}

impl Handler<Envelope<DeliverPushed>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<DeliverPushed>, ctx: &mut Context<Self>) {
        let DeliverPushed(PushedDelivery {
            claim,
            deliveries,
            lease_numbers,
            ..
        }) = message;
        // What was leased under another claim is released.
        if self.ownership.claim() != Some(claim) || self.state.push().is_none() {
            return;
        }
        let is_group_lease = lease_numbers.is_empty();
        let ready = if is_group_lease {
            self.push.group_leased(lease_numbers.start, deliveries)
        } else {
            self.push.leased(lease_numbers, deliveries)
        };
        let to = ForConnection::unreserved(After::PushedByStore { is_group_lease });
        self.push_ready(ready, self.lease_time(), to, ctx);
    }
}

impl Session {
    /// Begins the spans of these deliveries, before the recipient can acknowledge them.
    pub(super) fn begin_spans(&self, deliveries: &[Delivery]) -> Vec<ActiveSpan> {
        let delivered = deliveries.iter().map(|delivery| (&*delivery.message, delivery.count));
        self.shared.traced().begin(self.id, delivered)
    }

    /// Notes that these messages are on their way to the connection or the caller, and counts them. A first delivery
    /// counts with its time since the message was accepted.
    pub(super) fn mark_delivered(&self, deliveries: &[Delivery]) {
        if deliveries.is_empty() {
            return;
        }
        let (now, now_ns) = (now(), fine_ns());
        // Messages of one batch were accepted at one moment.
        let (mut batch, mut len) = (None, 0);
        for Delivery { message, count } in deliveries {
            message.as_sent().progress.mark_delivered(now.unix_ms);
            let accepted = (message.accepted_ns, message.id.as_uuid().as_u128() >> 80);
            if *count > 1 {
                continue;
            }
            if batch.is_some_and(|batch| batch != accepted) {
                observe_delivery(batch, len, now, now_ns);
                len = 0;
            }
            (batch, len) = (Some(accepted), len + 1);
        }
        observe_delivery(batch, len, now, now_ns);
        self.shared.wakes().note_read(now);
        self.counters.delivered(deliveries.len());
    }
}

/// Counts `len` messages that were accepted at one moment: by the fine clock of this process, or (0 for that) at this time
/// of the wall clock.
fn observe_delivery(accepted: Option<(u64, u128)>, len: u64, now: Now, now_ns: u64) {
    const NS_PER_MS: u64 = 1_000_000;
    let Some((accepted_ns, accepted_ms)) = accepted else {
        return;
    };
    let time_ns = match accepted_ns {
        // The first 48 bits of the id are milliseconds since the Unix epoch.
        0 => now.unix_ms.saturating_sub(accepted_ms as u64).saturating_mul(NS_PER_MS),
        _ => now_ns.saturating_sub(accepted_ns),
    };
    METRICS.deliver.observe_many(time_ns, len);
}

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
