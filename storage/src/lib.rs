//! The storages that use files or a server, and the choice among all of them. Nothing here knows the
//! configuration.

pub mod bridge;
pub mod disk;
pub mod redis;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use actors::{
    clock::now,
    storage::{
        Retention, Storage,
        disk::{DiskSettings, DiskStorage},
        memory::MemoryStorage,
    },
};

use self::redis::{ConnectError, RedisSettings, RedisStorage};

/// Longest wait for another process that has the folder of the disk storage: a broker that ends has it until its process
/// is gone. Shorter than the time that any program gives a start.
const FOLDER_WAIT_MAX: Duration = Duration::from_secs(5);
/// Time between two tries.
const FOLDER_RETRY_PAUSE: Duration = Duration::from_millis(25);

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
            let opened = tokio::task::spawn_blocking(move || open_disk(&folder, settings)).await;
            Ok(Arc::new(opened.map_err(io::Error::other)??))
        }
        StorageSettings::Redis {
            settings,
            falls_back_to_memory,
        } => redis(settings, falls_back_to_memory).await,
    }
}

/// Opens the disk storage, and waits for a process that has its folder.
fn open_disk(folder: &Path, settings: DiskSettings) -> io::Result<DiskStorage> {
    let started = Instant::now();
    let mut has_told = false;
    loop {
        let error = match disk::open(folder, settings, now()) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => error,
            opened => return opened,
        };
        if started.elapsed() >= FOLDER_WAIT_MAX {
            let text = format!("{error} (it was in use for {} s)", FOLDER_WAIT_MAX.as_secs());
            return Err(io::Error::new(error.kind(), text));
        }
        if !std::mem::replace(&mut has_told, true) {
            tracing::info!(%error, "the data folder is in use: waiting for the process that uses it");
        }
        thread::sleep(FOLDER_RETRY_PAUSE);
    }
}

async fn redis(settings: RedisSettings, falls_back_to_memory: bool) -> io::Result<Arc<dyn Storage>> {
    let retention = settings.retention;
    match RedisStorage::connect(settings).await {
        Ok(storage) => Ok(Arc::new(storage)),
        // Memory replaces a server that is unreachable. Any other error would come back at the next start.
        Err(error @ ConnectError::Unreachable { .. }) if falls_back_to_memory => {
            tracing::warn!(%error, "Redis is unreachable: the broker keeps everything in memory until the next start (redis_fallback)");
            let why = "Redis could not be reached at the start: the broker keeps everything in memory";
            Ok(Arc::new(MemoryStorage::new_fallback(retention, why)))
        }
        Err(error) => Err(io::Error::other(format!("redis_url cannot be used: {error}"))),
    }
}
