//! The stream of events of the broker (server-sent events), which continues where it was interrupted.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Read};
use std::time::Duration;

use actors::backoff::{Backoff, random};
use api::mcp::event_stream::{Event, EventDecoder};
use ureq::BodyReader;

use crate::client::{ApiRequest, Client, ClientError, parameter, with_query};

/// The longest event. An envelope has no payload, so that it is far shorter.
const EVENT_BYTES_MAX: usize = 4 << 20;
/// Bytes that are read at once.
const READ_LEN: usize = 16 * 1024;

/// What the stream brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    Event {
        topic: String,
        /// Its place in the log; a gap may have none.
        id: Option<String>,
        /// JSON.
        data: String,
    },
    /// The broker shows that it is there.
    Heartbeat,
}

/// The waits before the stream is opened again.
const BACKOFF: Backoff = Backoff {
    min: Duration::from_millis(500),
    max: Duration::from_secs(5),
};

/// A stream of events. After an error the next call opens it again, behind the last event that it has brought: the first
/// time at once, because a stream that was silent is only opened again, and then after a wait.
pub struct EventStream {
    client: Client,
    path: String,
    headers: Vec<(&'static str, String)>,
    /// Decodes one stream after the other, and knows behind which event the next one begins.
    decoder: EventDecoder,
    open: Option<BodyReader<'static>>,
    /// What has been read and not yet returned.
    arrived: VecDeque<Frame>,
    /// Errors since the last frame.
    failures: u32,
    /// The wait before the stream is opened again.
    pause: Duration,
}

impl EventStream {
    /// A stream of some topics, separated by commas, or of all, behind the event with the id `after`. Nothing is sent yet.
    pub fn new(client: &Client, topics: Option<&str>, after: Option<String>) -> Self {
        Self {
            client: client.clone(),
            path: with_query("/api/v1/events", [parameter("topics", topics)]),
            headers: Vec::new(),
            decoder: EventDecoder::new(EVENT_BYTES_MAX).after(after),
            open: None,
            arrived: VecDeque::new(),
            failures: 0,
            pause: Duration::ZERO,
        }
    }

    /// Adds a part of the query, which is encoded already.
    pub fn with_parameter(mut self, part: Option<String>) -> Self {
        self.path = with_query(&self.path, [part]);
        self
    }

    /// Adds a header, if it has a value.
    pub fn with_header(mut self, name: &'static str, value: Option<String>) -> Self {
        self.headers.extend(value.map(|value| (name, value)));
        self
    }

    /// Connects, unless it is connected.
    ///
    /// # Errors
    /// The broker cannot be reached or refuses.
    pub fn connect(&mut self) -> Result<(), ClientError> {
        self.opened().map(drop)
    }

    /// How often the stream has failed since the last frame.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Waits for the next frame.
    ///
    /// # Errors
    /// The broker cannot be reached or refuses, or the stream was interrupted.
    pub fn next(&mut self) -> Result<Frame, ClientError> {
        std::thread::sleep(std::mem::take(&mut self.pause));
        let frame = self.read();
        if let Err(error) = &frame {
            let wait = BACKOFF.wait(self.failures, random());
            self.pause = error.retry_after.unwrap_or(wait).min(BACKOFF.max);
            self.failures += 1;
        } else {
            self.failures = 0;
        }
        frame
    }

    fn read(&mut self) -> Result<Frame, ClientError> {
        if let Some(frame) = self.arrived.pop_front() {
            return Ok(frame);
        }
        let body = self.opened()?;
        let mut bytes = [0; READ_LEN];
        let read = match body.read(&mut bytes) {
            Ok(0) => Err(Error::from(ErrorKind::UnexpectedEof)),
            read => read,
        };
        match read {
            Ok(len) => {
                self.arrived = frames(&mut self.decoder, &bytes[..len]);
                Ok(self.arrived.pop_front().unwrap_or(Frame::Heartbeat))
            }
            Err(error) => {
                self.open = None;
                let url = crate::table::escaped(&self.client.access.url.text);
                Err(ClientError::new(format!(
                    "the stream of events of {url} was interrupted: {error}"
                )))
            }
        }
    }

    fn opened(&mut self) -> Result<&mut BodyReader<'static>, ClientError> {
        let open = if let Some(open) = self.open.take() {
            open
        } else {
            let mut ask = ApiRequest::get(self.path.clone()).with_header("accept", "text/event-stream");
            ask.headers.extend(self.headers.iter().cloned());
            self.decoder.begin_stream();
            if let Some(id) = self.decoder.last_id() {
                ask = ask.with_header("last-event-id", id);
            }
            self.client.open_stream(&ask)?
        };
        Ok(self.open.insert(open))
    }
}

/// The frames that end in some bytes. One that cannot be read is a gap.
fn frames(decoder: &mut EventDecoder, bytes: &[u8]) -> VecDeque<Frame> {
    let mut frames = VecDeque::new();
    decoder.decode(bytes, |event| {
        let (topic, id, data) = match event {
            Event::Data { name, id, data } => (name, id, data),
            Event::TooLong(_) | Event::NotUtf8(_) => ("gap", None, "{}"),
        };
        frames.push_back(Frame::Event {
            topic: topic.to_owned(),
            id: id.map(ToOwned::to_owned),
            data: data.to_owned(),
        });
    });
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_its_own_id_alone() {
        let text = "retry: 1000\nid: a-0-0\n\n:\n\nevent: message\r\nid: a-0-1\r\ndata: {\"a\":1}\r\n\r\n\
                    event: gap\ndata: {}\n\ndata:x\ndata: y\n\nevent: cut";
        let mut decoder = EventDecoder::new(EVENT_BYTES_MAX);
        let event = |topic: &str, id: Option<&str>, data: &str| Frame::Event {
            topic: topic.to_owned(),
            id: id.map(ToOwned::to_owned),
            data: data.to_owned(),
        };
        let expected = [
            event("message", Some("a-0-1"), "{\"a\":1}"),
            event("gap", None, "{}"),
            event("message", None, "x\ny"),
        ];
        assert_eq!(frames(&mut decoder, text.as_bytes()), expected);
        assert_eq!(frames(&mut decoder, b"\n\n\xff"), []);
        assert_eq!(decoder.last_id(), Some("a-0-1"));
    }
}
