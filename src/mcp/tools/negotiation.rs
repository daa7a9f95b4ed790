use actors::{
    model::{BrokerError, Scope},
    negotiate::RequiredProtocol,
};
use serde_json::{Value, json};

use super::{Arguments, Caller, LOOKS, Object, Run, Tool, text, words};
use crate::mcp::reply::Answer;

/// Sessions that one matrix compares: the work grows with the square.
const MATRIX_LEN_MAX: usize = 100;

pub const NEGOTIATE_CAPABILITIES: Tool = Tool {
    name: "negotiate_capabilities",
    title: "Negotiate capabilities",
    description: "What you and another session can both speak, and what stands in the way of the rest.",
    hints: LOOKS,
    needs: Scope::Member,
    input: || {
        let required = json!({
            "type": "array",
            "description": "Without these there is no agreement.",
            "items": {
                "type": "object",
                "properties": {"name": text(""), "version": text("")},
                "required": ["name", "version"],
            },
        });
        let properties = json!({"target_session_id": text("Id or name."), "required_protocols": required});
        (properties, &["target_session_id"])
    },
    output: || {
        let properties = json!({
            "compatible": {"type": "boolean"},
            "supported_protocols": {"type": "object", "additionalProperties": {"type": "string"}},
            "feature_intersections": words(""),
            "unsupported_features": {
                "type": "object",
                "properties": {"ours": words(""), "theirs": words("")},
                "required": ["ours", "theirs"],
            },
            "incompatibilities": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"protocol": text(""), "reason": text(""), "ours": words(""), "theirs": words("")},
                    "required": ["protocol", "reason", "ours", "theirs"],
                },
            },
            "suggestions": words(""),
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
    run: Run::Now(negotiate_capabilities),
};

fn negotiate_capabilities(caller: &Caller, mut arguments: Arguments<'_>) -> Result<Answer, BrokerError> {
    let target = arguments.required_text("target_session_id")?;
    let required: Vec<RequiredProtocol> = arguments
        .optional::<Vec<Object<_>>>("required_protocols")?
        .unwrap_or_default()
        .into_iter()
        .map(|Object(required)| required)
        .collect();
    arguments.finish()?;
    let theirs = caller.project.resolve(&target)?;
    let negotiation = caller.project.negotiate(caller.session()?, &theirs, &required);
    Ok(json!(negotiation).into())
}

pub const COMPATIBILITY_MATRIX: Tool = Tool {
    name: "compatibility_matrix",
    title: "Compatibility matrix",
    description: "For each pair of sessions, what both can speak.",
    hints: LOOKS,
    needs: Scope::Observer,
    input: || (json!({"session_ids": words("Ids or names; default: all active.")}), &[]),
    output: || {
        let row = json!({
            "type": "object",
            "properties": {
                "session_a": text(""), "session_b": text(""), "compatible": {"type": "boolean"},
                "common_protocols": {"type": "object"}, "common_features": words(""),
            },
            "required": ["session_a", "session_b", "compatible", "common_protocols", "common_features"],
        });
        (json!({"rows": {"type": "array", "items": row}}), &["rows"])
    },
    acts_as_session: false,
    exclusive: false,
    run: Run::Now(compatibility_matrix),
};

fn compatibility_matrix(caller: &Caller, mut arguments: Arguments<'_>) -> Result<Answer, BrokerError> {
    let ids = arguments.optional::<Vec<String>>("session_ids")?;
    arguments.finish()?;
    let too_many = || {
        BrokerError::invalid(
            "session_ids",
            format!("at most {MATRIX_LEN_MAX} sessions can be compared: name some"),
        )
    };
    let members = match ids {
        Some(ids) if ids.len() > MATRIX_LEN_MAX => return Err(too_many()),
        Some(ids) => ids
            .iter()
            .map(|id| caller.project.resolve(id))
            .collect::<Result<Vec<_>, _>>()?,
        None => {
            let query = actors::project::SessionQuery {
                status: Some(actors::model::SessionStatus::Active),
                protocol: None,
                feature: None,
                limit: MATRIX_LEN_MAX,
                after: None,
            };
            let page = caller.project.list_sessions(&query);
            if page.more {
                return Err(too_many());
            }
            page.items
        }
    };
    let rows: Value = json!(caller.project.compatibility_matrix(&members));
    Ok(json!({"rows": rows}).into())
}
