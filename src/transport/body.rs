//! The body of a request: bounded before it is buffered, and by time.

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
use crate::budget::Reservation;

/// The chunks of a body as they come.
pub trait BodyStream: Stream<Item = Result<Bytes, PayloadError>> + Unpin {}

impl<T: Stream<Item = Result<Bytes, PayloadError>> + Unpin> BodyStream for T {}

/// Why a body is not read to its end. Except when it broke off, nothing more is to be read of its connection.
#[derive(Debug)]
pub enum BodyError {
    TooLarge { len_max: usize },
    TooSlow,
    Incomplete(PayloadError),
    Overloaded,
}

impl BodyError {
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
            Self::Incomplete(error) => write!(f, "the body broke off: {error}"),
            Self::Overloaded => f.write_str("too many bodies are being received: try again later"),
        }
    }
}

/// Reads a body of at most `len_max` bytes. What is not small waits for `room`, which holds it from then on.
///
/// # Errors
/// 413 when it is longer, without waiting for the rest; 408 when it does not come; 400 when it breaks off; 503 when there
/// is no room for it for as long as a body may take.
pub async fn read(
    headers: &HeaderMap,
    mut payload: impl BodyStream,
    len_max: usize,
    mut room: BodyReservation<'_>,
) -> Result<Bytes, BodyError> {
    let told: Option<usize> = headers
        .get(CONTENT_LENGTH)
        .and_then(|len| len.to_str().ok())
        .and_then(|len| len.parse().ok());
    if told.is_some_and(|len| len > len_max) {
        return Err(BodyError::TooLarge { len_max });
    }
    room.reserve(told.unwrap_or(0)).await?;
    let mut body = Buffered::None;
    let mut began_ms = None;
    loop {
        // Mostly the body came with the head, and no clock has to be looked at.
        let next = if let Some(next) = payload.next().now_or_never() {
            next
        } else {
            let began_ms = *began_ms.get_or_insert_with(|| now().mono_ms);
            next_chunk(&mut payload, began_ms).await?
        };
        match next {
            Some(Ok(chunk)) => {
                let len = body.len() + chunk.len();
                if len > len_max {
                    return Err(BodyError::TooLarge { len_max });
                }
                if told.is_none_or(|told| len > told) && len > UNRESERVED_LEN_MAX {
                    // Nobody knows how long it becomes.
                    room.reserve(len_max).await?;
                }
                body = body.append(chunk);
            }
            None => return Ok(body.finish()),
            Some(Err(error)) => return Err(BodyError::Incomplete(error)),
        }
    }
}

/// The next bytes of a body that began to come then. Time in which nobody listened does not count.
async fn next_chunk(
    payload: &mut impl BodyStream,
    began_ms: u64,
) -> Result<Option<Result<Bytes, PayloadError>>, BodyError> {
    let waits_since_ms = now().mono_ms;
    loop {
        let now = now();
        let patience = INBOUND_IDLE_TIMEOUT.saturating_sub(silence::peer_silence(waits_since_ms, now));
        let left = INBOUND_TOTAL_TIMEOUT.saturating_sub(silence::peer_silence(began_ms, now));
        if let Ok(next) = timeout(patience.min(left), payload.next()).await {
            return Ok(next);
        }
        if patience.is_zero() || left.is_zero() {
            return Err(BodyError::TooSlow);
        }
    }
}

/// The room of one body, and the line by which it comes.
pub struct BodyReservation<'a> {
    pub reservation: &'a mut Reservation,
    pub socket: Rc<SocketState>,
}

impl BodyReservation<'_> {
    /// Waits for room for a body of so many bytes. Nothing more is read meanwhile.
    async fn reserve(&mut self, len: usize) -> Result<(), BodyError> {
        if len <= UNRESERVED_LEN_MAX {
            return Ok(());
        }
        let Self {
            reservation: hold,
            socket: line,
        } = self;
        line.pause_reading();
        let taken = timeout(INBOUND_TOTAL_TIMEOUT, hold.grow_to(len)).await;
        line.resume_reading(taken.is_ok());
        taken.map_err(|_| BodyError::Overloaded)
    }
}

impl Drop for BodyReservation<'_> {
    /// The body is there, or refused.
    fn drop(&mut self) {
        self.socket.resume_reading(false);
    }
}

/// What has come so far. Most bodies come in one piece, which is taken as it is.
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
