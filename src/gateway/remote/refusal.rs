//! Responses that are read as a whole: refusals, and bodies that are one message.

use std::{fmt, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::endpoint::{Response, shortened};
use crate::hops;

/// Bytes of a response that refuses a request.
pub const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// A response that refuses a message.
pub struct Refusal {
    pub status: u16,
    pub retry_after: Option<Duration>,
    /// The error of JSON-RPC in its body.
    pub error: Option<Box<RawValue>>,
    /// The beginning of its body. Empty where nobody is shown it.
    pub text: String,
    /// Its body names the session.
    names_session: bool,
}

impl Refusal {
    /// Reads a response.
    pub async fn read(response: Response) -> Self {
        #[derive(Deserialize)]
        struct Answer {
            error: Box<RawValue>,
        }
        let (status, hides_body) = (response.status().as_u16(), response.hides_body);
        let retry_after = response.headers().get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let body = read_body(response, REFUSAL_BYTES_MAX)
            .await
            .ok()
            .flatten()
            .unwrap_or_default();
        let error = serde_json::from_slice(&body).ok();
        Self {
            status,
            retry_after: retry_after.map(Duration::from_secs),
            error: error.map(|Answer { error }| error),
            text: match String::from_utf8_lossy(&body) {
                body if !hides_body => shortened(&body),
                // The words of a broker.
                body if body.contains(hops::LED_BACK) => hops::LED_BACK.to_owned(),
                _ => String::new(),
            },
            names_session: names_session(&String::from_utf8_lossy(&body)),
        }
    }

    /// The code of its error.
    pub fn code(&self) -> Option<i32> {
        #[derive(Deserialize)]
        struct Code {
            code: i32,
        }
        let error = self.error.as_ref()?;
        serde_json::from_str::<Code>(error.get()).ok().map(|Code { code }| code)
    }

    /// Whether the server has forgotten the session. The status for it is 404; servers made from an example of the
    /// TypeScript SDK answer with 400 and say what is missing.
    pub fn is_of_lost_session(&self, has_session: bool) -> bool {
        has_session && (self.status == 404 || self.status == 400 && self.names_session)
    }
}

fn names_session(text: &str) -> bool {
    text.to_ascii_lowercase().contains("session")
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP {}", self.status)?;
        match self.text.trim() {
            "" => Ok(()),
            text => write!(f, ": {text}"),
        }
    }
}

/// The media type of a body, in lower case and without parameters.
pub fn media_type(headers: &HeaderMap) -> &str {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    ["application/json", "text/event-stream"]
        .into_iter()
        .find(|known| known.eq_ignore_ascii_case(kind))
        .unwrap_or(kind)
}

/// Reads a body; `None` if it has more than `bytes_max` bytes.
///
/// # Errors
/// What broke the connection.
pub async fn read_body(mut response: Response, bytes_max: usize) -> Result<Option<Bytes>, String> {
    let mut body = BytesMut::new();
    while let Some(bytes) = response.next().await? {
        if body.len() + bytes.len() > bytes_max {
            return Ok(None);
        }
        body.extend_from_slice(&bytes);
    }
    Ok(Some(body.freeze()))
}
