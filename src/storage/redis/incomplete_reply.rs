//! Messages that the function has handed out and left to be read: which, how many at a time, and where they belong.

use deadpool_redis::redis::Value;

use super::{append, decode, error::Failure, pipeline::QueuedOperation};

/// Most bytes that one command asks for, unless a single message is larger.
const READ_BYTES_MAX: usize = 2 << 20;

/// A message that is to be read and put into a reply: of which operation, and where in it.
pub(super) struct PendingRead {
    pub reply: usize,
    position: usize,
    id: Vec<u8>,
    is_segment: bool,
    bytes: usize,
}

impl PendingRead {
    pub fn of(parts: &[Value]) -> Option<Self> {
        let [Value::Int(reply), Value::Int(place), Value::BulkString(member)] = parts else {
            return None;
        };
        let (id, rest) = member.split_first_chunk::<16>()?;
        let (flags, bytes) = rest.split_first()?;
        Some(Self {
            reply: usize::try_from(*reply).ok()?,
            position: usize::try_from(*place).ok()?.checked_sub(1)?,
            id: id.to_vec(),
            is_segment: append::is_segment(*flags),
            bytes: u32::from_be_bytes(*bytes.first_chunk()?) as usize,
        })
    }
}

/// An operation whose messages are yet to be read.
pub(super) struct IncompleteReply {
    pub operation: QueuedOperation,
    pub reply: Value,
    pub pending_reads: Vec<PendingRead>,
}

/// The ids of what is to be read, as many at a time as one command asks for.
pub(super) fn split_reads(late: &[IncompleteReply]) -> Vec<Vec<&[u8]>> {
    let (mut portions, mut bytes) = (vec![Vec::new()], 0);
    for left in late.iter().flat_map(|late| &late.pending_reads) {
        bytes += left.bytes;
        if bytes > READ_BYTES_MAX && portions.last().is_some_and(|portion| !portion.is_empty()) {
            portions.push(Vec::new());
            bytes = left.bytes;
        }
        if let Some(portion) = portions.last_mut() {
            portion.push(&*left.id);
        }
    }
    portions
}

/// Puts what was read where it belongs.
pub(super) fn fill_replies(late: &mut [IncompleteReply], read: Vec<Value>) -> Result<(), Failure> {
    let mut read = read.into_iter();
    for IncompleteReply {
        reply,
        pending_reads: left,
        ..
    } in late
    {
        let Value::Array(reply) = reply else {
            return Err(unexpected_reply());
        };
        for left in left {
            let (message, place) = read
                .next()
                .zip(reply.get_mut(left.position))
                .ok_or_else(unexpected_reply)?;
            let is_bundle = matches!(&message, Value::BulkString(stored) if decode::is_segment(stored));
            if is_bundle != left.is_segment {
                return Err(Failure::NoReply("a bundle was opened before it was read".to_owned()));
            }
            *place = message;
        }
    }
    Ok(())
}

pub(super) fn unexpected_reply() -> Failure {
    Failure::Unexpected("Redis did not answer as the function does".to_owned())
}

#[cfg(test)]
mod tests {
    use tokio::{sync::oneshot, time::Instant};

    use super::{
        super::{auto_ack::ReplyTarget, operation::Operation},
        *,
    };

    fn late(is_bundle: [bool; 2]) -> Vec<IncompleteReply> {
        let left = |(place, is_bundle)| PendingRead {
            reply: 1,
            position: place,
            id: vec![place as u8],
            is_segment: is_bundle,
            bytes: 0,
        };
        let operation = Operation::new("lease");
        vec![IncompleteReply {
            operation: QueuedOperation {
                operation,
                deadline: Instant::now(),
                reply_to: ReplyTarget::Single(oneshot::channel().0),
            },
            reply: Value::Array(vec![Value::Int(1), Value::Nil, Value::Int(2), Value::Nil]),
            pending_reads: [1, 3].into_iter().zip(is_bundle).map(left).collect(),
        }]
    }

    fn stored(first: u8) -> Value {
        Value::BulkString(vec![first, 7])
    }

    #[test]
    fn messages_fill_the_positions_left_for_them() {
        let mut waiting = late([false, true]);
        fill_replies(&mut waiting, vec![Value::Nil, stored(0)]).unwrap();
        let whole = Value::Array(vec![Value::Int(1), Value::Nil, Value::Int(2), stored(0)]);
        assert_eq!(waiting[0].reply, whole, "one is over");
    }

    #[test]
    fn a_message_that_is_not_what_was_leased_is_not_delivered() {
        let gone = vec![stored(1), Value::Nil];
        for read in [vec![stored(1), stored(1)], vec![stored(0), stored(0)], gone] {
            let opened = fill_replies(&mut late([false, true]), read);
            assert!(matches!(opened, Err(Failure::NoReply(_))), "{opened:?}");
        }
        let cut = fill_replies(&mut late([false, true]), vec![stored(1)]);
        assert!(matches!(cut, Err(Failure::Unexpected(_))), "{cut:?}");
    }

    #[test]
    fn a_command_asks_for_one_message_or_a_few_short_ones() {
        const FULL: usize = READ_BYTES_MAX;
        let portions_of = |bytes: [usize; 4]| {
            let left = bytes.iter().zip(0..).map(|(&bytes, id)| PendingRead {
                reply: 1,
                position: 1,
                id: vec![id],
                is_segment: false,
                bytes,
            });
            let late = vec![IncompleteReply {
                pending_reads: left.collect(),
                ..late([false, false]).remove(0)
            }];
            split_reads(&late).iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(portions_of([1, 2, 3, 4]), [4]);
        assert_eq!(portions_of([FULL, 1, FULL - 1, 1]), [1, 2, 1]);
        assert_eq!(portions_of([3 * FULL, 2 * FULL, 1, 1]), [1, 1, 2]);
    }
}
