//! Tables for a terminal. All text of a broker passes [`escaped`] before it reaches a terminal.

use std::fmt::{self, Write};

use anstyle::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The most characters of a cell, also where the output is no terminal.
const CELL_CHARS_MAX: usize = 256;
/// No column is made narrower than this, so that its cells can still be distinguished.
const COLUMN_WIDTH_MIN: usize = 6;

const GAP: &str = "  ";

/// Rows with aligned columns. Every cell is escaped when it is added.
pub struct Table {
    rows: Vec<Vec<Cell>>,
}

struct Cell {
    text: String,
    style: Style,
}

impl Table {
    /// A table with a line of headings.
    pub fn new(headings: &[&str]) -> Self {
        let bold = Style::new().bold();
        let cell = |&text: &&str| Cell {
            text: text.to_owned(),
            style: bold,
        };
        Self {
            rows: vec![headings.iter().map(cell).collect()],
        }
    }

    /// A table of names and values, without a line of headings.
    pub fn without_headings() -> Self {
        Self { rows: Vec::new() }
    }

    /// A table of names and values.
    pub fn of_facts<'a, V: AsRef<str>>(facts: impl IntoIterator<Item = (&'a str, V)>) -> Self {
        let mut table = Self::without_headings();
        for (name, value) in facts {
            table.row([name, value.as_ref()]);
        }
        table
    }

    /// Adds a row.
    pub fn row<'a>(&mut self, cells: impl IntoIterator<Item = &'a str>) {
        self.styled_row(cells.into_iter().map(|text| (text, Style::new())));
    }

    /// Adds a row whose cells have colours.
    pub fn styled_row<'a>(&mut self, cells: impl IntoIterator<Item = (&'a str, Style)>) {
        let cells = cells.into_iter().map(|(text, style)| Cell {
            text: cell_text(text),
            style,
        });
        self.rows.push(cells.collect());
    }

    /// The table as text for a terminal with so many columns, with or without colours, and whether something is cut.
    pub fn render(&self, width: Option<usize>, with_colours: bool) -> (String, bool) {
        let mut widths = self.widths();
        let is_cut = width.is_some_and(|width| fit(&mut widths, width));
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            let last = row.len().saturating_sub(1);
            for (at, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let shown = cut(&cell.text, width);
                let padding = if at == last { 0 } else { width - shown.width() };
                if with_colours && cell.style != Style::new() {
                    let _ = write!(line, "{}{shown}{}", cell.style, cell.style.render_reset());
                } else {
                    line.push_str(&shown);
                }
                if at < last {
                    let _ = write!(line, "{:padding$}{GAP}", "");
                }
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        (text, is_cut)
    }

    /// The width of each column, in columns of the terminal.
    fn widths(&self) -> Vec<usize> {
        let mut widths = Vec::new();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.text.width().max(*width);
            }
        }
        widths
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(None, false).0)
    }
}

/// Makes the widest columns narrower until they fit with the gaps between them. Returns whether it changed one.
pub fn fit(widths: &mut [usize], width: usize) -> bool {
    let gaps = GAP.len() * widths.len().saturating_sub(1);
    let mut too_much = (widths.iter().sum::<usize>() + gaps).saturating_sub(width);
    let is_cut = too_much > 0;
    while too_much > 0 {
        let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > COLUMN_WIDTH_MIN) else {
            break;
        };
        *widest -= 1;
        too_much -= 1;
    }
    is_cut
}

/// A text of at most so many columns of the terminal; what is left out is shown as `…`.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut shown = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used >= width {
            break;
        }
        shown.push(c);
    }
    shown.push('…');
    shown
}

/// An empty cell is shown as `-`.
fn cell_text(text: &str) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        shortened(text, CELL_CHARS_MAX)
    }
}

/// A foreign text, escaped, with at most so many characters; what is left out is shown as `…`.
pub fn shortened(text: &str, chars_max: usize) -> String {
    let head: String = text.chars().take(chars_max + 1).collect();
    let shown = escaped(&head);
    if shown.chars().count() <= chars_max {
        return shown;
    }
    shown.chars().take(chars_max - 1).chain(['…']).collect()
}

/// Escapes non-printable characters, so that a name cannot move the cursor, change the reading direction or pass for
/// another name. A backslash is doubled, so an escape cannot be part of a name.
pub fn escaped(text: &str) -> String {
    text.escape_debug()
        .to_string()
        .replace("\\\"", "\"")
        .replace("\\'", "'")
}

/// Escapes what a terminal would act on inside JSON strings. The JSON value stays the same: JSON is ASCII outside of
/// strings.
pub fn escaped_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        let is_plain = c.is_ascii() && c != '\u{7f}' || c.escape_debug().len() == 1;
        if is_plain {
            text.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(text, "\\u{unit:04x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["ID", "NAME", "TAGS"]);
        table.row(["a", "Äpfel & Öl", ""]);
        table.row(["longer-id", "", "x, y"]);
        let lines = [
            "ID         NAME        TAGS",
            "a          Äpfel & Öl  -",
            "longer-id  -           x, y",
        ];
        assert_eq!(table.to_string(), lines.map(|line| format!("{line}\n")).concat());
    }

    #[test]
    fn a_table_fits_the_terminal() {
        let mut table = Table::new(&["NAME", "ID", "NOTE"]);
        table.row(["日本日本日本日本", &"x".repeat(50), "short"]);
        table.row(["bob", "1", &"\u{1b}".repeat(70_000)]);
        for width in [24, 40, 79, 80, 120] {
            let (text, is_cut) = table.render(Some(width), false);
            assert!(is_cut && text.lines().all(|line| line.width() <= width), "{text}");
            assert_eq!(text.lines().count(), 3, "{text}");
        }
        let (text, is_cut) = table.render(Some(1000), false);
        assert!(!is_cut && text.contains(&"x".repeat(50)), "{text}");
        assert!(
            text.lines().all(|line| line.width() < 350),
            "a cell has a bound: {text}"
        );
    }

    #[test]
    fn colours_do_not_change_the_columns() {
        let mut table = Table::new(&["NAME", "STATUS"]);
        let green = anstyle::AnsiColor::Green.on_default();
        table.styled_row([("alice", Style::new()), ("active", green)]);
        let (plain, _) = table.render(None, false);
        let (coloured, _) = table.render(None, true);
        assert!(
            !plain.contains('\u{1b}') && coloured.contains("\u{1b}[32mactive\u{1b}[0m"),
            "{coloured:?}"
        );
        let stripped = ["\u{1b}[1m", "\u{1b}[32m", "\u{1b}[0m"]
            .iter()
            .fold(coloured, |text, code| text.replace(code, ""));
        assert_eq!(stripped, plain);
    }

    #[test]
    fn no_line_ends_in_spaces() {
        let mut table = Table::without_headings();
        table.row(["name", " "]);
        assert_eq!(table.to_string(), "name\n");
    }

    #[test]
    fn a_name_cannot_control_the_terminal() {
        for (text, shown) in [
            ("plain äöü 日本 😀", "plain äöü 日本 😀"),
            ("it's \"quoted\"", "it's \"quoted\""),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("two\r\nlines\t", "two\\r\\nlines\\t"),
            ("\u{202e}gnp.exe", "\\u{202e}gnp.exe"),
            ("a\u{200b}b\u{7f}", "a\\u{200b}b\\u{7f}"),
            ("\\u{1b}", "\\\\u{1b}"),
            ("\\'", "\\\\'"),
        ] {
            assert_eq!(escaped(text), shown);
        }
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let said = serde_json::json!({"name": "\u{1b}[31m \u{7f} \u{9b} \u{202e} \u{e0041} é 😀 \"\\"});
        for json in [said.to_string(), serde_json::to_string_pretty(&said).unwrap()] {
            let shown = escaped_json(&json);
            assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown}");
            assert!(!shown.contains('\u{202e}') && shown.contains("é 😀"), "{shown}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), said);
        }
    }
}
