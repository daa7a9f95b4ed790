//! Lists: open questions, earlier ones, yaps.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr;

use actors::model::Urgency;
use rest::desk::Yap;
use rest::questions::Question;

use super::super::data::{ms, urgency};
use super::super::model::{Connection, Focus, Model};
use super::text::{age, clock, day_and_clock, draw_scrolled, name, one_line, prose};
use crate::screen::Theme;
use crate::table::cut;

const ASKER_COLUMNS: usize = 12;
const WHOSE_COLUMNS: usize = 16;
const STATE_COLUMNS: usize = 10;

/// The open questions around the selected one.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: &Theme) {
    let rows = model.rows();
    let count = rows.len();
    if count == 0 {
        let text = match model.connection {
            Connection::Opening => "",
            _ if !model.filter.is_empty() => "no question has these words",
            Connection::Open => "no agent is asking anything",
            Connection::Lost { .. } => "",
        };
        frame.render_widget(Line::styled(format!(" {text}"), theme.label()), area);
        return;
    }
    let selected = model.position().unwrap_or(0);
    let height = usize::from(area.height);
    // Whole pages: what is added behind them moves nothing.
    let first = selected / height * height;
    let lines: Vec<Line<'_>> = rows
        .enumerate()
        .skip(first)
        .take(height)
        .map(|(at, question)| row(question, at == selected, model, usize::from(area.width), theme))
        .collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn row<'a>(question: &Question, is_selected: bool, model: &Model, width: usize, theme: &Theme) -> Line<'a> {
    let age = age(model
        .now_ms
        .saturating_sub(ms(&question.asked_at).unwrap_or(model.now_ms)));
    let asker = cut(&name(question.asker()), ASKER_COLUMNS);
    let whose = cut(&name(&model.whose(question)), WHOSE_COLUMNS);
    let head = 1 + 7 + 5 + ASKER_COLUMNS + 2;
    let room = width.saturating_sub(head + WHOSE_COLUMNS + 2);
    let summary = cut(&one_line(&question.summary), room);
    let urgency = urgency(question);
    let style = match urgency {
        Urgency::High => theme.alarm(),
        Urgency::Medium => Style::new(),
        Urgency::Low => theme.label(),
    };
    let base = if !is_selected {
        Style::new()
    } else if model.focus == Focus::List {
        Style::new().add_modifier(Modifier::REVERSED)
    } else {
        Style::new().add_modifier(Modifier::BOLD)
    };
    let mark = if is_selected { "▌" } else { " " };
    let spans = vec![
        Span::raw(mark),
        Span::styled(format!("{:<7}", urgency.as_str()), style),
        Span::raw(format!("{age:>4} ")),
        Span::styled(padded(&asker, ASKER_COLUMNS), theme.coloured(Color::Cyan)),
        Span::raw("  "),
        Span::raw(padded(&summary, room)),
        Span::raw("  "),
        Span::styled(padded(&whose, WHOSE_COLUMNS), theme.label()),
    ];
    Line::from(spans).style(base)
}

/// A text with spaces behind it, up to so many columns.
fn padded(text: &str, width: usize) -> String {
    let spaces = width.saturating_sub(text.width());
    format!("{text}{}", " ".repeat(spaces))
}

/// The questions of the past.
pub fn draw_history(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: &Theme) -> usize {
    let rows = model.history.rows(&model.filter);
    if rows.is_empty() {
        let text = if model.history.is_loading {
            " asking the broker…"
        } else {
            " no earlier questions"
        };
        frame.render_widget(Line::styled(text, theme.label()), area);
        return 0;
    }
    let height = usize::from(area.height);
    let first = model.history.at / height * height;
    let width = usize::from(area.width);
    let lines: Vec<Line<'_>> = rows
        .iter()
        .enumerate()
        .skip(first)
        .take(height)
        .map(|(at, question)| history_row(question, at == model.history.at, width, theme))
        .collect();
    frame.render_widget(Paragraph::new(lines), area);
    0
}

fn history_row<'a>(question: &Question, is_selected: bool, width: usize, theme: &Theme) -> Line<'a> {
    let asked = ms(&question.asked_at).map(day_and_clock).unwrap_or_default();
    let by = question
        .ended_by()
        .map(|by| format!("by {}", name(by)))
        .unwrap_or_default();
    let room = width.saturating_sub(1 + 13 + STATE_COLUMNS + 1 + ASKER_COLUMNS + 2 + WHOSE_COLUMNS + 2);
    let summary = &question.summary;
    let state = match question.state.as_str() {
        "answered" => theme.coloured(Color::Green),
        "pending" => theme.coloured(Color::Yellow),
        _ => theme.label(),
    };
    let spans = [
        Span::raw(format!("{asked:<13}")),
        Span::styled(
            padded(&cut(&name(&question.state), STATE_COLUMNS), STATE_COLUMNS),
            state,
        ),
        Span::raw(" "),
        Span::styled(
            padded(&cut(&name(question.asker()), ASKER_COLUMNS), ASKER_COLUMNS),
            theme.coloured(Color::Cyan),
        ),
        Span::raw("  "),
        Span::raw(padded(&cut(&one_line(summary), room), room)),
        Span::raw("  "),
        Span::styled(cut(&by, WHOSE_COLUMNS), theme.label()),
    ];
    selectable_row(is_selected, spans)
}

/// A row of a list, with the mark of the selected one.
pub fn selectable_row<'a>(is_selected: bool, spans: impl IntoIterator<Item = Span<'a>>) -> Line<'a> {
    let (mark, style) = if is_selected {
        ("▌", Style::new().add_modifier(Modifier::REVERSED))
    } else {
        (" ", Style::new())
    };
    let line: Line<'_> = std::iter::once(Span::raw(mark)).chain(spans).collect();
    line.style(style)
}

/// Who said it, and what.
fn yap_texts(yap: &Yap) -> (String, String, String) {
    let time = ms(&yap.at).map(clock).unwrap_or_default();
    let sender = name(yap.sender_name.as_deref().unwrap_or(&yap.sender_id));
    let text = match yap.folded() {
        Some(count) => format!("{count} more"),
        None => one_line(&yap.message),
    };
    let late = if yap.late { " (late)" } else { "" };
    (time, sender, format!("{text}{late}"))
}

/// The last yaps, as many as fit on each line.
pub fn draw_yaps(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: &Theme) {
    let height = usize::from(area.height);
    let width = usize::from(area.width);
    let mut lines: Vec<(usize, Vec<Span<'_>>)> = vec![(0, Vec::new())];
    for yap in model.yaps.iter().rev() {
        let (time, sender, text) = yap_texts(yap);
        let sender = cut(&sender, ASKER_COLUMNS);
        let text = cut(&text, width.saturating_sub(time.width() + sender.width() + 4));
        let needed = time.width() + sender.width() + text.width() + 5;
        let (used, _) = lines[lines.len() - 1];
        if used > 0 && used + needed > width + 2 {
            if lines.len() == height {
                break;
            }
            lines.push((0, Vec::new()));
        }
        let last = lines.len() - 1;
        let (used, spans) = &mut lines[last];
        *used += needed;
        let mut shown = vec![
            Span::styled(format!(" {time} "), theme.label()),
            Span::styled(format!("{sender} "), theme.coloured(Color::Cyan)),
            Span::raw(format!("{text}  ")),
        ];
        // The newest is last.
        shown.append(spans);
        *spans = shown;
    }
    let lines: Vec<Line<'_>> = lines.into_iter().rev().map(|(_, spans)| Line::from(spans)).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

/// All yaps, the newest first.
pub fn draw_all_yaps(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: &Theme) -> usize {
    let width = usize::from(area.width).saturating_sub(4);
    let mut lines = Vec::new();
    for yap in model.yaps.iter().rev() {
        let (time, sender, text) = yap_texts(yap);
        lines.push(Line::from(vec![
            Span::styled(format!(" {time} "), theme.label()),
            Span::styled(sender, theme.coloured(Color::Cyan)),
        ]));
        let text = if yap.folded().is_some() { &text } else { &yap.message };
        let context = yap.task_context.as_deref().unwrap_or_default();
        lines.extend(prose(text, width).map(|line| Line::from(format!("   {line}"))));
        lines.extend(prose(context, width).map(|line| Line::styled(format!("   {line}"), theme.label())));
    }
    if lines.is_empty() {
        lines.push(Line::styled(" no yaps yet", theme.label()));
    }
    draw_scrolled(frame, area, lines, model.scroll, theme)
}
