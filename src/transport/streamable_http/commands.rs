//! What the requests of an HTTP session tell its peer: in order, and bounded.

use std::sync::Arc;

use actors::{model::MessageId, session::ReadAt};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::timeout,
};

use super::headers::Refusal;
use crate::{
    mcp::{Outbox, outbox::ANSWER_BYTES_MAX},
    transport::inbound::INBOUND_TIME_MAX,
};

/// Bytes of requests that a session has not taken up: what comes then waits, and one that is longer waits until nothing
/// else does.
const WAITING_BYTES_MAX: usize = ANSWER_BYTES_MAX;
/// Bytes that a request counts for beside its text.
const REQUEST_BYTES: usize = 1024;

/// What the requests of a session tell its peer. Each request makes room first, by [`Commands::room`]; what it tells after
/// that are a few commands for each request that is open.
pub enum Command {
    /// A frame; what belongs to it goes to `lane`, or to the stream of the session.
    Frame {
        text: String,
        lane: Option<Arc<Outbox>>,
        read_at: ReadAt,
        room: Room,
    },
    /// The caller that waited for this answer has gone without it.
    Left {
        exchange: Arc<Outbox>,
    },
    /// A reader of the stream of the session begins. Unless it goes on where another left off, what was pushed to that
    /// one and not acknowledged is pushed again.
    Listening {
        reader: u64,
        resumes: bool,
        room: Room,
    },
    /// This reader of the stream has left.
    Deaf {
        reader: u64,
    },
    Written(Vec<MessageId>),
    Writable,
    /// A sign of life.
    Alive,
    /// Answered when everything before it is done.
    Caught(oneshot::Sender<()>),
    /// The broker stops: what is under way for this response comes to its end, and the response with it.
    WindUp(WindingUp),
}

/// A response that ends when what is under way for it, or for `all`, has.
pub struct WindingUp {
    pub exchange: Arc<Outbox>,
    pub all: bool,
}

/// The room of a request that its session has not taken up yet. Given back when it is dropped.
pub struct Room {
    _permit: OwnedSemaphorePermit,
}

/// The way of commands to the peer of a session.
pub struct Commands {
    sender: mpsc::UnboundedSender<Command>,
    room: Arc<Semaphore>,
}

impl Commands {
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Command>) {
        let (sender, received) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(WAITING_BYTES_MAX));
        (Self { sender, room }, received)
    }

    /// Waits, in the order of asking, until there is room for a request with a text of so many bytes.
    ///
    /// # Errors
    /// 503 when the session has not taken up enough of what came before for as long as a body may take.
    pub async fn room(&self, text_len: usize) -> Result<Room, Refusal> {
        let bytes = (text_len + REQUEST_BYTES).min(WAITING_BYTES_MAX);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let acquired = timeout(INBOUND_TIME_MAX, Arc::clone(&self.room).acquire_many_owned(bytes)).await;
        match acquired {
            Ok(Ok(permit)) => Ok(Room { _permit: permit }),
            _ => Err(Refusal::unavailable(
                "this session is busy with what was sent before: try again later",
            )),
        }
    }

    /// The commands are obeyed in their order. Without effect when the session is over.
    pub fn tell(&self, command: Command) {
        let _ = self.sender.send(command);
    }

    /// Whether the peer that obeyed has gone.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::task::unconstrained;

    use super::*;

    fn frame(text_len: usize, room: Room) -> Command {
        Command::Frame {
            text: "x".repeat(text_len),
            lane: None,
            read_at: ReadAt::default(),
            room,
        }
    }

    fn room_now(commands: &Commands, text_len: usize) -> Option<Room> {
        unconstrained(commands.room(text_len))
            .now_or_never()
            .and_then(Result::ok)
    }

    #[actix_rt::test]
    async fn requests_wait_while_a_session_does_not_take_up_those_before() {
        let (commands, mut received) = Commands::new();
        let mut len = 0;
        while let Some(room) = room_now(&commands, 0) {
            commands.tell(frame(0, room));
            len += 1;
        }
        assert_eq!(len, WAITING_BYTES_MAX / REQUEST_BYTES);
        drop(received.recv().await);
        assert!(room_now(&commands, 1).is_none(), "there is room for one without a text");
        assert!(room_now(&commands, 0).is_some());
    }

    #[actix_rt::test]
    async fn a_request_longer_than_the_bound_waits_until_nothing_else_does() {
        let (commands, mut received) = Commands::new();
        let room = room_now(&commands, 0).unwrap();
        commands.tell(frame(0, room));
        let long = commands.room(10 * WAITING_BYTES_MAX);
        futures_util::pin_mut!(long);
        assert!((&mut long).now_or_never().is_none());
        assert!(room_now(&commands, 0).is_none(), "later requests wait behind it");
        drop(received.recv().await);
        assert!(long.now_or_never().is_some_and(|room| room.is_ok()));
    }
}
