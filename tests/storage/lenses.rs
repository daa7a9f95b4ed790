//! Lenses on a Redis that replicas of an earlier build share.

use actors::{
    model::ProjectId,
    storage::{Before, RecordPut, StoreError, Table},
};

use crate::storage::support::{Redis, block_on, connect, storage};

const SCHEMA: &str = "{system}:schema:version";

#[test]
fn the_first_lens_raises_the_version_of_the_data() {
    let redis = Redis::start();
    block_on(async {
        let storage = storage(redis.url()).await;
        let store = storage.open(&ProjectId::parse("acme").unwrap());
        let put = async |text: Option<&str>| {
            let text = text.map(Into::into);
            store
                .put_if(Table::Lenses, "chat 1.0.0 2.0.0".into(), Before::Any, text)
                .await
        };
        assert_eq!(put(None).await, Ok(RecordPut::Stored));
        assert_eq!(redis.command(&["GET", SCHEMA]), "4", "an earlier build may start");
        assert_eq!(put(Some("{}")).await, Ok(RecordPut::Stored));
        assert_eq!(redis.command(&["GET", SCHEMA]), "5");
        connect(redis.url()).await.expect("this build starts");
    });
}

#[test]
fn a_refused_lens_leaves_the_version_of_the_data() {
    let redis = Redis::start();
    block_on(async {
        let storage = storage(redis.url()).await;
        let store = storage.open(&ProjectId::parse("acme").unwrap());
        let put = |before| store.put_if(Table::Lenses, "chat 1.0.0 2.0.0".into(), before, Some("{}".into()));
        let other = Before::Text("{\"revision\":1}".into());
        assert_eq!(put(other).await, Ok(RecordPut::Differs(None)));
        assert_eq!(put(Before::Absent { len_max: 0 }).await, Ok(RecordPut::Full));
        redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
        assert!(matches!(put(Before::Any).await, Err(StoreError::Full(_))));
        assert_eq!(redis.command(&["GET", SCHEMA]), "4");
        redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
        assert_eq!(store.get(Table::Lenses, "chat 1.0.0 2.0.0".into()).await, Ok(None));
        assert_eq!(put(Before::Any).await, Ok(RecordPut::Stored));
        assert_eq!(redis.command(&["GET", SCHEMA]), "5");
    });
}

#[test]
fn no_lens_is_stored_while_a_replica_of_an_earlier_build_lives() {
    let redis = Redis::start();
    block_on(async {
        let storage = storage(redis.url()).await;
        let store = storage.open(&ProjectId::parse("acme").unwrap());
        let put = async || {
            let before = Before::Absent { len_max: usize::MAX };
            store
                .put_if(Table::Lenses, "chat 1.0.0 2.0.0".into(), before, Some("{}".into()))
                .await
        };
        let older = "0192f3a0-0000-7000-8000-00000000000a";
        // Its last heartbeat is later than every test.
        redis.command(&["ZADD", "{system}:replicas", "9999999999999", older]);
        let refused = put().await;
        assert_eq!(refused, Err(StoreError::EarlierReplica));
        assert_eq!(store.get(Table::Lenses, "chat 1.0.0 2.0.0".into()).await, Ok(None));
        assert_eq!(redis.command(&["GET", SCHEMA]), "4");
        // As silent as a replica that has ended.
        redis.command(&["ZADD", "{system}:replicas", "0", older]);
        assert_eq!(put().await, Ok(RecordPut::Stored));
    });
}
