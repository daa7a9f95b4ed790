//! The version of the layout of keys, as Redis stores it.

use deadpool_redis::redis::{Cmd, cmd};

/// The version of the layout of keys that this build writes and reads.
pub(super) const SCHEMA: i64 = 4;

/// The key of the schema version.
pub(super) const SCHEMA_KEY: &str = "{system}:schema:version";

/// Writes the schema version, unless there is one.
pub(super) fn put_schema_version() -> Cmd {
    cmd("SETNX").arg(SCHEMA_KEY).arg(SCHEMA).to_owned()
}
