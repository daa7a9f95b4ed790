//! Runs the conformance suite of storages against Redis.

use std::sync::Arc;

use actors::storage::{
    Storage,
    conformance::{BUDGET_CASES, CASES, EVENT_CASES, SHARED_CASES, run, small_budgets},
};
use storage::redis::{RedisSettings, RedisStorage};

use crate::storage::support::{Redis, RedisCluster, block_on, storage};

fn run_conformance_suite(url: String) {
    block_on(async {
        let whole = storage(url.clone()).await;
        run(CASES, || whole.clone()).await;
        run(SHARED_CASES, || whole.clone()).await;
        run(EVENT_CASES, || whole.clone()).await;
        let settings = RedisSettings {
            retention: small_budgets(),
            ..RedisSettings::new(url)
        };
        let small: Arc<dyn Storage> = Arc::new(RedisStorage::connect(settings).await.unwrap());
        run(BUDGET_CASES, || small.clone()).await;
    });
}

#[test]
fn a_redis_server_passes_the_conformance_suite() {
    let redis = Redis::start();
    run_conformance_suite(redis.url());
}

#[test]
fn a_redis_cluster_passes_the_conformance_suite() {
    let cluster = RedisCluster::start();
    run_conformance_suite(cluster.url());
}

#[test]
fn a_server_in_cluster_mode_is_used_as_a_cluster() {
    let cluster = RedisCluster::start();
    run_conformance_suite(cluster.nodes[1].url());
}
