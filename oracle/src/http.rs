//! HTTP/1.1 for a client that needs exact control of the bytes and little overhead.

use std::net::SocketAddr;

/// A request, sent byte for byte as it is here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn new(method: &str, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Self {
        let mut request = Self {
            method: method.to_owned(),
            target: "/mcp".to_owned(),
            headers: Vec::new(),
            body: body.into(),
        };
        for (name, value) in headers {
            request.add(name, value);
        }
        request
    }

    /// The value of the first header of this name.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let (_, value) = self.headers.iter().find(|(it, _)| it.eq_ignore_ascii_case(name))?;
        Some(value)
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
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        if self.header("host").is_none() {
            bytes.extend(format!("Host: {host}\r\n").into_bytes());
        }
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        if self.header("transfer-encoding").is_some() {
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
}

/// The head of a response.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    pub status: u16,
    /// Bytes up to the body.
    pub len: usize,
    lines: &'a [u8],
}

impl<'a> Head<'a> {
    /// Parses a head; None while it is incomplete.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|it| it == b"\r\n\r\n")?;
        let status = bytes
            .get(9..12)
            .and_then(|it| std::str::from_utf8(it).ok()?.parse().ok());
        Some(Self {
            // No request with this prefix is answered with status 0.
            status: status.unwrap_or(0),
            len: end + 4,
            lines: &bytes[..end],
        })
    }

    /// The value of the first header of this name.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.lines.split(|byte| *byte == b'\n').skip(1).find_map(|line| {
            let (key, value) = line.split_at_checked(name.len())?;
            let value = value.strip_prefix(b":")?;
            let found = key.eq_ignore_ascii_case(name.as_bytes());
            found.then(|| std::str::from_utf8(value).unwrap_or_default().trim())
        })
    }

    fn is_chunked(&self) -> bool {
        self.header("transfer-encoding")
            .is_some_and(|it| it.eq_ignore_ascii_case("chunked"))
    }
}

/// The end of the first response in these bytes; None while it is incomplete.
pub fn end(bytes: &[u8]) -> Option<(Head<'_>, usize)> {
    let head = Head::parse(bytes)?;
    let body = &bytes[head.len..];
    let len = if head.is_chunked() {
        chunks(body, |_| ())?
    } else {
        head.header("content-length")?.parse().ok()?
    };
    (body.len() >= len).then_some((head, head.len + len))
}

/// The part of the body after this head that has arrived, and whether it is complete.
pub fn body(head: Head<'_>, bytes: &[u8]) -> (Vec<u8>, bool) {
    let rest = &bytes[head.len..];
    if head.is_chunked() {
        let mut data = Vec::new();
        let end = chunks(rest, |chunk| data.extend_from_slice(chunk));
        return (data, end.is_some());
    }
    let len = head.header("content-length").and_then(|len| len.parse().ok());
    match len {
        Some(len) if rest.len() >= len => (rest[..len].to_owned(), true),
        _ => (rest.to_owned(), false),
    }
}

/// Calls `each` with the chunks that have arrived. Returns the length of all chunks with their framing once the last
/// one has arrived.
fn chunks<'a>(bytes: &'a [u8], mut each: impl FnMut(&'a [u8])) -> Option<usize> {
    let mut at = 0;
    loop {
        let line = bytes.get(at..)?;
        let len = line.windows(2).position(|it| it == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&line[..len]).ok()?.trim(), 16).ok()?;
        let start = at + len + 2;
        let data = bytes.get(start..start + size)?;
        at = start + size + 2;
        if size == 0 {
            return (bytes.len() >= at).then_some(at);
        }
        each(data);
    }
}

/// The data of the complete events of an SSE stream; events without data are left out.
pub fn events(body: &str) -> impl Iterator<Item = String> {
    let whole = body.rfind("\n\n").map_or("", |end| &body[..end]);
    whole.split("\n\n").filter_map(|event| {
        let lines: Vec<_> = event
            .lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .map(|data| data.strip_prefix(' ').unwrap_or(data))
            .collect();
        let data = lines.join("\n");
        (!data.is_empty()).then_some(data)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_ends_as_its_framing_says() {
        let plain = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcHTTP";
        let (head, len) = end(plain).unwrap();
        assert_eq!((head.status, len), (200, plain.len() - 4));
        assert_eq!(body(head, plain), (b"abc".to_vec(), true));
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\nHTTP";
        let (head, len) = end(chunked).unwrap();
        assert_eq!(len, chunked.len() - 4);
        assert_eq!(body(head, chunked), (b"abc".to_vec(), true));
        for cut in 0..len {
            assert!(end(&chunked[..cut]).is_none(), "{cut}");
        }
        let head = Head::parse(chunked).unwrap();
        assert_eq!(body(head, &chunked[..head.len + 9]), (b"ab".to_vec(), false));
    }

    #[test]
    fn only_complete_events_are_returned() {
        let stream = "retry: 3000\nid: 0\ndata:\n\nevent: message\ndata: {\"a\":\ndata: 1}\n\n: quiet\n\ndata: 2";
        assert_eq!(events(stream).collect::<Vec<_>>(), ["{\"a\":\n1}"]);
        assert_eq!(events("").count(), 0);
    }
}
