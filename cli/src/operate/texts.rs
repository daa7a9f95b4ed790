//! How values of the broker look in tables and lines.

use anstyle::{AnsiColor, Style};

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
