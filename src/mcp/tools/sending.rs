use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use actors::{
    clock::rfc3339,
    model::{BrokerError, CapabilityFilter, Headers, MessageId, ProtocolName, Scope, SessionId, Status},
    project::{Dispatch, Envelope, ProjectHandle},
    registry::WorkBudget,
    router::Routed,
    session::Member,
    storage::Outcome,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ADDS, Arguments, Caller, Object, Run, Tool, WAIT_MAX, arguments::ReadRequirement, count, described, text, words,
};
use crate::{
    auth::Act,
    mcp::{
        reply::{Answer, ReplyTo, Unread, write_tool_result},
        rpc::write_json,
        shared::CallPlace,
    },
};

/// How long `wait_for` waits when no `timeout_seconds` is given.
const WAIT: f64 = 30.0;
const KEY_LEN_MAX: usize = 256;
/// Recipients that one answer names which did not accept a broadcast; `failed` counts all of them.
const FAILURES_LEN_MAX: usize = 1000;

fn headers() -> Value {
    json!({
        "type": "object",
        "description": "How to deliver it.",
        "properties": {
            "priority": {"enum": ["low", "normal", "high", "urgent"]},
            "ttl_seconds": count("Not delivered later."),
            "correlation_id": text("Ties an answer to its question."),
            "reply_to": text("Where to answer."),
            "idempotency_key": text("A repeat within 24 h sends nothing."),
        },
    })
}

fn payload() -> Value {
    json!({"type": "object", "description": "Fits the protocol's schema."})
}

pub const SEND_MESSAGE: Tool = Tool {
    name: "send_message",
    title: "Send message",
    description: "Send to one session, present or absent.",
    hints: ADDS,
    needs: Scope::Member,
    input: || {
        let properties = json!({
            "recipient_id": text("Id, name, or name@project."),
            "protocol_name": text("As registered."),
            "protocol_version": text("As registered."),
            "payload": payload(),
            "headers": headers(),
            "wait_for": {"enum": ["queued", "delivered", "acknowledged"], "description": "Status to wait for."},
            "timeout_seconds": described(
                json!({"type": "number"}),
                &format!("Longest wait, at most {}, default {WAIT}.", WAIT_MAX.as_secs()),
            ),
        });
        (
            properties,
            &["recipient_id", "protocol_name", "protocol_version", "payload"],
        )
    },
    output: || {
        let properties = json!({
            "message_id": text(""),
            "status": {"enum": ["queued", "delivered", "acknowledged", "expired", "dead_lettered"]},
            "queue_size": count(""),
            "delivered_at": {"type": ["string", "null"]},
        });
        (properties, &["message_id", "status", "delivered_at"])
    },
    acts_as_session: true,
    exclusive: false,
    run: Run::Submit(send_message),
};

pub const BROADCAST_MESSAGE: Tool = Tool {
    name: "broadcast_message",
    title: "Broadcast message",
    description: "Send to every other session that passes the filter and speaks the protocol, present or absent.",
    hints: ADDS,
    needs: Scope::Member,
    input: || {
        let filter = json!({
            "type": "object",
            "description": "Only sessions that meet it.",
            "properties": {
                "protocols": {
                    "type": "object", "additionalProperties": {"type": "string"},
                    "description": "Version requirements by name.",
                },
                "features": words(""),
            },
        });
        let properties = json!({
            "protocol_name": text("As registered."), "protocol_version": text("As registered."),
            "payload": payload(), "capability_filter": filter,
            "headers": {"type": "object", "description": "As of send_message."},
        });
        (properties, &["protocol_name", "protocol_version", "payload"])
    },
    output: || {
        let failure = json!({
            "type": "object",
            "properties": {"session_id": text(""), "code": text("")},
            "required": ["session_id", "code"],
        });
        let properties = json!({
            "message_id": text(""),
            "recipients": count(""),
            "delivered": count(""),
            "queued": count(""),
            "failed": count(""),
            "skipped": count(""),
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

/// A message that is checked, and how its sender is to be answered.
pub struct Prepared {
    pub dispatch: Dispatch,
    pub answer: SendAnswer,
}

/// What a sender is told about a message.
pub struct SendAnswer {
    pub to: ReplyTo,
    sender: Arc<Member>,
    /// It goes to another project.
    abroad: bool,
    broadcast: bool,
    /// The status the sender waits for, and how long.
    goal: Option<(Status, Duration)>,
    /// Among the calls of the connection, until the wait is one of them or the answer is there.
    place: Option<CallPlace>,
    idempotency_key: Option<String>,
}

/// The members that both tools take.
struct Common<'a> {
    protocol_name: Cow<'a, str>,
    protocol_version: Cow<'a, str>,
    payload: &'a str,
    headers: Headers,
}

impl<'a> Common<'a> {
    fn take(caller: &Caller, arguments: &mut Arguments<'a>) -> Result<Self, BrokerError> {
        let mut common = Self {
            protocol_name: arguments.required_text("protocol_name")?,
            protocol_version: arguments.required_text("protocol_version")?,
            payload: arguments.required_raw("payload")?,
            headers: arguments
                .optional::<Object<_>>("headers")?
                .map(|Object(headers)| headers)
                .unwrap_or_default(),
        };
        let limit = caller.home.service.payload_len_max;
        if common.payload.len() > limit {
            return Err(BrokerError::PayloadTooLarge { limit });
        }
        common.headers = checked(common.headers)?;
        Ok(common)
    }

    fn envelope(&self, watched: bool) -> Envelope<'_> {
        Envelope {
            protocol_name: &self.protocol_name,
            protocol_version: &self.protocol_version,
            payload: self.payload,
            headers: &self.headers,
            watched,
            tried: false,
            looked: None,
            work: WorkBudget::default(),
        }
    }
}

fn checked(mut headers: Headers) -> Result<Headers, BrokerError> {
    if headers.ttl_seconds == Some(0) {
        return Err(BrokerError::invalid("headers.ttl_seconds", "at least 1"));
    }
    let texts = [
        ("headers.idempotency_key", &mut headers.idempotency_key),
        ("headers.correlation_id", &mut headers.correlation_id),
        ("headers.reply_to", &mut headers.reply_to),
    ];
    for (name, text) in texts {
        // As of arguments: the empty string counts as absent.
        *text = text.take().filter(|text| !text.is_empty());
        if text.as_ref().is_some_and(|text| text.len() > KEY_LEN_MAX) {
            return Err(BrokerError::invalid(name, format!("at most {KEY_LEN_MAX} bytes")));
        }
    }
    Ok(headers)
}

fn send_message(caller: &Caller, mut arguments: Arguments<'_>, to: ReplyTo) -> Result<Prepared, BrokerError> {
    let recipient = arguments.required_text("recipient_id")?;
    let goal = goal(&mut arguments)?;
    let common = Common::take(caller, &mut arguments)?;
    arguments.finish()?;
    let sender = Arc::clone(caller.session()?);
    let place = goal.map(|_| caller.home.place_for_call()).transpose()?;
    let looked = caller.home.caught_up.borrow().clone();
    let envelope = Envelope {
        // For a batch it was looked before any of it was tried.
        tried: looked.is_some() && !to.lane.is_batch(),
        looked,
        ..common.envelope(goal.is_some())
    };
    let dispatch = caller.project.direct(&sender, &recipient, &envelope);
    caller.home.identity.owes_work(envelope.work.spent());
    let dispatch = dispatch.map_err(|error| refused_at_the_wall(caller, &recipient, error))?;
    let idempotency_key = common.headers.idempotency_key;
    Ok(Prepared {
        answer: SendAnswer {
            to,
            sender,
            abroad: matches!(dispatch, Dispatch::Abroad(_)),
            broadcast: false,
            goal,
            place,
            idempotency_key,
        },
        dispatch,
    })
}

/// Has it written down when a message was not let through to another project.
fn refused_at_the_wall(caller: &Caller, recipient: &str, error: BrokerError) -> BrokerError {
    if matches!(
        error,
        BrokerError::CrossProjectDisabled { .. } | BrokerError::CrossProjectForbidden { .. }
    ) {
        let act = Act {
            action: "message.cross",
            project: None,
            target: recipient.rsplit_once('@').map(|(_, project)| project.to_owned()),
        };
        caller
            .home
            .service
            .admin
            .audit()
            .refused(&caller.home.identity, &act, &error);
    }
    error
}

/// What `wait_for` and `timeout_seconds` ask for; None when the first answer will do.
fn goal(arguments: &mut Arguments<'_>) -> Result<Option<(Status, Duration)>, BrokerError> {
    let goal = match arguments.text("wait_for")? {
        None => None,
        Some(word) => Some(
            as_status(&word).ok_or_else(|| BrokerError::invalid("wait_for", "queued, delivered or acknowledged"))?,
        ),
    };
    let timeout = arguments.seconds("timeout_seconds", WAIT, WAIT_MAX.as_secs_f64())?;
    Ok(goal.filter(|goal| *goal != Status::Queued).map(|goal| (goal, timeout)))
}

fn broadcast_message(caller: &Caller, mut arguments: Arguments<'_>, to: ReplyTo) -> Result<Prepared, BrokerError> {
    #[derive(Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Filter {
        protocols: BTreeMap<ProtocolName, ReadRequirement>,
        features: std::collections::BTreeSet<String>,
    }
    let filter = arguments.optional::<Object<_>>("capability_filter")?;
    let Filter { protocols, features } = filter.map(|Object(filter)| filter).unwrap_or_default();
    let common = Common::take(caller, &mut arguments)?;
    arguments.finish()?;
    let sender = Arc::clone(caller.session()?);
    let protocols = protocols
        .into_iter()
        .map(|(name, ReadRequirement(wanted))| (name, wanted))
        .collect();
    let filter = CapabilityFilter { protocols, features };
    let envelope = common.envelope(false);
    let submission = caller.project.broadcast(&sender, filter, &envelope);
    caller.home.identity.owes_work(envelope.work.spent());
    let submission = submission?;
    let idempotency_key = common.headers.idempotency_key;
    Ok(Prepared {
        dispatch: Dispatch::Home(submission),
        answer: SendAnswer {
            to,
            sender,
            abroad: false,
            broadcast: true,
            goal: None,
            place: None,
            idempotency_key,
        },
    })
}

impl SendAnswer {
    /// From here on it is counted elsewhere.
    pub fn leaves_place(&mut self) {
        self.place = None;
    }

    /// Whether nothing has to be waited for: neither a status nor the store.
    pub fn is_settled_by(&self, routed: &Routed) -> bool {
        routed.repeated || (self.goal.is_none() && self.idempotency_key.is_none())
    }

    /// Whether the sender waits for more than the first answer.
    pub fn lasts(&self) -> bool {
        self.goal.is_some()
    }

    /// Waits for the status the sender wants, and keeps the result for its idempotency key.
    pub async fn settle(&self, project: &ProjectHandle, mut routed: Routed) -> Routed {
        if let (Some((goal, timeout)), Some(status)) = (self.goal, routed.status.clone()) {
            let reached = project.follow(status, goal, timeout).await;
            let at_ms = actors::clock::now().unix_ms;
            let outcome = &mut routed.outcome;
            if reached != Status::Queued && outcome.delivered_at_ms.is_none() {
                outcome.delivered = 1;
                outcome.queued = 0;
                outcome.queue_len = outcome.queue_len.saturating_sub(1);
                outcome.delivered_at_ms =
                    (!matches!(reached, Status::Expired | Status::DeadLettered(_))).then_some(at_ms);
            }
            outcome.status = Some(reached);
        }
        if let Some(key) = &self.idempotency_key {
            let kept = project
                .settle_outcome(self.sender.record.id, key.clone(), routed.outcome.clone())
                .await;
            if let Err(error) = kept {
                tracing::warn!(%error, "the first result of an idempotency key is only known as queued");
            }
        }
        routed
    }

    pub const fn sender(&self) -> &Arc<Member> {
        &self.sender
    }

    /// The object of the result.
    pub fn answer(&self, routed: &Routed) -> Answer {
        let mut object = Vec::with_capacity(256);
        self.write_object(&mut object, routed);
        Answer(object)
    }

    fn write_object(&self, object: &mut Vec<u8>, routed: &Routed) {
        if self.broadcast {
            write_json(object, &broadcast_json(&routed.outcome));
        } else {
            // How much waits there is nobody's business here.
            write_direct(object, &routed.outcome, !self.abroad);
        }
    }

    /// Writes the whole response; `object` is room for the object in it.
    pub fn write(&self, out: &mut Vec<u8>, object: &mut Vec<u8>, routed: &Routed) {
        object.clear();
        self.write_object(object, routed);
        write_tool_result(out, &self.to, object, false, Unread::Of(self.sender.vitals.waiting()));
    }
}

/// `{message_id, status, queue_size, delivered_at}`, without a detour: this is the answer to most calls.
fn write_direct(out: &mut Vec<u8>, outcome: &Outcome, with_queue: bool) {
    let status = outcome.status.unwrap_or(if outcome.delivered > 0 {
        Status::Delivered
    } else {
        Status::Queued
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

fn broadcast_json(outcome: &Outcome) -> Value {
    let Outcome {
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

fn as_status(word: &str) -> Option<Status> {
    match word {
        "queued" => Some(Status::Queued),
        "delivered" => Some(Status::Delivered),
        "acknowledged" => Some(Status::Acknowledged),
        _ => None,
    }
}
