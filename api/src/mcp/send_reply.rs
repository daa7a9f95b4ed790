//! A message that a tool has prepared, and the reply to its sender.

use std::sync::Arc;

use actors::{
    project::{PreparedSend, ProjectHandle},
    router::Routed,
    session::Member,
};

use super::{
    calls::Share,
    reply::{CallResult, ReplyTo, ToolResult, UnreadCount},
};
use crate::verbs::sending::{self, Recipient, WaitGoal};
use common::json::write_json;

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
    /// The recipient of a direct message in the project of the sender.
    recipient: Option<Recipient>,
    /// The recipient is in another project.
    is_cross_project: bool,
    is_broadcast: bool,
    /// The status that the sender waits for, and how long.
    pub wait_goal: Option<WaitGoal>,
    /// Reserves the place of the wait among the calls of the connection, until the wait begins or the answer is sent.
    pub call_slot: Option<Share>,
    /// The key under which the result is stored.
    pub idempotency_key: Option<String>,
}

impl ToolSend {
    /// A message for one recipient.
    pub fn direct(dispatch: PreparedSend, mut reply: SendReply, project: &ProjectHandle) -> Self {
        reply.recipient = Recipient::of(&dispatch, project);
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
            recipient: None,
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
    pub async fn await_outcome(&self, project: &ProjectHandle, routed: Routed) -> Routed {
        let key = self.idempotency_key.as_deref();
        sending::await_outcome(project, self.sender.record.id, self.wait_goal, key, routed).await
    }

    /// The session that sends.
    pub const fn sender(&self) -> &Arc<Member> {
        &self.sender
    }

    /// The object of the result.
    pub fn to_result(&self, routed: &Routed) -> ToolResult {
        let mut object = Vec::with_capacity(256);
        self.write_object(&mut object, routed);
        ToolResult::from(object)
    }

    fn write_object(&self, object: &mut Vec<u8>, routed: &Routed) {
        if self.is_broadcast {
            write_json(object, &sending::broadcast_json(routed));
        } else {
            // The depth of an inbox in another project is not disclosed.
            sending::write_direct(object, routed, !self.is_cross_project, self.recipient.as_ref());
        }
    }

    /// The result for the sender; `object` is a buffer for the object in it.
    pub fn result<'a>(&self, object: &'a mut Vec<u8>, routed: &Routed) -> CallResult<'a> {
        object.clear();
        self.write_object(object, routed);
        CallResult {
            modern: self.to.modern,
            object,
            is_error: false,
            unread: UnreadCount::Of(self.sender.shared.waiting()),
        }
    }
}
