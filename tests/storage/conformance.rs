//! What every backend promises.

use actors::storage::conformance::{CASES, SHARED_CASES, run};

use crate::support::{Redis, block_on, storage};

#[test]
fn a_redis_server_keeps_every_promise() {
    let redis = Redis::start();
    block_on(async {
        let storage = storage(redis.url()).await;
        run(CASES, || storage.clone()).await;
        run(SHARED_CASES, || storage.clone()).await;
    });
}
