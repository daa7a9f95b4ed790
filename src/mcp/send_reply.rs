//! A message that a tool has prepared, and the reply to its sender.

use std::{sync::Arc, time::Duration};

use actors::{
    clock::rfc3339,
    model::{DeliveryStatus, MessageId, SessionId},
    project::{PreparedSend, ProjectHandle},
    router::Routed,
    session::Member,
    storage::SendResult,
};
use serde_json::{Value, json};

use super::{
    calls::CallSlot,
    reply::{ReplyTo, ToolResult, UnreadCount, write_tool_result},
    rpc::write_json,
};

/// Recipients that refused a broadcast and that the answer names; `failed` counts all of them.
pub const FAILURES_LEN_MAX: usize = 1000;

/// A checked message, and the reply to its sender.
pub struct ToolSend {
    /// The message, on its way to the router or another project.
    pub dispatch: PreparedSend,
    /// The reply to its sender.
    pub reply: SendReply,
}

/// The reply to the sender of a message.
pub struct SendReply {
    /// The request.
    pub to: ReplyTo,
    sender: Arc<Member>,
    /// The recipient is in another project.
    is_cross_project: bool,
    is_broadcast: bool,
    /// The status that the sender waits for, and how long.
    pub wait_goal: Option<(DeliveryStatus, Duration)>,
    /// Reserves the place of the wait among the calls of the connection, until the wait begins or the answer is sent.
    pub call_slot: Option<CallSlot>,
    /// The key under which the result is stored.
    pub idempotency_key: Option<String>,
}

impl ToolSend {
    /// A message for one recipient.
    pub fn direct(dispatch: PreparedSend, mut reply: SendReply) -> Self {
        reply.is_cross_project = matches!(dispatch, PreparedSend::CrossProject(_));
        Self { dispatch, reply }
    }
}

impl SendReply {
    /// The reply to the sender of a message for one recipient.
    pub fn direct(to: ReplyTo, sender: Arc<Member>) -> Self {
        Self {
            to,
            sender,
            is_cross_project: false,
            is_broadcast: false,
            wait_goal: None,
            call_slot: None,
            idempotency_key: None,
        }
    }

    /// The reply to the sender of a broadcast.
    pub fn broadcast(to: ReplyTo, sender: Arc<Member>) -> Self {
        Self {
            is_broadcast: true,
            ..Self::direct(to, sender)
        }
    }

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
            let stored = project
                .complete_send_result(self.sender.record.id, key.clone(), routed.result.clone())
                .await;
            if let Err(error) = stored {
                tracing::warn!(%error, "the result for an idempotency key could not be stored: repeats are answered as queued");
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
