//! Lists as rows of text, sorted and filtered. Pure.

use rest::messages::ListedMessage;

use super::data::Snapshot;
use super::watched::{Tab, Target};
use crate::operate::message_progress;
use crate::short::screen_time;
use crate::table::shortened;

/// The most characters of a cell.
const CELL_CHARS_MAX: usize = 200;

/// A list as it is shown.
#[derive(Debug, Default)]
pub struct Grid {
    pub headings: &'static [&'static str],
    pub rows: Vec<Row>,
    /// Rows before the filter.
    pub total: usize,
}

/// A row, and what Enter opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub target: Option<Target>,
    pub cells: Vec<String>,
}

/// The column by which rows are sorted, and the direction. Without one they keep the order of the broker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sort {
    pub column: Option<usize>,
    pub is_reversed: bool,
}

const SESSIONS: &[&str] = &["NAME", "STATUS", "QUEUE", "LAST SEEN", "CONNECTED", "SESSION"];
const MESSAGES: &[&str] = &["AT", "FROM", "TO", "PROTOCOL", "STATUS", "PRIORITY", "MESSAGE"];
const DEAD_LETTERS: &[&str] = &["AT", "REASON", "FROM", "TO", "PROTOCOL", "DELIVERIES", "MESSAGE"];
const REPLICAS: &[&str] = &["REPLICA", "STATE", "SESSIONS", "STARTED", "VERSION"];
const EVENTS: &[&str] = &["EVENT"];
const DESK: &[&str] = &["URGENCY", "ASKED", "FROM", "TO", "STATE", "QUESTION"];
const BACKENDS: &[&str] = &["NAME", "STATE", "TOOLS", "CALLS", "OPEN", "SINCE", "REASON"];

impl Grid {
    /// The rows of a view. `now` is the present time (RFC 3339).
    pub fn of(tab: Tab, snapshot: &Snapshot, events: &[String], now: &str, name_of: impl Fn(&str) -> String) -> Self {
        let (headings, rows): (_, Vec<Row>) = match tab {
            Tab::Sessions => (SESSIONS, sessions(snapshot, now)),
            Tab::Messages => (MESSAGES, messages(&snapshot.messages, now, name_of)),
            Tab::DeadLetters => (DEAD_LETTERS, dead_letters(snapshot, now)),
            Tab::Replicas => (REPLICAS, replicas(snapshot, now)),
            Tab::Events => (
                EVENTS,
                events.iter().rev().map(|line| row(None, vec![line.clone()])).collect(),
            ),
            Tab::Desk => (DESK, questions(snapshot, now)),
            Tab::Backends => (BACKENDS, backends(snapshot, now)),
        };
        let total = rows.len();
        Self { headings, rows, total }
    }

    /// The messages of a session.
    pub fn of_messages(list: &[ListedMessage], now: &str, name_of: impl Fn(&str) -> String) -> Self {
        let rows = messages(list, now, name_of);
        let total = rows.len();
        Self {
            headings: MESSAGES,
            rows,
            total,
        }
    }

    /// Keeps the rows in which a cell has this text, without regard to case.
    pub fn filtered(mut self, filter: &str) -> Self {
        let wanted = filter.to_lowercase();
        self.rows
            .retain(|row| row.cells.iter().any(|cell| cell.to_lowercase().contains(&wanted)));
        self
    }

    /// Sorts the rows: numbers by size, other cells by their letters.
    pub fn sorted(mut self, sort: Sort) -> Self {
        if let Some(column) = sort.column.filter(|column| *column < self.headings.len()) {
            let key = |row: &Row| {
                let cell = row.cells.get(column).cloned().unwrap_or_default();
                (cell.parse::<u64>().ok(), cell.to_lowercase())
            };
            self.rows.sort_by_cached_key(key);
        }
        if sort.is_reversed {
            self.rows.reverse();
        }
        self
    }
}

fn row(target: Option<Target>, cells: Vec<String>) -> Row {
    let cells = cells.iter().map(|cell| shortened(cell, CELL_CHARS_MAX)).collect();
    Row { target, cells }
}

/// A time of the broker (RFC 3339): the time of the day if it is of the present one, else month, day and time.
fn clock_time(time: &str, now: &str) -> String {
    let (time, now) = (screen_time(time), screen_time(now));
    match (time.get(..10), time.get(11..19)) {
        (Some(day), Some(clock)) if now.get(..10) == Some(day) => clock.to_owned(),
        (Some(day), Some(clock)) => format!("{} {}", &day[5..], &clock[..5]),
        _ => time,
    }
}

fn sessions(snapshot: &Snapshot, now: &str) -> Vec<Row> {
    let rows = snapshot.sessions.iter().map(|session| {
        let cells = vec![
            session.name.clone().unwrap_or_else(|| "-".to_owned()),
            session.status.clone(),
            session.queue_size.to_string(),
            clock_time(&session.last_heartbeat, now),
            clock_time(&session.connection_time, now),
            session.session_id.clone(),
        ];
        row(Some(Target::Session(session.session_id.clone())), cells)
    });
    rows.collect()
}

fn messages(messages: &[ListedMessage], now: &str, name_of: impl Fn(&str) -> String) -> Vec<Row> {
    let rows = messages.iter().map(|message| {
        let to = message
            .recipient_id
            .as_deref()
            .map_or_else(|| "all".to_owned(), &name_of);
        let cells = vec![
            clock_time(&message.timestamp, now),
            message.sender().to_owned(),
            to,
            message.protocol(),
            message_progress(message),
            message.headers.priority.clone().unwrap_or_else(|| "normal".to_owned()),
            message.message_id.clone(),
        ];
        row(Some(Target::Message(message.message_id.clone())), cells)
    });
    rows.collect()
}

fn dead_letters(snapshot: &Snapshot, now: &str) -> Vec<Row> {
    let rows = snapshot.dead_letters.iter().map(|letter| {
        let message = &letter.message;
        let cells = vec![
            clock_time(&letter.at, now),
            letter.reason.clone(),
            message.sender().to_owned(),
            letter.recipient().to_owned(),
            message.protocol(),
            letter.deliveries.to_string(),
            message.message_id.clone(),
        ];
        row(Some(Target::Message(message.message_id.clone())), cells)
    });
    rows.collect()
}

fn replicas(snapshot: &Snapshot, now: &str) -> Vec<Row> {
    let stats = &snapshot.stats;
    let answering = stats.replica_list.iter().map(|replica| {
        let name = replica.id.clone().unwrap_or_else(|| "the only one".to_owned());
        let state = if replica.is_self { "answers here" } else { "answers" };
        vec![
            name,
            state.to_owned(),
            replica.sessions.to_string(),
            clock_time(&replica.started_at, now),
            replica.version.clone(),
        ]
    });
    let unknown = || "-".to_owned();
    let silent = stats.partial.iter().map(|replica| {
        vec![
            replica.clone(),
            "does not answer".to_owned(),
            unknown(),
            unknown(),
            unknown(),
        ]
    });
    answering.chain(silent).map(|cells| row(None, cells)).collect()
}

fn questions(snapshot: &Snapshot, now: &str) -> Vec<Row> {
    let rows = snapshot.questions.iter().map(|question| {
        let asker = &question.asker;
        let cells = vec![
            question.urgency.clone(),
            clock_time(&question.asked_at, now),
            asker.name.clone().unwrap_or_else(|| asker.session_id.clone()),
            question.to.clone(),
            question.desk_state.clone().unwrap_or_else(|| "pending".to_owned()),
            question.summary.clone(),
        ];
        row(None, cells)
    });
    rows.collect()
}

fn backends(snapshot: &Snapshot, now: &str) -> Vec<Row> {
    let rows = snapshot.backends.iter().map(|backend| {
        let cells = vec![
            backend.name.clone(),
            backend.state.clone(),
            backend.tools.to_string(),
            backend.calls.to_string(),
            backend.open_calls.to_string(),
            clock_time(&backend.since, now),
            backend.reason.clone().unwrap_or_else(|| "-".to_owned()),
        ];
        row(None, cells)
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(cells: &[[&str; 2]]) -> Grid {
        let rows: Vec<Row> = cells
            .iter()
            .map(|cells| row(None, cells.map(str::to_owned).to_vec()))
            .collect();
        Grid {
            headings: &["NAME", "QUEUE"],
            total: rows.len(),
            rows,
        }
    }

    fn names(grid: &Grid) -> Vec<&str> {
        grid.rows.iter().map(|row| row.cells[0].as_str()).collect()
    }

    #[test]
    fn rows_are_sorted_by_number_or_by_letter() {
        let three = [["b", "10"], ["C", "9"], ["a", "100"]];
        let by = |column, is_reversed| grid(&three).sorted(Sort { column, is_reversed });
        assert_eq!(names(&by(None, false)), ["b", "C", "a"]);
        assert_eq!(names(&by(Some(0), false)), ["a", "b", "C"]);
        assert_eq!(names(&by(Some(1), false)), ["C", "b", "a"]);
        assert_eq!(names(&by(Some(1), true)), ["a", "b", "C"]);
        assert_eq!(names(&by(Some(7), false)), ["b", "C", "a"]);
    }

    #[test]
    fn times_are_short() {
        let now = "2026-11-23T05:01:00.000Z";
        assert_eq!(clock_time("2026-11-23T05:00:02.123Z", now), "05:00:02");
        assert_eq!(clock_time("2026-11-22T05:00:02.123Z", now), "11-22 05:00");
        assert_eq!(clock_time("日本日本日本日本", now), "日本日本日本日本");
    }

    #[test]
    fn rows_are_filtered_by_any_cell() {
        let three = [["alice", "10"], ["BOB", "9"], ["carol", "10"]];
        let found = grid(&three).filtered("bo");
        assert_eq!((names(&found), found.total), (vec!["BOB"], 3));
        assert_eq!(names(&grid(&three).filtered("10")), ["alice", "carol"]);
        assert_eq!(names(&grid(&three).filtered("")).len(), 3);
    }
}
