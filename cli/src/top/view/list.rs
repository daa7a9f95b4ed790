//! A list with its headings.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;
use ratatui::widgets::{Paragraph, Row as TableRow, Table};

use crate::screen::Theme;
use crate::table::{cut, fit};
use crate::top::grid::{Grid, Sort};

/// Draws the part of a list in which the selected row is.
pub fn draw_grid(frame: &mut Frame<'_>, area: Rect, grid: &Grid, selected: usize, sort: Sort, theme: &Theme) {
    if grid.rows.is_empty() {
        let text = if grid.total > 0 {
            "no row matches the filter"
        } else {
            "nothing to show"
        };
        frame.render_widget(Paragraph::new(text).style(theme.label()), area);
        return;
    }
    let page = usize::from(area.height.saturating_sub(1)).max(1);
    let first = selected / page * page;
    let shown = &grid.rows[first.min(grid.rows.len())..(first + page).min(grid.rows.len())];
    let widths = widths(grid, usize::from(area.width));
    let headings = grid.headings.iter().enumerate().map(|(column, heading)| match sort {
        Sort {
            column: Some(by),
            is_reversed,
        } if by == column => {
            format!("{heading}{}", if is_reversed { "▼" } else { "▲" })
        }
        _ => (*heading).to_owned(),
    });
    let header = TableRow::new(headings).style(Style::new().add_modifier(Modifier::BOLD));
    let rows = shown.iter().enumerate().map(|(at, row)| {
        let cells = row.cells.iter().zip(&widths).map(|(cell, width)| {
            let style = theme.status(cell);
            Span::styled(cut(cell, *width), style)
        });
        let row = TableRow::new(cells);
        if first + at == selected {
            row.style(Style::new().add_modifier(Modifier::REVERSED))
        } else {
            row
        }
    });
    let columns = widths.iter().map(|width| Constraint::Length(*width as u16));
    frame.render_widget(Table::new(rows, columns).header(header).column_spacing(2), area);
}

/// The widths of the columns: as wide as their cells, and the widest of them narrower where the screen is not wide enough.
fn widths(grid: &Grid, width: usize) -> Vec<usize> {
    let mut widths: Vec<usize> = grid.headings.iter().map(|heading| heading.len() + 1).collect();
    for row in &grid.rows {
        for (width, cell) in widths.iter_mut().zip(&row.cells) {
            *width = unicode_width::UnicodeWidthStr::width(cell.as_str()).max(*width);
        }
    }
    fit(&mut widths, width);
    widths
}
