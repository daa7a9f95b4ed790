//! The tools `send_message` and `broadcast_message`: they check a message and prepare it. At the end of the read
//! [`Peer::finish_read`](crate::mcp::Peer::finish_read) submits it to the router.

use std::{rc::Rc, sync::Arc};

use actors::{
    model::{BrokerError, OutcomeKind, Scope},
    project::{Lookup, PreparedSend},
};
use serde_json::{Value, json};

use super::{
    schema::{integer_schema, string_schema, strings_schema, with_description},
    tool::{ADDITIVE, Called, Tool, ToolCaller},
};
use crate::{
    mcp::{
        context::PeerContext,
        reply::ReplyTo,
        send_reply::{FollowUp, SendReply, ToolSend},
    },
    verbs::{
        WAIT_MAX,
        arguments::Arguments,
        sending::{self, FAILURES_LEN_MAX, MessageArguments, WAIT_DEFAULT_SECONDS},
    },
};

fn headers_schema() -> Value {
    json!({
        "type": "object",
        "description": "How to deliver it.",
        "properties": {
            "priority": {"enum": ["low", "normal", "high", "urgent"]},
            "ttl_seconds": integer_schema("Not delivered later."),
            "correlation_id": string_schema("Ties an answer to its question."),
            "reply_to": string_schema("Where to answer."),
            "idempotency_key": string_schema("A repeat within 24 h sends nothing."),
            "thread_id": string_schema("Id of its first message."),
            "subject": string_schema("One line."),
            "hops": integer_schema(""),
            "report": {"const": "none", "description": "No failure report."},
            "transform": {"enum": ["any", "lossless", "never"], "description": "By lenses. Default: any."},
            "complement": {"type": "object", "description": "As transformed.complement has it."},
        },
    })
}

fn payload_schema() -> Value {
    json!({"type": ["object", "string"], "description": "The text, or what fits the protocol's schema."})
}

/// `send_message`.
pub const SEND_MESSAGE: Tool = Tool {
    name: "send_message",
    title: "Send message",
    description: "Send a text, or the payload of a protocol, to another agent of this broker, present or absent. Your \
                  client's own send_message or SendMessage does not reach it.",
    hints: ADDITIVE,
    required_scope: Scope::Member,
    input: || {
        let properties = json!({
            "recipient_id": string_schema("Id, name, alias, conversation:ID, or name@project."),
            "protocol_name": string_schema("Default: text."),
            "protocol_version": string_schema("As registered."),
            "payload": payload_schema(),
            "headers": headers_schema(),
            "if_unknown": {"const": "keep", "description": "For a name still to come."},
            "wait_for": {"enum": ["queued", "delivered", "acknowledged"], "description": "Status to wait for."},
            "timeout_seconds": with_description(
                json!({"type": "number"}),
                &format!("Longest wait, at most {}, default {WAIT_DEFAULT_SECONDS}.", WAIT_MAX.as_secs()),
            ),
        });
        (properties, &["recipient_id", "payload"])
    },
    output: || {
        let properties = json!({
            "message_id": string_schema(""),
            "status": {"enum": ["queued", "delivered", "acknowledged", "expired", "dead_lettered"]},
            "queue_size": integer_schema(""),
            "delivered_at": {"type": ["string", "null"]},
            "outcome": {"enum": OutcomeKind::ALL},
            "note": string_schema(""),
            "recipient": {"type": "object"},
            "transform": {"type": "object"},
        });
        (properties, &["message_id", "status", "delivered_at"])
    },
    acts_as_session: true,
    exclusive: false,
    run: send_message,
};

/// `broadcast_message`.
pub const BROADCAST_MESSAGE: Tool = Tool {
    name: "broadcast_message",
    title: "Broadcast message",
    description: "Send to every other session that passes the filter and speaks the protocol, present or absent.",
    hints: ADDITIVE,
    required_scope: Scope::Member,
    input: || {
        let filter = json!({
            "type": "object",
            "description": "Only sessions with {protocols: {name: requirement}, features: []}.",
            "properties": {
                "protocols": {
                    "type": "object", "additionalProperties": {"type": "string"},
                    "description": "Version requirements by name.",
                },
                "features": strings_schema(""),
            },
        });
        let properties = json!({
            "protocol_name": string_schema("Default: text."), "protocol_version": string_schema("As registered."),
            "payload": payload_schema(), "capability_filter": filter,
            "headers": {"type": "object", "description": "As of send_message."},
        });
        (properties, &["payload"])
    },
    output: || {
        let failure = json!({
            "type": "object",
            "properties": {"session_id": string_schema(""), "code": string_schema("")},
            "required": ["session_id", "code"],
        });
        let properties = json!({
            "message_id": string_schema(""),
            "recipients": integer_schema(""),
            "delivered": integer_schema(""),
            "queued": integer_schema(""),
            "failed": integer_schema(""),
            "skipped": integer_schema(""),
            "failures": {
                "type": "array", "items": failure,
                "description": format!("The first {FAILURES_LEN_MAX} of them."),
            },
            "transforms": {"type": "array", "items": {"type": "object"}},
        });
        (
            properties,
            &[
                "message_id",
                "recipients",
                "delivered",
                "queued",
                "failed",
                "skipped",
                "failures",
            ],
        )
    },
    acts_as_session: true,
    exclusive: false,
    run: broadcast_message,
};

fn send_message(caller: &ToolCaller, mut arguments: Arguments<'_>, to: &ReplyTo) -> Result<Called, BrokerError> {
    let recipient = arguments.required_text("recipient_id")?;
    let wait_goal = sending::parse_wait(&mut arguments)?;
    let keeps_for_unknown = sending::parse_if_unknown(&mut arguments)?;
    let mut common = MessageArguments::parse(&mut arguments, caller.context.service.payload_len_max)?;
    common.keeps_for_unknown = keeps_for_unknown;
    arguments.finish()?;
    let sender = Arc::clone(caller.session()?);
    let wait = match wait_goal {
        Some(goal) => Some((goal, caller.context.calls.reserve_slot()?)),
        None => None,
    };
    let request = common.send_request(wait_goal.is_some(), to.message_trace());
    let prepared = caller.project().prepare_direct(&sender, &recipient, &request);
    let context = &caller.context;
    context.identity.charge_work(request.work.spent());
    let mut reply = SendReply::direct(to.clone(), sender);
    reply.follow_up = FollowUp::new(wait, common.headers.idempotency_key);
    match prepared {
        Lookup::Ready(prepared) => {
            let prepared = prepared.map_err(|error| audit_refusal(context, &recipient, error))?;
            Ok(ToolSend::direct(prepared, reply).into())
        }
        Lookup::Pending(prepared) => {
            let (context, recipient) = (Rc::clone(context), recipient.into_owned());
            Called::once_known(Lookup::Pending(prepared.map(move |late| {
                context.identity.charge_work(late.work);
                let prepared = late.result;
                let prepared = prepared.map_err(|error| audit_refusal(&context, &recipient, error))?;
                Ok(ToolSend::direct(prepared, reply))
            })))
        }
    }
}

fn audit_refusal(context: &PeerContext, recipient: &str, error: BrokerError) -> BrokerError {
    sending::audit_isolation_refusal(context.service.admin.audit(), &context.identity, recipient, error)
}

fn broadcast_message(caller: &ToolCaller, mut arguments: Arguments<'_>, to: &ReplyTo) -> Result<Called, BrokerError> {
    let filter = sending::parse_filter(&mut arguments)?;
    let common = MessageArguments::parse(&mut arguments, caller.context.service.payload_len_max)?;
    arguments.finish()?;
    let sender = Arc::clone(caller.session()?);
    let request = common.send_request(false, to.message_trace());
    let prepared = caller.project().prepare_broadcast(&sender, filter, &request);
    let identity = Arc::clone(&caller.context.identity);
    identity.charge_work(request.work.spent());
    let mut reply = SendReply::broadcast(to.clone(), sender);
    reply.follow_up = FollowUp::new(None, common.headers.idempotency_key);
    Called::once_known(prepared.map(move |late| {
        identity.charge_work(late.work);
        Ok(ToolSend {
            dispatch: PreparedSend::Local(late.result?),
            reply,
        })
    }))
}
