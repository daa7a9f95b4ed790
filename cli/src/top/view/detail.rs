//! What the user has opened: a session with its messages, or the life of a message.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};
use rest::{messages::MessageLife, sessions::Session};

use super::list::draw_grid;
use crate::operate::session_fields;
use crate::screen::{Theme, shown_text};
use crate::short::{SCREENS_ARE_UTC, exact_time, screen_time};
use crate::top::data::Detail;
use crate::top::grid::Sort;
use crate::top::model::Model;

/// Draws what is opened, or that it is asked for.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, detail: Option<&Detail>, theme: &Theme) {
    match detail {
        None => frame.render_widget(Paragraph::new("asking the broker...").style(theme.label()), area),
        Some(Detail::Refused(line)) => {
            let text = Paragraph::new(shown_text(line)).style(theme.alarm());
            frame.render_widget(text.wrap(Wrap { trim: true }), area);
        }
        Some(Detail::Session(session, _)) => draw_session(frame, area, model, session, theme),
        Some(Detail::Message(life)) => draw_life(frame, area, model, life, theme),
    }
}

/// The length of a time to the millisecond, without its zone.
const TIME_LEN: usize = 23;

fn field(name: &str, value: &str, theme: &Theme) -> Line<'static> {
    Line::from(vec![
        Span::styled(format!(" {name:<15}"), theme.label()),
        Span::styled(shown_text(value), theme.status(value)),
    ])
}

fn draw_session(frame: &mut Frame<'_>, area: Rect, model: &Model, session: &Session, theme: &Theme) {
    let fields = session_fields(session, screen_time);
    let lines: Vec<_> = fields.iter().map(|(name, value)| field(name, value, theme)).collect();
    let [record, list] = Layout::vertical([Constraint::Length(lines.len() as u16 + 1), Constraint::Min(2)]).areas(area);
    frame.render_widget(Paragraph::new(lines), record);
    if let Some(grid) = model.grid() {
        draw_grid(frame, list, &grid, model.selected, Sort::default(), theme);
    }
}

fn draw_life(frame: &mut Frame<'_>, area: Rect, model: &Model, life: &MessageLife, theme: &Theme) {
    let mut lines = vec![field("message", &life.message_id, theme)];
    if let Some(message) = &life.message {
        let to = message
            .recipient_id
            .as_deref()
            .map_or_else(|| "all".to_owned(), |id| model.name_of(id));
        lines.push(field("from", message.sender(), theme));
        lines.push(field("to", &to, theme));
        lines.push(field("protocol", &message.protocol(), theme));
        for (name, value) in [
            ("priority", &message.headers.priority),
            ("subject", &message.headers.subject),
            ("thread", &message.headers.thread_id),
            ("correlation id", &message.headers.correlation_id),
            ("reply to", &message.headers.reply_to),
        ] {
            if let Some(value) = value {
                lines.push(field(name, value, theme));
            }
        }
    }
    if let Some(at) = &life.accepted_at {
        lines.push(field("accepted", &screen_time(at), theme));
    }
    lines.push(Line::default());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    lines.push(Line::styled(
        format!(" {:<26}{:<16}{:<24}DETAIL", "AT", "EVENT", "RECIPIENT"),
        bold,
    ));
    let mut changes: Vec<_> = life
        .recipients
        .iter()
        .flat_map(|recipient| recipient.events.iter().map(move |change| (recipient, change)))
        .collect();
    changes.sort_by_key(|(_, change)| change.at.clone());
    for (recipient, change) in &changes {
        // The offset of the zone has no room next to the other columns.
        let at = exact_time(&change.at, SCREENS_ARE_UTC).replace('T', " ");
        lines.push(Line::from(vec![
            Span::raw(format!(" {:<26}", shown_text(at.get(..TIME_LEN).unwrap_or(&at)))),
            Span::styled(
                format!("{:<16}", shown_text(&change.event)),
                theme.status(&change.event),
            ),
            Span::raw(format!("{:<24}", crate::table::cut(&shown_text(recipient.label()), 23))),
            Span::styled(shown_text(&change.detail()), theme.label()),
        ]));
    }
    if changes.is_empty() {
        for recipient in &life.recipients {
            let status = recipient.status.as_deref().unwrap_or("forgotten");
            lines.push(field(recipient.label(), status, theme));
        }
    }
    // The selection scrolls a life that is longer than the screen.
    let most = (lines.len() as u16).saturating_sub(area.height);
    let offset = (model.selected as u16).min(most);
    frame.render_widget(Paragraph::new(lines).scroll((offset, 0)), area);
}
