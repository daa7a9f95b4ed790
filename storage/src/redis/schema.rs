//! What Redis stores of its data as a whole: the version of the layout of keys, and the id of the broker.

use deadpool_redis::redis::{Cmd, cmd};
use uuid::Uuid;

/// The version of the layout of keys that this build writes first.
pub(super) const SCHEMA: i64 = 4;

/// The version of data with lenses, the latest that this build reads. It is written before the first lens, so that earlier builds
/// do not start from then on.
pub(super) const SCHEMA_WITH_LENSES: i64 = 5;

/// Whether this build reads data of this version.
pub(super) fn is_known(version: i64) -> bool {
    (SCHEMA..=SCHEMA_WITH_LENSES).contains(&version)
}

/// The key of the schema version.
pub(super) const SCHEMA_KEY: &str = "{system}:schema:version";

/// Writes the schema version, unless there is one.
pub(super) fn put_schema_version() -> Cmd {
    cmd("SETNX").arg(SCHEMA_KEY).arg(SCHEMA).to_owned()
}

/// The key of the id of the broker that the replicas are together.
pub(super) const BROKER_ID_KEY: &str = "{system}:broker:id";

/// Writes the id of the broker, unless there is one.
pub(super) fn put_broker_id(id: Uuid) -> Cmd {
    cmd("SETNX").arg(BROKER_ID_KEY).arg(id.to_string()).to_owned()
}
