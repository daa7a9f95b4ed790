//! The one line that a broker writes to stdout once it serves, or once it knows that it cannot.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What became of a start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Readiness {
    /// The broker serves.
    Ready {
        /// Always true.
        ready: bool,
        pid: u32,
        version: String,
        socket: PathBuf,
        /// The address of the HTTP server, such as `http://127.0.0.1:8000`.
        http: Option<String>,
    },
    /// The broker ends.
    Failed {
        /// Why, in one line for the user.
        error: String,
    },
}

impl Readiness {
    /// The line, with its end.
    pub fn line(&self) -> String {
        let json = serde_json::to_string(self).unwrap_or_default();
        format!("{json}\n")
    }
}
