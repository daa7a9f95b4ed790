//! Reads the body of a request: bounded in bytes before it is buffered, and in time.

use std::{fmt, rc::Rc};

use actix_web::{
    error::PayloadError,
    http::{
        StatusCode,
        header::{CONTENT_LENGTH, HeaderMap},
    },
    web::{Bytes, BytesMut},
};
use actors::{clock::now, silence};
use futures_util::{FutureExt, Stream, StreamExt};
use tokio::time::timeout;

use super::{
    SocketState,
    inbound::{INBOUND_IDLE_TIMEOUT, INBOUND_TOTAL_TIMEOUT, UNRESERVED_LEN_MAX},
};
use api::budget::Reservation;

/// The chunks of a body.
pub trait BodyStream: Stream<Item = Result<Bytes, PayloadError>> + Unpin {}

impl<T: Stream<Item = Result<Bytes, PayloadError>> + Unpin> BodyStream for T {}

/// Why a body is not read to its end. After all but `Incomplete`, nothing more may be read from the connection.
#[derive(Debug)]
pub enum BodyError {
    TooLarge { len_max: usize },
    TooSlow,
    Incomplete(PayloadError),
    Overloaded,
}

impl BodyError {
    /// The HTTP status of the refusal.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Incomplete(_) => StatusCode::BAD_REQUEST,
            Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { len_max } => write!(f, "the body is too large: at most {len_max} bytes"),
            Self::TooSlow => f.write_str("the body came too slowly"),
            Self::Incomplete(error) => write!(f, "the body is incomplete: {error}"),
            Self::Overloaded => f.write_str("too many bodies are being received: try again later"),
        }
    }
}

/// Reads a body of at most `len_max` bytes. A body over [`UNRESERVED_LEN_MAX`] waits for `reservation`, which then
/// holds its bytes.
///
/// # Errors
/// `TooLarge` without waiting for the rest, `TooSlow` after a timeout, `Incomplete` when the connection breaks,
/// `Overloaded` when the reservation takes longer than a body may.
pub async fn read(
    headers: &HeaderMap,
    mut payload: impl BodyStream,
    len_max: usize,
    mut reservation: BodyReservation<'_>,
) -> Result<Bytes, BodyError> {
    let content_length: Option<usize> = headers
        .get(CONTENT_LENGTH)
        .and_then(|len| len.to_str().ok())
        .and_then(|len| len.parse().ok());
    if content_length.is_some_and(|len| len > len_max) {
        return Err(BodyError::TooLarge { len_max });
    }
    reservation.reserve(content_length.unwrap_or(0)).await?;
    let mut body = Buffered::None;
    let mut started_ms = None;
    loop {
        // Most bodies arrive with the head; then the clock is not read.
        let next = if let Some(next) = payload.next().now_or_never() {
            next
        } else {
            let started_ms = *started_ms.get_or_insert_with(|| now().mono_ms);
            next_chunk(&mut payload, started_ms).await?
        };
        match next {
            Some(Ok(chunk)) => {
                let len = body.len() + chunk.len();
                if len > len_max {
                    return Err(BodyError::TooLarge { len_max });
                }
                if content_length.is_none_or(|content_length| len > content_length) && len > UNRESERVED_LEN_MAX {
                    // The final length is unknown.
                    reservation.reserve(len_max).await?;
                }
                body = body.append(chunk);
            }
            None => return Ok(body.finish()),
            Some(Err(error)) => return Err(BodyError::Incomplete(error)),
        }
    }
}

/// Returns the next chunk of a body that started at `started_ms`. Time in which this thread did not poll does not
/// count.
async fn next_chunk(
    payload: &mut impl BodyStream,
    started_ms: u64,
) -> Result<Option<Result<Bytes, PayloadError>>, BodyError> {
    let waits_since_ms = now().mono_ms;
    loop {
        let now = now();
        let idle_left = INBOUND_IDLE_TIMEOUT.saturating_sub(silence::peer_silence(waits_since_ms, now));
        let total_left = INBOUND_TOTAL_TIMEOUT.saturating_sub(silence::peer_silence(started_ms, now));
        if let Ok(next) = timeout(idle_left.min(total_left), payload.next()).await {
            return Ok(next);
        }
        if idle_left.is_zero() || total_left.is_zero() {
            return Err(BodyError::TooSlow);
        }
    }
}

/// The reservation of one body, and the socket that it arrives on.
pub struct BodyReservation<'a> {
    pub reservation: &'a mut Reservation,
    pub socket: Rc<SocketState>,
}

impl BodyReservation<'_> {
    /// Waits for a reservation of `len` bytes. The socket is not read meanwhile.
    async fn reserve(&mut self, len: usize) -> Result<(), BodyError> {
        if len <= UNRESERVED_LEN_MAX {
            return Ok(());
        }
        let Self { reservation, socket } = self;
        socket.pause_reading();
        let reserved = timeout(INBOUND_TOTAL_TIMEOUT, reservation.grow_to(len)).await;
        socket.resume_reading(reserved.is_ok());
        reserved.map_err(|_| BodyError::Overloaded)
    }
}

impl Drop for BodyReservation<'_> {
    /// The body is complete or refused: reading continues without a reservation.
    fn drop(&mut self) {
        self.socket.resume_reading(false);
    }
}

/// What has arrived so far. Most bodies arrive in one chunk, which is used as it is.
enum Buffered {
    None,
    Whole(Bytes),
    Parts(BytesMut),
}

impl Buffered {
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Whole(chunk) => chunk.len(),
            Self::Parts(parts) => parts.len(),
        }
    }

    fn append(self, chunk: Bytes) -> Self {
        match self {
            Self::None => Self::Whole(chunk),
            Self::Whole(first) => {
                let mut parts = BytesMut::with_capacity((first.len() + chunk.len()) * 2);
                parts.extend_from_slice(&first);
                parts.extend_from_slice(&chunk);
                Self::Parts(parts)
            }
            Self::Parts(mut parts) => {
                parts.extend_from_slice(&chunk);
                Self::Parts(parts)
            }
        }
    }

    fn finish(self) -> Bytes {
        match self {
            Self::None => Bytes::new(),
            Self::Whole(chunk) => chunk,
            Self::Parts(parts) => parts.freeze(),
        }
    }
}
