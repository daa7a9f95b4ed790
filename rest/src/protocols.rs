//! Protocols.

use actors::model::Pattern;
use answer::answer;
use serde_json::Value;

use super::words;

/// A protocol.
#[answer]
pub struct Protocol {
    #[schema(value_type = Vec<Pattern>)]
    pub capabilities: Vec<String>,
    pub metadata: ProtocolMetadata,
    #[schema(value_type = words::ProtocolName)]
    pub name: String,
    #[schema(format = DateTime)]
    pub registered_at: String,
    /// The session that registered it; null for one that was registered here.
    #[schema(format = "uuid")]
    pub registered_by: Option<String>,
    /// The JSON Schema of payloads; in lists with `include_schema`.
    #[absent]
    #[schema(value_type = Option<Object>)]
    pub schema: Option<Value>,
    #[schema(value_type = words::Version)]
    pub version: String,
}

/// Who made a protocol, and what for.
#[answer(lenient)]
pub struct ProtocolMetadata {
    #[absent]
    pub author: Option<String>,
    #[absent]
    pub description: Option<String>,
    pub tags: Vec<String>,
}

/// A protocol that was registered.
#[answer]
pub struct RegisteredProtocol {
    #[serde(flatten)]
    pub protocol: Protocol,
    /// The identical protocol was registered before.
    pub existed: bool,
}

/// A page of protocols, by name and version.
#[answer]
pub struct Protocols {
    pub protocols: Vec<Protocol>,
    /// Cursor of the next page, when items are left.
    #[absent]
    pub next_cursor: Option<String>,
}
