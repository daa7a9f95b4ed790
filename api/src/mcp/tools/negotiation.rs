//! The tools `negotiate_capabilities` and `compatibility_matrix`.

use actors::{
    model::{BrokerError, Scope},
    negotiate::RequiredProtocol,
};
use serde_json::{Value, json};

use super::{
    schema::{cursor_schema, string_schema, strings_schema},
    tool::{Called, READ_ONLY, Tool, ToolCaller},
};
use crate::{
    mcp::reply::{ReplyTo, ToolResult},
    verbs::{arguments::Arguments, compatibility},
};
use common::json::JsonObject;

/// Protocols that one negotiation can require.
const REQUIRED_LEN_MAX: usize = 256;

/// `negotiate_capabilities`.
pub const NEGOTIATE_CAPABILITIES: Tool = Tool {
    name: "negotiate_capabilities",
    title: "Negotiate capabilities",
    description: "What you and another session can both speak, and why not the rest. Or what each pair of several can.",
    hints: READ_ONLY,
    required_scope: Scope::Member,
    input: || {
        let required = json!({
            "type": "array",
            "description": "Each {name, version} that you must share.",
            "maxItems": REQUIRED_LEN_MAX,
            "items": {"type": "object"},
        });
        let properties = json!({
            "target_session_id": string_schema("Id or name."), "required_protocols": required,
            "session_ids": strings_schema("Instead of target: each pair of these; [] of all active."),
            "cursor": cursor_schema(),
        });
        (properties, &[])
    },
    output: || {
        let properties = json!({
            "compatible": {"type": "boolean"},
            "supported_protocols": {"type": "object", "additionalProperties": {"type": "string"}},
            "by_lens": {"type": "object"},
            "feature_intersections": strings_schema(""),
            "unsupported_features": {
                "type": "object",
                "properties": {"ours": strings_schema(""), "theirs": strings_schema("")},
                "required": ["ours", "theirs"],
            },
            "incompatibilities": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"protocol": string_schema(""), "reason": string_schema(""), "ours": strings_schema(""), "theirs": strings_schema("")},
                    "required": ["protocol", "reason", "ours", "theirs"],
                },
            },
            "suggestions": strings_schema(""),
            "rows": rows_schema(), "next_cursor": cursor_schema(),
        });
        (properties, &[])
    },
    acts_as_session: true,
    exclusive: false,
    run: negotiate_capabilities,
};

fn negotiate_capabilities(
    caller: &ToolCaller,
    mut arguments: Arguments<'_>,
    _: &ReplyTo,
) -> Result<Called, BrokerError> {
    let ids = arguments.optional::<Vec<String>>("session_ids")?;
    let target = match (arguments.text("target_session_id")?, ids) {
        (Some(target), None) => target,
        (None, Some(ids)) => return matrix_of(caller, arguments, Some(ids).filter(|ids| !ids.is_empty())),
        (None, None) => {
            return Err(BrokerError::invalid(
                "target_session_id",
                "required, unless there are session_ids",
            ));
        }
        (Some(_), Some(_)) => {
            return Err(BrokerError::invalid(
                "session_ids",
                "not together with target_session_id",
            ));
        }
    };
    let required: Vec<RequiredProtocol> = arguments
        .optional::<Vec<JsonObject<_>>>("required_protocols")?
        .unwrap_or_default()
        .into_iter()
        .map(|JsonObject(required)| required)
        .collect();
    arguments.finish()?;
    if required.len() > REQUIRED_LEN_MAX {
        let text = format!("at most {REQUIRED_LEN_MAX} protocols can be required at once");
        return Err(BrokerError::invalid("required_protocols", text));
    }
    let caller = caller.clone();
    Called::once_known(caller.project().clone().resolve(&target).map(move |late| {
        let theirs = late.result?;
        let negotiation = caller.project().negotiate(caller.session()?, &theirs, &required);
        Ok(ToolResult::from(json!(negotiation)))
    }))
}

fn rows_schema() -> Value {
    let row = json!({
        "type": "object",
        "properties": {
            "session_a": string_schema(""), "session_b": string_schema(""), "compatible": {"type": "boolean"},
            "common_protocols": {"type": "object"}, "by_lens": {"type": "object"}, "common_features": strings_schema(""),
        },
        "required": ["session_a", "session_b", "compatible", "common_protocols", "common_features"],
    });
    json!({"type": "array", "items": row})
}

/// `compatibility_matrix`.
pub const COMPATIBILITY_MATRIX: Tool = Tool {
    name: "compatibility_matrix",
    title: "Compatibility matrix",
    description: "For each pair of sessions, what both can speak.",
    hints: READ_ONLY,
    required_scope: Scope::Observer,
    input: || {
        (
            json!({"session_ids": strings_schema("Ids or names; default: all active."), "cursor": cursor_schema()}),
            &[],
        )
    },
    output: || {
        (
            json!({"rows": rows_schema(), "next_cursor": cursor_schema()}),
            &["rows"],
        )
    },
    acts_as_session: false,
    exclusive: false,
    run: compatibility_matrix,
};

fn compatibility_matrix(caller: &ToolCaller, mut arguments: Arguments<'_>, _: &ReplyTo) -> Result<Called, BrokerError> {
    let ids = arguments.optional::<Vec<String>>("session_ids")?;
    matrix_of(caller, arguments, ids)
}

/// What each pair of these sessions can speak, or of all that are active.
fn matrix_of(
    caller: &ToolCaller,
    mut arguments: Arguments<'_>,
    ids: Option<Vec<String>>,
) -> Result<Called, BrokerError> {
    let after = arguments
        .text("cursor")?
        .map(|text| compatibility::parse_cursor(&text))
        .transpose()?;
    arguments.finish()?;
    let page = compatibility::page(caller.project(), ids, after);
    Called::once_known(page.map(|late| late.result.map(ToolResult::from)))
}
