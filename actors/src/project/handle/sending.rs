//! Sending to one recipient: checks and encodes messages, has lenses transform them for a recipient of another version, passes them
//! to the router, and answers what became of them. `broadcasting.rs` prepares those to many.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc, time::Duration};

use tokio::sync::{oneshot, watch};

use super::{LateAnswer, Lookup, ProjectHandle, lookup::after_wait};
use crate::{
    clock::{fine_ns, now},
    model::{
        Addressing, BrokerError, Complement, DeliveryStatus, HOPS_MAX, Headers, MessageId, NewMessage, ProjectId,
        RecipientStatus, SessionId, SessionName, TraceContext, TransformFailure,
    },
    registry::{LensPath, ON_WORKER_BYTES_MAX, Protocol, WorkBudget, builtin},
    router::{AcceptSpans, Recipients, Route, RouteAnswer, Submission},
    session::Member,
    speech::{Form, FormRequest, Speech, wants_complement},
    storage::SendResult,
};

/// Lenses that an error suggests.
const SUGGESTIONS_LEN_MAX: usize = 3;

/// A message as the sender wants it, not checked yet.
pub struct SendRequest<'a> {
    /// The name of the protocol as the sender wrote it.
    pub protocol_name: &'a str,
    /// The version as the sender wrote it.
    pub protocol_version: &'a str,
    /// The text of a JSON value.
    pub payload: &'a str,
    /// Priority, time to live, and what the sender adds.
    pub headers: &'a Headers,
    /// The sender follows the delivery status beyond the first answer.
    pub tracked: bool,
    /// The message is kept for a name that no session has yet.
    pub keeps_for_unknown: bool,
    /// The budget for checking the payload.
    pub work: WorkBudget,
    /// The trace of the request.
    pub trace: Option<RequestTrace<'a>>,
}

/// The trace of a request that sends a message.
#[derive(Clone, Copy)]
pub struct RequestTrace<'a> {
    /// What the message carries on.
    pub context: &'a TraceContext,
    /// The context is that of a span of this process, which is recorded.
    pub is_recorded: bool,
}

/// A checked message and its route.
pub enum PreparedSend {
    /// To the router of the sender's project.
    Local(Submission),
    /// To another project: [`ProjectHandle::send_cross_project`].
    CrossProject(Box<CrossProjectSend>),
}

impl PreparedSend {
    /// The recipient of a direct message in the project of its sender.
    pub fn recipient(&self) -> Option<&Arc<Member>> {
        match self {
            Self::Local(Submission {
                target: Recipients::One(member),
                ..
            }) => Some(member),
            _ => None,
        }
    }
}

/// A checked message to another project.
pub struct CrossProjectSend {
    pub(super) target: ProjectHandle,
    pub(super) submission: Submission,
    pub(super) sender: SessionId,
}

/// A copy of a [`SendRequest`], for a second attempt.
struct OwnedSendRequest {
    protocol_name: String,
    protocol_version: String,
    payload: String,
    headers: Headers,
    tracked: bool,
    keeps_for_unknown: bool,
    trace: Option<(TraceContext, bool)>,
}

impl OwnedSendRequest {
    fn as_request(&self) -> SendRequest<'_> {
        SendRequest {
            protocol_name: &self.protocol_name,
            protocol_version: &self.protocol_version,
            payload: &self.payload,
            headers: &self.headers,
            tracked: self.tracked,
            keeps_for_unknown: self.keeps_for_unknown,
            work: WorkBudget::default(),
            trace: self.trace.as_ref().map(|(context, is_recorded)| RequestTrace {
                context,
                is_recorded: *is_recorded,
            }),
        }
    }
}

impl SendRequest<'_> {
    /// Whether checking and encoding it takes milliseconds.
    pub(super) const fn is_large(&self) -> bool {
        self.payload.len() > ON_WORKER_BYTES_MAX
    }

    fn to_owned(&self) -> OwnedSendRequest {
        OwnedSendRequest {
            protocol_name: self.protocol_name.to_owned(),
            protocol_version: self.protocol_version.to_owned(),
            payload: self.payload.to_owned(),
            headers: self.headers.clone(),
            tracked: self.tracked,
            keeps_for_unknown: self.keeps_for_unknown,
            trace: self.trace.map(|trace| (trace.context.clone(), trace.is_recorded)),
        }
    }
}

/// What is needed to prepare a message elsewhere, or again.
struct Preparation<F> {
    project: ProjectHandle,
    request: OwnedSendRequest,
    prepare: F,
}

impl<F> Preparation<F> {
    /// Prepares the message: on the caller's thread, or off the workers if it is large. `current` is the outcome of the
    /// wait before a second attempt.
    async fn run<T>(self: Arc<Self>, current: Option<Result<(), BrokerError>>) -> LateAnswer<T>
    where
        T: Send + 'static,
        F: Fn(&ProjectHandle, &SendRequest<'_>, Attempt<'_>) -> Result<T, BrokerError> + Send + Sync + 'static,
    {
        let project = self.project.clone();
        let payload_len = self.request.payload.len();
        let run = move || {
            let request = self.request.as_request();
            let attempt = current.as_ref().map_or(Attempt::First, Attempt::Second);
            let result = (self.prepare)(&self.project, &request, attempt);
            let work = request.work.spent();
            let result = match current {
                Some(current) => after_wait(result, current),
                None => result,
            };
            LateAnswer { result, work }
        };
        project.run_check(payload_len, run).await
    }
}

/// The attempts to prepare one message.
#[derive(Clone, Copy)]
pub(super) enum Attempt<'a> {
    First,
    /// After a wait for this replica to become current, with its outcome.
    Second(&'a Result<(), BrokerError>),
}

impl Attempt<'_> {
    /// Whether this replica knows what every other one had done when the message was sent.
    pub const fn is_current(self) -> bool {
        matches!(self, Self::Second(Ok(())))
    }
}

impl ProjectHandle {
    /// Checks and encodes a message for one recipient. Nothing is accepted yet.
    ///
    /// # Errors
    /// `forbidden` for a protocol of the broker's own messages, `protocol_not_found`, `session_not_found`, `incompatible_protocol`,
    /// `payload_invalid`; for a recipient in another project also `cross_project_disabled`, `cross_project_forbidden`, `rate_limited`.
    pub fn prepare_direct(
        &self,
        sender: &Arc<Member>,
        recipient: &str,
        request: &SendRequest<'_>,
    ) -> Lookup<PreparedSend> {
        if request.keeps_for_unknown
            && let Some(name) = self.unknown_name(recipient)
        {
            return self.prepare_for_expected(sender, name, request);
        }
        let others = || {
            let target = recipient.rsplit_once('@').and_then(|(_, id)| ProjectId::parse(id).ok());
            target.into_iter().collect()
        };
        if !request.is_large() {
            let result = self.try_direct(sender, recipient, request, Attempt::First);
            if !matches!(&result, Err(unknown) if self.may_be_elsewhere(unknown)) {
                return Lookup::Ready(result);
            }
        }
        let (sender, recipient_text) = (Arc::clone(sender), recipient.to_owned());
        let prepare = move |project: &Self, request: &SendRequest<'_>, attempt: Attempt<'_>| {
            project.try_direct(&sender, &recipient_text, request, attempt)
        };
        self.prepare_later(request, others(), prepare)
    }

    /// As [`Self::prepare_direct`], for a name that no session has here: one is made for it, once the message is checked.
    fn prepare_for_expected(
        &self,
        sender: &Arc<Member>,
        name: SessionName,
        request: &SendRequest<'_>,
    ) -> Lookup<PreparedSend> {
        let check = |project: &Self, request: &SendRequest<'_>, _: Attempt<'_>| {
            let protocol = project.protocol(request.protocol_name, request.protocol_version)?;
            protocol.schema.validate_within(&request.work, request.payload)
        };
        let checked = self.prepare_later(request, BTreeSet::new(), check);
        let (project, sender, owned) = (self.clone(), Arc::clone(sender), request.to_owned());
        Lookup::later(async move {
            let (checked, work) = match checked.map(|late| Ok((late.result, late.work))).answer().await {
                Ok(checked) => checked,
                Err(error) => (Err(error), 0),
            };
            let request = SendRequest {
                keeps_for_unknown: false,
                ..owned.as_request()
            };
            let result = async {
                checked?;
                project.expect(name.clone()).await?;
                project.prepare_direct(&sender, name.as_str(), &request).answer().await
            };
            LateAnswer {
                result: result.await,
                work: work + request.work.spent(),
            }
        })
    }

    fn try_direct(
        &self,
        sender: &Member,
        recipient: &str,
        request: &SendRequest<'_>,
        attempt: Attempt<'_>,
    ) -> Result<PreparedSend, BrokerError> {
        builtin::check_send(request.protocol_name)?;
        if let Some((address, project)) = recipient.rsplit_once('@')
            && project != self.0.id.as_str()
        {
            return self.prepare_cross_project(sender, address, project, request, attempt);
        }
        let protocol = self.protocol(request.protocol_name, request.protocol_version)?;
        let mut target = self.target(self.known_session(recipient), request, attempt)?;
        let path = self.path_to(&target, recipient, &protocol, request, true);
        let path = self.unless_repeat(path, &mut target, request, attempt)?;
        protocol.schema.validate_within(&request.work, request.payload)?;
        let form = self.form_of(path.as_ref(), &target, request);
        let form = self.unless_repeat(form, &mut target, request, attempt)?;
        let mut submission = self.submission(sender, target, request);
        submission.forms = form.map(|form| [form].into());
        Ok(PreparedSend::Local(submission))
    }

    /// The recipient. An unknown one is no error yet for a message with an idempotency key: it may repeat a send to a
    /// recipient that existed then, and the router answers with the first result or the error.
    pub(super) fn target(
        &self,
        found: Result<Arc<Member>, BrokerError>,
        request: &SendRequest<'_>,
        attempt: Attempt<'_>,
    ) -> Result<Recipients, BrokerError> {
        let unknown = match found {
            Ok(member) => return Ok(Recipients::One(member)),
            Err(unknown) => unknown,
        };
        let may_be_elsewhere = self.is_shared() && matches!(attempt, Attempt::First);
        if request.headers.idempotency_key.is_none() || may_be_elsewhere {
            return Err(unknown);
        }
        Ok(Recipients::Missing(Box::new(match attempt {
            Attempt::Second(Err(unavailable)) => unavailable.clone(),
            Attempt::First | Attempt::Second(Ok(())) => unknown,
        })))
    }

    /// The path of lenses by which a recipient of this project gets a message; None if it gets it as it is sent, or is
    /// not known.
    ///
    /// # Errors
    /// `incompatible_protocol` for a recipient that could not read it, `transform_failed` for one to which only a lens leads
    /// that does not compile. `is_own` says that the sender may know what the
    /// recipient declares.
    pub(super) fn path_to(
        &self,
        target: &Recipients,
        recipient: &str,
        protocol: &Protocol,
        request: &SendRequest<'_>,
        is_own: bool,
    ) -> Result<Option<Arc<LensPath>>, BrokerError> {
        let Recipients::One(member) = target else {
            return Ok(None);
        };
        let record = &protocol.record;
        let lenses = self.0.catalog.lenses(protocol.name());
        let rule = request.headers.transform.unwrap_or_default();
        let capabilities = &member.record.capabilities;
        match Speech::of((&record.name, &record.version), capabilities, lenses.as_deref(), rule) {
            Speech::AsSent => Ok(None),
            Speech::By(plan) => Ok(Some(plan)),
            Speech::NotCompiled(failure) if is_own => Err(BrokerError::TransformFailed(failure)),
            Speech::Refused | Speech::NotCompiled(_) => Err(BrokerError::IncompatibleProtocol {
                recipient: recipient.to_owned(),
                name: record.name.to_string(),
                version: record.version.to_string(),
                speaks: if is_own { supported_versions(member) } else { Vec::new() },
                suggestions: if is_own {
                    suggestions(member, protocol)
                } else {
                    Vec::new()
                },
            }),
        }
    }

    /// The message in the version of its recipient, by the path that was found for it.
    ///
    /// # Errors
    /// `transform_failed`.
    pub(super) fn form_of(
        &self,
        plan: Option<&Arc<LensPath>>,
        target: &Recipients,
        request: &SendRequest<'_>,
    ) -> Result<Option<Arc<Form>>, BrokerError> {
        let (Some(plan), Recipients::One(member)) = (plan, target) else {
            return Ok(None);
        };
        let form = self.make_form(plan, wants_complement(&member.record.capabilities), request);
        form.map(Some)
            .map_err(|failure| BrokerError::TransformFailed(Box::new(failure)))
    }

    pub(super) fn make_form(
        &self,
        plan: &Arc<LensPath>,
        wants_complement: bool,
        request: &SendRequest<'_>,
    ) -> Result<Arc<Form>, TransformFailure> {
        let request_of_form = FormRequest {
            plan,
            protocol_name: request.protocol_name,
            payload: request.payload,
            rule: request.headers.transform.unwrap_or_default(),
            complement: request.headers.complement.as_ref().map(Complement::as_str),
            wants_complement,
        };
        Form::make(&self.0.catalog, &request_of_form, &request.work)
    }

    /// Turns the refusal of a message with an idempotency key into an answer of the router: it may repeat one that its
    /// recipient could read then, and gets the first answer.
    pub(super) fn unless_repeat<T>(
        &self,
        result: Result<Option<T>, BrokerError>,
        target: &mut Recipients,
        request: &SendRequest<'_>,
        attempt: Attempt<'_>,
    ) -> Result<Option<T>, BrokerError> {
        let may_be_elsewhere = self.is_shared() && matches!(attempt, Attempt::First);
        result.or_else(|refusal| {
            if request.headers.idempotency_key.is_none() || may_be_elsewhere {
                return Err(refusal);
            }
            *target = Recipients::Missing(Box::new(refusal));
            Ok(None)
        })
    }

    /// Prepares a message that is large, or names something that another replica may know. The first takes a thread other than
    /// the workers; the second waits until this replica is current, and is prepared again.
    pub(super) fn prepare_later<T: Send + 'static>(
        &self,
        request: &SendRequest<'_>,
        others: BTreeSet<ProjectId>,
        prepare: impl Fn(&Self, &SendRequest<'_>, Attempt<'_>) -> Result<T, BrokerError> + Send + Sync + 'static,
    ) -> Lookup<T> {
        let prepare = Arc::new(Preparation {
            project: self.clone(),
            request: request.to_owned(),
            prepare,
        });
        let is_large = request.is_large();
        Lookup::later(async move {
            let project = prepare.project.clone();
            if is_large {
                let late = Arc::clone(&prepare).run(None).await;
                match &late.result {
                    Err(unknown) if project.may_be_elsewhere(unknown) => {}
                    _ => return late,
                }
            }
            let current = project.wait_until_current_with(&others).await;
            prepare.run(Some(current)).await
        })
    }

    /// Checks a payload of so many bytes: on the caller's thread, or off the workers if it is large.
    pub(super) async fn run_check<T: Send + 'static>(
        &self,
        payload_len: usize,
        check: impl FnOnce() -> LateAnswer<T> + Send + 'static,
    ) -> LateAnswer<T> {
        if payload_len <= ON_WORKER_BYTES_MAX {
            return check();
        }
        let unavailable = |_| LateAnswer {
            result: Err(BrokerError::unavailable()),
            work: 0,
        };
        self.0.large_checks.run(check).await.unwrap_or_else(unavailable)
    }

    pub(super) fn submission(&self, sender: &Member, target: Recipients, request: &SendRequest<'_>) -> Submission {
        let to = match target {
            Recipients::One(_) => Addressing::Direct,
            Recipients::Many(_) | Recipients::Missing(_) => Addressing::Broadcast,
        };
        let named = (request.protocol_name, request.protocol_version);
        let headers = with_hops(request.headers, sender);
        let mut draft = NewMessage::new(&self.0.id, &sender.record, to, named, request.payload, &headers);
        let recorded = request.trace.filter(|trace| trace.is_recorded);
        let spans = recorded.and_then(|trace| AcceptSpans::begin(trace.context));
        let accept = spans.as_ref().map(|spans| spans.context());
        if let Some(trace) = accept.or(request.trace.map(|trace| trace.context)) {
            draft = draft.with_trace(trace);
        }
        Submission {
            draft,
            target,
            idempotency_key: request.headers.idempotency_key.clone(),
            is_tracked: request.tracked,
            is_report: false,
            forms: None,
            spans,
        }
    }

    /// Sends messages to the router, in this order. All answers come together.
    ///
    /// # Errors
    /// `project_not_found` for a closed project, `unavailable` when the router's mailbox is full.
    pub fn submit(&self, submissions: Vec<Submission>) -> Result<oneshot::Receiver<Vec<RouteAnswer>>, BrokerError> {
        if self.0.policy.is_closed() {
            return Err(BrokerError::ProjectNotFound);
        }
        let (reply, answers) = oneshot::channel();
        let submitted_ns = fine_ns();
        self.0.router.tell(Route {
            submissions,
            submitted_ns,
            reply,
        })?;
        Ok(answers)
    }

    /// Waits until the message has reached `goal` or a final status, or the time is over. Returns the current status.
    pub async fn wait_for_status(
        &self,
        mut status: watch::Receiver<DeliveryStatus>,
        goal: DeliveryStatus,
        timeout: Duration,
    ) -> DeliveryStatus {
        let reached = |status: &DeliveryStatus| {
            status.is_final()
                || *status == goal
                || (goal == DeliveryStatus::Queued && *status == DeliveryStatus::Delivered)
        };
        // A timeout and a change both end in reading the current status.
        let _ = tokio::time::timeout(timeout, status.wait_for(reached)).await;
        *status.borrow_and_update()
    }

    /// Stores the first result of a send for its idempotency key.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn complete_send_result(
        &self,
        sender: SessionId,
        key: String,
        outcome: SendResult,
    ) -> Result<(), BrokerError> {
        Ok(self.0.store.update_send_result(sender, key, outcome).await?)
    }

    /// The status of a message for each recipient, in this project or in the one that it was sent to. None for an
    /// unknown message.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn message_status(&self, message: MessageId) -> Result<Option<Vec<RecipientStatus>>, BrokerError> {
        if let Some(known) = self.0.store.message_status(message, now()).await? {
            return Ok(Some(known));
        }
        let Some(target) = self.0.store.cross_project_target(message).await? else {
            return Ok(None);
        };
        let remote = self.other_project(&target);
        let Some(remote) = remote else { return Ok(None) };
        let mut known = remote.0.store.message_status(message, now()).await?;
        if let Some(recipients) = &mut known {
            // The first is the original recipient; others come from redrives in the other project.
            recipients.truncate(1);
            for recipient in recipients {
                let transformed = recipient.transformed.take();
                recipient.transformed = transformed.map(|known| Arc::new(known.for_other_project()));
            }
        }
        Ok(known)
    }
}

/// The headers with the hops of the turn in which the sender is, where it was woken for that turn and claims fewer.
fn with_hops<'a>(headers: &'a Headers, sender: &Member) -> Cow<'a, Headers> {
    let hops = sender.shared.wakes().hops().min(HOPS_MAX);
    if headers.hops.unwrap_or(0) >= hops {
        return Cow::Borrowed(headers);
    }
    Cow::Owned(Headers {
        hops: Some(hops),
        ..headers.clone()
    })
}

fn supported_versions(member: &Member) -> Vec<String> {
    let protocols = &member.record.capabilities.supported_protocols;
    protocols
        .iter()
        .flat_map(|(name, versions)| versions.iter().map(move |version| format!("{name} {version}")))
        .collect()
}

/// The lenses that would let the recipient read the message.
fn suggestions(member: &Member, protocol: &Protocol) -> Vec<String> {
    let (name, version) = (&protocol.record.name, &protocol.record.version);
    let declared = member.record.capabilities.supported_protocols.get(name);
    let newest = declared.into_iter().flatten().rev().take(SUGGESTIONS_LEN_MAX);
    newest
        .map(|own| {
            let (low, high) = if own < version { (own, version) } else { (version, own) };
            format!("register a lens of {name} from {low} to {high}")
        })
        .collect()
}
