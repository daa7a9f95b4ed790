//! What the task of a lasting connection needs to know of its kind: how bytes become frames of MCP, and how the
//! connection ends.

use tokio::io::{AsyncRead, AsyncWrite};

use super::closing::Closing;
use api::mcp::{FrameOutcome, Peer, rpc::RpcError};

/// What a decoder found in the bytes of a peer.
#[derive(Debug)]
pub enum WireEvent<'a> {
    /// A complete frame of MCP.
    Text(&'a str),
    /// A frame that is refused, and the id of its request as JSON, if it is known. The connection stays open.
    Refused {
        id: Option<String>,
        error: RpcError,
    },
    /// A ping with its payload.
    Ping(&'a [u8]),
    Pong,
    /// The peer closes, with an optional status code.
    Close(Option<u16>),
}

/// Decodes a stream of bytes into frames. It buffers at most one incomplete frame, within a bound.
pub trait Decode {
    /// Decodes the bytes of one read, perhaps in place. Calls `on` for each event, in order.
    ///
    /// # Errors
    /// The connection has to be closed.
    fn decode(&mut self, bytes: &mut [u8], on: impl FnMut(WireEvent<'_>)) -> Result<(), Closing>;

    /// Bytes buffered of an incomplete frame.
    fn buffered_len(&self) -> usize;

    /// Bytes that the incomplete frame may need, as far as known.
    fn needed_len(&self) -> usize;

    /// Allocates the incomplete frame, once its bytes are reserved.
    fn reserve(&mut self);

    /// Frees unused capacity.
    fn shrink(&mut self);
}

/// What became of a frame.
pub enum Served {
    Frame(FrameOutcome),
    /// The frame, and all that follow, are of another client, which has a connection of its own: see
    /// [`LastingConnection::run`](super::LastingConnection::run).
    NextClient,
}

/// One kind of lasting connection.
pub trait Wire {
    type Stream: AsyncRead + AsyncWrite + Unpin;
    type Decoder: Decode;

    /// Peers are pinged, are lost when they are silent, and confirm the end of the connection (RFC 6455). Without control
    /// frames the kernel reports a lost peer, so that an open connection is a sign of life, and a peer that ends its
    /// output still gets its answers.
    const HAS_CONTROL_FRAMES: bool;

    /// Serves one frame.
    fn serve(&mut self, peer: &mut Peer, text: &str) -> Served {
        Served::Frame(peer.handle_frame(text))
    }

    /// Called after the peer was polled, which may have changed its session.
    fn observe(&mut self, _peer: &Peer) {}

    /// Whether the peer has closed the connection, so that it reads no answers, also when nothing has read that yet.
    fn is_gone(stream: &Self::Stream) -> bool;

    /// Whether all output has to be written before the connection may end, however long the peer takes to read it.
    fn writes_all(&self) -> bool {
        false
    }

    /// The bytes of a ping.
    fn ping() -> Vec<u8> {
        Vec::new()
    }

    /// The bytes that answer a ping.
    fn pong(_payload: &[u8]) -> Vec<u8> {
        Vec::new()
    }

    /// The last bytes of a connection that the broker closes.
    fn last(closing: &Closing) -> Vec<u8>;
}
