//! Decodes a stream of server-sent events (HTML, section 9.2). It does no I/O.

use memchr::memchr2;

use crate::mcp::skipped_frame::SkippedFrame;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// The name of events that name none.
const MESSAGE: &str = "message";
/// Bytes of an event's name or id that are kept.
const FIELD_BYTES_MAX: usize = 1_024;

/// An event.
#[derive(Debug)]
pub enum Event<'a> {
    Data {
        name: &'a str,
        /// Its own id.
        id: Option<&'a str>,
        data: &'a str,
    },
    /// The data of an event was too long. Nothing of it is kept but its id.
    TooLong(SkippedFrame),
    NotUtf8(&'a [u8]),
}

/// Decodes bytes into events. It buffers at most one event; the rest of one that is too long is skipped.
#[derive(Debug)]
pub struct EventDecoder {
    data_len_max: usize,
    /// The beginning of an incomplete line.
    line: Vec<u8>,
    /// The last byte was a carriage return: a line feed that follows belongs to it.
    ended_by_return: bool,
    name: String,
    data: Vec<u8>,
    has_data: bool,
    /// The current event, if it is too long.
    skipped: Option<SkippedFrame>,
    /// The id of the current event, until it ends.
    id: Option<String>,
    last_id: Option<String>,
    retry_ms: Option<u64>,
}

impl EventDecoder {
    /// A decoder for events with at most `data_len_max` bytes of data.
    pub fn new(data_len_max: usize) -> Self {
        Self {
            data_len_max,
            line: Vec::new(),
            ended_by_return: false,
            name: String::new(),
            data: Vec::new(),
            has_data: false,
            skipped: None,
            id: None,
            last_id: None,
            retry_ms: None,
        }
    }

    /// Begins behind the event with this id.
    #[must_use]
    pub fn after(self, last_id: Option<String>) -> Self {
        Self { last_id, ..self }
    }

    /// The id of the last event that has ended and had one: a stream can be resumed behind it.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// The milliseconds that the server wants a client to wait before it connects again.
    pub fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// Bytes buffered of an incomplete event.
    pub fn buffered_len(&self) -> usize {
        self.line.len() + self.data.len()
    }

    /// Whether the current event is too long.
    pub fn is_skipping(&self) -> bool {
        self.skipped.is_some()
    }

    /// Forgets the event that a stream broke off in, before another stream continues it.
    pub fn begin_stream(&mut self) {
        *self = Self {
            retry_ms: self.retry_ms,
            ..Self::new(self.data_len_max).after(self.last_id.take())
        };
    }

    /// Decodes the bytes of one read. Calls `on` for each event, in order.
    pub fn decode(&mut self, bytes: &[u8], mut on: impl FnMut(Event<'_>)) {
        let mut rest = bytes;
        if let (true, [first, ..]) = (self.ended_by_return, rest) {
            self.ended_by_return = false;
            rest = &rest[usize::from(*first == b'\n')..];
        }
        while let Some(at) = memchr2(b'\n', b'\r', rest) {
            self.append(&rest[..at]);
            let end = rest[at];
            rest = &rest[at + 1..];
            if end == b'\r' {
                match rest.first() {
                    Some(b'\n') => rest = &rest[1..],
                    Some(_) => {}
                    None => self.ended_by_return = true,
                }
            }
            self.end_line(&mut on);
        }
        self.append(rest);
    }

    /// Appends to the current line. A line that is too long is data: nothing else has a use at that length.
    fn append(&mut self, bytes: &[u8]) {
        if let Some(skipped) = &mut self.skipped {
            return skipped.skip(bytes);
        }
        self.line.extend_from_slice(bytes);
        let line_len_max = self.data_len_max + "data: ".len();
        if self.data.len() + self.line.len() > line_len_max {
            let line = std::mem::take(&mut self.line);
            let mut skipped = SkippedFrame::beginning_with(&std::mem::take(&mut self.data));
            // The name of another field may not have ended: it is skipped with its value, which has no id.
            skipped.skip(line.strip_prefix(b"data:").unwrap_or(&line));
            self.skipped = Some(skipped);
        }
    }

    fn end_line(&mut self, on: &mut impl FnMut(Event<'_>)) {
        let mut line = std::mem::take(&mut self.line);
        // Servers that write one write it before the first field, or before each.
        if line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        if self.skipped.is_some() {
            // The event ends with its line: what follows of it is of no use.
            if let Some(skipped) = self.skipped.take() {
                on(Event::TooLong(skipped));
            }
            (self.has_data, self.name) = (false, String::new());
            self.last_id = self.id.take().or(self.last_id.take());
            return;
        }
        if line.is_empty() {
            return self.end_event(on);
        }
        let (field, value) = value_of(&line);
        let text = || String::from_utf8_lossy(value).into_owned();
        match field {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                if self.data.is_empty() {
                    self.data = value.to_vec();
                } else {
                    self.data.extend_from_slice(value);
                }
            }
            b"event" if value.len() <= FIELD_BYTES_MAX => self.name = text(),
            b"id" if value.len() <= FIELD_BYTES_MAX && !value.contains(&0) => {
                self.id = Some(text());
            }
            b"retry" => self.retry_ms = text().parse().ok().or(self.retry_ms),
            _ => {}
        }
    }

    fn end_event(&mut self, on: &mut impl FnMut(Event<'_>)) {
        let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
        let has_id = self.id.is_some();
        self.last_id = self.id.take().or(self.last_id.take());
        // An event without data is none: it has an id, or it keeps the connection alive.
        if !std::mem::take(&mut self.has_data) || data.is_empty() {
            return;
        }
        on(match std::str::from_utf8(&data) {
            Ok(data) => Event::Data {
                name: if name.is_empty() { MESSAGE } else { &name },
                id: self.last_id.as_deref().filter(|_| has_id),
                data,
            },
            Err(_) => Event::NotUtf8(&data),
        });
    }
}

/// The name and the value of a line's field.
fn value_of(line: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b':', line) {
        Some(at) => {
            let value = &line[at + 1..];
            (&line[..at], value.strip_prefix(b" ").unwrap_or(value))
        }
        None => (line, b""),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DATA_LEN_MAX: usize = 24;

    fn decoded(bytes: &[u8], pieces: &[usize]) -> (Vec<String>, Option<String>) {
        let mut decoder = EventDecoder::new(DATA_LEN_MAX);
        let mut events = Vec::new();
        let mut rest = bytes;
        for &piece in pieces.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at(piece.clamp(1, rest.len()));
            rest = later;
            decoder.decode(now, |event| {
                events.push(match event {
                    Event::Data { name, data, .. } => format!("{name}={data}"),
                    Event::TooLong(frame) => format!("too long: {:?}", frame.into_response_id()),
                    Event::NotUtf8(_) => "not UTF-8".to_owned(),
                });
            });
            assert!(decoder.line.len() + decoder.data.len() <= DATA_LEN_MAX + 6);
        }
        (events, decoder.last_id)
    }

    #[test]
    fn events_end_with_an_empty_line_and_their_data_lines_are_joined() {
        let bytes = b"\xef\xbb: no field\n: comment\nevent: endpoint\ndata: /x?y\n\n\
            id: 7\r\ndata:a\rdata\r\ndata:  b\r\n\r\nid: 8\ndata:\n\nevent: none\n\ndata: c\n\ndata: unfinished\n";
        let (events, id) = decoded(bytes, &[usize::MAX]);
        assert_eq!(events, ["endpoint=/x?y", "message=a\n\n b", "message=c"]);
        assert_eq!(id.as_deref(), Some("8"));
        let broken_off = decoded(b"id: 7\ndata: a\n\nid: 8\ndata: b\n", &[usize::MAX]);
        assert_eq!(broken_off, (vec!["message=a".to_owned()], Some("7".to_owned())));
        assert_eq!(decoded(b"data: \xff\n\n", &[9]).0, ["not UTF-8"]);
        for piece in [1, 2, 9] {
            assert_eq!(decoded("\u{feff}data: a\n\n".as_bytes(), &[piece]).0, ["message=a"]);
        }
    }

    #[test]
    fn an_event_that_is_too_long_is_skipped_and_reported_with_its_id() {
        let long = "x".repeat(60);
        let bytes = format!("data: {{\"result\":\"{long}\",\"id\":5}}\n\ndata: next\n\n");
        for piece in [1, 3, 31, 1_000] {
            let (events, _) = decoded(bytes.as_bytes(), &[piece]);
            assert_eq!(events, ["too long: Some(\"5\")", "message=next"], "pieces of {piece}");
        }
        for piece in [1, 1_000] {
            let (events, _) = decoded(
                format!("a long name of a field: {{\"result\":\"{long}\",\"id\":5}}\n\n").as_bytes(),
                &[piece],
            );
            assert_eq!(events, ["too long: None"], "pieces of {piece}");
        }
        let longest = "y".repeat(DATA_LEN_MAX);
        let (events, _) = decoded(format!("data: {longest}\n\n").as_bytes(), &[7]);
        assert_eq!(events, [format!("message={longest}")]);
    }

    #[test]
    fn a_stream_that_continues_another_begins_with_an_event() {
        let mut decoder = EventDecoder::new(DATA_LEN_MAX);
        decoder.decode(b"id: 7\ndata: a\n\nid: 8\nevent: x\ndata: b\nda", |_| {});
        decoder.begin_stream();
        assert_eq!(decoder.last_id(), Some("7"));
        let mut events = Vec::new();
        decoder.decode(b"id: 8\ndata: b\n\n", |event| events.push(format!("{event:?}")));
        assert_eq!(events, [r#"Data { name: "message", id: Some("8"), data: "b" }"#]);
    }

    proptest! {
        #[test]
        fn events_do_not_depend_on_how_the_bytes_are_split(
            bytes in prop::collection::vec(prop::sample::select(b"\n\n\r:da {}\xc3\xa9".to_vec()), 0..120),
            lines in prop::collection::vec(prop::sample::select(vec!["data: a\n", "data:b\r\n", "\n", "id: 1\n", "event: e\n"]), 0..20),
            pieces in prop::collection::vec(1_usize..20, 1..5),
        ) {
            let bytes = [bytes, lines.concat().into_bytes()].concat();
            prop_assert_eq!(decoded(&bytes, &pieces), decoded(&bytes, &[usize::MAX]));
        }
    }
}
