//! The log that all fronts of a user share: one line for each event, with the process id.

use std::{path::Path, process};

use actors::clock;

use common::telemetry::LogFile;

/// The log. An event that cannot be written is lost: no client waits for it.
pub struct Log(Option<LogFile>);

impl Log {
    /// The log in this file, which only the user can read; none without a path, or where it cannot be opened.
    pub fn at(path: Option<&Path>) -> Self {
        Self(path.and_then(|path| LogFile::open(path).ok()))
    }

    /// Writes one line.
    pub fn event(&self, text: &str) {
        if let Some(file) = &self.0 {
            let time = clock::rfc3339_text(clock::now().unix_ms);
            let _ = file.write_line(&format!("{time} {} {}", process::id(), text.escape_debug()));
        }
    }
}
