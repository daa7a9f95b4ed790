//! Replies whose messages are read outside the function: which messages, how many at a time, and their positions.

use deadpool_redis::redis::Value;

use super::{
    super::{error::Failure, segment},
    queue::QueuedOperation,
};

/// Most bytes that one command reads, unless a single message is larger.
const READ_BYTES_MAX: usize = 2 << 20;

/// A message or segment that is read and put into a reply.
pub(super) struct PendingRead {
    /// The number of the reply, counted from 1.
    pub reply: usize,
    /// The position in it, counted from 0.
    position: usize,
    id: Vec<u8>,
    /// Messages and bytes of the segment, as leased.
    len: usize,
    bytes: usize,
}

impl PendingRead {
    /// None when these parts are not the number of a reply, a position and an entry.
    pub fn of(parts: &[Value]) -> Option<Self> {
        let [Value::Int(reply), Value::Int(position), Value::BulkString(entry)] = parts else {
            return None;
        };
        let (id, rest) = entry.split_first_chunk::<16>()?;
        let (flags, bytes) = rest.split_first()?;
        Some(Self {
            reply: usize::try_from(*reply).ok()?,
            position: usize::try_from(*position).ok()?.checked_sub(1)?,
            id: id.to_vec(),
            len: segment::len_of_flags(*flags),
            bytes: u32::from_be_bytes(*bytes.first_chunk()?) as usize,
        })
    }
}

/// An operation, and its reply without the messages.
pub(super) struct IncompleteReply {
    pub operation: QueuedOperation,
    pub reply: Value,
    pub pending_reads: Vec<PendingRead>,
}

/// The ids of what is read, one list for each command.
pub(super) fn split_reads(incomplete: &[IncompleteReply]) -> Vec<Vec<&[u8]>> {
    let (mut commands, mut bytes) = (vec![Vec::new()], 0);
    for read in incomplete.iter().flat_map(|incomplete| &incomplete.pending_reads) {
        bytes += read.bytes;
        if bytes > READ_BYTES_MAX && commands.last().is_some_and(|ids| !ids.is_empty()) {
            commands.push(Vec::new());
            bytes = read.bytes;
        }
        if let Some(ids) = commands.last_mut() {
            ids.push(&*read.id);
        }
    }
    commands
}

/// Puts what was read into the replies. A single message that is missing has been acknowledged meanwhile.
///
/// # Errors
/// `Unexpected` when this does not fit the replies; `NoReply` when a segment was split before it was read: the leases
/// of its messages have to be returned.
pub(super) fn fill_replies(incomplete: &mut [IncompleteReply], read: Vec<Value>) -> Result<(), Failure> {
    let mut read = read.into_iter();
    for IncompleteReply {
        reply, pending_reads, ..
    } in incomplete
    {
        let Value::Array(reply) = reply else {
            return Err(unexpected_reply());
        };
        for pending in pending_reads {
            let (stored, part) = read
                .next()
                .zip(reply.get_mut(pending.position))
                .ok_or_else(unexpected_reply)?;
            let len = match &stored {
                Value::BulkString(stored) => segment::len(stored),
                _ => 1,
            };
            if len != pending.len {
                return Err(Failure::NoReply("a segment was split before it was read".to_owned()));
            }
            *part = stored;
        }
    }
    Ok(())
}

/// The failure of a batch whose reply has another form.
pub(super) fn unexpected_reply() -> Failure {
    Failure::Unexpected("Redis did not answer as the function does".to_owned())
}

#[cfg(test)]
mod tests {
    use tokio::{sync::oneshot, time::Instant};

    use super::{
        super::{super::operation::Operation, auto_ack::ReplyTarget},
        *,
    };

    /// A reply with two messages to read, of segments of these lengths.
    fn incomplete(lens: [usize; 2]) -> Vec<IncompleteReply> {
        let read = |(position, len)| PendingRead {
            reply: 1,
            position,
            id: vec![position as u8],
            len,
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
            pending_reads: [1, 3].into_iter().zip(lens).map(read).collect(),
        }]
    }

    fn stored(len: usize) -> Value {
        Value::BulkString([0, 0, 0, 1, 0, 0, 0, 9, 7].repeat(len))
    }

    #[test]
    fn messages_fill_the_positions_left_for_them() {
        let mut waiting = incomplete([1, 2]);
        fill_replies(&mut waiting, vec![Value::Nil, stored(2)]).unwrap();
        let filled = Value::Array(vec![Value::Int(1), Value::Nil, Value::Int(2), stored(2)]);
        assert_eq!(waiting[0].reply, filled, "the first was acknowledged meanwhile");
    }

    #[test]
    fn a_message_that_is_not_what_was_leased_is_not_delivered() {
        for read in [
            vec![stored(1), stored(1)],
            vec![stored(2), stored(2)],
            vec![stored(1), Value::Nil],
        ] {
            let split = fill_replies(&mut incomplete([1, 2]), read);
            assert!(matches!(split, Err(Failure::NoReply(_))), "{split:?}");
        }
        let short = fill_replies(&mut incomplete([1, 2]), vec![stored(1)]);
        assert!(matches!(short, Err(Failure::Unexpected(_))), "{short:?}");
    }

    #[test]
    fn a_command_reads_one_message_or_a_few_short_ones() {
        const FULL: usize = READ_BYTES_MAX;
        let command_lens = |bytes: [usize; 4]| {
            let reads = bytes.iter().zip(0..).map(|(&bytes, id)| PendingRead {
                reply: 1,
                position: 1,
                id: vec![id],
                len: 1,
                bytes,
            });
            let incomplete = vec![IncompleteReply {
                pending_reads: reads.collect(),
                ..incomplete([1, 1]).remove(0)
            }];
            split_reads(&incomplete).iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(command_lens([1, 2, 3, 4]), [4]);
        assert_eq!(command_lens([FULL, 1, FULL - 1, 1]), [1, 2, 1]);
        assert_eq!(command_lens([3 * FULL, 2 * FULL, 1, 1]), [1, 1, 2]);
    }
}
