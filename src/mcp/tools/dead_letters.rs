//! The tools `list_dead_letters` and `redrive_dead_letters`.

use std::collections::HashSet;

use actors::{
    clock::rfc3339_text,
    model::{BrokerError, DeadLetter, DeadLetterReason, MessageId, Scope, SessionId},
    project::{Page, RedriveRequest},
    storage::{DeadLetterQuery, RedriveRefusal},
};
use serde_json::{Value, json};

use super::{
    arguments::Arguments,
    receiving::{parse_ids, read_ids},
    schema::{cursor_schema, integer_schema, limit_schema, string_schema, strings_schema},
    tool::{ADDITIVE, PendingCall, READ_ONLY, Run, Tool, ToolCaller},
};
use crate::mcp::{page::JsonPage, reply::ToolResult, rpc::write_json};

const PAGE_LEN: usize = 50;
const PAGE_LEN_MAX: usize = 500;

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
                "enum": ["expired", "delivery_limit", "recipient_gone", "rejected"], "description": "Only this reason.",
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
                "reason": {"enum": ["expired", "delivery_limit", "recipient_gone", "rejected"]},
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
    run: Run::Async(list_dead_letters),
};

fn list_dead_letters(caller: ToolCaller, mut arguments: Arguments<'_>) -> Result<PendingCall, BrokerError> {
    let reason = arguments.optional::<DeadLetterReason>("reason")?;
    let limit = arguments.bounded("limit", PAGE_LEN, 1, PAGE_LEN_MAX)?;
    let after = arguments
        .text("cursor")?
        .map(|cursor| read_cursor(&cursor))
        .transpose()?;
    arguments.finish()?;
    let query = DeadLetterQuery {
        reason,
        after,
        limit,
        ..DeadLetterQuery::default()
    };
    Ok(PendingCall::page(async move {
        let room = caller.reservation().budget();
        let page = caller.project.dead_letters(query, &*room).await?;
        Ok(page_result(&page))
    }))
}

/// The cursor of a page: the message and the recipient of its last entry.
fn read_cursor(text: &str) -> Result<(MessageId, SessionId), BrokerError> {
    text.split_once('_')
        .and_then(|(message, session)| Some((MessageId::parse(message)?, SessionId::parse(session)?)))
        .ok_or_else(|| BrokerError::invalid("cursor", "not a cursor of this list"))
}

fn page_result(page: &Page<DeadLetter>) -> ToolResult {
    let mut text = JsonPage::new("dead_letters");
    let shown = page.items.iter().take_while(|letter| {
        text.push_with(|out| {
            out.extend_from_slice(b"{\"message\":");
            letter.message.write(out, letter.deliveries);
            out.extend_from_slice(b",\"session_id\":");
            write_json(out, &letter.recipient);
            out.extend_from_slice(b",\"reason\":");
            write_json(out, &letter.reason);
            out.extend_from_slice(b",\"at\":");
            write_json(out, &rfc3339_text(letter.at_ms));
            out.extend_from_slice(b",\"deliveries\":");
            write_json(out, &letter.deliveries);
            out.push(b'}');
        })
    });
    let shown = shown.count();
    let more = page.more || shown < page.items.len();
    let last = page.items[..shown].last().filter(|_| more);
    text.finish(last.map(|last| format!("{}_{}", last.message.id, last.recipient)))
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
    run: Run::Async(redrive_dead_letters),
};

fn redrive_dead_letters(caller: ToolCaller, mut arguments: Arguments<'_>) -> Result<PendingCall, BrokerError> {
    let texts = read_ids(&mut arguments)?;
    let recipient = match arguments.text("recipient_id")? {
        None => None,
        Some(address) => Some(caller.project.resolve(&address).fail_fast()?),
    };
    arguments.finish()?;
    let (mut messages, mut unknown) = parse_ids(texts)?;
    // A message may have a dead letter per recipient, so a repeated id would multiply the cost.
    let mut seen = HashSet::new();
    messages.retain(|message| {
        let is_first = seen.insert(*message);
        if !is_first {
            unknown.push(message.to_string());
        }
        is_first
    });
    Ok(PendingCall::new(async move {
        let recipient = match recipient {
            None => None,
            Some(recipient) => Some(recipient.answer().await?.record.id),
        };
        let done = caller.project.redrive(RedriveRequest { messages, recipient }).await?;
        unknown.extend(done.unknown.iter().map(MessageId::to_string));
        let failures: Vec<Value> = done
            .refused
            .iter()
            .map(|(message, refusal)| {
                let code = match refusal {
                    RedriveRefusal::RecipientGone => "session_not_found",
                    RedriveRefusal::QueueFull => "queue_full",
                };
                json!({"message_id": message, "code": code})
            })
            .collect();
        Ok(json!({"redriven": done.sent.len(), "unknown": unknown, "failures": failures}).into())
    }))
}
