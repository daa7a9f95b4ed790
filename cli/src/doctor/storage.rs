//! The storage that the configuration names.

use super::{disk, findings::Finding, redis, setup::Setup};
use common::config::StorageKind;

/// Checks what a start would use.
pub fn check(setup: &Setup) -> Vec<Finding> {
    let Some(config) = setup.config() else {
        return vec![Finding::note("not checked: the configuration is refused")];
    };
    match config.storage {
        StorageKind::Memory => {
            let found = "storage = memory: sessions and messages are lost when the broker stops";
            vec![Finding::note(found).cure("mcp-broker serve --storage disk keeps them")]
        }
        StorageKind::Disk => disk::check(config),
        StorageKind::Redis => redis::check(config),
    }
}
