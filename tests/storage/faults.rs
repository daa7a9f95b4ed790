//! Operations during and after faults of Redis.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use actors::{
    bridge::BridgeEvent,
    clock::now,
    model::{Headers, ProjectId},
    storage::{Audience, PutSession, ReplicatedStorage, Storage, StorageHealth, StoreError},
};
use futures_util::{
    StreamExt,
    future::{join, join_all},
};
use storage::redis::{ConnectError, RedisSettings, RedisStorage};

use crate::storage::support::{
    Proxy, Redis, RedisCluster, ReplicaView, append, block_on, connect, eventually, record, storage,
};

/// A storage with this deadline for operations.
async fn connect_with_deadline(url: String, deadline: Duration) -> RedisStorage {
    let settings = RedisSettings {
        deadline,
        ..RedisSettings::new(url)
    };
    RedisStorage::connect(settings).await.unwrap()
}

#[test]
fn functions_are_loaded_again_into_a_server_that_lost_them() {
    let redis = Redis::start();
    block_on(async {
        let storage = storage(redis.url()).await;
        let view = ReplicaView::of(&*storage, "acme");
        let bob = view.join().await;
        assert_eq!(redis.command(&["FUNCTION", "FLUSH"]), "OK");
        let sent = view.send(bob).await;
        assert_eq!(redis.command(&["FUNCTION", "FLUSH"]), "OK");
        assert_eq!(view.lease_ids(bob).await, [(sent, 1)]);
    });
}

#[test]
fn data_of_another_schema_version_is_refused_and_left_alone() {
    let redis = Redis::start();
    for (found, advice) in [(3, "run the older one"), (7, "run a newer one")] {
        redis.command(&["SET", "{system}:schema:version", &found.to_string()]);
        let error = block_on(connect(redis.url())).err().unwrap();
        assert_eq!(error, ConnectError::Schema { found, known: 5 });
        let text = error.to_string();
        assert!(
            text.contains(&found.to_string()) && text.contains(advice) && !text.contains('\n'),
            "{text}"
        );
    }
    assert_eq!(redis.command(&["DBSIZE"]), "1", "nothing was written");
}

#[test]
fn the_error_names_a_server_that_cannot_be_reached() {
    let mut redis = Redis::start();
    let url = redis.url();
    redis.kill();
    let text = block_on(connect(url)).err().unwrap().to_string();
    let begin = format!("Redis at {} cannot be reached: ", redis.address);
    assert!(text.starts_with(&begin) && !text.contains('\n'), "{text}");
}

#[test]
fn a_wrong_password_is_reported_as_such() {
    let redis = Redis::start_with(&["--requirepass", "right"]);
    for url in [redis.url(), redis.url().replace("redis://", "redis://:wrong@")] {
        let error = block_on(connect(url)).err().unwrap();
        let place = redis.address.to_string();
        assert_eq!(error, ConnectError::Refused { endpoint: place });
    }
    block_on(connect(redis.url().replace("redis://", "redis://:right@"))).unwrap();
}

#[test]
fn operations_fail_in_time_while_redis_is_down_and_succeed_after_it_returns() {
    let mut redis = Redis::durable();
    block_on(async {
        let deadline = Duration::from_millis(500);
        let storage = connect_with_deadline(redis.url(), deadline).await;
        let view = ReplicaView::of(&storage, "acme");
        let bob = view.join().await;
        let sent = view.send(bob).await;
        redis.kill();
        for _ in 0..20 {
            let begun = Instant::now();
            let failed = view.store.depth(bob).await;
            assert!(matches!(failed, Err(StoreError::Unreachable(_))), "{failed:?}");
            assert!(
                begun.elapsed() < deadline + Duration::from_secs(2),
                "{:?}",
                begun.elapsed()
            );
        }
        assert!(matches!(storage.health(), StorageHealth::Unavailable(_)));
        redis.restart();
        let leased = eventually(async || view.lease(bob).await.ok()).await;
        let ids: Vec<_> = leased.deliveries.iter().map(|delivery| delivery.message.id).collect();
        assert_eq!(ids, [sent], "the accepted message is delivered");
        assert_eq!(storage.health(), StorageHealth::Healthy);
        let project = ProjectId::parse("acme").unwrap();
        assert_eq!(storage.project(project).await, Ok(None));
    });
}

#[test]
fn a_lease_whose_answer_was_lost_is_released_without_counting_a_delivery() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.address);
    block_on(async {
        let storage = connect_with_deadline(format!("redis://{}", proxy.address), Duration::from_millis(400)).await;
        let view = ReplicaView::of(&storage, "acme");
        let bob = view.join().await;
        let sent = view.send(bob).await;
        // The delay of the request alone exceeds the deadline for the answer.
        proxy.delay(Duration::from_millis(300));
        let unheard = view.lease(bob).await;
        assert!(matches!(unheard, Err(StoreError::Unreachable(_))), "{unheard:?}");
        proxy.restore();
        let leased = eventually(async || {
            view.lease(bob)
                .await
                .ok()
                .filter(|leased| !leased.deliveries.is_empty())
        })
        .await;
        let delivery = &leased.deliveries[0];
        assert_eq!((delivery.message.id, delivery.count), (sent, 1));
        assert_eq!((leased.depth.waiting, leased.depth.leased), (0, 1));
    });
}

#[test]
fn leased_messages_that_could_not_be_read_are_released() {
    const MESSAGES: usize = 200;
    let redis = Redis::start();
    let proxy = Proxy::to(redis.address);
    block_on(async {
        let storage = connect_with_deadline(format!("redis://{}", proxy.address), Duration::from_secs(2)).await;
        let view = ReplicaView::of(&storage, "acme");
        let bob = view.join().await;
        let batch = (0..MESSAGES).map(|_| view.direct(bob)).collect();
        view.store.append(batch, now()).await.unwrap();
        let lease = || view.store.lease(bob, None, MESSAGES, usize::MAX, now());
        // The messages have too many bytes for the first answer: one more read fits into the deadline, and a second
        // one does not.
        proxy.delay(Duration::from_millis(700));
        let unread = lease().await;
        assert!(matches!(unread, Err(StoreError::Unreachable(_))), "{unread:?}");
        proxy.restore();
        let leased = eventually(async || lease().await.ok().filter(|leased| !leased.deliveries.is_empty())).await;
        assert_eq!(leased.deliveries.len(), MESSAGES);
        assert!(leased.deliveries.iter().all(|delivery| delivery.count == 1));
    });
}

#[test]
fn a_full_server_accepts_nothing_and_still_delivers_its_messages() {
    let redis = Redis::start();
    block_on(async {
        let storage = storage(redis.url()).await;
        let view = ReplicaView::of(&*storage, "acme");
        let bob = view.join().await;
        let [first, second] = [view.send(bob).await, view.send(bob).await];
        redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let refused = view.store.append(vec![view.direct(bob)], now()).await;
        assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
        let refused = view.store.put_session(record(None), PutSession::default());
        assert!(matches!(refused.await, Err(StoreError::Full(_))));
        // Operations that wait in the queue together become one batch.
        let appends = (0..20).map(|_| view.store.append(vec![view.direct(bob)], now()));
        let (refused, leased) = join(join_all(appends), view.lease_ids(bob)).await;
        assert!(refused.iter().all(|answer| matches!(answer, Err(StoreError::Full(_)))));
        assert_eq!(leased, [(first, 1), (second, 1)]);
        assert_eq!(view.acknowledge(bob, &[first]).await.unwrap().acknowledged, 1);
        view.claim(bob).await;
        assert_eq!(view.depth(bob).await, (1, 0));
        assert_eq!(
            storage.health(),
            StorageHealth::Healthy,
            "the condition of the server is good"
        );

        redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
        let third = view.send(bob).await;
        assert_eq!(view.lease_ids(bob).await, [(second, 2), (third, 1)]);
    });
}

#[test]
fn a_server_that_became_a_redis_replica_is_left_for_the_new_primary() {
    let (old, new) = (Redis::start(), Redis::start());
    let proxy = Proxy::to(old.address);
    block_on(async {
        let storage = connect_with_deadline(format!("redis://{}", proxy.address), Duration::from_millis(500)).await;
        let view = ReplicaView::of(&storage, "acme");
        view.join().await;
        proxy.redirect_to(new.address);
        let port = new.address.port().to_string();
        old.command(&["REPLICAOF", "127.0.0.1", &port]);
        let bob = eventually(async || {
            let record = record(None);
            let id = record.id;
            let put = view.store.put_session(record, PutSession::default()).await;
            put.ok().map(|_| id)
        })
        .await;
        assert_eq!(view.depth(bob).await, (0, 0));
        assert_eq!(new.command(&["HEXISTS", "{acme}:sessions", &bob.to_string()]), "1");
    });
}

#[test]
fn a_write_that_too_few_redis_replicas_confirm_is_not_accepted() {
    let redis = Redis::start();
    block_on(async {
        let settings = RedisSettings {
            deadline: Duration::from_millis(500),
            wait_for_replicas: 1,
            ..RedisSettings::new(redis.url())
        };
        let storage = RedisStorage::connect(settings).await.unwrap();
        let view = ReplicaView::of(&storage, "acme");
        let put = view.store.put_session(record(None), PutSession::default());
        let refused = put.await;
        assert!(matches!(refused, Err(StoreError::Unreachable(_))), "{refused:?}");
        assert!(matches!(storage.health(), StorageHealth::Degraded(_)));
        let replica = redis.redis_replica();
        let bob = eventually(async || {
            let record = record(None);
            let id = record.id;
            let put = view.store.put_session(record, PutSession::default()).await;
            put.ok().map(|_| id)
        })
        .await;
        assert_eq!(storage.health(), StorageHealth::Healthy);
        view.send(bob).await;
        assert_eq!(replica.command(&["HLEN", "{acme}:messages"]), "1");
        assert_eq!(view.lease_ids(bob).await.len(), 1);
    });
}

#[test]
fn the_sentinels_name_the_primary_after_a_failover() {
    let mut leader = Redis::start();
    let follower = leader.redis_replica();
    let sentinel = Redis::sentinel(&leader);
    block_on(async {
        let replicas = || sentinel.command(&["SENTINEL", "REPLICAS", "main"]);
        eventually(async || replicas().contains(&follower.address.to_string()).then_some(())).await;
        let url = format!("redis+sentinel://{}/main", sentinel.address);
        let storage = connect_with_deadline(url, Duration::from_millis(500)).await;
        let mut heard = storage.bridge().listen();
        assert_eq!(heard.next().await, Some(BridgeEvent::Connected));
        let view = ReplicaView::of(&storage, "acme");
        let bob = view.join().await;
        assert!(matches!(heard.next().await, Some(BridgeEvent::Frame(_))));
        eventually(async || (follower.command(&["EXISTS", "{acme}:sessions"]) == "1").then_some(())).await;
        leader.kill();
        assert_eq!(heard.next().await, Some(BridgeEvent::Disconnected));
        assert_eq!(heard.next().await, Some(BridgeEvent::Connected));
        eventually(async || view.store.append(vec![view.direct(bob)], now()).await.ok()).await;
        assert!(matches!(heard.next().await, Some(BridgeEvent::Frame(_))));
        assert_eq!(
            follower.command(&["HLEN", "{acme}:messages"]),
            view.depth(bob).await.0.to_string()
        );
    });
}

#[test]
fn an_operation_that_fails_half_way_affects_neither_other_operations_nor_the_counts() {
    let redis = Redis::start();
    block_on(async {
        let storage = storage(redis.url()).await;
        let view = ReplicaView::of(&*storage, "acme");
        let (bob, carol) = (view.join().await, view.join().await);
        let sent = view.send(carol).await;
        // Too many messages for the compact form of the inbox.
        for _ in 0..10 {
            view.send(bob).await;
        }
        redis.command(&["SET", &format!("{{acme}}:leases:{bob}"), "no hash"]);
        let (failed, leased) = tokio::join!(view.lease(bob), view.lease(carol));
        assert!(matches!(failed, Err(StoreError::Unreachable(_))), "{failed:?}");
        assert_eq!(leased.unwrap().deliveries[0].message.id, sent);
        redis.command(&["DEL", &format!("{{acme}}:leases:{bob}")]);
        view.send(bob).await;
        // The messages that the test removed from the queue by force are lost, and the counts agree with the rest.
        let (waiting, _) = view.depth(bob).await;
        let leased = view.lease_ids(bob).await.len();
        assert_eq!((waiting, leased), (leased, 1));
        assert_eq!(view.depth(bob).await, (0, 1));
    });
}

/// The cluster node that has the keys of a project.
fn node_of<'a>(cluster: &'a mut RedisCluster, project: &str) -> &'a mut Redis {
    let slot: usize = cluster.nodes[0]
        .command(&["CLUSTER", "KEYSLOT", project])
        .parse()
        .unwrap();
    &mut cluster.nodes[slot * 3 / 16384]
}

#[test]
fn a_lost_cluster_node_does_not_affect_the_others_and_is_used_again_after_its_return() {
    let mut cluster = RedisCluster::start();
    block_on(async {
        let storage = connect_with_deadline(cluster.url(), Duration::from_millis(500)).await;
        // The two projects are in slots of different nodes, and neither is on the node of the system keys.
        let [gone, kept] = ["acme", "two"].map(|project| ReplicaView::of(&storage, project));
        let address = |cluster: &mut RedisCluster, project: &str| node_of(cluster, project).address;
        let places: Vec<_> = ["acme", "two", "system"].map(|of| address(&mut cluster, of)).into();
        assert_eq!(places.iter().collect::<HashSet<_>>().len(), 3, "{places:?}");
        let (bob, carol) = (gone.join().await, kept.join().await);
        node_of(&mut cluster, "acme").kill();
        eventually(async || {
            assert!(gone.store.depth(bob).await.is_err());
            matches!(storage.health(), StorageHealth::Degraded(_)).then_some(())
        })
        .await;
        for _ in 0..20 {
            assert!(gone.store.depth(bob).await.is_err());
            kept.send(carol).await;
        }
        node_of(&mut cluster, "acme").restart();
        eventually(async || gone.store.depth(bob).await.ok()).await;
        gone.join().await;
        // The server had no persistence.
        let condition = storage.health();
        assert!(
            matches!(&condition, StorageHealth::Degraded(why) if why.contains("older data")),
            "{condition:?}"
        );
        kept.send(carol).await;
    });
}

#[test]
fn a_project_whose_slot_moves_to_another_node_stays_available() {
    let mut cluster = RedisCluster::start();
    block_on(async {
        let storage = storage(cluster.url()).await;
        let view = ReplicaView::of(&*storage, "acme");
        let bob = view.join().await;
        let sent = view.send(bob).await;
        let from = node_of(&mut cluster, "acme").address;
        let slot = cluster.nodes[0].command(&["CLUSTER", "KEYSLOT", "acme"]);
        let from = cluster.nodes.iter().find(|node| node.address == from).unwrap();
        let to = cluster.nodes.iter().find(|node| node.address != from.address).unwrap();
        let [from_id, to_id] = [from, to].map(|node| node.command(&["CLUSTER", "MYID"]));
        to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
        let keys = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "1000"]);
        let port = to.address.port().to_string();
        for key in keys.lines() {
            let moved = from.command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
            assert_eq!(moved, "OK", "{key}");
        }
        for node in [to, from] {
            assert_eq!(node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]), "OK");
        }
        assert_eq!(view.lease_ids(bob).await, [(sent, 1)]);
        assert_ne!(to.command(&["CLUSTER", "COUNTKEYSINSLOT", &slot]), "0");
    });
}

#[test]
fn operations_that_wait_for_a_silent_redis_are_bounded_in_bytes() {
    const SENT: usize = 100;
    let payload = format!("{{\"text\":\"{}\"}}", "x".repeat(1 << 20));
    let redis = Redis::start();
    let proxy = Proxy::to(redis.address);
    block_on(async {
        let storage = connect_with_deadline(format!("redis://{}", proxy.address), Duration::from_secs(5)).await;
        let view = ReplicaView::of(&storage, "acme");
        let bob = view.join().await;
        proxy.silence();
        let sends = (0..SENT).map(|_| {
            let message = view.message_with(Some(bob), &payload, &Headers::default(), false);
            view.store.append(vec![append(message, Audience::One(bob))], now())
        });
        let answers = join_all(sends).await;
        let is_too_many = |error: &StoreError| error.to_string().contains("too many operations wait");
        let refused = answers.iter().filter(|answer| answer.as_ref().is_err_and(is_too_many));
        // 64 MiB wait, two batches of 2 MiB are in flight, and each may exceed its limit by one operation.
        let waiting_max = 64 + 2 * (2 + 1) + 1;
        assert!(refused.count() >= SENT - waiting_max, "{answers:?}");
    });
}
