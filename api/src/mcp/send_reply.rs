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
use crate::verbs::sending::{self, WaitGoal};
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
    recipient: Option<Arc<Member>>,
    /// The recipient is in another project.
    is_cross_project: bool,
    is_broadcast: bool,
    /// What follows the acceptance. None for most messages.
    pub follow_up: Option<Box<FollowUp>>,
}

/// What follows the acceptance of a message before its sender gets the last answer.
pub struct FollowUp {
    /// The status that the sender waits for, and how long.
    wait_goal: Option<WaitGoal>,
    /// Reserves the place of the wait among the calls of the connection, until the wait begins or the answer is sent.
    call_slot: Option<Share>,
    /// The key under which the result is stored.
    idempotency_key: Option<String>,
}

impl FollowUp {
    /// None if nothing follows.
    pub fn new(wait: Option<(WaitGoal, Share)>, idempotency_key: Option<String>) -> Option<Box<Self>> {
        let (wait_goal, call_slot) = wait.unzip();
        (wait_goal.is_some() || idempotency_key.is_some()).then(|| {
            Box::new(Self {
                wait_goal,
                call_slot,
                idempotency_key,
            })
        })
    }
}

impl ToolSend {
    /// A message for one recipient.
    pub fn direct(dispatch: PreparedSend, mut reply: SendReply) -> Self {
        reply.recipient = dispatch.recipient().cloned();
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
            follow_up: None,
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
        if let Some(follow_up) = &mut self.follow_up {
            follow_up.call_slot = None;
        }
    }

    /// Whether the reply can be sent now: it waits neither for a status nor for the store.
    pub fn is_complete(&self, routed: &Routed) -> bool {
        routed.is_repeat || self.follow_up.is_none()
    }

    /// Whether the sender waits for a status beyond the first answer.
    pub fn may_wait(&self) -> bool {
        self.wait_goal().is_some()
    }

    fn wait_goal(&self) -> Option<WaitGoal> {
        self.follow_up.as_ref()?.wait_goal
    }

    /// Waits for the status that the sender asked for, and stores the result for its idempotency key.
    pub async fn await_outcome(&self, project: &ProjectHandle, routed: Routed) -> Routed {
        let key = self
            .follow_up
            .as_ref()
            .and_then(|follow_up| follow_up.idempotency_key.as_deref());
        sending::await_outcome(project, self.sender.record.id, self.wait_goal(), key, routed).await
    }

    /// The session that sends.
    pub const fn sender(&self) -> &Arc<Member> {
        &self.sender
    }

    /// The object of the result.
    pub fn to_result(&self, project: &ProjectHandle, routed: &Routed) -> ToolResult {
        let mut object = Vec::with_capacity(256);
        self.write_object(&mut object, project, routed);
        ToolResult::from(object)
    }

    fn write_object(&self, object: &mut Vec<u8>, project: &ProjectHandle, routed: &Routed) {
        if self.is_broadcast {
            write_json(object, &sending::broadcast_json(routed));
        } else {
            // The depth of an inbox in another project is not disclosed.
            let recipient = self.recipient.as_deref();
            sending::write_direct(object, project, routed, !self.is_cross_project, recipient);
        }
    }

    /// The result for the sender; `object` is a buffer for the object in it.
    pub fn result<'a>(&self, object: &'a mut Vec<u8>, project: &ProjectHandle, routed: &Routed) -> CallResult<'a> {
        object.clear();
        self.write_object(object, project, routed);
        CallResult {
            modern: self.to.modern,
            object,
            is_error: false,
            unread: UnreadCount::Of(self.sender.shared.waiting()),
        }
    }
}

#[cfg(test)]
mod tests {
    use actors::router::{RouteAnswer, Submission};

    use super::*;
    use crate::mcp::{
        rpc::Incoming,
        tools::{Called, ToolCaller},
    };

    #[test]
    fn what_moves_on_the_way_of_a_message_is_small() {
        macro_rules! bytes_of {
            ($($moved:ty: $max:literal),* $(,)?) => {
                [$((stringify!($moved), size_of::<$moved>(), $max)),*]
            };
        }
        let sizes = bytes_of! {
            Incoming<'_>: 136, ReplyTo: 80, ToolCaller: 32, Called: 192, ToolSend: 192, SendReply: 112, Submission: 80,
            RouteAnswer: 136,
        };
        for (name, size, max) in sizes {
            assert!(
                size <= max,
                "{name} has {size} bytes: it is moved several times for each message"
            );
        }
    }
}
