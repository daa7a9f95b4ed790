//! How values of the broker look in tables and lines.

use anstyle::{AnsiColor, Style};

/// A time of the broker without its fraction of a second.
pub fn seconds_of(time: &str) -> String {
    match (time.split_once('.'), time.strip_suffix('Z')) {
        (Some((seconds, _)), Some(_)) => format!("{seconds}Z"),
        _ => time.to_owned(),
    }
}

/// The colour of a state of a session or of a message.
pub fn status_style(status: &str) -> Style {
    match status {
        "active" | "acknowledged" | "healthy" => AnsiColor::Green.on_default(),
        "stale" | "queued" | "degraded" => AnsiColor::Yellow.on_default(),
        "expired" | "dead_lettered" | "unhealthy" => AnsiColor::Red.on_default(),
        "disconnected" => Style::new().dimmed(),
        _ => Style::new(),
    }
}

/// The plural of a noun, unless there is exactly one.
pub fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_to_the_second() {
        assert_eq!(seconds_of("2026-11-23T05:00:29.123Z"), "2026-11-23T05:00:29Z");
        for other in ["2026-11-23T05:00:29Z", "", "yesterday", "1.5"] {
            assert_eq!(seconds_of(other), other);
        }
    }

    #[test]
    fn nouns_have_plurals() {
        assert_eq!(
            [0, 1, 2].map(|count| counted(count, "message")),
            ["0 messages", "1 message", "2 messages"]
        );
    }
}
