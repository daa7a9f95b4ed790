//! The tools `send_message` and `broadcast_message`: they check a message and prepare it. At the end of the read
//! [`Peer::finish_read`](crate::mcp::Peer::finish_read) submits it to the router.
//!
//! When the router has answered, the sender is answered from here: at once or after a wait, as a call or as a task. A message to
//! another project goes from here to the router of that project.

use std::{rc::Rc, sync::Arc};

use actors::{
    model::{BrokerError, OutcomeKind, Scope},
    project::{CrossProjectSend, Lookup, PreparedSend},
    router::Routed,
};
use serde_json::{Value, json};

use super::{
    schema::{integer_schema, string_schema, strings_schema, with_description},
    tool::{ADDITIVE, Called, Tool, ToolCaller},
};
use crate::{
    mcp::{
        calls::ShutdownBehaviour,
        context::PeerContext,
        reply::ReplyTo,
        send_reply::{FollowUp, SendReply, ToolSend},
        tasks::Task,
    },
    verbs::{
        WAIT_MAX,
        arguments::Arguments,
        sending::{self, FAILURES_LEN_MAX, MessageArguments, WAIT_DEFAULT_SECONDS},
    },
};
use common::json::frame::JsonText;

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

/// Answers the sender of an accepted message, now or once it has the status that the sender waits for. `object` is a
/// buffer.
pub fn answer_send(context: &Rc<PeerContext>, reply: SendReply, routed: Routed, object: &mut Vec<u8>) {
    if reply.is_complete(&routed) {
        reply
            .to
            .result(&context.outbox, reply.result(object, &context.project, &routed));
    } else if reply.may_wait()
        && let Some(task) = context.become_task(&reply.to)
    {
        run_as_task(context, &task, reply, routed);
    } else {
        let so_far = reply.result(object, &context.project, &routed).into_bytes();
        let (to, context) = (reply.to.clone(), Rc::clone(context));
        let calls = Rc::clone(&context.calls);
        let waiting = async move { await_outcome(&context, &reply, routed).await };
        calls.spawn(&to, ShutdownBehaviour::Answer(so_far), waiting);
    }
}

/// Sends a message to another project and answers its sender. The messages of one connection start in their order.
pub fn send_cross_project(context: &Rc<PeerContext>, send: CrossProjectSend, mut reply: SendReply) {
    reply.release_slot();
    if !context.calls.has_free_slot() {
        return context.refuse(&reply.to, &BrokerError::unavailable());
    }
    let (context, to) = (Rc::clone(context), reply.to.clone());
    let (project, calls) = (context.project.clone(), Rc::clone(&context.calls));
    // It continues if its request is cancelled; the sender may repeat it with the same idempotency key.
    let sending = actix_rt::spawn(async move { project.send_cross_project(send).await });
    calls.spawn(&to, ShutdownBehaviour::Finish, async move {
        let routed = match sending.await.unwrap_or(Err(BrokerError::unavailable())) {
            Ok(routed) => routed,
            Err(error) => return context.refuse(&reply.to, &error),
        };
        let mut object = Vec::new();
        let so_far = reply.result(&mut object, &context.project, &routed);
        if reply.is_complete(&routed) {
            reply.to.result(&context.outbox, so_far);
        } else if reply.may_wait()
            && let Some(task) = context.become_task(&reply.to)
        {
            run_as_task(&context, &task, reply, routed);
        } else {
            context.calls.answer_on_shutdown(&reply.to, so_far.into_bytes());
            await_outcome(&context, &reply, routed).await;
        }
    });
}

/// Waits as a task for the status that the sender asked for.
fn run_as_task(context: &PeerContext, task: &Arc<Task>, reply: SendReply, routed: Routed) {
    let project = context.project.clone();
    let call = async move {
        let routed = reply.await_outcome(&project, routed).await;
        Ok(reply.to_result(&project, &routed))
    };
    context.run_as_task(task, None, call);
}

/// Waits for the status that the sender asked for, and answers.
async fn await_outcome(context: &PeerContext, reply: &SendReply, routed: Routed) {
    let routed = reply.await_outcome(&context.project, routed).await;
    let mut object = Vec::new();
    let result = reply.result(&mut object, &context.project, &routed);
    reply.to.result(&context.outbox, result);
}
