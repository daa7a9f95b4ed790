//! Replies as what they mean.

use std::{sync::Arc, time::Duration};

use actors::{
    bridge::Parcel,
    model::{DeadLetter, Message, RecipientStatus, SessionId},
    storage::{
        Acknowledged, Claim, DeadLetters, Delivery, Handed, Leased, LetterBeyond, RedriveRefusal, Redriven, Released,
        Seated, Sign, StoreError,
    },
};
use serde::Serialize;

use super::{
    lane::Lane,
    reply::{self, Reply, unreadable},
};

pub(super) fn to_json(record: &impl Serialize) -> Vec<u8> {
    // Writing plain records to memory cannot fail.
    serde_json::to_vec(record).unwrap_or_default()
}

pub(super) fn is_bundle(stored: &[u8]) -> bool {
    stored.first() == Some(&0)
}

/// What is stored of a message, or of each message of a bundle; see `scripts/bundles.lua`.
pub(super) fn each_stored(
    mut stored: &[u8],
    mut read: impl FnMut(&[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    if !is_bundle(stored) {
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
pub(super) fn stored_message(lane: &Lane, stored: &[u8], session: SessionId) -> Result<Arc<Message>, StoreError> {
    let held = stored.get(2..18).and_then(|id| lane.held.get(reply::message(id).ok()?));
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
pub(super) fn seated(reply: &mut Reply, limit: usize) -> Result<Seated, StoreError> {
    match reply.int()? {
        0 => Ok(Seated::Kept),
        1 => Ok(Seated::NameTaken),
        2 => Ok(Seated::Gone),
        3 => Ok(Seated::Full),
        4 => Ok(Seated::NoRoom { limit }),
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
pub(super) fn leased(lane: &Lane, reply: &mut Reply, session: SessionId) -> Result<Leased, StoreError> {
    let depth = reply.depth()?;
    let state = reply.int()?;
    let mut leased = Leased {
        depth,
        superseded: state == 1,
        stands_by: state == 0,
        numbers: reply.len()? as u64..reply.len()? as u64,
        beyond: Some(reply.len()?).filter(|bytes| *bytes > 0),
        deliveries: Vec::new(),
    };
    while !reply.is_done() {
        let count = reply.count()?;
        if let Some(stored) = reply.bytes_or_nothing()? {
            each_stored(&stored, |stored| {
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
const POST_MARK: u32 = 1 << 31;

/// Messages, each with the sessions that get it; see `scripts/posts.lua`.
#[expect(clippy::cast_sign_loss, reason = "the script counts in floating point, and up")]
pub(super) fn parcel(lane: &Arc<Lane>, parcel: &Parcel) -> Result<Vec<Handed>, StoreError> {
    let mut addresses = &parcel.addresses[..];
    let mut all: Vec<Handed> = Vec::new();
    for stored in &parcel.messages {
        let mut messages: Vec<Arc<Message>> = Vec::new();
        let count = u32::from_be_bytes(number(&mut addresses)?);
        let (is_post, first_of_message) = (count & POST_MARK != 0, all.len());
        for _ in 0..count & !POST_MARK {
            let session = reply::session(take(&mut addresses, SESSION_LEN)?)?;
            let first = f64::from_be_bytes(number(&mut addresses)?) as u64;
            let claim = claim(take(&mut addresses, CLAIM_LEN)?)?;
            if messages.is_empty() {
                each_stored(stored, |stored| {
                    messages.push(stored_message(lane, stored, session)?);
                    Ok(())
                })?;
            }
            let deliveries = messages.iter().map(|message| Delivery {
                message: Arc::clone(message),
                count: 1,
            });
            all.push(Handed {
                session,
                claim,
                deliveries: deliveries.collect(),
                numbers: first..if is_post { first } else { first + messages.len() as u64 },
            });
        }
        if is_post && let Some(message) = messages.first() {
            lane.take_post(message.id, all[first_of_message..].iter().map(|handed| handed.session));
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

pub(super) fn acknowledged(lane: &Lane, reply: &mut Reply) -> Result<Acknowledged, StoreError> {
    let mut answer = Acknowledged {
        acknowledged: reply.len()?,
        depth: reply.depth()?,
        ..Acknowledged::default()
    };
    for _ in 0..reply.len()? {
        answer.unknown.push(reply.message()?);
    }
    while !reply.is_done() {
        answer.watched.extend(lane.held.finish(reply.message()?));
    }
    Ok(answer)
}

pub(super) fn signs(reply: &mut Reply) -> Result<Vec<Sign>, StoreError> {
    let mut signs = Vec::new();
    while !reply.is_done() {
        signs.push(Sign {
            session: reply.session()?,
            ago: Duration::from_millis(reply.number()?),
            goodbye: reply.int()? == 1,
        });
    }
    Ok(signs)
}

pub(super) fn statuses(reply: &mut Reply) -> Result<Vec<RecipientStatus>, StoreError> {
    let mut statuses = Vec::new();
    while !reply.is_done() {
        statuses.push(RecipientStatus {
            session: reply.session()?,
            status: reply::status(&reply.bytes()?)?,
            at_ms: reply::number(&reply.bytes()?)?,
        });
    }
    Ok(statuses)
}

pub(super) fn dead_letters(lane: &Lane, reply: &mut Reply) -> Result<DeadLetters, StoreError> {
    let (mut letters, end, bytes) = (Vec::new(), reply.bytes()?, reply.len()?);
    let beyond = match end.split_first_chunk::<16>() {
        None => None,
        Some((message, recipient)) => Some(LetterBeyond {
            message: reply::message(message)?,
            recipient: reply::session(recipient)?,
            bytes,
        }),
    };
    while !reply.is_done() {
        let (letter, known, stored) = (reply.bytes()?, reply.bytes()?, reply.bytes_or_nothing()?);
        // It was redriven before it was read.
        let Some(stored) = stored else { continue };
        let recipient = reply::session(letter.get(16..).unwrap_or_default())?;
        let (deliveries, at_ms) = known
            .get(6..)
            .and_then(|rest| rest.split_at_checked(rest.iter().position(|byte| *byte == b' ')?))
            .ok_or_else(|| unreadable("a dead letter"))?;
        letters.push(DeadLetter {
            message: stored_message(lane, &stored, recipient)?,
            recipient,
            reason: reply::reason(&known[5..6])?,
            at_ms: reply::number(&at_ms[1..])?,
            deliveries: u32::try_from(reply::number(deliveries)?).unwrap_or(u32::MAX),
        });
    }
    Ok(DeadLetters { letters, beyond })
}

pub(super) fn redriven(reply: &mut Reply) -> Result<Redriven, StoreError> {
    let mut answer = Redriven::default();
    while !reply.is_done() {
        let (message, session, what) = (reply.message()?, reply.bytes()?, reply.bytes()?);
        match what.as_slice() {
            b"unknown" => answer.unknown.push(message),
            b"gone" => answer.refused.push((message, RedriveRefusal::RecipientGone)),
            b"full" => answer.refused.push((message, RedriveRefusal::QueueFull)),
            len => {
                let queue_len = reply::number(len)? as usize;
                answer.sent.push((message, reply::session(&session)?, queue_len));
            }
        }
    }
    Ok(answer)
}
