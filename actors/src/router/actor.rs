use std::{collections::HashSet, sync::Arc};

use actix::{Actor, ActorFutureExt, AsyncContext, Context, Handler, Supervised, WrapFuture};
use tokio::sync::oneshot;

use super::{
    Answer, Route, Routed, Submission, Target,
    handover::{Handover, Open},
};
use crate::{
    clock::{Now, now},
    model::{BrokerError, Message, MessageIds, MissingSession},
    project::{Charter, Directory, Found, Terms},
    session::{Member, Nudge},
    storage::{Append, Appended, Audience, Outcome, Refusal, Store, StoreError},
    supervise::{Posted, settle},
};

/// Most submissions that one append takes; what arrives meanwhile gathers for the next.
const BATCH_LEN_MAX: usize = 4096;

/// Most appends under way.
const APPENDS_MAX: usize = 2;

/// Most bytes of messages that are gathered or being appended: a store that is slow does not fill the memory. One route of
/// any size is taken when there is nothing else.
pub const BYTES_MAX: usize = 32 * 1024 * 1024;

/// How often the audience of a broadcast is looked up anew because sessions came or went meanwhile. The last time it is
/// the audience all the same.
const TRIES: usize = 4;

/// The router of one project. What one sender sends stays in order: of several appends under way none can be begun anew,
/// but for the last.
pub struct Router {
    directory: Arc<Directory>,
    store: Arc<dyn Store>,
    charter: Arc<Charter>,
    /// Has the directory catch up with the store, and then tells what it is given; lets go of it when the store could not
    /// say.
    refresh: Box<dyn Fn(oneshot::Sender<()>)>,
    /// Those of the batch that is under way.
    terms: Arc<Terms>,
    ids: MessageIds,
    batch: u64,
    /// Appends under way, and their messages.
    appends: usize,
    underway_len: usize,
    /// The last of them may have to be begun anew.
    may_repeat: bool,
    gathered: Vec<Route>,
    /// Their messages.
    gathered_len: usize,
    /// Of what is gathered or being appended.
    bytes: usize,
}

/// Who gets a message, beside the message.
enum Addressees {
    One(Arc<Member>),
    Many {
        audience: Box<super::Audience>,
        found: Found,
    },
    Nobody(BrokerError),
}

/// What was handed to the store, waiting for its answer.
struct Sent {
    message: Arc<Message>,
    to: Addressees,
    idempotency_key: Option<String>,
}

/// What the store is asked to accept, and for whom.
struct Batch {
    sent: Vec<Sent>,
    /// What it has answered to those of them that come first.
    answered: Vec<Appended>,
    underway: Vec<Underway>,
    bytes: usize,
    /// How often sessions may yet come or go meanwhile.
    tries: usize,
}

impl Sent {
    fn is_for_many(&self) -> bool {
        matches!(self.to, Addressees::Many { .. })
    }
}

fn len_of(routes: &[Route]) -> usize {
    routes.iter().map(|route| route.submissions.len()).sum()
}

fn bytes_of(routes: &[Route]) -> usize {
    let submissions = routes.iter().flat_map(|route| &route.submissions);
    submissions.map(|submission| submission.draft.bytes()).sum()
}

/// One route, while its messages are being appended.
struct Underway {
    len: usize,
    reply: oneshot::Sender<Vec<Answer>>,
}

impl Router {
    pub(crate) fn new(
        directory: Arc<Directory>,
        store: Arc<dyn Store>,
        charter: Arc<Charter>,
        refresh: impl Fn(oneshot::Sender<()>) + 'static,
    ) -> Self {
        Self {
            directory,
            store,
            terms: charter.terms(),
            charter,
            refresh: Box::new(refresh),
            ids: MessageIds::default(),
            batch: 0,
            appends: 0,
            underway_len: 0,
            may_repeat: false,
            gathered: Vec::new(),
            gathered_len: 0,
            bytes: 0,
        }
    }

    /// Whether what was gathered is to be appended now. A store that is far away has the next append at hand when it is
    /// done with one, if that is worth it.
    fn is_due(&self) -> bool {
        let is_worth_it = || self.appends < APPENDS_MAX && 2 * self.gathered_len >= self.underway_len;
        self.appends == 0 || (self.store.is_shared() && !self.may_repeat && is_worth_it())
    }

    fn route(&mut self, routes: Vec<Route>, ctx: &mut Context<Self>) {
        let now = now();
        self.terms = self.charter.terms();
        let mut batch = Batch {
            sent: Vec::with_capacity(len_of(&routes)),
            answered: Vec::new(),
            underway: Vec::with_capacity(routes.len()),
            bytes: bytes_of(&routes),
            tries: TRIES,
        };
        for Route { submissions, reply } in routes {
            batch.underway.push(Underway {
                len: submissions.len(),
                reply,
            });
            let sent = submissions.into_iter().map(|submission| self.accept(submission, now));
            batch.sent.extend(sent);
        }
        self.appends += 1;
        self.underway_len += batch.sent.len();
        self.may_repeat = self.store.is_shared() && batch.sent.iter().any(Sent::is_for_many);
        self.append(batch, ctx);
    }

    /// Has the store accept what it has not answered yet.
    fn append(&mut self, mut batch: Batch, ctx: &mut Context<Self>) {
        let checks_roster = self.store.is_shared() && batch.tries > 0;
        let left = batch.sent.iter().skip(batch.answered.len());
        let appends = left.map(|sent| self.to_append(sent, checks_roster)).collect();
        let op = self.store.append(appends, now());
        settle(op, self, ctx, move |router, appended, ctx| match appended {
            Ok(appended) => {
                let outdated = |answer: &Appended| *answer == Appended::RosterOutdated;
                let is_outdated = checks_roster && appended.iter().any(outdated);
                batch
                    .answered
                    .extend(appended.into_iter().take_while(|answer| !outdated(answer)));
                if is_outdated {
                    return router.append_to_newer(batch, ctx);
                }
                router.done(Ok(()), batch, ctx);
            }
            Err(error) => router.done(Err(error), batch, ctx),
        });
    }

    /// Appends the rest of a batch when the directory has caught up with the store.
    fn append_to_newer(&mut self, mut batch: Batch, ctx: &mut Context<Self>) {
        batch.tries -= 1;
        let (done, refreshed) = oneshot::channel();
        (self.refresh)(done);
        let refreshed = refreshed.into_actor(self).map(move |refreshed, router, ctx| {
            if refreshed.is_err() {
                let error = StoreError::Unreachable("the sessions cannot be looked at".to_owned());
                return router.done(Err(error), batch, ctx);
            }
            let now = now();
            for sent in batch.sent.iter_mut().skip(batch.answered.len()) {
                if let Addressees::Many { audience, found } = &mut sent.to {
                    *found = router.directory.audience(audience, now);
                }
            }
            router.append(batch, ctx);
        });
        ctx.spawn(refreshed);
    }

    fn done(&mut self, result: Result<(), StoreError>, batch: Batch, ctx: &mut Context<Self>) {
        self.appends -= 1;
        self.underway_len -= batch.sent.len();
        self.bytes -= batch.bytes;
        // While it may be, it is the last.
        self.may_repeat &= self.appends > 0;
        self.appended(result, batch);
        self.route_gathered(ctx);
    }

    fn to_append(&self, sent: &Sent, checks_roster: bool) -> Append {
        let (audience, roster) = match &sent.to {
            Addressees::One(member) => (Audience::One(member.record.id), None),
            Addressees::Many { found, .. } => {
                let ids = found.members.iter().map(|member| member.record.id);
                (Audience::Many(ids.collect()), checks_roster.then_some(found.roster))
            }
            Addressees::Nobody(_) => (Audience::Many(Arc::default()), None),
        };
        Append {
            message: Arc::clone(&sent.message),
            audience,
            queue_capacity: self.terms.queue_capacity,
            idempotency_key: sent.idempotency_key.clone(),
            roster,
        }
    }

    fn route_gathered(&mut self, ctx: &mut Context<Self>) {
        while !self.gathered.is_empty() && self.is_due() {
            let gathered = self.take_gathered();
            self.gathered_len -= len_of(&gathered);
            self.route(gathered, ctx);
        }
    }

    fn take_gathered(&mut self) -> Vec<Route> {
        let mut len = 0;
        let full = self.gathered.iter().position(|route| {
            len += route.submissions.len();
            len > BATCH_LEN_MAX
        });
        match full {
            Some(at) => self.gathered.drain(..at.max(1)).collect(),
            None => std::mem::take(&mut self.gathered),
        }
    }

    /// Gives a submission its id, its time and its audience.
    fn accept(&self, submission: Submission, now: Now) -> Sent {
        let Submission {
            draft,
            target,
            idempotency_key,
            watched,
        } = submission;
        let id = self.ids.next(now);
        let (recipient, to) = match target {
            Target::One(member) => (Some(member.record.id), Addressees::One(member)),
            Target::Many(audience) => {
                let found = self.directory.audience(&audience, now);
                (None, Addressees::Many { audience, found })
            }
            Target::Nobody(error) => (None, Addressees::Nobody(error)),
        };
        Sent {
            message: Arc::new(draft.seal(id, recipient, now, watched)),
            to,
            idempotency_key,
        }
    }

    /// `result` is of those that have no answer yet.
    fn appended(&mut self, result: Result<(), StoreError>, batch: Batch) {
        let Batch {
            sent,
            answered,
            underway,
            ..
        } = batch;
        let refused = result.err().inspect(|error| {
            tracing::warn!(%error, messages = sent.len() - answered.len(), "messages were not accepted");
        });
        let refused = refused.map(Err).into_iter().cycle();
        let mut results = answered.into_iter().map(Ok).chain(refused);
        let mut sent = sent.into_iter();
        for Underway { len, reply } in underway {
            self.batch += 1;
            let mut nudges = Vec::new();
            let open = sent.by_ref().zip(results.by_ref()).take(len);
            let open = open
                .map(|(sent, result)| self.answer(sent, result, &mut nudges))
                .collect();
            let handover = Handover::new(open, reply);
            for member in nudges {
                let nudge = |member: &Member| {
                    member.address.tell(Nudge {
                        until_handled: Some(Arc::clone(&handover) as _),
                    })
                };
                // An actor that was given up while the message was on its way has a successor. One whose mailbox is
                // full finds the message in its inbox.
                if nudge(&member).is_err()
                    && let Some(successor) = self.directory.by_id(member.record.id)
                {
                    let _ = nudge(&successor);
                }
            }
        }
    }

    fn answer(&self, sent: Sent, result: Result<Appended, StoreError>, nudges: &mut Vec<Arc<Member>>) -> Open {
        let Sent { message, to, .. } = sent;
        let (queue_len, refused, refusal) = match result {
            Ok(Appended::Accepted {
                queue_len,
                refused,
                refusal,
            }) => (queue_len, refused, refusal),
            Ok(Appended::Repeated(first)) => return Open::Answered(Ok(Routed::repeated(first))),
            Ok(Appended::KeyReserved) => return Open::Answered(Err(BrokerError::key_in_use())),
            // It is begun anew as long as there is hope.
            Ok(Appended::RosterOutdated) => return Open::Answered(Err(BrokerError::unavailable())),
            Err(error) => return Open::Answered(Err(error.into())),
        };
        let mut nudge = |member: &Arc<Member>| {
            if member.vitals.attentive() && member.vitals.first_in_batch(self.batch) {
                nudges.push(Arc::clone(member));
            }
        };
        let (audience, skipped) = match &to {
            Addressees::Nobody(error) => return Open::Answered(Err(error.clone())),
            Addressees::One(member) => {
                match refusal {
                    Some(Refusal::Gone) => return Open::Answered(Err(MissingSession::Ended.into())),
                    Some(Refusal::Full(full)) => return Open::Answered(Err(full.into())),
                    None => {}
                }
                if queue_len > 0 {
                    self.warn_of(member, queue_len);
                    member.vitals.set_waiting(queue_len);
                    nudge(member);
                }
                (1, 0)
            }
            Addressees::Many { found, .. } => {
                let refused: HashSet<_> = refused.iter().collect();
                // Where nothing waits, all of them have it already.
                let waiting = if queue_len > 0 { &*found.members } else { &[] };
                for member in waiting.iter().filter(|member| !refused.contains(&member.record.id)) {
                    member.vitals.add_waiting();
                    // To some of them it may have been handed over.
                    member.vitals.doubt_waiting();
                    nudge(member);
                }
                (found.members.len(), found.skipped)
            }
        };
        let mut outcome = Outcome::accepted(message.id, audience, queue_len, refused);
        outcome.skipped = skipped;
        Open::Accepted {
            message,
            outcome,
            skipped,
        }
    }

    /// Says so when a queue has just grown past the warning.
    fn warn_of(&self, member: &Member, queue_len: usize) {
        if queue_len >= self.terms.queue_warning_len && member.vitals.waiting() < self.terms.queue_warning_len {
            let capacity = self.terms.queue_capacity;
            tracing::warn!(session = %member.record.id, queue_len, capacity, "an inbox is nearly full");
        }
    }
}

impl Actor for Router {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.route_gathered(ctx);
    }
}

impl Supervised for Router {
    fn restarting(&mut self, _: &mut Context<Self>) {
        // Callers of what was under way learn it from the dropped reply. What was gathered is as good as queued.
        (self.appends, self.underway_len, self.may_repeat) = (0, 0, false);
        self.bytes = bytes_of(&self.gathered);
    }
}

impl Handler<Posted<Route>> for Router {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Route>, ctx: &mut Context<Self>) {
        let bytes = bytes_of(std::slice::from_ref(&message));
        if self.bytes > 0 && self.bytes + bytes > BYTES_MAX {
            let refused = message.submissions.iter().map(|_| Err(BrokerError::unavailable()));
            // A sender that has gone does not need the answer.
            let _ = message.reply.send(refused.collect());
            return;
        }
        self.bytes += bytes;
        self.gathered_len += message.submissions.len();
        self.gathered.push(message);
        self.route_gathered(ctx);
    }
}

#[cfg(feature = "faults")]
impl Handler<Posted<super::Panic>> for Router {
    type Result = ();

    fn handle(&mut self, _: Posted<super::Panic>, _: &mut Context<Self>) {
        panic!("a fault was injected");
    }
}
