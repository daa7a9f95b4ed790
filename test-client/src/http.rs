//! HTTP/1.1 byte by byte: requests exactly as they are written, messages as far as they have arrived, and the events of
//! streams. There are no limits, because both ends are known.

use std::{
    borrow::Cow,
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::Value;

use crate::wait::WAIT_TIMEOUT;

/// Bytes of the buffer of a connection.
const BUFFER_LEN: usize = 64 * 1024;

/// A request: sent byte for byte as it is here, or read by a server.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn new(method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Self {
        let mut request = Self {
            method: method.to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: body.into(),
        };
        for (name, value) in headers {
            request.add(name, value);
        }
        request
    }

    pub fn get(path: &str) -> Self {
        Self::new("GET", path, &[], "")
    }

    /// A request with an object, or without a body for null.
    pub fn with_json(method: &str, path: &str, body: &Value) -> Self {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        Self::new(method, path, &[("Content-Type", "application/json")], body)
    }

    /// Reads the next request of a connection; None at its end.
    pub fn read<R: Read>(reader: &mut MessageReader<R>) -> io::Result<Option<Self>> {
        let Some(message) = reader.next_message()? else {
            return Ok(None);
        };
        let mut lines = message.head.text().lines();
        let mut words = lines.next().unwrap_or_default().split(' ');
        let mut request = Self::new(
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
            &[],
            message.body,
        );
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            request.add(name, value.trim());
        }
        Ok(Some(request))
    }

    /// The method and the path.
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// The value of the first header of this name, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(it, _)| it.eq_ignore_ascii_case(name))?;
        str::from_utf8(value).ok()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn add(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.headers.push((name.to_owned(), value.as_ref().to_owned()));
    }

    /// Removes the headers of this name; false when there was none.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.headers.len();
        self.headers.retain(|(it, _)| !it.eq_ignore_ascii_case(name));
        self.headers.len() < before
    }

    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.remove(name);
        self.add(name, value);
    }

    /// The bytes on the wire. Adds `Host` and the framing of the body if they are not given.
    pub fn encode(&self, host: SocketAddr) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.path).into_bytes();
        let has = |name: &str| self.headers.iter().any(|(it, _)| it.eq_ignore_ascii_case(name));
        if !has("host") {
            bytes.extend(format!("Host: {host}\r\n").into_bytes());
        }
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        if has("transfer-encoding") {
            bytes.extend_from_slice(b"\r\n");
            for piece in self.body.chunks(7) {
                bytes.extend(format!("{:x}\r\n", piece.len()).into_bytes());
                bytes.extend_from_slice(piece);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
            return bytes;
        }
        if !self.body.is_empty() || self.method == "POST" {
            bytes.extend(format!("Content-Length: {}\r\n", self.body.len()).into_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Sends the request on a connection of its own and reads the answer.
    pub fn ask(&self, address: SocketAddr) -> io::Result<Response> {
        Connection::open(address, WAIT_TIMEOUT)?.request(self)
    }
}

/// A complete response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The whole response except its `Date` header, with the others in alphabetical order: each thread of a broker has an order
    /// of its own.
    pub fn without_date(&self) -> String {
        let mut lines: Vec<_> = self.head.lines().collect();
        lines.retain(|line| !line.to_ascii_lowercase().starts_with("date:"));
        lines[1..].sort_unstable();
        format!("{}\n{}", lines.join("\n"), self.body)
    }

    /// The status, and the code of the problem in the body (empty without a problem).
    pub fn problem(&self) -> (u16, String) {
        let code = match self.header("content-type") {
            Some("application/problem+json") => self.json()["code"]
                .as_str()
                .unwrap_or_else(|| panic!("{self:?}"))
                .to_owned(),
            _ => String::new(),
        };
        (self.status, code)
    }

    /// The status, and the code of the JSON-RPC error in the body.
    pub fn refusal(&self) -> (u16, i64) {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        let error = &self.json()["error"];
        (
            self.status,
            error["code"].as_i64().unwrap_or_else(|| panic!("{self:?}")),
        )
    }

    /// As [`message()`].
    pub fn message(&self) -> Value {
        message(self.body.as_bytes())
    }
}

/// The JSON-RPC message in a body: the whole of it, or the last event in it. Null if there is none.
pub fn message(body: &[u8]) -> Value {
    if body.starts_with(b"{") {
        return serde_json::from_slice(body).unwrap_or_default();
    }
    let mut last = String::new();
    take_events(&mut body.to_vec(), |event| last = event.data);
    serde_json::from_str(&last).unwrap_or_default()
}

/// The value of the first header of this name in a head.
pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Framing {
    Length(usize),
    Chunked,
    UntilClosed,
}

/// The head of a message.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// 0 in a request.
    pub status: u16,
    /// Bytes up to the body.
    pub len: usize,
    lines: &'a [u8],
}

impl<'a> Head<'a> {
    /// Parses a head; None while it is incomplete.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let end = memchr::memmem::find(bytes, b"\r\n\r\n")?;
        let status = bytes.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5));
        Some(Self {
            status: status.map_or(0, |word| {
                str::from_utf8(word).ok().and_then(|it| it.parse().ok()).unwrap_or(0)
            }),
            len: end + 4,
            lines: &bytes[..end],
        })
    }

    /// The first line and the headers. Empty if they are not UTF-8.
    pub fn text(&self) -> &'a str {
        str::from_utf8(self.lines).unwrap_or_default()
    }

    /// The value of the first header of this name.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.lines.split(|byte| *byte == b'\n').skip(1).find_map(|line| {
            let (key, value) = line.split_at_checked(name.len())?;
            let value = value.strip_prefix(b":")?;
            let found = key.eq_ignore_ascii_case(name.as_bytes());
            found.then(|| str::from_utf8(value).unwrap_or_default().trim())
        })
    }

    pub fn framing(&self) -> Framing {
        let is_chunked = |coding: &str| coding.eq_ignore_ascii_case("chunked");
        if self.header("transfer-encoding").is_some_and(is_chunked) {
            return Framing::Chunked;
        }
        match self.header("content-length") {
            // A length that is no number is never reached.
            Some(len) => Framing::Length(len.parse().unwrap_or(usize::MAX)),
            None if self.status < 200 || self.status == 204 => Framing::Length(0),
            None => Framing::UntilClosed,
        }
    }
}

/// The end of the first message in these bytes; None while it is incomplete, or has no end but that of the connection.
pub fn end(bytes: &[u8]) -> Option<(Head<'_>, usize)> {
    let head = Head::parse(bytes)?;
    let rest = &bytes[head.len..];
    let len = match head.framing() {
        Framing::Length(len) => (rest.len() >= len).then_some(len),
        Framing::Chunked => chunks(rest, |_| ()),
        Framing::UntilClosed => None,
    };
    Some((head, head.len + len?))
}

/// The part of the body after this head that has arrived, and whether it is complete.
pub fn body<'a>(head: Head<'_>, bytes: &'a [u8]) -> (Cow<'a, [u8]>, bool) {
    let rest = &bytes[head.len..];
    match head.framing() {
        Framing::Chunked => {
            let mut data = Vec::new();
            let end = chunks(rest, |chunk| data.extend_from_slice(chunk));
            (Cow::Owned(data), end.is_some())
        }
        Framing::Length(len) if rest.len() >= len => (Cow::Borrowed(&rest[..len]), true),
        _ => (Cow::Borrowed(rest), false),
    }
}

/// The first chunk of a chunked body, and its length with its framing; None while it is incomplete.
pub fn first_chunk(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let line = memchr::memmem::find(bytes, b"\r\n")?;
    let len = str::from_utf8(&bytes[..line]).ok()?.split(';').next()?.trim();
    let end = (line + 2).checked_add(usize::from_str_radix(len, 16).ok()?)?;
    let chunk = bytes.get(line + 2..end)?;
    (bytes.len() >= end + 2).then_some((chunk, end + 2))
}

/// Calls `each` with the chunks that have arrived. Returns the length of all chunks with their framing once the last
/// one has arrived.
fn chunks<'a>(bytes: &'a [u8], mut each: impl FnMut(&'a [u8])) -> Option<usize> {
    let mut at = 0;
    loop {
        let (chunk, taken) = first_chunk(&bytes[at..])?;
        at += taken;
        if chunk.is_empty() {
            return Some(at);
        }
        each(chunk);
    }
}

/// A server-sent event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    pub id: Option<String>,
    pub kind: Option<String>,
    pub retry: Option<u64>,
    pub data: String,
}

impl Event {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Takes the events that have arrived whole from a stream, and calls `each` with them. Returns how many comments there were.
pub fn take_events(stream: &mut Vec<u8>, mut each: impl FnMut(Event)) -> usize {
    let mut comments = 0;
    while let Some(end) = memchr::memmem::find(stream, b"\n\n") {
        let bytes: Vec<u8> = stream.drain(..end + 2).collect();
        let text = str::from_utf8(&bytes).unwrap();
        let mut event = Event::default();
        let (mut fields, mut data) = (0, Vec::new());
        for line in text.lines().filter(|line| !line.is_empty()) {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            fields += usize::from(!field.is_empty());
            match field {
                "" => comments += 1,
                "id" => event.id = Some(value.to_owned()),
                "event" => event.kind = Some(value.to_owned()),
                "retry" => event.retry = Some(value.parse().unwrap()),
                "data" => data.push(value),
                _ => panic!("no field of an event: {text:?}"),
            }
        }
        event.data = data.join("\n");
        if fields > 0 {
            each(event);
        }
    }
    comments
}

/// A connection of a client, which stays open.
pub struct Connection {
    address: SocketAddr,
    to: TcpStream,
    from: MessageReader<TcpStream>,
}

impl Connection {
    /// Connects. Each byte of an answer has to come within `patience`.
    pub fn open(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        Self::on(TcpStream::connect(address)?, patience)
    }

    /// A client of this connection.
    pub fn on(to: TcpStream, patience: Duration) -> io::Result<Self> {
        to.set_nodelay(true)?;
        to.set_read_timeout(Some(patience))?;
        let address = to.peer_addr()?;
        let from = MessageReader::new(to.try_clone()?);
        Ok(Self { address, to, from })
    }

    /// Sends a request and returns its answer.
    pub fn request(&mut self, request: &Request) -> io::Result<Response> {
        let message = self.ask(&request.encode(self.address))?;
        Ok(Response {
            status: message.head.status,
            head: message.head.text().to_owned(),
            body: String::from_utf8_lossy(message.body).into_owned(),
        })
    }

    /// Sends the bytes of a request.
    pub fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.to.write_all(request)
    }

    /// Waits for the answer to the request that was sent.
    pub fn receive(&mut self) -> io::Result<Message<'_>> {
        self.from
            .next_message()?
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Sends the bytes of a request and waits for its answer.
    pub fn ask(&mut self, request: &[u8]) -> io::Result<Message<'_>> {
        self.send(request)?;
        self.receive()
    }
}

/// Reads the messages of one connection: requests or responses.
pub struct MessageReader<R> {
    from: BufReader<R>,
    /// The bytes of the present message, and of what was read with it.
    bytes: Vec<u8>,
    /// The length of the present message.
    len: usize,
    /// Its body, if that came in chunks.
    body: Vec<u8>,
}

/// A request or a response.
pub struct Message<'a> {
    pub head: Head<'a>,
    pub body: &'a [u8],
}

impl<R: Read> MessageReader<R> {
    pub fn new(from: R) -> Self {
        Self {
            from: BufReader::with_capacity(BUFFER_LEN, from),
            bytes: Vec::new(),
            len: 0,
            body: Vec::new(),
        }
    }

    /// Waits for the next message. None at the end of the connection.
    pub fn next_message(&mut self) -> io::Result<Option<Message<'_>>> {
        self.bytes.drain(..self.len);
        self.len = 0;
        let is_ended = loop {
            if let Some((_, len)) = end(&self.bytes) {
                self.len = len;
                break false;
            }
            let read = self.from.fill_buf()?;
            let len = read.len();
            if len == 0 {
                break true;
            }
            self.bytes.extend_from_slice(read);
            self.from.consume(len);
            // Such as the first byte of TLS.
            if !self.bytes[0].is_ascii_uppercase() {
                return Err(io::ErrorKind::InvalidData.into());
            }
        };
        if is_ended && self.bytes.is_empty() {
            return Ok(None);
        }
        let head = Head::parse(&self.bytes).filter(|head| !is_ended || head.framing() == Framing::UntilClosed);
        let head = head.ok_or(io::ErrorKind::UnexpectedEof)?;
        if is_ended {
            self.len = self.bytes.len();
        }
        let body = match body(head, &self.bytes[..self.len]).0 {
            Cow::Borrowed(body) => body,
            Cow::Owned(body) => {
                self.body = body;
                &self.body
            }
        };
        Ok(Some(Message { head, body }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_ends_as_its_framing_says() {
        let plain = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcHTTP";
        let (head, len) = end(plain).unwrap();
        assert_eq!((head.status, len), (200, plain.len() - 4));
        assert_eq!(body(head, plain), (Cow::Borrowed(&b"abc"[..]), true));
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\nHTTP";
        let (head, len) = end(chunked).unwrap();
        assert_eq!(len, chunked.len() - 4);
        assert_eq!(body(head, chunked), (Cow::Borrowed(&b"abc"[..]), true));
        for cut in 0..len {
            assert!(end(&chunked[..cut]).is_none(), "{cut}");
        }
        let head = Head::parse(chunked).unwrap();
        assert_eq!(body(head, &chunked[..head.len + 9]), (Cow::Borrowed(&b"ab"[..]), false));
    }

    #[test]
    fn only_complete_events_are_taken() {
        let mut stream =
            b"retry: 3000\nid: 0\ndata:\n\nevent: message\ndata: {\"a\":\ndata: 1}\n\n: quiet\n\ndata: 2".to_vec();
        let mut events = Vec::new();
        assert_eq!(take_events(&mut stream, |event| events.push(event)), 1);
        assert_eq!((events[0].retry, events[0].id.as_deref()), (Some(3000), Some("0")));
        let data: Vec<_> = events.iter().map(|event| event.data.as_str()).collect();
        assert_eq!((&data[..], &stream[..]), (&["", "{\"a\":\n1}"][..], &b"data: 2"[..]));
    }

    #[test]
    fn messages_follow_each_other_with_a_length_or_in_chunks() {
        let bytes =
            b"POST /mcp HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\
            Mcp-Session-Id: a\r\n\r\n2;x\r\n{\"\r\n3\r\na\"}\r\n0\r\n\r\nHTTP/1.1 202 Accepted\r\n\r\n";
        let mut reader = MessageReader::new(&bytes[..]);
        let request = Request::read(&mut reader).unwrap().unwrap();
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/mcp"));
        assert_eq!(
            (request.header("content-length"), &request.body[..]),
            (Some("2"), &b"{}"[..])
        );
        let chunked = reader.next_message().unwrap().unwrap();
        assert_eq!(
            (chunked.body, chunked.head.header("mcp-session-id"), chunked.head.status),
            (&b"{\"a\"}"[..], Some("a"), 200)
        );
        assert_eq!(reader.next_message().unwrap().unwrap().body, b"");
        assert!(reader.next_message().unwrap().is_none());
        let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}";
        assert!(MessageReader::new(&cut[..]).next_message().is_err());
        assert!(MessageReader::new(&b"\x16\x03\x01"[..]).next_message().is_err());
    }
}
