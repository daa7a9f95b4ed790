//! Responses that are read as a whole: refusals, and bodies that are one message.

use std::{fmt, time::Duration};

use actors::gateway::CallNumber;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::endpoint::{Response, shortened};
use crate::{
    hops,
    instances::{
        message::{self, AnswerTo, Message},
        probe::{error_code, error_text},
    },
};
use api::mcp::rpc;

/// Bytes of a response that refuses a request.
pub const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// Bytes from which on a message is long. A message beyond them is read when it is its turn.
pub const LONG_LEN: usize = 64 * 1024;
/// Long messages of one server that are read at the same time.
pub const LONG_TURNS: usize = 4;

/// A response that refuses a message.
pub struct Refusal {
    pub status: u16,
    pub retry_after: Option<Duration>,
    /// The error of JSON-RPC in its body.
    pub error: Option<Box<RawValue>>,
    /// The beginning of its body. Empty where it is not shown.
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
        let error = error.filter(|Answer { error }| error.get() != "null");
        let body = String::from_utf8_lossy(&body);
        Self {
            status,
            retry_after: retry_after.map(Duration::from_secs),
            error: error.map(|Answer { error }| error),
            names_session: names_session(&body),
            text: if !hides_body {
                shortened(&body)
            } else if body.contains(hops::LED_BACK) {
                // The words of a broker.
                hops::LED_BACK.to_owned()
            } else {
                String::new()
            },
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

    /// Whether the server has forgotten the session. The status for it is 404; servers answer with other ones too, and say
    /// what is missing. One that `was_away` may have lost it with any 4xx, unless it wants credentials. Some statuses never
    /// count: they are about load and conflicts, or the call may run behind a gateway that has lost patience.
    pub fn is_of_lost_session(&self, has_session: bool, was_away: bool) -> bool {
        let is_after_absence = was_away && matches!(self.status, 400..=499) && self.status != 401;
        let is_other = matches!(self.status, 408 | 409 | 429 | 502..=504);
        has_session && !is_other && (self.status == 404 || self.names_session || is_after_absence)
    }

    /// Whether the refusal means that the session is lost, where it answers the stream of what belongs to no request. A server
    /// need not have this stream.
    pub fn is_of_lost_session_of_stream(&self, has_session: bool) -> bool {
        has_session && (self.status == 404 || self.status == 400 && self.names_session)
    }

    /// Whether a server that refuses so has forgotten the session, and serves nothing without another one. Others may want
    /// other credentials, or work again later.
    pub fn is_final(&self) -> bool {
        self.status == 404 || self.names_session && matches!(self.status, 400 | 410 | 422)
    }
}

fn names_session(text: &str) -> bool {
    text.to_ascii_lowercase().contains("session")
}

/// The error in a message that answers the request of this number, if it says that the session is lost. Codes about the
/// request itself do not: tools have sessions of their own.
pub fn lost_session_error(number: CallNumber, text: &str) -> Option<String> {
    const LOST: [&str; 16] = [
        "closed",
        "exist",
        "expired",
        "gone",
        "initialize",
        "invalid",
        "lost",
        "missing",
        "no active",
        "no longer",
        "no such",
        "no valid",
        "not found",
        "required",
        "terminated",
        "unknown",
    ];
    if text.len() > REFUSAL_BYTES_MAX || !names_session(text) {
        return None;
    }
    match message::read(text) {
        Message::Answer {
            to,
            outcome: Err(error),
        } if to == AnswerTo::Request(number) || to == AnswerTo::Unnamed => {
            let said = error_text(error).to_ascii_lowercase();
            let is_of_request = matches!(
                error_code(error),
                Some(rpc::METHOD_NOT_FOUND | rpc::INVALID_PARAMS | rpc::INTERNAL_ERROR)
            );
            let is_lost = !is_of_request && said.contains("session") && LOST.iter().any(|word| said.contains(word));
            is_lost.then(|| error.to_owned())
        }
        _ => None,
    }
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
pub async fn read_body(response: Response, bytes_max: usize) -> Result<Option<Bytes>, String> {
    let turns = Semaphore::new(1);
    let body = read_body_in_turn(response, bytes_max, &turns).await?;
    Ok(body.map(|(body, _)| body))
}

/// As [`read_body`]. A long body takes a turn, which the reader keeps until it has passed the body on: so few of them are
/// in memory at the same time.
///
/// # Errors
/// As [`read_body`].
pub async fn read_body_in_turn(
    mut response: Response,
    bytes_max: usize,
    turns: &Semaphore,
) -> Result<Option<(Bytes, Option<SemaphorePermit<'_>>)>, String> {
    let (mut body, mut turn) = (BytesMut::new(), None);
    while let Some(bytes) = response.next().await? {
        if body.len() + bytes.len() > bytes_max {
            return Ok(None);
        }
        body.extend_from_slice(&bytes);
        if body.len() > LONG_LEN && turn.is_none() {
            // The semaphore is never closed.
            turn = turns.acquire().await.ok();
        }
    }
    Ok(Some((body.freeze(), turn)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, text: &str) -> Refusal {
        Refusal {
            status,
            retry_after: None,
            error: None,
            text: text.to_owned(),
            names_session: names_session(text),
        }
    }

    #[test]
    fn a_session_is_lost_by_its_name_by_404_or_after_an_absence() {
        for status in [400, 401, 403, 404, 410, 422, 500] {
            let named = refusal(status, "Unknown Session: x");
            assert!(named.is_of_lost_session(true, false), "{status}");
            assert!(!named.is_of_lost_session(false, true), "it has none: {status}");
        }
        for (status, is_lost, after_absence) in [
            (400, false, true),
            (401, false, false),
            (403, false, true),
            (404, true, true),
            (410, false, true),
            (429, false, false),
            (500, false, false),
        ] {
            let silent = refusal(status, "no");
            assert_eq!(silent.is_of_lost_session(true, false), is_lost, "{status}");
            assert_eq!(silent.is_of_lost_session(true, true), after_absence, "{status}");
        }
        for status in [408, 409, 429, 502, 503, 504] {
            let named = refusal(status, "the session is busy");
            assert!(!named.is_of_lost_session(true, true), "the call may run: {status}");
        }
    }

    #[test]
    fn a_stream_is_refused_for_other_reasons_than_a_lost_session() {
        for (status, text, is_lost) in [
            (404, "no", true),
            (400, "no", false),
            (400, "no valid session", true),
            (403, "no streams in this session", false),
            (405, "no streams in this session", false),
            (500, "KeyError: session", false),
        ] {
            let refusal = refusal(status, text);
            assert_eq!(refusal.is_of_lost_session_of_stream(true), is_lost, "{status} {text}");
            assert!(!refusal.is_of_lost_session_of_stream(false), "it has none: {status}");
        }
    }

    #[test]
    fn an_error_says_that_the_session_is_lost() {
        let lost_with = |code: i32, id: &str, message: &str| {
            let error = format!("{{\"code\":{code},\"message\":\"{message}\"}}");
            let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}");
            lost_session_error(CallNumber(5), &text).is_some()
        };
        let lost = |id: &str, message: &str| lost_with(-32000, id, message);
        for message in [
            "Session not found",
            "Bad Request: No valid session ID provided",
            "SESSION EXPIRED",
        ] {
            assert!(lost("5", message) && lost("null", message), "{message}");
            assert!(!lost("6", message), "it answers another request");
        }
        for message in ["not found", "no seat in this session of parliament"] {
            assert!(!lost("5", message), "{message}");
        }
        for (code, is_lost) in [
            (-32600, true),
            (-32001, true),
            (-32601, false),
            (-32602, false),
            (-32603, false),
        ] {
            assert_eq!(lost_with(code, "5", "session_id is required"), is_lost, "{code}");
        }
        let result = r#"{"jsonrpc":"2.0","id":5,"result":{"text":"session not found"}}"#;
        assert_eq!(lost_session_error(CallNumber(5), result), None);
    }
}
