//! Why a link to a backend takes no request, and how one ended.

use std::fmt;

/// Why a link sends no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkRefusal {
    /// The backend does not read what was sent before.
    Busy,
    /// The backend has ended.
    Closed,
}

/// How a backend ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkEnded {
    /// The exit status or the signal, or what broke the connection: `exited with code 1`.
    pub status: String,
    /// The last line that it wrote to stderr.
    pub last_line: Option<String>,
}

impl LinkEnded {
    /// The end of a backend without a stderr.
    pub fn without_output(status: impl Into<String>) -> Self {
        Self {
            status: status.into(),
            last_line: None,
        }
    }
}

impl fmt::Display for LinkEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.status)?;
        match &self.last_line {
            Some(line) => write!(f, ": {line}"),
            None => Ok(()),
        }
    }
}
