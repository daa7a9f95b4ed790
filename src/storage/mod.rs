//! The storages that touch the world, and which of them a broker has.

pub mod disk;
pub mod redis;

use std::{io, net::SocketAddr, sync::Arc};

use actors::{
    clock::now,
    storage::{Retention, Storage, disk::DiskSettings, memory::MemoryStorage},
};

use self::redis::{ConnectError, RedisSettings, RedisStorage};
use crate::config::{self, Config, RedisFallback};

const MB: usize = 1024 * 1024;

/// Opens the storage of the configuration. The replicas that share it are told that this one listens at an address.
///
/// # Errors
/// When it cannot be used: the text says which setting to look at.
pub async fn open(config: &Config, listens_at: SocketAddr) -> io::Result<Arc<dyn Storage>> {
    let retention = retention(config);
    match config.storage {
        config::StorageKind::Memory => Ok(Arc::new(MemoryStorage::new(retention))),
        config::StorageKind::Disk => {
            let settings = DiskSettings {
                retention,
                ..DiskSettings::default()
            };
            let folder = config.data_dir.clone();
            // Reading it may take a while, in which whoever asks is told that the broker begins.
            let opened = tokio::task::spawn_blocking(move || disk::open(&folder, settings, now())).await;
            Ok(Arc::new(opened.map_err(io::Error::other)??))
        }
        config::StorageKind::Redis => redis(config, listens_at, retention).await,
    }
}

fn retention(config: &Config) -> Retention {
    Retention {
        queue_bytes_max: config.message_budget_bytes(config.queue_max_mb),
        waiting_bytes_max: config.message_budget_bytes(config.waiting_max_mb),
        dead_letters_bytes_max: config.message_budget_bytes(config.dead_letters_max_mb),
        messages_bytes_max: config.message_budget_bytes(config.messages_max_mb),
        idempotency_keys_bytes_max: config.idempotency_max_mb * MB,
        sessions_bytes_max: config.sessions_max_mb * MB,
        ..Retention::default()
    }
}

async fn redis(config: &Config, listens_at: SocketAddr, retention: Retention) -> io::Result<Arc<dyn Storage>> {
    let settings = RedisSettings {
        deadline: config.storage_deadline,
        wait_for_replicas: config.wait_for_replicas,
        retention,
        address: Some(config.replica_address.unwrap_or(listens_at)),
        ..RedisSettings::new(config.redis_url.as_str())
    };
    match RedisStorage::connect(settings).await {
        Ok(storage) => Ok(Arc::new(storage)),
        // What is wrong for good is no reason to go on without it.
        Err(error @ ConnectError::Unreachable { .. }) if config.redis_fallback == RedisFallback::Memory => {
            tracing::warn!(%error, "without Redis: everything is in memory until the next start (redis_fallback)");
            let why = "Redis could not be reached at the start: everything is in memory";
            Ok(Arc::new(MemoryStorage::new_fallback(retention, why)))
        }
        Err(error) => Err(io::Error::other(format!("redis_url cannot be used: {error}"))),
    }
}
