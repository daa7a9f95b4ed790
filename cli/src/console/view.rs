//! Draws the model. Pure: the same model gives the same screen.

mod answer;
mod detail;
mod list;
mod messages;
mod text;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Block;
use unicode_width::UnicodeWidthStr;

use super::model::{Connection, Focus, Model, Prompt, PromptKind, Screen};
use crate::screen::{self, Theme};
use crate::table::cut;
use text::one_line;
pub use text::{clock, name, prose};

/// The smallest screen that is drawn.
const WIDTH_MIN: u16 = 60;
const HEIGHT_MIN: u16 = 20;
/// From this height on the yaps have a second line.
const HEIGHT_OF_TWO_YAPS: u16 = 30;

const HELP: &[(&str, &str)] = &[
    ("arrows, PgUp, PgDn, Home, End", "choose a question"),
    ("Enter, Tab", "open the answer; Tab: next question of a form"),
    ("Esc", "back to the list; there: clear the search"),
    ("1 to 9", "choose an option while the answer has no text"),
    ("Up, Down, Space", "move to an option, choose it"),
    ("o", "other: a text in place of an option"),
    ("Ctrl-D", "send; of a form: first the next open question"),
    ("Ctrl-E", "write in $VISUAL or $EDITOR"),
    ("Ctrl-Z, Ctrl-Y", "undo, redo"),
    ("Ctrl-W, Ctrl-U, Ctrl-K", "delete a word, to the start, to the end"),
    ("d", "decline, with a reason"),
    ("h", "hand over to a person, a role or the desk"),
    ("c, r", "claim the question; give it back to the desk"),
    ("v", "the whole text"),
    ("/", "search"),
    ("m, w", "messages from and to agents; write to one"),
    ("H, y", "earlier questions; all yaps"),
    ("p, a", "pause: no new questions come here; away"),
    ("Alt and a letter", "a key of the list while the answer is open"),
    ("q, Ctrl-C", "quit: unsent text is kept as a draft"),
];

/// Draws the whole screen. Returns by how many lines the text can be scrolled at most.
pub fn draw(frame: &mut Frame<'_>, model: &Model) -> usize {
    let area = frame.area();
    if screen::is_too_small(frame, WIDTH_MIN, HEIGHT_MIN) {
        return 0;
    }
    let theme = Theme {
        has_colours: model.options.has_colours,
    };
    draw_frame(frame, area, model, &theme);
    let inner = Rect {
        x: 1,
        y: 1,
        width: area.width - 2,
        height: area.height - 3,
    };
    let status = Rect {
        y: area.height - 2,
        height: 1,
        ..inner
    };
    let scroll_max = match model.screen {
        Screen::Desk => draw_desk(frame, inner, model, &theme),
        Screen::Whole => detail::draw_whole(frame, inner, model, &theme),
        Screen::History => list::draw_history(frame, inner, model, &theme),
        Screen::Messages => messages::draw(frame, inner, model, &theme),
        Screen::Yaps => list::draw_all_yaps(frame, inner, model, &theme),
        Screen::Help => {
            frame.render_widget(screen::help(HELP, &theme), inner);
            0
        }
    };
    draw_status(frame, status, model, &theme);
    scroll_max
}

fn draw_desk(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: &Theme) -> usize {
    // The heights depend on the terminal only: nothing moves while the person writes.
    let height = area.height;
    let yaps = if model.options.mutes_yaps {
        0
    } else {
        1 + u16::from(height + 3 >= HEIGHT_OF_TWO_YAPS)
    };
    let rows = [
        Constraint::Length((height / 5).clamp(3, 12)),
        Constraint::Length(1),
        Constraint::Min(5),
        Constraint::Length(2 + (height / 6).clamp(3, 10)),
        Constraint::Length(yaps.min(1)),
        Constraint::Length(yaps),
    ];
    let [list, rule, detail, answer, yaps_rule, yaps] = Layout::vertical(rows).areas(area);
    list::draw(frame, list, model, theme);
    let scroll_max = if let Some(question) = model.question() {
        let title = detail::title(question, model.now_ms);
        let count = model.rows().len();
        let place = match model.position() {
            Some(at) if count > usize::from(list.height) => format!("{} of {count} · ", at + 1),
            _ => String::new(),
        };
        draw_rule(frame, rule, &title, &format!("{place}[v] whole text"), theme);
        let scroll_max = detail::draw(frame, detail, model, question, theme);
        answer::draw(frame, answer, model, question, theme);
        scroll_max
    } else {
        draw_rule(frame, rule, "", "", theme);
        0
    };
    if !model.options.mutes_yaps {
        draw_rule(frame, yaps_rule, "yaps", "", theme);
        list::draw_yaps(frame, yaps, model, theme);
    }
    scroll_max
}

/// A line across the frame, with a title at the left and a hint at the right.
fn draw_rule(frame: &mut Frame<'_>, area: Rect, title: &str, hint: &str, theme: &Theme) {
    let width = usize::from(area.width);
    let title = if title.is_empty() {
        String::new()
    } else {
        format!("{} ", cut(title, width.saturating_sub(2)))
    };
    let room = width.saturating_sub(title.width() + 1);
    let hint = if hint.is_empty() || hint.width() + 3 > room {
        String::new()
    } else {
        format!(" {hint} ─")
    };
    let line = "─".repeat(room.saturating_sub(hint.width()));
    let spans = [
        Span::styled(title, Style::new().add_modifier(Modifier::BOLD)),
        Span::styled(line, theme.label()),
        Span::styled(hint, theme.label()),
    ];
    let place = Rect {
        x: 0,
        width: area.width + 2,
        ..area
    };
    let mut all = vec![Span::raw("├ ")];
    all.extend(spans);
    all.push(Span::raw("┤"));
    frame.render_widget(Line::from(all), place);
}

fn draw_frame(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: &Theme) {
    let project = model.options.project.as_ref();
    let title = project.map_or_else(|| " desk ".to_owned(), |project| format!(" desk · {} ", name(project)));
    let (open, high) = model.waiting();
    let urgent = if high > 0 {
        format!(" ({high} high)")
    } else {
        String::new()
    };
    let waiting = match open {
        0 => " no questions ".to_owned(),
        _ => format!(" {open} waiting{urgent} "),
    };
    let new = match model.mail.waiting {
        0 => String::new(),
        1 => " 1 message ".to_owned(),
        count => format!(" {count} messages "),
    };
    let room = usize::from(area.width)
        .saturating_sub(title.width() + waiting.width() + new.width() + 6 + usize::from(!new.is_empty()));
    let people = cut(&people(model), room);
    let style = if high > 0 { theme.alarm() } else { Style::new() };
    let middle = match model.connection {
        Connection::Open => Line::from(people).right_aligned(),
        Connection::Opening => Line::from(" connecting… ").right_aligned(),
        Connection::Lost { attempt, .. } => {
            let text = format!(" no connection, attempt {attempt} ");
            Line::styled(text, theme.alarm()).right_aligned()
        }
    };
    let mut block = Block::bordered().title(title).title(middle);
    if !new.is_empty() {
        block = block.title(Line::styled(new, theme.coloured(Color::Yellow)).right_aligned());
    }
    let block = block
        .title(Line::styled(waiting, style).right_aligned())
        .title_bottom(Line::styled(keys(model, usize::from(area.width) - 4), theme.label()));
    frame.render_widget(block, area);
}

/// The people at the desk, this one first.
fn people(model: &Model) -> String {
    let own = &model.options.human;
    let mut humans: Vec<_> = model.desk.humans.iter().collect();
    humans.sort_by_key(|human| (human.human != *own, human.human.clone()));
    let shown = humans.iter().map(|human| {
        let mark = match human.presence.as_str() {
            "present" => "●",
            "idle" => "○",
            _ => "–",
        };
        format!("{} {mark} {}", name(&human.human), name(&human.presence))
    });
    let shown: Vec<String> = shown.collect();
    let paused = if model.is_paused { "paused · " } else { "" };
    let away = if model.is_away { "away · " } else { "" };
    format!(" {away}{paused}{} ", shown.join(" · "))
}

/// The keys that count now, as many as fit.
fn keys(model: &Model, width: usize) -> String {
    let all: &[&str] = match (model.screen, model.focus) {
        (Screen::Desk, Focus::List) => &[
            "Enter answer",
            "1-9 choose",
            "d decline",
            "h hand over",
            "H history",
            "? help",
            "m messages",
            "/ search",
            "p pause",
            "Ctrl-E editor",
            "q quit",
        ],
        (Screen::Desk, Focus::Answer) => &[
            "Tab list",
            "Ctrl-D send",
            "1-9 choose",
            "Space multi",
            "Ctrl-E editor",
            "Ctrl-Z undo",
            "Esc back",
        ],
        (Screen::Messages, _) => &["Enter answer", "w write to", "x mark as read", "Esc back"],
        (Screen::History, _) => &["Enter open", "/ search", "Esc back"],
        (Screen::Whole | Screen::Yaps, _) => &["arrows scroll", "Esc back"],
        (Screen::Help, _) => &["any key closes the help"],
    };
    let mut text = String::new();
    for key in all {
        let part = format!(" · {key}");
        if text.width() + part.width() > width {
            break;
        }
        text.push_str(&part);
    }
    format!(" {} ", text.trim_start_matches(" · "))
}

/// The line that asks, or says what has happened.
fn draw_status(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: &Theme) {
    if let Some(prompt) = &model.prompt {
        return draw_prompt(frame, area, prompt, theme);
    }
    let (text, style) = if let Some(said) = &model.said {
        (said.clone(), theme.coloured(Color::Yellow))
    } else if let Connection::Lost { reason, .. } = &model.connection {
        (reason.clone(), theme.alarm())
    } else if !model.filter.is_empty() {
        let text = format!("search: {}   Esc clears it", model.filter);
        (text, theme.coloured(Color::Yellow))
    } else {
        return;
    };
    let text = cut(&one_line(&text), usize::from(area.width));
    frame.render_widget(Line::styled(text, style), area);
}

fn draw_prompt(frame: &mut Frame<'_>, area: Rect, prompt: &Prompt, theme: &Theme) {
    let label = match &prompt.kind {
        PromptKind::Decline(_) => "decline, because (Enter sends, Esc goes back): ".to_owned(),
        PromptKind::HandTo(_) => "hand over to (a name, a role or desk): ".to_owned(),
        PromptKind::HandNote { to, .. } => format!("note for {}: ", name(to)),
        PromptKind::Search => "search: ".to_owned(),
        PromptKind::WriteTo => "write to (the name of an agent): ".to_owned(),
        PromptKind::Write { name: peer, .. } => format!("to {} (Enter sends, Esc goes back): ", name(peer)),
        PromptKind::TakeOver { from, .. } => format!("{} is writing an answer. Take it over? [y/N] ", name(from)),
        PromptKind::SendOpen { open: 1, .. } => "one question has no answer. Send without it? [y/N] ".to_owned(),
        PromptKind::SendOpen { open, .. } => format!("{open} questions have no answer. Send without them? [y/N] "),
    };
    let width = usize::from(area.width);
    let room = width.saturating_sub(label.width() + 1).max(10);
    // The end of a long text is shown: the cursor is there.
    let (row, column) = prompt.input.position(room);
    let rows = prompt.input.rows(room);
    let shown = prompt.input.shown(rows[row]);
    let line = Line::from(vec![
        Span::styled(
            label.clone(),
            theme.coloured(Color::Yellow).add_modifier(Modifier::BOLD),
        ),
        Span::raw(shown),
    ]);
    frame.render_widget(line, area);
    let x = area.x
        + u16::try_from(label.width() + column)
            .unwrap_or(area.width)
            .min(area.width);
    frame.set_cursor_position(Position { x, y: area.y });
}
