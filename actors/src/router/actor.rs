//! The router's actor: gives messages their ids and times, appends them to the store in batches, nudges the recipients
//! that want a wakeup, and answers the senders.

use std::{collections::HashSet, sync::Arc};

use actix::{Actor, ActorFutureExt, AsyncContext, Context, Handler, Supervised, WrapFuture};
use tokio::sync::oneshot;

use super::{AcceptSpans, Recipients, ReplyBarrier, Route, RouteAnswer, Routed, Submission};
use crate::{
    clock::{Now, fine_ns, now},
    directory::{AudienceQuery, Directory, SelectedRecipients, TransformedFor},
    metrics::{METRICS, ProjectCounters, StoreOperation},
    model::{ActorKind, BrokerError, Message, MessageIds, MissingSession, ProjectEvent, Transforms},
    ops::then,
    policy::{PolicyLimits, ProjectPolicy},
    session::Member,
    speech::{FORMS, Form},
    storage::{Append, Appended, Audience, RecipientRefusal, SendResult, Store, StoreError},
    supervise::Envelope,
    trace,
};

/// Submissions that one append takes at most. Others are queued for the next.
const APPEND_LEN_MAX: usize = 4096;

/// Appends that run at the same time at most.
const CONCURRENT_APPENDS_MAX: usize = 2;

/// Bytes of messages that are queued or being appended at most, so that a slow store does not fill the memory. A single
/// route of any size is taken when the router has nothing else.
pub const ROUTER_BYTES_MAX: usize = 32 * 1024 * 1024;

/// How often the recipients of a broadcast are selected again because sessions came or went before the append. After that
/// the broadcast goes to the recipients that were selected last.
const ROSTER_RETRIES_MAX: usize = 4;

/// The router of one project. The messages of one sender stay in order: of the appends that run at the same time, only
/// the last may be retried.
pub struct Router {
    directory: Arc<Directory>,
    store: Arc<dyn Store>,
    policy: Arc<ProjectPolicy>,
    counters: Arc<ProjectCounters>,
    /// Has the directory read again from the store, and then sends on the channel; drops the channel if the store fails.
    resync_directory: Box<dyn Fn(oneshot::Sender<()>)>,
    /// The limits for the batch that was begun last.
    limits: Arc<PolicyLimits>,
    ids: MessageIds,
    /// Counts the routes, so that a session is nudged once for each.
    batch_number: u64,
    appends_running: usize,
    /// Messages of the appends that run.
    appending_len: usize,
    /// The last of the appends that run may have to be retried.
    may_retry: bool,
    queued: Vec<Route>,
    /// Messages of `queued`.
    queued_len: usize,
    /// Bytes of messages that are queued or being appended.
    bytes: usize,
}

/// The recipients of a message, as the directory has them.
enum ResolvedRecipients {
    One(Arc<Member>),
    Many(Box<ManyRecipients>),
    Missing(Box<BrokerError>),
}

/// The recipients of a broadcast.
struct ManyRecipients {
    audience: Box<AudienceQuery>,
    selected: SelectedRecipients,
}

/// A message that the store was asked to accept.
struct PendingMessage {
    message: Arc<Message>,
    to: ResolvedRecipients,
    idempotency_key: Option<String>,
    is_report: bool,
    forms: Option<Box<[Arc<Form>]>>,
    spans: Option<Box<AcceptSpans>>,
}

/// The messages of one append and the routes that they came in.
struct AppendBatch {
    messages: Vec<PendingMessage>,
    /// The answers of the store to the first of `messages`.
    answered: Vec<Appended>,
    routes: Vec<PendingRoute>,
    bytes: usize,
    /// How often the recipients may still be selected again.
    retries_left: usize,
    /// When the batch was begun, on the fine clock.
    begun_ns: u64,
}

/// What became of the messages of a batch.
#[derive(Default)]
struct Tally {
    accepted: usize,
    refused: usize,
    repeated: usize,
    /// Copies of accepted messages.
    enqueued: usize,
}

impl PendingMessage {
    fn has_many_recipients(&self) -> bool {
        matches!(self.to, ResolvedRecipients::Many(_))
    }

    fn recipients_len(&self) -> usize {
        match &self.to {
            ResolvedRecipients::One(_) => 1,
            ResolvedRecipients::Many(many) => many.selected.members.len(),
            ResolvedRecipients::Missing(_) => 0,
        }
    }
}

impl Tally {
    /// Counts the result of one message with so many recipients. A broadcast without recipients is accepted.
    fn count(&mut self, result: &Result<Appended, StoreError>, recipients: usize) {
        match result {
            Ok(Appended::Accepted { refused, refusal, .. }) => {
                let copies = recipients.saturating_sub(refused.len());
                if copies == 0 && refusal.is_some() {
                    self.refused += 1;
                } else {
                    self.accepted += 1;
                }
                self.enqueued += copies;
            }
            Ok(Appended::Duplicate(_)) => self.repeated += 1,
            Ok(Appended::KeyReserved | Appended::RosterOutdated) | Err(_) => self.refused += 1,
        }
    }
}

fn submission_count(routes: &[Route]) -> usize {
    routes.iter().map(|route| route.submissions.len()).sum()
}

fn bytes_of(routes: &[Route]) -> usize {
    let submissions = routes.iter().flat_map(|route| &route.submissions);
    submissions.map(|submission| submission.draft.encoded_len()).sum()
}

/// A route whose messages are being appended.
struct PendingRoute {
    len: usize,
    submitted_ns: u64,
    reply: oneshot::Sender<Vec<RouteAnswer>>,
}

impl Router {
    /// `resync_directory` reads the directory again from the store, then sends; it drops the channel if the store fails.
    pub(crate) fn new(
        directory: Arc<Directory>,
        store: Arc<dyn Store>,
        policy: Arc<ProjectPolicy>,
        counters: Arc<ProjectCounters>,
        resync_directory: impl Fn(oneshot::Sender<()>) + 'static,
    ) -> Self {
        Self {
            directory,
            store,
            limits: policy.limits(),
            policy,
            counters,
            resync_directory: Box::new(resync_directory),
            ids: MessageIds::default(),
            batch_number: 0,
            appends_running: 0,
            appending_len: 0,
            may_retry: false,
            queued: Vec::new(),
            queued_len: 0,
            bytes: 0,
        }
    }

    /// Whether the queue is to be appended now. A shared store gets the next append while it works on one, if the queue
    /// is at least half as long as what is being appended.
    fn can_append(&self) -> bool {
        let is_worth_it = || self.appends_running < CONCURRENT_APPENDS_MAX && 2 * self.queued_len >= self.appending_len;
        self.appends_running == 0 || (self.store.is_shared() && !self.may_retry && is_worth_it())
    }

    fn route(&mut self, routes: Vec<Route>, ctx: &mut Context<Self>) {
        let (now, begun_ns) = (now(), fine_ns());
        self.limits = self.policy.limits();
        let mut batch = AppendBatch {
            messages: Vec::with_capacity(submission_count(&routes)),
            answered: Vec::new(),
            routes: Vec::with_capacity(routes.len()),
            bytes: bytes_of(&routes),
            retries_left: ROSTER_RETRIES_MAX,
            begun_ns,
        };
        for Route {
            submissions,
            submitted_ns,
            reply,
        } in routes
        {
            batch.routes.push(PendingRoute {
                len: submissions.len(),
                submitted_ns,
                reply,
            });
            let messages = submissions
                .into_iter()
                .map(|submission| self.prepare(submission, now, begun_ns));
            batch.messages.extend(messages);
        }
        self.appends_running += 1;
        self.appending_len += batch.messages.len();
        self.may_retry = self.store.is_shared() && batch.messages.iter().any(PendingMessage::has_many_recipients);
        self.append(batch, ctx);
    }

    /// Appends the messages of a batch that the store has not answered.
    fn append(&mut self, mut batch: AppendBatch, ctx: &mut Context<Self>) {
        let checks_roster = self.store.is_shared() && batch.retries_left > 0;
        if trace::is_on() {
            let spans = batch.messages.iter_mut().filter_map(|pending| pending.spans.as_mut());
            spans.for_each(|spans| spans.begin_store());
        }
        let unanswered = batch.messages.iter().skip(batch.answered.len());
        let appends = unanswered
            .map(|pending| self.append_request(pending, checks_roster))
            .collect();
        let op = self.store.append(appends, now());
        then(op, self, ctx, move |router, appended, ctx| match appended {
            Ok(appended) => {
                let is_outdated = |answer: &Appended| *answer == Appended::RosterOutdated;
                let must_retry = checks_roster && appended.iter().any(is_outdated);
                batch
                    .answered
                    .extend(appended.into_iter().take_while(|answer| !is_outdated(answer)));
                if must_retry {
                    return router.retry_append(batch, ctx);
                }
                router.finish_append(Ok(()), batch, ctx);
            }
            Err(error) => router.finish_append(Err(error), batch, ctx),
        });
    }

    /// Appends the rest of a batch once the directory has the current sessions.
    fn retry_append(&mut self, mut batch: AppendBatch, ctx: &mut Context<Self>) {
        batch.retries_left -= 1;
        let (done, resynced) = oneshot::channel();
        (self.resync_directory)(done);
        let retried = resynced.into_actor(self).map(move |resynced, router, ctx| {
            if resynced.is_err() {
                let error = StoreError::Unreachable("the sessions cannot be read".to_owned());
                return router.finish_append(Err(error), batch, ctx);
            }
            let now = now();
            for pending in batch.messages.iter_mut().skip(batch.answered.len()) {
                if let ResolvedRecipients::Many(many) = &mut pending.to {
                    many.selected = router.directory.select_recipients(&many.audience, now);
                }
            }
            router.append(batch, ctx);
        });
        ctx.spawn(retried);
    }

    fn finish_append(&mut self, result: Result<(), StoreError>, batch: AppendBatch, ctx: &mut Context<Self>) {
        self.appends_running -= 1;
        self.appending_len -= batch.messages.len();
        self.bytes -= batch.bytes;
        // An append that may be retried is the last one.
        self.may_retry &= self.appends_running > 0;
        self.send_answers(result, batch);
        self.route_queued(ctx);
    }

    fn append_request(&self, pending: &PendingMessage, checks_roster: bool) -> Append {
        let (audience, roster_version) = match &pending.to {
            ResolvedRecipients::One(member) => (Audience::One(member.record.id), None),
            ResolvedRecipients::Many(many) => {
                let ids = many.selected.members.iter().map(|member| member.record.id);
                (
                    Audience::Many(ids.collect()),
                    checks_roster.then_some(many.selected.roster_version),
                )
            }
            ResolvedRecipients::Missing(_) => (Audience::Many(Arc::default()), None),
        };
        let capacity = self.limits.queue_capacity;
        Append {
            message: Arc::clone(&pending.message),
            audience,
            queue_capacity: if pending.is_report {
                capacity.div_ceil(2)
            } else {
                capacity
            },
            idempotency_key: pending.idempotency_key.clone(),
            roster_version,
        }
    }

    fn route_queued(&mut self, ctx: &mut Context<Self>) {
        while !self.queued.is_empty() && self.can_append() {
            let routes = self.take_queued();
            self.queued_len -= submission_count(&routes);
            self.route(routes, ctx);
        }
    }

    fn take_queued(&mut self) -> Vec<Route> {
        let mut len = 0;
        let full = self.queued.iter().position(|route| {
            len += route.submissions.len();
            len > APPEND_LEN_MAX
        });
        match full {
            Some(at) => self.queued.drain(..at.max(1)).collect(),
            None => std::mem::take(&mut self.queued),
        }
    }

    /// Gives a submission its id, its time and its recipients.
    fn prepare(&self, submission: Submission, now: Now, now_ns: u64) -> PendingMessage {
        let Submission {
            draft,
            target,
            idempotency_key,
            is_tracked,
            is_report,
            forms,
            spans,
        } = submission;
        let id = self.ids.next(now);
        for form in forms.iter().flatten() {
            FORMS.keep(id, draft.encoded_len(), Arc::clone(form));
        }
        let (recipient, to) = match target {
            Recipients::One(member) => (Some(member.record.id), ResolvedRecipients::One(member)),
            Recipients::Many(audience) => {
                let selected = self.directory.select_recipients(&audience, now);
                (
                    None,
                    ResolvedRecipients::Many(Box::new(ManyRecipients { audience, selected })),
                )
            }
            Recipients::Missing(error) => (None, ResolvedRecipients::Missing(error)),
        };
        PendingMessage {
            message: draft.accepted_at(now_ns).seal(id, recipient, now, is_tracked),
            to,
            idempotency_key,
            is_report,
            forms,
            spans,
        }
    }

    /// Nudges the recipients and answers the senders. An error holds for the messages without an answer.
    fn send_answers(&mut self, result: Result<(), StoreError>, batch: AppendBatch) {
        let AppendBatch {
            messages,
            answered,
            routes,
            begun_ns,
            ..
        } = batch;
        let (now_ns, mut tally) = (fine_ns(), Tally::default());
        METRICS.store_operation(StoreOperation::Append, now_ns.saturating_sub(begun_ns), result.is_ok());
        let failed = result.err().inspect(|error| {
            tracing::warn!(%error, messages = messages.len() - answered.len(), "messages were not accepted");
        });
        let failed = failed.map(Err).into_iter().cycle();
        let mut results = answered.into_iter().map(Ok).chain(failed);
        let mut messages = messages.into_iter();
        for PendingRoute {
            len,
            submitted_ns,
            reply,
        } in routes
        {
            self.batch_number += 1;
            METRICS
                .accept
                .observe_many(now_ns.saturating_sub(submitted_ns), len as u64);
            let mut nudges = Vec::new();
            let (mut sent, mut answers) = (Vec::with_capacity(len), Vec::with_capacity(len));
            for (mut pending, result) in messages.by_ref().zip(results.by_ref()).take(len) {
                answers.push(self.answer(&mut pending, result, &mut nudges, &mut tally));
                sent.push(pending.message);
            }
            let barrier = ReplyBarrier::new(sent, answers, reply);
            for member in nudges {
                self.directory.nudge(&member, Some(Arc::clone(&barrier) as _));
            }
        }
        let Tally {
            accepted,
            refused,
            repeated,
            enqueued,
        } = tally;
        self.counters.answered(accepted, refused, repeated, enqueued);
    }

    fn answer(
        &self,
        pending: &mut PendingMessage,
        result: Result<Appended, StoreError>,
        nudges: &mut Vec<Arc<Member>>,
        tally: &mut Tally,
    ) -> RouteAnswer {
        let recipients = pending.recipients_len();
        tally.count(&result, recipients);
        if let Some(spans) = pending.spans.take() {
            spans.finish(&pending.message, recipients, &result);
        }
        let (queue_len, refused, refusal) = match result {
            Ok(Appended::Accepted {
                queue_len,
                refused,
                refusal,
            }) => (queue_len, refused, refusal),
            Ok(Appended::Duplicate(first)) => return Ok(Routed::from_first_result(first)),
            Ok(Appended::KeyReserved) => return Err(BrokerError::key_in_use()),
            // All retries are used.
            Ok(Appended::RosterOutdated) => return Err(BrokerError::unavailable()),
            Err(error) => return Err(error.into()),
        };
        let mut nudge = |member: &Arc<Member>| {
            if member.shared.wants_wakeup() && member.shared.is_first_in_batch(self.batch_number) {
                nudges.push(Arc::clone(member));
            }
        };
        let (audience, skipped) = match &pending.to {
            ResolvedRecipients::Missing(error) => return Err((**error).clone()),
            ResolvedRecipients::One(member) => {
                match refusal {
                    Some(RecipientRefusal::Gone) => return Err(MissingSession::Ended.into()),
                    Some(RecipientRefusal::Full(full)) => return Err(full.into()),
                    None => {}
                }
                if queue_len > 0 {
                    self.warn_if_nearly_full(member, queue_len);
                    member.shared.set_waiting(queue_len);
                    nudge(member);
                }
                (1, 0)
            }
            ResolvedRecipients::Many(many) => {
                let selected = &many.selected;
                let refused: HashSet<_> = refused.iter().collect();
                // If nothing waits, the message was pushed to all of them.
                let waiting = if queue_len > 0 { &*selected.members } else { &[] };
                for member in waiting.iter().filter(|member| !refused.contains(&member.record.id)) {
                    member.shared.add_waiting();
                    // It may have been pushed to some of them: the number is not exact.
                    member.shared.mark_waiting_outdated();
                    nudge(member);
                }
                (selected.members.len(), selected.skipped)
            }
        };
        let mut result = SendResult::accepted(pending.message.id, audience, queue_len, refused);
        result.skipped = skipped;
        result.transforms = transforms_of(pending.forms.take(), &mut pending.to);
        Ok(Routed {
            result,
            status: None,
            is_repeat: false,
            outcome: None,
        })
    }

    /// Logs that a queue has grown past the warning.
    fn warn_if_nearly_full(&self, member: &Member, queue_len: usize) {
        if queue_len >= self.limits.queue_warning_len && member.shared.waiting() < self.limits.queue_warning_len {
            let capacity = self.limits.queue_capacity;
            tracing::warn!(session = %member.record.id, queue_len, capacity, "an inbox is nearly full");
        }
    }
}

/// What lenses do to a message for these recipients.
fn transforms_of(forms: Option<Box<[Arc<Form>]>>, to: &mut ResolvedRecipients) -> Option<Arc<Transforms>> {
    let (rows, failed) = match to {
        ResolvedRecipients::Many(many) => {
            let selected = &mut many.selected;
            (
                std::mem::take(&mut selected.transformed),
                std::mem::take(&mut selected.failed),
            )
        }
        ResolvedRecipients::One(_) | ResolvedRecipients::Missing(_) => {
            return Some(Transforms::of_one(forms?.first()?.kept()));
        }
    };
    if rows.is_empty() && failed.is_empty() {
        return None;
    }
    // Both forms of one path, with and without a complement, are one row of the answer.
    let form_of = |row: &TransformedFor| {
        let form = forms.iter().flatten().find(|form| form.has_path(&row.plan))?;
        Some((Arc::clone(form.kept()), row.recipients))
    };
    let versions = rows.iter().filter_map(form_of).collect();
    Some(Arc::new(Transforms { versions, failed }))
}

impl Actor for Router {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.route_queued(ctx);
    }
}

impl Supervised for Router {
    fn restarting(&mut self, _: &mut Context<Self>) {
        // Senders of batches that were being appended see their reply dropped. The queue is kept.
        (self.appends_running, self.appending_len, self.may_retry) = (0, 0, false);
        self.bytes = bytes_of(&self.queued);
        self.store.record(ProjectEvent::restarted(ActorKind::Router), now());
    }
}

impl Handler<Envelope<Route>> for Router {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Route>, ctx: &mut Context<Self>) {
        let bytes = bytes_of(std::slice::from_ref(&message));
        self.counters.received(message.submissions.len());
        if self.bytes > 0 && self.bytes + bytes > ROUTER_BYTES_MAX {
            self.counters.answered(0, message.submissions.len(), 0, 0);
            let refused = message.submissions.iter().map(|_| Err(BrokerError::unavailable()));
            // A sender that is gone does not need the answer.
            let _ = message.reply.send(refused.collect());
            return;
        }
        self.bytes += bytes;
        self.queued_len += message.submissions.len();
        self.queued.push(message);
        self.route_queued(ctx);
    }
}

crate::supervise::panics!(Router);
