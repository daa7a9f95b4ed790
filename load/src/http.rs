//! Messages of HTTP/1.1 on a connection that stays open, as far as the tool reads them: a length or chunks, and no limits,
//! because both ends are known.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use crate::error::{LoadError, Result};

/// Bytes of the buffer of a connection.
const BUFFER_LEN: usize = 64 * 1024;

/// A connection of a client.
pub struct HttpConnection {
    to: TcpStream,
    from: HttpReader<TcpStream>,
}

impl HttpConnection {
    /// Connects. Each byte of an answer has to come within `patience`.
    pub fn open(address: SocketAddr, patience: Duration) -> Result<Self> {
        let to = TcpStream::connect(address)?;
        to.set_nodelay(true)?;
        to.set_read_timeout(Some(patience))?;
        let from = HttpReader::new(to.try_clone()?);
        Ok(Self { to, from })
    }

    /// Sends a request.
    pub fn send(&mut self, request: &[u8]) -> Result<()> {
        Ok(self.to.write_all(request)?)
    }

    /// Waits for the answer to the request that was sent.
    pub fn receive(&mut self) -> Result<HttpMessage<'_>> {
        let answer = self.from.next()?;
        answer.ok_or(LoadError::Http("it ended a connection"))
    }

    /// Sends a request and waits for its answer.
    pub fn ask(&mut self, request: &[u8]) -> Result<HttpMessage<'_>> {
        self.send(request)?;
        self.receive()
    }
}

/// Reads the messages of one connection.
pub struct HttpReader<R> {
    from: BufReader<R>,
    head: Vec<u8>,
    body: Vec<u8>,
}

/// A request or a response.
pub struct HttpMessage<'a> {
    /// The first line and the headers.
    pub head: &'a str,
    pub body: &'a [u8],
}

impl HttpMessage<'_> {
    /// The status of a response; 0 in a request.
    pub fn status(&self) -> u16 {
        let word = self.head.split(' ').nth(1);
        word.and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    /// The value of a header, whose name is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(self.head, name)
    }
}

impl<R: Read> HttpReader<R> {
    pub fn new(from: R) -> Self {
        Self {
            from: BufReader::with_capacity(BUFFER_LEN, from),
            head: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Waits for the next message. `None` at the end of the connection.
    pub fn next(&mut self) -> Result<Option<HttpMessage<'_>>> {
        self.head.clear();
        self.body.clear();
        loop {
            let line = self.from.read_until(b'\n', &mut self.head)?;
            if line == 0 {
                return Ok(None);
            }
            if self.head.ends_with(b"\r\n\r\n") {
                break;
            }
        }
        let head = str::from_utf8(&self.head).map_err(|_| LoadError::Http("a head is not UTF-8"))?;
        if header(head, "transfer-encoding").is_some() {
            while read_chunk(&mut self.from, &mut self.body)? {}
        } else if let Some(len) = header(head, "content-length") {
            let len = len.parse().map_err(|_| LoadError::Http("a length is no number"))?;
            read_exactly(&mut self.from, len, &mut self.body)?;
        }
        Ok(Some(HttpMessage { head, body: &self.body }))
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Appends a chunk to the body. Returns false after the last one.
fn read_chunk(from: &mut impl BufRead, body: &mut Vec<u8>) -> Result<bool> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let len = line.split(';').next().unwrap_or_default().trim();
    let len = u64::from_str_radix(len, 16).map_err(|_| LoadError::Http("a chunk has no length"))?;
    read_exactly(from, len, body)?;
    line.clear();
    from.read_line(&mut line)?;
    Ok(len > 0)
}

fn read_exactly(from: &mut impl BufRead, len: u64, into: &mut Vec<u8>) -> Result<()> {
    match from.take(len).read_to_end(into)? as u64 {
        read if read == len => Ok(()),
        _ => Err(LoadError::Http("a message ended early")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_follow_each_other_with_a_length_or_in_chunks() {
        let bytes =
            b"POST /mcp HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\
            Mcp-Session-Id: a\r\n\r\n2;x\r\n{\"\r\n3\r\na\"}\r\n0\r\n\r\nHTTP/1.1 202 Accepted\r\n\r\n";
        let mut reader = HttpReader::new(&bytes[..]);
        assert_eq!(reader.next().unwrap().unwrap().body, b"{}");
        let chunked = reader.next().unwrap().unwrap();
        let expected = (&b"{\"a\"}"[..], Some("a"), 200);
        assert_eq!(
            (chunked.body, chunked.header("mcp-session-id"), chunked.status()),
            expected
        );
        assert_eq!(reader.next().unwrap().unwrap().body, b"");
        assert!(reader.next().unwrap().is_none());
        let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}";
        assert!(HttpReader::new(&cut[..]).next().is_err());
    }
}
