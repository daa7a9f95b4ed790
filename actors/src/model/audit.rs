use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::ProjectId;

/// One line of the record of who administered what, and who was refused. It holds no secrets and is never changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// `UUIDv7`: ids sort by time.
    pub id: Uuid,
    /// Milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Who did it: `admin`, `anonymous`, `key:{project}/{key}`, `jwt:{subject}`, `broker`, or `unknown`.
    pub actor: String,
    /// From where.
    pub address: Option<String>,
    pub project: Option<ProjectId>,
    /// What was done, such as `project.create`.
    pub action: String,
    /// What it was done to.
    pub target: Option<String>,
    pub outcome: AuditOutcome,
    /// Why it was refused: a code of the contract, section 7.
    pub code: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    Done,
    Refused,
}

impl AuditOutcome {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
        }
    }
}

/// Which entries are asked for, the newest first.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    pub project: Option<ProjectId>,
    pub action: Option<String>,
    pub outcome: Option<AuditOutcome>,
    /// Only those before this one.
    pub before: Option<Uuid>,
    pub limit: usize,
}

impl AuditQuery {
    /// Whether an entry is asked for, the number of them left out.
    #[must_use]
    pub fn matches(&self, entry: &AuditEntry) -> bool {
        self.project
            .as_ref()
            .is_none_or(|project| entry.project.as_ref() == Some(project))
            && self.action.as_ref().is_none_or(|action| entry.action == *action)
            && self.outcome.is_none_or(|outcome| entry.outcome == outcome)
            && self.before.is_none_or(|before| entry.id < before)
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
