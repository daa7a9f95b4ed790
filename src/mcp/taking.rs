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
pub struct Taking {
    pub project: ProjectHandle,
    pub member: Arc<Member>,
    pub call: ReceiveCall,
    /// The session is the connection's own, and everything it has is released with the connection.
    pub by_connection: bool,
}

impl Taking {
    /// The last byte of the answer is with the operating system: the next call acknowledges what it brings.
    pub fn written(&self) {
        self.call.written();
        if !self.by_connection {
            self.project.answered(&self.member, &self.call);
        }
    }

    /// The caller cannot have the answer, or does not want it: what it brings waits again.
    pub fn give_back(&self) {
        self.project.give_back(&self.member, &self.call);
    }
}

/// Where in the bytes of an outbox something ends whose writing has a consequence.
#[derive(Default)]
pub struct Marks {
    pub messages: VecDeque<(u64, MessageId)>,
    pub answers: VecDeque<(u64, Taking)>,
}

impl Marks {
    pub fn append(&mut self, other: &mut Self) {
        self.messages.append(&mut other.messages);
        self.answers.append(&mut other.answers);
    }

    /// Notes the answers that end here or before as written.
    pub fn answers_written(&mut self, end: u64) {
        let done = self.answers.iter().take_while(|(at, _)| *at <= end).count();
        for (_, taking) in self.answers.drain(..done) {
            taking.written();
        }
    }
}
