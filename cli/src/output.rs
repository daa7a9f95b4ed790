//! Output of commands, and their exit codes.

use std::io::{ErrorKind, IsTerminal, Write};

use actors::clock::now;
use serde_json::value::RawValue;

use super::access::{EnvVars, variable};
use super::error::CliError;
use super::short;
use super::table::{Table, escaped_json};
use common::hang_up::is_hung_up;

/// Exit codes of the commands other than `serve`.
pub const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 wrong command line or configuration.";

/// What became of a text that was written to stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    Done,
    /// The reader has closed the pipe: the rest is not wanted.
    Closed,
}

/// Writes to stdout. A closed pipe is no error. A full disk is: the text may be a key that is not shown again.
///
/// # Errors
/// [`CliError::Failed`] when the text cannot be written.
pub fn print(text: &str) -> Result<(), CliError> {
    write(text).map(|_| ())
}

/// Writes to stdout as [`print`] does, for a command that has more to write.
///
/// # Errors
/// [`CliError::Failed`] when the text cannot be written.
pub fn write(text: &str) -> Result<Written, CliError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(Written::Done),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Written::Closed),
        Err(error) => Err(CliError::Failed(format!("the answer could not be written: {error}"))),
    }
}

/// Whether the reader of stdout has closed the pipe, for a command that has nothing to write at the moment.
pub fn is_closed() -> bool {
    is_hung_up(std::io::stdout())
}

/// How a command shows its answers.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "flags of the command line")]
pub struct Output {
    /// JSON instead of a table.
    pub json: bool,
    /// Tables are not cut to the width of the terminal.
    pub wide: bool,
    /// Colours are not wanted, even on a terminal.
    pub plain: bool,
    /// Times are shown in UTC, and not in the zone of the user.
    pub utc: bool,
}

impl Output {
    /// Reads what the environment says about colours (`NO_COLOR`, `TERM`).
    pub fn new(json: bool, wide: bool, env: &EnvVars) -> Self {
        let is_refused = variable(env, "NO_COLOR").is_some();
        let is_dumb = env
            .iter()
            .find(|(name, _)| name == "TERM")
            .is_none_or(|(_, term)| term == "dumb");
        Self {
            json,
            wide,
            plain: is_refused || is_dumb,
            utc: false,
        }
    }

    /// Shows times in UTC.
    pub fn with_utc(self, utc: bool) -> Self {
        Self { utc, ..self }
    }

    /// Whether tables are short: with ages in place of times, and the beginnings of ids.
    pub fn is_short(&self) -> bool {
        !self.wide && std::io::stdout().is_terminal()
    }

    /// A time of the broker to the second.
    pub fn time(&self, time: &str) -> String {
        short::time(time, self.utc)
    }

    /// A time of the broker in a table: how long ago it was, where tables are short.
    pub fn age(&self, time: &str) -> String {
        let age = self.is_short().then(|| short::age(time, now().unix_ms)).flatten();
        age.unwrap_or_else(|| self.time(time))
    }

    /// The heading of a column of [`Self::age`].
    pub fn age_heading(&self) -> &'static str {
        if self.is_short() { "AGE" } else { "AT" }
    }

    /// How many characters of these ids a table shows.
    pub fn id_len<'a>(&self, ids: impl Iterator<Item = &'a str>) -> usize {
        if self.is_short() {
            short::prefix_len(ids)
        } else {
            usize::MAX
        }
    }

    /// Whether stdout shows colours.
    pub fn has_colours(&self) -> bool {
        !self.plain && std::io::stdout().is_terminal()
    }

    /// The table as text that fits the terminal.
    pub fn table(&self, table: &Table) -> String {
        let width = terminal_width().filter(|_| !self.wide);
        let (mut text, is_cut) = table.render(width, self.has_colours());
        if is_cut {
            text.push_str("\nSome cells are cut to the width of the terminal: --wide shows all of them.\n");
        }
        text
    }
}

/// The columns of the terminal; `None` where stdout is none.
pub fn terminal_width() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&stdout).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// A JSON value of the broker as one line.
pub fn json_line(value: &RawValue) -> String {
    // Line breaks are only between tokens: in strings they are escaped.
    let line = value.get().replace(['\n', '\r'], " ");
    format!("{}\n", escaped_json(line.trim()))
}

/// A JSON value as one line.
pub fn json_value_line(value: &serde_json::Value) -> String {
    format!("{}\n", escaped_json(&value.to_string()))
}
