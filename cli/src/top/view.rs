//! Draws the model. Pure: the same model gives the same screen.

mod detail;
mod header;
mod list;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::model::Model;
use super::watched::Tab;
use crate::screen::{self, Theme, shown_text};
use list::draw_grid;

/// The smallest screen that is drawn.
const WIDTH_MIN: u16 = 50;
const HEIGHT_MIN: u16 = 14;
/// From this height on the charts have several lines.
const HEIGHT_OF_TALL_CHARTS: u16 = 40;

const HELP_WIDTH: u16 = 82;
const HELP: &[(&str, &str)] = &[
    ("1 to 7, Tab", "choose a view"),
    ("arrows, PgUp, PgDn, Home, End", "move"),
    ("Enter", "open the session or the message"),
    ("Esc", "go back, or clear the filter"),
    ("s", "sort by the next column"),
    ("r", "reverse the order"),
    ("/", "filter the rows; Enter keeps it, Esc clears it"),
    ("?", "show this help; any key closes it"),
    ("q, Ctrl-C", "quit"),
];

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, model: &Model) {
    let area = frame.area();
    if screen::is_too_small(frame, WIDTH_MIN, HEIGHT_MIN) {
        return;
    }
    let charts = if area.height >= HEIGHT_OF_TALL_CHARTS { 5 } else { 2 };
    let banner = u16::from(model.outage.is_some());
    let rows = [
        Constraint::Length(1),
        Constraint::Length(banner),
        Constraint::Length(header::lines(model)),
        Constraint::Length(charts),
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(1),
    ];
    let [title, warning, figures, sparklines, tabs, body, footer] = Layout::vertical(rows).areas(area);
    let theme = Theme {
        has_colours: model.has_colours,
    };
    header::draw_title(frame, title, model, &theme);
    header::draw_outage(frame, warning, model, &theme);
    header::draw_figures(frame, figures, model, &theme);
    header::draw_charts(frame, sparklines, model, &theme);
    draw_tabs(frame, tabs, model, &theme);
    draw_body(frame, body, model, &theme);
    draw_footer(frame, footer, model, &theme);
    if model.shows_help {
        let place = screen::centred(area, HELP_WIDTH, HELP.len() as u16 + 2);
        frame.render_widget(Clear, place);
        frame.render_widget(
            screen::help(HELP, &theme).block(Block::bordered().title(" Keys ")),
            place,
        );
    }
}

fn draw_tabs(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: &Theme) {
    let mut spans = vec![Span::raw(" ")];
    for (at, tab) in Tab::ALL.into_iter().enumerate() {
        let style = if tab == model.tab {
            Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD)
        } else {
            theme.label()
        };
        spans.push(Span::styled(format!("{} {} ", at + 1, tab.title()), style));
    }
    frame.render_widget(Line::from(spans), area);
}

fn draw_body(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: &Theme) {
    let Some(snapshot) = &model.snapshot else {
        let text = if model.outage.is_some() {
            ""
        } else {
            "asking the broker..."
        };
        frame.render_widget(Paragraph::new(text), area);
        return;
    };
    if model.open.is_empty() {
        let grid = model.grid().unwrap_or_default();
        draw_grid(frame, area, &grid, model.selected, model.sort(), theme);
    } else {
        detail::draw(frame, area, model, snapshot.detail.as_ref(), theme);
    }
}

fn draw_footer(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: &Theme) {
    let grid = model.grid();
    let position = grid
        .filter(|grid| !grid.rows.is_empty())
        .map_or_else(String::new, |grid| {
            let more =
                model.tab == Tab::Sessions && model.snapshot.as_ref().is_some_and(|snapshot| snapshot.more_sessions);
            let more = if more { "+" } else { "" };
            format!("{} of {}{more} ", model.selected + 1, grid.rows.len())
        });
    let line = if model.is_typing {
        Line::from(vec![
            Span::styled("filter: ", theme.label()),
            Span::raw(shown_text(&model.filter)),
            Span::raw("_"),
        ])
    } else if !model.open.is_empty() {
        Line::styled(" Esc back   arrows move   Enter opens   ? help   q quit", theme.label())
    } else if model.filter.is_empty() {
        Line::styled(
            " arrows move   Enter opens   s, r sort   / filter   ? help   q quit",
            theme.label(),
        )
    } else {
        Line::styled(
            format!(" filter: {}   Esc clears it", shown_text(&model.filter)),
            theme.coloured(Color::Yellow),
        )
    };
    frame.render_widget(line, area);
    if !model.is_typing {
        frame.render_widget(
            Paragraph::new(position)
                .alignment(Alignment::Right)
                .style(theme.label()),
            area,
        );
    }
}
