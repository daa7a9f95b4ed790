//! What the tests of storages share.

#[path = "../support/redis.rs"]
mod redis;

use std::{future::Future, sync::Arc};

use actors::storage::Storage;
use mcp_broker::storage::redis::{ConnectError, RedisSettings, RedisStorage};

pub use redis::Redis;

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

pub async fn connect(url: impl Into<String>) -> Result<RedisStorage, ConnectError> {
    RedisStorage::connect(RedisSettings::new(url)).await
}

pub async fn storage(url: impl Into<String>) -> Arc<dyn Storage> {
    Arc::new(connect(url).await.unwrap())
}
