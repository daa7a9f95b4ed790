//! The body of a POST: bounded before it is buffered, and by time.

use std::time::Duration;

use actix_web::{
    http::{
        StatusCode,
        header::{CONTENT_LENGTH, HeaderMap},
    },
    web::{Bytes, BytesMut, Payload},
};
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, timeout_at};

use super::headers::Refusal;
use crate::mcp::rpc::{INVALID_REQUEST, RpcError};

/// How long the next bytes of a body are waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a whole body may take.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Reads a body of at most `len_max` bytes.
///
/// # Errors
/// 413 when it is longer, without waiting for the rest; 408 when it does not come; 400 when it breaks off.
pub async fn read(headers: &HeaderMap, mut payload: Payload, len_max: usize) -> Result<Bytes, Refusal> {
    let told: Option<usize> = headers
        .get(CONTENT_LENGTH)
        .and_then(|len| len.to_str().ok())
        .and_then(|len| len.parse().ok());
    if told.is_some_and(|len| len > len_max) {
        return Err(too_large(len_max));
    }
    let mut body = Body::None;
    let mut end = None;
    loop {
        // Mostly the body came with the head, and no clock has to be looked at.
        let next = if let Some(next) = payload.next().now_or_never() {
            next
        } else {
            let now = Instant::now();
            let end = *end.get_or_insert(now + TIME_MAX);
            timeout_at(end.min(now + PATIENCE), payload.next()).await.map_err(|_| {
                let error = RpcError::new(INVALID_REQUEST, "the body came too slowly");
                Refusal::new(StatusCode::REQUEST_TIMEOUT, error).closing()
            })?
        };
        match next {
            Some(Ok(chunk)) => {
                if body.len() + chunk.len() > len_max {
                    return Err(too_large(len_max));
                }
                body = body.and(chunk);
            }
            None => return Ok(body.finish()),
            Some(Err(error)) => {
                let error = RpcError::new(INVALID_REQUEST, format!("the body broke off: {error}"));
                return Err(Refusal::new(StatusCode::BAD_REQUEST, error));
            }
        }
    }
}

fn too_large(len_max: usize) -> Refusal {
    let error = RpcError::new(
        INVALID_REQUEST,
        format!("the body is too large: at most {len_max} bytes"),
    );
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, error).closing()
}

/// What has come so far. Most bodies come in one piece, which is taken as it is.
enum Body {
    None,
    Whole(Bytes),
    Parts(BytesMut),
}

impl Body {
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Whole(chunk) => chunk.len(),
            Self::Parts(parts) => parts.len(),
        }
    }

    fn and(self, chunk: Bytes) -> Self {
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
