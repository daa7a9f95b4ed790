//! JSON Pointers (RFC 6901) and texts of bounded length.

use std::fmt::{self, Write};

/// Bytes of a path, and of a reason, that is shown to a client; what is longer ends in an ellipsis.
pub(super) const TEXT_LEN_MAX: usize = 240;

/// Appends a segment.
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

/// The text, at most [`TEXT_LEN_MAX`] bytes of it. It is not written out beyond: a reason can hold a whole payload.
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
    fn a_text_is_cut_where_it_is_too_long_in_however_many_pieces_it_comes() {
        let a = "a".repeat(TEXT_LEN_MAX - 40);
        for (len, shown) in [(39, "b".repeat(39)), (40, "b".repeat(40)), (41, "b".repeat(40) + "…")] {
            let b = "b".repeat(len);
            assert_eq!(bounded(&format_args!("{a}{b}")), format!("{a}{shown}"));
        }
    }
}
