//! The tools `send_message` and `broadcast_message`: they check a message and prepare it; the read batch submits it.

use std::{borrow::Cow, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};

use actors::{
    model::{BrokerError, CapabilityFilter, DeliveryStatus, Headers, ProtocolName, Scope},
    project::{Lookup, PreparedSend, SendRequest},
    registry::WorkBudget,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    arguments::{Arguments, RequirementArgument},
    schema::{integer_schema, string_schema, strings_schema, with_description},
    tool::{ADDITIVE, Run, Tool, ToolCaller, WAIT_MAX},
};
use crate::{
    auth::AuditedAction,
    json::JsonObject,
    mcp::{
        context::PeerContext,
        reply::ReplyTo,
        send_reply::{FAILURES_LEN_MAX, SendReply, ToolSend},
    },
};

/// Seconds that `wait_for` waits without `timeout_seconds`.
const WAIT_DEFAULT_SECONDS: f64 = 30.0;
/// Bytes of one text header.
const HEADER_LEN_MAX: usize = 256;

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
        },
    })
}

fn payload_schema() -> Value {
    json!({"type": "object", "description": "Fits the protocol's schema."})
}

/// `send_message`.
pub const SEND_MESSAGE: Tool = Tool {
    name: "send_message",
    title: "Send message",
    description: "Send to one session, present or absent.",
    hints: ADDITIVE,
    required_scope: Scope::Member,
    input: || {
        let properties = json!({
            "recipient_id": string_schema("Id, name, or name@project."),
            "protocol_name": string_schema("As registered."),
            "protocol_version": string_schema("As registered."),
            "payload": payload_schema(),
            "headers": headers_schema(),
            "wait_for": {"enum": ["queued", "delivered", "acknowledged"], "description": "Status to wait for."},
            "timeout_seconds": with_description(
                json!({"type": "number"}),
                &format!("Longest wait, at most {}, default {WAIT_DEFAULT_SECONDS}.", WAIT_MAX.as_secs()),
            ),
        });
        (
            properties,
            &["recipient_id", "protocol_name", "protocol_version", "payload"],
        )
    },
    output: || {
        let properties = json!({
            "message_id": string_schema(""),
            "status": {"enum": ["queued", "delivered", "acknowledged", "expired", "dead_lettered"]},
            "queue_size": integer_schema(""),
            "delivered_at": {"type": ["string", "null"]},
        });
        (properties, &["message_id", "status", "delivered_at"])
    },
    acts_as_session: true,
    exclusive: false,
    run: Run::Submit(send_message),
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
            "description": "Only sessions that meet it.",
            "properties": {
                "protocols": {
                    "type": "object", "additionalProperties": {"type": "string"},
                    "description": "Version requirements by name.",
                },
                "features": strings_schema(""),
            },
        });
        let properties = json!({
            "protocol_name": string_schema("As registered."), "protocol_version": string_schema("As registered."),
            "payload": payload_schema(), "capability_filter": filter,
            "headers": {"type": "object", "description": "As of send_message."},
        });
        (properties, &["protocol_name", "protocol_version", "payload"])
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
    run: Run::Submit(broadcast_message),
};

/// The arguments that both tools have.
struct CommonArguments<'a> {
    protocol_name: Cow<'a, str>,
    protocol_version: Cow<'a, str>,
    payload: &'a str,
    headers: Headers,
}

impl<'a> CommonArguments<'a> {
    fn parse(caller: &ToolCaller, arguments: &mut Arguments<'a>) -> Result<Self, BrokerError> {
        let mut common = Self {
            protocol_name: arguments.required_text("protocol_name")?,
            protocol_version: arguments.required_text("protocol_version")?,
            payload: arguments.required_raw("payload")?,
            headers: arguments
                .optional::<JsonObject<_>>("headers")?
                .map(|JsonObject(headers)| headers)
                .unwrap_or_default(),
        };
        let limit = caller.context.service.payload_len_max;
        if common.payload.len() > limit {
            return Err(BrokerError::PayloadTooLarge { limit });
        }
        common.headers = check_headers(common.headers)?;
        Ok(common)
    }

    fn send_request(&self, tracked: bool) -> SendRequest<'_> {
        SendRequest {
            protocol_name: &self.protocol_name,
            protocol_version: &self.protocol_version,
            payload: self.payload,
            headers: &self.headers,
            tracked,
            work: WorkBudget::default(),
        }
    }
}

fn check_headers(mut headers: Headers) -> Result<Headers, BrokerError> {
    if headers.ttl_seconds == Some(0) {
        return Err(BrokerError::invalid("headers.ttl_seconds", "at least 1"));
    }
    let texts = [
        ("headers.idempotency_key", &mut headers.idempotency_key),
        ("headers.correlation_id", &mut headers.correlation_id),
        ("headers.reply_to", &mut headers.reply_to),
    ];
    for (name, text) in texts {
        // As for arguments, the empty string counts as absent.
        *text = text.take().filter(|text| !text.is_empty());
        if text.as_ref().is_some_and(|text| text.len() > HEADER_LEN_MAX) {
            return Err(BrokerError::invalid(name, format!("at most {HEADER_LEN_MAX} bytes")));
        }
    }
    Ok(headers)
}

fn send_message(
    caller: &ToolCaller,
    mut arguments: Arguments<'_>,
    to: ReplyTo,
) -> Result<Lookup<ToolSend>, BrokerError> {
    let recipient = arguments.required_text("recipient_id")?;
    let wait_goal = parse_wait(&mut arguments)?;
    let common = CommonArguments::parse(caller, &mut arguments)?;
    arguments.finish()?;
    let sender = Arc::clone(caller.session()?);
    let call_slot = wait_goal.map(|_| caller.context.calls.reserve_slot()).transpose()?;
    let request = common.send_request(wait_goal.is_some());
    let prepared = caller.project.prepare_direct(&sender, &recipient, &request);
    let context = &caller.context;
    context.identity.charge_work(request.work.spent());
    let mut reply = SendReply::direct(to, sender);
    reply.wait_goal = wait_goal;
    reply.call_slot = call_slot;
    match prepared {
        Lookup::Ready(prepared) => {
            let prepared = prepared.map_err(|error| audit_isolation_refusal(context, &recipient, error))?;
            reply.idempotency_key = common.headers.idempotency_key;
            Ok(Lookup::Ready(Ok(ToolSend::direct(prepared, reply))))
        }
        Lookup::Pending(prepared) => {
            let (context, recipient) = (Rc::clone(context), recipient.into_owned());
            reply.idempotency_key = common.headers.idempotency_key;
            Ok(Lookup::Pending(prepared.map(move |late| {
                context.identity.charge_work(late.work);
                let prepared = late.result;
                let prepared = prepared.map_err(|error| audit_isolation_refusal(&context, &recipient, error))?;
                Ok(ToolSend::direct(prepared, reply))
            })))
        }
    }
}

/// Writes an audit record if a message was refused for isolation between projects.
fn audit_isolation_refusal(context: &PeerContext, recipient: &str, error: BrokerError) -> BrokerError {
    if matches!(
        error,
        BrokerError::CrossProjectDisabled { .. } | BrokerError::CrossProjectForbidden { .. }
    ) {
        let action = AuditedAction {
            action: "message.cross",
            project: None,
            target: recipient.rsplit_once('@').map(|(_, project)| project.to_owned()),
        };
        let audit = context.service.admin.audit();
        audit.record_refused(&context.identity, &action, &error);
    }
    error
}

/// The arguments `wait_for` and `timeout_seconds`; `None` if the first answer suffices.
fn parse_wait(arguments: &mut Arguments<'_>) -> Result<Option<(DeliveryStatus, Duration)>, BrokerError> {
    let goal = match arguments.text("wait_for")? {
        None => None,
        Some(word) => Some(
            parse_status(&word).ok_or_else(|| BrokerError::invalid("wait_for", "queued, delivered or acknowledged"))?,
        ),
    };
    let timeout = arguments.seconds("timeout_seconds", WAIT_DEFAULT_SECONDS, WAIT_MAX.as_secs_f64())?;
    Ok(goal
        .filter(|goal| *goal != DeliveryStatus::Queued)
        .map(|goal| (goal, timeout)))
}

fn broadcast_message(
    caller: &ToolCaller,
    mut arguments: Arguments<'_>,
    to: ReplyTo,
) -> Result<Lookup<ToolSend>, BrokerError> {
    #[derive(Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Filter {
        protocols: BTreeMap<ProtocolName, RequirementArgument>,
        features: std::collections::BTreeSet<String>,
    }
    let filter = arguments.optional::<JsonObject<_>>("capability_filter")?;
    let Filter { protocols, features } = filter.map(|JsonObject(filter)| filter).unwrap_or_default();
    let common = CommonArguments::parse(caller, &mut arguments)?;
    arguments.finish()?;
    let sender = Arc::clone(caller.session()?);
    let protocols = protocols
        .into_iter()
        .map(|(name, RequirementArgument(wanted))| (name, wanted))
        .collect();
    let filter = CapabilityFilter { protocols, features };
    let request = common.send_request(false);
    let prepared = caller.project.prepare_broadcast(&sender, filter, &request);
    let identity = Arc::clone(&caller.context.identity);
    identity.charge_work(request.work.spent());
    let mut reply = SendReply::broadcast(to, sender);
    reply.idempotency_key = common.headers.idempotency_key;
    Ok(prepared.map(move |late| {
        identity.charge_work(late.work);
        Ok(ToolSend {
            dispatch: PreparedSend::Local(late.result?),
            reply,
        })
    }))
}

fn parse_status(word: &str) -> Option<DeliveryStatus> {
    match word {
        "queued" => Some(DeliveryStatus::Queued),
        "delivered" => Some(DeliveryStatus::Delivered),
        "acknowledged" => Some(DeliveryStatus::Acknowledged),
        _ => None,
    }
}
