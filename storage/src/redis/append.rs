//! The operation `append`: messages as its arguments, and its replies as answers (`scripts/append.lua`).

use std::collections::HashMap;

use actors::{
    clock::{Now, millis},
    model::{Budget, BudgetFull, Message, SessionId},
    storage::{Append, Appended, Audience, RecipientRefusal, Retention, StoreError},
};
use deadpool_redis::redis::Value;

use super::{
    operation::Operation,
    reply::{Reply, unreadable},
    segment, send_result,
};

/// Flags of an entry of an inbox; see `scripts/library.lua`.
const MULTI_RECIPIENT: u8 = 1;
const TRACKED: u8 = 2;
const HAS_DEADLINE: u8 = 4;

/// The field of an idempotency key in the hash `idempotency`.
pub(super) fn idempotency_field(sender: SessionId, key: &str) -> String {
    format!("{sender}:{key}")
}

/// One item of the operation. Numbers are positions in the batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AppendItem {
    /// Plain messages for one recipient, stored as one segment: most of what they cost is what each would cost.
    Plain(Vec<usize>),
    /// Any other message: a broadcast, a tracked one, one with a time to live or an idempotency key.
    General(usize),
}

/// Groups plain messages for one recipient into segments. The messages for each recipient keep their order, and none is
/// moved before a broadcast that may be refused together with everything after it.
pub(super) fn group_into_items(batch: &[Append]) -> Vec<AppendItem> {
    let mut items = Vec::with_capacity(batch.len());
    // By recipient: the item that may still grow, and its bytes.
    let mut open: HashMap<SessionId, (usize, usize)> = HashMap::new();
    for (at, append) in batch.iter().enumerate() {
        let Some(recipient) = plain_recipient(append) else {
            if append.roster_version.is_some() {
                open.clear();
            } else if !open.is_empty() {
                for recipient in append.audience.ids() {
                    open.remove(recipient);
                }
            }
            items.push(AppendItem::General(at));
            continue;
        };
        let bytes = append.message.body().len();
        if let Some((item, item_bytes)) = open.get_mut(&recipient)
            && let Some(AppendItem::Plain(positions)) = items.get_mut(*item)
            && positions.len() < segment::LEN_MAX
            && *item_bytes + bytes <= segment::BYTES_MAX
            && fit_one_segment(&batch[positions[0]], append)
        {
            positions.push(at);
            *item_bytes += bytes;
        } else {
            open.insert(recipient, (items.len(), bytes));
            items.push(AppendItem::Plain(vec![at]));
        }
    }
    items
}

/// The recipient of a plain message: one recipient, no time to live, no idempotency key, not tracked.
fn plain_recipient(append: &Append) -> Option<SessionId> {
    let message = &append.message;
    let is_plain = message.ttl.is_none()
        && !message.is_tracked()
        && append.idempotency_key.is_none()
        && append.roster_version.is_none();
    match append.audience {
        Audience::One(recipient) if is_plain && message.recipient == Some(recipient) => Some(recipient),
        _ => None,
    }
}

/// The messages of a segment were accepted in the same millisecond: it is found by that (`segments.with_message`).
fn fit_one_segment(first: &Append, other: &Append) -> bool {
    let millisecond = |append: &Append| append.message.id.as_uuid().as_bytes()[..6].to_owned();
    first.message.priority == other.message.priority
        && first.queue_capacity == other.queue_capacity
        && millisecond(first) == millisecond(other)
}

/// The operation that appends these items of the batch.
pub(super) fn operation(batch: &[Append], items: &[AppendItem], now: Now) -> Operation {
    let key = |append: &Append| {
        Some(idempotency_field(
            append.message.sender,
            append.idempotency_key.as_ref()?,
        ))
    };
    let keys: Vec<_> = batch.iter().filter_map(key).collect();
    let mut operation = Operation::accepting("append")
        .without_reading_inboxes()
        .time(now)
        .bound(keys.len());
    for key in keys {
        operation = operation.text(key);
    }
    operation = operation.bound(items.len());
    let mut keys_before = 0;
    for item in items {
        operation = match item {
            AppendItem::Plain(positions) => push_plain(operation, batch, positions),
            AppendItem::General(at) => push_general(operation, &batch[*at], &mut keys_before),
        };
    }
    operation
}

fn push_plain(operation: Operation, batch: &[Append], positions: &[usize]) -> Operation {
    let first = &batch[positions[0]];
    let capacity = positions
        .iter()
        .map(|at| segment::capacity_for(&batch[*at].message))
        .sum();
    let (mut stored, mut ids, mut bytes) = (Vec::with_capacity(capacity), Vec::new(), 0);
    for at in positions {
        let message = &batch[*at].message;
        segment::push(&mut stored, message);
        ids.extend(message.id.as_uuid().as_bytes());
        bytes += segment::envelope_len(message);
    }
    let mut head = inbox_entry(&first.message, segment::flags_of_len(positions.len()), bytes);
    head.push(first.message.priority as u8);
    let capacity = u32::try_from(first.queue_capacity).unwrap_or(u32::MAX);
    head.extend(capacity.to_be_bytes());
    let operation = operation.session_with(first.audience.ids()[0], head).text(stored);
    if positions.len() > 1 {
        operation.text(ids)
    } else {
        operation
    }
}

/// `keys_before` counts the idempotency keys of the items before this one, and then its own.
fn push_general(operation: Operation, append: &Append, keys_before: &mut u64) -> Operation {
    let message = &*append.message;
    let flag = |flag, is_set| if is_set { flag } else { 0 };
    let flags = flag(MULTI_RECIPIENT, message.recipient.is_none())
        | flag(TRACKED, message.is_tracked())
        | flag(HAS_DEADLINE, message.ttl.is_some());
    let roster = append.roster_version;
    let mut stored = Vec::with_capacity(segment::capacity_for(message));
    segment::push(&mut stored, message);
    let has_key = append.idempotency_key.is_some();
    *keys_before += u64::from(has_key);
    operation
        .text("")
        .text(inbox_entry(message, flags, segment::envelope_len(message)))
        .text(stored)
        .number(message.priority as u64)
        .number(message.ttl.map_or(0, |ttl| millis(ttl).clamp(1, 1 << 52)))
        .bound(append.queue_capacity)
        .text(roster.map_or_else(String::new, |version| version.to_string()))
        .number(if has_key { *keys_before } else { 0 })
        .sessions(append.audience.ids())
}

/// What an inbox holds of a message or segment.
fn inbox_entry(message: &Message, flags: u8, bytes: u32) -> Vec<u8> {
    [&message.id.as_uuid().as_bytes()[..], &[flags], &bytes.to_be_bytes()].concat()
}

/// Reads one answer for each message of the batch.
///
/// # Errors
/// The error of the operation, and `Unreachable` when the reply is not one of `append`.
pub(super) fn read_answers(
    batch: &[Append],
    items: &[AppendItem],
    bounds: &Retention,
    reply: &mut Reply,
) -> Result<Vec<Appended>, StoreError> {
    let mut answers = vec![Appended::RosterOutdated; batch.len()];
    for item in items {
        match item {
            AppendItem::Plain(positions) => read_plain(batch, positions, bounds, reply, &mut answers)?,
            AppendItem::General(at) => answers[*at] = read_general(&batch[*at], bounds, reply)?,
        }
    }
    Ok(answers)
}

fn read_plain(
    batch: &[Append],
    positions: &[usize],
    bounds: &Retention,
    reply: &mut Reply,
    answers: &mut [Appended],
) -> Result<(), StoreError> {
    match reply.next() {
        Some(Value::Nil) => {}
        Some(Value::Int(code)) => match usize::try_from(code) {
            // The length of the queue after the last of them.
            Ok(queue_len) => {
                for (place, at) in positions.iter().enumerate() {
                    answers[*at] = Appended::accepted_by_all((queue_len + place + 1).saturating_sub(positions.len()));
                }
            }
            Err(_) => {
                for at in positions {
                    answers[*at] = plain_answer(&batch[*at], bounds, code)?;
                }
            }
        },
        Some(parts @ Value::Array(_)) => {
            let mut parts = Reply::new(parts)?;
            for at in positions {
                answers[*at] = plain_answer(&batch[*at], bounds, parts.int()?)?;
            }
        }
        _ => return Err(unreadable("the reply to plain messages")),
    }
    Ok(())
}

fn read_general(append: &Append, bounds: &Retention, reply: &mut Reply) -> Result<Appended, StoreError> {
    match reply.next() {
        Some(Value::Nil) => Ok(Appended::RosterOutdated),
        Some(Value::BulkString(result)) => send_result::parse_repeated(&result),
        Some(accepted @ Value::Array(_)) => {
            let mut accepted = Reply::new(accepted)?;
            let queue_len = accepted.len()?;
            let code = accepted.int()?;
            let refusal = (code != 0).then(|| refusal(append, bounds, code)).transpose()?;
            let mut refused = Vec::new();
            while !accepted.is_empty() {
                // Positions are counted from 1.
                let at = accepted.len()?.wrapping_sub(1);
                let session = append.audience.ids().get(at);
                refused.push(*session.ok_or_else(|| unreadable("the recipients that refused a message"))?);
            }
            Ok(Appended::Accepted {
                queue_len,
                refused,
                refusal,
            })
        }
        _ => Err(unreadable("the reply to a message")),
    }
}

/// The answer to a message for one recipient. `code` is the length of its queue, or a refusal.
fn plain_answer(append: &Append, bounds: &Retention, code: i64) -> Result<Appended, StoreError> {
    match usize::try_from(code) {
        Ok(queue_len) => Ok(Appended::accepted_by_all(queue_len)),
        Err(_) => refusal(append, bounds, code).map(|refusal| Appended::refused_by_all(append.audience.ids(), refusal)),
    }
}

/// The refusals of `scripts/inboxes.lua` and `scripts/append.lua`.
fn refusal(append: &Append, bounds: &Retention, code: i64) -> Result<RecipientRefusal, StoreError> {
    let full = |budget, limit| Ok(RecipientRefusal::Full(BudgetFull { budget, limit }));
    match code {
        -1 => Ok(RecipientRefusal::Gone),
        -2 => full(Budget::QueueMessages, append.queue_capacity),
        -3 => full(Budget::QueueBytes, bounds.queue_bytes_max),
        -4 => full(Budget::ProjectBytes, bounds.waiting_bytes_max),
        _ => Err(unreadable("the refusal of a message")),
    }
}
