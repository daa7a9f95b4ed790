//! How frames are told from one another on the wire.

/// How a frame is told from the next on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// RFC 6455, unmasked text frames.
    WebSocket,
    /// One line each.
    Line,
    /// Server-sent events (HTML, section 9.2), one each. `stream` numbers the events, so that they can be asked for
    /// again.
    Events { stream: Option<u64> },
    /// The answer to one request over HTTP.
    Exchange { stream: Option<u64>, form: ResponseForm },
}

/// What the answer to a request over HTTP may look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseForm {
    /// A response that comes first is the whole body, anything else begins a stream of events.
    Either,
    /// A stream of events, even of one; an error that comes first is the whole body all the same.
    Events,
    /// A stream of events, whatever comes.
    EventsOnly,
    /// The response and nothing else: the peer takes no events.
    Whole,
}

/// A line break in JSON text is white space between its parts, never part of a string: a space means the same.
pub fn replace_line_breaks(json: &mut [u8]) {
    let mut from = 0;
    while let Some(at) = memchr::memchr2(b'\n', b'\r', &json[from..]) {
        json[from + at] = b' ';
        from += at + 1;
    }
}

/// RFC 6455, section 5.2: FIN, text, not masked.
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
