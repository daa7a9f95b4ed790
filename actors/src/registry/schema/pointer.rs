//! JSON Pointers (RFC 6901) and texts of bounded length.

use std::fmt::{self, Write};

/// The largest number of bytes of a path or a reason shown to a client; a longer text ends in an ellipsis.
pub(super) const TEXT_LEN_MAX: usize = 240;

/// Appends a segment to a JSON Pointer.
pub(super) fn push(path: &mut String, segment: &str) {
    path.push('/');
    for c in segment.chars() {
        match c {
            '~' => path.push_str("~0"),
            '/' => path.push_str("~1"),
            c => path.push(c),
        }
    }
}

/// The first [`TEXT_LEN_MAX`] bytes of a text. The rest is never formatted: a reason can contain a whole payload.
pub(super) fn bounded(text: &(impl fmt::Display + ?Sized)) -> String {
    let mut out = Bounded(String::new());
    if write!(out, "{text}").is_err() {
        out.0.push('…');
    }
    out.0
}

struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = TEXT_LEN_MAX - self.0.len();
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_regardless_of_its_pieces() {
        let a = "a".repeat(TEXT_LEN_MAX - 40);
        for (len, shown) in [(39, "b".repeat(39)), (40, "b".repeat(40)), (41, "b".repeat(40) + "…")] {
            let b = "b".repeat(len);
            assert_eq!(bounded(&format_args!("{a}{b}")), format!("{a}{shown}"));
        }
    }
}
