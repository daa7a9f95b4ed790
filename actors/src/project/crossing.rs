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
    model::{BrokerError, MessageId, ProjectId, SessionId, Side},
    router::{Answer, Routed, Submission},
    storage::{Reserved, StoreError},
};

/// A message to another project that may go there.
pub struct Crossing {
    pub(super) target: ProjectHandle,
    pub(super) submission: Submission,
    pub(super) sender: SessionId,
}

impl ProjectHandle {
    /// Has another project take a message. What is remembered of it on this side, for its idempotency key and for a
    /// sender that asks what became of it, is remembered before the answer.
    pub async fn cross(&self, crossing: Crossing) -> Answer {
        let Crossing {
            target,
            submission,
            sender,
        } = crossing;
        let to = target.id().clone();
        let Some(key) = submission.idempotency_key.clone() else {
            let routed = target.takes(submission).await?;
            self.note_crossing(routed.outcome.message, to).await;
            return Ok(routed);
        };
        let store = self.store();
        let reserved = store.reserve_key(sender, key.clone(), to.clone(), now()).await?;
        match &reserved {
            Reserved::First | Reserved::Again => {}
            Reserved::Elsewhere => return Err(BrokerError::key_in_use()),
            Reserved::Settled(first) => return Ok(Routed::repeated(first.clone())),
        }
        faults::point("crossing_reserved").await;
        let routed = match target.takes(submission).await {
            Ok(routed) => routed,
            Err(error) => {
                if reserved == Reserved::First && is_refusal(&error) {
                    self.warn_of(store.free_key(sender, key).await);
                }
                return Err(error);
            }
        };
        faults::point("crossing_taken").await;
        self.note_crossing(routed.outcome.message, to).await;
        self.warn_of(store.keep_outcome(sender, key, routed.outcome.clone()).await);
        Ok(routed)
    }

    /// Takes a message of another project.
    async fn takes(&self, submission: Submission) -> Answer {
        let answers = self.submit(vec![submission]).map_err(|error| match error {
            // It was closed since it was asked.
            BrokerError::ProjectNotFound => BrokerError::CrossProjectDisabled { side: Side::Target },
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

    async fn note_crossing(&self, message: MessageId, target: ProjectId) {
        self.warn_of(self.store().put_crossing(message, target).await);
    }

    fn warn_of(&self, noted: Result<(), StoreError>) {
        if let Err(error) = noted {
            let project = self.id();
            tracing::warn!(%error, %project, "the sender's project could not note what became of a message to another project");
        }
    }
}

/// Whether the message was certainly not accepted: after other errors it may have been.
const fn is_refusal(error: &BrokerError) -> bool {
    !matches!(error, BrokerError::Unavailable { .. } | BrokerError::StorageFull)
}
