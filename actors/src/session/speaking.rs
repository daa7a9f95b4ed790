//! Puts leased messages into the versions that their recipient declares, before they leave for its client.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use lens::Plan;

use super::Member;
use crate::{
    clock::now,
    locked::Locked,
    model::{BrokerError, Message, MessageId, ProjectEvent, SessionId, Transformed},
    registry::{Catalog, LargeWork, ON_WORKER_BYTES_MAX, WorkBudget},
    speech::{FORMS, Form, FormRequest, Passage, wants_complement},
    storage::{Delivery, Lease, Op, Store, StoreError},
    trace::Attribute,
};

/// Work after which other tasks of the worker have a turn, in nanoseconds of the slowest case.
const WORK_PER_TURN: u64 = 2_000_000;
/// How often the messages of a lease are transformed while the session changes what it declares.
const TRIES_MAX: usize = 4;
/// The pause before a lease fails whose versions cannot be known: it is tried again at once.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// The project of a session, as far as the versions of messages depend on it.
pub(crate) trait SpokenProject: Send + Sync {
    fn catalog(&self) -> &Catalog;
    fn store(&self) -> &Arc<dyn Store>;
    /// The session as the directory has it now.
    fn member(&self, session: SessionId) -> Option<Arc<Member>>;
    /// The store answers at once, and no other replica changes lenses.
    fn answers_at_once(&self) -> bool;
    /// Other replicas change lenses.
    fn is_shared(&self) -> bool;
    /// Changes of other replicas were missed and are not read yet.
    fn is_behind(&self) -> bool;
    /// Waits until every change is known that any replica made before the call.
    fn until_current(&self) -> BoxFuture<'static, Result<(), BrokerError>>;
    /// Transforms its large messages.
    fn large_transforms(&self) -> &LargeWork;
}

/// The messages of a lease that are not delivered.
#[derive(Debug, Default)]
pub(crate) struct Unspoken {
    /// Those that could not be transformed, each with the reason.
    pub failed: Vec<(MessageId, String)>,
    /// All of a lease that failed because their versions cannot be known now. The store has leased them.
    pub undecided: Vec<MessageId>,
}

/// Filled when the lease is answered.
pub(crate) type Failed = Arc<Locked<Unspoken>>;

/// What a session needs to put messages into its versions.
#[derive(Clone)]
pub(crate) struct Speaking {
    session: SessionId,
    project: Arc<dyn SpokenProject>,
}

/// The messages of a lease in the versions of a session, by their places in the lease.
#[derive(Default)]
struct Attempt {
    forms: Vec<(usize, Arc<Message>, Arc<Transformed>)>,
    failed: Vec<(usize, String)>,
    /// The session cannot read a message, as far as this replica knows.
    is_unreadable: bool,
}

impl Speaking {
    pub fn new(session: SessionId, project: Arc<dyn SpokenProject>) -> Self {
        Self { session, project }
    }

    /// A lease whose messages are in the versions that the session declares when it is answered. Those that cannot be are
    /// left out, and listed: None if there are none for certain.
    pub fn translate(&self, op: Op<Lease>) -> (Op<Lease>, Option<Failed>) {
        if self.project.answers_at_once() && !self.project.catalog().has_lenses() {
            return (op, None);
        }
        let (speaking, failed) = (self.clone(), Failed::default());
        let list = Arc::clone(&failed);
        let translated = async move {
            let mut lease = op.await?;
            // Lenses may have come while the store was asked.
            if !speaking.is_needed(&lease.deliveries) {
                return Ok(lease);
            }
            if let Err(error) = speaking.put_in_versions(&mut lease, &list).await {
                tokio::time::sleep(FAILURE_PAUSE).await;
                let undecided = lease.deliveries.iter().map(|delivery| delivery.message.id);
                list.lock().undecided = undecided.collect();
                return Err(error);
            }
            Ok(lease)
        };
        (Box::pin(translated), Some(failed))
    }

    /// Whether messages are to be translated. A project without lenses pays this branch; on a shared store, messages that
    /// the session cannot read may need a lens that another replica has just registered.
    pub fn is_needed(&self, deliveries: &[Delivery]) -> bool {
        if deliveries.is_empty() {
            return false;
        }
        self.project.catalog().has_lenses() || self.project.is_shared() && self.is_any_unreadable(deliveries)
    }

    fn is_any_unreadable(&self, deliveries: &[Delivery]) -> bool {
        let Some(member) = self.member() else { return false };
        let capabilities = &member.record.capabilities;
        let passage = |delivery: &Delivery| Passage::of(self.project.catalog(), capabilities, &delivery.message);
        !capabilities.supported_protocols.is_empty()
            && deliveries
                .iter()
                .any(|delivery| !matches!(passage(delivery), Passage::AsSent))
    }

    /// Waits until this replica knows every change that any replica made before the call.
    pub fn until_current(&self) -> BoxFuture<'static, Result<(), BrokerError>> {
        self.project.until_current()
    }

    fn member(&self) -> Option<Arc<Member>> {
        self.project.member(self.session)
    }

    /// Puts the messages of a lease into the versions of the session. What it could not read by the lenses that are known
    /// here is decided by those of every replica.
    ///
    /// # Errors
    /// The lenses cannot be read.
    async fn put_in_versions(&self, lease: &mut Lease, list: &Failed) -> Result<(), StoreError> {
        if !self.project.catalog().until_lenses_are_read().await {
            return Err(StoreError::Unreachable("the lenses cannot be read".to_owned()));
        }
        if self.project.is_behind() {
            self.become_current().await?;
        }
        let mut is_current = !self.project.is_shared();
        for _ in 0..TRIES_MAX {
            let Some(member) = self.member() else { return Ok(()) };
            let attempt = self.attempt(&member, &lease.deliveries).await;
            if !is_current && (attempt.is_unreadable || !attempt.failed.is_empty()) {
                self.become_current().await?;
                is_current = true;
            } else if self.member().is_none_or(|now| declares_the_same(&now, &member)) {
                self.note(&attempt, &lease.deliveries).await;
                list.lock().failed = attempt.apply(&mut lease.deliveries);
                return Ok(());
            }
        }
        let error = "the session changes its versions while its messages are transformed";
        Err(StoreError::Unreachable(error.to_owned()))
    }

    /// Keeps with the receipts, and in the event log, what the session is about to get. The delivery does not depend on it.
    async fn note(&self, attempt: &Attempt, leased: &[Delivery]) {
        if attempt.forms.is_empty() {
            return;
        }
        let (store, now) = (self.project.store(), now());
        let mut notes = Vec::with_capacity(attempt.forms.len());
        for (at, _, transformed) in &attempt.forms {
            let Delivery { message, count } = &leased[*at];
            let event = ProjectEvent::Transformed {
                message: message.id,
                session: self.session,
                delivery: *count,
                transformed: Arc::clone(transformed),
            };
            store.record(event, now);
            notes.push((message.id, Arc::clone(transformed)));
        }
        if let Err(error) = store.note_transformed(self.session, notes).await {
            tracing::warn!(session = %self.session, %error, "the receipts do not say that messages were transformed");
        }
    }

    async fn become_current(&self) -> Result<(), StoreError> {
        let current = self.project.until_current().await;
        current.map_err(|_| StoreError::Unreachable("the lenses of other replicas cannot be read".to_owned()))
    }

    async fn attempt(&self, member: &Member, leased: &[Delivery]) -> Attempt {
        let mut attempt = Attempt::default();
        let capabilities = &member.record.capabilities;
        if capabilities.supported_protocols.is_empty() {
            return attempt;
        }
        let wants_complement = wants_complement(capabilities);
        let mut work = 0;
        for (at, delivery) in leased.iter().enumerate() {
            let sent = &delivery.message;
            let form = match Passage::of(self.project.catalog(), capabilities, sent) {
                Passage::AsSent => continue,
                Passage::Unreadable => {
                    attempt.is_unreadable = true;
                    continue;
                }
                Passage::Kept(form) => Ok(form),
                Passage::Make(plan) => self.make(plan, sent, wants_complement, &mut work).await,
            };
            match form {
                Ok(form) => {
                    let message = form.of_message(sent);
                    let made = message.map(|message| (at, message, Arc::clone(form.kept())));
                    attempt.forms.extend(made);
                }
                Err(reason) => attempt.failed.push((at, reason)),
            }
            if work > WORK_PER_TURN {
                work = 0;
                tokio::task::yield_now().await;
            }
        }
        attempt
    }

    /// Transforms a message and keeps the form of a broadcast for its other recipients. The error is the note of the dead letter.
    async fn make(
        &self,
        plan: Arc<Plan>,
        sent: &Arc<Message>,
        wants_complement: bool,
        work: &mut u64,
    ) -> Result<Arc<Form>, String> {
        let (catalog, message) = (self.project.catalog().clone(), Arc::clone(sent));
        let member = self.member();
        let traced = member.as_ref().map(|member| member.shared.traced());
        let mut span = traced.and_then(|traced| traced.begin_transform(sent));
        if let Some(span) = &mut span {
            span.set("messaging.message.id", Attribute::Text(sent.id.to_string()));
        }
        let make = move || {
            let budget = WorkBudget::default();
            let text = message.text().ok_or("the envelope cannot be read")?;
            let headers = message.transform_headers();
            let request = FormRequest {
                plan: &plan,
                protocol_name: text.protocol_name,
                payload: text.payload,
                rule: headers.transform,
                complement: headers.complement(),
                wants_complement,
            };
            let form = Form::make(&catalog, &request, &budget).map_err(|failure| match &message.origin {
                None => failure.to_string(),
                // Its sender may not know the versions of this project.
                Some(_) => "the message could not be transformed for its recipient".to_owned(),
            })?;
            Ok((form, budget.spent()))
        };
        let made = if sent.body().len() > ON_WORKER_BYTES_MAX {
            let made = self.project.large_transforms().run(make).await;
            made.unwrap_or_else(|error| Err(error.to_string()))
        } else {
            caught(make)
        };
        if let (Some(mut span), Some(traced), Err(_)) = (span, traced, &made) {
            span.fail("transform_failed");
            drop(span);
            traced.fail_transform(sent.id, self.session);
        }
        let (form, spent) = made?;
        *work += spent;
        if sent.recipient.is_none() {
            FORMS.keep(sent.id, sent.body().len(), Arc::clone(&form));
        }
        Ok(form)
    }
}

impl Attempt {
    /// Puts the forms in their places and takes out what failed. Returns that.
    fn apply(self, deliveries: &mut Vec<Delivery>) -> Vec<(MessageId, String)> {
        for (at, message, _) in self.forms {
            deliveries[at].message = message;
        }
        if self.failed.is_empty() {
            return Vec::new();
        }
        let mut at = 0..;
        let mut places = self.failed.iter().map(|(place, _)| *place).peekable();
        let ids: Vec<_> = self
            .failed
            .iter()
            .map(|(place, _)| deliveries[*place].message.id)
            .collect();
        deliveries.retain(|_| at.next() != places.peek().copied() || places.next().is_none());
        ids.into_iter()
            .zip(self.failed.into_iter().map(|(_, reason)| reason))
            .collect()
    }
}

/// What `make` returns. A panic is an error of this message: the session delivers its other messages.
fn caught<T>(make: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let made = catch_unwind(AssertUnwindSafe(make));
    made.unwrap_or_else(|_| Err("the transformation panicked".to_owned()))
}

/// Whether a session that registered again gets messages as before.
fn declares_the_same(now: &Arc<Member>, before: &Arc<Member>) -> bool {
    Arc::ptr_eq(now, before) || now.record.capabilities == before.record.capabilities
}

#[cfg(test)]
mod tests {
    use super::caught;

    #[test]
    fn a_panic_is_an_error_of_its_message() {
        assert_eq!(caught(|| Ok(1)), Ok(1));
        let panicked: Result<(), _> = caught(|| panic!("a defect"));
        assert_eq!(panicked, Err("the transformation panicked".to_owned()));
    }
}
