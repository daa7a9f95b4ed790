//! What every backend promises.

use actors::storage::conformance::{CASES, SHARED_CASES, run};

use crate::support::{Cluster, Redis, block_on, storage};

fn every_promise_is_kept_at(url: String) {
    block_on(async {
        let storage = storage(url).await;
        run(CASES, || storage.clone()).await;
        run(SHARED_CASES, || storage.clone()).await;
    });
}

#[test]
fn a_redis_server_keeps_every_promise() {
    let redis = Redis::start();
    every_promise_is_kept_at(redis.url());
}

#[test]
fn a_redis_cluster_keeps_every_promise() {
    let cluster = Cluster::start();
    every_promise_is_kept_at(cluster.url());
}

#[test]
fn a_server_that_belongs_to_a_cluster_is_used_as_one() {
    let cluster = Cluster::start();
    every_promise_is_kept_at(cluster.nodes[1].url());
}
