//! Sending: reads the arguments of a message, waits for its outcome, and writes the answer.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use actors::{
    clock::{now, rfc3339, rfc3339_text},
    model::{
        BrokerError, CapabilityFilter, DeliveryStatus, HOPS_MAX, Headers, MessageId, Outcome, PresenceTimeouts,
        ProtocolName, Rung, SessionId, TEXT_PROTOCOL, TEXT_VERSION,
    },
    project::{ProjectHandle, RequestTrace, SendRequest},
    registry::WorkBudget,
    router::Routed,
    session::Member,
    storage::SendResult,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    WAIT_MAX,
    arguments::{Arguments, RequirementArgument},
    sessions::wakes_by,
};
use crate::auth::{Audit, AuditedAction, Identity};
use common::json::{JsonObject, write_json};

/// Seconds that `wait_for` waits without `timeout_seconds`.
pub const WAIT_DEFAULT_SECONDS: f64 = 30.0;
/// Recipients that refused a broadcast and that the answer names; `failed` counts all of them.
pub const FAILURES_LEN_MAX: usize = 1000;
/// Bytes of one text header.
pub const HEADER_LEN_MAX: usize = 256;
/// Bytes of the header `complement`: as many as the broker writes.
pub const COMPLEMENT_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the header `thread_id`.
pub const THREAD_ID_LEN_MAX: usize = 128;
/// Characters of the header `subject`.
pub const SUBJECT_CHARS_MAX: usize = 200;

/// The status that a sender waits for, and how long.
pub type WaitGoal = (DeliveryStatus, Duration);

/// The arguments that direct messages and broadcasts have in common.
pub struct MessageArguments<'a> {
    pub protocol_name: Cow<'a, str>,
    pub protocol_version: Cow<'a, str>,
    /// The text of a JSON value.
    pub payload: Cow<'a, str>,
    pub headers: Headers,
    /// A direct message is kept for a name that no session has yet.
    pub keeps_for_unknown: bool,
}

impl<'a> MessageArguments<'a> {
    /// Takes the arguments. Without a protocol the message is a text, whose payload may be the bare string. The payload has
    /// at most `payload_len_max` bytes.
    ///
    /// # Errors
    /// `InvalidArgument`, or `PayloadTooLarge`.
    pub fn parse(arguments: &mut Arguments<'a>, payload_len_max: usize) -> Result<Self, BrokerError> {
        let (protocol_name, protocol_version) = parse_protocol(arguments)?;
        let payload = arguments.required_raw("payload")?;
        if payload.len() > payload_len_max {
            return Err(BrokerError::PayloadTooLarge { limit: payload_len_max });
        }
        let is_bare_text = protocol_name == TEXT_PROTOCOL && payload.starts_with('"');
        let mut common = Self {
            protocol_name,
            protocol_version,
            payload: if is_bare_text {
                format!("{{\"text\":{payload}}}").into()
            } else {
                payload.into()
            },
            headers: arguments
                .optional::<JsonObject<_>>("headers")?
                .map(|JsonObject(headers)| headers)
                .unwrap_or_default(),
            keeps_for_unknown: false,
        };
        if common.payload.len() > payload_len_max {
            return Err(BrokerError::PayloadTooLarge { limit: payload_len_max });
        }
        check_headers(&mut common.headers)?;
        Ok(common)
    }

    /// The message as the project takes it; `tracked` says that the sender waits for a status.
    pub fn send_request<'b>(&'b self, tracked: bool, trace: Option<RequestTrace<'b>>) -> SendRequest<'b> {
        SendRequest {
            protocol_name: &self.protocol_name,
            protocol_version: &self.protocol_version,
            payload: &self.payload,
            headers: &self.headers,
            tracked,
            keeps_for_unknown: self.keeps_for_unknown,
            work: WorkBudget::default(),
            trace,
        }
    }
}

/// The protocol of a message by name and version; `text` without both.
fn parse_protocol<'a>(arguments: &mut Arguments<'a>) -> Result<(Cow<'a, str>, Cow<'a, str>), BrokerError> {
    match (arguments.text("protocol_name")?, arguments.text("protocol_version")?) {
        (Some(name), Some(version)) => Ok((name, version)),
        (None, None) => Ok((TEXT_PROTOCOL.into(), TEXT_VERSION.into())),
        (Some(name), None) if name == TEXT_PROTOCOL => Ok((name, TEXT_VERSION.into())),
        (Some(_), None) => {
            let reason = "required with protocol_name: discover_protocols shows the versions";
            Err(BrokerError::invalid("protocol_version", reason))
        }
        (None, Some(_)) => {
            let reason = "required with protocol_version; without both the message is a plain text";
            Err(BrokerError::invalid("protocol_name", reason))
        }
    }
}

/// What `if_unknown` of a direct message says: whether it is kept for a name that no session has yet.
///
/// # Errors
/// `InvalidArgument`.
pub fn parse_if_unknown(arguments: &mut Arguments<'_>) -> Result<bool, BrokerError> {
    match arguments.text("if_unknown")?.as_deref() {
        None | Some("refuse") => Ok(false),
        Some("keep") => Ok(true),
        Some(_) => Err(BrokerError::invalid("if_unknown", "refuse or keep")),
    }
}

fn check_headers(headers: &mut Headers) -> Result<(), BrokerError> {
    if headers.ttl_seconds == Some(0) {
        return Err(BrokerError::invalid("headers.ttl_seconds", "at least 1"));
    }
    if headers.hops.is_some_and(|hops| hops > HOPS_MAX) {
        return Err(BrokerError::invalid("headers.hops", format!("at most {HOPS_MAX}")));
    }
    let complement_len = headers
        .complement
        .as_ref()
        .map_or(0, |complement| complement.as_str().len());
    if complement_len > COMPLEMENT_BYTES_MAX {
        let reason = format!("at most {COMPLEMENT_BYTES_MAX} bytes");
        return Err(BrokerError::invalid("headers.complement", reason));
    }
    let texts = [
        ("headers.idempotency_key", &mut headers.idempotency_key),
        ("headers.correlation_id", &mut headers.correlation_id),
        ("headers.reply_to", &mut headers.reply_to),
        ("headers.thread_id", &mut headers.thread_id),
        ("headers.subject", &mut headers.subject),
    ];
    for (name, text) in texts {
        // As for arguments, the empty string counts as absent.
        *text = text.take().filter(|text| !text.is_empty());
        let Some(text) = text else { continue };
        match name {
            "headers.thread_id" => check_thread_id(name, text)?,
            "headers.subject" => check_subject(name, text)?,
            _ if text.len() > HEADER_LEN_MAX => {
                return Err(BrokerError::invalid(name, format!("at most {HEADER_LEN_MAX} bytes")));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Refuses a text that can be no `thread_id`.
///
/// # Errors
/// `InvalidArgument` that names the argument.
pub fn check_thread_id(name: &str, text: &str) -> Result<(), BrokerError> {
    if text.len() > THREAD_ID_LEN_MAX || text.contains(char::is_control) {
        let reason = format!("at most {THREAD_ID_LEN_MAX} bytes, without control characters");
        return Err(BrokerError::invalid(name, reason));
    }
    Ok(())
}

fn check_subject(name: &str, text: &str) -> Result<(), BrokerError> {
    let ends_line = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    if text.contains(ends_line) || text.chars().nth(SUBJECT_CHARS_MAX).is_some() {
        let reason = format!("one line of at most {SUBJECT_CHARS_MAX} characters, without control characters");
        return Err(BrokerError::invalid(name, reason));
    }
    Ok(())
}

/// The argument `capability_filter`; without it every session that speaks the protocol is a recipient.
///
/// # Errors
/// `InvalidArgument` for another shape.
pub fn parse_filter(arguments: &mut Arguments<'_>) -> Result<CapabilityFilter, BrokerError> {
    #[derive(Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Filter {
        protocols: BTreeMap<ProtocolName, RequirementArgument>,
        features: BTreeSet<String>,
    }
    let filter = arguments.optional::<JsonObject<_>>("capability_filter")?;
    let Filter { protocols, features } = filter.map(|JsonObject(filter)| filter).unwrap_or_default();
    let protocols = protocols
        .into_iter()
        .map(|(name, RequirementArgument(wanted))| (name, wanted))
        .collect();
    Ok(CapabilityFilter { protocols, features })
}

/// The arguments `wait_for` and `timeout_seconds`; `None` if the first answer suffices.
///
/// # Errors
/// `InvalidArgument` for another word or time.
pub fn parse_wait(arguments: &mut Arguments<'_>) -> Result<Option<WaitGoal>, BrokerError> {
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

fn parse_status(word: &str) -> Option<DeliveryStatus> {
    match word {
        "queued" => Some(DeliveryStatus::Queued),
        "delivered" => Some(DeliveryStatus::Delivered),
        "acknowledged" => Some(DeliveryStatus::Acknowledged),
        _ => None,
    }
}

/// Writes an audit record if a message was refused for isolation between projects.
pub fn audit_isolation_refusal(audit: &Audit, identity: &Identity, recipient: &str, error: BrokerError) -> BrokerError {
    if matches!(
        error,
        BrokerError::CrossProjectDisabled { .. } | BrokerError::CrossProjectForbidden { .. }
    ) {
        let action = AuditedAction {
            action: "message.cross",
            project: None,
            target: recipient.rsplit_once('@').map(|(_, project)| project.to_owned()),
        };
        audit.record_refused(identity, &action, &error);
    }
    error
}

/// Waits for the status that the sender asked for, and stores the result for its idempotency key.
pub async fn await_outcome(
    project: &ProjectHandle,
    sender: SessionId,
    wait_goal: Option<WaitGoal>,
    idempotency_key: Option<&str>,
    mut routed: Routed,
) -> Routed {
    if let (Some((goal, timeout)), Some(status)) = (wait_goal, routed.status.clone()) {
        let reached = project.wait_for_status(status, goal, timeout).await;
        let at_ms = now().unix_ms;
        let outcome = &mut routed.result;
        if reached != DeliveryStatus::Queued && outcome.delivered_at_ms.is_none() {
            outcome.delivered = 1;
            outcome.queued = 0;
            outcome.queue_len = outcome.queue_len.saturating_sub(1);
            outcome.delivered_at_ms =
                (!matches!(reached, DeliveryStatus::Expired | DeliveryStatus::DeadLettered(_))).then_some(at_ms);
        }
        outcome.status = Some(reached);
        if reached.is_final() {
            routed.outcome = outcome_of(project, routed.result.message).await;
        }
    }
    if let Some(key) = idempotency_key {
        let stored = project
            .complete_send_result(sender, key.to_owned(), routed.result.clone())
            .await;
        if let Err(error) = stored {
            tracing::warn!(%error, "the result for an idempotency key could not be stored: repeats are answered as queued");
        }
    }
    routed
}

/// What the recipient of a direct message said of it.
async fn outcome_of(project: &ProjectHandle, message: MessageId) -> Option<Arc<Outcome>> {
    let statuses = project.message_status(message).await;
    // The status is known already: without the outcome the answer is still true.
    statuses.ok()??.pop()?.outcome
}

/// Writes the answer to a direct message: `{message_id, status, queue_size, delivered_at, outcome?, note?, transform?}`.
/// Written by hand, because most calls have this answer. The size of the queue is left out without `with_queue`.
///
/// For a message that waits, the answer says what is known of the recipient.
pub fn write_direct(
    out: &mut Vec<u8>,
    project: &ProjectHandle,
    routed: &Routed,
    with_queue: bool,
    recipient: Option<&Member>,
) {
    let outcome = &routed.result;
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
            out.push(b'"');
        }
        None => out.extend_from_slice(b",\"delivered_at\":null"),
    }
    if let Some(outcome) = &routed.outcome {
        out.extend_from_slice(b",\"outcome\":");
        write_json(out, &outcome.kind);
        if !outcome.note.is_empty() {
            out.extend_from_slice(b",\"note\":");
            write_json(out, &outcome.note);
        }
    }
    if let Some((transformed, _)) = outcome.transforms.as_ref().and_then(|all| all.versions.first()) {
        out.extend_from_slice(b",\"transform\":");
        if with_queue {
            out.extend_from_slice(transformed.text().as_bytes());
        } else {
            out.extend_from_slice(transformed.for_other_project().text().as_bytes());
        }
    }
    if let Some(recipient) = recipient.filter(|_| status == DeliveryStatus::Queued) {
        out.extend_from_slice(b",\"recipient\":");
        write_json(out, &RecipientView::of(recipient, project.presence_timeouts()));
    }
    out.push(b'}');
}

/// What the sender of a direct message may know of its recipient, now.
#[derive(Serialize)]
struct RecipientView {
    status: &'static str,
    activity: &'static str,
    wakes_by: Option<Vec<Rung>>,
    last_read_at: Option<String>,
}

impl RecipientView {
    fn of(recipient: &Member, presence: PresenceTimeouts) -> Self {
        let wakes = recipient.shared.wakes();
        Self {
            status: recipient.status(presence, now()).as_str(),
            activity: wakes.activity().as_str(),
            wakes_by: wakes_by(recipient),
            last_read_at: wakes.last_read_ms().map(rfc3339_text),
        }
    }
}

/// The answer to a broadcast.
pub fn broadcast_json(routed: &Routed) -> Value {
    let SendResult {
        message,
        delivered,
        queued,
        skipped,
        refused,
        transforms,
        ..
    } = &routed.result;
    let message: &MessageId = message;
    let transforms = transforms.as_deref();
    let untransformed = transforms.map_or(&[][..], |transforms| &transforms.failed);
    let failure = |code: &'static str| move |session: &SessionId| json!({"session_id": session, "code": code});
    let full = refused.iter().map(failure("queue_full"));
    let failures: Vec<_> = full
        .chain(untransformed.iter().map(failure("transform_failed")))
        .take(FAILURES_LEN_MAX)
        .collect();
    let failed = refused.len() + untransformed.len();
    let mut answer = json!({
        "message_id": message,
        "recipients": delivered + queued + failed,
        "delivered": delivered,
        "queued": queued,
        "failed": failed,
        "skipped": skipped,
        "failures": failures,
    });
    if let Some(transforms) = transforms {
        let rows = transforms.versions.iter().map(|(transformed, recipients)| {
            let mut row = json!({
                "to": transformed.to,
                "recipients": recipients,
                "loss": transformed.loss,
                "defaulted": transformed.defaulted,
            });
            if transformed.more {
                row["more"] = json!(true);
            }
            row
        });
        answer["transforms"] = rows.collect();
    }
    answer
}
