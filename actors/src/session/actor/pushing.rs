//! How messages come to the connection: leased when there is room, or handed over by the store as they come.

use std::{ops::Range, sync::Arc};

use actix::{AsyncContext, Context, Handler};

use super::{RETRY_DELAY, Session, mark_delivered};
use crate::{
    clock::now,
    model::MessageId,
    session::{
        ReadReservation, UNRESERVED_BYTES_MAX,
        state::{AckMode, Event},
    },
    storage::{Acknowledge, Delivery, Lease, PrefetchLimit, PushedDelivery, StoreError},
    supervise::Envelope,
};

/// Most messages one lease asks for: what one turn of the actor may take.
const LEASE_LEN_MAX: usize = 1024;
/// A window of so few messages is soon closed.
const SMALL_WINDOW_MAX: usize = 16;
/// Most messages for many that are remembered: what comes twice comes soon.
const RECENT_BROADCASTS_MAX: usize = 32;

impl Session {
    pub(super) fn drain(&mut self, limit: usize, ctx: &mut Context<Self>) {
        self.start_push_if_due(ctx);
        let Some((bytes, reservation)) = self.reserve() else {
            return self.finish_empty_drain(ctx);
        };
        let link = self.state.attachment_number();
        let (by, len) = (self.shared.claim(), limit.min(LEASE_LEN_MAX));
        let lease = self.store.lease(self.id, by, len, bytes, now());
        self.then(lease, ctx, move |session, leased, ctx| {
            session.finish_drain(link, limit, leased, reservation, ctx);
        });
    }

    /// Reserves room for a lease, for as many bytes as there is room for.
    fn reserve(&mut self) -> Option<(usize, ReadReservation)> {
        let connection = self.connection.as_ref()?;
        let mut sizes = self.lease_sizes.candidates();
        sizes.find_map(|bytes| Some((bytes, Arc::clone(connection).reserve(bytes)?)))
    }

    fn finish_drain(
        &mut self,
        link: Option<u64>,
        limit: usize,
        leased: Result<Lease, StoreError>,
        reservation: ReadReservation,
        ctx: &mut Context<Self>,
    ) {
        let current = self.state.attachment_number() == link;
        let Lease {
            deliveries,
            depth,
            lease_numbers: numbers,
            is_pushing: stands_by,
            blocked_bytes: beyond,
            ..
        } = match leased {
            Ok(Lease { superseded: true, .. }) => {
                if current {
                    self.finish_empty_drain(ctx);
                }
                return self.claim_refused(ctx);
            }
            Ok(leased) => leased,
            Err(error) => {
                tracing::warn!(session = %self.id, %error, "the inbox cannot be read yet: tried again");
                self.push_started_for = None;
                self.retry_later(false, ctx);
                if current {
                    self.finish_empty_drain(ctx);
                }
                return;
            }
        };
        if !current {
            // Taken for a link that has ended: what ended it has put them back since, and its successor may have them.
            return;
        }
        if !stands_by {
            self.push_started_for = None;
        }
        self.lease_sizes.note_lease_end(beyond, depth.waiting > 0);
        if deliveries.is_empty() && beyond.is_some() {
            self.shared.set_depth(depth);
            drop(reservation);
            return self.drain(limit, ctx);
        }
        let handed_over = deliveries.len();
        // What is asked for waited, and is to be delivered, whatever was delivered before.
        self.recent_broadcasts
            .retain(|known| deliveries.iter().all(|delivery| delivery.message.id != *known));
        self.push_in_order(numbers, deliveries, ctx);
        drop(reservation);
        self.shared.set_depth(depth);
        self.apply(
            Event::Drained {
                depth,
                delivered: handed_over,
            },
            ctx,
        );
    }

    /// Pushes what was leased for the connection, or keeps it until it is its turn. Returns how many were pushed.
    pub(super) fn push_in_order(
        &mut self,
        numbers: Range<u64>,
        deliveries: Vec<Delivery>,
        ctx: &mut Context<Self>,
    ) -> usize {
        let ready = if numbers.is_empty() {
            deliveries
        } else {
            self.sequence.insert(numbers, deliveries)
        };
        self.push_ready(ready, ctx)
    }

    fn push_ready(&mut self, mut ready: Vec<Delivery>, ctx: &mut Context<Self>) -> usize {
        self.push(&mut ready);
        if self.sequence.has_gap() && self.gap_timer.is_none() {
            self.gap_timer = Some(ctx.run_later(RETRY_DELAY, |session, ctx| {
                session.gap_timer = None;
                if session.sequence.has_gap() {
                    tracing::debug!(session = %session.id, "messages handed over have not come: they are looked up");
                    session.start_push(ctx);
                }
            }));
        }
        ready.len()
    }

    fn push(&mut self, deliveries: &mut Vec<Delivery>) {
        if self.store.supports_push() && self.state.auto_ack_connection().is_some() {
            deliveries.retain(|delivery| self.is_first_delivery(delivery));
        }
        if let Some(connection) = self.connection.as_ref().filter(|_| self.state.push().is_some()) {
            mark_delivered(deliveries);
            connection.push(deliveries);
            if self.store.supports_push() && self.state.auto_ack_connection().is_some() {
                let watched = deliveries.iter().filter(|delivery| delivery.message.is_tracked());
                self.tracked.extend(watched.map(|delivery| delivery.message.id));
            }
        }
    }

    /// What was leased to many as one comes again when it becomes a lease of this session's own.
    fn is_first_delivery(&mut self, Delivery { message, count }: &Delivery) -> bool {
        if message.recipient.is_some() || *count > 1 {
            return true;
        }
        if self.recent_broadcasts.contains(&message.id) {
            return false;
        }
        if self.recent_broadcasts.len() == RECENT_BROADCASTS_MAX {
            self.recent_broadcasts.pop_front();
        }
        self.recent_broadcasts.push_back(message.id);
        true
    }

    pub(super) fn start_push_if_due(&mut self, ctx: &mut Context<Self>) {
        if self.store.supports_push() && self.push_started_for != self.shared.claim().zip(self.state.push()) {
            self.start_push(ctx);
        }
    }

    /// Has the store hand over messages as they come, and say what it has handed over so far.
    pub(super) fn start_push(&mut self, ctx: &mut Context<Self>) {
        let (Some(push), Some(claim)) = (self.state.push(), self.shared.claim()) else {
            return;
        };
        self.push_started_for = Some((claim, push));
        let (asked, from) = (self.sequence.begin_sync(), self.sequence.next_number());
        let takes = PrefetchLimit {
            messages: push.window,
            bytes: UNRESERVED_BYTES_MAX,
            auto_ack: push.ack == AckMode::Auto && push.window > SMALL_WINDOW_MAX,
        };
        let op = self.store.start_push(self.id, claim, takes, from);
        self.then(op, ctx, move |session, leased, ctx| match leased {
            Ok(Lease { superseded: true, .. }) => {
                session.push_started_for = None;
                session.claim_refused(ctx);
            }
            Ok(leased) => {
                if let Some(mut ready) =
                    session
                        .sequence
                        .finish_sync(asked, leased.lease_numbers.end, leased.deliveries)
                {
                    session.push(&mut ready);
                }
                session.shared.set_depth(leased.depth);
                session.apply(Event::DepthChanged { depth: leased.depth }, ctx);
            }
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "nothing is handed over at once yet: tried again");
                session.push_started_for = None;
                session.retry_later(false, ctx);
            }
        });
    }

    /// Nothing could be leased for the connection, for reasons of its own or of the store's.
    fn finish_empty_drain(&mut self, ctx: &mut Context<Self>) {
        let depth = self.state.depth();
        self.apply(Event::Drained { depth, delivered: 0 }, ctx);
    }

    /// Acknowledges what was written to the connection: soon, and at once where somebody waits for it, as the next
    /// messages do where few may be unacknowledged.
    pub(super) fn acknowledge_written(&mut self, mut messages: Vec<MessageId>, window: usize, ctx: &mut Context<Self>) {
        self.store.settle_group_leases(self.id, &mut messages);
        if messages.is_empty() {
            return;
        }
        let waited_for = &mut self.tracked;
        let is_waited_for =
            !waited_for.is_empty() && messages.iter().filter(|message| waited_for.remove(message)).count() > 0;
        let op = if is_waited_for || window <= SMALL_WINDOW_MAX {
            self.store.acknowledge(self.id, Acknowledge::Ids(messages), now())
        } else {
            self.store.acknowledge_written(self.id, messages, now())
        };
        self.finish_acknowledge(op, None, ctx);
    }
}

impl Handler<Envelope<PushedDelivery>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<PushedDelivery>, ctx: &mut Context<Self>) {
        // What was handed over under another claim waits again.
        if self.shared.claim() == Some(message.claim) && self.state.push().is_some() {
            let is_shared = message.lease_numbers.is_empty();
            let count = if is_shared {
                let ready = self
                    .sequence
                    .insert_group_lease(message.lease_numbers.start, message.deliveries);
                self.push_ready(ready, ctx)
            } else {
                self.push_in_order(message.lease_numbers, message.deliveries, ctx)
            };
            if count > 0 {
                // What is leased to many as one is soon acknowledged, and nobody tells.
                let count = if is_shared { 0 } else { count };
                self.apply(Event::PushedByStore { count }, ctx);
            }
        }
    }
}
