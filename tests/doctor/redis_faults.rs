//! Faults of the Redis that the configuration names.

use std::fs;

use test_client::wait::free_port;

use super::{Report, User, fixture, redis::Redis};

const HEALTHY: [&str; 4] = ["--save", "", "--appendonly", "yes"];

fn examine(url: &str) -> Report {
    User::new()
        .sets("MCP_BROKER_REDIS_URL", url)
        .examines(&["--storage=redis"])
}

#[test]
fn a_healthy_redis_has_nothing_to_mend_and_is_left_as_it_is() {
    let redis = Redis::start_with(&HEALTHY);
    let report = examine(&redis.url());
    report.finds_nothing();
    report.finds("ok", "storage", &["answers (version"]);
    report.finds("ok", "storage", &["evicts nothing"]);
    report.finds("ok", "storage", &["keeps its data across a restart"]);
    report.finds("ok", "storage", &["the clock of Redis", "agrees"]);
    assert_eq!(redis.command(&["DBSIZE"]), "0");
    assert_eq!(redis.command(&["FUNCTION", "LIST"]), "");
}

#[test]
fn a_redis_that_is_down_is_found() {
    let port = free_port();
    let report = examine(&format!("redis://127.0.0.1:{port}"));
    let finding = report.finds("error", "storage", &["cannot be reached"]);
    assert!(
        finding["cure"]
            .as_str()
            .unwrap()
            .contains(&format!("start Redis at 127.0.0.1:{port}")),
        "{finding}"
    );
}

#[test]
fn a_redis_that_evicts_is_found() {
    let limit = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let redis = Redis::start_with(&[&HEALTHY[..], &limit].concat());
    let report = examine(&redis.url());
    let finding = report.finds("error", "storage", &["maxmemory-policy allkeys-lru"]);
    assert!(
        finding["cure"]
            .as_str()
            .unwrap()
            .contains("CONFIG SET maxmemory-policy noeviction"),
        "{finding}"
    );
}

#[test]
fn a_redis_that_will_evict_once_it_has_a_limit_is_found() {
    let redis = Redis::start_with(&[&HEALTHY[..], &["--maxmemory-policy", "volatile-ttl"]].concat());
    examine(&redis.url()).finds(
        "warning",
        "storage",
        &["maxmemory-policy volatile-ttl", "once maxmemory is set"],
    );
}

#[test]
fn a_redis_without_persistence_is_found() {
    let redis = Redis::start();
    let report = examine(&redis.url());
    let finding = report.finds("warning", "storage", &["loses its data at a restart"]);
    assert!(
        finding["cure"].as_str().unwrap().contains("CONFIG SET appendonly yes"),
        "{finding}"
    );
}

#[test]
fn a_wrong_password_is_found_and_not_shown() {
    let redis = Redis::start_with(&[&HEALTHY[..], &["--requirepass", "right"]].concat());
    let report = examine(&format!("redis://:swordfish@{}", redis.address));
    report.finds("error", "storage", &["refuses the user or the password"]);
    assert!(!report.text.contains("swordfish"), "{}", report.text);
}

#[test]
fn a_redis_replica_is_found() {
    let redis = Redis::start_with(&HEALTHY);
    let replica = redis.redis_replica();
    examine(&replica.url()).finds("error", "storage", &["is a Redis replica"]);
}

#[test]
fn data_of_another_version_are_found() {
    let redis = Redis::start_with(&HEALTHY);
    redis.command(&["SET", "{system}:schema:version", "99"]);
    examine(&redis.url()).finds("error", "storage", &["schema version 99"]);
}

#[test]
fn clocks_that_differ_are_found() {
    let redis = Redis::start_with(&HEALTHY);
    let user = User::new();
    // The clock of the doctor is a minute behind that of Redis.
    let clock = user.writes("clock", "-60000 0");
    let user = user
        .sets("FAULT_CLOCK_FILE", clock.to_str().unwrap())
        .sets("MCP_BROKER_REDIS_URL", &redis.url());
    let report = user.examines(&["--storage=redis"]);
    report.finds("warning", "storage", &["the clock of Redis", "s ahead of this machine"]);
}

#[test]
fn an_expired_certificate_is_found() {
    let (port, certificate, key) = (free_port().to_string(), fixture("expired.pem"), fixture("expired.key"));
    let tls = [
        "--tls-port",
        &port,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
    ];
    let others = ["--tls-ca-cert-file", &certificate, "--tls-auth-clients", "no"];
    let _redis = Redis::start_with(&[&HEALTHY[..], &tls, &others].concat());
    assert!(fs::exists(&certificate).unwrap());
    let user = User::new()
        .sets("SSL_CERT_FILE", &certificate)
        .sets("MCP_BROKER_REDIS_URL", &format!("rediss://127.0.0.1:{port}"));
    let report = user.examines(&["--storage=redis"]);
    report.finds(
        "error",
        "certificates",
        &["has expired: 2020-02-01T00:00:00", "redis_url"],
    );
}
