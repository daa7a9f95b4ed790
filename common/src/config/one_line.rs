//! Makes any text one line.

/// Replaces control characters, so that a message is one line and cannot control a terminal.
pub fn one_line(text: &str) -> String {
    let words = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    words
        .chars()
        .map(|c| {
            if c.is_control() {
                c.escape_default().to_string()
            } else {
                c.to_string()
            }
        })
        .collect()
}
