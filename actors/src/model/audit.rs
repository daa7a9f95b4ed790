//! Entries of the audit log.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::ProjectId;

/// One entry of the audit log: an administrative action, done or refused. It holds no secrets and never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// `UUIDv7`: ids sort by time.
    pub id: Uuid,
    /// Milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The actor: `admin`, `anonymous`, `key:{project}/{key}`, `jwt:{subject}`, `broker`, or `unknown`;
    /// for what a person did with a question, followed by ` as ` and the name of the person.
    pub actor: String,
    /// The network address of the caller.
    pub address: Option<String>,
    pub project: Option<ProjectId>,
    /// The action, such as `project.create`.
    pub action: String,
    /// What the action applied to.
    pub target: Option<String>,
    /// Whether it was done or refused.
    pub outcome: AuditOutcome,
    /// The reason of a refusal: an error code of the contract, section 7.
    pub code: Option<String>,
}

words! {
    /// Whether an action was done or refused.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum AuditOutcome {
        /// The action was done.
        Done = "done",
        /// The action was refused.
        Refused = "refused",
    }
}

/// Selects entries, newest first.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    pub project: Option<ProjectId>,
    pub action: Option<String>,
    pub outcome: Option<AuditOutcome>,
    /// Only entries with this text, in lower case, in their actor, action or target.
    pub text: Option<String>,
    /// Only entries older than this one.
    pub before: Option<Uuid>,
    /// Entries in the answer, at most.
    pub limit: usize,
}

impl AuditQuery {
    /// Whether the query selects an entry, `limit` aside.
    pub fn matches(&self, entry: &AuditEntry) -> bool {
        self.project
            .as_ref()
            .is_none_or(|project| entry.project.as_ref() == Some(project))
            && self.action.as_ref().is_none_or(|action| entry.action == *action)
            && self.outcome.is_none_or(|outcome| entry.outcome == outcome)
            && self.before.is_none_or(|before| entry.id < before)
            && self.text.as_ref().is_none_or(|text| {
                let words = [&entry.actor, &entry.action].into_iter().chain(&entry.target);
                words.into_iter().any(|word| word.to_lowercase().contains(text))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_shown_by_the_name_by_which_it_is_stored() {
        for outcome in [AuditOutcome::Done, AuditOutcome::Refused] {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.as_str());
        }
    }
}
