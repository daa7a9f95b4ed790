//! Edits of TOML. An entry is a table of its own at the end of the text, so that nothing else moves.

use serde_json::Value;

use super::members::Members;

/// The text with a table at its end. The table begins with a line break unless the text is empty: a text without a last
/// line break gets no empty line before the table, and loses nothing when the table is removed.
pub fn insert(text: &str, keys: &[&str], members: &Members) -> String {
    format!("{text}{}", table(text, text.is_empty(), keys, members))
}

/// The text without the table as [`insert`] wrote it.
pub fn remove(text: &str, keys: &[&str], members: &Members) -> Option<String> {
    let table = table(text, true, keys, members);
    let (at, len) = place(text, &table)?;
    // The line break before the table belongs to it.
    let line_break = line_break(text);
    let from = if text[..at].ends_with(line_break) {
        at - line_break.len()
    } else {
        at
    };
    Some(format!("{}{}", &text[..from], &text[at + len..]))
}

/// The text with the table as it should be, where it was written by [`insert`] with other values.
pub fn update(text: &str, keys: &[&str], entry: &Value, members: &Members) -> Option<String> {
    let old = members.iter().map(|(key, _)| Some((*key, entry.get(*key)?.clone())));
    let old = table(text, true, keys, &old.collect::<Option<Members>>()?);
    let (at, len) = place(text, &old)?;
    let new = table(text, true, keys, members);
    Some(format!("{}{new}{}", &text[..at], &text[at + len..]))
}

/// Where a table begins: at the beginning of a line.
fn place(text: &str, table: &str) -> Option<(usize, usize)> {
    let is_at_line = |at: &usize| *at == 0 || text[..*at].ends_with('\n');
    let at = text.match_indices(table).map(|(at, _)| at).find(is_at_line)?;
    Some((at, table.len()))
}

fn table(text: &str, is_first: bool, keys: &[&str], members: &Members) -> String {
    let line_break = line_break(text);
    let lines = members.iter().map(|(key, value)| {
        // A JSON string is a TOML string, too, and so is an array of them.
        let value = match value {
            Value::Array(items) => {
                let items: Vec<_> = items.iter().map(Value::to_string).collect();
                format!("[{}]", items.join(", "))
            }
            value => value.to_string(),
        };
        format!("{key} = {value}{line_break}")
    });
    let before = if is_first { "" } else { line_break };
    format!("{before}[{}]{line_break}{}", keys.join("."), lines.collect::<String>())
}

fn line_break(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}
