use std::collections::BTreeSet;

use actors::{
    clock::rfc3339_text,
    model::{BrokerError, Pattern, ProtocolMetadata, ProtocolName, ProtocolRecord, Scope},
    project::ProtocolDefinition,
    registry::{Admitted, DiscoverPage, DiscoverQuery},
};
use semver::Version;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Arguments, Caller, LOOKS, Pending, Run, SETS, Tool,
    arguments::{ReadRequirement, ReadVersion},
    cursor, described, limit, text, words,
};
use crate::mcp::page::PageText;

const PATTERNS: [&str; 4] = ["point_to_point", "broadcast", "request_response", "streaming"];
const METADATA_LEN_MAX: usize = 16 * 1024;
/// Bytes of a schema as it is sent; without white space it may have half as many.
const SCHEMA_LEN_MAX: usize = 512 * 1024;

fn patterns() -> Value {
    json!({"type": "array", "items": {"enum": PATTERNS}})
}

fn metadata() -> Value {
    json!({"type": "object", "description": "author, description, tags (a list)."})
}

pub const REGISTER_PROTOCOL: Tool = Tool {
    name: "register_protocol",
    title: "Register protocol",
    description: "Publish a message format: a JSON Schema (draft-07 or 2020-12) under a name and version.",
    hints: SETS,
    needs: Scope::Member,
    input: || {
        let properties = json!({
            "name": text("Lower-case letters, digits, '-' and '_'."),
            "version": text("Such as 1.0.0."),
            "schema": {"type": "object", "description": "Describes the payload, an object."},
            "capabilities": described(patterns(), "How it is used."),
            "metadata": metadata(),
        });
        (properties, &["name", "version", "schema"])
    },
    output: || {
        let mut properties = protocol();
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
    run: Run::Later(register_protocol),
};

fn protocol() -> Value {
    json!({
        "name": text(""),
        "version": text(""),
        "schema": {"type": "object"},
        "capabilities": patterns(),
        "metadata": {"type": "object"},
        "registered_at": text(""),
        "registered_by": {"type": ["string", "null"]},
    })
}

/// What may be said about a protocol. What is stored may have more one day; a caller that names more is mistaken.
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

fn register_protocol(caller: Caller, mut arguments: Arguments<'_>) -> Result<Pending, BrokerError> {
    let name = ProtocolName::parse(&arguments.required_text("name")?)?;
    let version = parse_version(&arguments.required_text("version")?)?;
    let schema = arguments
        .within::<Value>("schema", SCHEMA_LEN_MAX)?
        .ok_or_else(|| BrokerError::invalid("schema", "required"))?;
    let capabilities = arguments
        .optional::<BTreeSet<Pattern>>("capabilities")?
        .unwrap_or_default();
    let metadata = arguments.object::<Metadata>("metadata", METADATA_LEN_MAX)?;
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
    Ok(Pending::new(async move {
        let Admitted { record, existed } = caller.project.register_protocol(definition).await?;
        let mut answer = protocol_json(&record, false);
        answer["existed"] = json!(existed);
        Ok(answer.into())
    }))
}

fn parse_version(text: &str) -> Result<Version, BrokerError> {
    let ReadVersion(version) = text
        .parse()
        .map_err(|reason: String| BrokerError::invalid("version", reason))?;
    Ok(version)
}

pub const DISCOVER_PROTOCOLS: Tool = Tool {
    name: "discover_protocols",
    title: "Discover protocols",
    description: "Which message formats there are.",
    hints: LOOKS,
    needs: Scope::Observer,
    input: || {
        let properties = json!({
            "name": text("Only this one."),
            "version": text("Requirement, such as ^1.2."),
            "tags": words("All of these."),
            "capability": {"enum": PATTERNS, "description": "How it is used."},
            "include_schema": {"type": "boolean", "description": "Show schemas."},
            "limit": limit(100, 1000),
            "cursor": cursor(),
        });
        (properties, &[])
    },
    output: || {
        let found = json!({"type": "object", "properties": protocol(), "required": ["name", "version"]});
        (
            json!({"protocols": {"type": "array", "items": found}, "next_cursor": text("")}),
            &["protocols"],
        )
    },
    acts_as_session: false,
    exclusive: false,
    run: Run::Later(discover_protocols),
};

fn discover_protocols(caller: Caller, mut arguments: Arguments<'_>) -> Result<Pending, BrokerError> {
    let version = match arguments.text("version")? {
        None => None,
        Some(text) => {
            let ReadRequirement(wanted) = text
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
    Ok(Pending::page(async move {
        let (text, next) = protocol_page(&caller.project.discover_protocols(&query)?, with_schema);
        Ok(text.finish(next))
    }))
}

/// The protocols of a page that have room on it, and the cursor if there are more.
pub fn protocol_page(page: &DiscoverPage, with_schema: bool) -> (PageText, Option<String>) {
    let mut text = PageText::new("protocols");
    let ended = text.push_all(&page.protocols, |protocol| protocol_json(&protocol.record, with_schema));
    let next = ended.map(|last| last.cursor()).or_else(|| page.next_cursor.clone());
    (text, next)
}

/// A protocol as others see it.
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
