//! Tables for a terminal. All text of a broker passes [`escaped`] before it reaches a terminal.

use std::fmt::{self, Write};

/// Rows with aligned columns. Every cell is escaped when it is added.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a line of headings.
    pub fn new(headings: &[&str]) -> Self {
        let mut table = Self::without_headings();
        table
            .rows
            .push(headings.iter().map(|&heading| heading.to_owned()).collect());
        table
    }

    /// A table of names and values, without a line of headings.
    pub fn without_headings() -> Self {
        Self { rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row<'a>(&mut self, cells: impl IntoIterator<Item = &'a str>) {
        self.rows.push(cells.into_iter().map(cell).collect());
    }

    /// The width of each column in characters. Wide characters (CJK) count as one, so such rows are misaligned.
    fn widths(&self) -> Vec<usize> {
        let mut widths = Vec::new();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        widths
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// An empty cell is shown as `-`.
fn cell(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { escaped(text) }
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
