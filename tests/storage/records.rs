//! Records and claims between replicas, and records that an earlier version has written.

use std::{sync::Arc, time::Duration};

use actors::{
    clock::now,
    model::ProjectId,
    storage::{Before, RecordPut, Table},
};

use crate::storage::support::{Redis, ReplicaView, block_on, connect, eventually, storage};

#[test]
fn replicas_see_each_others_claims_until_their_time_is_over() {
    let redis = Redis::start();
    block_on(async {
        let (here, there) = (connect(redis.url()).await.unwrap(), connect(redis.url()).await.unwrap());
        let (here, there) = (ReplicaView::of(&here, "acme"), ReplicaView::of(&there, "acme"));
        assert_ne!(here.store.own_holder(), there.store.own_holder());
        let long = Duration::from_mins(10);
        let claim = async |view: &ReplicaView, thing: &str, ttl| {
            let holder = view.store.own_holder();
            let note = format!("{holder} \u{e4}\n");
            view.store
                .claim(thing.into(), holder, ttl, note.into(), now())
                .await
                .unwrap()
        };
        let notes = async |view: &ReplicaView| -> Vec<_> {
            let claims = view.store.claims("@".into(), now()).await.unwrap();
            claims
                .into_iter()
                .map(|claim| (claim.thing, claim.holder, claim.note))
                .collect()
        };
        let known = |view: &ReplicaView, thing: &str| {
            let holder = view.store.own_holder();
            (thing.into(), holder, format!("{holder} \u{e4}\n").into())
        };
        let first = claim(&here, "@a", long).await.unwrap();
        assert_eq!(claim(&there, "@a", long).await, None);
        assert!(claim(&there, "@b", long).await > Some(first));
        let both = [known(&here, "@a"), known(&there, "@b")];
        assert_eq!(
            (notes(&here).await, notes(&there).await),
            (both.to_vec(), both.to_vec())
        );
        assert_eq!(
            claim(&here, "@a", Duration::from_millis(30)).await,
            Some(first),
            "renewed"
        );
        eventually(async || claim(&there, "@a", long).await).await;
        assert!(!here.store.settle(first).await.unwrap(), "another claim followed");
        claim(&here, "@c", Duration::ZERO).await;
        assert_eq!(there.store.end_silent(now()).await.unwrap().len(), 1);
        assert_eq!(notes(&here).await, [known(&there, "@a"), known(&there, "@b")]);
        assert_eq!(
            redis.command(&["HLEN", "{acme}:claims"]),
            "2",
            "what is over is deleted"
        );
        assert_eq!(
            redis.command(&["HLEN", "{acme}:claims:epochs"]),
            "3",
            "and the last epoch"
        );
    });
}

/// The keys of schema 4 as earlier versions write them.
#[test]
fn records_of_an_earlier_version_on_the_same_redis_are_read() {
    let redis = Redis::start();
    block_on(async {
        let storage = storage(redis.url()).await;
        let store = storage.open(&ProjectId::parse("acme").unwrap());
        for (table, key) in [
            (Table::Protocols, "protocols"),
            (Table::AddedBackends, "added_backends"),
            (Table::BackendLists, "backend_lists"),
            (Table::Targets, "targets"),
        ] {
            redis.command(&["HSET", &format!("{{acme}}:{key}"), "docs", "{1}"]);
            let stored = Some(Arc::from("{1}"));
            assert_eq!(store.get(table, "docs".into()).await.unwrap(), stored);
            let before = stored.map(Before::Text).unwrap();
            let put = store.put_if(table, "docs".into(), before, Some("{2}".into()));
            assert_eq!(put.await.unwrap(), RecordPut::Stored);
            assert_eq!(redis.command(&["HGET", &format!("{{acme}}:{key}"), "docs"]), "{2}");
        }
    });
}
