//! The answer that the person writes.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph};
use rest::questions::Question;

use super::super::model::{Entry, Focus, Model};
use crate::screen::Theme;

/// Draws the box with the text and its cursor.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, question: &Question, theme: &Theme) {
    let has_focus = model.focus == Focus::Answer;
    let none = Entry::default();
    let work = model.work();
    let entry = work.and_then(|work| work.entries.get(work.at)).unwrap_or(&none);
    let what = if entry.is_other { "other" } else { "answer" };
    let title = if work.is_some_and(|work| work.is_sending) {
        " sending… ".to_owned()
    } else if !question.is_open() {
        " draft ".to_owned()
    } else if has_focus {
        format!(" {what} (Enter: new line, Ctrl-D: send) ")
    } else {
        format!(" {what} (Enter opens it) ")
    };
    let block = Block::bordered().title(title);
    let block = if has_focus { block } else { block.style(theme.label()) };
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let inner = Rect {
        x: inner.x + 1,
        // The cursor is after the last column of a full line.
        width: inner.width.saturating_sub(1),
        ..inner
    };
    let width = usize::from(inner.width.saturating_sub(1));
    let rows = entry.editor.rows(width);
    let (row, column) = entry.editor.position(width);
    let height = usize::from(inner.height);
    let first = (row + 1).saturating_sub(height);
    let lines: Vec<Line<'_>> = rows
        .into_iter()
        .skip(first)
        .take(height)
        .map(|row| Line::from(entry.editor.shown(row)))
        .collect();
    frame.render_widget(Paragraph::new(lines), inner);
    if has_focus && model.prompt.is_none() && question.is_open() {
        let place = Position {
            x: inner.x + column as u16,
            y: inner.y + (row - first) as u16,
        };
        frame.set_cursor_position(place);
    }
}
