//! Faults of Redis (restart, cut connection, slowness, failover, full memory): no accepted message is lost, and
//! callers get a correct answer in time.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use serde_json::json;

use super::{
    cluster::BrokerCluster,
    roaming_client::{LOAD, Load},
    support::{Broker, Proxy, Redis, eventually},
};

/// Short deadlines for Redis, and sessions that outlive every fault.
const FLAGS: [&str; 4] = [
    "--storage-deadline=500ms",
    "--heartbeat-interval=500ms",
    "--stale-threshold=3s",
    "--disconnect-threshold=1h",
];

fn replicas_behind(proxy: &Proxy, flags: &[&str]) -> BrokerCluster {
    BrokerCluster::start_with(2, &format!("redis://{}", proxy.address), &[&FLAGS, flags].concat())
}

#[test]
fn a_restart_of_redis_costs_time_and_no_message() {
    let mut redis = Redis::durable();
    let mut cluster = BrokerCluster::start_with(2, &redis.url(), &FLAGS);
    LOAD.run_while(&mut cluster, |cluster, ledger| {
        for _ in 0..2 {
            ledger.await_more_accepted(100);
            redis.kill();
            ledger.await_more_refusals(4);
            cluster.await_readiness(false);
            redis.restart();
            cluster.await_readiness(true);
        }
        ledger.await_more_accepted(100);
    });
}

#[test]
fn redis_with_fsync_every_second_loses_no_more_than_reported() {
    /// The window of loss that `/health` reports for `appendfsync everysec`.
    const WINDOW: Duration = Duration::from_secs(2);
    let mut redis = Redis::start_with(&["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]);
    let flags = [&FLAGS[..], &["--queue-capacity=1000000"]].concat();
    let cluster = BrokerCluster::start_with(2, &redis.url(), &flags);
    let health = cluster.replicas[0].get("/health").json();
    let durability = health["storage_durability"].as_str().unwrap();
    assert!(
        durability.contains("2 seconds") && durability.contains("everysec"),
        "{durability}"
    );
    let alice = cluster.replicas[0].agent("alice");
    let bob = cluster.replicas[1].agent("bob");
    let begun = Instant::now();
    let mut sent = Vec::new();
    while begun.elapsed() < WINDOW + Duration::from_secs(1) {
        let receipt = alice.sends("kept?").to("bob");
        sent.push((Instant::now(), receipt.id));
    }
    let killed = Instant::now();
    redis.kill();
    redis.restart();
    cluster.await_readiness(true);
    let mut kept = HashSet::new();
    eventually("the inbox is empty", || {
        // The first call after a restart may find its connection broken.
        let call = bob.begins_call("receive_messages", &json!({"limit": 100}));
        let result = bob.wire.answer_to(&call).unwrap();
        if result["isError"] == true {
            return None;
        }
        let read = result["structuredContent"]["messages"].as_array().unwrap().clone();
        kept.extend(
            read.iter()
                .map(|message| message["message_id"].as_str().unwrap().to_owned()),
        );
        read.is_empty().then_some(())
    });
    let lost = sent.iter().filter(|(_, id)| !kept.contains(id));
    for (at, id) in lost {
        assert!(
            killed.duration_since(*at) <= WINDOW,
            "{id} was accepted {:?} before",
            killed - *at
        );
    }
}

#[test]
fn a_cut_connection_to_redis_is_unavailable_and_reconnects() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.address);
    let mut cluster = replicas_behind(&proxy, &[]);
    LOAD.run_while(&mut cluster, |cluster, ledger| {
        ledger.await_more_accepted(100);
        proxy.cut();
        ledger.await_more_refusals(4);
        cluster.await_readiness(false);
        for replica in &cluster.replicas {
            let health = replica.get("/health");
            assert_eq!((health.status, &health.json()["status"]), (503, &json!("unhealthy")));
            assert_eq!(health.json()["storage_backend"], "redis");
        }
        proxy.restore();
        cluster.await_readiness(true);
        ledger.await_more_accepted(100);
    });
}

#[test]
fn connections_stay_open_while_redis_is_unreachable() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.address);
    let cluster = replicas_behind(&proxy, &[]);
    let alice = cluster.replicas[0].agent("alice");
    let bob = cluster.replicas[1].push_agent("bob", &json!({"ack": "manual"}));
    proxy.cut();
    cluster.await_readiness(false);
    let error = alice.sends("lost?").fails_as("unavailable", "bob");
    assert!(
        error["retry_after_ms"].as_u64().is_some_and(|after| after > 0),
        "{error}"
    );
    // A session that this replica does not know might exist: the replica cannot ask.
    alice.sends("to whom?").fails_as("unavailable", "nobody");
    proxy.restore();
    cluster.await_readiness(true);
    alice.sends("to whom?").fails_as("session_not_found", "nobody");
    alice.sends("not lost").to("bob");
    let pushed = bob.is_pushed(["not lost"]);
    bob.acknowledges(&pushed);
    assert!(alice.wire.is_open() && bob.wire.is_open());
}

#[test]
fn a_silent_redis_times_out() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.address);
    let mut cluster = replicas_behind(&proxy, &[]);
    LOAD.run_while(&mut cluster, |cluster, ledger| {
        ledger.await_more_accepted(100);
        proxy.silence();
        ledger.await_more_refusals(4);
        cluster.await_readiness(false);
        proxy.restore();
        cluster.await_readiness(true);
        ledger.await_more_accepted(100);
    });
}

#[test]
fn a_slow_redis_makes_the_broker_slow_without_growing_its_memory() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.address);
    let mut cluster = replicas_behind(&proxy, &[]);
    let load = Load { senders: 16, ..LOAD };
    load.run_while(&mut cluster, |cluster, ledger| {
        ledger.await_more_accepted(200);
        let before = cluster.replicas.iter().map(Broker::rss_kib).max().unwrap();
        proxy.delay(Duration::from_millis(20));
        ledger.await_more_accepted(100);
        // Slower than the storage deadline.
        proxy.delay(Duration::from_millis(700));
        ledger.await_more_refusals(20);
        for replica in &cluster.replicas {
            assert_eq!(replica.get("/livez").status, 200);
            let grown = replica.rss_kib().saturating_sub(before);
            assert!(grown < 100_000, "{grown} KiB");
        }
        proxy.restore();
        cluster.await_readiness(true);
        ledger.await_more_accepted(100);
    });
}

#[test]
fn a_failover_loses_nothing_that_a_redis_replica_confirmed() {
    let mut first = Redis::start();
    let second = first.redis_replica();
    let proxy = Proxy::to(first.address);
    let mut cluster = replicas_behind(&proxy, &["--wait-for-replicas=1"]);
    let mut third = None;
    LOAD.run_while(&mut cluster, |cluster, ledger| {
        ledger.await_more_accepted(100);
        first.kill();
        // The address leads to a server that is still read-only.
        proxy.redirect_to(second.address);
        ledger.await_more_refusals(4);
        second.command(&["REPLICAOF", "NO", "ONE"]);
        // The server has no Redis replica: it accepts nothing until one follows it.
        ledger.await_more_refusals(4);
        third = Some(second.redis_replica());
        cluster.await_readiness(true);
        ledger.await_more_accepted(100);
    });
}

#[test]
fn a_full_redis_refuses_new_messages_and_delivers_stored_ones() {
    let redis = Redis::start();
    let cluster = BrokerCluster::start(2, &redis);
    let alice = cluster.replicas[0].agent("alice");
    let bob = cluster.replicas[1].agent("bob");
    let sent = alice.sends("before").to("bob");
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = alice.sends("too much").fails_as("unavailable", "bob");
    assert!(
        error["message"].as_str().unwrap().contains("storage is full"),
        "{error}"
    );
    assert_eq!(alice.status_of(&sent.id), "queued");
    assert_eq!(alice.presence_of("bob").as_deref(), Some("active"));
    bob.sees(["before"]);
    bob.sees_nothing();
    assert_eq!(alice.status_of(&sent.id), "acknowledged");
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    eventually("messages are accepted again", || {
        let call = alice.begins_call("send_message", &alice.sends("after").arguments_to("bob"));
        let result = alice.wire.answer_to(&call).unwrap();
        (result["isError"] == false).then_some(())
    });
    bob.sees(["after"]);
}
