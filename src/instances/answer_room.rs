//! Room for the answers of a backend in the budget for outgoing bytes, from the moment when they are read until they are in
//! the outboxes of their callers, which count them from then on.
//!
//! An answer without room waits in the reader of its connection, which reads nothing else meanwhile. After [`ROOM_TIME_MAX`]
//! its call ends without it, and for a while further ones do not wait.

use std::{cell::Cell, rc::Rc, sync::Arc, time::Duration};

use actors::{
    gateway::{CallEnd, CallNumber, FrameLink},
    model::ProjectId,
    session::UNRESERVED_BYTES_MAX,
};
use bytes::Bytes;
use tokio::time::{Instant, timeout};

use api::budget::{ByteBudget, Reservation};

/// How long an answer waits for room. Clients that read make room in far less.
const ROOM_TIME_MAX: Duration = Duration::from_secs(2);
/// How long answers do not wait after one has waited in vain, unless one as large gets room before.
const STARVED_TIME_MAX: Duration = Duration::from_secs(30);

/// The room of the answers of one instance.
pub struct AnswerRoom {
    budget: Arc<ByteBudget>,
    project: ProjectId,
    time_max: Duration,
    /// An answer got no room in time. Until one as large does, answers do not wait: they would hold up those behind them.
    starved: Cell<Option<Starved>>,
}

/// Answers do not wait.
#[derive(Clone, Copy, Debug)]
struct Starved {
    /// Bytes of the largest answer that got no room.
    len: usize,
    until: Instant,
}

/// Result or error of a call, which has no room yet.
pub struct WaitingAnswer {
    pub number: CallNumber,
    pub outcome: Result<Box<[u8]>, Box<[u8]>>,
}

/// Bytes that hold their room until they are dropped.
struct Roomed {
    bytes: Box<[u8]>,
    _room: Reservation,
}

impl AsRef<[u8]> for Roomed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AnswerRoom {
    /// Room in the share of this project.
    pub fn new(budget: &Arc<ByteBudget>, project: &ProjectId) -> Rc<Self> {
        Rc::new(Self {
            budget: Arc::clone(budget),
            project: project.clone(),
            time_max: ROOM_TIME_MAX,
            starved: Cell::default(),
        })
    }

    /// A copy of an answer, if there is room for it now. Up to [`UNRESERVED_BYTES_MAX`] bytes need none.
    pub fn copy(&self, answer: &[u8]) -> Option<Bytes> {
        if answer.len() <= UNRESERVED_BYTES_MAX {
            return Some(Bytes::copy_from_slice(answer));
        }
        let mut room = Reservation::new(&self.budget, &self.project);
        room.try_grow_to(answer.len()).then(|| {
            self.note_room(answer.len());
            roomed(answer.into(), room)
        })
    }

    /// Ends a call with an answer that waits for room, or without it.
    pub async fn deliver(&self, link: &FrameLink, answer: WaitingAnswer) {
        let WaitingAnswer { number, outcome } = answer;
        let (Ok(bytes) | Err(bytes)) = &outcome;
        let mut room = Reservation::new(&self.budget, &self.project);
        let len = bytes.len();
        let has_room = !self.is_starved() && timeout(self.time_max, room.grow_to(len)).await.is_ok();
        if has_room {
            self.note_room(len);
        } else {
            self.note_no_room(len);
        }
        let end = match outcome {
            _ if !has_room => CallEnd::NoRoom,
            Ok(bytes) => CallEnd::Result(roomed(bytes, room)),
            Err(bytes) => CallEnd::Error(roomed(bytes, room)),
        };
        link.end(number, end);
    }

    fn is_starved(&self) -> bool {
        self.starved.get().is_some_and(|starved| Instant::now() < starved.until)
    }

    /// An answer of this size got room.
    fn note_room(&self, len: usize) {
        let starved = self.starved.get().filter(|starved| len < starved.len);
        self.starved.set(starved);
    }

    /// An answer of this size got no room.
    fn note_no_room(&self, len: usize) {
        let starved = match self.starved.get().filter(|_| self.is_starved()) {
            Some(Starved { len: other, until }) => Starved {
                len: len.max(other),
                until,
            },
            None => Starved {
                len,
                until: Instant::now() + STARVED_TIME_MAX,
            },
        };
        self.starved.set(Some(starved));
    }
}

/// Answers that wait for room.
pub struct Undelivered {
    link: Arc<FrameLink>,
    room: Rc<AnswerRoom>,
    answers: Vec<WaitingAnswer>,
}

impl Undelivered {
    /// Answers of this link.
    pub fn new(link: &Arc<FrameLink>, room: &Rc<AnswerRoom>, answers: Vec<WaitingAnswer>) -> Self {
        Self {
            link: Arc::clone(link),
            room: Rc::clone(room),
            answers,
        }
    }

    /// Ends the calls once there is room for their answers, or without them.
    pub async fn deliver(self) {
        for answer in self.answers {
            self.room.deliver(&self.link, answer).await;
        }
    }
}

fn roomed(bytes: Box<[u8]>, room: Reservation) -> Bytes {
    Bytes::from_owner(Roomed { bytes, _room: room })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use actors::gateway::{Call, CallEvent, CallPurpose, Link};
    use futures_util::{FutureExt, poll};

    use super::*;

    const SHARE: usize = 4 * UNRESERVED_BYTES_MAX;

    fn open(link: &Arc<FrameLink>) -> Call {
        Arc::clone(link).open(CallPurpose::Caller, &mut |_, _| {}).unwrap()
    }

    fn waiting(call: &Call, len: usize) -> WaitingAnswer {
        WaitingAnswer {
            number: call.number(),
            outcome: Ok(vec![b' '; len].into()),
        }
    }

    fn end_of(call: &mut Call) -> CallEnd {
        match call.next().now_or_never() {
            Some(CallEvent::Ended(end)) => end,
            other => panic!("the call has ended: {other:?}"),
        }
    }

    #[actix_web::test]
    async fn an_answer_has_room_until_it_is_dropped_and_waits_for_it() {
        let budget = ByteBudget::new(2 * SHARE, SHARE);
        let room = AnswerRoom::new(&budget, &ProjectId::default_project());
        let held = room.copy(&vec![0; SHARE]).unwrap();
        assert!(
            room.copy(&vec![0; UNRESERVED_BYTES_MAX]).is_some(),
            "little needs no room"
        );
        assert!(room.copy(&vec![0; UNRESERVED_BYTES_MAX + 1]).is_none());

        let link = FrameLink::new();
        let mut call = open(&link);
        {
            let mut delivery = pin!(room.deliver(&link, waiting(&call, SHARE)));
            assert!(poll!(&mut delivery).is_pending());
            drop(held);
            delivery.await;
        }
        let CallEnd::Result(answer) = end_of(&mut call) else {
            panic!("it has a result")
        };
        assert_eq!(answer.len(), SHARE);
        assert!(
            room.copy(&vec![0; UNRESERVED_BYTES_MAX + 1]).is_none(),
            "the answer has the room"
        );
        drop(answer);
        assert!(room.copy(&vec![0; UNRESERVED_BYTES_MAX + 1]).is_some());
    }

    #[actix_web::test]
    async fn without_room_a_call_ends_after_a_while_and_the_next_at_once() {
        let room = AnswerRoom {
            budget: ByteBudget::new(2 * SHARE, SHARE),
            project: ProjectId::default_project(),
            time_max: Duration::from_millis(1),
            starved: Cell::default(),
        };
        let held = room.copy(&vec![0; SHARE]).unwrap();
        let link = FrameLink::new();
        let (mut first, mut second) = (open(&link), open(&link));
        room.deliver(&link, waiting(&first, SHARE)).await;
        assert!(matches!(end_of(&mut first), CallEnd::NoRoom));
        assert!(room.deliver(&link, waiting(&second, SHARE)).now_or_never().is_some());
        assert!(matches!(end_of(&mut second), CallEnd::NoRoom));
        drop(held);
        assert!(room.copy(&vec![0; SHARE - 1]).is_some());
        assert!(
            room.is_starved(),
            "a smaller answer says nothing of room for the larger"
        );
        assert!(room.copy(&vec![0; SHARE]).is_some());
        assert!(!room.is_starved(), "answers wait again");
    }
}
