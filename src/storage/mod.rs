//! The storages that use files or a server, and the choice among all of them. Nothing here knows the
//! configuration.

pub mod disk;
pub mod redis;

use std::{io, path::PathBuf, sync::Arc};

use actors::{
    clock::now,
    storage::{Retention, Storage, disk::DiskSettings, memory::MemoryStorage},
};

use self::redis::{ConnectError, RedisSettings, RedisStorage};

/// Which storage a broker has, with its settings.
pub enum StorageSettings {
    /// In the memory of the process.
    Memory(Retention),
    /// In a folder of this machine.
    Disk {
        /// The folder, created if missing.
        folder: PathBuf,
        /// Sizes of its files, and what it retains.
        settings: DiskSettings,
    },
    /// On a Redis server, shared by replicas.
    Redis {
        /// The server, and what it retains.
        settings: RedisSettings,
        /// Use the memory of the process if Redis cannot be reached now.
        falls_back_to_memory: bool,
    },
}

/// Opens a storage.
///
/// # Errors
/// When it cannot be used: the text says which setting to look at.
pub async fn open(settings: StorageSettings) -> io::Result<Arc<dyn Storage>> {
    match settings {
        StorageSettings::Memory(retention) => Ok(Arc::new(MemoryStorage::new(retention))),
        StorageSettings::Disk { folder, settings } => {
            // Reading the folder may take a while, during which the server answers that the broker is starting.
            let opened = tokio::task::spawn_blocking(move || disk::open(&folder, settings, now())).await;
            Ok(Arc::new(opened.map_err(io::Error::other)??))
        }
        StorageSettings::Redis {
            settings,
            falls_back_to_memory,
        } => redis(settings, falls_back_to_memory).await,
    }
}

async fn redis(settings: RedisSettings, falls_back_to_memory: bool) -> io::Result<Arc<dyn Storage>> {
    let retention = settings.retention;
    match RedisStorage::connect(settings).await {
        Ok(storage) => Ok(Arc::new(storage)),
        // Memory replaces a server that is unreachable. Any other error would come back at the next start.
        Err(error @ ConnectError::Unreachable { .. }) if falls_back_to_memory => {
            tracing::warn!(%error, "Redis is unreachable: everything is in memory until the next start (redis_fallback)");
            let why = "Redis could not be reached at the start: everything is in memory";
            Ok(Arc::new(MemoryStorage::new_fallback(retention, why)))
        }
        Err(error) => Err(io::Error::other(format!("redis_url cannot be used: {error}"))),
    }
}
