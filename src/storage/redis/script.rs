//! The one script that carries out the operations of a project, and what it is told of this replica.

use actors::{
    bridge::{Frame, News, Parcel},
    model::{MessageId, ProjectId, ReplicaId, SessionId},
    storage::Retention,
};
use deadpool_redis::redis::{Cmd, Script, cmd};
use uuid::Uuid;

/// What most batches do without is defined when it is asked for: to define all of it takes a server longer than to
/// carry out a small batch. And what comes after the prelude is a function of its own: a function that is defined looks for
/// each variable of the function around it among all that others have used, but has those further out at hand.
const PARTS: [&str; 14] = [
    include_str!("scripts/prelude.lua"),
    "return (function()\n",
    include_str!("scripts/letters.lua"),
    include_str!("scripts/inboxes.lua"),
    include_str!("scripts/bundles.lua"),
    include_str!("scripts/delivery.lua"),
    include_str!("scripts/settling.lua"),
    include_str!("scripts/returned.lua"),
    "local function define_more()\n",
    include_str!("scripts/seats.lua"),
    include_str!("scripts/records.lua"),
    "end\n",
    include_str!("scripts/main.lua"),
    "\nend)()\n",
];

/// A script and the name by which servers know it.
#[derive(Debug)]
pub(super) struct Loaded {
    code: String,
    hash: String,
}

impl Loaded {
    pub fn operations() -> Self {
        Self::new(PARTS.concat())
    }

    pub fn new(code: impl Into<String>) -> Self {
        let code = code.into();
        let hash = Script::new(&code).get_hash().to_owned();
        Self { code, hash }
    }

    /// Runs it, without its arguments. This is the only key it is given.
    pub fn run(&self, key: &str) -> Cmd {
        let mut command = cmd("EVALSHA");
        command.arg(&self.hash).arg(1).arg(key);
        command
    }

    /// Makes a server know it.
    pub fn load(&self) -> Cmd {
        let mut command = cmd("SCRIPT");
        command.arg("LOAD").arg(&self.code);
        command
    }
}

/// What a lane tells the script with each batch.
#[derive(Debug)]
pub(super) struct Preamble {
    prefix: String,
    /// A key in the slot of the project.
    pub key: String,
    waiting: (String, String),
    progress: (String, String),
    parcel: Vec<u8>,
}

impl Preamble {
    pub fn new(replica: ReplicaId, project: &ProjectId) -> Self {
        let (session, message) = (SessionId::from_uuid(Uuid::nil()), MessageId::from_uuid(Uuid::nil()));
        let waiting = Frame::head(replica, project, &News::Waiting(vec![session]));
        let progress = Frame::head(replica, project, &News::Progress(message));
        Self {
            prefix: format!("{{{project}}}:"),
            key: format!("{{{project}}}:inboxes"),
            waiting: around(&waiting, &format!("\"{session}\"")),
            progress: around(&progress, &message.to_string()),
            parcel: Parcel::head(project),
        }
    }

    pub fn write(&self, command: &mut Cmd, channel: &str, replica: ReplicaId, batch: u64, retention: &Retention) {
        command
            .arg(&self.prefix)
            .arg(channel)
            .arg(&self.waiting.0)
            .arg(&self.waiting.1)
            .arg(&self.progress.0)
            .arg(&self.progress.1)
            .arg(&self.parcel)
            .arg(replica.as_uuid().as_bytes().as_slice())
            .arg(batch)
            .arg(retention.receipts_len_max)
            .arg(retention.dead_letters_len_max)
            .arg(retention.idempotency_keys_len_max)
            .arg(retention.crossings_len_max)
            .arg(actors::clock::millis(retention.idempotency_window));
    }
}

/// The text before and after its last `middle`.
fn around(text: &str, middle: &str) -> (String, String) {
    let (head, tail) = text.rsplit_once(middle).unwrap_or((text, ""));
    (head.to_owned(), tail.to_owned())
}
