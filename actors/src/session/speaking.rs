//! Puts leased messages into the versions that their recipient declares, before they leave for its client.

use std::sync::Arc;

use lens::Plan;
use tokio::sync::Semaphore;

use super::Member;
use crate::{
    locked::Locked,
    model::{Message, MessageId},
    registry::{Catalog, WorkBudget},
    speech::{FORMS, Form, FormRequest, Passage, wants_complement},
    storage::{Lease, Op},
    trace::{ActiveSpan, Attribute},
};

/// Bytes of a payload that a worker transforms. A larger one is transformed off the workers.
const ON_WORKER_BYTES_MAX: usize = 256 * 1024;
/// Large payloads that are transformed at once in this process.
static LARGE_TRANSFORMS: Semaphore = Semaphore::const_new(2);
/// Work after which other tasks of the worker have a turn, in nanoseconds of the slowest case.
const WORK_PER_TURN: u64 = 2_000_000;

/// Finds the session as the directory has it now.
pub(crate) type FindMember = Arc<dyn Fn() -> Option<Arc<Member>> + Send + Sync>;

/// Messages of a lease that could not be transformed, each with the reason.
pub(super) type Failed = Arc<Locked<Vec<(MessageId, String)>>>;

/// What a session needs to put messages into its versions.
#[derive(Clone)]
pub(crate) struct Speaking {
    catalog: Catalog,
    find_member: FindMember,
}

impl Speaking {
    pub fn new(catalog: Catalog, find_member: FindMember) -> Self {
        Self { catalog, find_member }
    }

    /// A lease whose messages are in the versions that the session declares when it is answered. Those that cannot be are
    /// left out, and listed: None in projects without lenses.
    pub fn translate(&self, op: Op<Lease>) -> (Op<Lease>, Option<Failed>) {
        if !self.catalog.has_lenses() {
            return (op, None);
        }
        let (speaking, failed) = (self.clone(), Failed::default());
        let list = Arc::clone(&failed);
        let translated = async move {
            let mut lease = op.await?;
            if !lease.deliveries.is_empty() {
                speaking.catalog.until_lenses_are_read().await;
                speaking.put_in_versions(&mut lease, &list).await;
            }
            Ok(lease)
        };
        (Box::pin(translated), Some(failed))
    }

    /// Whether leases are to be translated: a project without lenses pays this branch.
    pub fn is_needed(&self) -> bool {
        self.catalog.has_lenses()
    }

    async fn put_in_versions(&self, lease: &mut Lease, failed: &Failed) {
        let Some(member) = (self.find_member)() else { return };
        let capabilities = &member.record.capabilities;
        if capabilities.supported_protocols.is_empty() {
            return;
        }
        let wants_complement = wants_complement(capabilities);
        let mut work = 0;
        let leased = std::mem::take(&mut lease.deliveries);
        lease.deliveries.reserve(leased.len());
        for mut delivery in leased {
            let sent = &delivery.message;
            let form = match Passage::of(&self.catalog, capabilities, sent) {
                Passage::AsSent => Ok(None),
                Passage::Kept(form) => Ok(Some(form)),
                Passage::Make(plan) => self.make(plan, sent, wants_complement, &mut work).await.map(Some),
            };
            match form {
                Ok(form) => {
                    if let Some(message) = form.and_then(|form| form.of_message(sent)) {
                        delivery.message = message;
                    }
                    lease.deliveries.push(delivery);
                }
                Err(reason) => failed.lock().push((sent.id, reason)),
            }
            if work > WORK_PER_TURN {
                work = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    /// Transforms a message and keeps the form for its next delivery. The error is the note of the dead letter.
    async fn make(
        &self,
        plan: Arc<Plan>,
        sent: &Arc<Message>,
        wants_complement: bool,
        work: &mut u64,
    ) -> Result<Arc<Form>, String> {
        let (catalog, message) = (self.catalog.clone(), Arc::clone(sent));
        let mut span = ActiveSpan::transform(sent);
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
            let _permit = LARGE_TRANSFORMS.acquire().await;
            let made = tokio::task::spawn_blocking(make).await;
            made.unwrap_or_else(|error| Err(error.to_string()))
        } else {
            make()
        };
        if let (Some(span), Err(_)) = (&mut span, &made) {
            span.fail("transform_failed");
        }
        let (form, spent) = made?;
        *work += spent;
        FORMS.keep(sent.id, sent.body().len(), Arc::clone(&form));
        Ok(form)
    }
}
