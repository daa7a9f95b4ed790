//! Protocols: reads a definition and the filters of a list, and writes what callers see.

use std::collections::BTreeSet;

use actors::{
    clock::rfc3339_text,
    model::{BrokerError, Pattern, ProtocolMetadata, ProtocolName, ProtocolRecord, SessionId},
    project::{ProjectHandle, ProtocolDefinition},
    registry::DiscoverPage,
};
use rest::{
    protocols::{Protocol, ProtocolMetadata as MetadataView, RegisteredProtocol},
    word,
};
use semver::{Version, VersionReq};
use serde::Deserialize;
use serde_json::Value;

use super::arguments::{Arguments, RequirementArgument, VersionArgument};
use common::json::page::JsonPage;

/// Protocols of a page, unless the caller sets a limit.
pub const PAGE_LEN: usize = 100;
/// Largest number of protocols of a page.
pub const PAGE_LEN_MAX: usize = 1000;
/// Bytes of a schema as it is sent. The registry bounds it again without white space.
pub const SCHEMA_LEN_MAX: usize = 512 * 1024;
const METADATA_LEN_MAX: usize = 16 * 1024;

/// The metadata that a caller may set. Unlike the stored form, it refuses unknown members, which are mistakes.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Metadata {
    author: Option<String>,
    description: Option<String>,
    tags: BTreeSet<String>,
}

impl From<Metadata> for ProtocolMetadata {
    fn from(metadata: Metadata) -> Self {
        let Metadata {
            author,
            description,
            tags,
        } = metadata;
        Self {
            author,
            description,
            tags,
        }
    }
}

/// The protocol that the arguments define; it takes all of them.
///
/// # Errors
/// `InvalidArgument` for an argument that is missing, wrong or unknown.
pub fn parse_definition(
    mut arguments: Arguments<'_>,
    registered_by: Option<SessionId>,
) -> Result<ProtocolDefinition, BrokerError> {
    let name = ProtocolName::parse(&arguments.required_text("name")?)?;
    let version = parse_version(&arguments.required_text("version")?)?;
    let schema = arguments
        .optional_within::<Value>("schema", SCHEMA_LEN_MAX)?
        .ok_or_else(|| BrokerError::invalid("schema", "required"))?;
    let capabilities = arguments
        .optional::<BTreeSet<Pattern>>("capabilities")?
        .unwrap_or_default();
    let metadata = arguments.optional_object::<Metadata>("metadata", METADATA_LEN_MAX)?;
    arguments.finish()?;
    Ok(ProtocolDefinition {
        name,
        version,
        schema,
        capabilities,
        metadata: metadata.unwrap_or_default().into(),
        registered_by,
    })
}

/// Registers a protocol. Returns its description without the schema.
///
/// # Errors
/// As [`ProjectHandle::register_protocol`].
pub async fn register(
    project: &ProjectHandle,
    definition: ProtocolDefinition,
) -> Result<RegisteredProtocol, BrokerError> {
    let registered = project.register_protocol(definition).await?;
    Ok(RegisteredProtocol {
        protocol: protocol_view(&registered.record, false),
        existed: registered.is_duplicate,
    })
}

/// Parses the version of a protocol.
///
/// # Errors
/// `InvalidArgument` for a text that is no semantic version.
pub fn parse_version(text: &str) -> Result<Version, BrokerError> {
    let VersionArgument(version) = text
        .parse()
        .map_err(|reason: String| BrokerError::invalid("version", reason))?;
    Ok(version)
}

/// Parses the version filter of a list.
///
/// # Errors
/// `InvalidArgument` for a text that is no version requirement.
pub fn parse_requirement(text: &str) -> Result<VersionReq, BrokerError> {
    let RequirementArgument(wanted) = text
        .parse()
        .map_err(|reason: String| BrokerError::invalid("version", reason))?;
    Ok(wanted)
}

/// A page of protocols as JSON text.
pub fn page(page: &DiscoverPage, with_schema: bool) -> Vec<u8> {
    let mut text = JsonPage::new("protocols");
    let ended = text.push_all(&page.protocols, |protocol| protocol_view(&protocol.record, with_schema));
    let next = ended.map(|last| last.cursor()).or_else(|| page.next_cursor.clone());
    text.finish(next)
}

/// A protocol, as callers see it.
pub fn protocol_view(record: &ProtocolRecord, with_schema: bool) -> Protocol {
    Protocol {
        name: record.name.to_string(),
        version: record.version.to_string(),
        capabilities: record.capabilities.iter().map(word).collect(),
        metadata: MetadataView {
            author: record.metadata.author.clone(),
            description: record.metadata.description.clone(),
            tags: record.metadata.tags.iter().cloned().collect(),
        },
        registered_at: rfc3339_text(record.registered_at_ms),
        registered_by: record.registered_by.map(|session| session.to_string()),
        schema: with_schema.then(|| record.schema.clone()),
    }
}
