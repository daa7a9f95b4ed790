//! Operations as the functions read them, and how several of them become the arguments of one call.

use std::collections::HashMap;

use actors::{
    clock::{Now, millis},
    model::{MessageId, QuestionId, ReplicaId, SessionId},
};
use deadpool_redis::redis::{Cmd, Pipeline};
use serde::Serialize;

/// About the bytes of the reply to a lease.
const LEASE_REPLY_BYTES: usize = 16 * 1024;

/// An operation: its name in the functions (`ops` in `scripts/*.lua`), and its arguments in their order.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    name: &'static str,
    args: Vec<Arg>,
    bytes: usize,
    /// Whether it stores something new: a server without memory refuses it, and Redis replicas confirm it.
    pub accepts: bool,
    /// Whether it reads or changes what is in flight: gathered acknowledgements precede it.
    pub reads_inboxes: bool,
    /// Whether the function records what it does: what this replica has recorded before is appended first.
    pub records_events: bool,
    /// The session for which it leases messages.
    pub leases_for: Option<SessionId>,
}

#[derive(Clone, Debug)]
enum Arg {
    Text(Vec<u8>),
    Number(u64),
    Session(SessionId),
    /// The places of sessions (4 bytes each) and other bytes.
    Packed(Vec<SessionId>, Vec<u8>),
}

impl Operation {
    /// An operation that stores nothing new.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            args: Vec::new(),
            bytes: 0,
            accepts: false,
            reads_inboxes: true,
            records_events: false,
            leases_for: None,
        }
    }

    /// An operation that stores something new.
    pub const fn accepting(name: &'static str) -> Self {
        let mut operation = Self::new(name);
        operation.accepts = true;
        operation
    }

    /// Adds a text.
    pub fn text(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.push_text(text.into());
        self
    }

    /// Adds the JSON of a record.
    pub fn json(self, record: &impl Serialize) -> Self {
        self.text(to_json(record))
    }

    /// Adds a number.
    pub fn number(mut self, number: u64) -> Self {
        self.args.push(Arg::Number(number));
        self
    }

    /// A bound. Functions count in floating point, up to 2^53.
    pub fn bound(self, number: usize) -> Self {
        self.number((number as u64).min(1 << 53))
    }

    /// Adds 1 or 0.
    pub fn flag(self, flag: bool) -> Self {
        self.number(flag.into())
    }

    /// The time by the clock of this process, in milliseconds: people are shown it.
    pub fn time(self, now: Now) -> Self {
        self.number(now.unix_ms)
    }

    /// Adds milliseconds.
    pub fn duration(self, duration: std::time::Duration) -> Self {
        self.number(millis(duration).min(1 << 53))
    }

    /// Adds a session of the project.
    pub fn session(mut self, session: SessionId) -> Self {
        self.args.push(Arg::Session(session));
        self
    }

    /// A session and bytes about it, as one argument: a server spends more on an argument than on its bytes.
    pub fn session_with(mut self, session: SessionId, rest: Vec<u8>) -> Self {
        self.bytes += rest.len();
        self.args.push(Arg::Packed(vec![session], rest));
        self
    }

    /// Several sessions as one argument.
    pub fn sessions(mut self, sessions: &[SessionId]) -> Self {
        self.bytes += 40 * sessions.len();
        self.args.push(Arg::Packed(sessions.to_vec(), Vec::new()));
        self
    }

    /// The id of a session that may be unknown: as text.
    pub fn session_text(self, session: SessionId) -> Self {
        self.text(session.to_string())
    }

    /// Adds the id of a message, as bytes.
    pub fn message(self, message: MessageId) -> Self {
        self.text(message.as_uuid().as_bytes().as_slice())
    }

    /// Adds the id of a question, as bytes.
    pub fn question(self, question: QuestionId) -> Self {
        self.text(question.as_uuid().as_bytes().as_slice())
    }

    /// Ids as one argument.
    pub fn messages(self, messages: &[MessageId]) -> Self {
        self.text(pack_ids(messages))
    }

    /// Adds the id of a replica, as bytes.
    pub fn replica(self, replica: ReplicaId) -> Self {
        self.text(replica.as_uuid().as_bytes().as_slice())
    }

    /// The arguments of another operation, which the function carries out by itself.
    pub fn followed_by(mut self, other: Self) -> Self {
        self.bytes += other.bytes;
        self.args.extend(other.args);
        self
    }

    /// Notes that gathered acknowledgements need not precede it.
    pub const fn without_reading_inboxes(mut self) -> Self {
        self.reads_inboxes = false;
        self
    }

    /// Notes that the function records what it does.
    pub const fn recording_events(mut self) -> Self {
        self.records_events = true;
        self
    }

    /// Notes that it leases messages for a session: they are returned when no answer comes.
    pub const fn leasing_for(mut self, session: SessionId) -> Self {
        self.leases_for = Some(session);
        self
    }

    /// The sessions that it names, in their order and as often.
    pub fn named_sessions(&self) -> impl Iterator<Item = SessionId> {
        self.args.iter().flat_map(Arg::sessions).copied()
    }

    fn push_text(&mut self, text: Vec<u8>) {
        self.bytes += text.len();
        self.args.push(Arg::Text(text));
    }

    /// About the bytes of the request.
    pub const fn request_bytes(&self) -> usize {
        self.bytes + 16 * self.args.len() + 32
    }

    /// About the bytes of the request and the reply: how much work it is.
    pub const fn weight(&self) -> usize {
        let answered = if self.leases_for.is_some() {
            LEASE_REPLY_BYTES
        } else {
            0
        };
        self.request_bytes() + answered
    }
}

/// Ids one after the other.
pub(super) fn pack_ids(messages: &[MessageId]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(16 * messages.len());
    for message in messages {
        packed.extend(message.as_uuid().as_bytes());
    }
    packed
}

impl Arg {
    const fn sessions(&self) -> &[SessionId] {
        match self {
            Self::Session(session) => std::slice::from_ref(session),
            Self::Packed(sessions, _) => sessions.as_slice(),
            Self::Text(_) | Self::Number(_) => &[],
        }
    }
}

/// The JSON of a record.
pub(super) fn to_json(record: &impl Serialize) -> Vec<u8> {
    // Writing plain records to memory cannot fail.
    serde_json::to_vec(record).unwrap_or_default()
}

/// Writes what follows the preamble of a call: the ids of the sessions, then the operations.
pub(super) fn write_operations<'a>(operations: impl Iterator<Item = &'a Operation> + Clone, command: &mut Cmd) {
    let mut places = HashMap::new();
    let mut sessions = Vec::new();
    let args = operations.clone().flat_map(|operation| &operation.args);
    for arg in args {
        for session in arg.sessions() {
            places.entry(*session).or_insert_with(|| {
                sessions.push(*session);
                // A batch names far fewer than 2^32.
                sessions.len() as u32
            });
        }
    }
    command.arg(sessions.len());
    let mut text = [0; 36];
    for session in &sessions {
        let text: &str = session.as_uuid().as_hyphenated().encode_lower(&mut text);
        command.arg(text);
    }
    let mut packed = Vec::new();
    for operation in operations {
        command.arg(operation.name).arg(operation.args.len());
        for arg in &operation.args {
            match arg {
                Arg::Text(text) => command.arg(text.as_slice()),
                Arg::Number(number) => command.arg(*number),
                Arg::Session(session) => command.arg(places.get(session)),
                Arg::Packed(sessions, rest) => {
                    packed.clear();
                    for session in sessions {
                        let place = places.get(session).copied().unwrap_or_default();
                        packed.extend(place.to_be_bytes());
                    }
                    packed.extend(rest);
                    command.arg(packed.as_slice())
                }
            };
        }
    }
}

/// Commands that are sent together.
pub(super) fn pipeline_of<const N: usize>(commands: [Option<Cmd>; N]) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(N);
    for command in commands.into_iter().flatten() {
        pipeline.add_command(command);
    }
    pipeline
}
