//! Replies as what they mean.

use std::{sync::Arc, time::Duration};

use actors::{
    bridge::DeliveryBatch,
    model::{DeadLetter, Message, RecipientStatus, SessionId},
    storage::{
        Acknowledged, BlockedDeadLetter, Claim, DeadLetterPage, Delivery, Heartbeat, Lease, PushedDelivery, PutOutcome,
        RedriveRefusal, Redriven, Released, StoreError,
    },
};
use serde::Serialize;

use super::{
    pipeline::Pipeline,
    reply::{self, Reply, unreadable},
};

pub(super) fn to_json(record: &impl Serialize) -> Vec<u8> {
    // Writing plain records to memory cannot fail.
    serde_json::to_vec(record).unwrap_or_default()
}

pub(super) fn is_segment(stored: &[u8]) -> bool {
    stored.first() == Some(&0)
}

/// What is stored of a message, or of each message of a bundle; see `scripts/bundles.lua`.
pub(super) fn for_each_stored(
    mut stored: &[u8],
    mut read: impl FnMut(&[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    if !is_segment(stored) {
        return read(stored);
    }
    while let Some((lengths, rest)) = stored.split_first_chunk::<8>() {
        let [a, b, c, d, ..] = *lengths;
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        let (message, rest) = rest.split_at_checked(len).ok_or_else(|| unreadable("a bundle"))?;
        read(message)?;
        stored = rest;
    }
    Ok(())
}

/// A message as this session gets it; the one that somebody here holds, if there is one.
pub(super) fn stored_message(lane: &Pipeline, stored: &[u8], session: SessionId) -> Result<Arc<Message>, StoreError> {
    let held = stored
        .get(2..18)
        .and_then(|id| lane.local_messages.get(reply::parse_message(id).ok()?));
    let message = match held {
        Some(held) => held,
        None => Arc::new(Message::from_stored(stored).map_err(|error| unreadable(&error.to_string()))?),
    };
    if message.recipient.is_none_or(|recipient| recipient == session) {
        return Ok(message);
    }
    Ok(Arc::new(message.readdressed(session)))
}

/// `limit` is that of the bytes of all records.
pub(super) fn put_outcome(reply: &mut Reply, limit: usize) -> Result<PutOutcome, StoreError> {
    match reply.int()? {
        0 => Ok(PutOutcome::Stored),
        1 => Ok(PutOutcome::NameTaken),
        2 => Ok(PutOutcome::Gone),
        3 => Ok(PutOutcome::TooManySessions),
        4 => Ok(PutOutcome::TooManyBytes { limit }),
        _ => Err(unreadable("whether a session is kept")),
    }
}

pub(super) fn released(reply: &mut Reply) -> Result<Released, StoreError> {
    Ok(Released {
        returned: reply.len()?,
        dead: reply.len()?,
        depth: reply.depth()?,
    })
}

/// What an operation leased, or found leased, for this session.
pub(super) fn leased(lane: &Pipeline, reply: &mut Reply, session: SessionId) -> Result<Lease, StoreError> {
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
            for_each_stored(&stored, |stored| {
                let message = stored_message(lane, stored, session)?;
                leased.deliveries.push(Delivery { message, count });
                Ok(())
            })?;
        }
    }
    Ok(leased)
}

/// As text.
const SESSION_LEN: usize = 36;
const CLAIM_LEN: usize = 16;

/// Added to the number of sessions to which a message is leased as one.
const GROUP_LEASE_MARK: u32 = 1 << 31;

/// Messages, each with the sessions that get it; see `scripts/posts.lua`.
#[expect(clippy::cast_sign_loss, reason = "the script counts in floating point, and up")]
pub(super) fn delivery_batch(lane: &Arc<Pipeline>, parcel: &DeliveryBatch) -> Result<Vec<PushedDelivery>, StoreError> {
    let mut addresses = &parcel.recipients[..];
    let mut all: Vec<PushedDelivery> = Vec::new();
    for stored in &parcel.messages {
        let mut messages: Vec<Arc<Message>> = Vec::new();
        let count = u32::from_be_bytes(number(&mut addresses)?);
        let (is_post, first_of_message) = (count & GROUP_LEASE_MARK != 0, all.len());
        for _ in 0..count & !GROUP_LEASE_MARK {
            let session = reply::parse_session(take(&mut addresses, SESSION_LEN)?)?;
            let first = f64::from_be_bytes(number(&mut addresses)?) as u64;
            let claim = claim(take(&mut addresses, CLAIM_LEN)?)?;
            if messages.is_empty() {
                for_each_stored(stored, |stored| {
                    messages.push(stored_message(lane, stored, session)?);
                    Ok(())
                })?;
            }
            let deliveries = messages.iter().map(|message| Delivery {
                message: Arc::clone(message),
                count: 1,
            });
            all.push(PushedDelivery {
                session,
                claim,
                deliveries: deliveries.collect(),
                lease_numbers: first..if is_post { first } else { first + messages.len() as u64 },
            });
        }
        if is_post && let Some(message) = messages.first() {
            lane.begin_group_lease(message.id, all[first_of_message..].iter().map(|handed| handed.session));
        }
    }
    Ok(all)
}

/// As the script knows it.
pub(super) fn claim_text(claim: Claim) -> String {
    format!("{:016x}", claim.bits())
}

fn claim(text: &[u8]) -> Result<Claim, StoreError> {
    let text = std::str::from_utf8(text).ok();
    let bits = text.and_then(|text| u64::from_str_radix(text, 16).ok());
    bits.map(Claim::from_bits).ok_or_else(|| unreadable("a claim"))
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Result<&'a [u8], StoreError> {
    bytes.split_off(..len).ok_or_else(|| unreadable("a parcel"))
}

fn number<const LEN: usize>(bytes: &mut &[u8]) -> Result<[u8; LEN], StoreError> {
    let number = take(bytes, LEN)?.first_chunk().copied();
    number.ok_or_else(|| unreadable("a parcel"))
}

pub(super) fn acknowledged(lane: &Pipeline, reply: &mut Reply) -> Result<Acknowledged, StoreError> {
    let mut answer = Acknowledged {
        acknowledged: reply.len()?,
        depth: reply.depth()?,
        ..Acknowledged::default()
    };
    for _ in 0..reply.len()? {
        answer.unknown.push(reply.message()?);
    }
    while !reply.is_empty() {
        answer.tracked.extend(lane.local_messages.take_final(reply.message()?));
    }
    Ok(answer)
}

pub(super) fn heartbeats(reply: &mut Reply) -> Result<Vec<Heartbeat>, StoreError> {
    let mut signs = Vec::new();
    while !reply.is_empty() {
        signs.push(Heartbeat {
            session: reply.session()?,
            ago: Duration::from_millis(reply.number()?),
            has_left: reply.int()? == 1,
        });
    }
    Ok(signs)
}

pub(super) fn statuses(reply: &mut Reply) -> Result<Vec<RecipientStatus>, StoreError> {
    let mut statuses = Vec::new();
    while !reply.is_empty() {
        statuses.push(RecipientStatus {
            session: reply.session()?,
            status: reply::parse_status(&reply.bytes()?)?,
            at_ms: reply::parse_number(&reply.bytes()?)?,
        });
    }
    Ok(statuses)
}

pub(super) fn dead_letters(lane: &Pipeline, reply: &mut Reply) -> Result<DeadLetterPage, StoreError> {
    let (mut letters, end, bytes) = (Vec::new(), reply.bytes()?, reply.len()?);
    let beyond = match end.split_first_chunk::<16>() {
        None => None,
        Some((message, recipient)) => Some(BlockedDeadLetter {
            message: reply::parse_message(message)?,
            recipient: reply::parse_session(recipient)?,
            bytes,
        }),
    };
    while !reply.is_empty() {
        let (letter, known, stored) = (reply.bytes()?, reply.bytes()?, reply.optional_bytes()?);
        // It was redriven before it was read.
        let Some(stored) = stored else { continue };
        let recipient = reply::parse_session(letter.get(16..).unwrap_or_default())?;
        let (deliveries, at_ms) = known
            .get(6..)
            .and_then(|rest| rest.split_at_checked(rest.iter().position(|byte| *byte == b' ')?))
            .ok_or_else(|| unreadable("a dead letter"))?;
        letters.push(DeadLetter {
            message: stored_message(lane, &stored, recipient)?,
            recipient,
            reason: reply::parse_reason(&known[5..6])?,
            at_ms: reply::parse_number(&at_ms[1..])?,
            deliveries: u32::try_from(reply::parse_number(deliveries)?).unwrap_or(u32::MAX),
        });
    }
    Ok(DeadLetterPage {
        dead_letters: letters,
        blocked: beyond,
    })
}

pub(super) fn redriven(reply: &mut Reply) -> Result<Redriven, StoreError> {
    let mut answer = Redriven::default();
    while !reply.is_empty() {
        let (message, session, what) = (reply.message()?, reply.bytes()?, reply.bytes()?);
        match what.as_slice() {
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
