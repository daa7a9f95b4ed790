//! How messages come to the connection: leased when there is room, or handed over by the store as they come.

use std::{ops::Range, sync::Arc};

use actix::{AsyncContext, Context, Handler};

use super::{MEND_AFTER, Session, hand_over};
use crate::{
    clock::now,
    model::MessageId,
    session::{
        Reservation, UNRESERVED_BYTES_MAX,
        state::{AckMode, Event},
    },
    storage::{Acknowledge, Delivery, Handed, Leased, StoreError, Takes},
    supervise::Posted,
};

/// Most messages one lease asks for: what one turn of the actor may take.
const LEASE_LEN_MAX: usize = 1024;
/// A window of so few messages is soon closed.
const SMALL_WINDOW: usize = 16;
/// Most messages for many that are remembered: what comes twice comes soon.
const SHARED_LEN_MAX: usize = 32;

impl Session {
    pub(super) fn drain(&mut self, limit: usize, ctx: &mut Context<Self>) {
        self.stand_by_if_due(ctx);
        let Some((bytes, reservation)) = self.reserve() else {
            return self.drained_nothing(ctx);
        };
        let link = self.state.link_number();
        let (by, len) = (self.vitals.claim(), limit.min(LEASE_LEN_MAX));
        let lease = self.store.lease(self.id, by, len, bytes, now());
        self.in_order(lease, ctx, move |session, leased, ctx| {
            session.drained(link, limit, leased, reservation, ctx);
        });
    }

    /// Reserves room for a lease, for as many bytes as there is room for.
    fn reserve(&mut self) -> Option<(usize, Reservation)> {
        let connection = self.connection.as_ref()?;
        let mut sizes = self.lease_sizes.next();
        sizes.find_map(|bytes| Some((bytes, Arc::clone(connection).reserve(bytes)?)))
    }

    fn drained(
        &mut self,
        link: Option<u64>,
        limit: usize,
        leased: Result<Leased, StoreError>,
        reservation: Reservation,
        ctx: &mut Context<Self>,
    ) {
        let current = self.state.link_number() == link;
        let Leased {
            deliveries,
            depth,
            numbers,
            stands_by,
            beyond,
            ..
        } = match leased {
            Ok(Leased { superseded: true, .. }) => {
                if current {
                    self.drained_nothing(ctx);
                }
                return self.refused(ctx);
            }
            Ok(leased) => leased,
            Err(error) => {
                tracing::warn!(session = %self.id, %error, "the inbox cannot be read yet: tried again");
                self.stands_by = None;
                self.mend_later(false, ctx);
                if current {
                    self.drained_nothing(ctx);
                }
                return;
            }
        };
        if !current {
            // Taken for a link that has ended: what ended it has put them back since, and its successor may have them.
            return;
        }
        if !stands_by {
            self.stands_by = None;
        }
        self.lease_sizes.lease_ended(beyond, depth.waiting > 0);
        if deliveries.is_empty() && beyond.is_some() {
            self.vitals.set_depth(depth);
            drop(reservation);
            return self.drain(limit, ctx);
        }
        let handed_over = deliveries.len();
        // What is asked for waited, and is to be delivered, whatever was delivered before.
        self.shared
            .retain(|known| deliveries.iter().all(|delivery| delivery.message.id != *known));
        self.push_in_turn(numbers, deliveries, ctx);
        drop(reservation);
        self.vitals.set_depth(depth);
        self.happened(Event::Drained { depth, handed_over }, ctx);
    }

    /// Pushes what was leased for the connection, or keeps it until it is its turn. Returns how many were pushed.
    pub(super) fn push_in_turn(
        &mut self,
        numbers: Range<u64>,
        deliveries: Vec<Delivery>,
        ctx: &mut Context<Self>,
    ) -> usize {
        let ready = if numbers.is_empty() {
            deliveries
        } else {
            self.sequence.arrived(numbers, deliveries)
        };
        self.push_ready(ready, ctx)
    }

    fn push_ready(&mut self, mut ready: Vec<Delivery>, ctx: &mut Context<Self>) -> usize {
        self.push(&mut ready);
        if self.sequence.is_interrupted() && self.missing.is_none() {
            self.missing = Some(ctx.run_later(MEND_AFTER, |session, ctx| {
                session.missing = None;
                if session.sequence.is_interrupted() {
                    tracing::debug!(session = %session.id, "messages handed over have not come: they are looked up");
                    session.stand_by(ctx);
                }
            }));
        }
        ready.len()
    }

    fn push(&mut self, deliveries: &mut Vec<Delivery>) {
        if self.store.hands_over() && self.state.acknowledging_connection().is_some() {
            deliveries.retain(|delivery| self.is_new(delivery));
        }
        if let Some(connection) = self.connection.as_ref().filter(|_| self.state.push().is_some()) {
            hand_over(deliveries);
            connection.push(deliveries);
            if self.store.hands_over() && self.state.acknowledging_connection().is_some() {
                let watched = deliveries.iter().filter(|delivery| delivery.message.is_watched());
                self.waited_for.extend(watched.map(|delivery| delivery.message.id));
            }
        }
    }

    /// What was leased to many as one comes again when it becomes a lease of this session's own.
    fn is_new(&mut self, Delivery { message, count }: &Delivery) -> bool {
        if message.recipient.is_some() || *count > 1 {
            return true;
        }
        if self.shared.contains(&message.id) {
            return false;
        }
        if self.shared.len() == SHARED_LEN_MAX {
            self.shared.pop_front();
        }
        self.shared.push_back(message.id);
        true
    }

    pub(super) fn stand_by_if_due(&mut self, ctx: &mut Context<Self>) {
        if self.store.hands_over() && self.stands_by != self.vitals.claim().zip(self.state.push()) {
            self.stand_by(ctx);
        }
    }

    /// Has the store hand over messages as they come, and say what it has handed over so far.
    pub(super) fn stand_by(&mut self, ctx: &mut Context<Self>) {
        let (Some(push), Some(claim)) = (self.state.push(), self.vitals.claim()) else {
            return;
        };
        self.stands_by = Some((claim, push));
        let (asked, from) = (self.sequence.ask(), self.sequence.next());
        let takes = Takes {
            window: push.window,
            room: UNRESERVED_BYTES_MAX,
            by_writing: push.ack == AckMode::Auto && push.window > SMALL_WINDOW,
        };
        let op = self.store.stand_by(self.id, claim, takes, from);
        self.in_order(op, ctx, move |session, leased, ctx| match leased {
            Ok(Leased { superseded: true, .. }) => {
                session.stands_by = None;
                session.refused(ctx);
            }
            Ok(leased) => {
                if let Some(mut ready) = session.sequence.go_on(asked, leased.numbers.end, leased.deliveries) {
                    session.push(&mut ready);
                }
                session.vitals.set_depth(leased.depth);
                session.happened(Event::Changed { depth: leased.depth }, ctx);
            }
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "nothing is handed over at once yet: tried again");
                session.stands_by = None;
                session.mend_later(false, ctx);
            }
        });
    }

    /// Nothing could be leased for the connection, for reasons of its own or of the store's.
    fn drained_nothing(&mut self, ctx: &mut Context<Self>) {
        let depth = self.state.depth();
        self.happened(Event::Drained { depth, handed_over: 0 }, ctx);
    }

    /// Acknowledges what was written to the connection: soon, and at once where somebody waits for it, as the next
    /// messages do where few may be unacknowledged.
    pub(super) fn acknowledge_written(&mut self, mut messages: Vec<MessageId>, window: usize, ctx: &mut Context<Self>) {
        self.store.note_written(self.id, &mut messages);
        if messages.is_empty() {
            return;
        }
        let waited_for = &mut self.waited_for;
        let is_waited_for =
            !waited_for.is_empty() && messages.iter().filter(|message| waited_for.remove(message)).count() > 0;
        let op = if is_waited_for || window <= SMALL_WINDOW {
            self.store.acknowledge(self.id, Acknowledge::Ids(messages), now())
        } else {
            self.store.acknowledge_written(self.id, messages, now())
        };
        self.settle_acknowledged(op, None, ctx);
    }
}

impl Handler<Posted<Handed>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Handed>, ctx: &mut Context<Self>) {
        // What was handed over under another claim waits again.
        if self.vitals.claim() == Some(message.claim) && self.state.push().is_some() {
            let is_shared = message.numbers.is_empty();
            let count = if is_shared {
                let ready = self.sequence.posted(message.numbers.start, message.deliveries);
                self.push_ready(ready, ctx)
            } else {
                self.push_in_turn(message.numbers, message.deliveries, ctx)
            };
            if count > 0 {
                // What is leased to many as one is soon acknowledged, and nobody tells.
                let count = if is_shared { 0 } else { count };
                self.happened(Event::Handed { count }, ctx);
            }
        }
    }
}
