//! The claim on the inbox, and the release and acknowledgement of what is leased.

use actix::{ActorFutureExt, AsyncContext, Context, fut::wrap_future};
use tokio::sync::oneshot;

use super::{LeaseTime, RETRY_DELAY, Session};
use crate::{
    clock::now,
    metrics::StoreOperation,
    model::{BrokerError, DeliveryStatus},
    session::{
        ownership::{Effect, Event, Retry},
        state,
    },
    storage::{Acknowledge, Acknowledged, Claim, Claimed, Op, Release, Released},
    trace::ending_with,
};

impl Session {
    /// Gives an event to [`Ownership`](crate::session::ownership::Ownership) and carries out what follows.
    pub(super) fn apply_ownership(&mut self, event: Event, ctx: &mut Context<Self>) {
        let effect = self.ownership.on(event);
        self.shared.set_claim(self.ownership.claim());
        match effect {
            None => {}
            Some(Effect::Claim) => self.claim(ctx),
            Some(Effect::ClaimAgain) => self.claim_again(ctx),
            Some(Effect::Release) => self.release_all(ctx),
            Some(Effect::Lease) => {
                self.start_push_if_due(ctx);
                self.apply(state::Event::Nudged, ctx);
            }
            Some(Effect::StepDown) => {
                self.push.stopped();
                self.resume_translations_later(ctx);
                self.apply(state::Event::Superseded, ctx);
            }
            Some(Effect::ScheduleRetry) => {
                ctx.run_later(RETRY_DELAY, |session, ctx| {
                    session.apply_ownership(Event::RetryDue, ctx)
                });
            }
        }
    }

    /// The store failed. No other event may ask for what it left undone: a timer does.
    pub(super) fn retry_later(&mut self, retry: Retry, ctx: &mut Context<Self>) {
        self.apply_ownership(Event::Failed { retry }, ctx);
    }

    /// The store refused an operation because it knows another claim.
    pub(super) fn claim_refused(&mut self, ctx: &mut Context<Self>) {
        self.apply_ownership(Event::Refused, ctx);
    }

    /// The time of a lease that begins now.
    pub(super) fn lease_time(&self) -> LeaseTime {
        LeaseTime {
            claim: self.ownership.claim(),
            releases: self.releases,
            attachment: self.state.attachment_number(),
            incarnation: self.receives.incarnation(),
        }
    }

    /// Makes this replica the owner of the inbox. The store releases what is leased.
    pub(super) fn claim(&mut self, ctx: &mut Context<Self>) {
        let claim = Claim::generate();
        self.apply_ownership(Event::ClaimBegun { claim }, ctx);
        self.releases += 1;
        self.receives.mark_released();
        self.push.claimed();
        self.resume_translations_later(ctx);
        self.claimed_by = self.receives.incarnation();
        let op = self
            .store
            .claim_session(self.id, claim, self.settings.delivery_limit, now());
        self.then(
            StoreOperation::Claim,
            op,
            ctx,
            move |session, result, ctx| match result {
                Ok(Claimed { epoch, released }) => {
                    session.released(released, ctx);
                    session.apply_ownership(Event::Claimed { claim, epoch }, ctx);
                }
                Err(error) => {
                    tracing::warn!(session = %session.id, %error, "the session cannot be claimed; retrying");
                    session.retry_later(Retry::Release, ctx);
                }
            },
        );
    }

    /// Repeats a claim that failed, unless another replica has registered or claimed the session since: its caller is newer.
    /// One that renews its registration, or only listens, claims and is no other holder.
    fn claim_again(&mut self, ctx: &mut Context<Self>) {
        let failed = self.ownership.claim();
        let current = self.speaking.until_current();
        ctx.spawn(wrap_future(current).map(move |current, session: &mut Self, ctx| {
            if session.ownership.claim() != failed {
                return;
            }
            match current {
                Ok(()) if session.receives.incarnation() != session.claimed_by => {
                    session.apply_ownership(Event::TakenElsewhere, ctx);
                }
                Ok(()) if session.ownership.was_claimed_elsewhere() => session.claim_unless_taken(failed, ctx),
                Ok(()) => session.claim(ctx),
                Err(_) => session.retry_later(Retry::Release, ctx),
            }
        }));
    }

    /// Repeats a claim, unless the store has that of another replica: this one may have it, although the answer was lost.
    fn claim_unless_taken(&mut self, failed: Option<Claim>, ctx: &mut Context<Self>) {
        let op = self.store.lease(self.id, failed, 0, 0, now());
        self.then(StoreOperation::Lease, op, ctx, move |session, lease, ctx| match lease {
            _ if session.ownership.claim() != failed => {}
            Ok(lease) if lease.superseded => session.apply_ownership(Event::TakenElsewhere, ctx),
            Ok(_) => session.claim(ctx),
            Err(_) => session.retry_later(Retry::Release, ctx),
        });
    }

    /// Releases everything that is leased.
    pub(super) fn release_all(&mut self, ctx: &mut Context<Self>) {
        self.releases += 1;
        self.receives.mark_released();
        self.push.released();
        self.resume_translations_later(ctx);
        let which = self.ownership.release_scope(self.settings.presence.disconnect_after);
        self.release(which, ctx);
    }

    /// Releases some leases, and then delivers the waiting messages.
    pub(super) fn release(&mut self, which: Release, ctx: &mut Context<Self>) {
        let op = self.store.release(self.id, which, self.settings.delivery_limit, now());
        self.then(StoreOperation::Release, op, ctx, |session, result, ctx| match result {
            Ok(released) => session.released(released, ctx),
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "leased messages cannot be released; retrying");
                session.retry_later(Retry::Release, ctx);
            }
        });
    }

    fn released(&mut self, Released { dead, depth, .. }: Released, ctx: &mut Context<Self>) {
        if dead > 0 {
            tracing::warn!(session = %self.id, dead, "messages reached the delivery limit: dead-lettered");
        }
        self.shared.set_depth(depth);
        self.push.note_arrival();
        self.apply(state::Event::DepthChanged { depth }, ctx);
    }

    /// Acknowledges messages, and answers the caller if it waits.
    pub(super) fn acknowledge(
        &mut self,
        which: Acknowledge,
        reply: Option<oneshot::Sender<Result<Acknowledged, BrokerError>>>,
        ctx: &mut Context<Self>,
    ) {
        let traced = self.shared.traced();
        let spans = match &which {
            Acknowledge::Ids(messages) | Acknowledge::Seen(messages) | Acknowledge::Concluded(messages, _) => {
                traced.acknowledge(messages)
            }
            Acknowledge::UpTo(message) => traced.acknowledge_up_to(*message),
        };
        let op = self.store.acknowledge(self.id, which, now());
        self.finish_acknowledge(ending_with(spans, op), reply, ctx);
    }

    /// Handles the result of an acknowledgement that was begun.
    pub(super) fn finish_acknowledge(
        &mut self,
        op: Op<Acknowledged>,
        reply: Option<oneshot::Sender<Result<Acknowledged, BrokerError>>>,
        ctx: &mut Context<Self>,
    ) {
        self.then(StoreOperation::Acknowledge, op, ctx, move |session, result, ctx| {
            if let Ok(done) = &result {
                session.acknowledged(done, ctx);
            }
            match reply {
                Some(reply) => drop(reply.send(result.map_err(Into::into))),
                None => {
                    if let Err(error) = result {
                        tracing::warn!(session = %session.id, %error, "an acknowledgement is lost: expect a repeat");
                        // No caller repeats it, and what stays leased keeps the window closed.
                        session.retry_later(Retry::Release, ctx);
                    }
                }
            }
        });
    }

    /// Messages were acknowledged: notifies their senders, and delivers the waiting ones.
    pub(super) fn acknowledged(&mut self, done: &Acknowledged, ctx: &mut Context<Self>) {
        self.counters.acknowledged(done.acknowledged - done.dead);
        for message in &done.tracked {
            message.progress.advance_to(DeliveryStatus::Acknowledged);
        }
        self.shared.set_depth(done.depth);
        self.apply(state::Event::DepthChanged { depth: done.depth }, ctx);
    }
}
