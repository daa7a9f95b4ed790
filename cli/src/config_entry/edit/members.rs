//! What an entry holds.

use serde_json::Value;

/// The members of an entry, in their order.
pub type Members = Vec<(&'static str, Value)>;
