//! Acknowledgements of what was written to connections. Nobody waits for them: they go together.

use std::{collections::HashMap, time::Duration};

use actors::{
    model::{MessageId, SessionId},
    storage::StoreError,
};
use deadpool_redis::redis::Value;
use tokio::sync::oneshot;

use super::{client::store_closed, operation::Operation, reply::Reply};

/// How long the acknowledgement of what was written may wait for others, and how many go at once. To acknowledge three
/// messages of a session costs hardly more than one.
pub(super) const AUTO_ACK_DELAY: Duration = Duration::from_millis(5);
const LEN_MAX: usize = 256;

pub(super) type ReplySender = oneshot::Sender<Result<Reply, StoreError>>;

pub(super) enum ReplyTarget {
    Single(ReplySender),
    /// A reply of several, each of them for the last of these; the others are told the same but for what it has done.
    PerSession(Vec<Vec<ReplySender>>),
}

/// Acknowledgements of what was written to connections, which nobody waits for.
#[derive(Default)]
pub(super) struct AutoAcks {
    places: HashMap<SessionId, usize>,
    sessions: Vec<(SessionId, Vec<u8>, Vec<ReplySender>)>,
    messages_len: usize,
}

impl AutoAcks {
    pub fn add(&mut self, session: SessionId, messages: &[MessageId], answer: ReplySender) {
        let place = *self.places.entry(session).or_insert(self.sessions.len());
        if place == self.sessions.len() {
            self.sessions.push((session, Vec::new(), Vec::new()));
        }
        let (_, ids, senders) = &mut self.sessions[place];
        for message in messages {
            ids.extend(message.as_uuid().as_bytes());
        }
        senders.push(answer);
        self.messages_len += messages.len();
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// There are enough to go by themselves.
    pub const fn is_full(&self) -> bool {
        self.messages_len >= LEN_MAX
    }

    /// All of them as one operation, and who is told of it.
    pub fn take(&mut self) -> Option<(Operation, ReplyTarget)> {
        let written = std::mem::take(self);
        if written.is_empty() {
            return None;
        }
        let mut operation = Operation::new("acknowledge_written").time(actors::clock::now());
        let mut answers = Vec::with_capacity(written.sessions.len());
        for (session, ids, senders) in written.sessions {
            operation = operation.session_with(session, ids);
            answers.push(senders);
        }
        Some((operation, ReplyTarget::PerSession(answers)))
    }
}

impl ReplyTarget {
    pub fn send(self, reply: Result<Value, StoreError>) {
        match self {
            Self::Single(sender) => drop(sender.send(reply.and_then(Reply::new))),
            Self::PerSession(all) => match reply.and_then(Reply::new) {
                Ok(mut replies) => {
                    for senders in all {
                        let reply = replies.next().ok_or_else(store_closed).and_then(Reply::new);
                        send_to_each(senders, reply);
                    }
                }
                Err(error) => {
                    for senders in all {
                        send_to_each(senders, Err(error.clone()));
                    }
                }
            },
        }
    }
}

/// The last is told what was done, the others how things stand since.
fn send_to_each(mut senders: Vec<ReplySender>, reply: Result<Reply, StoreError>) {
    let last = senders.pop();
    for sender in senders {
        let _ = sender.send(match &reply {
            Ok(reply) => Ok(reply.depth_only()),
            Err(error) => Err(error.clone()),
        });
    }
    if let Some(last) = last {
        let _ = last.send(reply);
    }
}
