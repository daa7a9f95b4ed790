//! The first result of an idempotency key, as it is kept: the id of the message (16 bytes), then delivered, queued,
//! skipped, length of the queue, time of delivery or `-`, status or `-`, who refused (separated by commas).
//! A reservation has the nil id in the place of the message's; the rest of it is the script's.

use actors::storage::{Appended, Outcome, Reserved, StoreError};

use super::reply::{message, number, session, status, status_code, unreadable};

pub(super) fn to_stored(outcome: &Outcome) -> Vec<u8> {
    let Outcome {
        message,
        delivered,
        queued,
        skipped,
        queue_len,
        refused,
        delivered_at_ms,
        status,
    } = outcome;
    let at = delivered_at_ms.map_or_else(|| "-".to_owned(), |at| at.to_string());
    let status = status.map_or('-', status_code);
    let refused: Vec<_> = refused.iter().map(ToString::to_string).collect();
    let text = format!(
        "{delivered} {queued} {skipped} {queue_len} {at} {status} {}",
        refused.join(",")
    );
    [message.as_uuid().as_bytes(), text.as_bytes()].concat()
}

/// What an append was answered whose key was taken before.
pub(super) fn repeated(stored: &[u8]) -> Result<Appended, StoreError> {
    if stored.starts_with(&[0; 16]) {
        return Ok(Appended::KeyReserved);
    }
    from_stored(stored).map(Appended::Repeated)
}

pub(super) fn reserved(reply: &[u8]) -> Result<Reserved, StoreError> {
    Ok(match reply {
        b"first" => Reserved::First,
        b"again" => Reserved::Again,
        b"elsewhere" => Reserved::Elsewhere,
        stored => Reserved::Settled(from_stored(stored)?),
    })
}

fn from_stored(stored: &[u8]) -> Result<Outcome, StoreError> {
    let (id, text) = stored.split_at_checked(16).ok_or_else(|| unreadable("a result"))?;
    let mut parts = text.split(|byte| *byte == b' ');
    let mut part = || parts.next().ok_or_else(|| unreadable("a result"));
    let count = |text| number(text).map(|number| number as usize);
    Ok(Outcome {
        message: message(id)?,
        delivered: count(part()?)?,
        queued: count(part()?)?,
        skipped: count(part()?)?,
        queue_len: count(part()?)?,
        delivered_at_ms: match part()? {
            b"-" => None,
            at => Some(number(at)?),
        },
        status: match part()? {
            b"-" => None,
            code => Some(status(code)?),
        },
        refused: match part()? {
            b"" => Vec::new(),
            list => list
                .split(|byte| *byte == b',')
                .map(session)
                .collect::<Result<_, _>>()?,
        },
    })
}

#[cfg(test)]
mod tests {
    use actors::model::{DeadLetterReason, MessageId, SessionId, Status};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_first_result_is_read_as_it_was_kept() {
        let plain = Outcome::accepted(MessageId::from_uuid(Uuid::now_v7()), 2, 1, vec![]);
        let full = Outcome {
            delivered: 3,
            refused: vec![SessionId::generate(), SessionId::generate()],
            delivered_at_ms: Some(7),
            status: Some(Status::DeadLettered(DeadLetterReason::Expired)),
            ..plain.clone()
        };
        for outcome in [plain, full] {
            assert_eq!(from_stored(&to_stored(&outcome)), Ok(outcome));
        }
        assert!(from_stored(b"rubbish").is_err());
    }
}
