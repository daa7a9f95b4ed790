//! What a call of `receive_messages` took out of an inbox, until its caller has the answer.

use std::{collections::VecDeque, sync::Arc};

use actors::{
    model::MessageId,
    project::ProjectHandle,
    session::{Member, ReceiveCall},
};

/// A call of `receive_messages`, and the inbox that it reads. The transport that writes the answer says what became of
/// it, on whatever thread that is.
#[derive(Clone)]
pub struct PendingReceive {
    pub project: ProjectHandle,
    pub member: Arc<Member>,
    pub call: ReceiveCall,
    /// The session is the connection's own, and everything it has is released with the connection.
    pub is_connection_session: bool,
}

impl PendingReceive {
    /// The last byte of the answer is with the operating system: the next call acknowledges what it brings.
    pub fn mark_written(&self) {
        self.call.mark_written();
        if !self.is_connection_session {
            self.project.note_answered(&self.member, &self.call);
        }
    }

    /// The caller cannot have the answer, or does not want it: what it brings waits again.
    pub fn release(&self) {
        self.project.return_unclaimed(&self.member, &self.call);
    }
}

/// Where in the bytes of an outbox something ends whose writing has a consequence.
#[derive(Default)]
pub struct WriteMarks {
    pub messages: VecDeque<(u64, MessageId)>,
    pub receives: VecDeque<(u64, PendingReceive)>,
}

impl WriteMarks {
    pub fn append(&mut self, other: &mut Self) {
        self.messages.append(&mut other.messages);
        self.receives.append(&mut other.receives);
    }

    /// Notes the answers that end here or before as written.
    pub fn mark_receives_written(&mut self, end: u64) {
        let done = self.receives.iter().take_while(|(at, _)| *at <= end).count();
        for (_, taking) in self.receives.drain(..done) {
            taking.mark_written();
        }
    }
}
