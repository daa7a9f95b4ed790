//! The tools `register_protocol`, `discover_protocols` and `transform_message`.

use actors::{
    model::{BrokerError, PAGE_BYTES_MAX, ProtocolName, Scope},
    registry::DiscoverQuery,
    session::ReadBudget,
};
use serde_json::{Value, json};

use super::{
    schema::{cursor_schema, limit_schema, string_schema, strings_schema, with_description},
    tool::{Called, IDEMPOTENT, READ_ONLY, Tool, ToolCaller},
};
use crate::{
    mcp::reply::{ReplyTo, ToolResult},
    verbs::{
        arguments::Arguments,
        protocols::{self, PAGE_LEN, PAGE_LEN_MAX},
    },
};

const PATTERNS: [&str; 4] = ["point_to_point", "broadcast", "request_response", "streaming"];

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
        let boolean = |description| with_description(json!({"type": "boolean"}), description);
        let properties = json!({
            "name": string_schema("Lower-case letters, digits, '-' and '_'."),
            "version": string_schema("Such as 1.0.0."),
            "schema": {"type": "object", "description": "Describes the payload, an object."},
            "capabilities": with_description(patterns_schema(), "How it is used."),
            "metadata": metadata_schema(),
            "from": string_schema("Lower version."),
            "lens": with_description(json!({"type": "array"}), "Operations from its payloads."),
            "direction": with_description(json!({"enum": ["both", "forward", "backward"]}), "Of the lens."),
            "allow_loss": boolean("Of data."),
            "replace_lens": boolean("If another."),
            "dry_run": boolean("Check only."),
        });
        (properties, &["name", "version", "schema"])
    },
    output: || {
        let mut properties = protocol_schema();
        properties["existed"] = json!({"type": "boolean"});
        properties["lens"] = json!({"type": "object"});
        properties["dry_run"] = json!({"type": "boolean"});
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
    run: register_protocol,
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
        "lenses": {"type": "array"},
    })
}

fn register_protocol(caller: &ToolCaller, arguments: Arguments<'_>, _: &ReplyTo) -> Result<Called, BrokerError> {
    let registered_by = caller.session.as_ref().map(|member| member.record.id);
    let definition = protocols::parse_definition(arguments, registered_by)?;
    Ok(Called::later(caller, async move |caller| {
        let (context, dry_run) = (&caller.context, definition.dry_run);
        let registering = context.service.admin.register_protocol(&context.identity, definition);
        Ok(json!(protocols::registered_view(&registering.await?, dry_run)).into())
    }))
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
            "limit": limit_schema(PAGE_LEN, PAGE_LEN_MAX),
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
    run: discover_protocols,
};

fn discover_protocols(caller: &ToolCaller, mut arguments: Arguments<'_>, _: &ReplyTo) -> Result<Called, BrokerError> {
    let version = arguments.text("version")?;
    let version = version.map(|text| protocols::parse_requirement(&text)).transpose()?;
    let query = DiscoverQuery {
        name: arguments
            .text("name")?
            .map(|name| ProtocolName::parse(&name))
            .transpose()?,
        version,
        tags: arguments.optional("tags")?.unwrap_or_default(),
        capability: arguments.optional("capability")?,
        text: None,
        limit: Some(arguments.bounded("limit", PAGE_LEN, 1, PAGE_LEN_MAX)?),
        cursor: arguments.text("cursor")?.map(std::borrow::Cow::into_owned),
    };
    let with_schema = arguments.optional::<bool>("include_schema")?.unwrap_or(false);
    arguments.finish()?;
    Ok(Called::page(caller, async move |caller| {
        let page = caller.project().discover_protocols(&query)?;
        Ok(ToolResult::from(protocols::page(caller.project(), &page, with_schema)))
    }))
}

/// `transform_message`.
pub const TRANSFORM_MESSAGE: Tool = Tool {
    name: "transform_message",
    title: "Transform message",
    description: "What a recipient of another version of the protocol would get of a payload. Sends nothing.",
    hints: READ_ONLY,
    required_scope: Scope::Observer,
    input: || {
        let properties = json!({
            "protocol_name": string_schema("As registered."),
            "from_version": string_schema("Of the payload."),
            "to_version": string_schema("Of the recipient."),
            "payload": {"type": "object", "description": "As for send_message."},
            "complement": {"type": "object", "description": "Of an earlier result: restores what it lost."},
        });
        (properties, &["protocol_name", "from_version", "to_version", "payload"])
    },
    output: || {
        let properties = json!({
            "payload": {"type": "object"},
            "from": string_schema(""),
            "to": string_schema(""),
            "path": strings_schema(""),
            "class": {"enum": ["exact", "defaulted", "lossy"]},
            "loss": strings_schema(""),
            "defaulted": strings_schema(""),
            "more": {"type": "boolean"},
            "complement": {"type": "object"},
        });
        (
            properties,
            &["payload", "from", "to", "path", "class", "loss", "defaulted"],
        )
    },
    acts_as_session: false,
    exclusive: false,
    run: transform_message,
};

fn transform_message(caller: &ToolCaller, mut arguments: Arguments<'_>, _: &ReplyTo) -> Result<Called, BrokerError> {
    let name = arguments.required_text("protocol_name")?;
    let request = protocols::parse_transform(&name, arguments, caller.context.service.payload_len_max)?;
    Ok(Called::page(caller, async move |caller| {
        if request.payload.len() > PAGE_BYTES_MAX {
            caller.reservation().budget().reserve(request.payload.len()).await;
        }
        let text = protocols::transform(&caller.context.identity, request).await?;
        Ok(ToolResult::from(text))
    }))
}
