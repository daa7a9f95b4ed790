//! A dead letter as the broker lists it.

use clap::{Arg, ArgMatches};
use serde::Deserialize;

use super::message::Message;
use crate::client::{parameter, with_query};
use crate::flags::{choice, given, text};

/// The most dead letters of a page.
pub const PAGE_LEN_MAX: usize = 500;

/// Why a message was given up.
const REASONS: &[&str] = &["expired", "delivery_limit", "recipient_gone", "rejected"];

/// A message that was given up, as the broker shows it.
#[derive(Debug, Deserialize)]
pub struct DeadLetter {
    pub message: Message,
    pub session_id: String,
    pub session_name: Option<String>,
    pub reason: String,
    pub at: String,
    pub deliveries: u64,
}

impl DeadLetter {
    /// The recipient by its name, or by its id.
    pub fn recipient(&self) -> &str {
        self.session_name.as_ref().unwrap_or(&self.session_id)
    }
}

/// The flags that select dead letters.
pub fn filters() -> [Arg; 3] {
    [
        choice("reason", "REASON", REASONS, "Only dead letters with this reason"),
        text(
            "session",
            "SESSION",
            "Only messages that this session sent or should have got",
        ),
        text("protocol", "NAME", "Only messages of this protocol"),
    ]
}

/// The list that these flags select.
pub fn path(matches: &ArgMatches) -> String {
    let filters = ["reason", "session", "protocol"].map(|name| parameter(name, given(matches, name)));
    with_query("/api/v1/dead-letters", filters)
}
