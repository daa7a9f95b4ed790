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
    transport::inbound::INBOUND_TOTAL_TIMEOUT,
};

/// Bytes of requests that a session has not taken up: what comes then waits, and one that is longer waits until nothing
/// else does.
const QUEUED_BYTES_MAX: usize = ANSWER_BYTES_MAX;
/// Bytes that a request counts for beside its text.
const REQUEST_OVERHEAD_BYTES: usize = 1024;

/// What the requests of a session tell its peer. Each request makes room first, by [`Commands::room`]; what it tells after
/// that are a few commands for each request that is open.
pub enum SessionCommand {
    /// A frame; what belongs to it goes to `lane`, or to the stream of the session.
    Frame {
        text: String,
        lane: Option<Arc<Outbox>>,
        read_at: ReadAt,
        room: CommandPermit,
    },
    /// The caller that waited for this answer has gone without it.
    CallerLeft {
        exchange: Arc<Outbox>,
    },
    /// A reader of the stream of the session begins. Unless it goes on where another left off, what was pushed to that
    /// one and not acknowledged is pushed again.
    ReaderAttached {
        reader: u64,
        resumes: bool,
        room: CommandPermit,
    },
    /// This reader of the stream has left.
    ReaderDetached {
        reader: u64,
    },
    MessagesWritten(Vec<MessageId>),
    OutboxWritable,
    /// A sign of life.
    Touch,
    /// Answered when everything before it is done.
    Barrier(oneshot::Sender<()>),
    /// The broker stops: what is under way for this response comes to its end, and the response with it.
    Drain(DrainRequest),
}

/// A response that ends when what is under way for it, or for `all`, has.
pub struct DrainRequest {
    pub outbox: Arc<Outbox>,
    pub all_requests: bool,
}

/// The room of a request that its session has not taken up yet. Given back when it is dropped.
pub struct CommandPermit {
    _permit: OwnedSemaphorePermit,
}

/// The way of commands to the peer of a session.
pub struct CommandSender {
    sender: mpsc::UnboundedSender<SessionCommand>,
    permits: Arc<Semaphore>,
}

impl CommandSender {
    pub fn new() -> (Self, mpsc::UnboundedReceiver<SessionCommand>) {
        let (sender, received) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(QUEUED_BYTES_MAX));
        (Self { sender, permits: room }, received)
    }

    /// Waits, in the order of asking, until there is room for a request with a text of so many bytes.
    ///
    /// # Errors
    /// 503 when the session has not taken up enough of what came before for as long as a body may take.
    pub async fn reserve(&self, text_len: usize) -> Result<CommandPermit, Refusal> {
        let bytes = (text_len + REQUEST_OVERHEAD_BYTES).min(QUEUED_BYTES_MAX);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let acquired = timeout(
            INBOUND_TOTAL_TIMEOUT,
            Arc::clone(&self.permits).acquire_many_owned(bytes),
        )
        .await;
        match acquired {
            Ok(Ok(permit)) => Ok(CommandPermit { _permit: permit }),
            _ => Err(Refusal::unavailable(
                "this session is busy with what was sent before: try again later",
            )),
        }
    }

    /// The commands are obeyed in their order. Without effect when the session is over.
    pub fn send(&self, command: SessionCommand) {
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

    fn frame(text_len: usize, room: CommandPermit) -> SessionCommand {
        SessionCommand::Frame {
            text: "x".repeat(text_len),
            lane: None,
            read_at: ReadAt::default(),
            room,
        }
    }

    fn reserve_now(commands: &CommandSender, text_len: usize) -> Option<CommandPermit> {
        unconstrained(commands.reserve(text_len))
            .now_or_never()
            .and_then(Result::ok)
    }

    #[actix_rt::test]
    async fn requests_wait_while_a_session_does_not_take_up_those_before() {
        let (commands, mut received) = CommandSender::new();
        let mut len = 0;
        while let Some(room) = reserve_now(&commands, 0) {
            commands.send(frame(0, room));
            len += 1;
        }
        assert_eq!(len, QUEUED_BYTES_MAX / REQUEST_OVERHEAD_BYTES);
        drop(received.recv().await);
        assert!(
            reserve_now(&commands, 1).is_none(),
            "there is room for one without a text"
        );
        assert!(reserve_now(&commands, 0).is_some());
    }

    #[actix_rt::test]
    async fn a_request_longer_than_the_bound_waits_until_nothing_else_does() {
        let (commands, mut received) = CommandSender::new();
        let room = reserve_now(&commands, 0).unwrap();
        commands.send(frame(0, room));
        let long = commands.reserve(10 * QUEUED_BYTES_MAX);
        futures_util::pin_mut!(long);
        assert!((&mut long).now_or_never().is_none());
        assert!(reserve_now(&commands, 0).is_none(), "later requests wait behind it");
        drop(received.recv().await);
        assert!(long.now_or_never().is_some_and(|room| room.is_ok()));
    }
}
