//! Gathers acknowledgements of what was written to connections, for all sessions of a project, into one operation.

use std::{collections::HashMap, time::Duration};

use actors::{
    model::{MessageId, SessionId},
    storage::StoreError,
};
use deadpool_redis::redis::Value;
use tokio::sync::oneshot;

use super::super::{
    client::store_closed,
    operation::{Operation, pack_ids},
    reply::{self, Reply},
};

/// How long an acknowledgement waits for others: three messages of a session cost hardly more than one.
pub(super) const DELAY: Duration = Duration::from_millis(5);
/// Messages from which on they are sent at once.
const LEN_MAX: usize = 256;

/// Where the answer to one request goes.
pub(super) type ReplySender = oneshot::Sender<Result<Reply, StoreError>>;

/// Where the reply to an operation goes.
pub(super) enum ReplyTarget {
    Single(ReplySender),
    /// The reply is a list, one for each session.
    PerSession(Vec<WrittenMessages>),
}

/// Messages that were written to a session, and the requests to acknowledge them. The last request gets the reply; the
/// earlier ones get the same depth and no acknowledged messages.
pub(super) struct WrittenMessages {
    session: SessionId,
    messages: Vec<MessageId>,
    senders: Vec<ReplySender>,
}

/// The gathered acknowledgements.
#[derive(Default)]
pub(super) struct AutoAcks {
    /// Positions in `sessions`.
    positions: HashMap<SessionId, usize>,
    sessions: Vec<WrittenMessages>,
    messages_len: usize,
}

impl AutoAcks {
    /// Adds the messages that were written to a session.
    pub fn add(&mut self, session: SessionId, messages: &[MessageId], reply_to: ReplySender) {
        let position = *self.positions.entry(session).or_insert(self.sessions.len());
        if position == self.sessions.len() {
            self.sessions.push(WrittenMessages {
                session,
                messages: Vec::new(),
                senders: Vec::new(),
            });
        }
        let written = &mut self.sessions[position];
        written.messages.extend(messages);
        written.senders.push(reply_to);
        self.messages_len += messages.len();
    }

    /// Whether nothing is gathered.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Whether there are enough to be sent at once.
    pub const fn is_full(&self) -> bool {
        self.messages_len >= LEN_MAX
    }

    /// All of them as one operation, with the requests to answer. None when there are none.
    pub fn take(&mut self) -> Option<(Operation, ReplyTarget)> {
        let gathered = std::mem::take(self);
        if gathered.is_empty() {
            return None;
        }
        let mut operation = Operation::new("acknowledge_written").time(actors::clock::now());
        for written in &gathered.sessions {
            operation = operation.session_with(written.session, pack_ids(&written.messages));
        }
        Some((operation, ReplyTarget::PerSession(gathered.sessions)))
    }
}

impl ReplyTarget {
    /// Sends the reply. A request whose future was dropped is skipped.
    pub fn send(self, reply: Result<Value, StoreError>) {
        match self {
            Self::Single(sender) => drop(sender.send(reply.and_then(Reply::new))),
            Self::PerSession(all) => match reply.and_then(Reply::new) {
                Ok(mut replies) => {
                    for written in all {
                        let reply = replies.next().ok_or_else(store_closed).and_then(Reply::new);
                        send_to_each(written.senders, reply);
                    }
                }
                Err(error) => {
                    for written in all {
                        send_to_each(written.senders, Err(error.clone()));
                    }
                }
            },
        }
    }

    /// The messages that are acknowledged by the reply to `acknowledge_written`, with their sessions.
    pub fn acknowledged(&self, reply: &Value) -> Vec<(MessageId, SessionId)> {
        let (Self::PerSession(all), Value::Array(replies)) = (self, reply) else {
            return Vec::new();
        };
        let mut acknowledged = Vec::new();
        for (written, reply) in all.iter().zip(replies) {
            let known = reply::without(&written.messages, reply::unknown_messages(reply));
            acknowledged.extend(known.map(|message| (message, written.session)));
        }
        acknowledged
    }
}

/// Sends the reply to the last request, and its depth to the earlier ones.
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
