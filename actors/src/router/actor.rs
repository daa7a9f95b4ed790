use std::{collections::HashSet, sync::Arc};

use actix::{Actor, Context, Handler, Supervised};
use tokio::sync::oneshot;

use super::{
    Answer, Route, Routed, Submission, Target,
    handover::{Handover, Open},
};
use crate::{
    clock::{Now, now},
    model::{BrokerError, Message, MessageIds},
    project::{Charter, Directory, Terms},
    session::{Member, Nudge},
    storage::{Append, Appended, Audience, Outcome, Store, StoreError},
    supervise::{Posted, settle},
};

/// Most submissions that one append takes; what arrives meanwhile gathers for the next.
const BATCH_LEN_MAX: usize = 4096;

/// The router of one project. One append is under way at a time, so what one sender sends stays in order.
pub struct Router {
    directory: Arc<Directory>,
    store: Arc<dyn Store>,
    charter: Arc<Charter>,
    /// Those of the batch that is under way.
    terms: Arc<Terms>,
    ids: MessageIds,
    batch: u64,
    appending: bool,
    gathered: Vec<Route>,
}

/// Who gets a message, beside the message.
enum Addressees {
    One(Arc<Member>),
    Many { members: Vec<Arc<Member>>, skipped: usize },
    Nobody(BrokerError),
}

/// What was handed to the store, waiting for its answer.
struct Sent {
    message: Arc<Message>,
    to: Addressees,
}

/// One route, while its messages are being appended.
struct Underway {
    len: usize,
    reply: oneshot::Sender<Vec<Answer>>,
}

impl Router {
    pub(crate) fn new(directory: Arc<Directory>, store: Arc<dyn Store>, charter: Arc<Charter>) -> Self {
        Self {
            directory,
            store,
            terms: charter.terms(),
            charter,
            ids: MessageIds::default(),
            batch: 0,
            appending: false,
            gathered: Vec::new(),
        }
    }

    fn route(&mut self, routes: Vec<Route>, ctx: &mut Context<Self>) {
        let now = now();
        self.terms = self.charter.terms();
        let submissions = routes.iter().map(|route| route.submissions.len()).sum();
        let (mut appends, mut sent) = (Vec::with_capacity(submissions), Vec::with_capacity(submissions));
        let mut underway = Vec::with_capacity(routes.len());
        for Route { submissions, reply } in routes {
            underway.push(Underway {
                len: submissions.len(),
                reply,
            });
            for submission in submissions {
                let (append, to) = self.accept(submission, now);
                sent.push(Sent {
                    message: Arc::clone(&append.message),
                    to,
                });
                appends.push(append);
            }
        }
        self.appending = true;
        let op = self.store.append(appends, now);
        settle(op, self, ctx, move |router, appended, ctx| {
            router.appending = false;
            router.appended(appended, sent, underway);
            router.route_gathered(ctx);
        });
    }

    fn route_gathered(&mut self, ctx: &mut Context<Self>) {
        let gathered = self.take_gathered();
        if !gathered.is_empty() {
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
    fn accept(&mut self, submission: Submission, now: Now) -> (Append, Addressees) {
        let Submission {
            draft,
            target,
            idempotency_key,
            watched,
        } = submission;
        let id = self.ids.next(now);
        let (recipient, audience, to) = match target {
            Target::One(member) => {
                let id = member.record.id;
                (Some(id), Audience::One(id), Addressees::One(member))
            }
            Target::Many(audience) => {
                let (members, skipped) = self.directory.audience(&audience, now);
                let ids = members.iter().map(|member| member.record.id).collect();
                (None, Audience::Many(ids), Addressees::Many { members, skipped })
            }
            Target::Nobody(error) => (None, Audience::Many(Arc::default()), Addressees::Nobody(error)),
        };
        let message = Arc::new(draft.seal(id, recipient, now, watched));
        (
            Append {
                message,
                audience,
                queue_capacity: self.terms.queue_capacity,
                idempotency_key,
            },
            to,
        )
    }

    fn appended(&mut self, appended: Result<Vec<Appended>, StoreError>, sent: Vec<Sent>, underway: Vec<Underway>) {
        let mut results = match appended {
            Ok(results) => results.into_iter().map(Ok).collect::<Vec<_>>(),
            Err(error) => {
                tracing::warn!(%error, messages = sent.len(), "messages were not accepted");
                sent.iter().map(|_| Err(error.clone())).collect()
            }
        }
        .into_iter();
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
        let Sent { message, to } = sent;
        let (queue_len, refused) = match result {
            Ok(Appended::Accepted { queue_len, refused }) => (queue_len, refused),
            Ok(Appended::Repeated(outcome)) => {
                let skipped = outcome.skipped;
                return Open::Answered(Ok(Routed {
                    outcome,
                    skipped,
                    status: None,
                    repeated: true,
                }));
            }
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
                if !refused.is_empty() {
                    return Open::Answered(Err(self.refusal(member)));
                }
                self.warn_of(member, queue_len);
                member.vitals.set_waiting(queue_len);
                nudge(member);
                (1, 0)
            }
            Addressees::Many { members, skipped } => {
                let refused: HashSet<_> = refused.iter().collect();
                for member in members.iter().filter(|member| !refused.contains(&member.record.id)) {
                    member.vitals.add_waiting();
                    nudge(member);
                }
                (members.len(), *skipped)
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

    /// Why the store refused a direct message: the session has just been released, or its queue is full.
    fn refusal(&self, member: &Member) -> BrokerError {
        let here = self.directory.by_id(member.record.id);
        if here.is_some_and(|member| !member.is_over()) {
            BrokerError::QueueFull {
                limit: self.terms.queue_capacity,
            }
        } else {
            BrokerError::SessionNotFound
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
        self.appending = false;
    }
}

impl Handler<Posted<Route>> for Router {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Route>, ctx: &mut Context<Self>) {
        if self.appending {
            self.gathered.push(message);
        } else {
            self.route(vec![message], ctx);
        }
    }
}

#[cfg(feature = "faults")]
impl Handler<Posted<super::Panic>> for Router {
    type Result = ();

    fn handle(&mut self, _: Posted<super::Panic>, _: &mut Context<Self>) {
        panic!("a fault was injected");
    }
}
