//! Requests over the socket of a broker, one at a time, for commands.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::json::frame::{self, JsonText, NO_PARAMS};

/// The longest answer, in bytes.
const ANSWER_LEN_MAX: u64 = 64 << 20;

/// A connection for requests. What a broker sends besides the answers is ignored.
#[derive(Debug)]
pub struct LineClient {
    stream: BufReader<UnixStream>,
    last_id: u64,
}

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The broker refused it.
    #[error("{message} ({code})")]
    Refused { code: i64, message: String },
}

#[derive(Deserialize)]
struct Answer {
    id: Option<Value>,
    result: Option<Box<RawValue>>,
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Refusal {
    code: i64,
    message: String,
}

impl LineClient {
    /// Uses a connection to which all earlier requests were answered.
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream: BufReader::new(stream),
            last_id: 0,
        }
    }

    /// Sends a request and returns its result.
    ///
    /// # Errors
    /// The broker refuses it, closes the connection, or does not answer within `timeout`.
    pub fn request(&mut self, method: &str, params: &Value, timeout: Duration) -> Result<Value, RequestError> {
        let result = self.request_text(method, params, timeout)?;
        Ok(serde_json::from_str(result.get()).map_err(io::Error::from)?)
    }

    /// Sends a request and returns its result as the text that came: numbers keep their digits.
    ///
    /// # Errors
    /// Those of [`Self::request`].
    pub fn request_text(
        &mut self,
        method: &str,
        params: &Value,
        timeout: Duration,
    ) -> Result<Box<RawValue>, RequestError> {
        self.last_id += 1;
        let id = self.last_id;
        let request = frame::request(id, method, params);
        let deadline = Instant::now() + timeout;
        let socket = self.stream.get_mut();
        socket.set_write_timeout(Some(timeout))?;
        socket.write_all(&request.into_line())?;
        loop {
            let answer: Answer = serde_json::from_slice(&self.line(deadline)?).map_err(io::Error::from)?;
            if answer.id != Some(id.into()) {
                continue;
            }
            return match answer.error {
                Some(Refusal { code, message }) => Err(RequestError::Refused { code, message }),
                None => Ok(answer.result.unwrap_or_default()),
            };
        }
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn notify(&mut self, method: &str) -> io::Result<()> {
        let notification = frame::notification(method, NO_PARAMS);
        self.stream.get_mut().write_all(&notification.into_line())
    }

    fn line(&mut self, deadline: Instant) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.get_ref().set_read_timeout(Some(left))?;
            let rest = ANSWER_LEN_MAX.saturating_sub(line.len() as u64);
            match self.stream.by_ref().take(rest).read_until(b'\n', &mut line) {
                Ok(_) if line.ends_with(b"\n") => return Ok(line),
                Ok(_) if line.len() as u64 >= ANSWER_LEN_MAX => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is too long"));
                }
                Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                // What was read before stays in the line.
                Err(error) if [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&error.kind()) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
