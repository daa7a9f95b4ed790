//! How dead letters are selected.

use clap::{Args, builder::PossibleValuesParser};

use crate::client::{parameter, with_query};
use crate::flags::one_of;

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
#[derive(Debug, Args)]
pub struct Filters {
    #[arg(long, value_name = "REASON", help = one_of(REASONS, "Only dead letters with this reason"),
        value_parser = PossibleValuesParser::new(REASONS), hide_possible_values = true)]
    reason: Option<String>,
    /// Only messages that this session sent or should have got.
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Only messages of this protocol.
    #[arg(long, value_name = "NAME")]
    protocol: Option<String>,
}

impl Filters {
    /// The list that these flags select.
    pub fn path(&self) -> String {
        let filters = [
            parameter("reason", self.reason.as_ref()),
            parameter("session", self.session.as_ref()),
            parameter("protocol", self.protocol.as_ref()),
        ];
        with_query("/api/v1/dead-letters", filters)
    }
}
