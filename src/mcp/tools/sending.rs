//! The tools `send_message` and `broadcast_message`: they check a message and prepare it; the read batch submits it.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use actors::{
    clock::rfc3339,
    model::{BrokerError, CapabilityFilter, DeliveryStatus, Headers, MessageId, ProtocolName, Scope, SessionId},
    project::{PreparedSend, ProjectHandle, SendRequest},
    registry::WorkBudget,
    router::Routed,
    session::Member,
    storage::SendResult,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ADDITIVE, Arguments, JsonObject, Run, Tool, ToolCaller, WAIT_MAX, arguments::RequirementArgument, integer_schema,
    string_schema, strings_schema, with_description,
};
use crate::{
    auth::AuditedAction,
    mcp::{
        context::CallSlot,
        reply::{ReplyTo, ToolResult, UnreadCount, write_tool_result},
        rpc::write_json,
    },
};

/// Seconds that `wait_for` waits without `timeout_seconds`.
const WAIT_DEFAULT_SECONDS: f64 = 30.0;
/// Bytes of one text header.
const HEADER_LEN_MAX: usize = 256;
/// Recipients that refused a broadcast and that the answer names; `failed` counts all of them.
const FAILURES_LEN_MAX: usize = 1000;

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

/// A checked message, and the reply to its sender.
pub struct ToolSend {
    pub dispatch: PreparedSend,
    pub reply: SendReply,
}

/// The reply to the sender of a message.
pub struct SendReply {
    pub to: ReplyTo,
    sender: Arc<Member>,
    /// The recipient is in another project.
    is_cross_project: bool,
    is_broadcast: bool,
    /// The status that the sender waits for, and how long.
    wait_goal: Option<(DeliveryStatus, Duration)>,
    /// Reserves the place of the wait among the calls of the connection, until the wait begins or the answer is sent.
    call_slot: Option<CallSlot>,
    idempotency_key: Option<String>,
}

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

    fn send_request(&self, watched: bool) -> SendRequest<'_> {
        SendRequest {
            protocol_name: &self.protocol_name,
            protocol_version: &self.protocol_version,
            payload: self.payload,
            headers: &self.headers,
            tracked: watched,
            tried: false,
            looked: None,
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

fn send_message(caller: &ToolCaller, mut arguments: Arguments<'_>, to: ReplyTo) -> Result<ToolSend, BrokerError> {
    let recipient = arguments.required_text("recipient_id")?;
    let goal = parse_wait(&mut arguments)?;
    let common = CommonArguments::parse(caller, &mut arguments)?;
    arguments.finish()?;
    let sender = Arc::clone(caller.session()?);
    let place = goal.map(|_| caller.context.reserve_slot()).transpose()?;
    let looked = caller.context.caught_up.borrow().clone();
    let envelope = SendRequest {
        // For a batch it was looked before any of it was tried.
        tried: looked.is_some() && !to.route.is_batch(),
        looked,
        ..common.send_request(goal.is_some())
    };
    let dispatch = caller.project.prepare_direct(&sender, &recipient, &envelope);
    caller.context.identity.charge_work(envelope.work.spent());
    let dispatch = dispatch.map_err(|error| audit_isolation_refusal(caller, &recipient, error))?;
    let idempotency_key = common.headers.idempotency_key;
    Ok(ToolSend {
        reply: SendReply {
            to,
            sender,
            is_cross_project: matches!(dispatch, PreparedSend::CrossProject(_)),
            is_broadcast: false,
            wait_goal: goal,
            call_slot: place,
            idempotency_key,
        },
        dispatch,
    })
}

/// Writes an audit record if a message was refused for isolation between projects.
fn audit_isolation_refusal(caller: &ToolCaller, recipient: &str, error: BrokerError) -> BrokerError {
    if matches!(
        error,
        BrokerError::CrossProjectDisabled { .. } | BrokerError::CrossProjectForbidden { .. }
    ) {
        let act = AuditedAction {
            action: "message.cross",
            project: None,
            target: recipient.rsplit_once('@').map(|(_, project)| project.to_owned()),
        };
        caller
            .context
            .service
            .admin
            .audit()
            .record_refused(&caller.context.identity, &act, &error);
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

fn broadcast_message(caller: &ToolCaller, mut arguments: Arguments<'_>, to: ReplyTo) -> Result<ToolSend, BrokerError> {
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
    let envelope = common.send_request(false);
    let submission = caller.project.prepare_broadcast(&sender, filter, &envelope);
    caller.context.identity.charge_work(envelope.work.spent());
    let submission = submission?;
    let idempotency_key = common.headers.idempotency_key;
    Ok(ToolSend {
        dispatch: PreparedSend::Local(submission),
        reply: SendReply {
            to,
            sender,
            is_cross_project: false,
            is_broadcast: true,
            wait_goal: None,
            call_slot: None,
            idempotency_key,
        },
    })
}

impl SendReply {
    /// Releases the reserved place.
    pub fn release_slot(&mut self) {
        self.call_slot = None;
    }

    /// Whether the reply can be sent now: it waits neither for a status nor for the store.
    pub fn is_complete(&self, routed: &Routed) -> bool {
        routed.is_repeat || (self.wait_goal.is_none() && self.idempotency_key.is_none())
    }

    /// Whether the sender waits for a status beyond the first answer.
    pub fn may_wait(&self) -> bool {
        self.wait_goal.is_some()
    }

    /// Waits for the status that the sender asked for, and stores the result for its idempotency key.
    pub async fn await_outcome(&self, project: &ProjectHandle, mut routed: Routed) -> Routed {
        if let (Some((goal, timeout)), Some(status)) = (self.wait_goal, routed.status.clone()) {
            let reached = project.wait_for_status(status, goal, timeout).await;
            let at_ms = actors::clock::now().unix_ms;
            let outcome = &mut routed.result;
            if reached != DeliveryStatus::Queued && outcome.delivered_at_ms.is_none() {
                outcome.delivered = 1;
                outcome.queued = 0;
                outcome.queue_len = outcome.queue_len.saturating_sub(1);
                outcome.delivered_at_ms =
                    (!matches!(reached, DeliveryStatus::Expired | DeliveryStatus::DeadLettered(_))).then_some(at_ms);
            }
            outcome.status = Some(reached);
        }
        if let Some(key) = &self.idempotency_key {
            let kept = project
                .complete_send_result(self.sender.record.id, key.clone(), routed.result.clone())
                .await;
            if let Err(error) = kept {
                tracing::warn!(%error, "the first result of an idempotency key is only known as queued");
            }
        }
        routed
    }

    /// The session that sends.
    pub const fn sender(&self) -> &Arc<Member> {
        &self.sender
    }

    /// The object of the result.
    pub fn to_result(&self, routed: &Routed) -> ToolResult {
        let mut object = Vec::with_capacity(256);
        self.write_object(&mut object, routed);
        ToolResult(object)
    }

    fn write_object(&self, object: &mut Vec<u8>, routed: &Routed) {
        if self.is_broadcast {
            write_json(object, &broadcast_json(&routed.result));
        } else {
            // The depth of an inbox in another project is not disclosed.
            write_direct(object, &routed.result, !self.is_cross_project);
        }
    }

    /// Writes the whole response; `object` is a scratch buffer for the object in it.
    pub fn write(&self, out: &mut Vec<u8>, object: &mut Vec<u8>, routed: &Routed) {
        object.clear();
        self.write_object(object, routed);
        write_tool_result(
            out,
            &self.to,
            object,
            false,
            UnreadCount::Of(self.sender.shared.waiting()),
        );
    }
}

/// `{message_id, status, queue_size, delivered_at}`. Written by hand, because most calls have this answer.
fn write_direct(out: &mut Vec<u8>, outcome: &SendResult, with_queue: bool) {
    let status = outcome.status.unwrap_or(if outcome.delivered > 0 {
        DeliveryStatus::Delivered
    } else {
        DeliveryStatus::Queued
    });
    out.extend_from_slice(b"{\"message_id\":\"");
    let at = out.len();
    out.resize(at + actors::model::UNSET_ID.len(), 0);
    outcome.message.as_uuid().as_hyphenated().encode_lower(&mut out[at..]);
    out.extend_from_slice(b"\",\"status\":\"");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b'"');
    if with_queue {
        out.extend_from_slice(b",\"queue_size\":");
        write_json(out, &outcome.queue_len);
    }
    match outcome.delivered_at_ms {
        Some(at_ms) => {
            out.extend_from_slice(b",\"delivered_at\":\"");
            out.extend_from_slice(&rfc3339(at_ms));
            out.extend_from_slice(b"\"}");
        }
        None => out.extend_from_slice(b",\"delivered_at\":null}"),
    }
}

fn broadcast_json(outcome: &SendResult) -> Value {
    let SendResult {
        message,
        delivered,
        queued,
        skipped,
        refused,
        ..
    } = outcome;
    let message: &MessageId = message;
    let failures: Vec<_> = refused
        .iter()
        .take(FAILURES_LEN_MAX)
        .map(|session: &SessionId| json!({"session_id": session, "code": "queue_full"}))
        .collect();
    json!({
        "message_id": message,
        "recipients": delivered + queued + refused.len(),
        "delivered": delivered,
        "queued": queued,
        "failed": refused.len(),
        "skipped": skipped,
        "failures": failures,
    })
}

fn parse_status(word: &str) -> Option<DeliveryStatus> {
    match word {
        "queued" => Some(DeliveryStatus::Queued),
        "delivered" => Some(DeliveryStatus::Delivered),
        "acknowledged" => Some(DeliveryStatus::Acknowledged),
        _ => None,
    }
}
