//! The storages that touch the world, and which of them a broker has.

pub mod disk;
pub mod redis;

use std::{io, sync::Arc};

use actors::{
    clock::now,
    storage::{Retention, Storage, disk::DiskSettings, memory::MemoryStorage},
};

use crate::config::{self, Config};

/// Opens the storage of the configuration.
///
/// # Errors
/// When it cannot be used: the text says which setting to look at.
pub async fn open(config: &Config) -> io::Result<Arc<dyn Storage>> {
    let retention = Retention::default();
    match config.storage {
        config::Storage::Memory => Ok(Arc::new(MemoryStorage::new(retention))),
        config::Storage::Disk => {
            let settings = DiskSettings {
                retention,
                ..DiskSettings::default()
            };
            let folder = config.data_dir.clone();
            // Reading it may take a while, in which whoever asks is told that the broker begins.
            let opened = tokio::task::spawn_blocking(move || disk::open(&folder, settings, now())).await;
            Ok(Arc::new(opened.map_err(io::Error::other)??))
        }
        config::Storage::Redis => Err(io::Error::other("not merged")),
    }
}
