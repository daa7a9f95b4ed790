//! The tools `receive_messages`, `acknowledge_messages` and `get_message_status`, and the notification that
//! acknowledges.

use std::{sync::Arc, time::Duration};

use actors::{
    model::{BrokerError, CallReceipt, MessageId, NOTE_CHARACTERS_MAX, OutcomeKind, Scope, SessionId},
    project::ReceiveRequest,
    session::{Member, ReceiveCall, ReceiveMode, ReceivedMessages},
    storage::{Acknowledge, Delivery},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    schema::{cursor_schema, integer_schema, limit_schema, string_schema, strings_schema, with_description},
    tool::{Called, DESTRUCTIVE, IDEMPOTENT, PendingCall, READ_ONLY, Tool, ToolCaller},
};
use crate::{
    mcp::{
        client::PeerKind,
        pending_receive::PendingReceive,
        reply::{ReplyTo, ToolResult},
    },
    verbs::{
        WAIT_MAX,
        arguments::Arguments,
        messages::{self, IDS_BYTES_MAX, acknowledgement_of, parse_ids, read_ids, read_outcome, recipient_json},
        sessions,
    },
};
use common::json::{JsonObject, page::JsonPage, write_json};

const LIMIT_DEFAULT: usize = 20;
const LIMIT_MAX: usize = 1000;

fn message_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "message_id": string_schema(""),
            "project_id": string_schema(""),
            "sender_id": string_schema(""),
            "sender_name": {"type": ["string", "null"]},
            "recipient_id": {"type": ["string", "null"]},
            "timestamp": string_schema(""),
            "protocol_name": string_schema(""),
            "protocol_version": string_schema(""),
            "payload": {"type": "object"},
            "headers": {"type": "object"},
            "delivery_count": {"type": "integer"},
        },
        "required": ["message_id", "sender_id", "timestamp", "protocol_name", "protocol_version", "payload", "delivery_count"],
    })
}

/// `receive_messages`.
pub const RECEIVE_MESSAGES: Tool = Tool {
    name: "receive_messages",
    title: "Receive messages",
    description: "Read your inbox, urgent first. Pass the receipt of the last result with the next call: that acknowledges \
                  exactly its messages.",
    hints: DESTRUCTIVE,
    required_scope: Scope::Member,
    input: || {
        let properties = json!({
            "limit": limit_schema(LIMIT_DEFAULT, LIMIT_MAX),
            "wait_seconds": with_description(
                json!({"type": "number"}),
                &format!("Longest wait for a first message, at most {}; 50 suits most clients.", WAIT_MAX.as_secs()),
            ),
            "acknowledge": {
                "enum": ["on_next", "manual", "immediate"],
                "description": "Without a receipt. on_next (default): what earlier calls returned; manual: by acknowledge_messages; immediate: at once.",
            },
            "receipt": string_schema("Of your last result."),
        });
        (properties, &[])
    },
    output: || {
        let properties = json!({
            "messages": {"type": "array", "items": message_schema()},
            "remaining": integer_schema(""),
            "receipt": string_schema(""),
        });
        (properties, &["messages", "remaining", "receipt"])
    },
    acts_as_session: false,
    exclusive: false,
    run: receive_messages,
};

fn receive_messages(caller: &ToolCaller, mut arguments: Arguments<'_>, _: &ReplyTo) -> Result<Called, BrokerError> {
    let limit = arguments.bounded("limit", LIMIT_DEFAULT, 1, LIMIT_MAX)?;
    let wait: Duration = arguments.seconds("wait_seconds", 0.0, WAIT_MAX.as_secs_f64())?;
    let mode = match arguments.text("acknowledge")?.as_deref() {
        None | Some("on_next") => ReceiveMode::OnNext,
        Some("manual") => ReceiveMode::Manual,
        Some("immediate") => ReceiveMode::Immediate,
        Some(_) => return Err(BrokerError::invalid("acknowledge", "on_next, manual or immediate")),
    };
    let receipt = arguments.text("receipt")?.filter(|text| !text.is_empty());
    arguments.finish()?;
    let member = Arc::clone(caller.session()?);
    let receipt = receipt.map(|text| read_receipt(&text, &member)).transpose()?;
    caller.context.service.tasks.release_unclaimed(member.record.id);
    let request = ReceiveRequest {
        limit,
        wait,
        mode,
        receipt,
        read_at: caller.context.read_at(),
    };
    let receive = PendingReceive {
        project: caller.project().clone(),
        member: Arc::clone(&member),
        call: ReceiveCall::default(),
        is_connection_session: caller.context.kind == PeerKind::Connection && caller.is_connection_session(&member),
    };
    let call = receive.call.clone();
    let waiting = call.clone();
    let caller = caller.for_later();
    let mut pending = PendingCall::page(async move {
        let room = caller.reservation().budget();
        let received = caller.project().receive_for_call(&call, &member, request, room).await?;
        let receipt = call.receipt().to_text(member.record.id);
        Ok(received_result(&received, &receipt))
    });
    pending.receive = Some(receive);
    pending.may_wait = !wait.is_zero();
    pending.wait_started = pending
        .may_wait
        .then(|| Box::pin(async move { waiting.until_waiting().await }) as _);
    Ok(pending.into())
}

/// A receipt whose messages are already acknowledged is valid: its caller lost the answer and asks again.
fn read_receipt(text: &str, member: &Member) -> Result<CallReceipt, BrokerError> {
    CallReceipt::parse(text, member.record.id).ok_or_else(|| {
        let reason = "not a receipt of this session, and nothing was acknowledged: pass that of your last result as it \
                      is, or none";
        BrokerError::invalid("receipt", reason)
    })
}

/// Bytes of the messages as JSON.
fn encoded_len(received: &ReceivedMessages) -> usize {
    let len = |delivery: &Delivery| delivery.message.encoded_len(delivery.count) + 1;
    received.deliveries.iter().map(len).sum()
}

/// `{messages, remaining, receipt}`; the messages are copied as they were encoded at acceptance.
fn received_result(received: &ReceivedMessages, receipt: &str) -> ToolResult {
    let mut out = Vec::with_capacity(encoded_len(received) + 96);
    out.extend_from_slice(b"{\"messages\":[");
    for (at, delivery) in received.deliveries.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        delivery.message.write(&mut out, delivery.count);
    }
    out.extend_from_slice(b"],\"remaining\":");
    write_json(&mut out, &received.remaining);
    // A receipt is hexadecimal and needs no escapes.
    out.extend_from_slice(b",\"receipt\":\"");
    out.extend_from_slice(receipt.as_bytes());
    out.extend_from_slice(b"\"}");
    ToolResult::from(out)
}

/// `acknowledge_messages`.
pub const ACKNOWLEDGE_MESSAGES: Tool = Tool {
    name: "acknowledge_messages",
    title: "Acknowledge messages",
    description: "Done with: not delivered again.",
    hints: IDEMPOTENT,
    required_scope: Scope::Member,
    input: || {
        let properties = json!({
            "message_ids": strings_schema("Of received messages."),
            "outcome": {
                "enum": OutcomeKind::OF_RECIPIENTS,
                "description": "The sender can read it; rejected makes a dead letter.",
            },
            "note": {"type": "string", "maxLength": NOTE_CHARACTERS_MAX, "description": "For the sender."},
        });
        (properties, &["message_ids"])
    },
    output: || {
        let properties = json!({
            "acknowledged": integer_schema(""),
            "unknown": {
                "type": "array", "items": {"type": "string"},
            },
        });
        (properties, &["acknowledged", "unknown"])
    },
    acts_as_session: false,
    exclusive: false,
    run: acknowledge_messages,
};

fn acknowledge_messages(caller: &ToolCaller, mut arguments: Arguments<'_>, _: &ReplyTo) -> Result<Called, BrokerError> {
    let texts = read_ids(&mut arguments)?;
    let outcome = read_outcome(&mut arguments)?;
    arguments.finish()?;
    let member = Arc::clone(caller.session()?);
    let (ids, mut unknown) = parse_ids(texts)?;
    let which = acknowledgement_of(ids, outcome)?;
    Ok(Called::later(caller, async move |caller| {
        let done = caller.project().acknowledge(&member, which).await?;
        unknown.extend(done.unknown.iter().map(MessageId::to_string));
        Ok(json!({"acknowledged": done.acknowledged, "unknown": unknown}).into())
    }))
}

/// Reads the params of `notifications/dev.mcp-broker/ack`: `{message_ids: [...]}` or `{up_to: id}`, with the
/// `session_id` of a caller without a connection. Notifications have no answer, so invalid params and those of more
/// than [`IDS_BYTES_MAX`] bytes are `None`.
pub fn read_acknowledgement(params: &str) -> Option<(Acknowledge, Option<SessionId>)> {
    #[derive(Deserialize)]
    struct Ack {
        message_ids: Option<Vec<MessageId>>,
        up_to: Option<MessageId>,
        session_id: Option<SessionId>,
    }
    if params.len() > IDS_BYTES_MAX {
        return None;
    }
    let JsonObject(ack) = serde_json::from_str::<JsonObject<Ack>>(params).ok()?;
    let which = match (ack.message_ids, ack.up_to) {
        (Some(ids), None) => Acknowledge::Ids(ids),
        (None, Some(id)) => Acknowledge::UpTo(id),
        _ => return None,
    };
    Some((which, ack.session_id))
}

/// `get_message_status`.
pub const GET_MESSAGE_STATUS: Tool = Tool {
    name: "get_message_status",
    title: "Message status",
    description: "The status of a message for each of its recipients.",
    hints: READ_ONLY,
    required_scope: Scope::Observer,
    input: || {
        (
            json!({"message_id": string_schema("Of a message you sent or received."), "cursor": cursor_schema()}),
            &["message_id"],
        )
    },
    output: || {
        let recipient = json!({
            "type": "object",
            "properties": {
                "session_id": string_schema(""),
                "status": {"enum": ["queued", "delivered", "acknowledged", "expired", "dead_lettered"]},
                "at": string_schema(""),
                "reason": {"enum": ["expired", "delivery_limit", "recipient_gone", "rejected", "transform_failed"]},
                "outcome": {"enum": OutcomeKind::ALL},
                "note": string_schema(""),
                "transformed": {"type": "object"},
                "wakes": {"type": "array", "items": {"type": "object"}},
            },
            "required": ["session_id", "status", "at"],
        });
        (
            json!({
                "message_id": string_schema(""), "recipients": {"type": "array", "items": recipient}, "next_cursor": string_schema(""),
            }),
            &["message_id", "recipients"],
        )
    },
    acts_as_session: false,
    exclusive: false,
    run: get_message_status,
};

fn get_message_status(caller: &ToolCaller, mut arguments: Arguments<'_>, _: &ReplyTo) -> Result<Called, BrokerError> {
    let text = arguments.required_text("message_id")?;
    let after = arguments.text("cursor")?;
    let after = after.map(|text| sessions::parse_cursor(&text)).transpose()?;
    arguments.finish()?;
    let not_known = || BrokerError::invalid("message_id", "no such message, or none that is remembered");
    let message = MessageId::parse(&text).ok_or_else(not_known)?;
    Ok(Called::page(caller, async move |caller| {
        let mut recipients = caller.project().message_status(message).await?.ok_or_else(not_known)?;
        recipients.sort_unstable_by_key(|recipient| recipient.session);
        recipients.retain(|recipient| after.is_none_or(|after| recipient.session > after));
        let mut page = JsonPage::new("recipients");
        let last = page.push_all(&recipients, |recipient| {
            let wakes = messages::wakes_json(caller.project(), message, recipient);
            let mut entry = recipient_json(recipient);
            if let Some(wakes) = wakes {
                entry["wakes"] = wakes;
            }
            entry
        });
        let next_cursor = last.map(|last| last.session);
        let page = page.with("message_id", &message);
        Ok(ToolResult::from(page.finish(next_cursor)))
    }))
}
