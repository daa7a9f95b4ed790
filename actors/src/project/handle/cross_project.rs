//! A message to another project. The sender's store and the recipient's store each do their part, without a common
//! transaction.
//!
//! With an idempotency key, (1) the sender's store reserves the key for the target project; (2) the recipient's store
//! appends the message under the same key, so that every repeat finds the first message there; (3) the sender's store
//! keeps the result. A replica that dies in between leaves the reservation, and the repeat does the rest.

use std::sync::Arc;

use super::{
    ProjectHandle,
    sending::{Attempt, CrossProjectSend, PreparedSend, SendRequest},
};
use crate::{
    clock::now,
    faults,
    metrics::{METRICS, RateLimitKind},
    model::{BrokerError, CrossProjectSide, MessageId, MissingSession, ProjectId},
    router::{RouteAnswer, Routed, Submission},
    session::Member,
    storage::{KeyReservation, StoreError},
};

impl ProjectHandle {
    /// As [`Self::prepare_direct`], for a recipient in another project. The checks keep the order of the contract,
    /// section 6, and precede every lookup in the target.
    pub(super) fn prepare_cross_project(
        &self,
        sender: &Member,
        address: &str,
        project: &str,
        request: &SendRequest<'_>,
        attempt: Attempt<'_>,
    ) -> Result<PreparedSend, BrokerError> {
        let limits = self.limits();
        let Ok(target) = ProjectId::parse(project) else {
            return Err(limits.record.no_such_target());
        };
        let remote = self.other_project(&target);
        let theirs = remote.as_ref().map(Self::record);
        limits
            .record
            .check_send_to(&target, theirs.as_deref(), request.protocol_name)?;
        if matches!(attempt, Attempt::First) {
            limits
                .take_cross_project(&target)
                .inspect_err(|_| METRICS.rate_limited.of(RateLimitKind::Grant).increment())
                .map_err(|retry_after| BrokerError::RateLimited { retry_after })?;
        }
        let remote = remote.ok_or(BrokerError::CrossProjectDisabled {
            side: CrossProjectSide::Target,
        })?;
        // Each project's definition holds where it exists; the target's decides what the recipient must speak.
        let (name, version) = (request.protocol_name, request.protocol_version);
        let (ours, theirs) = (self.0.catalog.get(name, version), remote.0.catalog.get(name, version));
        let protocol = match theirs.as_ref().or(ours.as_ref()) {
            Some(protocol) => Arc::clone(protocol),
            None => self.protocol(name, version)?,
        };
        let found = remote.find(address);
        let found = found.ok_or_else(|| BrokerError::from(MissingSession::remote(address)));
        let mut found = remote.target(found, request, attempt)?;
        let path = remote.path_to(&found, address, &protocol, request, false);
        let path = remote.unless_repeat(path, &mut found, request, attempt)?;
        if let Some(ours) = ours.filter(|_| theirs.is_some()) {
            ours.schema.validate_within(&request.work, request.payload)?;
        }
        protocol.schema.validate_within(&request.work, request.payload)?;
        let form = remote.form_of(path.as_ref(), &found, request).map_err(|_| {
            // The sender's project must not learn the lenses of this one.
            BrokerError::IncompatibleProtocol {
                recipient: address.to_owned(),
                name: name.to_owned(),
                version: version.to_owned(),
                speaks: Vec::new(),
                suggestions: Vec::new(),
            }
        });
        let form = remote.unless_repeat(form, &mut found, request, attempt)?;
        let mut submission = self.submission(sender, found, request);
        submission.forms = form.map(|form| [form].into());
        submission.draft = submission.draft.with_origin(self.0.id.clone());
        Ok(PreparedSend::CrossProject(Box::new(CrossProjectSend {
            target: remote,
            sender: sender.record.id,
            submission,
        })))
    }

    /// Sends the message. The sender's project stores the result for the idempotency key and the target for status
    /// queries before this returns.
    ///
    /// # Errors
    /// The refusals of the target's router, `cross_project_disabled` for a closed target, `invalid_argument` for a
    /// key that is reserved for another message, `unavailable`.
    pub async fn send_cross_project(&self, send: CrossProjectSend) -> RouteAnswer {
        let CrossProjectSend {
            target,
            submission,
            sender,
        } = send;
        let to = target.id().clone();
        let Some(key) = submission.idempotency_key.clone() else {
            let routed = target.accept_cross_project(submission).await?;
            self.record_cross_project(routed.result.message, to).await;
            return Ok(routed);
        };
        let store = self.store();
        let reserved = store.reserve_key(sender, key.clone(), to.clone(), now()).await?;
        match &reserved {
            KeyReservation::New | KeyReservation::Repeated => {}
            KeyReservation::OtherProject => return Err(BrokerError::key_in_use()),
            KeyReservation::Completed(first) => return Ok(Routed::from_first_result(first.clone())),
        }
        faults::point("cross_project_reserved").await;
        let routed = match target.accept_cross_project(submission).await {
            Ok(routed) => routed,
            Err(error) => {
                if reserved == KeyReservation::New && is_definite_refusal(&error) {
                    self.warn_on_error(store.cancel_reservation(sender, key).await);
                }
                return Err(error);
            }
        };
        faults::point("cross_project_taken").await;
        self.record_cross_project(routed.result.message, to).await;
        self.warn_on_error(store.complete_reservation(sender, key, routed.result.clone()).await);
        Ok(routed)
    }

    /// Appends a message from another project.
    async fn accept_cross_project(&self, submission: Submission) -> RouteAnswer {
        let answers = self.submit(vec![submission]).map_err(|error| match error {
            // The project was deleted after the check.
            BrokerError::ProjectNotFound => BrokerError::CrossProjectDisabled {
                side: CrossProjectSide::Target,
            },
            error => error,
        })?;
        let answers = answers.await.unwrap_or_default();
        let answer = answers.into_iter().next().unwrap_or(Err(BrokerError::unavailable()));
        answer.map_err(|error| match error {
            // The sender's project must not learn the capacity of this one.
            BrokerError::QueueFull { .. } => BrokerError::RecipientFull,
            error => error,
        })
    }

    async fn record_cross_project(&self, message: MessageId, target: ProjectId) {
        self.warn_on_error(self.store().put_cross_project_target(message, target).await);
    }

    fn warn_on_error(&self, noted: Result<(), StoreError>) {
        if let Err(error) = noted {
            let project = self.id();
            tracing::warn!(%error, %project, "the result of a cross-project message could not be stored");
        }
    }
}

/// Whether the message was certainly not accepted. After other errors it may have been.
const fn is_definite_refusal(error: &BrokerError) -> bool {
    !matches!(error, BrokerError::Unavailable { .. } | BrokerError::StorageFull)
}
