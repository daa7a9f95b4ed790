//! Severities of log messages to the client (`notifications/message`). Clients of 2025-11-25 and before set one with
//! `logging/setLevel`, those of 2026-07-28 in each request.

use serde::Deserialize;
use serde_json::Value;

use super::{Outbox, reply::ReplyTo};

/// The severities of RFC 5424, lowest first.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl Level {
    /// The name in the protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }
}

impl ReplyTo {
    /// Tells the caller of something that happened while its request was served, if it wants to hear of that level.
    pub fn log(&self, connection: &Outbox, level: Level, logger: &str, data: &Value) {
        if self.log_level.is_none_or(|wanted| level < wanted) {
            return;
        }
        let frame = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{{\"level\":\"{}\",\"logger\":{},\
             \"data\":{data}}}}}",
            level.as_str(),
            Value::from(logger),
        );
        self.notify(connection, frame.as_bytes());
    }
}
