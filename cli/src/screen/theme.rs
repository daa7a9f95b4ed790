//! Colours and texts of the full-screen commands.

use ratatui::style::{Color, Modifier, Style};

use crate::table::shortened;

/// The colours, or none of them.
pub struct Theme {
    pub has_colours: bool,
}

impl Theme {
    /// A text in a colour, where colours are wanted.
    pub fn coloured(&self, colour: Color) -> Style {
        if self.has_colours {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }

    /// A text that names the one next to it.
    #[allow(clippy::unused_self, reason = "called as the other styles are")]
    pub fn label(&self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// A text that must be seen.
    pub fn alarm(&self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// The colour of a state.
    pub fn status(&self, status: &str) -> Style {
        match status {
            "active" | "acknowledged" | "healthy" | "answers" | "answers here" => self.coloured(Color::Green),
            "stale" | "queued" | "degraded" => self.coloured(Color::Yellow),
            "expired" | "dead_lettered" | "unhealthy" | "does not answer" => self.coloured(Color::Red),
            "disconnected" => self.label(),
            _ => Style::new(),
        }
    }
}

/// A foreign text on one line.
pub fn shown_text(text: &str) -> String {
    shortened(text, 200)
}
