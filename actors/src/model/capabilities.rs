use std::collections::{BTreeMap, BTreeSet};

use semver::{Version, VersionReq};
use serde::{Deserialize, Serialize};

use super::ProtocolName;

/// What a session says it can do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    pub supported_protocols: BTreeMap<ProtocolName, BTreeSet<Version>>,
    pub supported_features: BTreeSet<String>,
}

impl Capabilities {
    /// Versions and features declared: what comparing it with others looks at.
    #[must_use]
    pub fn entries_len(&self) -> usize {
        let versions: usize = self
            .supported_protocols
            .values()
            .map(|versions| 1 + versions.len())
            .sum();
        versions + self.supported_features.len()
    }

    /// Whether a message of this protocol may be sent to a session with these capabilities: it declared a
    /// compatible version, or it declared no protocol at all, which leaves the choice to the sender.
    #[must_use]
    pub fn accepts(&self, name: &ProtocolName, version: &Version) -> bool {
        self.supported_protocols.is_empty()
            || self
                .supported_protocols
                .get(name)
                .is_some_and(|versions| crate::negotiate::speaks(versions, version))
    }
}

/// Which sessions a broadcast is for: those that speak all of these protocols and have all of these features.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapabilityFilter {
    pub protocols: BTreeMap<ProtocolName, VersionReq>,
    pub features: BTreeSet<String>,
}

impl CapabilityFilter {
    #[must_use]
    pub fn matches(&self, capabilities: &Capabilities) -> bool {
        self.features.is_subset(&capabilities.supported_features)
            && self.protocols.iter().all(|(name, requirement)| {
                capabilities
                    .supported_protocols
                    .get(name)
                    .is_some_and(|versions| versions.iter().any(|version| requirement.matches(version)))
            })
    }
}
