//! The built-in protocols: those of the messages that the broker itself sends, and [`TEXT`]. Every project has them.
//!
//! A built-in protocol is found by its name and is in no list. Clients do not register under its name. They do not send
//! under the name of one of the broker's own either, so a recipient can trust that such a message comes from the broker. A
//! further one is an entry of [`DEFINITIONS`].
//!
//! A project that has registered a protocol `text` of its own before there was a built-in one keeps it: what is registered
//! is found first.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use semver::Version;
use serde_json::Value;

use super::catalog::Protocol;
use crate::model::{BrokerError, Pattern, ProtocolMetadata, ProtocolName, ProtocolRecord, TEXT_PROTOCOL, TEXT_VERSION};

/// A built-in protocol as it is written down.
pub struct Definition {
    /// The name.
    pub name: &'static str,
    /// The version, which is the only one.
    pub version: &'static str,
    /// What its messages are for.
    pub description: &'static str,
    /// The JSON Schema of its payloads.
    pub schema: &'static str,
    /// How it is used.
    patterns: &'static [Pattern],
}

/// What a message is that names no protocol: `text`. Every session speaks it.
pub const TEXT: Definition = Definition {
    name: TEXT_PROTOCOL,
    version: TEXT_VERSION,
    description: "A plain text, with further members if you like. It needs no registration: every session speaks it.",
    schema: include_str!("builtin/text.json"),
    patterns: &[Pattern::PointToPoint, Pattern::Broadcast, Pattern::RequestResponse],
};

/// What became of messages that their sender has to know about: `delivery-report`.
pub const DELIVERY_REPORT: Definition = Definition {
    name: "delivery-report",
    version: "1.0.0",
    description: "Messages of yours that were not delivered, or whose recipient is blocked.",
    schema: include_str!("builtin/delivery_report.json"),
    patterns: &[Pattern::PointToPoint],
};

/// How a question to people has ended: `human-answer`.
pub const HUMAN_ANSWER: Definition = Definition {
    name: "human-answer",
    version: "1.0.0",
    description: "The answer to a question of yours to people, or how it ended without one.",
    schema: include_str!("builtin/human_answer.json"),
    patterns: &[Pattern::PointToPoint],
};

/// All built-in protocols, by name.
const DEFINITIONS: &[Definition] = &[DELIVERY_REPORT, HUMAN_ANSWER, TEXT];

/// The same, compiled with the first look. The tests compile each of them, so none is missing.
static COMPILED: LazyLock<Vec<Arc<Protocol>>> = LazyLock::new(|| {
    DEFINITIONS
        .iter()
        .filter_map(|definition| definition.compile().ok())
        .collect()
});

impl Definition {
    fn compile(&self) -> Result<Arc<Protocol>, BrokerError> {
        let unreadable = |error: &dyn std::fmt::Display| BrokerError::InvalidSchema {
            reason: error.to_string(),
        };
        Protocol::compile(Arc::new(ProtocolRecord {
            name: ProtocolName::parse(self.name)?,
            version: Version::parse(self.version).map_err(|error| unreadable(&error))?,
            schema: serde_json::from_str::<Value>(self.schema).map_err(|error| unreadable(&error))?,
            capabilities: self.patterns.iter().copied().collect(),
            metadata: ProtocolMetadata {
                author: Some("mcp-broker".to_owned()),
                description: Some(self.description.to_owned()),
                tags: BTreeSet::new(),
            },
            registered_at_ms: 0,
            registered_by: None,
            owner: None,
        }))
    }
}

fn is_builtin(name: &str) -> bool {
    DEFINITIONS.iter().any(|definition| definition.name == name)
}

/// Whether the messages of the protocol with this name come from the broker alone.
#[must_use]
pub fn is_of_broker(name: &str) -> bool {
    is_builtin(name) && name != TEXT.name
}

/// The built-in protocol with this name; None for any other name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Arc<Protocol>> {
    if !is_builtin(name) {
        return None;
    }
    COMPILED.iter().find(|protocol| protocol.name() == name)
}

/// Refuses the name of a protocol of the broker's own messages, for a client that wants to send.
///
/// # Errors
/// `forbidden`.
pub fn check_send(name: &str) -> Result<(), BrokerError> {
    if is_of_broker(name) {
        let text = format!("the protocol {name} is that of the broker's own messages: use another name");
        return Err(BrokerError::forbidden(text));
    }
    Ok(())
}

/// Refuses the name of a built-in protocol, for a client that wants to register.
///
/// # Errors
/// `forbidden`.
pub fn check_register(name: &str) -> Result<(), BrokerError> {
    check_send(name)?;
    if is_builtin(name) {
        let text = format!(
            "the protocol {name} is built in and every session speaks it: send without registering it, or register \
             another name"
        );
        return Err(BrokerError::forbidden(text));
    }
    Ok(())
}

/// Refuses a lens of a built-in protocol.
///
/// # Errors
/// `forbidden`.
pub fn check_lens(name: &str) -> Result<(), BrokerError> {
    if is_builtin(name) {
        let text = format!("the protocol {name} is built in and has no lenses: register another name");
        return Err(BrokerError::forbidden(text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_compiles_and_is_found_by_its_name() {
        for definition in DEFINITIONS {
            let compiled = definition.compile().unwrap();
            assert_eq!(*compiled.version_text, *definition.version);
            let found = by_name(definition.name).unwrap();
            assert_eq!(found.record, compiled.record);
            assert_eq!(check_register(definition.name).unwrap_err().code(), "forbidden");
            assert_eq!(check_send(definition.name).is_ok(), definition.name == TEXT.name);
        }
        assert!(by_name("chat").is_none() && check_register("chat").is_ok());
        assert!(is_of_broker(HUMAN_ANSWER.name) && !is_of_broker(TEXT.name) && !is_of_broker("chat"));
    }

    #[test]
    fn a_text_may_have_further_members() {
        let text = &by_name(TEXT.name).unwrap().schema;
        assert!(text.validate(r#"{"text": "hi", "mood": "fine"}"#).is_ok());
        for wrong in ["{}", r#"{"text": 1}"#, r#""hi""#] {
            assert!(text.validate(wrong).is_err(), "{wrong}");
        }
    }
}
