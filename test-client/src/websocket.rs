//! The client's side of RFC 6455 as far as MCP over WebSocket needs it: the handshake with the subprotocol `mcp`, and frames.
//! It offers no extension, so the server must not use one.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
};

use serde_json::Value;

use crate::{
    http::{Head, header},
    wait::WAIT_TIMEOUT,
};

pub const CONTINUATION: u8 = 0;
pub const TEXT: u8 = 1;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

/// The bit of the last frame of a message, in the first byte beside the opcode.
pub const LAST: u8 = 0x80;
const MASKED: u8 = 0x80;
/// Markers in place of a length: the length follows in 2 or 8 bytes.
const LEN_16: u8 = 0x7e;
const LEN_64: u8 = 0x7f;

const FRAME_BYTES_MAX: usize = 64 << 20;
const UPGRADE_BYTES_MAX: usize = 16 << 10;
/// The example pair of RFC 6455, section 1.3. The key only shows that the peer speaks WebSocket, so a constant one is
/// enough, and its answer needs no SHA-1 here.
pub const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// The mask of clients that need none of their own.
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// The other side breaks the protocol.
#[derive(Debug)]
pub enum Violation {
    /// It refused the handshake.
    Upgrade(String),
    /// Its bytes are no frame that it may send.
    Framing(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Upgrade(reason) => write!(f, "the server refused the WebSocket: {reason}"),
            Self::Framing(reason) => write!(f, "the server broke the WebSocket protocol: {reason}"),
        }
    }
}

impl std::error::Error for Violation {}

impl From<Violation> for io::Error {
    fn from(violation: Violation) -> Self {
        Self::other(violation)
    }
}

/// The request of a handshake, up to the headers of the caller and the empty line.
pub fn upgrade_head(host: &str, path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Protocol: mcp\r\n"
    )
}

/// The answer of a server to the handshake.
pub fn upgraded_head() -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {ACCEPT}\r\nSec-WebSocket-Protocol: mcp\r\n\r\n"
    )
}

/// Reads the answer to the handshake. Returns its length, or None while it is incomplete.
pub fn read_upgrade(bytes: &[u8]) -> Result<Option<usize>, Violation> {
    let Some(head) = Head::parse(bytes) else {
        return if bytes.len() > UPGRADE_BYTES_MAX {
            refuse("an endless answer")
        } else {
            Ok(None)
        };
    };
    let text = head.text();
    if head.status != 101 {
        let status = text.lines().next().unwrap_or_default();
        let body: String = String::from_utf8_lossy(&bytes[head.len..]).chars().take(300).collect();
        return refuse(&format!("{status} {body}"));
    }
    if header(text, "sec-websocket-accept") != Some(ACCEPT) {
        return refuse("Sec-WebSocket-Accept does not answer the key");
    }
    if header(text, "sec-websocket-protocol") != Some("mcp") {
        return refuse("it did not choose the subprotocol mcp");
    }
    if header(text, "sec-websocket-extensions").is_some() {
        return refuse("it chose an extension that was not offered");
    }
    Ok(Some(head.len))
}

fn refuse<T>(reason: &str) -> Result<T, Violation> {
    Err(Violation::Upgrade(reason.trim().into()))
}

/// A frame, borrowed from the read buffer.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub last: bool,
    pub opcode: u8,
    /// That of a client; a server has none.
    mask: Option<[u8; 4]>,
    pub payload: &'a [u8],
    /// Bytes of the buffer that the frame takes, head included.
    pub taken: usize,
}

impl Frame<'_> {
    pub fn is_masked(&self) -> bool {
        self.mask.is_some()
    }

    /// The payload without its mask.
    pub fn unmasked(&self) -> Vec<u8> {
        let mut payload = self.payload.to_vec();
        apply_mask(&mut payload, self.mask.unwrap_or_default());
        payload
    }
}

/// The first frame of a server in `bytes`, or None while it is incomplete.
pub fn read_frame(bytes: &[u8]) -> Result<Option<Frame<'_>>, Violation> {
    match read_any_frame(bytes)? {
        Some(frame) if frame.mask.is_some() => Err(Violation::Framing("a frame of a server has a mask".into())),
        frame => Ok(frame),
    }
}

/// The first frame in `bytes`, of either side, or None while it is incomplete.
pub fn read_any_frame(bytes: &[u8]) -> Result<Option<Frame<'_>>, Violation> {
    let [first, second, rest @ ..] = bytes else {
        return Ok(None);
    };
    if first & 0x70 != 0 {
        return Err(Violation::Framing(format!(
            "frame head {first:#04x} {second:#04x}: a reserved bit"
        )));
    }
    let (mut head, len) = match second & 0x7f {
        LEN_16 => match rest.first_chunk::<2>() {
            Some(len) => (4, usize::from(u16::from_be_bytes(*len))),
            None => return Ok(None),
        },
        LEN_64 => match rest.first_chunk::<8>() {
            Some(len) => (10, usize::try_from(u64::from_be_bytes(*len)).unwrap_or(usize::MAX)),
            None => return Ok(None),
        },
        len => (2, usize::from(len)),
    };
    if len > FRAME_BYTES_MAX {
        return Err(Violation::Framing(format!("a frame of {len} bytes")));
    }
    let mut mask = None;
    if second & MASKED != 0 {
        let Some(key) = bytes[head..].first_chunk::<4>() else {
            return Ok(None);
        };
        mask = Some(*key);
        head += 4;
    }
    let taken = head + len;
    Ok(bytes.get(head..taken).map(|payload| Frame {
        last: first & LAST != 0,
        opcode: first & 0x0f,
        mask,
        payload,
        taken,
    }))
}

/// Appends one frame with this first byte to `out`: of a client with a mask, of a server without.
pub fn write_frame(out: &mut Vec<u8>, first: u8, payload: &[u8], mask: Option<[u8; 4]>) {
    let masked = if mask.is_some() { MASKED } else { 0 };
    out.push(first);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(len), _) if len < LEN_16 => out.push(masked | len),
        (_, Ok(len)) => {
            out.push(masked | LEN_16);
            out.extend_from_slice(&len.to_be_bytes());
        }
        _ => {
            out.push(masked | LEN_64);
            out.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(mask.as_ref().map_or(&[], |mask| &mask[..]));
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(mask) = mask {
        apply_mask(&mut out[start..], mask);
    }
}

/// One frame of a client with this first byte.
pub fn masked_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    write_frame(&mut frame, first, payload, Some(MASK));
    frame
}

fn apply_mask(bytes: &mut [u8], mask: [u8; 4]) {
    let wide = u64::from_ne_bytes([mask[0], mask[1], mask[2], mask[3], mask[0], mask[1], mask[2], mask[3]]);
    let (words, tail) = bytes.as_chunks_mut::<8>();
    // Eight bytes at a time: in a build without optimization this takes a quarter of the time for each of the large frames.
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, key) in tail.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
}

/// A connection of a client, whose reader waits.
pub struct WebSocket {
    pub stream: TcpStream,
    pub frames: FrameReader<TcpStream>,
}

impl WebSocket {
    /// Connects, with these headers in the handshake.
    pub fn connect(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(WAIT_TIMEOUT))?;
        stream.set_write_timeout(Some(WAIT_TIMEOUT))?;
        let mut request = upgrade_head(&address.to_string(), path);
        for (name, value) in headers {
            request.extend([name, ": ", value, "\r\n"]);
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes())?;
        let mut frames = FrameReader::new(stream.try_clone()?);
        frames.skip_upgrade()?;
        // A connection may be silent for longer than a server takes to accept it.
        stream.set_read_timeout(None)?;
        Ok(Self { stream, frames })
    }

    /// Sends a message of JSON.
    pub fn send(&mut self, message: &Value) -> io::Result<()> {
        let frame = masked_frame(LAST | TEXT, message.to_string().as_bytes());
        self.stream.write_all(&frame)
    }

    /// Waits for the next message, and answers pings meanwhile. At the end of the connection, and after the time limit of
    /// a read, there is none.
    pub fn receive(&mut self) -> io::Result<Value> {
        loop {
            let frame = self.frames.next_frame()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            match frame.opcode {
                TEXT => return Ok(serde_json::from_slice(frame.payload)?),
                PING => self.stream.write_all(&masked_frame(LAST | PONG, frame.payload))?,
                CLOSE => return Err(io::ErrorKind::ConnectionAborted.into()),
                _ => {}
            }
        }
    }
}

/// Reads the frames of one side of a connection.
pub struct FrameReader<R> {
    pub from: R,
    bytes: Vec<u8>,
    /// The length of the present frame.
    len: usize,
}

impl<R: Read> FrameReader<R> {
    pub fn new(from: R) -> Self {
        Self {
            from,
            bytes: Vec::new(),
            len: 0,
        }
    }

    /// Waits for the next frame. None at the end of the connection.
    pub fn next_frame(&mut self) -> io::Result<Option<Frame<'_>>> {
        self.bytes.drain(..self.len);
        self.len = 0;
        while self.len == 0 {
            let len = read_any_frame(&self.bytes)?.map(|frame| frame.taken);
            match len {
                Some(len) => self.len = len,
                None if self.read_more()? => {}
                None => return Ok(None),
            }
        }
        Ok(read_any_frame(&self.bytes)?)
    }

    /// Waits for the answer to the handshake, which comes before the frames.
    fn skip_upgrade(&mut self) -> io::Result<()> {
        while self.len == 0 {
            match read_upgrade(&self.bytes)? {
                Some(len) => self.len = len,
                None if self.read_more()? => {}
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        Ok(())
    }

    fn read_more(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 16 * 1024];
        let len = self.from.read(&mut chunk)?;
        self.bytes.extend_from_slice(&chunk[..len]);
        Ok(len > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_masked_frame_reads_back_at_every_length_class() {
        for len in [0, 1, 7, 8, 125, 126, 65_535, 65_536] {
            let payload: Vec<u8> = (0..len).map(|i: usize| (i % 251) as u8).collect();
            let mut out = vec![];
            write_frame(&mut out, LAST | TEXT, &payload, None);
            let frame = read_frame(&out).unwrap().unwrap();
            assert_eq!(
                (frame.payload, frame.taken, frame.opcode, frame.last),
                (&payload[..], out.len(), TEXT, true)
            );
            assert_eq!(read_frame(&out[..out.len() - 1]).unwrap(), None);
            let out = masked_frame(LAST | TEXT, &payload);
            assert!(read_frame(&out).is_err());
            let mut reader = FrameReader::new(&out[..]);
            assert_eq!(reader.next_frame().unwrap().unwrap().unmasked(), payload);
            assert!(reader.next_frame().unwrap().is_none());
        }
    }

    #[test]
    fn masked_or_compressed_frames_of_a_server_are_refused() {
        assert!(read_frame(&[0x81, 0x81, 0, 0, 0, 0, 1]).is_err());
        assert!(read_frame(&[0xc1, 0x01, 1]).is_err());
        assert!(read_frame(&[0x81, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]).is_err());
    }

    #[test]
    fn an_upgrade_needs_status_key_and_subprotocol() {
        let ok = format!("HTTP/1.1 101 X\r\nsec-websocket-accept: {ACCEPT}\r\nSec-WebSocket-Protocol: mcp\r\n\r\n");
        assert_eq!(read_upgrade(format!("{ok}rest").as_bytes()).unwrap(), Some(ok.len()));
        assert_eq!(read_upgrade(&ok.as_bytes()[..ok.len() - 1]).unwrap(), None);
        assert!(read_upgrade(ok.replace("mcp", "chat").as_bytes()).is_err());
        let refused = read_upgrade(b"HTTP/1.1 401 Unauthorized\r\n\r\n{\"code\":\"authentication_failed\"}");
        assert!(refused.unwrap_err().to_string().contains("authentication_failed"));
    }
}
