//! The tools `list_dead_letters` and `redrive_dead_letters`.

use actors::{
    model::{BrokerError, DeadLetter, DeadLetterReason, Scope},
    storage::DeadLetterQuery,
};
use serde_json::json;

use super::{
    schema::{cursor_schema, integer_schema, limit_schema, string_schema, strings_schema},
    tool::{ADDITIVE, Called, READ_ONLY, Tool, ToolCaller},
};
use crate::{
    mcp::reply::{ReplyTo, ToolResult},
    verbs::{
        arguments::Arguments,
        dead_letters::{self, PAGE_LEN, PAGE_LEN_MAX, Redrive},
        messages::read_ids,
    },
};

/// `list_dead_letters`.
pub const LIST_DEAD_LETTERS: Tool = Tool {
    name: "list_dead_letters",
    title: "List dead letters",
    description: "Messages that were given up, and why.",
    hints: READ_ONLY,
    required_scope: Scope::Observer,
    input: || {
        let properties = json!({
            "reason": {
                "enum": ["expired", "delivery_limit", "recipient_gone", "rejected", "transform_failed"], "description": "Only this reason.",
            },
            "limit": limit_schema(PAGE_LEN, PAGE_LEN_MAX),
            "cursor": cursor_schema(),
        });
        (properties, &[])
    },
    output: || {
        let letter = json!({
            "type": "object",
            "properties": {
                "message": {"type": "object"},
                "session_id": string_schema(""),
                "session_name": {"type": ["string", "null"]},
                "reason": {"enum": ["expired", "delivery_limit", "recipient_gone", "rejected", "transform_failed"]},
                "at": string_schema(""),
                "deliveries": integer_schema(""),
            },
            "required": ["message", "reason", "at", "deliveries"],
        });
        (
            json!({"dead_letters": {"type": "array", "items": letter}, "next_cursor": string_schema("")}),
            &["dead_letters"],
        )
    },
    acts_as_session: false,
    exclusive: false,
    run: list_dead_letters,
};

fn list_dead_letters(caller: &ToolCaller, mut arguments: Arguments<'_>, _: &ReplyTo) -> Result<Called, BrokerError> {
    let reason = arguments.optional::<DeadLetterReason>("reason")?;
    let limit = arguments.bounded("limit", PAGE_LEN, 1, PAGE_LEN_MAX)?;
    let after = arguments
        .text("cursor")?
        .map(|cursor| dead_letters::parse_cursor(&cursor))
        .transpose()?;
    arguments.finish()?;
    let query = DeadLetterQuery {
        reason,
        after,
        limit,
        ..DeadLetterQuery::default()
    };
    Ok(Called::page(caller, async move |caller| {
        let room = caller.reservation().budget();
        let page = caller.project().dead_letters(query, &*room).await?;
        let write_message = |out: &mut Vec<u8>, letter: &DeadLetter| letter.message.write(out, letter.deliveries);
        let text = dead_letters::page(caller.project(), &page, |_| true, write_message);
        Ok(ToolResult::from(text))
    }))
}

/// `redrive_dead_letters`.
pub const REDRIVE_DEAD_LETTERS: Tool = Tool {
    name: "redrive_dead_letters",
    title: "Send dead letters again",
    description: "Send dead letters again, to their recipient or another.",
    hints: ADDITIVE,
    required_scope: Scope::Member,
    input: || {
        let properties = json!({
            "message_ids": strings_schema("Of dead letters."),
            "recipient_id": string_schema("Id or name of another recipient."),
        });
        (properties, &["message_ids"])
    },
    output: || {
        let refused = json!({
            "type": "object",
            "properties": {"message_id": string_schema(""), "code": string_schema("")},
            "required": ["message_id", "code"],
        });
        let properties = json!({
            "redriven": integer_schema(""),
            "unknown": {"type": "array", "items": {"type": "string"}},
            "failures": {
                "type": "array", "items": refused,
            },
        });
        (properties, &["redriven", "unknown"])
    },
    acts_as_session: false,
    exclusive: false,
    run: redrive_dead_letters,
};

fn redrive_dead_letters(caller: &ToolCaller, mut arguments: Arguments<'_>, _: &ReplyTo) -> Result<Called, BrokerError> {
    let texts = read_ids(&mut arguments)?;
    let recipient = match arguments.text("recipient_id")? {
        None => None,
        Some(address) => Some(caller.project().resolve(&address).fail_fast()?),
    };
    arguments.finish()?;
    let redrive = Redrive::new(texts)?;
    Ok(Called::later(caller, async move |caller| {
        let recipient = match recipient {
            None => None,
            Some(recipient) => Some(recipient.answer().await?.record.id),
        };
        Ok(json!(redrive.run(caller.project(), recipient).await?).into())
    }))
}
