//! The client's side of RFC 6455 as far as MCP over WebSocket needs it: the handshake with the subprotocol `mcp`,
//! masked text frames out, unmasked frames in. It offers no extension, so the server must not use one.

use std::net::{SocketAddr, ToSocketAddrs};

use crate::error::{LoadError, Result};

pub const CONTINUATION: u8 = 0;
pub const TEXT: u8 = 1;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

const LAST: u8 = 0x80;
const MASKED: u8 = 0x80;
/// Markers in place of a length: the length follows in 2 or 8 bytes.
const LEN_16: u8 = 0x7e;
const LEN_64: u8 = 0x7f;

const FRAME_BYTES_MAX: usize = 64 << 20;
const UPGRADE_BYTES_MAX: usize = 16 << 10;
/// The example pair of RFC 6455, section 1.3. The key only shows that the peer speaks WebSocket, so a constant one is
/// enough, and its answer needs no SHA-1 here.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// The address of the server and the headers of each handshake. It holds keys: never print it.
#[derive(Clone)]
pub struct Target {
    pub address: SocketAddr,
    /// The request up to the headers of the caller.
    head: String,
    /// The headers of the caller, one per line.
    pub headers: String,
    pub upgrade: String,
}

impl Target {
    /// Resolves the address once: a name that changes its address during a run would mix two servers.
    pub fn parse(url: &str, headers: &[(&str, &str)]) -> Result<Self> {
        let bad = |reason: &str| LoadError::Url {
            url: url.into(),
            reason: reason.into(),
        };
        let rest = url
            .strip_prefix("ws://")
            .ok_or_else(|| bad("it must begin with ws://, TLS is not spoken here"))?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = if path.is_empty() { "/ws" } else { path };
        let with_port = if host.ends_with(']') || !host.contains(':') {
            format!("{host}:80")
        } else {
            host.into()
        };
        let mut found = with_port.to_socket_addrs().map_err(|e| bad(&e.to_string()))?;
        let address = found.next().ok_or_else(|| bad("the name has no address"))?;
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Protocol: mcp\r\n"
        );
        let target = Self {
            address,
            head,
            headers: String::new(),
            upgrade: String::new(),
        };
        target.with(headers)
    }

    /// The same server with these headers and no others.
    pub fn with(&self, headers: &[(&str, &str)]) -> Result<Self> {
        let mut lines = String::new();
        for (name, value) in headers {
            if value.chars().any(char::is_control) {
                return Err(LoadError::Arguments(format!(
                    "the value of {name} holds a control character"
                )));
            }
            lines.extend([name, ": ", value, "\r\n"]);
        }
        Ok(Self {
            address: self.address,
            head: self.head.clone(),
            upgrade: format!("{}{lines}\r\n", self.head),
            headers: lines,
        })
    }
}

/// Reads the answer to the handshake. Returns its length, or None while it is incomplete.
pub fn read_upgrade(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else {
        return if bytes.len() > UPGRADE_BYTES_MAX {
            refuse("an endless answer")
        } else {
            Ok(None)
        };
    };
    let head = String::from_utf8_lossy(&bytes[..end]);
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("101") {
        let body: String = String::from_utf8_lossy(&bytes[end + 4..]).chars().take(300).collect();
        return refuse(&format!("{status} {body}"));
    }
    let header = |name: &str| {
        let mut all = head.split("\r\n").filter_map(|line| line.split_once(':'));
        all.find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim().to_owned())
    };
    if header("sec-websocket-accept").as_deref() != Some(ACCEPT) {
        return refuse("Sec-WebSocket-Accept does not answer the key");
    }
    if header("sec-websocket-protocol").as_deref() != Some("mcp") {
        return refuse("it did not choose the subprotocol mcp");
    }
    if header("sec-websocket-extensions").is_some() {
        return refuse("it chose an extension that was not offered");
    }
    Ok(Some(end + 4))
}

fn refuse<T>(reason: &str) -> Result<T> {
    Err(LoadError::Upgrade(reason.trim().into()))
}

/// A frame of the server, borrowed from the read buffer.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub last: bool,
    pub opcode: u8,
    pub payload: &'a [u8],
    /// Bytes of the buffer that the frame takes, head included.
    pub taken: usize,
}

/// The first frame in `bytes`, or None while it is incomplete.
pub fn read_frame(bytes: &[u8]) -> Result<Option<Frame<'_>>> {
    let [first, second, rest @ ..] = bytes else {
        return Ok(None);
    };
    if first & 0x70 != 0 || second & MASKED != 0 {
        return Err(LoadError::Framing(format!(
            "frame head {first:#04x} {second:#04x}: reserved bit or mask"
        )));
    }
    let (head, len) = match second & 0x7f {
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
        return Err(LoadError::Framing(format!("a frame of {len} bytes")));
    }
    let taken = head + len;
    Ok(bytes.get(head..taken).map(|payload| Frame {
        last: first & LAST != 0,
        opcode: first & 0x0f,
        payload,
        taken,
    }))
}

/// Appends one whole frame, masked with `mask`, to `out`.
pub fn write_frame(out: &mut Vec<u8>, opcode: u8, payload: &[u8], mask: [u8; 4]) {
    out.push(LAST | opcode);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(len), _) if len < LEN_16 => out.push(MASKED | len),
        (_, Ok(len)) => {
            out.push(MASKED | LEN_16);
            out.extend_from_slice(&len.to_be_bytes());
        }
        _ => {
            out.push(MASKED | LEN_64);
            out.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&mask);
    let start = out.len();
    out.extend_from_slice(payload);
    apply_mask(&mut out[start..], mask);
}

fn apply_mask(bytes: &mut [u8], mask: [u8; 4]) {
    let wide = u64::from_ne_bytes([mask[0], mask[1], mask[2], mask[3], mask[0], mask[1], mask[2], mask[3]]);
    let (words, tail) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, key) in tail.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_masked_frame_reads_back_at_every_length_class() {
        for len in [0, 1, 7, 8, 125, 126, 65_535, 65_536] {
            let payload: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let mut out = vec![];
            write_frame(&mut out, TEXT, &payload, [1, 2, 3, 4]);
            assert_eq!(out[1] & 0x80, 0x80);
            let head = out.len() - len;
            apply_mask(&mut out[head..], [1, 2, 3, 4]);
            // Without the mask it is a frame of a server.
            out[1] &= 0x7f;
            out.drain(head - 4..head);
            let frame = read_frame(&out).unwrap().unwrap();
            assert_eq!(
                (frame.payload, frame.taken, frame.opcode, frame.last),
                (&payload[..], out.len(), TEXT, true)
            );
            assert_eq!(read_frame(&out[..out.len() - 1]).unwrap(), None);
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

    #[test]
    fn an_address_gets_default_port_path_and_headers() {
        let target = Target::parse("ws://127.0.0.1", &[("X-API-Key", "k")]).unwrap();
        assert_eq!(target.address.to_string(), "127.0.0.1:80");
        assert!(target.upgrade.starts_with("GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\n"));
        assert!(target.upgrade.ends_with("X-API-Key: k\r\n\r\n"));
        let other = target.with(&[("X-Project-ID", "p")]).unwrap().upgrade;
        assert!(other.ends_with("X-Project-ID: p\r\n\r\n") && !other.contains("X-API-Key"));
        assert!(Target::parse("wss://127.0.0.1", &[]).is_err());
        assert!(Target::parse("ws://127.0.0.1", &[("X-API-Key", "k\r\nX: y")]).is_err());
    }
}
