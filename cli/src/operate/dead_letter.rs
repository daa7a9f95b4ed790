//! How dead letters are selected.

use clap::{Arg, ArgMatches};

use crate::client::{parameter, with_query};
use crate::flags::{choice, given, text};

/// The most dead letters of a page.
pub const PAGE_LEN_MAX: usize = 500;

/// Why a message was given up.
const REASONS: &[&str] = &[
    "expired",
    "delivery_limit",
    "recipient_gone",
    "rejected",
    "transform_failed",
];

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
