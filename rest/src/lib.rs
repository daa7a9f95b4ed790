//! The answers of the REST API: one type each, which the broker writes, the command line reads and `/openapi.json`
//! describes. MCP tools return the same objects.
//!
//! Words of a fixed set are texts here, because a broker that is newer than its reader may have more of them; the schema has
//! the set. The text of messages is written by hand where they are sent and received.

#![allow(unused_qualifications, reason = "what utoipa writes")]
#![allow(clippy::struct_field_names, reason = "the names are those of the contract")]
#![allow(clippy::option_option, reason = "absent, null and a value are distinct")]

use serde::Serialize;
use serde_json::Value;

pub mod backends;
pub mod desk;
pub mod messages;
pub mod projects;
pub mod protocols;
pub mod questions;
pub mod series;
pub mod sessions;
pub mod stats;
pub mod words;

/// The word as which a value of a fixed set is written; empty for other values.
pub fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

/// Whether a member has its default value, with which `#[absent]` leaves it out.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{projects::Key, questions::Question};

    #[test]
    fn a_member_is_written_as_null_or_left_out_as_its_type_says() {
        let mut question = Question::default();
        let written = json!(question);
        assert!(written["expires_at"].is_null() && written.as_object().unwrap().contains_key("expires_at"));
        assert_eq!(written.get("reason"), None);
        question.reason = Some(None);
        assert_eq!(json!(question).get("reason"), Some(&json!(null)));
    }

    #[test]
    fn only_what_a_screen_shows_is_read_without_its_members() {
        assert_eq!(serde_json::from_str::<Question>("{}").unwrap(), Question::default());
        assert!(serde_json::from_str::<Key>("{}").is_err());
    }
}
