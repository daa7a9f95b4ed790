//! Grants: the permissions of a project to send to others. They are part of its record, so their number and their
//! bytes are bounded.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::ProjectRecord;
use crate::model::{BrokerError, ProjectId, ProtocolName};

/// Grants of one project, at most.
pub const GRANTS_LEN_MAX: usize = 1000;
const GRANT_PROTOCOLS_LEN_MAX: usize = 1000;
/// Bytes of all grants of a project, as counted here.
const GRANTS_BYTES_MAX: usize = 512 * 1024;
/// Bytes that JSON adds to a grant besides the names in it, and to a protocol besides its name.
const GRANT_BYTES: usize = 128;
const PROTOCOL_BYTES: usize = 4;

/// The permission for sessions of one project to send to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Allowed protocols; empty: all.
    pub protocols: BTreeSet<ProtocolName>,
    /// Messages per minute; 0 means no limit.
    pub message_rate_limit: u32,
    /// Milliseconds since the Unix epoch.
    pub granted_at_ms: u64,
}

impl Grant {
    fn bytes(&self, target: &ProjectId) -> usize {
        let protocols = self.protocols.iter();
        let protocols: usize = protocols.map(|name| name.as_str().len() + PROTOCOL_BYTES).sum();
        GRANT_BYTES + target.as_str().len() + protocols
    }
}

impl ProjectRecord {
    /// Allows its sessions to send to another project. The existence of the target is not checked, because the caller
    /// must not learn it from this. A grant that takes fewer bytes than the one it replaces is always accepted.
    ///
    /// # Errors
    /// `invalid_argument`: a grant to the project itself, or for too many protocols; `forbidden`: the number or the
    /// bytes of the grants reach their bound.
    pub fn grant(&mut self, target: ProjectId, grant: Grant) -> Result<(), BrokerError> {
        if target == self.id {
            return Err(BrokerError::invalid("target_project_id", "must be another project"));
        }
        if grant.protocols.len() > GRANT_PROTOCOLS_LEN_MAX {
            let text = format!("at most {GRANT_PROTOCOLS_LEN_MAX}");
            return Err(BrokerError::invalid("allowed_protocols", text));
        }
        let before = self.grants_bytes();
        self.grants.insert(target, grant);
        if self.grants.len() > GRANTS_LEN_MAX {
            let text = format!("a project has at most {GRANTS_LEN_MAX} permissions: revoke one first");
            return Err(BrokerError::forbidden(text));
        }
        let bytes = self.grants_bytes();
        if bytes > GRANTS_BYTES_MAX && bytes > before {
            let text = format!(
                "the permissions of a project have at most {GRANTS_BYTES_MAX} bytes together, and these would have \
                 {bytes}: name fewer protocols, or revoke a permission first"
            );
            return Err(BrokerError::forbidden(text));
        }
        Ok(())
    }

    fn grants_bytes(&self) -> usize {
        self.grants.iter().map(|(target, grant)| grant.bytes(target)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NewProject, ProjectConfig};

    fn project() -> ProjectRecord {
        let wanted = NewProject {
            id: ProjectId::parse("own").unwrap(),
            name: "own".to_owned(),
            description: None,
            tags: BTreeSet::new(),
            config: ProjectConfig::default(),
        };
        ProjectRecord::new(wanted, 0).unwrap()
    }

    fn target(at: usize) -> ProjectId {
        ProjectId::parse(&format!("t{at}")).unwrap()
    }

    fn grant(protocols: usize) -> Grant {
        let names = (0..protocols).map(|at| ProtocolName::parse(&format!("p{at:0>60}x")).unwrap());
        Grant {
            protocols: names.collect(),
            message_rate_limit: 0,
            granted_at_ms: 0,
        }
    }

    #[test]
    fn grants_are_bounded_in_number() {
        let mut project = project();
        for at in 0..GRANTS_LEN_MAX {
            project.grant(target(at), grant(0)).unwrap();
        }
        project.grant(target(0), grant(1)).unwrap();
        let refused = project.clone().grant(target(GRANTS_LEN_MAX), grant(0)).unwrap_err();
        assert_eq!(refused.code(), "forbidden");
    }

    #[test]
    fn the_protocols_of_a_grant_are_bounded_in_number() {
        let mut project = project();
        project.grant(target(0), grant(GRANT_PROTOCOLS_LEN_MAX)).unwrap();
        let refused = project
            .grant(target(0), grant(GRANT_PROTOCOLS_LEN_MAX + 1))
            .unwrap_err();
        assert_eq!(refused.code(), "invalid_argument");
        assert_eq!(project.grants[&target(0)].protocols.len(), GRANT_PROTOCOLS_LEN_MAX);
    }

    #[test]
    fn the_grants_of_a_project_are_bounded_in_bytes_and_may_always_shrink() {
        let mut project = project();
        let refused = (0..GRANTS_LEN_MAX).find_map(|at| {
            // As the broker does: a refused update leaves the record as it was.
            let mut updated = project.clone();
            let granted = updated.grant(target(at), grant(1000));
            if granted.is_ok() {
                project = updated;
            }
            granted.err()
        });
        assert_eq!(refused.map(|error| error.code()), Some("forbidden"));
        let stored = serde_json::to_string(&project.grants).unwrap();
        assert!(stored.len() <= GRANTS_BYTES_MAX, "{}", stored.len());
        assert!(project.grants.len() >= 7, "{}", project.grants.len());
        // Grants that were stored before the bound existed stay.
        project.grants.extend((100..200).map(|at| (target(at), grant(1000))));
        project.clone().grant(target(100), grant(1000)).unwrap();
        project.clone().grant(target(100), grant(999)).unwrap();
        project.clone().grant(target(201), grant(0)).unwrap_err();
    }
}
