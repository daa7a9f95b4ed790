//! The formats in which the frames of MCP go to a peer.

use common::json::frame::JsonText;

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

/// Appends an unmasked text frame (RFC 6455, section 5.2). The text moves only if its hint is of another class of lengths.
pub fn write_text_frame(out: &mut Vec<u8>, text: impl JsonText) {
    let start = out.len();
    let (header, reserved) = text_frame_header(text.len_hint());
    out.extend_from_slice(&header[..reserved]);
    text.write_to(out);
    let (header, needed) = text_frame_header(out.len() - start - reserved);
    if needed == reserved {
        out[start..start + needed].copy_from_slice(&header[..needed]);
    } else {
        out.splice(start..start + reserved, header.into_iter().take(needed));
    }
}

/// The header of a text of `len` bytes, and its own length.
fn text_frame_header(len: usize) -> ([u8; 10], usize) {
    const FIN_TEXT: u8 = 0x81;
    let (class, size) = match len {
        0..126 => (len as u8, 0),
        126..65_536 => (126, 2),
        _ => (127, 8),
    };
    let mut header = [0; 10];
    header[..2].copy_from_slice(&[FIN_TEXT, class]);
    header[2..2 + size].copy_from_slice(&(len as u64).to_be_bytes()[8 - size..]);
    (header, 2 + size)
}
