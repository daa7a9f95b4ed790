//! The function library (`scripts/*.lua`), and the arguments that precede the operations in each call.

use actors::{
    bridge::{DeliveryBatch, Frame, StoreEvent},
    clock::millis,
    faults,
    model::{MessageId, ProjectId, ReplicaId, SessionId},
    storage::{
        COPY_BYTES, DRAFTS_MAX, ENDED_AT_ONCE_MAX, HELD_YAPS_BYTES_MAX, HELD_YAPS_MAX, OPEN_BYTES_DIVISOR, OPEN_MAX,
        OPEN_OF_SESSION_MAX, QUESTION_BYTES, REPORT_BYTES_MAX, REPORT_LEN_MAX, Retention, SESSION_BYTES_DIVISOR,
        YAP_BACKDATE_MAX, YAPS_BYTES_MAX, YAPS_MAX, YAPS_RETENTION,
    },
};
use deadpool_redis::redis::{Cmd, Script, cmd};
use uuid::Uuid;

use super::timeline::Witness;

/// The common scope of all files.
const COMMON: &str = include_str!("scripts/library.lua");

/// The other files, by name. Each is a block of its own and comes after those that it imports from.
const FILES: [(&str, &str); 30] = [
    ("frames", include_str!("scripts/frames.lua")),
    ("usage", include_str!("scripts/usage.lua")),
    ("events", include_str!("scripts/events.lua")),
    ("messages", include_str!("scripts/messages.lua")),
    ("receipts", include_str!("scripts/receipts.lua")),
    ("dead_letters", include_str!("scripts/dead_letters.lua")),
    ("inboxes", include_str!("scripts/inboxes.lua")),
    ("queues", include_str!("scripts/queues.lua")),
    ("leases", include_str!("scripts/leases.lua")),
    ("segments", include_str!("scripts/segments.lua")),
    ("expiry", include_str!("scripts/expiry.lua")),
    ("pushes", include_str!("scripts/pushes.lua")),
    ("group_leases", include_str!("scripts/group_leases.lua")),
    ("idempotency", include_str!("scripts/idempotency.lua")),
    ("append", include_str!("scripts/append.lua")),
    ("lease", include_str!("scripts/lease.lua")),
    ("acknowledge", include_str!("scripts/acknowledge.lua")),
    ("release", include_str!("scripts/release.lua")),
    ("call_receipts", include_str!("scripts/call_receipts.lua")),
    ("status", include_str!("scripts/status.lua")),
    ("redrive", include_str!("scripts/redrive.lua")),
    ("questions", include_str!("scripts/questions.lua")),
    ("yaps", include_str!("scripts/yaps.lua")),
    ("records", include_str!("scripts/records.lua")),
    ("claims", include_str!("scripts/claims.lua")),
    ("presence", include_str!("scripts/presence.lua")),
    ("sessions", include_str!("scripts/sessions.lua")),
    ("project", include_str!("scripts/project.lua")),
    ("timeline", include_str!("scripts/timeline.lua")),
    ("run", include_str!("scripts/run.lua")),
];

/// The function library. Its name contains the hash of its code: replicas of different versions use different libraries
/// on one server.
#[derive(Debug)]
pub(super) struct Library {
    code: String,
    name: String,
}

impl Library {
    /// The library of this build. A test has it be that of another one (`FAULT_LIBRARY_VERSION`).
    pub fn operations() -> Self {
        let blocks = FILES.map(|(file, block)| format!("do -- {file}.lua\n{block}end\n"));
        let version = faults::text("FAULT_LIBRARY_VERSION").map(|version| format!("-- {version}\n"));
        let code = contract() + COMMON + &blocks.concat() + &version.unwrap_or_default();
        let hash = Script::new(&code).get_hash().to_owned();
        let name = format!("mcp_broker_{hash}");
        Self {
            code: format!("#!lua name={name}\n{}", code.replace("LIBRARY", &name)),
            name,
        }
    }

    /// The call, without arguments. With `accepts`, a server without memory refuses it as a whole; without, the
    /// function refuses the operations that need memory. `key` is the only declared key: any key of the project.
    pub fn call(&self, key: &str, accepts: bool) -> Cmd {
        let mut command = cmd("FCALL");
        let suffix = if accepts { "" } else { "_full" };
        command.arg(format!("{}{suffix}", self.name)).arg(1).arg(key);
        command
    }

    /// Loads the library. A second load, by another replica at the same time, drops what the functions remember: it
    /// costs a timeline.
    pub fn load(&self) -> Cmd {
        let mut command = cmd("FUNCTION");
        command.arg("LOAD").arg("REPLACE").arg(&self.code);
        command
    }

    /// Asks for the library: the answer is empty where the server does not know it.
    pub fn list(&self) -> Cmd {
        let mut command = cmd("FUNCTION");
        command.arg("LIST").arg("LIBRARYNAME").arg(&self.name);
        command
    }
}

/// The bounds of the contract, which hold in all storages, as a table of the library.
fn contract() -> String {
    macro_rules! named {
        ($($bound:ident),*) => { [$((stringify!($bound), $bound as u64)),*] };
    }
    let bounds = named!(
        COPY_BYTES,
        ENDED_AT_ONCE_MAX,
        QUESTION_BYTES,
        OPEN_OF_SESSION_MAX,
        OPEN_MAX,
        OPEN_BYTES_DIVISOR,
        SESSION_BYTES_DIVISOR,
        DRAFTS_MAX,
        HELD_YAPS_MAX,
        HELD_YAPS_BYTES_MAX,
        YAPS_MAX,
        YAPS_BYTES_MAX,
        REPORT_LEN_MAX,
        REPORT_BYTES_MAX
    );
    let times = [
        ("YAPS_RETENTION_MS", millis(YAPS_RETENTION)),
        ("YAP_BACKDATE_MS", millis(YAP_BACKDATE_MAX)),
    ];
    let members = bounds.iter().chain(&times);
    let members: Vec<_> = members.map(|(name, bound)| format!("{name} = {bound}")).collect();
    format!("local contract = {{ {} }}\n", members.join(", "))
}

/// The arguments that are the same in each call for a project.
#[derive(Debug)]
pub(super) struct Preamble {
    prefix: String,
    /// A key in the slot of the project.
    pub key: String,
    /// The key of its messages.
    pub messages: String,
    /// The data set in which the project is: `DATA_SET` in `scripts/library.lua`.
    data_set: String,
    /// The texts of a wake-up frame and of a progress frame, before and after what they are about.
    wakeup: (String, String),
    progress: (String, String),
    /// How the last part of a delivery batch begins.
    delivery_head: Vec<u8>,
}

impl Preamble {
    /// The preamble of a replica for a project.
    pub fn new(replica: ReplicaId, data_set: &str, project: &ProjectId) -> Self {
        let (session, message) = (SessionId::from_uuid(Uuid::nil()), MessageId::from_uuid(Uuid::nil()));
        let wakeup = Frame::head(replica, project, &StoreEvent::Waiting(vec![session]));
        let progress = Frame::head(replica, project, &StoreEvent::Progress(message));
        Self {
            prefix: format!("{{{project}}}:"),
            key: format!("{{{project}}}:inboxes"),
            messages: format!("{{{project}}}:messages"),
            data_set: data_set.to_owned(),
            wakeup: around(&wakeup, &format!("\"{session}\"")),
            progress: around(&progress, &message.to_string()),
            delivery_head: DeliveryBatch::trailer_head(project),
        }
    }

    /// Writes the preamble. `seen` is what this replica has seen of the data set. See `scripts/library.lua`.
    pub fn write(
        &self,
        command: &mut Cmd,
        channel: &str,
        replica: ReplicaId,
        batch: u64,
        retention: &Retention,
        seen: &Witness,
    ) {
        command
            .arg(&self.prefix)
            .arg(channel)
            .arg(&self.wakeup.0)
            .arg(&self.wakeup.1)
            .arg(&self.progress.0)
            .arg(&self.progress.1)
            .arg(&self.delivery_head)
            .arg(replica.as_uuid().as_bytes().as_slice())
            .arg(batch)
            .arg(bounds(retention).as_slice())
            .arg(&self.data_set);
        seen.write(command);
    }
}

/// The bounds as one argument: see `BOUNDS` in `scripts/library.lua`.
fn bounds(retention: &Retention) -> Vec<u8> {
    let bounds = [
        retention.receipts_len_max,
        retention.dead_letters_len_max,
        retention.idempotency_keys_len_max,
        retention.cross_project_targets_len_max,
        millis(retention.idempotency_window) as usize,
        retention.queue_bytes_max,
        retention.waiting_bytes_max,
        retention.dead_letters_bytes_max,
        retention.idempotency_keys_bytes_max,
        retention.sessions_bytes_max,
        usize::from(retention.records_messages()),
        millis(retention.events_window()) as usize,
        retention.history_messages_max,
        retention.events_bytes_max,
        retention.questions_bytes_max,
        retention.closed_questions_len_max,
        millis(retention.questions_retention) as usize,
    ];
    // Bounds beyond 2^53 need not be exact.
    #[allow(clippy::cast_precision_loss)]
    let packed = bounds.iter().flat_map(|bound| (*bound as f64).to_be_bytes());
    packed.collect()
}

/// The text before and after the last `middle`.
pub(super) fn around(text: &str, middle: &str) -> (String, String) {
    let (head, tail) = text.rsplit_once(middle).unwrap_or((text, ""));
    (head.to_owned(), tail.to_owned())
}

/// The sources of all files.
#[cfg(test)]
pub(super) fn sources() -> Vec<&'static str> {
    FILES.iter().map(|(_, source)| *source).chain([COMMON]).collect()
}
