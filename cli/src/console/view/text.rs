//! Texts of agents and times, as they are shown, and lines that are scrolled.

use actors::clock::rfc3339_text;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::super::editor::wrapped;
use crate::screen::Theme;
use crate::short::screen_time;
use crate::table::{escaped, shortened};

/// The longest name that is shown, in characters.
const NAME_CHARS_MAX: usize = 60;
/// The longest other text on one line, in characters.
const LINE_CHARS_MAX: usize = 400;
const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// A name, or another short text on one line.
pub fn name(text: &str) -> String {
    shortened(text, NAME_CHARS_MAX)
}

/// The lines of a foreign text on a screen with so many columns. What a terminal would act on is escaped.
pub fn prose(text: &str, width: usize) -> impl Iterator<Item = String> {
    text.trim_end().lines().flat_map(move |line| {
        // A doubled backslash protects names; in a text it would be in the way.
        let line = escaped(&line.replace('\t', "    ")).replace("\\\\", "\\");
        let rows = wrapped(&line, width);
        rows.into_iter()
            .map(move |row| line[row.start..row.end].to_owned())
            .collect::<Vec<_>>()
    })
}

/// An age in a list, in minutes and more.
pub fn age(ms: u64) -> String {
    match ms {
        0..MINUTE_MS => "now".to_owned(),
        MINUTE_MS..HOUR_MS => format!("{}m", ms / MINUTE_MS),
        HOUR_MS..DAY_MS => format!("{}h", ms / HOUR_MS),
        _ => format!("{}d", ms / DAY_MS),
    }
}

/// A time in words, in minutes and more.
pub fn long_age(ms: u64) -> String {
    match ms {
        0..MINUTE_MS => "now".to_owned(),
        MINUTE_MS..HOUR_MS => format!("{} min", ms / MINUTE_MS),
        HOUR_MS..DAY_MS => format!("{} h", ms / HOUR_MS),
        _ => format!("{} d", ms / DAY_MS),
    }
}

/// How long ago something happened.
pub fn ago(ms: u64) -> String {
    match ms {
        0..MINUTE_MS => format!("{} s ago", ms / SECOND_MS),
        _ => format!("{} ago", long_age(ms)),
    }
}

/// The time of day.
pub fn clock(ms: u64) -> String {
    screen_time(&rfc3339_text(ms))[11..19].to_owned()
}

/// A longer foreign text on one line.
pub fn one_line(text: &str) -> String {
    shortened(text, LINE_CHARS_MAX)
}

/// Shows a part of some lines. Returns by how many lines they can be scrolled at most.
pub fn draw_scrolled(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'_>>, scroll: usize, theme: &Theme) -> usize {
    let height = usize::from(area.height);
    let scroll_max = lines.len().saturating_sub(height);
    let scroll = scroll.min(scroll_max);
    let mut shown: Vec<Line<'_>> = lines.into_iter().skip(scroll).take(height).collect();
    if scroll < scroll_max
        && let Some(last) = shown.last_mut()
    {
        *last = Line::styled("…", theme.label());
    }
    frame.render_widget(Paragraph::new(shown), area);
    scroll_max
}

/// The day and the time of an event.
pub fn day_and_clock(ms: u64) -> String {
    let text = screen_time(&rfc3339_text(ms));
    format!("{} {}", &text[5..10], &text[11..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_texts_cannot_control_the_terminal() {
        let text = "one\ttwo C:\\path\r\n\u{1b}[31mred\u{202e}\u{9b}2J\nlong words are wrapped";
        let lines: Vec<String> = prose(text, 16).collect();
        let wanted = [
            "one    two ",
            "C:\\path",
            "\\u{1b}[31mred\\u{",
            "202e}\\u{9b}2J",
            "long words are ",
            "wrapped",
        ];
        assert_eq!(lines, wanted);
        assert_eq!(prose("", 10).count(), 0);
    }

    #[test]
    fn ages_are_rounded_down() {
        let minute = MINUTE_MS;
        for (ms, short, long) in [
            (59_999, "now", "59 s ago"),
            (minute, "1m", "1 min ago"),
            (119 * minute, "1h", "1 h ago"),
            (49 * 60 * minute, "2d", "2 d ago"),
        ] {
            assert_eq!((age(ms).as_str(), ago(ms).as_str()), (short, long));
        }
    }
}
