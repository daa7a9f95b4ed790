//! Lines: one JSON-RPC message each, ended by LF or CRLF. Decodes them, and makes a message fit into one. Empty lines are
//! ignored. It does no I/O.

use memchr::{memchr, memchr2};

use super::skipped_frame::SkippedFrame;

/// What a line is.
#[derive(Debug)]
pub enum LineEvent<'a> {
    /// A line that is not empty, without its end.
    Text(&'a str),
    /// The end of a line beyond the bound, of which nothing is kept but its id.
    TooLong(SkippedFrame),
    /// A line that is not UTF-8, without its end.
    NotUtf8(&'a [u8]),
}

/// Decodes a stream of bytes into lines. It buffers at most one incomplete line; the rest of one that is too long is
/// skipped without being buffered, and reported at its end.
#[derive(Debug)]
pub struct LineDecoder {
    /// Bytes of the longest line without its end.
    line_len_max: usize,
    /// The beginning of an incomplete line.
    partial: Vec<u8>,
    /// The current line, if it is too long.
    skipped: Option<SkippedFrame>,
}

impl LineDecoder {
    /// A decoder for lines of at most `line_len_max` bytes.
    pub fn new(line_len_max: usize) -> Self {
        Self {
            line_len_max,
            partial: Vec::new(),
            skipped: None,
        }
    }

    /// Bytes of the longest line without its end.
    pub fn line_len_max(&self) -> usize {
        self.line_len_max
    }

    /// Decodes the bytes of one read. Calls `on` for each line, in order.
    pub fn decode(&mut self, bytes: &[u8], mut on: impl FnMut(LineEvent<'_>)) {
        let mut rest = bytes;
        while let Some(at) = memchr(b'\n', rest) {
            self.end_line(&rest[..at], &mut on);
            rest = &rest[at + 1..];
        }
        self.note_length(rest.len());
        match &mut self.skipped {
            Some(skipped) => skipped.skip(rest),
            None => self.append(rest),
        }
    }

    /// Bytes buffered of an incomplete line.
    pub fn buffered_len(&self) -> usize {
        self.partial.len()
    }

    /// Bytes that the incomplete line may need. Its length is unknown before its end: beyond `short_len_max` it may be the
    /// largest.
    pub fn needed_len(&self, short_len_max: usize) -> usize {
        match self.partial.len() {
            len if len > short_len_max => self.partial_len_max(),
            len => len,
        }
    }

    /// Frees unused capacity.
    pub fn shrink(&mut self) {
        self.partial.shrink_to_fit();
    }

    /// Bytes that may be buffered: a line and a carriage return.
    fn partial_len_max(&self) -> usize {
        self.line_len_max + 1
    }

    fn end_line(&mut self, rest: &[u8], on: &mut impl FnMut(LineEvent<'_>)) {
        self.note_length(rest.len());
        if let Some(mut skipped) = self.skipped.take() {
            skipped.skip(rest);
            return on(LineEvent::TooLong(skipped));
        }
        if self.partial.is_empty() {
            return self.line(rest, on);
        }
        self.append(rest);
        let whole = std::mem::take(&mut self.partial);
        self.line(&whole, on);
    }

    fn line(&self, line: &[u8], on: &mut impl FnMut(LineEvent<'_>)) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return;
        }
        on(match std::str::from_utf8(line) {
            _ if line.len() > self.line_len_max => LineEvent::TooLong(SkippedFrame::beginning_with(line)),
            Ok(text) => LineEvent::Text(text),
            Err(_) => LineEvent::NotUtf8(line),
        });
    }

    /// Begins to skip the line if it is too long with this number of further bytes.
    fn note_length(&mut self, added: usize) {
        if self.skipped.is_none() && self.partial.len() + added > self.partial_len_max() {
            let partial = std::mem::take(&mut self.partial);
            self.skipped = Some(SkippedFrame::beginning_with(&partial));
        }
    }

    /// Appends to the incomplete line. Its buffer never grows beyond the longest line.
    fn append(&mut self, bytes: &[u8]) {
        let needed = self.partial.len() + bytes.len();
        if needed > self.partial.capacity() {
            let wanted = needed.max(2 * self.partial.capacity()).min(self.partial_len_max());
            self.partial.reserve_exact(wanted.max(needed) - self.partial.len());
        }
        self.partial.extend_from_slice(bytes);
    }
}

/// Replaces line breaks by spaces. In JSON text a line break occurs only as white space between tokens, so the meaning
/// stays.
pub fn replace_line_breaks(json: &mut [u8]) {
    let mut from = 0;
    while let Some(at) = memchr2(b'\n', b'\r', &json[from..]) {
        json[from + at] = b' ';
        from += at + 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE_LEN_MAX: usize = 20;

    /// The events when the bytes arrive in pieces of these sizes, in turn.
    fn decoded(bytes: &[u8], pieces: &[usize]) -> Vec<String> {
        let mut decoder = LineDecoder::new(LINE_LEN_MAX);
        let mut events = Vec::new();
        let mut rest = bytes.to_vec();
        for &piece in pieces.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let piece: Vec<_> = rest.drain(..piece.clamp(1, rest.len())).collect();
            decoder.decode(&piece, |event| {
                events.push(match event {
                    LineEvent::Text(text) => text.to_owned(),
                    LineEvent::TooLong(frame) => format!("too long: {:?}", frame.into_id()),
                    LineEvent::NotUtf8(_) => "not UTF-8".to_owned(),
                });
            });
            assert!(decoder.buffered_len() <= LINE_LEN_MAX + 1);
            assert!(decoder.partial.capacity() <= LINE_LEN_MAX + 1);
        }
        events
    }

    #[test]
    fn lines_end_with_lf_or_crlf_and_empty_ones_are_ignored() {
        let bytes = "a\n\r\n\nb\r\nä€\n unfinished".as_bytes();
        assert_eq!(decoded(bytes, &[usize::MAX]), ["a", "b", "ä€"]);
        assert_eq!(decoded(b"\xff\nok\n", &[usize::MAX]), ["not UTF-8", "ok"]);
    }

    #[test]
    fn a_line_that_is_too_long_is_refused_once_and_skipped() {
        let long = "x".repeat(LINE_LEN_MAX);
        let request = r#"{"method":"xxxxxxxxxx","id":5}"#;
        let bytes = format!("{long}\n{long}\r\n{long}y\n{long}{long}{long}\n{request}\r\nok\n{request}");
        let (without_id, with_id) = ("too long: None", r#"too long: Some("5")"#);
        for piece in [1, 2, 7, 20, 21, 22, usize::MAX] {
            let events = decoded(bytes.as_bytes(), &[piece]);
            let expected = [&long, &long, without_id, without_id, with_id, "ok"];
            assert_eq!(events, expected, "pieces of {piece}");
        }
    }

    #[test]
    fn the_budget_is_asked_for_the_longest_line_as_soon_as_a_line_is_not_short() {
        let mut decoder = LineDecoder::new(100_000);
        decoder.decode(&[b'x'; 1_000], |_| {});
        assert_eq!(decoder.needed_len(1_000), 1_000);
        decoder.decode(b"x", |_| {});
        assert_eq!(decoder.needed_len(1_000), 100_001);
        decoder.decode(b"\n", |_| {});
        assert_eq!((decoder.needed_len(1_000), decoder.buffered_len()), (0, 0));
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_the_bytes_are_split(
            bytes in prop::collection::vec(prop::sample::select(b"\n\r\nab\xc3\xa9".to_vec()), 0..200),
            pieces in prop::collection::vec(1_usize..40, 1..5),
        ) {
            prop_assert_eq!(decoded(&bytes, &pieces), decoded(&bytes, &[usize::MAX]));
        }
    }
}
