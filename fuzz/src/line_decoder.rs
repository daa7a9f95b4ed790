//! Target: the decoder of the lines of local clients. The same bytes in any pieces give the lines that a simple reader
//! finds, each line that is too long is refused once, and the memory held is bounded.

use crate::{
    heap::peak_of,
    mcp::{
        lines::{LineDecoder, LineEvent},
        skipped_frame::SkippedFrame,
    },
    mutate::{Choices, in_pieces},
};

/// Bytes that a skipped line holds: a name or value while its buffer grows, and the id.
const SKIPPED_HELD_MAX: usize = 2 * 1024;

pub const DICTIONARY: &[&str] = &[
    "{\"id\":1,",
    ",\"id\":\"a\"}",
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    "{}",
    "é",
    "\u{10ffff}",
    "\u{81}",
    "aaaaaaaaaa",
];

/// The input holds the maximum line length, the sizes of the pieces, a flag (raw bytes or a recipe for lines), and those
/// bytes.
pub fn run(input: &[u8]) {
    let mut choices = Choices(input);
    let line_len_max = [0, 1, 2, 10, 125, 300, 1000, 4096][choices.below(8)];
    let cuts = [choices.byte(), choices.byte(), choices.byte()];
    let bytes = if choices.byte() & 1 == 0 {
        choices.0.to_vec()
    } else {
        cooked(&mut choices, line_len_max)
    };
    let expected = expected(&bytes, line_len_max);
    for sizes in [
        &[usize::MAX][..],
        &[1],
        &[1 + usize::from(cuts[0])],
        &cuts.map(|cut| 1 + usize::from(cut % 19)),
        &[bytes.len() / 2 + 1, 1, usize::MAX],
    ] {
        let found = decoded(&bytes, line_len_max, sizes);
        assert_eq!(found, expected, "cut into {sizes:?}, at most {line_len_max}");
    }
    let held = peak_of(|| {
        let mut decoder = LineDecoder::new(line_len_max);
        for byte in &bytes {
            decoder.decode(&[*byte], |_| {});
            assert!(decoder.buffered_len() <= line_len_max + 1);
        }
    });
    // The old buffer and the new one, while a line grows, and the id of a line that is skipped.
    let bound = 2 * (line_len_max + 1) + SKIPPED_HELD_MAX;
    assert!(held <= bound, "{held} bytes held, {bound} allowed");
}

fn decoded(bytes: &[u8], line_len_max: usize, sizes: &[usize]) -> Vec<String> {
    let mut decoder = LineDecoder::new(line_len_max);
    let mut events = Vec::new();
    in_pieces(bytes, sizes, |piece| {
        decoder.decode(piece, |event| events.push(in_words(event)));
        decoder.shrink();
    });
    events
}

/// The events by the rules: a line ends with LF or CRLF, empty ones are ignored, and the last one has no end yet.
fn expected(bytes: &[u8], line_len_max: usize) -> Vec<String> {
    let mut lines: Vec<_> = bytes.split(|byte| *byte == b'\n').collect();
    lines.pop();
    let mut events = Vec::new();
    for line in lines {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let event = match std::str::from_utf8(line) {
            _ if line.len() > line_len_max => LineEvent::TooLong(SkippedFrame::beginning_with(line)),
            Ok("") => continue,
            Ok(text) => LineEvent::Text(text),
            Err(_) => LineEvent::NotUtf8(line),
        };
        events.push(in_words(event));
    }
    events
}

/// What the event tells its reader: of a line that is too long, only whose id it is.
fn in_words(event: LineEvent<'_>) -> String {
    match event {
        LineEvent::TooLong(line) => format!("TooLong({:?})", line.into_id()),
        event => format!("{event:?}"),
    }
}

/// Lines about as long as the bound.
fn cooked(choices: &mut Choices<'_>, line_len_max: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while !choices.is_used_up() && out.len() < 20_000 {
        let len = match choices.below(6) {
            0 => line_len_max,
            1 => line_len_max + 1,
            2 => line_len_max + 2,
            3 => 2 * line_len_max + choices.below(20),
            4 => 0,
            _ => choices.below(20),
        };
        let kind = choices.below(4);
        for at in 0..len {
            out.push(match kind {
                0 => b'a',
                // Alternates the two bytes of one character, so that pieces cut it anywhere.
                1 => [0xc3, 0xa9][at % 2],
                2 => b'\r',
                _ => choices.byte(),
            });
        }
        out.extend_from_slice([&b"\n"[..], b"\r\n", b"\r\r\n", b""][choices.below(4)]);
    }
    out
}
