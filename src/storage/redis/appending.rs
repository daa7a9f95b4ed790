//! Messages on their way into the script, and what it says to each.

use actors::{
    clock::{Now, millis},
    model::{Message, SessionId},
    storage::{Append, Appended, StoreError},
};
use deadpool_redis::redis::Value;

use super::{
    operation::Operation,
    outcome,
    reply::{Reply, unreadable},
};

/// Flags of a message in an inbox; see `scripts/prelude.lua`.
const SHARED: u8 = 1;
const WATCHED: u8 = 2;
const TIMED: u8 = 4;

/// Under what a first result is kept.
pub(super) fn outcome_key(sender: SessionId, key: &str) -> String {
    format!("{sender}:{key}")
}

pub(super) fn operation(batch: &[Append], now: Now) -> Operation {
    let keys: Vec<_> = batch
        .iter()
        .filter_map(|append| Some(outcome_key(append.message.sender, append.idempotency_key.as_ref()?)))
        .collect();
    let mut operation = Operation::accepting("append").time(now).most(keys.len());
    for key in keys {
        operation = operation.text(key);
    }
    operation = operation.most(batch.len());
    let mut keyed = 0;
    for append in batch {
        keyed += u64::from(append.idempotency_key.is_some());
        let message = &*append.message;
        let recipients = append.audience.ids();
        operation = operation
            .text(member(message))
            .text(message.to_stored())
            .number(message.priority as u64)
            .number(message.ttl.map_or(0, |ttl| millis(ttl).clamp(1, 1 << 52)))
            .most(append.queue_capacity)
            .text(append.roster.map_or_else(String::new, |roster| roster.to_string()))
            .number(if append.idempotency_key.is_some() { keyed } else { 0 })
            .most(recipients.len());
        for recipient in recipients {
            operation = operation.session(*recipient);
        }
    }
    operation
}

fn member(message: &Message) -> Vec<u8> {
    let flag = |flag, is_set| if is_set { flag } else { 0 };
    let flags = flag(SHARED, message.recipient.is_none())
        | flag(WATCHED, message.is_watched())
        | flag(TIMED, message.ttl.is_some());
    let len = u32::try_from(message.encoded_len(1)).unwrap_or(u32::MAX);
    [&message.id.as_uuid().as_bytes()[..], &[flags], &len.to_be_bytes()].concat()
}

pub(super) fn answers(batch: &[Append], reply: &mut Reply) -> Result<Vec<Appended>, StoreError> {
    batch.iter().map(|append| answer(append, reply)).collect()
}

fn answer(append: &Append, reply: &mut Reply) -> Result<Appended, StoreError> {
    match reply.next() {
        Some(Value::Nil) => Ok(Appended::RosterOutdated),
        Some(Value::BulkString(first)) => outcome::from_stored(&first).map(Appended::Repeated),
        Some(accepted @ Value::Array(_)) => {
            let mut accepted = Reply::new(accepted)?;
            let queue_len = accepted.len()?;
            let mut refused = Vec::new();
            while !accepted.is_done() {
                // Counted from 1.
                let place = accepted.len()?.wrapping_sub(1);
                let session = append.audience.ids().get(place);
                refused.push(*session.ok_or_else(|| unreadable("who refused"))?);
            }
            Ok(Appended::Accepted { queue_len, refused })
        }
        _ => Err(unreadable("what became of a message")),
    }
}
