//! The result of a send, as Redis keeps it under an idempotency key: the id of the message (16 bytes), then as text
//! delivered, queued, skipped, length of the queue, time of delivery or `-`, status or `-`, the recipients that refused
//! it (separated by commas), and what lenses do to it, if they do something. A reservation has the nil id instead; `scripts/idempotency.lua` describes it.

use actors::{
    model::Transforms,
    storage::{Appended, KeyReservation, SendResult, StoreError},
};

use super::reply::{parse_message, parse_number, parse_session, parse_status, status_code, unreadable};

/// Encodes a result.
pub(super) fn encode(result: &SendResult) -> Vec<u8> {
    let SendResult {
        message,
        delivered,
        queued,
        skipped,
        queue_len,
        refused,
        delivered_at_ms,
        status,
        transforms,
    } = result;
    let at = delivered_at_ms.map_or_else(|| "-".to_owned(), |at| at.to_string());
    let status = status.map_or('-', status_code);
    let refused: Vec<_> = refused.iter().map(ToString::to_string).collect();
    let mut text = format!(
        "{delivered} {queued} {skipped} {queue_len} {at} {status} {}",
        refused.join(",")
    );
    if let Some(transforms) = transforms {
        text.push(' ');
        text.push_str(&transforms.to_text());
    }
    [message.as_uuid().as_bytes(), text.as_bytes()].concat()
}

/// Decodes what takes the key of an append.
pub(super) fn parse_repeated(stored: &[u8]) -> Result<Appended, StoreError> {
    if stored.starts_with(&[0; 16]) {
        return Ok(Appended::KeyReserved);
    }
    decode(stored).map(Appended::Duplicate)
}

/// Decodes the reply to `reserve_key`.
pub(super) fn parse_reserved(reply: &[u8]) -> Result<KeyReservation, StoreError> {
    Ok(match reply {
        b"first" => KeyReservation::New,
        b"again" => KeyReservation::Repeated,
        b"elsewhere" => KeyReservation::OtherProject,
        stored => KeyReservation::Completed(decode(stored)?),
    })
}

fn decode(stored: &[u8]) -> Result<SendResult, StoreError> {
    let (id, text) = stored.split_at_checked(16).ok_or_else(|| unreadable("a result"))?;
    let mut parts = text.splitn(8, |byte| *byte == b' ');
    let mut part = || parts.next().ok_or_else(|| unreadable("a result"));
    let count = |text| parse_number(text).map(|number| number as usize);
    Ok(SendResult {
        message: parse_message(id)?,
        delivered: count(part()?)?,
        queued: count(part()?)?,
        skipped: count(part()?)?,
        queue_len: count(part()?)?,
        delivered_at_ms: match part()? {
            b"-" => None,
            at => Some(parse_number(at)?),
        },
        status: match part()? {
            b"-" => None,
            code => Some(parse_status(code)?),
        },
        refused: match part()? {
            b"" => Vec::new(),
            list => list
                .split(|byte| *byte == b',')
                .map(parse_session)
                .collect::<Result<_, _>>()?,
        },
        transforms: match parts.next() {
            None => None,
            Some(text) => Some(Transforms::from_text(text).ok_or_else(|| unreadable("what lenses do to a message"))?),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use actors::model::{DeadLetterReason, DeliveryStatus, MessageId, SessionId, Transformed};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_stored_result_decodes_to_what_was_encoded() {
        let plain = SendResult::accepted(MessageId::from_uuid(Uuid::now_v7()), 2, 1, vec![]);
        let full = SendResult {
            delivered: 3,
            refused: vec![SessionId::generate(), SessionId::generate()],
            delivered_at_ms: Some(7),
            status: Some(DeliveryStatus::DeadLettered(DeadLetterReason::Expired)),
            ..plain.clone()
        };
        let (from, to) = ("1.0.0".parse().unwrap(), "2.0.0".parse().unwrap());
        let transformed = Transformed::new(from, to, vec!["/a b".to_owned()], Vec::new(), true);
        let by_lenses = Transforms {
            versions: vec![(Arc::new(transformed), 2)],
            failed: vec![SessionId::generate()],
        };
        let transforms = Some(Arc::new(by_lenses));
        let [some, all] = [&plain, &full].map(|result| SendResult {
            transforms: transforms.clone(),
            ..result.clone()
        });
        for result in [plain, full, some, all] {
            assert_eq!(decode(&encode(&result)), Ok(result));
        }
        assert!(decode(b"rubbish").is_err());
    }
}
