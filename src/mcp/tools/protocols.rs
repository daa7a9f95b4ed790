//! The tools `register_protocol` and `discover_protocols`.

use std::collections::BTreeSet;

use actors::{
    clock::rfc3339_text,
    model::{BrokerError, Pattern, ProtocolMetadata, ProtocolName, ProtocolRecord, Scope},
    project::ProtocolDefinition,
    registry::{DiscoverPage, DiscoverQuery, RegisteredProtocol},
};
use semver::Version;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    arguments::{Arguments, RequirementArgument, VersionArgument},
    schema::{cursor_schema, limit_schema, string_schema, strings_schema, with_description},
    tool::{IDEMPOTENT, PendingCall, READ_ONLY, Run, Tool, ToolCaller},
};
use crate::mcp::page::JsonPage;

const PATTERNS: [&str; 4] = ["point_to_point", "broadcast", "request_response", "streaming"];
const METADATA_LEN_MAX: usize = 16 * 1024;
/// Bytes of a schema as it is sent. The registry bounds it again without white space.
const SCHEMA_LEN_MAX: usize = 512 * 1024;

fn patterns_schema() -> Value {
    json!({"type": "array", "items": {"enum": PATTERNS}})
}

fn metadata_schema() -> Value {
    json!({"type": "object", "description": "author, description, tags (a list)."})
}

/// `register_protocol`.
pub const REGISTER_PROTOCOL: Tool = Tool {
    name: "register_protocol",
    title: "Register protocol",
    description: "Publish a message format: a JSON Schema (draft-07 or 2020-12) under a name and version.",
    hints: IDEMPOTENT,
    required_scope: Scope::Member,
    input: || {
        let properties = json!({
            "name": string_schema("Lower-case letters, digits, '-' and '_'."),
            "version": string_schema("Such as 1.0.0."),
            "schema": {"type": "object", "description": "Describes the payload, an object."},
            "capabilities": with_description(patterns_schema(), "How it is used."),
            "metadata": metadata_schema(),
        });
        (properties, &["name", "version", "schema"])
    },
    output: || {
        let mut properties = protocol_schema();
        properties["existed"] = json!({"type": "boolean"});
        let required = &[
            "name",
            "version",
            "capabilities",
            "metadata",
            "registered_at",
            "existed",
        ];
        (properties, required)
    },
    acts_as_session: false,
    exclusive: true,
    run: Run::Async(register_protocol),
};

fn protocol_schema() -> Value {
    json!({
        "name": string_schema(""),
        "version": string_schema(""),
        "schema": {"type": "object"},
        "capabilities": patterns_schema(),
        "metadata": {"type": "object"},
        "registered_at": string_schema(""),
        "registered_by": {"type": ["string", "null"]},
    })
}

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

fn register_protocol(caller: ToolCaller, mut arguments: Arguments<'_>) -> Result<PendingCall, BrokerError> {
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
    let registered_by = caller.session.as_ref().map(|member| member.record.id);
    let definition = ProtocolDefinition {
        name,
        version,
        schema,
        capabilities,
        metadata: metadata.unwrap_or_default().into(),
        registered_by,
    };
    Ok(PendingCall::new(async move {
        let RegisteredProtocol {
            record,
            is_duplicate: existed,
        } = caller.project.register_protocol(definition).await?;
        let mut answer = protocol_json(&record, false);
        answer["existed"] = json!(existed);
        Ok(answer.into())
    }))
}

fn parse_version(text: &str) -> Result<Version, BrokerError> {
    let VersionArgument(version) = text
        .parse()
        .map_err(|reason: String| BrokerError::invalid("version", reason))?;
    Ok(version)
}

/// `discover_protocols`.
pub const DISCOVER_PROTOCOLS: Tool = Tool {
    name: "discover_protocols",
    title: "Discover protocols",
    description: "Which message formats there are.",
    hints: READ_ONLY,
    required_scope: Scope::Observer,
    input: || {
        let properties = json!({
            "name": string_schema("Only this one."),
            "version": string_schema("Requirement, such as ^1.2."),
            "tags": strings_schema("All of these."),
            "capability": {"enum": PATTERNS, "description": "How it is used."},
            "include_schema": {"type": "boolean", "description": "Show schemas."},
            "limit": limit_schema(100, 1000),
            "cursor": cursor_schema(),
        });
        (properties, &[])
    },
    output: || {
        let found = json!({"type": "object", "properties": protocol_schema(), "required": ["name", "version"]});
        (
            json!({"protocols": {"type": "array", "items": found}, "next_cursor": string_schema("")}),
            &["protocols"],
        )
    },
    acts_as_session: false,
    exclusive: false,
    run: Run::Async(discover_protocols),
};

fn discover_protocols(caller: ToolCaller, mut arguments: Arguments<'_>) -> Result<PendingCall, BrokerError> {
    let version = match arguments.text("version")? {
        None => None,
        Some(text) => {
            let RequirementArgument(wanted) = text
                .parse()
                .map_err(|reason: String| BrokerError::invalid("version", reason))?;
            Some(wanted)
        }
    };
    let query = DiscoverQuery {
        name: arguments
            .text("name")?
            .map(|name| ProtocolName::parse(&name))
            .transpose()?,
        version,
        tags: arguments.optional("tags")?.unwrap_or_default(),
        capability: arguments.optional("capability")?,
        limit: Some(arguments.bounded("limit", 100, 1, 1000)?),
        cursor: arguments.text("cursor")?.map(std::borrow::Cow::into_owned),
    };
    let with_schema = arguments.optional::<bool>("include_schema")?.unwrap_or(false);
    arguments.finish()?;
    Ok(PendingCall::page(async move {
        let (text, next) = protocol_page(&caller.project.discover_protocols(&query)?, with_schema);
        Ok(text.finish(next))
    }))
}

/// The protocols of a page that have room on it, and the cursor if there are more.
pub fn protocol_page(page: &DiscoverPage, with_schema: bool) -> (JsonPage, Option<String>) {
    let mut text = JsonPage::new("protocols");
    let ended = text.push_all(&page.protocols, |protocol| protocol_json(&protocol.record, with_schema));
    let next = ended.map(|last| last.cursor()).or_else(|| page.next_cursor.clone());
    (text, next)
}

/// A protocol, as callers see it.
pub fn protocol_json(record: &ProtocolRecord, with_schema: bool) -> Value {
    let mut described = json!({
        "name": record.name,
        "version": record.version,
        "capabilities": record.capabilities,
        "metadata": record.metadata,
        "registered_at": rfc3339_text(record.registered_at_ms),
        "registered_by": record.registered_by,
    });
    if with_schema {
        described["schema"] = record.schema.clone();
    }
    described
}
