//! What a start prints when Redis is missing or unsuitable, and brokers that share a server and no data.

use std::{process::Output, thread};

use serde_json::{Value, json};

use crate::support::{ADMIN_KEY, Broker, Redis, TIMEOUTS_OFF, broker_program, eventually};

fn refusal(redis_url: &str, flags: &[&str]) -> String {
    let mut program = broker_program();
    program
        .args([
            "serve",
            "--port=0",
            "--storage=redis",
            "--storage-deadline=300ms",
            "--log-format=pretty",
        ])
        .args(flags)
        .env("MCP_BROKER_REDIS_URL", redis_url);
    let Output { status, stderr, .. } = program.output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(!said.contains("hunter2") && !said.contains("is listening"), "{said}");
    said
}

/// An address without a listener.
fn unused_address() -> String {
    let redis = Redis::start();
    redis.url().replace("redis://", "redis://:hunter2@")
}

#[test]
fn a_start_without_redis_fails_and_the_error_names_the_address() {
    let url = unused_address();
    let said = refusal(&url, &[]);
    let address = url.rsplit('@').next().unwrap();
    assert!(
        said.contains("redis_url") && said.contains(address) && said.contains("cannot be reached"),
        "{said}"
    );
}

#[test]
fn a_start_with_a_wrong_password_reports_it() {
    let redis = Redis::start_with(&["--save", "", "--requirepass", "right"]);
    let said = refusal(&redis.url().replace("redis://", "redis://:hunter2@"), &[]);
    assert!(said.contains("refuses the user or the password"), "{said}");
}

#[test]
fn the_data_of_another_release_is_refused_and_left_unchanged() {
    let redis = Redis::start();
    redis.command(&["SET", "{system}:schema:version", "999"]);
    let said = refusal(&redis.url(), &[]);
    assert!(said.contains("schema version 999"), "{said}");
    assert_eq!(redis.command(&["DBSIZE"]), "1");
}

#[test]
fn a_broker_with_the_memory_fallback_starts_without_redis_and_reports_it() {
    let broker = Broker::replica(
        &unused_address(),
        &["--redis-fallback=memory", "--storage-deadline=300ms"],
    );
    let health = broker.get("/health");
    assert_eq!(health.status, 200);
    let health = health.json();
    assert_eq!(health["status"], "degraded", "{health}");
    assert_eq!(health["storage_backend"], "memory");
    assert!(
        health["storage_problem"].as_str().unwrap().contains("Redis"),
        "{health}"
    );
    assert_eq!(broker.get("/readyz").status, 200);
    Broker::register_note_protocol(&broker.client());
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    alice.sends("hi").to("bob");
    bob.sees(["hi"]);
}

#[test]
fn a_broker_with_the_memory_fallback_uses_redis_if_it_is_reachable() {
    let redis = Redis::start();
    let broker = Broker::replica(&redis.url(), &["--redis-fallback=memory"]);
    let health = broker.get("/health").json();
    assert_eq!(
        (&health["status"], &health["storage_backend"]),
        (&json!("healthy"), &json!("redis"))
    );
    let durability = health["storage_durability"].as_str().unwrap();
    assert!(durability.contains("appendonly"), "{durability}");
}

#[test]
fn a_replica_that_cannot_read_its_projects_is_unavailable_and_calls_no_key_invalid() {
    let redis = Redis::start();
    let storage = "--storage=redis";
    let first = Broker::secured_with(&[storage, &format!("--redis-url={}", redis.url())]);
    let tenant = first.project("acme", &json!({}));
    let user = "ACL SETUSER broker on >right ~* &* +@read +@write +@scripting +@pubsub +@connection +info +config|get";
    redis.command(&user.split(' ').collect::<Vec<_>>());
    let limited = format!("--redis-url=redis://broker:right@{}", redis.address);
    let admin_key = format!("--admin-key={ADMIN_KEY}");
    let second = Broker::on_existing_storage(&[storage, &limited, "--enable-auth", &admin_key]);
    let connect = || second.upgrade(&[("X-API-Key", &tenant.key)]).status;
    assert_eq!(connect(), 503);
    let health: Value = serde_json::from_str(&second.get("/health").body).unwrap();
    assert_eq!(
        (second.get("/readyz").status, &health["status"]),
        (503, &json!("unhealthy"))
    );
    redis.command(&["ACL", "SETUSER", "broker", "+time"]);
    eventually("the replica is ready", || {
        (second.get("/readyz").status == 200).then_some(())
    });
    assert_eq!(connect(), 101);
}

/// A broker in a database of a Redis, whose function library is that of another version if one is named.
fn broker_in(redis: &Redis, database: usize, version: Option<&str>) -> Broker {
    let mut program = broker_program();
    program.envs(version.map(|version| ("FAULT_LIBRARY_VERSION", version)));
    let broker = Broker::replica_with_program(program, &format!("{}/{database}", redis.url()), &TIMEOUTS_OFF);
    Broker::register_note_protocol(&broker.client());
    broker
}

/// Its agents talk, and all sessions that it has had are known.
fn serves(broker: &Broker, round: usize) {
    let (alice, bob) = (
        broker.agent(&format!("alice{round}")),
        broker.agent(&format!("bob{round}")),
    );
    for text in ["1", "2", "3"] {
        alice.sends(text).to(&bob);
        bob.sees([text]);
    }
    let listed = alice.calls("list_sessions", json!({"status": "all", "limit": 100}));
    assert_eq!(
        listed["sessions"].as_array().unwrap().len(),
        2 * (round + 1),
        "{listed}"
    );
    assert_eq!(broker.get("/health").json()["status"], "healthy");
}

#[test]
fn brokers_in_two_databases_that_start_together_serve_their_own_agents() {
    let redis = Redis::start();
    let both = thread::scope(|scope| {
        let starts = [0, 1].map(|database| {
            let redis = &redis;
            scope.spawn(move || broker_in(redis, database, None))
        });
        starts.map(|start| start.join().unwrap())
    });
    for round in 0..3 {
        for broker in &both {
            serves(broker, round);
        }
    }
}

#[test]
fn brokers_in_two_databases_that_start_one_after_the_other_keep_their_sessions() {
    let redis = Redis::start();
    let first = broker_in(&redis, 0, None);
    let watching = first.agent("watching");
    for round in 0..2 {
        serves_beside(&first, round);
    }
    for (database, version) in [(1, None), (2, Some("another"))] {
        let later = broker_in(&redis, database, version);
        for round in 0..2 {
            serves(&later, round);
        }
        serves_beside(&first, database + 1);
        assert!(watching.wire.is_open(), "it was not opened again");
    }
    watching.calls("heartbeat", json!({}));
}

/// As [`serves`], beside one more session.
fn serves_beside(broker: &Broker, round: usize) {
    let alice = broker.agent(&format!("alice{round}"));
    alice.sends("hi").to("watching");
    let listed = alice.calls("list_sessions", json!({"status": "all", "limit": 100}));
    assert_eq!(listed["sessions"].as_array().unwrap().len(), round + 2, "{listed}");
}
