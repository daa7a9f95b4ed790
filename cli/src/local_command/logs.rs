//! `logs`: shows the log of a broker, and follows it.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, IsTerminal as _, Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::Path,
    thread,
    time::Duration,
};

use anstyle::{AnsiColor, Style};
use serde_json::{Map, Value, json};

use crate::{
    error::CliError,
    output::{Output, Written, is_closed, write},
    short,
    table::{escaped, escaped_json},
};
use common::{telemetry::older_file, user_broker::LocalPaths};

/// Time between two looks at a log that is followed.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// How much of a log to show.
#[derive(Debug)]
pub struct Logs {
    pub lines_max: usize,
    pub follows: bool,
    pub form: Form,
}

/// How lines are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As they are in the file.
    AsWritten,
    /// Every line is made a JSON object.
    Json,
    /// For people.
    Readable { is_utc: bool, has_colours: bool },
}

impl Form {
    /// JSON where it is asked for, lines for people on a terminal, and in a pipe what the file has.
    pub fn wanted(output: &Output, is_utc: bool) -> Self {
        if output.json {
            Self::Json
        } else if io::stdout().is_terminal() {
            Self::Readable {
                is_utc,
                has_colours: output.has_colours(),
            }
        } else {
            Self::AsWritten
        }
    }
}

impl Logs {
    /// Prints the last lines, and with `follows` each line that comes.
    ///
    /// # Errors
    /// There is no log, or it cannot be read.
    pub fn show(&self, paths: &LocalPaths) -> Result<(), CliError> {
        let path = &paths.log;
        let unreadable = |error: io::Error| CliError::Failed(format!("the log {}: {error}", path.display()));
        let mut file = File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if !self.follows => CliError::Failed(format!(
                "there is no log {}: the broker has never run; {} starts it",
                path.display(),
                paths.instance.command_line("start")
            )),
            _ => unreadable(error),
        })?;
        let mut text = String::new();
        read_to_end(&mut file, &mut text).map_err(unreadable)?;
        if text.lines().count() < self.lines_max {
            let older = fs::read(older_file(path, 1)).unwrap_or_default();
            text.insert_str(0, &String::from_utf8_lossy(&older));
        }
        let skipped = text.lines().count().saturating_sub(self.lines_max);
        let shown: String = text.lines().skip(skipped).map(|line| self.line(line)).collect();
        let mut written = write(&shown)?;
        let mut partial = String::new();
        while self.follows && written == Written::Done && !is_closed() {
            thread::sleep(POLL_INTERVAL);
            read_to_end(&mut file, &mut partial).map_err(unreadable)?;
            if is_replaced(&file, path)
                && let Ok(newer) = File::open(path)
            {
                read_to_end(&mut file, &mut partial).map_err(unreadable)?;
                file = newer;
            }
            let whole = partial.rfind('\n').map_or(0, |at| at + 1);
            let lines: String = partial.drain(..whole).collect();
            let lines: String = lines.lines().map(|line| self.line(line)).collect();
            written = write(&lines)?;
        }
        Ok(())
    }

    fn line(&self, line: &str) -> String {
        let event = || serde_json::from_str::<Map<String, Value>>(line).ok();
        match self.form {
            Form::AsWritten => format!("{}\n", escaped_json(line)),
            Form::Json => match event() {
                Some(event) => format!("{}\n", Value::Object(event)),
                None => format!("{}\n", json!({"message": line})),
            },
            Form::Readable { is_utc, has_colours } => match event() {
                Some(event) => readable(event, is_utc, has_colours),
                None => format!("{}\n", escaped(line)),
            },
        }
    }
}

/// An event of the log for people: time, level, what happened, and its fields. Modules are for developers of the broker.
fn readable(mut event: Map<String, Value>, is_utc: bool, has_colours: bool) -> String {
    let mut take = |member: &str| match event.remove(member) {
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
        None => String::new(),
    };
    let (time, level, message) = (take("timestamp"), take("level"), take("message"));
    take("target");
    let style = match level.as_str() {
        "ERROR" if has_colours => AnsiColor::Red.on_default(),
        "WARN" if has_colours => AnsiColor::Yellow.on_default(),
        _ => Style::new(),
    };
    let mut text = format!(
        "{}  {style}{:<5}{style:#}  {}",
        escaped(&short::time(&time, is_utc)),
        escaped(&level),
        escaped(&message)
    );
    for (name, value) in &event {
        let value = match value {
            Value::String(text) if !text.contains(' ') => text.clone(),
            value => value.to_string(),
        };
        let _ = write!(text, "  {}={}", escaped(name), escaped(&value));
    }
    text + "\n"
}

fn read_to_end(file: &mut File, text: &mut String) -> io::Result<()> {
    // A log that was cut is read from its beginning.
    if file.stream_position()? > file.metadata()?.len() {
        file.seek(SeekFrom::Start(0))?;
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    text.push_str(&String::from_utf8_lossy(&bytes));
    Ok(())
}

fn is_replaced(file: &File, path: &Path) -> bool {
    let id = |file: fs::Metadata| (file.dev(), file.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(named)) => id(open) != id(named),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_line_for_people() {
        let event = json!({
            "timestamp": "2026-11-28T05:00:29.123456Z", "level": "WARN", "target": "mcp_broker::gateway",
            "message": "a backend\u{1b} failed", "backend": "docs", "reason": "no such file", "attempt": 3,
        });
        let Value::Object(event) = event else { panic!() };
        assert_eq!(
            readable(event.clone(), true, false),
            "2026-11-28T05:00:29Z  WARN   a backend\\u{1b} failed  attempt=3  backend=docs  reason=\"no such file\"\n"
        );
        assert!(readable(event, true, true).contains("\u{1b}[33mWARN "));
        assert_eq!(readable(Map::new(), true, false), "         \n");
    }
}
