//! A message to another project: the sender's store and the recipient's each do their part, and no transaction holds
//! them together.
//!
//! With an idempotency key, the sender's store reserves the key for that project first; the recipient's store appends
//! the message under the same key, so that every repeat finds the first message there; then the sender's store keeps the
//! result. A replica that dies in between leaves the reservation, and the repeat does what is missing.

use super::ProjectHandle;
use crate::{
    clock::now,
    faults,
    model::{BrokerError, CrossProjectSide, MessageId, ProjectId, SessionId},
    router::{RouteAnswer, Routed, Submission},
    storage::{KeyReservation, StoreError},
};

/// A message to another project that may go there.
pub struct CrossProjectSend {
    pub(super) target: ProjectHandle,
    pub(super) submission: Submission,
    pub(super) sender: SessionId,
}

impl ProjectHandle {
    /// Has another project take a message. What is remembered of it on this side, for its idempotency key and for a
    /// sender that asks what became of it, is remembered before the answer.
    pub async fn send_cross_project(&self, crossing: CrossProjectSend) -> RouteAnswer {
        let CrossProjectSend {
            target,
            submission,
            sender,
        } = crossing;
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
        faults::point("crossing_reserved").await;
        let routed = match target.accept_cross_project(submission).await {
            Ok(routed) => routed,
            Err(error) => {
                if reserved == KeyReservation::New && is_definite_refusal(&error) {
                    self.warn_on_error(store.cancel_reservation(sender, key).await);
                }
                return Err(error);
            }
        };
        faults::point("crossing_taken").await;
        self.record_cross_project(routed.result.message, to).await;
        self.warn_on_error(store.complete_reservation(sender, key, routed.result.clone()).await);
        Ok(routed)
    }

    /// Takes a message of another project.
    async fn accept_cross_project(&self, submission: Submission) -> RouteAnswer {
        let answers = self.submit(vec![submission]).map_err(|error| match error {
            // It was closed since it was asked.
            BrokerError::ProjectNotFound => BrokerError::CrossProjectDisabled {
                side: CrossProjectSide::Target,
            },
            error => error,
        })?;
        let answers = answers.await.unwrap_or_default();
        let answer = answers.into_iter().next().unwrap_or(Err(BrokerError::unavailable()));
        answer.map_err(|error| match error {
            // The sender's project does not learn how much fits here.
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
            tracing::warn!(%error, %project, "the sender's project could not note what became of a message to another project");
        }
    }
}

/// Whether the message was certainly not accepted: after other errors it may have been.
const fn is_definite_refusal(error: &BrokerError) -> bool {
    !matches!(error, BrokerError::Unavailable { .. } | BrokerError::StorageFull)
}
