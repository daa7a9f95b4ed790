//! Messages that the function has handed out and left to be read: which, how many at a time, and where they belong.

use deadpool_redis::redis::Value;

use super::{appending, error::Failure, lane::Waiting, reading};

/// Most bytes that one command asks for, unless a single message is larger.
const PORTION_BYTES_MAX: usize = 2 << 20;

/// A message that is to be read and put into a reply: of which operation, and where in it.
pub(super) struct Left {
    pub reply: usize,
    place: usize,
    id: Vec<u8>,
    is_bundle: bool,
    bytes: usize,
}

impl Left {
    pub fn of(parts: &[Value]) -> Option<Self> {
        let [Value::Int(reply), Value::Int(place), Value::BulkString(member)] = parts else {
            return None;
        };
        let (id, rest) = member.split_first_chunk::<16>()?;
        let (flags, bytes) = rest.split_first()?;
        Some(Self {
            reply: usize::try_from(*reply).ok()?,
            place: usize::try_from(*place).ok()?.checked_sub(1)?,
            id: id.to_vec(),
            is_bundle: appending::is_bundle(*flags),
            bytes: u32::from_be_bytes(*bytes.first_chunk()?) as usize,
        })
    }
}

/// An operation whose messages are yet to be read.
pub(super) struct Late {
    pub waiting: Waiting,
    pub reply: Value,
    pub left: Vec<Left>,
}

/// The ids of what is to be read, as many at a time as one command asks for.
pub(super) fn portions(late: &[Late]) -> Vec<Vec<&[u8]>> {
    let (mut portions, mut bytes) = (vec![Vec::new()], 0);
    for left in late.iter().flat_map(|late| &late.left) {
        bytes += left.bytes;
        if bytes > PORTION_BYTES_MAX && portions.last().is_some_and(|portion| !portion.is_empty()) {
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
pub(super) fn fill(late: &mut [Late], read: Vec<Value>) -> Result<(), Failure> {
    let mut read = read.into_iter();
    for Late { reply, left, .. } in late {
        let Value::Array(reply) = reply else {
            return Err(odd());
        };
        for left in left {
            let (message, place) = read.next().zip(reply.get_mut(left.place)).ok_or_else(odd)?;
            let is_bundle = matches!(&message, Value::BulkString(stored) if reading::is_bundle(stored));
            if is_bundle != left.is_bundle {
                return Err(Failure::Unheard("a bundle was opened before it was read".to_owned()));
            }
            *place = message;
        }
    }
    Ok(())
}

pub(super) fn odd() -> Failure {
    Failure::Wrong("Redis did not answer as the function does".to_owned())
}

#[cfg(test)]
mod tests {
    use tokio::{sync::oneshot, time::Instant};

    use super::{
        super::{operation::Operation, written::Answer},
        *,
    };

    fn late(is_bundle: [bool; 2]) -> Vec<Late> {
        let left = |(place, is_bundle)| Left {
            reply: 1,
            place,
            id: vec![place as u8],
            is_bundle,
            bytes: 0,
        };
        let operation = Operation::new("lease");
        vec![Late {
            waiting: Waiting {
                operation,
                until: Instant::now(),
                answer: Answer::One(oneshot::channel().0),
            },
            reply: Value::Array(vec![Value::Int(1), Value::Nil, Value::Int(2), Value::Nil]),
            left: [1, 3].into_iter().zip(is_bundle).map(left).collect(),
        }]
    }

    fn stored(first: u8) -> Value {
        Value::BulkString(vec![first, 7])
    }

    #[test]
    fn messages_come_to_the_places_that_were_left_for_them() {
        let mut waiting = late([false, true]);
        fill(&mut waiting, vec![Value::Nil, stored(0)]).unwrap();
        let whole = Value::Array(vec![Value::Int(1), Value::Nil, Value::Int(2), stored(0)]);
        assert_eq!(waiting[0].reply, whole, "one is over");
    }

    #[test]
    fn what_is_not_what_was_leased_is_not_delivered() {
        let gone = vec![stored(1), Value::Nil];
        for read in [vec![stored(1), stored(1)], vec![stored(0), stored(0)], gone] {
            let opened = fill(&mut late([false, true]), read);
            assert!(matches!(opened, Err(Failure::Unheard(_))), "{opened:?}");
        }
        let cut = fill(&mut late([false, true]), vec![stored(1)]);
        assert!(matches!(cut, Err(Failure::Wrong(_))), "{cut:?}");
    }

    #[test]
    fn a_command_asks_for_one_message_or_a_few_short_ones() {
        const FULL: usize = PORTION_BYTES_MAX;
        let portions_of = |bytes: [usize; 4]| {
            let left = bytes.iter().zip(0..).map(|(&bytes, id)| Left {
                reply: 1,
                place: 1,
                id: vec![id],
                is_bundle: false,
                bytes,
            });
            let late = vec![Late {
                left: left.collect(),
                ..late([false, false]).remove(0)
            }];
            portions(&late).iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(portions_of([1, 2, 3, 4]), [4]);
        assert_eq!(portions_of([FULL, 1, FULL - 1, 1]), [1, 2, 1]);
        assert_eq!(portions_of([3 * FULL, 2 * FULL, 1, 1]), [1, 1, 2]);
    }
}
