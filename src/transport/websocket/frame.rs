//! Decodes RFC 6455 frames of a client in place. It does no I/O.

use crate::transport::inbound::UNRESERVED_LEN_MAX;

/// A decoded message or control frame.
#[derive(Debug, PartialEq, Eq)]
pub enum FrameEvent<'a> {
    /// A complete text message.
    Text(&'a str),
    Ping(&'a [u8]),
    Pong,
    /// The peer closes, with an optional status code.
    Close(Option<u16>),
}

/// Why the connection has to be closed. The values are close codes of RFC 6455, section 7.4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    Protocol = 1002,
    Binary = 1003,
    Utf8 = 1007,
    TooLarge = 1009,
}

/// Decodes a stream of bytes. It buffers at most one message and one partial frame, both bounded.
#[derive(Debug)]
pub struct Decoder {
    message_len_max: usize,
    /// The beginning of an incomplete frame.
    partial: Vec<u8>,
    /// The total length of that frame, as far as known; else 0.
    partial_len_needed: usize,
    /// The payloads of the fragments so far.
    fragments: Option<Vec<u8>>,
}

struct Header {
    fin: bool,
    opcode: u8,
    mask: [u8; 4],
    len: usize,
    payload_len: usize,
}

const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;
/// Longest payload of a control frame (section 5.5).
const CONTROL_LEN_MAX: usize = 125;
/// Longest header: two bytes, eight of length, four of mask.
const HEADER_LEN_MAX: usize = 14;

impl Decoder {
    /// A decoder for messages of at most `message_len_max` bytes.
    pub fn new(message_len_max: usize) -> Self {
        Self {
            message_len_max,
            partial: Vec::new(),
            partial_len_needed: 0,
            fragments: None,
        }
    }

    /// Decodes the bytes of one read, which are unmasked in place. Calls `on` for each complete message or control
    /// frame.
    ///
    /// # Errors
    /// The violation; the connection has to be closed.
    pub fn decode(&mut self, bytes: &mut [u8], mut on: impl FnMut(FrameEvent<'_>)) -> Result<(), Violation> {
        if self.partial.is_empty() {
            let used = self.decode_frames(bytes, &mut on)?;
            self.buffer_rest(&bytes[used..]);
            return Ok(());
        }
        self.partial.extend_from_slice(bytes);
        if self.partial.len() < self.partial_len_needed {
            return Ok(());
        }
        let mut pending = std::mem::take(&mut self.partial);
        let used = self.decode_frames(&mut pending, &mut on)?;
        if used == pending.len() {
            // Keeps capacity for the next header.
            pending.clear();
            pending.shrink_to(HEADER_LEN_MAX);
        } else {
            pending.drain(..used);
        }
        self.partial = pending;
        Ok(())
    }

    /// Bytes buffered of incomplete messages.
    pub fn buffered_len(&self) -> usize {
        self.partial.len() + self.fragments.as_ref().map_or(0, Vec::len)
    }

    /// Bytes that the incomplete message may need, as far as known. A fragmented message over [`UNRESERVED_LEN_MAX`]
    /// may need the largest length.
    pub fn needed_len(&self) -> usize {
        let frame_len = self.partial_len_needed.max(self.partial.len());
        match &self.fragments {
            Some(fragments) if fragments.len() + frame_len > UNRESERVED_LEN_MAX => {
                self.message_len_max + HEADER_LEN_MAX
            }
            Some(fragments) => fragments.len() + frame_len,
            None => frame_len,
        }
    }

    /// Allocates the incomplete frame, once its bytes are reserved.
    pub fn reserve_frame(&mut self) {
        let missing = self.partial_len_needed.saturating_sub(self.partial.len());
        self.partial.reserve_exact(missing);
    }

    /// Frees unused capacity.
    pub fn shrink(&mut self) {
        self.partial.shrink_to_fit();
    }

    fn buffer_rest(&mut self, rest: &[u8]) {
        if !rest.is_empty() {
            // The rest of the frame is allocated after its reservation.
            self.partial
                .reserve_exact(rest.len().max(self.partial_len_needed.min(UNRESERVED_LEN_MAX)));
            self.partial.extend_from_slice(rest);
        }
    }

    /// Decodes complete frames and returns the bytes used.
    fn decode_frames(&mut self, bytes: &mut [u8], on: &mut impl FnMut(FrameEvent<'_>)) -> Result<usize, Violation> {
        let mut at = 0;
        loop {
            self.partial_len_needed = 0;
            let Some(header) = self.header(&bytes[at..])? else {
                return Ok(at);
            };
            let end = header.len + header.payload_len;
            if bytes.len() - at < end {
                self.partial_len_needed = end;
                return Ok(at);
            }
            let payload = &mut bytes[at + header.len..at + end];
            unmask(payload, header.mask);
            self.frame(&header, payload, on)?;
            at += end;
        }
    }

    /// Parses a header. An unacceptable frame is refused before its payload arrives.
    fn header(&self, bytes: &[u8]) -> Result<Option<Header>, Violation> {
        let &[first, second, ref rest @ ..] = bytes else {
            return Ok(None);
        };
        let (fin, opcode) = (first & 0x80 != 0, first & 0x0f);
        let reserved = first & 0x70 != 0;
        let masked = second & 0x80 != 0;
        if reserved || !masked {
            return Err(Violation::Protocol);
        }
        let (len_len, payload_len) = match (second & 0x7f, rest) {
            (126, [a, b, ..]) => (2, u64::from(u16::from_be_bytes([*a, *b]))),
            (127, rest) if let Some(len) = rest.first_chunk() => (8, u64::from_be_bytes(*len)),
            (126 | 127, _) => return Ok(None),
            (len, _) => (0, u64::from(len)),
        };
        let payload_len = usize::try_from(payload_len).map_err(|_| Violation::TooLarge)?;
        self.check(fin, opcode, payload_len)?;
        let Some(&[a, b, c, d]) = rest.get(len_len..len_len + 4).and_then(|mask| mask.first_chunk::<4>()) else {
            return Ok(None);
        };
        Ok(Some(Header {
            fin,
            opcode,
            mask: [a, b, c, d],
            len: 2 + len_len + 4,
            payload_len,
        }))
    }

    fn check(&self, fin: bool, opcode: u8, payload_len: usize) -> Result<(), Violation> {
        let so_far = match (opcode, &self.fragments) {
            (CLOSE | PING | PONG, _) if fin && payload_len <= CONTROL_LEN_MAX => return Ok(()),
            (CONTINUATION, Some(fragments)) => fragments.len(),
            (TEXT, None) => 0,
            (BINARY, None) => return Err(Violation::Binary),
            _ => return Err(Violation::Protocol),
        };
        if payload_len > self.message_len_max - so_far {
            Err(Violation::TooLarge)
        } else {
            Ok(())
        }
    }

    fn frame(&mut self, header: &Header, payload: &[u8], on: &mut impl FnMut(FrameEvent<'_>)) -> Result<(), Violation> {
        match header.opcode {
            PING => on(FrameEvent::Ping(payload)),
            PONG => on(FrameEvent::Pong),
            CLOSE => on(FrameEvent::Close(close_code(payload)?)),
            _ => match (header.fin, self.fragments.take()) {
                (true, None) => on(FrameEvent::Text(text(payload)?)),
                (true, Some(mut fragments)) => {
                    fragments.extend_from_slice(payload);
                    on(FrameEvent::Text(text(&fragments)?));
                }
                (false, fragments) => {
                    let mut fragments = fragments.unwrap_or_default();
                    fragments.extend_from_slice(payload);
                    self.fragments = Some(fragments);
                }
            },
        }
        Ok(())
    }
}

fn text(payload: &[u8]) -> Result<&str, Violation> {
    std::str::from_utf8(payload).map_err(|_| Violation::Utf8)
}

/// Sections 5.5.1 and 7.4: empty, or a status code that may be sent with a reason in UTF-8.
fn close_code(payload: &[u8]) -> Result<Option<u16>, Violation> {
    match payload {
        [] => Ok(None),
        [a, b, reason @ ..] => {
            text(reason)?;
            let code = u16::from_be_bytes([*a, *b]);
            let sendable = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
            if sendable {
                Ok(Some(code))
            } else {
                Err(Violation::Protocol)
            }
        }
        [_] => Err(Violation::Protocol),
    }
}

/// Section 5.3; unmasks eight bytes at a time.
fn unmask(payload: &mut [u8], mask: [u8; 4]) {
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let mut chunks = payload.chunks_exact_mut(8);
    for chunk in &mut chunks {
        if let Ok(bytes) = <[u8; 8]>::try_from(&*chunk) {
            chunk.copy_from_slice(&(u64::from_ne_bytes(bytes) ^ wide).to_ne_bytes());
        }
    }
    for (byte, key) in chunks.into_remainder().iter_mut().zip(mask.into_iter().cycle()) {
        *byte ^= key;
    }
}

/// Encodes an unmasked control frame: ping, pong or close.
fn control(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let payload = &payload[..payload.len().min(CONTROL_LEN_MAX)];
    let mut out = vec![0x80 | opcode, payload.len() as u8];
    out.extend_from_slice(payload);
    out
}

/// Encodes a ping.
pub fn ping() -> Vec<u8> {
    control(PING, b"")
}

/// Encodes the pong to a ping.
pub fn pong(payload: &[u8]) -> Vec<u8> {
    control(PONG, payload)
}

/// Encodes a close frame; the reason is cut to 123 bytes.
pub fn close(code: u16, reason: &str) -> Vec<u8> {
    let mut payload = code.to_be_bytes().to_vec();
    payload.extend_from_slice(reason.as_bytes());
    control(CLOSE, &payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![first];
        match payload.len() {
            len @ 0..126 => out.push(0x80 | len as u8),
            len @ 126..65_536 => {
                out.push(0xfe);
                out.extend_from_slice(&(len as u16).to_be_bytes());
            }
            len => {
                out.push(0xff);
                out.extend_from_slice(&(len as u64).to_be_bytes());
            }
        }
        let mask = [1, 2, 3, 4];
        out.extend_from_slice(&mask);
        out.extend(
            payload
                .iter()
                .zip(mask.into_iter().cycle())
                .map(|(byte, key)| byte ^ key),
        );
        out
    }

    /// The events when the bytes arrive in pieces of this size.
    fn decoded(bytes: &[u8], piece: usize, max: usize) -> Result<Vec<String>, Violation> {
        let mut decoder = Decoder::new(max);
        let mut events = Vec::new();
        for piece in bytes.chunks(piece) {
            decoder.decode(&mut piece.to_vec(), |event| events.push(format!("{event:?}")))?;
        }
        Ok(events)
    }

    #[test]
    fn messages_do_not_depend_on_how_the_bytes_are_split() {
        let long = "x".repeat(70_000);
        let mut bytes = masked(0x81, b"hello");
        bytes.extend(masked(0x01, "é".as_bytes().split_at(1).0));
        bytes.extend(masked(0x89, b"p"));
        bytes.extend(masked(0x80, "é".as_bytes().split_at(1).1));
        bytes.extend(masked(0x8a, b""));
        bytes.extend(masked(0x81, long.as_bytes()));
        bytes.extend(masked(0x88, &[3, 232, b'o', b'k']));
        let whole = decoded(&bytes, usize::MAX, 100_000).unwrap();
        let expected = ["Text(\"hello\")", "Ping([112])", "Text(\"é\")", "Pong"];
        assert_eq!(whole[..4], expected.map(str::to_owned));
        assert_eq!(whole[4].len(), 70_000 + "Text(\"\")".len());
        assert_eq!(whole[5], "Close(Some(1000))");
        for piece in [1, 2, 3, 7, 1000, 65_536] {
            assert_eq!(decoded(&bytes, piece, 100_000).unwrap(), whole, "pieces of {piece}");
        }
    }

    #[test]
    fn every_violation_has_its_close_code() {
        let unmasked = vec![0x81, 1, b'a'];
        for (bytes, violation) in [
            (unmasked, Violation::Protocol),
            (masked(0x82, b"a"), Violation::Binary),
            (masked(0xc1, b"a"), Violation::Protocol),
            (masked(0x83, b"a"), Violation::Protocol),
            (masked(0x80, b"a"), Violation::Protocol),
            (masked(0x09, b"a"), Violation::Protocol),
            (masked(0x89, &[0; 126]), Violation::Protocol),
            (masked(0x81, &[0xff]), Violation::Utf8),
            (masked(0x81, &[b'a'; 11]), Violation::TooLarge),
            (
                [masked(0x01, b"abcdef"), masked(0x80, b"ghijk")].concat(),
                Violation::TooLarge,
            ),
            ([masked(0x01, b"a"), masked(0x81, b"b")].concat(), Violation::Protocol),
            (masked(0x88, &[1]), Violation::Protocol),
            (masked(0x88, &1005_u16.to_be_bytes()), Violation::Protocol),
            (
                vec![0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
                Violation::TooLarge,
            ),
        ] {
            assert_eq!(decoded(&bytes, usize::MAX, 10), Err(violation), "{bytes:?}");
        }
    }

    #[test]
    fn a_frame_that_is_too_large_is_refused_at_its_header() {
        let mut decoder = Decoder::new(10);
        let mut header = masked(0x81, &[b'a'; 200])[..8].to_vec();
        assert_eq!(decoder.decode(&mut header, |_| {}), Err(Violation::TooLarge));
    }
}
