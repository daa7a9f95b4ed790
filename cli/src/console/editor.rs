//! The text of an answer while it is written: several lines, characters of any width, undo. Pure.
//!
//! The cursor is between two graphemes: what a reader takes for one character is moved over and deleted as one.

use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation};
use unicode_width::UnicodeWidthStr;

/// The longest answer, in bytes.
pub const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of earlier texts that are kept for undo.
const UNDO_BYTES_MAX: usize = 1024 * 1024;
/// Most earlier texts that are kept for undo.
const UNDO_LEN_MAX: usize = 256;
/// The columns of a tab.
const TAB: &str = "    ";

/// A text with a cursor.
#[derive(Debug, Clone, Default)]
pub struct Editor {
    text: String,
    /// A byte offset between two graphemes.
    cursor: usize,
    /// The column that the cursor keeps while it moves up and down.
    wanted_column: Option<usize>,
    undo: Vec<Snapshot>,
    redo: Vec<Snapshot>,
    /// The kind of the last change: typed characters are undone together.
    last: Change,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Snapshot {
    text: String,
    cursor: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Change {
    #[default]
    None,
    Typed,
    Deleted,
}

/// A line of the screen: its bytes in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub start: usize,
    pub end: usize,
}

impl Editor {
    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Whether nothing but white space is written.
    pub fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Puts another text in place of the whole one; it can be undone.
    pub fn replace(&mut self, text: &str) {
        let text = cleaned(text);
        if text == self.text {
            return;
        }
        self.remember(Change::None);
        self.text = cut(text, TEXT_BYTES_MAX);
        self.cursor = self.text.len();
    }

    /// Writes a text at the cursor. Returns whether all of it fits.
    pub fn insert(&mut self, text: &str) -> bool {
        let text = cleaned(text);
        let room = TEXT_BYTES_MAX - self.text.len();
        let is_whole = text.len() <= room;
        let text = cut(text, room);
        if text.is_empty() {
            return is_whole;
        }
        // A word is undone with the space before it; a line or a paste is undone alone.
        let is_typed = text.graphemes(true).count() == 1 && text != "\n";
        let begins_word = text == " ";
        self.remember(if is_typed && !begins_word {
            Change::Typed
        } else {
            Change::None
        });
        if is_typed {
            self.last = Change::Typed;
        }
        self.text.insert_str(self.cursor, &text);
        self.cursor += text.len();
        // A combining character joins the text before and after the cursor.
        self.cursor = self.boundary_at_or_after(self.cursor);
        is_whole
    }

    /// Deletes the grapheme before the cursor.
    pub fn backspace(&mut self) {
        self.delete_to(self.before(self.cursor));
    }

    /// Deletes the grapheme behind the cursor.
    pub fn delete(&mut self) {
        self.delete_to(self.after(self.cursor));
    }

    /// Deletes the word before the cursor.
    pub fn delete_word(&mut self) {
        self.delete_to(self.word_before());
    }

    /// Deletes from the cursor to the start of the line.
    pub fn delete_to_line_start(&mut self) {
        self.delete_to(self.line_start());
    }

    /// Deletes from the cursor to the end of the line, or the line break there.
    pub fn delete_to_line_end(&mut self) {
        let end = self.line_end();
        let end = if end == self.cursor {
            self.after(self.cursor)
        } else {
            end
        };
        self.delete_to(end);
    }

    fn delete_to(&mut self, other: usize) {
        let (start, end) = (self.cursor.min(other), self.cursor.max(other));
        if start == end {
            return;
        }
        self.remember(Change::Deleted);
        self.text.replace_range(start..end, "");
        // What stood apart may be one grapheme now.
        self.cursor = self.boundary_at_or_after(start);
    }

    /// Takes back the last change.
    pub fn undo(&mut self) {
        if let Some(earlier) = self.undo.pop() {
            let present = self.restore(earlier);
            self.redo.push(present);
        }
    }

    /// Takes back the last [`Self::undo`].
    pub fn redo(&mut self) {
        if let Some(later) = self.redo.pop() {
            let present = self.restore(later);
            self.undo.push(present);
        }
    }

    fn restore(&mut self, snapshot: Snapshot) -> Snapshot {
        self.last = Change::None;
        self.wanted_column = None;
        let text = std::mem::replace(&mut self.text, snapshot.text);
        let cursor = std::mem::replace(&mut self.cursor, snapshot.cursor);
        Snapshot { text, cursor }
    }

    /// Keeps the present text for undo, unless the change continues the last one.
    fn remember(&mut self, change: Change) {
        self.wanted_column = None;
        self.redo.clear();
        let continues = change != Change::None && change == self.last;
        self.last = change;
        if continues {
            return;
        }
        self.undo.push(Snapshot {
            text: self.text.clone(),
            cursor: self.cursor,
        });
        let mut bytes: usize = self.undo.iter().map(|earlier| earlier.text.len()).sum();
        while self.undo.len() > UNDO_LEN_MAX || bytes > UNDO_BYTES_MAX {
            bytes -= self.undo.remove(0).text.len();
        }
    }

    /// Moves the cursor by one grapheme.
    pub fn left(&mut self) {
        self.move_to(self.before(self.cursor));
    }

    /// Moves the cursor by one grapheme.
    pub fn right(&mut self) {
        self.move_to(self.after(self.cursor));
    }

    /// Moves the cursor to the start of the word before it.
    pub fn word_left(&mut self) {
        self.move_to(self.word_before());
    }

    /// Moves the cursor behind the next word.
    pub fn word_right(&mut self) {
        let words = self.text[self.cursor..].unicode_word_indices();
        let end = words.map(|(at, word)| self.cursor + at + word.len()).next();
        self.move_to(self.boundary_at_or_after(end.unwrap_or(self.text.len())));
    }

    /// Moves the cursor to the start of its line.
    pub fn home(&mut self) {
        self.move_to(self.line_start());
    }

    /// Moves the cursor to the end of its line.
    pub fn end(&mut self) {
        self.move_to(self.line_end());
    }

    /// Moves the cursor up by one line of a screen with so many columns. Returns whether there is one.
    pub fn up(&mut self, width: usize) -> bool {
        self.move_by_row(width, |row| row.checked_sub(1))
    }

    /// Moves the cursor down by one line of a screen with so many columns. Returns whether there is one.
    pub fn down(&mut self, width: usize) -> bool {
        self.move_by_row(width, |row| Some(row + 1))
    }

    fn move_by_row(&mut self, width: usize, next: impl Fn(usize) -> Option<usize>) -> bool {
        let rows = self.rows(width);
        let (row, column) = self.position(width);
        let column = self.wanted_column.unwrap_or(column);
        let Some(target) = next(row).and_then(|row| rows.get(row)) else {
            return false;
        };
        let mut at = target.start;
        let mut used = 0;
        for grapheme in self.text[target.start..target.end].graphemes(true) {
            used += columns(grapheme);
            if used > column {
                break;
            }
            at += grapheme.len();
        }
        // The end of a row that is wrapped is the start of the next one.
        if at == target.end && rows.iter().any(|row| row.start == at && row.start > target.start) {
            at = self.before(at).max(target.start);
        }
        self.last = Change::None;
        self.cursor = self.boundary_at_or_after(at);
        self.wanted_column = Some(column);
        true
    }

    fn move_to(&mut self, cursor: usize) {
        self.cursor = cursor;
        self.wanted_column = None;
        self.last = Change::None;
    }

    fn line_start(&self) -> usize {
        self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        let rest = &self.text[self.cursor..];
        rest.find('\n').map_or(self.text.len(), |at| self.cursor + at)
    }

    fn word_before(&self) -> usize {
        let words = self.text[..self.cursor].unicode_word_indices();
        let start = words.map(|(at, _)| at).next_back().unwrap_or(0);
        self.boundary_at_or_before(start)
    }

    fn before(&self, at: usize) -> usize {
        let mut cursor = GraphemeCursor::new(at, self.text.len(), true);
        cursor.prev_boundary(&self.text, 0).ok().flatten().unwrap_or(0)
    }

    fn after(&self, at: usize) -> usize {
        let mut cursor = GraphemeCursor::new(at, self.text.len(), true);
        let next = cursor.next_boundary(&self.text, 0).ok().flatten();
        next.unwrap_or(self.text.len())
    }

    fn is_boundary(&self, at: usize) -> bool {
        let mut cursor = GraphemeCursor::new(at, self.text.len(), true);
        cursor.is_boundary(&self.text, 0).unwrap_or(true)
    }

    fn boundary_at_or_after(&self, at: usize) -> usize {
        if self.is_boundary(at) { at } else { self.after(at) }
    }

    fn boundary_at_or_before(&self, at: usize) -> usize {
        if self.is_boundary(at) { at } else { self.before(at) }
    }

    /// The lines of a screen with so many columns, at least one.
    pub fn rows(&self, width: usize) -> Vec<Row> {
        wrapped(&self.text, width)
    }

    /// The row and the column of the cursor on a screen with so many columns.
    pub fn position(&self, width: usize) -> (usize, usize) {
        let rows = self.rows(width);
        let row = rows.iter().rposition(|row| row.start <= self.cursor).unwrap_or(0);
        let before = &self.text[rows[row].start..self.cursor];
        let column: usize = before.graphemes(true).map(columns).sum();
        (row, column.min(width.max(2)))
    }

    /// The text of a row as it is shown.
    pub fn shown(&self, row: Row) -> String {
        self.text[row.start..row.end].graphemes(true).map(shown).collect()
    }
}

/// The lines of a screen with so many columns that show a text, at least one. Lines are wrapped behind a space if they have
/// one.
pub fn wrapped(text: &str, width: usize) -> Vec<Row> {
    let width = width.max(2);
    let mut rows = Vec::new();
    let (mut start, mut at, mut used) = (0, 0, 0);
    // Behind the last space of the row: there it is wrapped.
    let mut space = None;
    for grapheme in text.graphemes(true) {
        if grapheme == "\n" {
            rows.push(Row { start, end: at });
            at += grapheme.len();
            (start, used, space) = (at, 0, None);
            continue;
        }
        let columns = columns(grapheme);
        while used > 0 && used + columns > width {
            let end = space.take().unwrap_or(at);
            rows.push(Row { start, end });
            used = text[end..at].graphemes(true).map(self::columns).sum();
            start = end;
        }
        used += columns;
        at += grapheme.len();
        if grapheme == " " {
            space = Some(at);
        }
    }
    rows.push(Row { start, end: at });
    rows
}

/// The columns that a grapheme takes on the screen.
fn columns(grapheme: &str) -> usize {
    shown(grapheme).width()
}

/// A grapheme as it is shown: what would move the cursor or change the reading direction is escaped.
fn shown(grapheme: &str) -> String {
    if grapheme == "\t" {
        return TAB.to_owned();
    }
    let mut text = String::with_capacity(grapheme.len());
    for c in grapheme.chars() {
        if c.is_control() || is_direction(c) {
            text.extend(c.escape_unicode());
        } else {
            text.push(c);
        }
    }
    // A combining character without a base is shown on one.
    if text.width() == 0 {
        text.insert(0, '\u{25cc}');
    }
    text
}

/// Whether a character changes the reading direction.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text with line feeds, and without the control characters that a paste may bring.
fn cleaned(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    text.chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .collect()
}

/// At most so many bytes of a text, whole graphemes.
fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        let ends = text.grapheme_indices(true).map(|(at, _)| at);
        let end = ends.take_while(|at| *at <= bytes_max).last().unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
#[path = "editor_tests.rs"]
mod tests;
