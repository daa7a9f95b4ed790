//! What an edit has done to the file of a client.

use serde::Serialize;

/// What is done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    Added,
    /// The entry was one of this command, with other values.
    Updated,
    Removed,
    /// It was as wanted before.
    Unchanged,
}
