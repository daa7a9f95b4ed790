//! All keys of a project in Redis, with their shapes. A test compares them with the keys that the functions use.
//!
//! Each name is preceded by `{project}:`: all keys of a project are in one hash slot, and one function reaches all of
//! them.
//! Keys that belong to no project begin with `{system}:` (`system.rs`, `replicas.rs`, `schema.rs`).

use super::operation::Operation;

/// What becomes of a key when the project is cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnClear {
    /// It is deleted: it holds content of the project.
    Delete,
    /// It stays: the record of the project, or a number by which replicas notice that they have missed something.
    Keep,
    /// `clear` deletes it for each session, each bucket, or field by field.
    Step,
}

/// A key, or a family of keys: `SESSION` and `BUCKET` are the id of a session and the number of a bucket of
/// receipts.
struct Key {
    name: &'static str,
    /// Type in Redis, and what it holds; `->` is between field and value, `by` before the score.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for readers, and for the test of docs/redis.md")
    )]
    shape: &'static str,
    on_clear: OnClear,
}

const fn key(name: &'static str, shape: &'static str, on_clear: OnClear) -> Key {
    Key { name, shape, on_clear }
}

use OnClear::{Delete, Keep, Step};

const KEYS: &[Key] = &[
    // The project and its sessions.
    key("project:record", "hash: record (JSON), revision", Keep),
    key("protocols", "hash: name and version -> record (JSON)", Delete),
    key("sessions", "hash: session -> record (JSON)", Delete),
    key("sessions:by_name", "hash: name or alias -> session", Delete),
    key("sessions:names", "hash: session -> name", Delete),
    key("sessions:aliases", "hash: session -> aliases, each on a line", Delete),
    key("roster", "counter: version of the set of sessions", Keep),
    key(
        "heartbeats",
        "sorted set: session by time of its last heartbeat",
        Delete,
    ),
    key("leaves", "sorted set: session by time at which it left", Delete),
    key(
        "heartbeats:changed",
        "sorted set: session by poll_seq of its last change",
        Delete,
    ),
    // Waiting messages, and those in flight.
    key(
        "inboxes",
        "hash: session -> inbox record; totals -> bytes that the project keeps",
        Step,
    ),
    key(
        "inbox:SESSION",
        "sorted set: entry by score; when the record is full",
        Step,
    ),
    key(
        "leases:SESSION",
        "hash: message -> lease; when the record is full",
        Step,
    ),
    key(
        "call_receipts:SESSION",
        "hash: receipt of a call -> numbers of its leases",
        Step,
    ),
    key("claim_epoch", "counter: epoch of the last claim of any session", Keep),
    key(
        "abandoned_batches",
        "hash: replica -> number of its last abandoned batch",
        Delete,
    ),
    key(
        "group_leases",
        "hash: replica -> its group leases; message replica -> members; message replica - -> members that left",
        Delete,
    ),
    key("expiries", "sorted set: session entry by deadline", Delete),
    key(
        "expired_in",
        "sorted set: session by poll_seq of its last expiry",
        Delete,
    ),
    // Messages and what became of them.
    key("messages", "hash: message or segment -> stored text", Delete),
    key(
        "copies",
        "hash: message with several recipients -> copies in inboxes and dead letters",
        Delete,
    ),
    key("segments", "hash: segment -> ids of its messages", Delete),
    key("segments:index", "sorted set: segment, by its id", Delete),
    key(
        "segments:settled:BUCKET",
        "sorted set: acknowledged segment, by its id",
        Step,
    ),
    key(
        "receipts",
        "hash: bucket -> receipts in it; len -> their sum; first -> oldest bucket",
        Step,
    ),
    key(
        "receipts:BUCKET",
        "hash: message, or message and recipient -> status and time",
        Step,
    ),
    key("dead_letters", "sorted set: message recipient, by its text", Delete),
    key(
        "dead_letters:by_age",
        "sorted set: message recipient by dead_letters:seq",
        Delete,
    ),
    key(
        "dead_letters:info",
        "hash: message recipient -> flags, bytes, reason, deliveries, time",
        Delete,
    ),
    key(
        "dead_letters:names",
        "hash: message recipient -> name that the recipient had",
        Delete,
    ),
    key("dead_letters:seq", "counter: dead letters so far", Delete),
    key(
        "dead_letters:dropped",
        "counter: dropped for lack of room since the last sweep",
        Delete,
    ),
    key(
        "dead_letters:reports",
        "hash: number in by_age of the last reported one, of the last that is being reported, since when",
        Delete,
    ),
    key(
        "idempotency",
        "hash: sender and key -> end of its time, and a result or a reservation",
        Delete,
    ),
    key(
        "idempotency:until",
        "sorted set: sender and key by end of its time",
        Delete,
    ),
    key(
        "idempotency:dropped",
        "counter: dropped for lack of room since the last sweep",
        Delete,
    ),
    key("cross_project", "hash: message -> project that it went to", Delete),
    key("cross_project:by_age", "list: message, the oldest first", Delete),
    key(
        "cross_project:targets",
        "hash: project -> messages that went to it",
        Delete,
    ),
    // Questions to people, and yaps.
    key("questions", "hash: question -> record (JSON)", Delete),
    key("questions:contents", "hash: question -> content (JSON)", Delete),
    key(
        "questions:info",
        "hash: question -> revision, bytes, bytes of drafts, session, idempotency key",
        Delete,
    ),
    key("questions:index", "sorted set: question, by its id", Delete),
    key("questions:open", "sorted set: open question, by its id", Delete),
    key(
        "questions:closed",
        "sorted set: closed question by time of its end",
        Delete,
    ),
    key(
        "questions:open_of",
        "hash: session -> its open questions; session and :bytes -> bytes of their contents",
        Delete,
    ),
    key(
        "questions:keys",
        "hash: session and idempotency key -> question",
        Delete,
    ),
    key("questions:bytes", "hash: all, open -> bytes of questions", Delete),
    key("drafts", "hash: question and person -> text of the draft", Delete),
    key(
        "drafts:people",
        "hash: question -> people with a draft, each on a line",
        Delete,
    ),
    key(
        "targets",
        "hash: target -> how far events were sent to it (JSON)",
        Delete,
    ),
    key("claims", "hash: thing -> epoch of its claim, holder, note", Delete),
    key(
        "claims:epochs",
        "hash: epoch -> thing; last -> last epoch of the project",
        Delete,
    ),
    key("claims:due", "sorted set: thing by the end of its claim", Delete),
    key(
        "yaps",
        "hash: numbers of the last arrival and of the last shown yap, their times, bytes",
        Delete,
    ),
    key("yaps:held", "hash: place -> held yap (JSON)", Delete),
    key("yaps:order", "sorted set: place of a held yap, in its order", Delete),
    key("yaps:arrivals", "sorted set: place of a held yap by arrival", Delete),
    key("yaps:senders", "sorted set: sender by the time of its last yap", Delete),
    key(
        "yaps:shown",
        "list: time, late or not, yap (JSON); the oldest first",
        Delete,
    ),
    // The event log.
    key("events", "stream: field b -> block of events", Delete),
    key(
        "events:blocks",
        "list: id, lengths and bytes of each noted block",
        Delete,
    ),
    key(
        "events:log",
        "hash: incarnation and its epoch; totals; ids of the last noted and of the last deleted block",
        Delete,
    ),
    // The gateway.
    key("lenses", "hash: name and both versions -> record (JSON)", Delete),
    key("added_backends", "hash: backend -> its table (JSON)", Delete),
    key("backend_lists", "hash: backend -> what it is and offers (JSON)", Delete),
    // Replication.
    key("frame_seq", "counter: sequence number of the last frame", Keep),
    key(
        "poll_seq",
        "counter: last number of heartbeats:changed and expired_in",
        Keep,
    ),
    key(
        "write_seq",
        "counter: calls that changed something and moved neither of the two",
        Keep,
    ),
    key("epoch", "string: token of the epoch, token of the timeline", Keep),
    key("forks", "list: token and last position of earlier timelines", Keep),
];

/// Keys that earlier versions write and this one does not read.
const EARLIER_KEYS: [&str; 2] = ["consoles", "targets:claims"];

/// The operation that deletes what a project holds, a step at a time.
pub(super) fn clear() -> Operation {
    let deleted = KEYS.iter().filter(|key| key.on_clear == Delete);
    let deleted = deleted.map(|key| key.name).chain(EARLIER_KEYS);
    deleted.fold(Operation::new("clear"), Operation::text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use actors::storage::Table;

    use super::*;
    use crate::redis::library;

    /// The names that are given to `key` in the functions; of a family without the part that varies.
    fn used() -> BTreeSet<String> {
        let code = library::sources().concat();
        let calls = code.split("key('").skip(1);
        let tables = Table::ALL.map(|table| table.name().to_owned());
        calls
            .filter_map(|rest| Some(rest.split_once('\'')?.0.to_owned()))
            .chain(tables)
            .collect()
    }

    fn listed() -> BTreeSet<String> {
        let name = |key: &Key| key.name.replace("SESSION", "").replace("BUCKET", "");
        KEYS.iter().map(name).collect()
    }

    #[test]
    fn the_table_lists_the_keys_that_the_functions_use() {
        assert_eq!(used(), listed());
    }

    #[test]
    fn the_page_on_redis_shows_every_key_with_its_shape() {
        let page = include_str!("../../../docs/redis.md");
        for key in KEYS {
            let row = format!("| `{}` | {} |", key.name, key.shape.replace('|', "\\|"));
            assert!(page.contains(&row), "docs/redis.md lacks {row}");
        }
    }
}
