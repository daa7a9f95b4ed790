//! The channel from the requests of an HTTP session to its peer: ordered and bounded.

use std::sync::Arc;

use actors::{model::MessageId, session::ReadAt};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::timeout,
};

use super::refusal::Refusal;
use crate::transport::inbound::INBOUND_TOTAL_TIMEOUT;
use api::mcp::{Outbox, outbox::ANSWER_BYTES_MAX, owned_frame::OwnedFrame};

/// Bytes of requests that a session has not handled yet. Further requests wait; a longer one waits until the queue is
/// empty.
const QUEUED_BYTES_MAX: usize = ANSWER_BYTES_MAX;
/// Bytes that a request counts besides its text.
const REQUEST_OVERHEAD_BYTES: usize = 1024;

/// A command to the peer of a session. Each request first takes a permit with [`CommandSender::reserve`]; its further
/// commands are few.
pub enum SessionCommand {
    /// A frame. Answers go to `reply_outbox`, or to the stream of the session.
    Frame {
        frame: OwnedFrame,
        reply_outbox: Option<Arc<Outbox>>,
        read_at: ReadAt,
        permit: CommandPermit,
    },
    /// The caller that waited for this answer has disconnected.
    CallerLeft {
        exchange: Arc<Outbox>,
    },
    /// A reader attaches to the stream of the session. Unless it resumes where the previous one stopped, unacknowledged
    /// pushes are sent again.
    ReaderAttached {
        reader: u64,
        resumes: bool,
        permit: CommandPermit,
    },
    /// A reader has detached from the stream of the session.
    ReaderDetached {
        reader: u64,
    },
    MessagesWritten(Vec<MessageId>),
    OutboxWritable,
    /// Counts as a heartbeat of the client.
    Touch,
    /// Answered when all earlier commands are done.
    Barrier(oneshot::Sender<()>),
    /// The broker stops: calls in progress for this response finish, then the response ends.
    Drain(DrainRequest),
}

/// A response that ends when its calls in progress have finished; with `all_requests`, all calls of the session.
pub struct DrainRequest {
    pub outbox: Arc<Outbox>,
    pub all_requests: bool,
}

/// Permit for one queued request. It is released on drop.
pub struct CommandPermit {
    _permit: OwnedSemaphorePermit,
}

/// The sending half of a session's command channel.
pub struct CommandSender {
    sender: mpsc::UnboundedSender<SessionCommand>,
    permits: Arc<Semaphore>,
}

impl CommandSender {
    /// A channel: the sender, and the receiver for the session's task.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<SessionCommand>) {
        let (sender, received) = mpsc::unbounded_channel();
        let permit = Arc::new(Semaphore::new(QUEUED_BYTES_MAX));
        (
            Self {
                sender,
                permits: permit,
            },
            received,
        )
    }

    /// Waits in order for a permit for a request with `text_len` bytes.
    ///
    /// # Errors
    /// 503 when the session does not handle earlier requests within [`INBOUND_TOTAL_TIMEOUT`].
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
                "this session is busy with earlier requests: try again later",
            )),
        }
    }

    /// Sends a command. Commands are handled in order; after the end of the session they are dropped.
    pub fn send(&self, command: SessionCommand) {
        let _ = self.sender.send(command);
    }

    /// Whether the session's task has ended.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::task::unconstrained;

    use super::*;
    use api::mcp::rpc::Incoming;

    fn frame(text_len: usize, permit: CommandPermit) -> SessionCommand {
        SessionCommand::Frame {
            frame: OwnedFrame::new(&"x".repeat(text_len), Ok(&Incoming::Batch(Vec::new()))),
            reply_outbox: None,
            read_at: ReadAt::default(),
            permit,
        }
    }

    fn reserve_now(commands: &CommandSender, text_len: usize) -> Option<CommandPermit> {
        unconstrained(commands.reserve(text_len))
            .now_or_never()
            .and_then(Result::ok)
    }

    #[actix_rt::test]
    async fn requests_wait_while_a_session_has_not_handled_earlier_ones() {
        let (commands, mut received) = CommandSender::new();
        let mut len = 0;
        while let Some(permit) = reserve_now(&commands, 0) {
            commands.send(frame(0, permit));
            len += 1;
        }
        assert_eq!(len, QUEUED_BYTES_MAX / REQUEST_OVERHEAD_BYTES);
        drop(received.recv().await);
        assert!(
            reserve_now(&commands, 1).is_none(),
            "only a request without a text fits"
        );
        assert!(reserve_now(&commands, 0).is_some());
    }

    #[actix_rt::test]
    async fn a_request_beyond_the_bound_waits_until_the_queue_is_empty() {
        let (commands, mut received) = CommandSender::new();
        let permit = reserve_now(&commands, 0).unwrap();
        commands.send(frame(0, permit));
        let long = commands.reserve(10 * QUEUED_BYTES_MAX);
        futures_util::pin_mut!(long);
        assert!((&mut long).now_or_never().is_none());
        assert!(reserve_now(&commands, 0).is_none(), "later requests wait behind it");
        drop(received.recv().await);
        assert!(long.now_or_never().is_some_and(|permit| permit.is_ok()));
    }
}
