//! Decodes the replies of operations into the answers of the store.

use std::{sync::Arc, time::Duration};

use actors::{
    bridge::DeliveryBatch,
    model::{DeadLetter, Message, MessageId, Outcome, RecipientStatus, SessionId, SessionName, Transformed},
    storage::{
        Acknowledged, BlockedDeadLetter, Claim, DeadLetterPage, Delivery, Heartbeat, Lease, Peeked, PushedDelivery,
        PutOutcome, RedriveRefusal, Redriven, Released, StoreError, Unreported,
    },
};

use deadpool_redis::redis::Value;

use super::{
    pipeline::Pipeline,
    reply::{self, Reply, unreadable},
    segment,
};

/// Decodes a message for a session. A message that this process still holds is returned itself, so that its sender
/// learns of its progress.
fn stored_message(pipeline: &Pipeline, stored: &[u8], session: SessionId) -> Result<Arc<Message>, StoreError> {
    let local = stored
        .get(2..18)
        .and_then(|id| pipeline.local_messages.get(reply::parse_message(id).ok()?));
    let message = match local {
        Some(local) => local,
        None => Arc::new(Message::from_stored(stored).map_err(|error| unreadable(&error.to_string()))?),
    };
    if message.recipient.is_none_or(|recipient| recipient == session) {
        return Ok(message);
    }
    Ok(Arc::new(message.readdressed(session)))
}

/// Decodes the messages of a segment for a session.
fn stored_segment(pipeline: &Pipeline, stored: &[u8], session: SessionId) -> Result<Vec<Arc<Message>>, StoreError> {
    let mut messages = Vec::with_capacity(1);
    segment::for_each(stored, |stored| {
        messages.push(stored_message(pipeline, stored, session)?);
        Ok(())
    })?;
    Ok(messages)
}

/// Decodes the reply to `put_session`. `limit` is the bound on the bytes of all records.
pub(super) fn put_outcome(reply: &mut Reply, limit: usize) -> Result<PutOutcome, StoreError> {
    match reply.int()? {
        0 => Ok(PutOutcome::Stored),
        1 => Ok(PutOutcome::NameTaken),
        2 => Ok(PutOutcome::Gone),
        3 => Ok(PutOutcome::TooManySessions),
        4 => Ok(PutOutcome::TooManyBytes { limit }),
        _ => Err(unreadable("the reply to a session")),
    }
}

/// Decodes how many messages were released, and the depth.
pub(super) fn released(reply: &mut Reply) -> Result<Released, StoreError> {
    Ok(Released {
        returned: reply.len()?,
        dead: reply.len()?,
        depth: reply.depth()?,
    })
}

/// Decodes the reply to `lease` and `start_push`.
pub(super) fn leased(pipeline: &Pipeline, reply: &mut Reply, session: SessionId) -> Result<Lease, StoreError> {
    let depth = reply.depth()?;
    let state = reply.int()?;
    let mut leased = Lease {
        depth,
        superseded: state == 1,
        is_pushing: state == 0,
        lease_numbers: reply.len()? as u64..reply.len()? as u64,
        blocked_bytes: Some(reply.len()?).filter(|bytes| *bytes > 0),
        deliveries: Vec::new(),
    };
    while !reply.is_empty() {
        let count = reply.deliveries()?;
        if let Some(stored) = reply.optional_bytes()? {
            let messages = stored_segment(pipeline, &stored, session)?.into_iter();
            leased
                .deliveries
                .extend(messages.map(|message| Delivery { message, count }));
        }
    }
    Ok(leased)
}

/// Decodes the reply to `peek`. A segment may have more messages than were asked for.
pub(super) fn peeked(
    pipeline: &Pipeline,
    reply: &mut Reply,
    session: SessionId,
    limit: usize,
) -> Result<Peeked, StoreError> {
    let mut peeked = Peeked {
        waiting: reply.len()?,
        messages: Vec::new(),
    };
    while !reply.is_empty() {
        if let Some(stored) = reply.optional_bytes()? {
            peeked.messages.extend(stored_segment(pipeline, &stored, session)?);
        }
    }
    peeked.messages.truncate(limit);
    Ok(peeked)
}

/// Length of the id of a session, and of a claim, as text.
const SESSION_LEN: usize = 36;
const CLAIM_LEN: usize = 16;

/// Added to the number of recipients of a group lease.
const GROUP_LEASE_MARK: u32 = 1 << 31;

/// Decodes a delivery batch (`scripts/pushes.lua`): one delivery for each recipient of each message. The pipeline
/// counts from now on which members of its group leases the messages are written to.
pub(super) fn delivery_batch(
    pipeline: &Arc<Pipeline>,
    batch: &DeliveryBatch,
) -> Result<Vec<PushedDelivery>, StoreError> {
    let mut addresses = &batch.recipients[..];
    let mut all: Vec<PushedDelivery> = Vec::new();
    for stored in &batch.messages {
        let count = u32::from_be_bytes(number(&mut addresses)?);
        let is_group_lease = count & GROUP_LEASE_MARK != 0;
        let mut messages = Vec::new();
        let first_of_message = all.len();
        for _ in 0..count & !GROUP_LEASE_MARK {
            let address = address(&mut addresses)?;
            if messages.is_empty() {
                messages = stored_segment(pipeline, stored, address.session)?;
            }
            let deliveries = messages.iter().map(|message| Delivery {
                message: Arc::clone(message),
                count: 1,
            });
            let leases_len = if is_group_lease { 0 } else { messages.len() as u64 };
            all.push(PushedDelivery {
                session: address.session,
                claim: address.claim,
                deliveries: deliveries.collect(),
                lease_numbers: address.lease..address.lease + leases_len,
            });
        }
        if is_group_lease && let Some(message) = messages.first() {
            let members = all[first_of_message..].iter().map(|delivery| delivery.session);
            pipeline.begin_group_lease(message.id, members);
        }
    }
    Ok(all)
}

/// A recipient in a delivery batch.
struct Address {
    session: SessionId,
    /// The number of the lease; of a group lease that of the session's next lease.
    lease: u64,
    claim: Claim,
}

#[expect(clippy::cast_sign_loss, reason = "the functions count in floating point, from 0")]
fn address(addresses: &mut &[u8]) -> Result<Address, StoreError> {
    Ok(Address {
        session: reply::parse_session(take(addresses, SESSION_LEN)?)?,
        lease: f64::from_be_bytes(number(addresses)?) as u64,
        claim: parse_claim(take(addresses, CLAIM_LEN)?)?,
    })
}

/// A claim as Redis holds it: 16 hexadecimal digits.
pub(super) fn claim_text(claim: Claim) -> String {
    format!("{:016x}", claim.bits())
}

fn parse_claim(text: &[u8]) -> Result<Claim, StoreError> {
    let text = std::str::from_utf8(text).ok();
    let bits = text.and_then(|text| u64::from_str_radix(text, 16).ok());
    bits.map(Claim::from_bits).ok_or_else(|| unreadable("a claim"))
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Result<&'a [u8], StoreError> {
    bytes.split_off(..len).ok_or_else(|| unreadable("a delivery batch"))
}

fn number<const LEN: usize>(bytes: &mut &[u8]) -> Result<[u8; LEN], StoreError> {
    let number = take(bytes, LEN)?.first_chunk().copied();
    number.ok_or_else(|| unreadable("a delivery batch"))
}

/// Decodes the reply to the acknowledgements.
pub(super) fn acknowledged(pipeline: &Pipeline, reply: &mut Reply) -> Result<Acknowledged, StoreError> {
    let mut answer = Acknowledged {
        acknowledged: reply.len()?,
        depth: reply.depth()?,
        ..Acknowledged::default()
    };
    for _ in 0..reply.len()? {
        answer.unknown.push(reply.message()?);
    }
    while !reply.is_empty() {
        answer
            .tracked
            .extend(pipeline.local_messages.take_final(reply.message()?));
    }
    Ok(answer)
}

/// Decodes the same, preceded by the ids of the acknowledged messages.
pub(super) fn acknowledged_with_ids(
    pipeline: &Pipeline,
    reply: &mut Reply,
) -> Result<(Vec<MessageId>, Acknowledged), StoreError> {
    let ids = reply::parse_messages(&reply.bytes()?)?;
    Ok((ids, acknowledged(pipeline, reply)?))
}

/// Decodes the heartbeats of other replicas.
pub(super) fn heartbeats(reply: &mut Reply) -> Result<Vec<Heartbeat>, StoreError> {
    let mut heartbeats = Vec::new();
    while !reply.is_empty() {
        heartbeats.push(Heartbeat {
            session: reply.session()?,
            ago: Duration::from_millis(reply.number()?),
            has_left: reply.int()? == 1,
            is_connected: false,
        });
    }
    Ok(heartbeats)
}

/// Decodes where a message is for each recipient.
pub(super) fn statuses(reply: &mut Reply) -> Result<Vec<RecipientStatus>, StoreError> {
    let mut statuses = Vec::new();
    while !reply.is_empty() {
        statuses.push(RecipientStatus {
            session: reply.session()?,
            status: reply::parse_status(&reply.bytes()?)?,
            at_ms: reply::parse_number(&reply.bytes()?)?,
            outcome: Outcome::from_bytes(&reply.bytes()?),
            transformed: Transformed::from_text(&reply.bytes()?).map(Arc::new),
        });
    }
    Ok(statuses)
}

/// Decodes the texts of the first of these messages.
pub(super) fn messages(ids: &[MessageId], reply: &mut Reply) -> Result<Vec<Option<Arc<Message>>>, StoreError> {
    let mut texts: Vec<Option<Vec<u8>>> = Vec::new();
    let mut messages = Vec::new();
    for id in ids {
        let Some(part) = reply.next() else { break };
        let (text, at) = match part {
            Value::Nil => (None, None),
            Value::Int(position) => (None, usize::try_from(position).ok().and_then(|at| at.checked_sub(1))),
            text => (Some(reply::into_bytes(text)?), Some(texts.len())),
        };
        texts.push(text);
        let stored = at.and_then(|at| texts.get(at)?.as_deref());
        messages.push(stored.map(|stored| find_message(stored, *id)).transpose()?.flatten());
    }
    Ok(messages)
}

/// The message with this id in a segment.
fn find_message(stored: &[u8], id: MessageId) -> Result<Option<Arc<Message>>, StoreError> {
    let mut found = None;
    segment::for_each(stored, |stored| {
        if stored.get(2..18) == Some(id.as_uuid().as_bytes().as_slice()) {
            let message = Message::from_stored(stored).map_err(|error| unreadable(&error.to_string()))?;
            found = Some(Arc::new(message));
        }
        Ok(())
    })?;
    Ok(found)
}

/// Decodes a page of dead letters.
pub(super) fn dead_letters(pipeline: &Pipeline, reply: &mut Reply) -> Result<DeadLetterPage, StoreError> {
    let (mut dead_letters, end, bytes) = (Vec::new(), reply.bytes()?, reply.len()?);
    let blocked = match end.split_first_chunk::<16>() {
        None => None,
        Some((message, recipient)) => Some(BlockedDeadLetter {
            message: reply::parse_message(message)?,
            recipient: reply::parse_session(recipient)?,
            bytes,
        }),
    };
    rest_of_dead_letters(pipeline, reply, &mut dead_letters)?;
    Ok(DeadLetterPage { dead_letters, blocked })
}

/// Decodes dead letters that are to be reported.
pub(super) fn unreported(pipeline: &Pipeline, reply: &mut Reply) -> Result<Unreported, StoreError> {
    let (until, mut dead_letters) = (reply.number()?, Vec::new());
    rest_of_dead_letters(pipeline, reply, &mut dead_letters)?;
    Ok(Unreported {
        until: (until > 0).then_some(until),
        dead_letters,
    })
}

fn rest_of_dead_letters(
    pipeline: &Pipeline,
    reply: &mut Reply,
    dead_letters: &mut Vec<DeadLetter>,
) -> Result<(), StoreError> {
    while !reply.is_empty() {
        let (letter, info, name) = (reply.bytes()?, reply.bytes()?, reply.bytes()?);
        let stored = reply.optional_bytes()?;
        // A redrive may have removed it before it was read.
        let Some(stored) = stored else { continue };
        let recipient = reply::parse_session(letter.get(16..).unwrap_or_default())?;
        let messages = stored_segment(pipeline, &stored, recipient)?;
        let message = messages.into_iter().next().ok_or_else(|| unreadable("a segment"))?;
        dead_letters.push(dead_letter(message, recipient, &info, &name)?);
    }
    Ok(())
}

/// `info` is flags and bytes of the entry (5 bytes), the reason (1), deliveries, a space, the time. `name` is empty for a
/// recipient without one, and for what a version gave up that kept none.
fn dead_letter(
    message: Arc<Message>,
    recipient: SessionId,
    info: &[u8],
    name: &[u8],
) -> Result<DeadLetter, StoreError> {
    let (deliveries, at_ms) = info
        .get(6..)
        .and_then(|rest| rest.split_at_checked(rest.iter().position(|byte| *byte == b' ')?))
        .ok_or_else(|| unreadable("a dead letter"))?;
    Ok(DeadLetter {
        message,
        recipient,
        recipient_name: std::str::from_utf8(name)
            .ok()
            .and_then(|name| SessionName::stored(name).ok()),
        reason: reply::parse_reason(&info[5..6])?,
        at_ms: reply::parse_number(&at_ms[1..])?,
        deliveries: u32::try_from(reply::parse_number(deliveries)?).unwrap_or(u32::MAX),
    })
}

/// Decodes the reply to `redrive`.
pub(super) fn redriven(reply: &mut Reply) -> Result<Redriven, StoreError> {
    let mut answer = Redriven::default();
    while !reply.is_empty() {
        let (message, session, result) = (reply.message()?, reply.bytes()?, reply.bytes()?);
        match result.as_slice() {
            b"unknown" => answer.unknown.push(message),
            b"gone" => answer.refused.push((message, RedriveRefusal::RecipientGone)),
            b"full" => answer.refused.push((message, RedriveRefusal::QueueFull)),
            len => {
                let queue_len = reply::parse_number(len)? as usize;
                answer.sent.push((message, reply::parse_session(&session)?, queue_len));
            }
        }
    }
    Ok(answer)
}
