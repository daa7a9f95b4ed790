//! Messages on their way into the script, and what it says to each.

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
    send_result,
};

/// Flags of a message in an inbox; see `scripts/prelude.lua`.
const MULTI_RECIPIENT: u8 = 1;
const TRACKED: u8 = 2;
const HAS_DEADLINE: u8 = 4;
const COUNT_SHIFT: u8 = 4;

/// Most messages of a bundle: their number has four bits.
const SEGMENT_LEN_MAX: usize = 16;
/// Most bytes of a bundle.
const SEGMENT_BYTES_MAX: usize = 128 * 1024;

/// Under what a first result is kept.
pub(super) fn idempotency_field(sender: SessionId, key: &str) -> String {
    format!("{sender}:{key}")
}

/// Whether these are the flags of a bundle.
pub(super) const fn is_segment(flags: u8) -> bool {
    flags >> COUNT_SHIFT > 0
}

/// What goes into the script of a batch, by places in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AppendItem {
    Single(usize),
    /// Plain messages for one recipient, which are kept as one: most of what they cost is what each would cost.
    Segment(Vec<usize>),
}

/// Bundles what may be bundled. The messages for each recipient stay in their order, and none comes before a broadcast
/// that may have to be sent anew with all that follows it.
pub(super) fn group_into_items(batch: &[Append]) -> Vec<AppendItem> {
    let mut items = Vec::with_capacity(batch.len());
    // The last item for each recipient, if it may grow, with its bytes.
    let mut open: HashMap<SessionId, (usize, usize)> = HashMap::new();
    for (at, append) in batch.iter().enumerate() {
        let bytes = append.message.body().len();
        let Some(recipient) = plain_recipient(append) else {
            if append.roster_version.is_some() {
                open.clear();
            } else if !open.is_empty() {
                for recipient in append.audience.ids() {
                    open.remove(recipient);
                }
            }
            items.push(AppendItem::Single(at));
            continue;
        };
        if let Some((item, bundled)) = open.get_mut(&recipient)
            && let Some(AppendItem::Segment(members)) = items.get_mut(*item)
            && members.len() < SEGMENT_LEN_MAX
            && *bundled + bytes <= SEGMENT_BYTES_MAX
            && fit_one_segment(&batch[members[0]], append)
        {
            members.push(at);
            *bundled += bytes;
        } else {
            open.insert(recipient, (items.len(), bytes));
            items.push(AppendItem::Segment(vec![at]));
        }
    }
    for item in &mut items {
        if let AppendItem::Segment(members) = item
            && let [only] = members[..]
        {
            *item = AppendItem::Single(only);
        }
    }
    items
}

/// The recipient of a message about which nothing is special.
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

/// Messages of one moment are found by it: see `bundle_with` in `scripts/bundles.lua`.
fn fit_one_segment(first: &Append, other: &Append) -> bool {
    let moment = |append: &Append| append.message.id.as_uuid().as_bytes()[..6].to_owned();
    first.message.priority == other.message.priority
        && first.queue_capacity == other.queue_capacity
        && moment(first) == moment(other)
}

pub(super) fn operation(batch: &[Append], items: &[AppendItem], now: Now) -> Operation {
    let keys: Vec<_> = batch
        .iter()
        .filter_map(|append| {
            Some(idempotency_field(
                append.message.sender,
                append.idempotency_key.as_ref()?,
            ))
        })
        .collect();
    let mut operation = Operation::accepting("append")
        .without_reading_inboxes()
        .time(now)
        .bound(keys.len());
    for key in keys {
        operation = operation.text(key);
    }
    operation = operation.bound(items.len());
    let mut keyed = 0;
    for item in items {
        let append = match item {
            AppendItem::Single(at) => &batch[*at],
            AppendItem::Segment(members) => {
                operation = push_segment(operation, batch, members);
                continue;
            }
        };
        if let Some(recipient) = plain_recipient(append) {
            operation = operation
                .session_with(recipient, plain_head(append, inbox_member(&append.message)))
                .text(append.message.to_stored());
            continue;
        }
        keyed += u64::from(append.idempotency_key.is_some());
        let message = &*append.message;
        let recipients = append.audience.ids();
        operation = operation
            .text("")
            .text(inbox_member(message))
            .text(message.to_stored())
            .number(message.priority as u64)
            .number(message.ttl.map_or(0, |ttl| millis(ttl).clamp(1, 1 << 52)))
            .bound(append.queue_capacity)
            .text(
                append
                    .roster_version
                    .map_or_else(String::new, |roster| roster.to_string()),
            )
            .number(if append.idempotency_key.is_some() { keyed } else { 0 })
            .sessions(recipients);
    }
    operation
}

fn push_segment(operation: Operation, batch: &[Append], members: &[usize]) -> Operation {
    let (mut stored, mut ids, mut bytes) = (Vec::new(), Vec::new(), 0);
    for at in members {
        let message = &batch[*at].message;
        let (len_at, len) = (stored.len(), encoded_len(message));
        stored.extend([0; 4]);
        stored.extend(len.to_be_bytes());
        message.write_stored(&mut stored);
        // What is stored of a message is no longer than what may be sent.
        let stored_len = (stored.len() - len_at - 8) as u32;
        stored[len_at..len_at + 4].copy_from_slice(&stored_len.to_be_bytes());
        ids.extend(message.id.as_uuid().as_bytes());
        bytes += len;
    }
    let first = &batch[members[0]];
    let flags = ((members.len() - 1) as u8) << COUNT_SHIFT;
    operation
        .session_with(
            first.audience.ids()[0],
            plain_head(first, inbox_member_with(&first.message, flags, bytes)),
        )
        .text(stored)
        .text(ids)
}

/// Of a plain message or bundle, for one recipient.
fn plain_head(append: &Append, mut member: Vec<u8>) -> Vec<u8> {
    member.push(append.message.priority as u8);
    let capacity = u32::try_from(append.queue_capacity).unwrap_or(u32::MAX);
    member.extend(capacity.to_be_bytes());
    member
}

fn inbox_member(message: &Message) -> Vec<u8> {
    let flag = |flag, is_set| if is_set { flag } else { 0 };
    let flags = flag(MULTI_RECIPIENT, message.recipient.is_none())
        | flag(TRACKED, message.is_tracked())
        | flag(HAS_DEADLINE, message.ttl.is_some());
    inbox_member_with(message, flags, encoded_len(message))
}

fn inbox_member_with(message: &Message, flags: u8, len: u32) -> Vec<u8> {
    [&message.id.as_uuid().as_bytes()[..], &[flags], &len.to_be_bytes()].concat()
}

fn encoded_len(message: &Message) -> u32 {
    u32::try_from(message.encoded_len(1)).unwrap_or(u32::MAX)
}

/// One answer for each message of the batch.
pub(super) fn read_answers(
    batch: &[Append],
    items: &[AppendItem],
    bounds: &Retention,
    reply: &mut Reply,
) -> Result<Vec<Appended>, StoreError> {
    let mut answers = vec![Appended::RosterOutdated; batch.len()];
    for item in items {
        match item {
            AppendItem::Single(at) => answers[*at] = read_answer(&batch[*at], bounds, reply)?,
            AppendItem::Segment(members) => read_segment_answer(batch, members, bounds, reply, &mut answers)?,
        }
    }
    Ok(answers)
}

fn read_segment_answer(
    batch: &[Append],
    members: &[usize],
    bounds: &Retention,
    reply: &mut Reply,
    answers: &mut [Appended],
) -> Result<(), StoreError> {
    match reply.next() {
        Some(Value::Nil) => {}
        Some(Value::Int(queue_len)) => {
            let queue_len = usize::try_from(queue_len).map_err(|_| unreadable("the length of a queue"))?;
            for (place, at) in members.iter().enumerate() {
                answers[*at] = Appended::accepted_by_all((queue_len + place + 1).saturating_sub(members.len()));
            }
        }
        Some(parts @ Value::Array(_)) => {
            let mut parts = Reply::new(parts)?;
            for at in members {
                answers[*at] = plain_answer(&batch[*at], bounds, parts.int()?)?;
            }
        }
        _ => return Err(unreadable("what became of messages")),
    }
    Ok(())
}

fn read_answer(append: &Append, bounds: &Retention, reply: &mut Reply) -> Result<Appended, StoreError> {
    match reply.next() {
        Some(Value::Nil) => Ok(Appended::RosterOutdated),
        Some(Value::Int(what)) => plain_answer(append, bounds, what),
        Some(Value::BulkString(first)) => send_result::parse_repeated(&first),
        Some(accepted @ Value::Array(_)) => {
            let mut accepted = Reply::new(accepted)?;
            let queue_len = accepted.len()?;
            let why = accepted.int()?;
            let refusal = (why != 0).then(|| refusal(append, bounds, why)).transpose()?;
            let mut refused = Vec::new();
            while !accepted.is_empty() {
                // Counted from 1.
                let place = accepted.len()?.wrapping_sub(1);
                let session = append.audience.ids().get(place);
                refused.push(*session.ok_or_else(|| unreadable("who refused"))?);
            }
            Ok(Appended::Accepted {
                queue_len,
                refused,
                refusal,
            })
        }
        _ => Err(unreadable("what became of a message")),
    }
}

/// What became of a message for one recipient: the length of its queue, or why it was refused.
fn plain_answer(append: &Append, bounds: &Retention, what: i64) -> Result<Appended, StoreError> {
    match usize::try_from(what) {
        Ok(queue_len) => Ok(Appended::accepted_by_all(queue_len)),
        Err(_) => refusal(append, bounds, what).map(|refusal| Appended::refused_by_all(append.audience.ids(), refusal)),
    }
}

/// See `refusal_of` in `scripts/delivery.lua`.
fn refusal(append: &Append, bounds: &Retention, code: i64) -> Result<RecipientRefusal, StoreError> {
    let full = |budget, limit| Ok(RecipientRefusal::Full(BudgetFull { budget, limit }));
    match code {
        -1 => Ok(RecipientRefusal::Gone),
        -2 => full(Budget::QueueMessages, append.queue_capacity),
        -3 => full(Budget::QueueBytes, bounds.queue_bytes_max),
        -4 => full(Budget::ProjectBytes, bounds.waiting_bytes_max),
        _ => Err(unreadable("why a message was refused")),
    }
}
