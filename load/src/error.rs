//! The errors that end a run without a result. Wrong measurements are not errors: they stand in the report.

use std::time::Duration;

use test_client::websocket::Violation;
use thiserror::Error;

pub type Result<T> = std::result::Result<T, LoadError>;

#[derive(Debug, Error)]
pub enum LoadError {
    #[error("the address {url:?} is invalid: {reason}")]
    Url { url: String, reason: String },
    #[error("no connection to {address}: {reason}")]
    Connect { address: String, reason: String },
    #[error(transparent)]
    WebSocket(#[from] Violation),
    #[error("connection {link} ended early: {reason}")]
    Lost { link: usize, reason: String },
    #[error("the server refused {what}: {answer}")]
    Refused { what: String, answer: String },
    #[error("the server stalled while {phase}: nothing came for {} s", .quiet.as_secs())]
    Stalled { phase: &'static str, quiet: Duration },
    #[error("{phase} took longer than {} s", .limit.as_secs())]
    TooLong { phase: &'static str, limit: Duration },
    #[error("the server falls behind {rate} messages per second: {in_flight} are in flight")]
    Behind { rate: u64, in_flight: usize },
    #[error("{needed} open files are needed, and the hard limit is {limit}: raise it with `ulimit -Hn {needed}`")]
    Files { needed: u64, limit: u64 },
    #[error("no figures of process {pid}: {reason}")]
    Process { pid: u32, reason: String },
    #[error("{0}")]
    Arguments(String),
    #[error("input or output failed: {0}")]
    Io(#[from] std::io::Error),
}

impl LoadError {
    /// An error with a frame of the server, cut to a line or two.
    pub fn refused(what: impl Into<String>, frame: &[u8]) -> Self {
        let text = String::from_utf8_lossy(frame);
        Self::Refused {
            what: what.into(),
            answer: text.chars().take(400).collect(),
        }
    }
}
