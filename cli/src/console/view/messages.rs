//! What the person and agents have written to each other.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use rest::messages::PersonsMessage;

use super::super::data::{ms, text};
use super::super::model::Model;
use super::list::selectable_row;
use super::text::{day_and_clock, name, prose};
use crate::screen::Theme;

/// Lines of one message that is not selected.
const LINES_MAX: usize = 3;

/// Draws the messages around the selected one, the newest last.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: &Theme) -> usize {
    let mail = &model.mail;
    if mail.messages.is_empty() {
        let text = " no messages: w writes to an agent, and its answer appears here";
        frame.render_widget(Line::styled(text, theme.label()), area);
        return 0;
    }
    let (width, height) = (usize::from(area.width).saturating_sub(4), usize::from(area.height));
    let mut lines = Vec::new();
    let mut end = 0;
    for (at, message) in mail.messages.iter().enumerate() {
        let is_selected = at == mail.at;
        lines.push(head(model, message, is_selected, theme));
        let (text, style) = match text(message) {
            Some(text) => (text, Style::new()),
            None => ("the broker no longer keeps this text".into(), theme.label()),
        };
        let all: Vec<String> = prose(&text, width).collect();
        let shown = if is_selected {
            height.saturating_sub(2)
        } else {
            LINES_MAX
        };
        let rest = all.len().saturating_sub(shown);
        lines.extend(
            all.into_iter()
                .take(shown)
                .map(|line| Line::styled(format!("   {line}"), style)),
        );
        if rest > 0 {
            lines.push(Line::styled(format!("   … {rest} more lines"), theme.label()));
        }
        if is_selected {
            end = lines.len();
        }
    }
    // The selected message is shown as far as it fits.
    let first = end.saturating_sub(height);
    let shown: Vec<Line<'_>> = lines.into_iter().skip(first).take(height).collect();
    frame.render_widget(Paragraph::new(shown), area);
    0
}

fn head<'a>(model: &Model, message: &PersonsMessage, is_selected: bool, theme: &Theme) -> Line<'a> {
    let (_, peer) = model.mail.peer(message);
    let who = if model.mail.is_own(message) {
        format!("you to {}", name(peer))
    } else {
        name(peer)
    };
    let at = ms(&message.timestamp).map(day_and_clock).unwrap_or_default();
    let state = if message.unread {
        "new"
    } else if model.mail.is_own(message) {
        match message.status.as_deref() {
            Some("acknowledged") => "taken by the agent",
            Some("queued") => "waits for the agent",
            Some("delivered") => "delivered",
            _ => "",
        }
    } else {
        ""
    };
    let spans = [
        Span::styled(format!("{at}  "), theme.label()),
        Span::styled(who, theme.coloured(Color::Cyan)),
        Span::styled(format!("  {state} "), theme.coloured(Color::Yellow)),
    ];
    selectable_row(is_selected, spans)
}
