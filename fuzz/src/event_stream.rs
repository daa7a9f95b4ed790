//! Target: the decoder of server-sent events. The same bytes in any pieces give the same events, those that a simple reader
//! finds, and the memory held is bounded.

use crate::{
    event_decoder::{Event, EventDecoder},
    heap::peak_of,
    mutate::{Choices, in_pieces},
};

pub const DICTIONARY: &[&str] = &[
    "data: {\"id\":1}\n\n",
    "data:",
    "event: message\n",
    "event: endpoint\n",
    "id: 7\n",
    "retry: 10\n",
    ": comment\n",
    "\r\n",
    "\n\n",
    "\r\r",
    "\"id\":\"a\"}",
    "é",
];

/// Bytes of a name and an id that are kept, and of a message that is skipped.
const FIELDS_HELD_MAX: usize = 6 * 1024;

/// The input holds the most bytes of data, the sizes of the pieces, and the bytes.
pub fn run(input: &[u8]) {
    let mut choices = Choices(input);
    // No input is longer than the last.
    let data_len_max = [0, 1, 20, 300, 8_192][choices.below(5)];
    let cuts = [choices.byte(), choices.byte(), choices.byte()];
    let bytes = choices.0.to_vec();
    let whole = decoded(&bytes, data_len_max, &[usize::MAX]);
    if data_len_max > bytes.len() {
        assert_eq!(whole, expected(&bytes));
    }
    for sizes in [
        &[1][..],
        &[1 + usize::from(cuts[0])],
        &cuts.map(|cut| 1 + usize::from(cut % 19)),
        &[bytes.len() / 2 + 1, 1, usize::MAX],
    ] {
        let found = decoded(&bytes, data_len_max, sizes);
        assert_eq!(found, whole, "cut into {sizes:?}, at most {data_len_max}");
    }
    let held = peak_of(|| {
        let mut decoder = EventDecoder::new(data_len_max);
        bytes.iter().for_each(|byte| decoder.decode(&[*byte], |_| {}));
    });
    // The old buffers and the new ones of a line and the data, while they grow.
    let bound = 4 * (data_len_max + 16) + FIELDS_HELD_MAX;
    assert!(held <= bound, "{held} bytes held, {bound} allowed");
}

/// The events, and what a client needs to go on with the stream.
type Decoded = (Vec<String>, Option<String>, Option<u64>);

fn decoded(bytes: &[u8], data_len_max: usize, sizes: &[usize]) -> Decoded {
    let mut decoder = EventDecoder::new(data_len_max);
    let mut events = Vec::new();
    in_pieces(bytes, sizes, |piece| {
        decoder.decode(piece, |event| {
            events.push(match event {
                Event::Data { name, data, .. } => format!("{name}: {data}"),
                Event::TooLong(frame) => format!("too long: {:?}", frame.into_response_id()),
                Event::NotUtf8(_) => "not UTF-8".to_owned(),
            });
        });
    });
    (events, decoder.last_id().map(str::to_owned), decoder.retry_ms())
}

/// The events by the rules (HTML, section 9.2.6).
fn expected(bytes: &[u8]) -> Decoded {
    let (mut events, mut last_id, mut retry) = (Vec::new(), None, None);
    let (mut name, mut data, mut id) = (String::new(), None::<Vec<u8>>, None);
    for line in lines(bytes) {
        // Some servers write a byte order mark before a field.
        let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        if line.is_empty() {
            last_id = id.take().or(last_id);
            let name = std::mem::take(&mut name);
            let name = if name.is_empty() { "message" } else { &name };
            match data.take().filter(|data| !data.is_empty()).map(String::from_utf8) {
                Some(Ok(data)) => events.push(format!("{name}: {data}")),
                Some(Err(_)) => events.push("not UTF-8".to_owned()),
                None => {}
            }
            continue;
        }
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (field, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = String::from_utf8_lossy(value).into_owned();
        let is_kept = value.len() <= 1_024;
        match field {
            b"data" => {
                data = Some(match data {
                    None => value.to_vec(),
                    Some(before) => [&before, &b"\n"[..], value].concat(),
                });
            }
            b"event" if is_kept => name = text,
            b"id" if is_kept && !value.contains(&0) => id = Some(text),
            b"retry" => retry = text.parse().ok().or(retry),
            _ => {}
        }
    }
    (events, last_id, retry)
}

/// The lines that have an end: a line feed, a carriage return, or both.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut lines, mut begin, mut at) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        if matches!(bytes[at], b'\n' | b'\r') {
            lines.push(&bytes[begin..at]);
            at += usize::from(bytes[at..].starts_with(b"\r\n"));
            begin = at + 1;
        }
        at += 1;
    }
    lines
}
