//! The tools `negotiate_capabilities` and `compatibility_matrix`.

use std::{collections::HashSet, sync::Arc};

use actors::{
    model::{BrokerError, Scope, SessionId, SessionStatus},
    negotiate::RequiredProtocol,
    project::{Lookup, ProjectHandle, SessionQuery},
    session::Member,
};
use serde_json::json;

use super::{
    arguments::Arguments,
    schema::{cursor_schema, string_schema, strings_schema},
    tool::{READ_ONLY, Run, Tool, ToolCaller},
};
use crate::{
    json::JsonObject,
    mcp::{page::JsonPage, reply::ToolResult},
};

/// Protocols that one negotiation can require.
const REQUIRED_LEN_MAX: usize = 256;
/// Sessions that one matrix compares: the pairs grow with the square.
const MATRIX_LEN_MAX: usize = 100;
/// Versions and features that one page of the matrix compares: about 5 ms. A page has at least one row.
const MATRIX_ENTRIES_MAX: usize = 40_000;

/// `negotiate_capabilities`.
pub const NEGOTIATE_CAPABILITIES: Tool = Tool {
    name: "negotiate_capabilities",
    title: "Negotiate capabilities",
    description: "What you and another session can both speak, and why not the rest.",
    hints: READ_ONLY,
    required_scope: Scope::Member,
    input: || {
        let required = json!({
            "type": "array",
            "description": "Each {name, version} that you must share.",
            "maxItems": REQUIRED_LEN_MAX,
            "items": {"type": "object"},
        });
        let properties = json!({"target_session_id": string_schema("Id or name."), "required_protocols": required});
        (properties, &["target_session_id"])
    },
    output: || {
        let properties = json!({
            "compatible": {"type": "boolean"},
            "supported_protocols": {"type": "object", "additionalProperties": {"type": "string"}},
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
        });
        let required = &[
            "compatible",
            "supported_protocols",
            "feature_intersections",
            "unsupported_features",
            "incompatibilities",
            "suggestions",
        ];
        (properties, required)
    },
    acts_as_session: true,
    exclusive: false,
    run: Run::Sync(negotiate_capabilities),
};

fn negotiate_capabilities(
    caller: &ToolCaller,
    mut arguments: Arguments<'_>,
) -> Result<Lookup<ToolResult>, BrokerError> {
    let target = arguments.required_text("target_session_id")?;
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
    Ok(caller.project.clone().resolve(&target).map(move |late| {
        let theirs = late.result?;
        let negotiation = caller.project.negotiate(caller.session()?, &theirs, &required);
        Ok(json!(negotiation).into())
    }))
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
        let row = json!({
            "type": "object",
            "properties": {
                "session_a": string_schema(""), "session_b": string_schema(""), "compatible": {"type": "boolean"},
                "common_protocols": {"type": "object"}, "common_features": strings_schema(""),
            },
            "required": ["session_a", "session_b", "compatible", "common_protocols", "common_features"],
        });
        (
            json!({"rows": {"type": "array", "items": row}, "next_cursor": cursor_schema()}),
            &["rows"],
        )
    },
    acts_as_session: false,
    exclusive: false,
    run: Run::Sync(compatibility_matrix),
};

fn compatibility_matrix(caller: &ToolCaller, mut arguments: Arguments<'_>) -> Result<Lookup<ToolResult>, BrokerError> {
    let ids = arguments.optional::<Vec<String>>("session_ids")?;
    let after = arguments.text("cursor")?.map(|text| read_cursor(&text)).transpose()?;
    arguments.finish()?;
    let members = match ids {
        Some(ids) => caller.project.look_up(move |project| named_members(project, &ids)),
        None => Lookup::Ready(active_members(&caller.project)),
    };
    let project = caller.project.clone();
    Ok(members.map(move |late| compare(&project, &late.result?, after)))
}

/// The page of the matrix after the row of these two sessions.
fn compare(
    project: &ProjectHandle,
    members: &[Arc<Member>],
    after: Option<(SessionId, SessionId)>,
) -> Result<ToolResult, BrokerError> {
    let mut pairs = (0..members.len()).flat_map(|a| (a + 1..members.len()).map(move |b| (a, b)));
    if let Some((a, b)) = after {
        let ids = |(at_a, at_b): (usize, usize)| (members[at_a].record.id, members[at_b].record.id);
        if !pairs.any(|pair| ids(pair) == (a, b)) {
            let text = "a session of the last page is not among those that are compared: start again without a cursor";
            return Err(BrokerError::invalid("cursor", text));
        }
    }
    Ok(matrix_page(project, members, pairs))
}

/// The sessions that the caller names, without duplicates.
fn named_members(project: &ProjectHandle, ids: &[String]) -> Result<Vec<Arc<Member>>, BrokerError> {
    let mut members = Vec::new();
    let mut seen = HashSet::new();
    for id in ids {
        let member = project.resolve(id).known()?;
        if seen.insert(member.record.id) {
            members.push(member);
        }
        if members.len() > MATRIX_LEN_MAX {
            return Err(too_many_sessions());
        }
    }
    Ok(members)
}

fn active_members(project: &ProjectHandle) -> Result<Vec<Arc<Member>>, BrokerError> {
    let page = project.list_sessions(&SessionQuery {
        status: Some(SessionStatus::Active),
        protocol: None,
        feature: None,
        limit: MATRIX_LEN_MAX,
        after: None,
    });
    if page.more {
        Err(too_many_sessions())
    } else {
        Ok(page.items)
    }
}

fn too_many_sessions() -> BrokerError {
    let text = format!("at most {MATRIX_LEN_MAX} sessions can be compared: name some");
    BrokerError::invalid("session_ids", text)
}

/// The cursor of a page: the two sessions of its last row.
fn read_cursor(text: &str) -> Result<(SessionId, SessionId), BrokerError> {
    text.split_once('_')
        .and_then(|(a, b)| Some((SessionId::parse(a)?, SessionId::parse(b)?)))
        .ok_or_else(|| BrokerError::invalid("cursor", "not a cursor of this list"))
}

fn matrix_page(
    project: &ProjectHandle,
    members: &[Arc<Member>],
    pairs: impl Iterator<Item = (usize, usize)>,
) -> ToolResult {
    let mut rows = JsonPage::new("rows");
    let mut compared = 0;
    let mut last = None;
    let mut pairs = pairs.peekable();
    while let Some(&(a, b)) = pairs.peek() {
        let (a, b) = (&members[a], &members[b]);
        compared += a.record.capabilities.entries_len() + b.record.capabilities.entries_len();
        let is_full = last.is_some() && compared > MATRIX_ENTRIES_MAX;
        if is_full || !rows.push(&project.compare(a, b)) {
            break;
        }
        last = Some((a.record.id, b.record.id));
        pairs.next();
    }
    let more = last.filter(|_| pairs.peek().is_some());
    rows.finish(more.map(|(a, b)| format!("{a}_{b}")))
}
