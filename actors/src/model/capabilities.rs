//! What sessions declare they can do, and filters over it.

use std::collections::{BTreeMap, BTreeSet};

use semver::{Version, VersionReq};
use serde::{Deserialize, Serialize};

use super::{ProtocolName, are_compatible, version::accepts_version};

/// The name of the built-in protocol that every session speaks without declaring it.
pub const TEXT_PROTOCOL: &str = "text";
/// Its version.
pub const TEXT_VERSION: &str = "1.0.0";
/// As [`TEXT_VERSION`].
static TEXT: Version = Version::new(1, 0, 0);

/// What a session declares it can do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// Protocols and their versions.
    pub supported_protocols: BTreeMap<ProtocolName, BTreeSet<Version>>,
    /// Features by name.
    pub supported_features: BTreeSet<String>,
}

impl Capabilities {
    /// Versions and features declared: the cost of a comparison grows with this number.
    pub fn entries_len(&self) -> usize {
        let versions: usize = self
            .supported_protocols
            .values()
            .map(|versions| 1 + versions.len())
            .sum();
        versions + self.supported_features.len()
    }

    /// The versions of this protocol that a session speaks: those that it declared, and of `text` the built-in one.
    pub fn versions_of(&self, name: &ProtocolName) -> impl Iterator<Item = &Version> {
        let declared = self.supported_protocols.get(name).into_iter().flatten();
        declared.chain((name.as_str() == TEXT_PROTOCOL).then_some(&TEXT))
    }

    /// Whether a session with these capabilities takes messages of this protocol: it declared a compatible version,
    /// or it declared no protocol at all, which leaves the choice to the sender, or the message is a text.
    pub fn accepts(&self, name: &ProtocolName, version: &Version) -> bool {
        self.supported_protocols.is_empty()
            || self
                .supported_protocols
                .get(name)
                .is_some_and(|versions| accepts_version(versions, version))
            || (name.as_str() == TEXT_PROTOCOL && are_compatible(&TEXT, version))
    }
}

/// Selects the recipients of a broadcast: sessions that speak all of these protocols and have all of these features.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapabilityFilter {
    /// One declared version of each protocol satisfies its requirement.
    pub protocols: BTreeMap<ProtocolName, VersionReq>,
    /// Features that the session must have.
    pub features: BTreeSet<String>,
}

impl CapabilityFilter {
    /// Whether a session with these capabilities is a recipient.
    pub fn matches(&self, capabilities: &Capabilities) -> bool {
        (self.features.is_empty() || self.features.is_subset(&capabilities.supported_features))
            && self.protocols.iter().all(|(name, requirement)| {
                capabilities
                    .versions_of(name)
                    .any(|version| requirement.matches(version))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ProtocolName {
        ProtocolName::parse(text).unwrap()
    }

    fn capabilities(protocols: &[(&str, &[&str])], features: &[&str]) -> Capabilities {
        let versions = |texts: &[&str]| texts.iter().map(|text| Version::parse(text).unwrap()).collect();
        Capabilities {
            supported_protocols: protocols
                .iter()
                .map(|(text, texts)| (name(text), versions(texts)))
                .collect(),
            supported_features: features.iter().map(|feature| (*feature).to_owned()).collect(),
        }
    }

    #[test]
    fn every_protocol_version_and_feature_is_an_entry() {
        assert_eq!(Capabilities::default().entries_len(), 0);
        let some = capabilities(&[("chat", &["1.0.0", "2.0.0", "3.0.0"]), ("call", &[])], &["a", "b"]);
        assert_eq!(some.entries_len(), 2 + 3 + 2);
    }

    #[test]
    fn a_session_accepts_compatible_versions_or_anything_if_it_declares_nothing() {
        let version = |text| Version::parse(text).unwrap();
        assert!(Capabilities::default().accepts(&name("chat"), &version("7.0.0")));
        let chat = capabilities(&[("chat", &["1.0.0"])], &[]);
        for (protocol, of, accepted) in [
            ("chat", "1.2.0", true),
            ("chat", "2.0.0", false),
            ("call", "1.0.0", false),
            (TEXT_PROTOCOL, TEXT_VERSION, true),
            (TEXT_PROTOCOL, "2.0.0", false),
        ] {
            assert_eq!(chat.accepts(&name(protocol), &version(of)), accepted, "{protocol} {of}");
        }
    }

    #[test]
    fn a_filter_selects_sessions_with_all_of_its_protocols_and_features() {
        let filter = |protocols: &[(&str, &str)], features: &[&str]| CapabilityFilter {
            protocols: protocols
                .iter()
                .map(|(text, requirement)| (name(text), VersionReq::parse(requirement).unwrap()))
                .collect(),
            features: features.iter().map(|feature| (*feature).to_owned()).collect(),
        };
        let own = capabilities(&[("chat", &["1.0.0", "2.0.0"])], &["a", "b"]);
        assert!(CapabilityFilter::default().matches(&Capabilities::default()));
        for (wanted, matches) in [
            (filter(&[("chat", "^2")], &["a"]), true),
            (filter(&[("chat", "^3")], &["a"]), false),
            (filter(&[("chat", "^2"), ("call", "*")], &[]), false),
            (filter(&[("chat", "^2"), (TEXT_PROTOCOL, "^1")], &[]), true),
            (filter(&[(TEXT_PROTOCOL, "^2")], &[]), false),
            (filter(&[("chat", "^2")], &["a", "c"]), false),
        ] {
            assert_eq!(wanted.matches(&own), matches, "{wanted:?}");
        }
    }
}
