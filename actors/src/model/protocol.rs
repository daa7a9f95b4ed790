//! Protocols as they are registered: names, versions, schemas, metadata.

use std::{collections::BTreeSet, fmt, sync::Arc};

use semver::Version;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use utoipa::ToSchema;

use super::{BrokerError, Owner, SessionId};

/// The name of a protocol. `^[a-z][a-z0-9_-]{0,62}[a-z0-9]$`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProtocolName(Arc<str>);

impl ProtocolName {
    /// Parses a name.
    ///
    /// # Errors
    /// `invalid_argument` when the text does not match the grammar above.
    pub fn parse(text: &str) -> Result<Self, BrokerError> {
        let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = text.as_bytes();
        let well_formed = (2..=64).contains(&bytes.len())
            && bytes[0].is_ascii_lowercase()
            && edge(bytes[bytes.len() - 1])
            && bytes.iter().all(|&b| edge(b) || b == b'_' || b == b'-');
        if well_formed {
            Ok(Self(text.into()))
        } else {
            Err(BrokerError::invalid(
                "name",
                "a protocol name is ^[a-z][a-z0-9_-]{0,62}[a-z0-9]$",
            ))
        }
    }
}

super::ids::text_id!(ProtocolName, parse);

/// A messaging pattern that a protocol is meant for: an entry of its `capabilities`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// One sender, one recipient.
    PointToPoint,
    /// One sender, many recipients.
    Broadcast,
    /// A request that expects an answer.
    RequestResponse,
    /// A sequence of messages that belong together.
    Streaming,
}

/// Descriptive fields of a protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtocolMetadata {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default)]
    pub tags: BTreeSet<String>,
}

/// A registered protocol as it is stored. It never changes: a change is a new version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProtocolRecord {
    pub name: ProtocolName,
    pub version: Version,
    pub schema: Value,
    pub capabilities: BTreeSet<Pattern>,
    pub metadata: ProtocolMetadata,
    /// Milliseconds since the Unix epoch.
    pub registered_at_ms: u64,
    pub registered_by: Option<SessionId>,
    /// Whose the lenses of this version are. None of an earlier version of the broker, or for a caller without a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
}

impl ProtocolRecord {
    /// The parts in which another registration of the same name and version differs. Empty for the same protocol,
    /// even if another session registered it at another time.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        [
            // Build metadata does not make another version, yet it is part of the registration.
            (self.version != other.version, "version"),
            (self.schema != other.schema, "schema"),
            (self.capabilities != other.capabilities, "capabilities"),
            (self.metadata != other.metadata, "metadata"),
        ]
        .into_iter()
        .filter_map(|(differs, name)| differs.then_some(name))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn protocol_names_follow_their_grammar() {
        for good in ["ab", "a0", "a-b", "a_b", "a--b", &"x".repeat(64)] {
            assert_eq!(ProtocolName::parse(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            "a",
            "0a",
            "-a",
            "_a",
            "a-",
            "a_",
            "Ab",
            "aB",
            "aBc",
            "a b",
            "a.b",
            "aéb",
            &"x".repeat(65),
        ] {
            assert!(ProtocolName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_protocol_differs_by_its_definition_and_not_by_its_registration() {
        let record = ProtocolRecord {
            name: ProtocolName::parse("chat").unwrap(),
            version: Version::new(1, 0, 0),
            schema: json!({"type": "object"}),
            capabilities: BTreeSet::new(),
            metadata: ProtocolMetadata::default(),
            registered_at_ms: 1,
            registered_by: None,
            owner: None,
        };
        let differs = |change: fn(&mut ProtocolRecord)| {
            let mut other = record.clone();
            change(&mut other);
            record.differences(&other)
        };
        assert_eq!(differs(|other| other.registered_at_ms = 2), [""; 0]);
        assert_eq!(
            differs(|other| other.version.build = semver::BuildMetadata::new("b").unwrap()),
            ["version"]
        );
        assert_eq!(differs(|other| other.schema = json!({})), ["schema"]);
        assert_eq!(
            differs(|other| other.capabilities = BTreeSet::from([Pattern::Broadcast])),
            ["capabilities"]
        );
        assert_eq!(
            differs(|other| other.metadata.author = Some("alice".to_owned())),
            ["metadata"]
        );
    }
}
