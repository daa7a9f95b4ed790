//! Makes the text of an agent harmless for a terminal that prints it as it is.

use std::fmt::Write;

/// Code points that change the order in which a terminal shows text.
const ORDER_MARKS: [char; 12] = [
    '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}', '\u{2066}',
    '\u{2067}', '\u{2068}', '\u{2069}',
];

/// The text with control characters, other than line breaks and tabs, and marks of the writing direction escaped.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            c if c.is_control() || ORDER_MARKS.contains(&c) => {
                // Writing to a string cannot fail.
                let _ = write!(shown, "{}", c.escape_unicode());
            }
            c => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_no_control_character_but_line_breaks_and_tabs() {
        assert_eq!(visible("a\n\tä €"), "a\n\tä €");
        assert_eq!(visible("\u{1b}[2Jgone\r\u{202e}"), "\\u{1b}[2Jgone\\u{d}\\u{202e}");
    }
}
