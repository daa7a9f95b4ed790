//! Protocols and lenses for unit tests.

use std::{collections::BTreeSet, sync::Arc};

use lens::{Direction, Lens};
use semver::Version;
use serde_json::Value;

use super::RegisteredLens;
use crate::model::{LensRecord, ProtocolMetadata, ProtocolName, ProtocolRecord};

/// A version of a protocol.
pub fn protocol_record(name: &str, version: &str, schema: Value) -> ProtocolRecord {
    ProtocolRecord {
        name: ProtocolName::parse(name).unwrap(),
        version: Version::parse(version).unwrap(),
        schema,
        capabilities: BTreeSet::new(),
        metadata: ProtocolMetadata::default(),
        registered_at_ms: 0,
        registered_by: None,
        owner: None,
    }
}

/// A lens from version 1.0.0 of a protocol to version 2.0.0.
pub fn lens_record(name: &str, ops: Value) -> LensRecord {
    LensRecord {
        name: ProtocolName::parse(name).unwrap(),
        from: Version::new(1, 0, 0),
        to: Version::new(2, 0, 0),
        ops,
        direction: Direction::Both,
        allow_loss: false,
        revision: 1,
        forward: None,
        backward: None,
        registered_by_key: None,
        registered_at_ms: 0,
    }
}

/// The same, compiled between the schemas of both versions.
pub fn lens_between(name: &str, ops: Value, [source, target]: [&Value; 2]) -> RegisteredLens {
    let compiled = Lens::parse(&ops).unwrap().compile(source, target, Direction::Both);
    RegisteredLens {
        record: Arc::new(lens_record(name, ops)),
        compiled: Arc::new(compiled.unwrap()),
    }
}
