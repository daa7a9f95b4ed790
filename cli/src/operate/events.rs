//! The stream of events of the broker (server-sent events), which continues where it was interrupted.

use std::io::{BufRead, BufReader, Read};

use ureq::BodyReader;

use crate::client::{ApiRequest, Client, ClientError, parameter, with_query};

/// The longest line of an event. An envelope has no payload, so that it is far shorter.
const LINE_BYTES_MAX: u64 = 4 << 20;

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

/// A stream of events. After an error the next call opens it again, behind the last event that it has brought.
pub struct EventStream {
    client: Client,
    path: String,
    headers: Vec<(&'static str, String)>,
    last_id: Option<String>,
    open: Option<BufReader<BodyReader<'static>>>,
}

impl EventStream {
    /// A stream of some topics, separated by commas, or of all, behind the event with the id `after`. Nothing is sent yet.
    pub fn new(client: &Client, topics: Option<&str>, after: Option<String>) -> Self {
        Self {
            client: client.clone(),
            path: with_query("/api/v1/events", [parameter("topics", topics)]),
            headers: Vec::new(),
            last_id: after,
            open: None,
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
        self.reader().map(|_| ())
    }

    /// Waits for the next frame.
    ///
    /// # Errors
    /// The broker cannot be reached or refuses, or the stream was interrupted.
    pub fn next(&mut self) -> Result<Frame, ClientError> {
        let reader = self.reader()?;
        match read_frame(reader) {
            Ok((frame, id)) => {
                self.last_id = id.or(self.last_id.take());
                Ok(frame)
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

    fn reader(&mut self) -> Result<&mut BufReader<BodyReader<'static>>, ClientError> {
        if self.open.is_none() {
            let mut ask = ApiRequest::get(self.path.clone()).with_header("accept", "text/event-stream");
            ask.headers.extend(self.headers.iter().cloned());
            if let Some(id) = &self.last_id {
                ask = ask.with_header("last-event-id", id.as_str());
            }
            self.open = Some(BufReader::new(self.client.open_stream(&ask)?));
        }
        match &mut self.open {
            Some(reader) => Ok(reader),
            None => Err(ClientError::new("no stream".to_owned())),
        }
    }
}

/// Reads one frame and the id that it sets. A frame that only sets an id or the time to retry is a heartbeat.
fn read_frame(reader: &mut impl BufRead) -> std::io::Result<(Frame, Option<String>)> {
    let (mut topic, mut id, mut data) = (None, None, None::<String>);
    loop {
        let mut line = Vec::new();
        reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches('\r');
        if line.is_empty() {
            let frame = match data {
                Some(data) => Frame::Event {
                    topic: topic.unwrap_or_else(|| "message".to_owned()),
                    id: id.clone(),
                    data,
                },
                None => Frame::Heartbeat,
            };
            return Ok((frame, id));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => topic = Some(value.to_owned()),
            "id" => id = Some(value.to_owned()),
            "data" => {
                let data = data.get_or_insert_default();
                if !data.is_empty() {
                    data.push('\n');
                }
                data.push_str(value);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_the_standard_says() {
        let text = "retry: 1000\nid: a-0-0\n\n:\n\nevent: message\r\nid: a-0-1\r\ndata: {\"a\":1}\r\n\r\n\
                    event: gap\ndata: {}\n\ndata:x\ndata: y\n\nevent: cut";
        let mut reader = text.as_bytes();
        let mut next = || read_frame(&mut reader);
        assert_eq!(next().unwrap(), (Frame::Heartbeat, Some("a-0-0".to_owned())));
        assert_eq!(next().unwrap(), (Frame::Heartbeat, None));
        let event = |topic: &str, id: Option<&str>, data: &str| Frame::Event {
            topic: topic.to_owned(),
            id: id.map(ToOwned::to_owned),
            data: data.to_owned(),
        };
        let id = Some("a-0-1");
        assert_eq!(
            next().unwrap(),
            (event("message", id, "{\"a\":1}"), id.map(ToOwned::to_owned))
        );
        assert_eq!(next().unwrap(), (event("gap", None, "{}"), None));
        assert_eq!(next().unwrap(), (event("message", None, "x\ny"), None));
        assert!(next().is_err(), "a frame that is cut off is none");
    }
}
