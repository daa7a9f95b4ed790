//! Target: the decoder of WebSocket frames. The same bytes in any pieces give the same events, nothing panics, and the
//! memory held is bounded.

use crate::{
    heap::peak_of,
    mcp::frame::{Decoder, FrameEvent, Violation},
    mutate::Choices,
};

pub const DICTIONARY: &[&str] = &[
    "\u{1}",
    "\u{81}",
    "\u{7f}",
    "~",
    "\0\0\0\0",
    "\0\0\0\0\0\0\0\0",
    "hi",
    "é",
    "\u{10ffff}",
];

/// The input holds the maximum message length, the sizes of the pieces, a flag (raw frames or a recipe for frames),
/// and those bytes.
pub fn run(input: &[u8]) {
    let mut choices = Choices(input);
    let message_len_max = [0, 1, 10, 125, 126, 1000, 4096, 70_000][choices.below(8)];
    let cuts = [choices.byte(), choices.byte(), choices.byte()];
    let bytes = if choices.byte() & 1 == 0 {
        choices.0.to_vec()
    } else {
        cooked(&mut choices)
    };
    let whole = decoded(&bytes, message_len_max, &[usize::MAX]);
    for sizes in [
        &[1][..],
        &[1 + usize::from(cuts[0])],
        &cuts.map(|cut| 1 + usize::from(cut % 19)),
        &[bytes.len() / 2 + 1, 1, usize::MAX],
    ] {
        let cut = decoded(&bytes, message_len_max, sizes);
        assert_eq!(cut, whole, "cut into {sizes:?}, at most {message_len_max}");
    }
    check(&whole, message_len_max);
    let held = peak_of(|| {
        let mut decoder = Decoder::new(message_len_max);
        for &byte in &bytes {
            if decoder.decode(&mut [byte], |_| {}).is_err() {
                return;
            }
        }
    });
    let bound = 4 * (message_len_max + 200);
    assert!(held <= bound, "{held} bytes held, {bound} allowed");
}

/// The events, and how the stream ended.
type Decoded = (Vec<String>, Result<(), Violation>);

fn decoded(bytes: &[u8], message_len_max: usize, sizes: &[usize]) -> Decoded {
    let mut decoder = Decoder::new(message_len_max);
    let mut events = Vec::new();
    let mut sizes = sizes.iter().cycle();
    let mut rest = bytes.to_vec();
    let mut rest = &mut rest[..];
    while !rest.is_empty() {
        let size = sizes.next().map_or(1, |&size| size.min(rest.len()));
        let (piece, after) = rest.split_at_mut(size);
        if let Err(violation) = decoder.decode(piece, |event| events.push(format!("{event:?}"))) {
            return (events, Err(violation));
        }
        decoder.shrink();
        rest = after;
    }
    (events, Ok(()))
}

/// Asserts the bounds that hold for every input.
fn check((events, _): &Decoded, message_len_max: usize) {
    for event in events {
        // The event contains the text quoted and escaped, so it is at least as long.
        if event.starts_with("Text") {
            assert!(event.len() <= "Text(\"\")".len() + message_len_max * 10);
        }
    }
    let _ = FrameEvent::Pong;
}

/// Frames that are mostly valid.
fn cooked(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    while !choices.is_used_up() {
        let first = [0x81, 0x01, 0x80, 0x00, 0x89, 0x8a, 0x88, choices.byte()][choices.below(8)];
        let len = match choices.below(8) {
            0 => 0,
            1 => 125,
            2 => 126,
            3 => 300,
            _ => choices.below(20),
        };
        let masked = if choices.below(32) == 0 { 0 } else { 0x80 };
        out.push(first);
        match (len, choices.below(16)) {
            (_, 0) => {
                out.push(masked | 0x7f);
                out.extend_from_slice(&(len as u64).to_be_bytes());
            }
            (126.., _) | (_, 1) => {
                out.push(masked | 0x7e);
                out.extend_from_slice(&(len as u16).to_be_bytes());
            }
            _ => out.push(masked | len as u8),
        }
        let mask = [choices.byte(), choices.byte(), 0, 7];
        out.extend_from_slice(&mask);
        let kind = choices.below(4);
        for at in 0..len {
            let plain = match kind {
                0 => b'a',
                // Alternates the two bytes of one character, so that frames cut it anywhere.
                1 => [0xc3, 0xa9][at % 2],
                2 => [3, 232][at % 2],
                _ => choices.byte(),
            };
            out.push(plain ^ mask[at % 4]);
        }
    }
    out
}
