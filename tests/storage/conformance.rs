//! What every backend promises.

use std::sync::Arc;

use actors::storage::{
    Storage,
    conformance::{BUDGET_CASES, CASES, SHARED_CASES, run, small_budgets},
};
use mcp_broker::storage::redis::{RedisSettings, RedisStorage};

use crate::support::{Redis, RedisCluster, block_on, storage};

fn every_promise_is_kept_at(url: String) {
    block_on(async {
        let whole = storage(url.clone()).await;
        run(CASES, || whole.clone()).await;
        run(SHARED_CASES, || whole.clone()).await;
        let settings = RedisSettings {
            retention: small_budgets(),
            ..RedisSettings::new(url)
        };
        let small: Arc<dyn Storage> = Arc::new(RedisStorage::connect(settings).await.unwrap());
        run(BUDGET_CASES, || small.clone()).await;
    });
}

#[test]
fn a_redis_server_keeps_every_promise() {
    let redis = Redis::start();
    every_promise_is_kept_at(redis.url());
}

#[test]
fn a_redis_cluster_keeps_every_promise() {
    let cluster = RedisCluster::start();
    every_promise_is_kept_at(cluster.url());
}

#[test]
fn a_server_that_belongs_to_a_cluster_is_used_as_one() {
    let cluster = RedisCluster::start();
    every_promise_is_kept_at(cluster.nodes[1].url());
}
