//! The formats in which the frames of MCP go to a peer.

/// How frames are separated in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// RFC 6455, unmasked text frames.
    WebSocket,
    /// One frame per line.
    Line,
    /// One server-sent event per frame (HTML, section 9.2). `stream` is the id of the stream; with it, events are
    /// numbered so that a client can resume.
    Events { stream: Option<u64> },
    /// The answer to one request over HTTP.
    Exchange { stream: Option<u64>, form: ResponseForm },
}

/// The body that the answer to a request over HTTP may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseForm {
    /// A response that comes first is the whole body; anything else begins a stream of events.
    Either,
    /// A stream of events, even for a single one; an error that comes first is the whole body.
    Events,
    /// Always a stream of events.
    EventsOnly,
    /// The response only: the client accepts no events, so notifications are dropped.
    Whole,
}

/// Replaces line breaks by spaces. In JSON text a line break occurs only as white space between tokens, so the meaning
/// stays.
pub fn replace_line_breaks(json: &mut [u8]) {
    let mut from = 0;
    while let Some(at) = memchr::memchr2(b'\n', b'\r', &json[from..]) {
        json[from + at] = b' ';
        from += at + 1;
    }
}

/// Appends the header of an unmasked text frame of `len` bytes (RFC 6455, section 5.2).
#[inline]
pub fn text_frame_header(out: &mut Vec<u8>, len: usize) {
    const FIN_TEXT: u8 = 0x81;
    match len {
        0..126 => out.extend_from_slice(&[FIN_TEXT, len as u8]),
        126..65_536 => {
            let [high, low] = (len as u16).to_be_bytes();
            out.extend_from_slice(&[FIN_TEXT, 126, high, low]);
        }
        _ => {
            out.extend_from_slice(&[FIN_TEXT, 127]);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
}
