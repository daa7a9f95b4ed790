//! The clock of one replica is set by an hour, forwards and backwards, and nobody notices.

use std::{fs, path::PathBuf, process::Command};

use crate::support::{Broker, Redis, broker_program, eventually};

/// The library that sets the clock of one process (Debian: faketime).
fn libfaketime() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").unwrap().filter_map(Result::ok);
    let found = folders.map(|folder| folder.path().join("faketime/libfaketime.so.1"));
    found
        .into_iter()
        .find(|path| path.exists())
        .expect("libfaketime is there (Debian: apt-get install faketime)")
}

/// A file that says how far a clock is off.
struct Clock(PathBuf);

impl Clock {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("mcp-broker-clock-{}", uuid::Uuid::new_v4().simple()));
        let clock = Self(path);
        clock.is_off_by("+0");
        clock
    }

    fn is_off_by(&self, text: &str) {
        let written = self.0.with_extension("new");
        fs::write(&written, text).unwrap();
        fs::rename(written, &self.0).unwrap();
    }

    fn program(&self) -> Command {
        let mut program = broker_program();
        program
            .env("LD_PRELOAD", libfaketime())
            .env("FAKETIME_TIMESTAMP_FILE", &self.0)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        program
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_clock_that_jumps_by_an_hour_changes_nothing() {
    let redis = Redis::start();
    let clock = Clock::new();
    let flags = [
        "--heartbeat-interval=1s",
        "--stale-threshold=60s",
        "--disconnect-threshold=2m",
        "--session-retention=5m",
    ];
    let steady = Broker::replica(&redis.url(), &flags);
    let jumpy = Broker::replica_by(clock.program(), &redis.url(), &flags);
    Broker::teaches_note(&steady.visitor());
    let alice = steady.agent("alice");
    let bob = jumpy.agent("bob");
    let reader = jumpy.stateless("reader");
    for off in ["+3600", "-3600", "+86400"] {
        let sent = alice.sends("short-lived").with("ttl_seconds", 600).to("bob");
        let theirs = bob.sends("from the other side").with("ttl_seconds", 600).to("alice");
        clock.is_off_by(off);
        // It is seen to have jumped.
        eventually("the clock is off", || {
            let date = jumpy.get("/livez").header("date").unwrap().to_owned();
            (date[..22] != steady.get("/livez").header("date").unwrap()[..22]).then_some(())
        });
        for witness in [&alice, &bob] {
            for name in ["alice", "bob", "reader"] {
                assert_eq!(witness.presence_of(name).as_deref(), Some("active"), "{name} at {off}");
            }
            assert_eq!(witness.status_of(&sent.id), "queued");
            assert_eq!(witness.status_of(&theirs.id), "queued");
        }
        bob.sees(["short-lived"]);
        alice.sees(["from the other side"]);
        // A key that was used before the jump is known after it.
        let key = format!("key {off}");
        let first = alice.sends("once").with("idempotency_key", key.as_str()).to("bob");
        let again = alice.sends("once").with("idempotency_key", key.as_str()).to("bob");
        assert_eq!(first.id, again.id);
        bob.sees(["once"]);
        // And time goes on: what is to expire soon does.
        let brief = alice.sends("brief").with("ttl_seconds", 1).to("reader");
        alice.learns(&brief.id, "expired");
    }
    assert!(alice.dead_letters("recipient_gone").is_empty());
    drop(reader);
}
