//! HTTP responses and event streams, read byte by byte.

use std::{
    collections::VecDeque,
    io::Read,
    net::{Shutdown, TcpStream},
    time::Instant,
};

use serde_json::Value;
pub use test_client::http::{Event, Response};
use test_client::http::{Framing, Head, first_chunk, header, take_events};

use super::super::WAIT_TIMEOUT;

/// A response that is still being received. Dropping it closes the connection.
#[derive(Debug)]
pub struct ResponseReader {
    socket: TcpStream,
    raw: Vec<u8>,
    head: Option<(String, Framing)>,
    body: Vec<u8>,
    /// The body is complete according to its framing.
    complete: bool,
    events: VecDeque<Event>,
    pub comments: usize,
}

impl ResponseReader {
    pub fn from_socket(socket: TcpStream) -> Self {
        Self {
            socket,
            raw: Vec::new(),
            head: None,
            body: Vec::new(),
            complete: false,
            events: VecDeque::new(),
            comments: 0,
        }
    }

    /// Whether the head has arrived.
    pub(super) fn has_head(&self) -> bool {
        self.head.is_some()
    }

    pub fn status(&mut self) -> u16 {
        self.read_head();
        let (head, _) = self.head.as_ref().unwrap();
        head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub fn header(&mut self, name: &str) -> Option<String> {
        self.read_head();
        let (head, _) = self.head.as_ref().unwrap();
        header(head, name).map(str::to_owned)
    }

    fn read_head(&mut self) {
        while self.head.is_none() {
            assert!(
                self.read_some(),
                "incomplete head: {:?}",
                String::from_utf8_lossy(&self.raw)
            );
        }
    }

    /// Reads to the end of the body.
    pub fn into_response(mut self) -> Response {
        self.read_head();
        while !self.complete {
            assert!(self.read_some(), "incomplete body: {self:?}");
        }
        self.take_response()
    }

    /// Reads until the peer closes; returns the response if it is complete.
    pub fn into_response_if_complete(mut self) -> Option<Response> {
        while !self.complete {
            if !self.read_some() {
                return None;
            }
        }
        Some(self.take_response())
    }

    fn take_response(&mut self) -> Response {
        let status = self.status();
        let (head, _) = self.head.take().unwrap();
        Response {
            status,
            head,
            body: String::from_utf8(std::mem::take(&mut self.body)).unwrap(),
        }
    }

    /// The result or error for the request of this id, from a JSON body or a stream.
    pub fn answer_to(&mut self, id: &Value) -> Result<Value, Value> {
        let frame = if self.is_stream() {
            self.awaits_frame(&format!("the answer to {id}"), |frame| {
                frame["id"] == *id && frame.get("method").is_none()
            })
        } else {
            while !self.complete {
                assert!(self.read_some(), "incomplete body: {self:?}");
            }
            serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
        };
        assert_eq!(frame["jsonrpc"], "2.0", "{frame}");
        assert_eq!(frame["id"], *id, "{frame}");
        match (frame.get("result"), frame.get("error")) {
            (Some(result), None) => Ok(result.clone()),
            (None, Some(error)) => Err(error.clone()),
            _ => panic!("neither a result nor an error: {frame}"),
        }
    }

    pub fn is_stream(&mut self) -> bool {
        self.header("content-type")
            .is_some_and(|kind| kind == "text/event-stream")
    }

    /// Asserts that the response is a stream of events.
    pub fn streams(mut self) -> Self {
        let status = self.status();
        if status != 200 || !self.is_stream() {
            let head = self.head.take();
            panic!("not a stream: {head:?}");
        }
        self
    }

    /// The next event; None at the end of the stream.
    pub fn next_event(&mut self) -> Option<Event> {
        let began = Instant::now();
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.complete || !self.read_some() {
                return None;
            }
            assert!(
                began.elapsed() < WAIT_TIMEOUT,
                "no event, but {} comments",
                self.comments
            );
        }
    }

    /// The next event as a JSON-RPC frame.
    pub fn next_frame(&mut self) -> Value {
        let event = self.next_event().unwrap_or_else(|| panic!("the stream has ended"));
        assert!(event.kind.as_deref().is_none_or(|kind| kind == "message"), "{event:?}");
        event.json()
    }

    /// The first frame that fits; skips those before it.
    pub fn awaits_frame(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let mut others = Vec::new();
        let began = Instant::now();
        loop {
            let Some(event) = self.next_event() else {
                panic!("waited for {what}, and the stream ended after {others:#?}");
            };
            if !event.data.is_empty() {
                let frame = event.json();
                if fits(&frame) {
                    return frame;
                }
                others.push(frame);
            }
            assert!(began.elapsed() < WAIT_TIMEOUT, "not received: {what}; but {others:#?}");
        }
    }

    /// Waits for the next notification of this method and returns its params.
    pub fn next_notification(&mut self, method: &str) -> Value {
        let mut frame = self.awaits_frame(method, |frame| frame["method"] == method);
        assert!(frame.get("id").is_none(), "{frame}");
        frame["params"].take()
    }

    /// Waits for one further comment line.
    pub fn awaits_comment(&mut self) {
        let before = self.comments;
        while self.comments == before {
            assert!(!self.complete && self.read_some(), "the stream ended");
        }
    }

    /// Asserts that the stream ends without another event and with correct framing.
    pub fn ends(&mut self) {
        let event = self.next_event();
        assert_eq!(event, None);
        assert!(self.complete, "the stream was cut: {self:?}");
    }

    /// Waits until the stream has ended, with or without correct framing.
    pub fn awaits_end(&mut self) {
        let began = Instant::now();
        while !self.complete && self.read_some() {
            assert!(began.elapsed() < WAIT_TIMEOUT, "the stream does not end");
        }
    }

    /// Closes the connection.
    pub fn disconnects(self) {
        drop(self);
    }

    /// Closes the sending half of the connection; reading goes on.
    pub fn half_closes(&self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Reads what is available; false at the end of the connection.
    fn read_some(&mut self) -> bool {
        self.read_at_most(16 * 1024)
    }

    pub(super) fn read_at_most(&mut self, len_max: usize) -> bool {
        let mut chunk = [0; 16 * 1024];
        let len = match self.socket.read(&mut chunk[..len_max]) {
            Ok(len) => len,
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) =>
            {
                panic!("no data for {WAIT_TIMEOUT:?}: {self:?}")
            }
            Err(_) => 0,
        };
        self.raw.extend_from_slice(&chunk[..len]);
        if self.head.is_none() {
            self.parse_head();
        }
        let Some((_, length)) = self.head else { return len > 0 };
        match length {
            Framing::Length(len) => {
                self.body.append(&mut self.raw);
                self.complete = self.body.len() >= len;
            }
            Framing::UntilClosed => {
                self.body.append(&mut self.raw);
                self.complete = len == 0;
            }
            Framing::Chunked => {
                while !self.complete
                    && let Some((chunk, taken)) = first_chunk(&self.raw)
                {
                    self.complete |= chunk.is_empty();
                    self.body.extend_from_slice(chunk);
                    self.raw.drain(..taken);
                }
            }
        }
        if self.is_stream() {
            let events = &mut self.events;
            self.comments += take_events(&mut self.body, |event| events.push_back(event));
        }
        len > 0
    }

    fn parse_head(&mut self) {
        let Some(head) = Head::parse(&self.raw) else {
            return;
        };
        let (text, len) = (head.text().to_owned(), head.len);
        let is_framed_twice = head.header("content-length").is_some() && head.header("transfer-encoding").is_some();
        assert!(!is_framed_twice, "{text}");
        self.head = Some((text, head.framing()));
        self.raw.drain(..len);
    }
}
