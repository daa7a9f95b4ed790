//! The receives whose answers are not yet with their callers, and the marks by which a transport completes them.

use std::{collections::VecDeque, sync::Arc};

use actors::{
    model::MessageId,
    project::ProjectHandle,
    session::{Member, ReceiveCall},
};

/// A call of `receive_messages` and the inbox that it reads. The transport that writes the answer reports its fate, on
/// any thread.
#[derive(Clone)]
pub struct PendingReceive {
    /// The project of the session.
    pub project: ProjectHandle,
    /// The session whose inbox it reads.
    pub member: Arc<Member>,
    /// The state of the call, shared with the session.
    pub call: ReceiveCall,
    /// The session is that of the connection, so closing the connection releases all its leases.
    pub is_connection_session: bool,
}

impl PendingReceive {
    /// The last byte of the answer is with the operating system: the next call acknowledges its messages.
    pub fn mark_written(&self) {
        self.call.mark_written();
        if !self.is_connection_session {
            self.project.note_answered(&self.member, &self.call);
        }
    }

    /// The caller cannot or does not want to have the answer: its messages return to the inbox.
    pub fn release(&self) {
        self.project.return_unclaimed(&self.member, &self.call);
    }
}

/// Positions in the output of an outbox. When the bytes before one have been written, its message or receive is
/// complete.
#[derive(Default)]
pub struct WriteMarks {
    /// Pushed messages, by the position of their last byte.
    pub messages: VecDeque<(u64, MessageId)>,
    /// Receives, by the position of the last byte of their answers.
    pub receives: VecDeque<(u64, PendingReceive)>,
}

impl WriteMarks {
    /// Moves the marks of `other` behind these.
    pub fn append(&mut self, other: &mut Self) {
        self.messages.append(&mut other.messages);
        self.receives.append(&mut other.receives);
    }

    /// Completes the receives whose answers end at or before `end`.
    pub fn mark_receives_written(&mut self, end: u64) {
        let done = self.receives.iter().take_while(|(at, _)| *at <= end).count();
        for (_, receive) in self.receives.drain(..done) {
            receive.mark_written();
        }
    }
}
